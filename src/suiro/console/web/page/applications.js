/** Applications: the topology with what happens at each node, micro-batches, stores and their rows. */

import { html, useEffect, useMemo, useReveal, useState } from './lib.js';
import { Failure, url, useCommand, useLoad } from './api.js';
import { Chart } from './chart.js';
import { bytes, count, duration, plural, rate, short, Time } from './format.js';
import { Graph, NodeTopics } from './graph.js';
import { Icon } from './icons.js';
import { Badge, Empty, Facts, Field, Head, Json, Loading, Panel, Prose, State, Tabs, Tile } from './parts.js';
import { go, href, route, setQuery } from './router.js';
import { DataTable } from './table.js';

const REFRESH_MS = 2_000;
const ROWS = 100;
/** @type {Record<string, string>} */
const BY = { columns: 'by columns', block: 'by blocks', record: 'one by one' };

/** @param {{parts: string[]}} props */
export function Applications({ parts }) {
  return parts.length === 0 ? html`<${List} />` : html`<${Application} key=${parts[0]} app=${parts[0]} tab=${parts[1] ?? ''} store=${parts[2]} />`;
}

function List() {
  const { data, error, loading, reload } = useLoad(url(['apps']), { everyMs: REFRESH_MS });
  const apps = data?.apps ?? [];
  return html`
    <${Head} title="Applications" note="Topologies of suiro run and KafkaStreams" />
    <div class="content">
      <${Failure} error=${error} retry=${reload} />
      ${loading && html`<${Loading} />`}
      ${data && apps.length === 0 && html`<${Empty} title="No applications configured" command="suiro console --app http://127.0.0.1:8086">Start one with <code>suiro run --console 127.0.0.1:8086</code>, and pass its address to the console.<//>`}
      <div class="cards">${apps.map((/** @type {any} */ app) => html`<${Card} key=${app.app} app=${app} />`)}</div>
    </div>
  `;
}

/** @param {any[]|undefined} rows @param {string} name */
const sum = (rows, name) => (rows ?? []).reduce((before, row) => before + Number(row[name] ?? 0), 0);

/** @param {{app: any}} props */
function Card({ app }) {
  const inside = html`
    <div class="card-head"><span class="card-title mono">${app.application_id ?? app.url}</span>${app.state && html`<${State} text=${app.state} />`}</div>
    ${app.application_id && html`<p class="muted mono">${app.url}</p>`}
    ${app.error && html`<div class="notice error">${app.error}</div>`}
    ${!app.error && html`<${Facts} items=${[
      ['Processed', rate(app.processed_per_s)], ['Lag', count(app.lag)], ['Behind', duration(app.lag_ms)], ['Stores', count(app.stores?.length)],
      ...(sum(app.held, 'records') > 0 ? [['Held back', plural(sum(app.held, 'records'), 'record')]] : []),
      ...(app.retries > 0 ? [['Retries', count(app.retries)]] : []),
    ].filter(([, value]) => value !== '–')} />`}`;
  return app.error ? html`<div class="card failed">${inside}</div>` : html`<a class="card" href=${href(['applications', app.app])}>${inside}</a>`;
}

/** @param {{app: string, tab: string, store?: string}} props */
function Application({ app, tab, store }) {
  const { data, error, loading, reload } = useLoad(url(['apps', app]), { everyMs: REFRESH_MS });
  const parts = ['applications', app];
  return html`
    <${Head} title=${html`<span class="mono">${data?.application_id ?? `Application ${app}`}</span>`} trail=${[{ text: 'Applications', to: '#/applications' }]} note=${data?.url && html`<span class="mono">${data.url}</span>`}>
      ${data?.state && html`<${State} text=${data.state} />`}
    <//>
    <${Tabs} label="Parts of the application" now=${tab} items=${[
      { id: '', text: 'Topology', to: href(parts) },
      { id: 'batches', text: 'Micro-batches', to: href([...parts, 'batches']) },
      { id: 'stores', text: 'Stores', to: href([...parts, 'stores']) },
    ]} />
    <div class="content">
      <${Failure} error=${error ?? data?.error} retry=${reload} />
      ${loading && html`<${Loading} />`}
      ${data && !data.error && tab === '' && html`<${Topology} app=${data} />`}
      ${data && !data.error && tab === 'batches' && html`<${Batches} app=${data} />`}
      ${data && !data.error && tab === 'stores' && (store === undefined ? html`<${Stores} app=${data} parts=${parts} />` : html`<${Store} key=${store} number=${app} name=${store} />`)}
    </div>
  `;
}

/** @param {any[]} rows @returns {Record<string, any[]>} */
function byNode(rows) {
  /** @type {Record<string, any[]>} */
  const found = {};
  for (const row of rows) (found[row.node] ??= []).push(row);
  return found;
}

/** @param {{app: any}} props */
function Topology({ app }) {
  const { node: chosen = '' } = route.value.query;
  const held = byNode(app.held ?? []);
  const graph = { edges: app.graph?.edges ?? [], nodes: (app.graph?.nodes ?? []).map((/** @type {any} */ one) => ({ ...one, held_back: sum(held[one.id], 'records'), held_because: held[one.id]?.[0].why.replaceAll('`', '') })) };
  const node = graph.nodes.find((/** @type {any} */ one) => one.id === chosen);
  const dropped = Object.entries(app.dropped ?? {});
  const reveal = useReveal();
  return html`
    <div class="tiles">
      <${Tile} label="Processed" value=${rate(app.processed_per_s)} />
      <${Tile} label="Lag" value=${count(app.lag)} note="records" />
      <${Tile} label="Last micro-batch" value=${duration(app.batches?.at(-1)?.duration_ms)} note=${app.batches?.length ? `${count(app.batches.at(-1).rows)} rows` : ''} />
      <${Tile} label="Left out" value=${count(dropped.reduce((before, [, records]) => before + Number(records), 0))} tone=${dropped.length > 0 ? 'warn' : ''} note=${dropped.map(([reason, records]) => `${count(records)} ${reason}`).join(', ')} />
    </div>
    <${Panel} title="Topology" flush>
      ${graph.nodes.length === 0 ? html`<${Empty} title="The application reports no topology" />`
        : html`<${Graph} nodes=${graph.nodes} edges=${graph.edges} label="Topology, with the records a second at each node" selected=${chosen || null}
            onSelect=${(/** @type {string} */ id) => setQuery({ node: id === chosen ? null : id }, { replace: true })} />`}
    <//>
    ${node && html`<div key=${chosen} ref=${reveal}><${Panel} title=${html`<span class="mono">${node.name}</span>`} aside=${html`<button type="button" class="plain" data-close aria-label="Close" onClick=${() => setQuery({ node: null })}><${Icon} name="close" /></button>`}>
      <${Facts} items=${[
        ['Kind', node.kind],
        ['Records', `${rate(node.records_per_s)}, ${count(node.records)} since the start`],
        ...(node.engine ? [['Processed', node.why ? `${BY[node.engine] ?? node.engine}: ${node.why}` : (BY[node.engine] ?? node.engine)]] : []),
        ...(node.sub_topology !== undefined && node.sub_topology !== null ? [['Sub-topology', node.sub_topology]] : []),
        ...(node.topic || node.topics?.length ? [['Topics', html`<${NodeTopics} node=${node} />`]] : []),
        ...(node.store ?? node.stores?.[0] ? [['Store', html`<a class="mono" href=${href(['applications', route.value.parts[1], 'stores', node.store ?? node.stores[0]])}>${node.store ?? node.stores[0]}</a>`]] : []),
      ]} /><//></div>`}
    ${(app.held ?? []).length > 0 && html`<${Held} app=${app} />`}
    ${(app.partitions ?? []).length > 0 && html`<${Panel} title="Input partitions" flush><${DataTable} label="Input partitions" rows=${app.partitions} first="-lag" rowKey=${(/** @type {any} */ row) => `${row.topic} ${row.partition}`} columns=${[
      { id: 'topic', title: 'Topic', className: 'clip', sort: (/** @type {any} */ row) => row.topic, cell: (/** @type {any} */ row) => html`<a class="mono" href=${href(['topics', row.topic])}>${row.topic}</a>` },
      { id: 'partition', title: 'Partition', numeric: true, width: '100px', sort: (/** @type {any} */ row) => row.partition, cell: (/** @type {any} */ row) => row.partition },
      { id: 'lag', title: 'Lag', numeric: true, sort: (/** @type {any} */ row) => row.lag, cell: (/** @type {any} */ row) => count(row.lag) },
    ]} /><//>`}
  `;
}

/** Records that tasks buffer until another input has caught up. @param {{app: any}} props */
function Held({ app }) {
  const names = Object.fromEntries((app.graph?.nodes ?? []).map((/** @type {any} */ node) => [node.id, node.name]));
  const why = [...new Set(app.held.map((/** @type {any} */ row) => row.why))];
  return html`<${Panel} title="Records held back" flush>
    ${why.map((text) => html`<p key=${text} class="inset muted"><${Prose} text=${text} /></p>`)}
    <${DataTable} label="Records held back" rows=${app.held} first="-records" rowKey=${(/** @type {any} */ row) => `${row.sub_topology} ${row.partition} ${row.node}`} columns=${[
      { id: 'node', title: 'Input', className: 'clip mono', sort: (/** @type {any} */ row) => row.node, cell: (/** @type {any} */ row) => names[row.node] ?? row.node },
      { id: 'task', title: 'Task', width: '100px', sort: (/** @type {any} */ row) => `${row.sub_topology}_${row.partition}`, cell: (/** @type {any} */ row) => `${row.sub_topology}_${row.partition}` },
      { id: 'condition', title: 'The task is', width: '140px', cell: (/** @type {any} */ row) => html`<${State} text=${row.condition} />` },
      { id: 'records', title: 'Records', numeric: true, sort: (/** @type {any} */ row) => row.records, cell: (/** @type {any} */ row) => count(row.records) },
    ]} /><//>`;
}

