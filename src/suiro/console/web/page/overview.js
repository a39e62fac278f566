/** The first page: what is wrong now, how much comes in, where it goes, who is behind. */

import { html, useMemo } from './lib.js';
import { Chart, Sparkline } from './chart.js';
import { bytes, count, duration, rate, short } from './format.js';
import { Icon } from './icons.js';
import { overview } from './live.js';
import { Empty, Head, Loading, Panel, State, Tile } from './parts.js';
import { href, SafeLink } from './router.js';
import { DataTable } from './table.js';

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
      <${Problems} problems=${seen.problems ?? []} />
      <div class="tiles">
        <${Tile} label="Records in" value=${rate(seen.in_per_s)} />
        <${Tile} label="Topics" value=${count(seen.topics)} note=${`${count(seen.partitions)} partitions`} />
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
            : html`<${Empty} title="No topics yet" command="suiro topic create orders --partitions 3" />`}
        <//>
        <${Panel} title="Groups that lag" flush aside=${html`<a href="#/groups?sort=-lag">All groups</a>`}>
          ${seen.lagging.length > 0
            ? html`<${DataTable} columns=${LAGGING} rows=${seen.lagging} rowKey=${(/** @type {any} */ row) => row.group} label="Groups that lag" />`
            : html`<${Empty} title="No group is behind" command="suiro group list" />`}
        <//>
      </div>
      <${Panel} title="Brokers" flush>
        <${DataTable} label="Brokers" rows=${seen.brokers} rowKey=${(/** @type {any} */ row) => String(row.id)} columns=${[
          { id: 'id', title: 'Id', width: '80px', numeric: true, cell: (/** @type {any} */ row) => row.id },
          { id: 'host', title: 'Address', cell: (/** @type {any} */ row) => html`<span class="mono">${row.host}:${row.port}</span>` },
          { id: 'rack', title: 'Rack', cell: (/** @type {any} */ row) => row.rack ?? html`<span class="muted">none</span>` },
          { id: 'role', title: 'Role', cell: (/** @type {any} */ row) => (row.id === seen.controller ? 'controller' : '') },
        ]} />
      <//>
    </div>
  `;
}

/** @param {{problems: {severity: string, text: string, link: string}[]}} props */
function Problems({ problems }) {
  if (problems.length === 0) {
    return html`<div class="problems fine"><${Icon} name="ok" />Nothing is wrong as far as the console knows.</div>`;
  }
  return html`<section class="problems" aria-label="Wrong now">
    <ul>
      ${problems.map((problem, at) => html`<li key=${at} class=${problem.severity === 'error' ? 'bad' : 'warn'}>
        <${Icon} name=${problem.severity === 'error' ? 'error' : 'warning'} />
        <span class="hidden">${problem.severity}:</span>
        <${SafeLink} to=${problem.link}>${problem.text}<//>
      </li>`)}
    </ul>
  </section>`;
}
