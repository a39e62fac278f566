/** The first page: what is wrong now, how much comes in, where it goes, who is behind. */

import { html, useMemo } from './lib.js';
import { Failure, url, useLoad } from './api.js';
import { Chart, Sparkline } from './chart.js';
import { bytes, count, duration, plural, rate, short } from './format.js';
import { Icon } from './icons.js';
import { me, overview } from './live.js';
import { Empty, Head, Loading, Panel, State, Tile } from './parts.js';
import { href, SafeLink } from './router.js';
import { DataTable } from './table.js';

const REFRESH_MS = 5_000;

/** @type {import('./table.js').Column[]} */
const BUSIEST = [
  { id: 'name', title: 'Topic', cell: (row) => html`<a class="mono" href=${href(['topics', row.name])}>${row.name}</a>`, className: 'clip' },
  { id: 'in', title: 'In', numeric: true, width: '92px', cell: (row) => rate(row.in_per_s) },
  { id: 'records', title: 'Records', numeric: true, width: '100px', cell: (row) => short(row.records) },
  { id: 'size', title: 'Size', numeric: true, width: '96px', cell: (row) => bytes(row.size_bytes) },
];

/** @type {import('./table.js').Column[]} */
const LAGGING = [
  { id: 'group', title: 'Group', cell: (row) => html`<a class="mono" href=${href(['groups', row.group])}>${row.group}</a>`, className: 'clip' },
  { id: 'state', title: 'State', width: '100px', cell: (row) => html`<${State} text=${row.state} />` },
  { id: 'trend', title: 'Trend', width: '106px', cell: (row) => html`<${Sparkline} values=${row.trend ?? []} label=${`Lag of ${row.group} over time`} />` },
  { id: 'lag', title: 'Lag', numeric: true, width: '84px', cell: (row) => count(row.lag) },
  { id: 'time', title: 'Behind', numeric: true, width: '84px', cell: (row) => duration(row.lag_ms) },
];