/** @param {{app: any}} props */
function Batches({ app }) {
  const batches = app.batches ?? [];
  const times = useMemo(() => batches.map((/** @type {any} */ batch) => Number(batch.at)), [app]);
  const took = useMemo(() => [{ label: 'Duration', colour: '--accent', values: batches.map((/** @type {any} */ batch) => Number(batch.duration_ms)), format: duration }], [app]);
  const rows = useMemo(() => [{ label: 'Rows', colour: '--second', values: batches.map((/** @type {any} */ batch) => Number(batch.rows)), format: short }], [app]);
  if (batches.length === 0) return html`<${Empty} title="No micro-batch has run yet" />`;
  return html`
    <div class="columns">
      <${Panel} title="Duration"><${Chart} times=${times} series=${took} label="Duration of micro-batches" height=${150} bars /><//>
      <${Panel} title="Rows"><${Chart} times=${times} series=${rows} label="Rows of micro-batches" height=${150} bars /><//>
    </div>
    <${Panel} title="Micro-batches" flush><${DataTable} label="Micro-batches" rows=${[...batches].reverse()} rowKey=${(/** @type {any} */ row) => String(row.batch)} columns=${[
      { id: 'batch', title: 'Number', numeric: true, width: '100px', sort: (/** @type {any} */ row) => row.batch, cell: (/** @type {any} */ row) => row.batch },
      { id: 'at', title: 'Time', width: '190px', sort: (/** @type {any} */ row) => row.at, cell: (/** @type {any} */ row) => html`<${Time} ms=${row.at} />` },
      { id: 'duration', title: 'Duration', numeric: true, sort: (/** @type {any} */ row) => row.duration_ms, cell: (/** @type {any} */ row) => duration(row.duration_ms) },
      { id: 'rows', title: 'Rows', numeric: true, sort: (/** @type {any} */ row) => row.rows, cell: (/** @type {any} */ row) => count(row.rows) },
      { id: 'retries', title: 'Retries', numeric: true, sort: (/** @type {any} */ row) => row.retries ?? 0, cell: (/** @type {any} */ row) => (row.retries ? html`<${Badge} tone="warn">${count(row.retries)}<//>` : '0') },
      { id: 'phases', title: 'Where the time went', className: 'clip muted', cell: (/** @type {any} */ row) => html`<span title=${phases(row)}>${phases(row)}</span>` },
    ]} /><//>
  `;
}

/** The longest first. @param {any} batch */
const phases = (batch) => Object.entries(batch.phases ?? {}).filter(([, took]) => Number(took) > 0).sort((left, right) => Number(right[1]) - Number(left[1])).map(([name, took]) => `${name} ${duration(took)}`).join(', ');

/** @param {{app: any, parts: string[]}} props */
function Stores({ app, parts }) {
  const stores = app.stores ?? [];
  if (stores.length === 0) return html`<${Empty} title="This application has no stores" />`;
  return html`<${Panel} flush><${DataTable} label="Stores" rows=${stores} first="name" rowKey=${(/** @type {any} */ row) => row.name} onOpen=${(/** @type {any} */ row) => go(href([...parts, 'stores', row.name]))} columns=${[
    { id: 'name', title: 'Store', className: 'wrap', sort: (/** @type {any} */ row) => row.name, cell: (/** @type {any} */ row) => html`<a class="mono" href=${href([...parts, 'stores', row.name])}>${row.name}</a>` },
    { id: 'kind', title: 'Kind', cell: (/** @type {any} */ row) => html`<${Badge}>${row.kind}<//>` },
    { id: 'rows', title: 'Rows', numeric: true, sort: (/** @type {any} */ row) => row.rows ?? -1, cell: (/** @type {any} */ row) => count(row.rows) },
    { id: 'bytes', title: 'Size, about', numeric: true, sort: (/** @type {any} */ row) => row.bytes ?? -1, cell: (/** @type {any} */ row) => bytes(row.bytes) },
    { id: 'topic', title: 'Changelog topic', className: 'clip', cell: (/** @type {any} */ row) => (row.topic ? html`<a class="mono" href=${href(['topics', row.topic])}>${row.topic}</a>` : html`<span class="muted">none</span>`) },
  ]} /><//>`;
}