export function Overview() {
  const seen = overview.value;
  const has = me.value?.has;
  const runs = Boolean(has?.apps || has?.views || has?.connect);
  const { data: wrong, error, reload } = useLoad(runs ? url(['problems']) : null, { everyMs: REFRESH_MS });
  const history = seen?.history ?? [];
  const times = useMemo(() => history.map((/** @type {any} */ point) => point[0]), [history]);
  const series = useMemo(
    () => [{ label: 'Records in', colour: '--accent', values: history.map((/** @type {any} */ point) => point[1]), format: rate }],
    [history],
  );
  if (!seen) return html`<${Loading} />`;
  return html`
    <${Head} title="Overview" note=${html`Cluster <span class="mono">${seen.cluster_id ?? 'of no name'}</span>`} />
    <div class="content">
      ${error && html`<${Failure} error=${`Problems of applications, views and connectors cannot be loaded: ${error.message}`} retry=${reload} />`}
      ${!(error && !wrong && seen.problems.length === 0) && html`<${Problems} problems=${wrong?.problems ?? seen.problems} more=${wrong?.left_out ?? 0} />`}
      <div class="tiles">
        <${Tile} label="Records in" value=${rate(seen.in_per_s)} />
        <${Tile} label="Topics" value=${count(seen.topics)} note=${plural(seen.partitions, 'partition')} />
        <${Tile} label="Groups" value=${count(seen.groups)} />
        <${Tile} label="Size" value=${bytes(seen.size_bytes)} />
        <${Tile} label="Brokers" value=${count(seen.brokers.length)} note=${seen.controller === null || seen.controller < 0 ? 'no controller' : `controller ${seen.controller}`} />
        <${Tile} label="Partitions at risk" value=${count(seen.under_replicated + seen.without_leader)}
          tone=${seen.without_leader > 0 ? 'bad' : seen.under_replicated > 0 ? 'warn' : ''}
          note=${seen.without_leader > 0 ? `${seen.without_leader} without a leader` : seen.under_replicated > 0 ? 'under-replicated' : 'all in sync'} />
      </div>
      ${times.length > 1 && html`<${Panel} title="Records in"><${Chart} times=${times} series=${series} label="Records in per second" height=${170} /><//>`}
      <div class="columns">
        <${Panel} title="Busiest topics" flush aside=${html`<a href="#/topics?sort=-in">All topics</a>`}>
          ${seen.busiest.length > 0
            ? html`<${DataTable} columns=${BUSIEST} rows=${seen.busiest} rowKey=${(/** @type {any} */ row) => row.name} label="Busiest topics" />`
            : seen.topics > 0 ? html`<${Empty} title="No topic has new records now" />` : html`<${Empty} title="No topics yet" command="suiro topic create orders --partitions 3" />`}
        <//>
        <${Panel} title="Groups that lag" flush aside=${html`<a href="#/groups?sort=-lag">All groups</a>`}>
          ${seen.lagging.length > 0
            ? html`<${DataTable} columns=${LAGGING} rows=${seen.lagging} rowKey=${(/** @type {any} */ row) => row.group} label="Groups that lag" />`
            : html`<${Empty} title="No group lags" />`}
        <//>
      </div>
      <${Processing} />
      <${Panel} title="Brokers" flush>
        <${DataTable} label="Brokers" rows=${seen.brokers} rowKey=${(/** @type {any} */ row) => String(row.id)} columns=${[
          { id: 'id', title: 'Id', width: '80px', cell: (/** @type {any} */ row) => row.id },
          { id: 'host', title: 'Address', cell: (/** @type {any} */ row) => html`<span class="mono">${row.host}:${row.port}</span>` },
          { id: 'rack', title: 'Rack', cell: (/** @type {any} */ row) => row.rack ?? html`<span class="muted">none</span>` },
          { id: 'role', title: 'Role', cell: (/** @type {any} */ row) => (row.id === seen.controller ? 'controller' : '') },
        ]} />
      <//>
    </div>
  `;
}

/** Applications, views and connectors, each with its state. */
function Processing() {
  const has = me.value?.has;
  const ask = (/** @type {number|undefined} */ number, /** @type {string} */ name) => useLoad(number ? url([name]) : null, { everyMs: REFRESH_MS }).data;
  const apps = ask(has?.apps, 'apps');
  const views = ask(has?.views, 'views');
  const connectors = ask(has?.connect, 'connectors');
  /** @type {{kind: string, icon: string, name: string, to: string, state: string, text: string}[]} */
  const rows = [
    ...(apps?.apps ?? []).map((/** @type {any} */ app) => ({
      kind: 'application', icon: 'applications', name: app.application_id ?? app.url, to: href(['applications', app.app]),
      state: app.state ?? 'unreachable', text: app.error ?? standing(app),
    })),
    ...(views?.hosts ?? []).flatMap((/** @type {any} */ host) => (host.error ? [{ kind: 'views', icon: 'views', name: host.url, to: '#/views', state: 'unreachable', text: host.error }]
      : host.views.map((/** @type {any} */ view) => ({
        kind: 'view', icon: 'views', name: view.view, to: href(['views', host.host, view.view]), state: view.position,
        text: view.routing.serving === null ? '' : `version ${view.routing.serving} serves`,
      })))),
    ...(connectors?.hosts ?? []).flatMap((/** @type {any} */ host) => (host.error ? [{ kind: 'connectors', icon: 'connectors', name: host.url, to: '#/connectors', state: 'unreachable', text: host.error }]
      : host.connectors.map((/** @type {any} */ one) => ({ kind: 'connector', icon: 'connectors', name: one.name, to: '#/connectors', state: one.state, text: one.error ?? '' })))),
  ];
  if (rows.length === 0) return null;
  return html`<${Panel} title="Applications, views and connectors" flush>
    <${DataTable} label="Applications, views and connectors" rows=${rows} rowKey=${(/** @type {any} */ row) => `${row.kind} ${row.name}`} columns=${[
      { id: 'name', title: 'Name', width: '30%', className: 'clip', cell: (/** @type {any} */ row) => html`<a class="mono" href=${row.to}>${row.name}</a>` },
      { id: 'kind', title: 'Kind', width: '130px', cell: (/** @type {any} */ row) => html`<span class="with-icon muted"><${Icon} name=${row.icon} />${row.kind}</span>` },
      { id: 'state', title: 'State', width: '150px', cell: (/** @type {any} */ row) => html`<${State} text=${row.state} tone=${row.state === 'unreachable' ? 'bad' : undefined} />` },
      { id: 'text', title: '', label: 'More', className: 'clip muted', cell: (/** @type {any} */ row) => html`<span title=${row.text}>${row.text}</span>` },
    ]} />
  <//>`;
}

/** What is to be known of an application that runs. @param {any} app */
function standing(app) {
  const held = (app.held ?? []).reduce((/** @type {number} */ sum, /** @type {any} */ one) => sum + Number(one.records), 0);
  return [
    ...(app.lag === undefined || app.lag === null ? [] : [`lag ${count(app.lag)}`]),
    ...(held > 0 ? [`${count(held)} held back`] : []),
    ...(app.retries > 0 ? [`${plural(app.retries, 'retry').replace('retrys', 'retries')}`] : []),
  ].join(', ');
}

/** @param {{problems: {severity: string, text: string, link: string}[], more: number}} props `more`: beyond these */
function Problems({ problems, more }) {
  if (problems.length === 0) {
    return html`<div class="problems fine"><${Icon} name="ok" />No known problems.</div>`;
  }
  const errors = problems.filter(({ severity }) => severity === 'error').length;
  const counts = [...(errors > 0 ? [plural(errors, 'error')] : []), ...(errors < problems.length ? [plural(problems.length - errors, 'warning')] : [])];
  return html`<section class="problems panel flush" aria-labelledby="wrong">
    <div class="panel-head"><h2 id="wrong">Wrong now</h2><div class="panel-aside muted">${counts.join(', ')}</div></div>
    <ul>
      ${problems.map((problem, at) => html`<li key=${at} class=${problem.severity === 'error' ? 'bad' : 'warn'}>
        <${Icon} name=${problem.severity === 'error' ? 'error' : 'warning'} />
        <span class="hidden">${problem.severity}:</span>
        <${SafeLink} to=${problem.link}>${problem.text}<//>
      </li>`)}
      ${more > 0 && html`<li class="muted">and ${plural(more, 'further problem')}</li>`}
    </ul>
  </section>`;
}