/** @param {{number: string, name: string}} props */
function Store({ number, name }) {
  const { contains = '', first = '', row: open = '' } = route.value.query;
  const { data, error, loading } = useLoad(url(['apps', number, 'stores', name], { contains, first, limit: ROWS }));
  const [text, setText] = useState(contains);
  useEffect(() => setText(contains), [contains]);
  const rows = data?.rows ?? [];
  const id = (/** @type {any} */ row) => `${row.key} ${(row.window ?? []).join('-')}`;
  const chosen = rows.find((/** @type {any} */ row) => id(row) === open);
  const search = (/** @type {Event} */ event) => { event.preventDefault(); setQuery({ contains: text, first: null, row: null }); };
  const reveal = useReveal();
  const windowed = rows.some((/** @type {any} */ row) => row.window);
  return html`
    <form class="toolbar inside" onSubmit=${search}>
      <nav class="trail large" aria-label="Store"><a href=${href(['applications', number, 'stores'])}>All stores</a><span aria-hidden="true">/</span><b class="mono">${name}</b></nav>
      <span class="grow"></span>
      <${Field} label="Key contains"><input class="mono" value=${text} data-search onInput=${(/** @type {any} */ event) => setText(event.currentTarget.value)} spellcheck=${false} /><//>
      <button type="submit">Look up</button>
    </form>
    <${Failure} error=${error} />
    ${loading && html`<${Loading} />`}
    ${data && rows.length === 0 && html`<${Empty} title="No rows" />`}
    ${rows.length > 0 && html`<${Panel} flush><div class="letters"><${DataTable} label="Rows of the store" rows=${rows} rowKey=${id} rowClass=${(/** @type {any} */ row) => (row === chosen ? 'selected' : '')}
      onOpen=${(/** @type {any} */ row) => setQuery({ row: id(row) }, { replace: true })} columns=${[
        { id: 'key', title: 'Key', className: 'clip mono', width: '32%', cell: (/** @type {any} */ row) => html`<a href=${href(route.value.parts, { ...route.value.query, row: id(row) })}>${row.key}</a>` },
        ...(windowed ? [{ id: 'window', title: 'Window', width: '320px', cell: (/** @type {any} */ row) => row.window && html`<${Time} ms=${row.window[0]} brief /> to <${Time} ms=${row.window[1]} brief />` }] : []),
        { id: 'value', title: 'Value', className: 'clip mono', cell: (/** @type {any} */ row) => row.value },
      ]} /></div>
      ${data.next !== null && html`<p class="inset"><button type="button" class="small" onClick=${() => setQuery({ first: data.next, row: null })}>Further rows</button></p>`}
    <//>`}
    ${chosen && html`<div key=${open} ref=${reveal} class="stack"><${Panel} title="The row" aside=${html`<button type="button" class="plain" data-close aria-label="Close the row" onClick=${() => setQuery({ row: null })}><${Icon} name="close" /></button>`}><${Json} text=${chosen.value ?? ''} /><//>
      <${InputRecords} number=${number} store=${name} row=${chosen} /></div>`}
  `;
}

/** The input records that a row was made of, once they are asked for. @param {{number: string, store: string, row: any}} props */
function InputRecords({ number, store, row }) {
  const [found, setFound] = useState(/** @type {any} */ (null));
  const command = useCommand(url(['apps', number, 'stores', store, 'explain']), setFound);
  return html`<${Panel} title="Input records" flush=${found?.found} aside=${html`<button type="button" class="small" disabled=${command.busy} onClick=${() => { setFound(null); command.run({ key: row.key, window: row.window ?? null }); }}>${command.busy ? 'Looking…' : 'Look for them'}</button>`}>
    ${!found && !command.error && html`<p class="muted">The topology runs once more over its input, beside the application. This takes at most a minute.</p>`}
    <${Failure} error=${command.error} />
    ${found && html`<${Outcome} found=${found} />`}
    ${found?.found && html`<${DataTable} label="Input records of the row" rows=${found.records} rowKey=${(/** @type {any} */ one) => `${one.topic} ${one.partition} ${one.offset}`} columns=${[
      { id: 'topic', title: 'Topic', className: 'clip mono', cell: (/** @type {any} */ one) => html`<a href=${href(['topics', one.topic])}>${one.topic}</a>` },
      { id: 'partition', title: 'Partition', numeric: true, width: '100px', cell: (/** @type {any} */ one) => one.partition },
      { id: 'offset', title: 'Offset', numeric: true, width: '140px', cell: (/** @type {any} */ one) => html`<a href=${href(['topics', one.topic, 'records'], { at: `${one.partition}:${one.offset}` })}>${one.offset}</a>` },
      { id: 'timestamp', title: 'Time', cell: (/** @type {any} */ one) => html`<${Time} ms=${one.timestamp} />` },
    ]} />`}
  <//>`;
}

/** How far the records can be believed. @param {{found: any}} props */
function Outcome({ found }) {
  return html`<div class=${found.found ? 'inset' : ''}>
    ${!found.found && html`<p>The ${plural(found.read, 'input record')} that were read make no such row.</p>`}
    ${found.found && html`<p>${plural(found.records.length + Number(found.earlier), 'record')} of ${count(found.read)} that were read. ${found.proven
      ? 'These records alone make this row.' : 'These records alone do not make this row: it depends on others, on time or on chance.'}</p>`}
    ${found.earlier > 0 && html`<p class="muted">${plural(found.earlier, 'earlier record')} of the row are not shown.</p>`}
    ${found.stopped && html`<p class="notice warn">The search stopped early, because ${found.stopped}. Later records are missing.</p>`}
    ${found.begin_later.map((/** @type {any} */ one) => html`<p key=${`${one.topic} ${one.partition}`} class="notice warn">${one.topic}-${one.partition} begins at offset ${one.offset}: records before it are gone.</p>`)}
  </div>`;
}
