/** Applications: the topology with what happens at each node, micro-batches, stores, and the inputs of a row. */

import { html, useMemo, useState } from './lib.js';
import { Failure, url, useLoad } from './api.js';
import { Chart } from './chart.js';
import { bytes, count, duration, plural, rate, short, Time } from './format.js';
import { Graph, NodeTopics } from './graph.js';
import { Icon } from './icons.js';
import { Badge, Empty, Facts, Field, Head, Json, Loading, Panel, State, Tabs, Tile } from './parts.js';
import { RecordLink } from './record.js';
import { go, href, route, setQuery } from './router.js';
import { DataTable } from './table.js';

const REFRESH_MS = 2_000;
const ROWS = 100;

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
      ${data && apps.length === 0 && html`<${Empty} title="No application was named" command="suiro console --app http://127.0.0.1:8086">Start one with <code>suiro run --console 127.0.0.1:8086</code>, and name it to the console.<//>`}
      <div class="cards">${apps.map((/** @type {any} */ app) => html`<${Card} key=${app.app} app=${app} />`)}</div>
    </div>
  `;
}

/** @param {{app: any}} props */
function Card({ app }) {
  const inside = html`
    <div class="card-head"><span class="card-title mono">${app.application_id ?? app.url}</span>${app.state && html`<${State} text=${app.state} />`}</div>
    <p class="muted mono">${app.url}</p>
    ${app.error && html`<div class="notice error">${app.error}</div>`}
    ${!app.error && html`<${Facts} items=${[
      ['Processed', rate(app.processed_per_s)], ['Lag', count(app.lag)], ['Behind', duration(app.lag_ms)], ['Stores', count(app.stores?.length)],
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
      ${data && !data.error && tab === 'stores' && (store === undefined ? html`<${Stores} app=${data} parts=${parts} />` : html`<${Store} key=${store} number=${app} name=${store} app=${data} />`)}
    </div>
  `;
}

/** @param {{app: any}} props */
function Topology({ app }) {
  const { node: chosen = '' } = route.value.query;
  const graph = app.graph ?? { nodes: [], edges: [] };
  const node = graph.nodes.find((/** @type {any} */ one) => one.id === chosen);
  const held = app.held_back ?? [];
  return html`
    <div class="tiles">
      <${Tile} label="Processed" value=${rate(app.processed_per_s)} />
      <${Tile} label="Lag" value=${count(app.lag)} note="records" />
      <${Tile} label="Behind" value=${duration(app.lag_ms)} />
      <${Tile} label="Last micro-batch" value=${duration(app.batches?.at(-1)?.duration_ms)} note=${app.batches?.length ? `${count(app.batches.at(-1).rows)} rows` : ''} />
      <${Tile} label="Held back" value=${count(held.reduce((/** @type {number} */ sum, /** @type {any} */ one) => sum + Number(one.records), 0))} tone=${held.length > 0 ? 'warn' : ''} />
    </div>
    ${held.length > 0 && html`<ul class="problems">${held.map((/** @type {any} */ one, /** @type {number} */ at) => html`<li key=${at} class="warn"><${Icon} name="warning" /><span><b class="mono">${one.node}</b> holds ${plural(one.records, 'record')} back: ${one.why}</span></li>`)}</ul>`}
    <${Panel} title="Topology" flush>
      ${graph.nodes.length === 0 ? html`<${Empty} title="The application tells no topology" />`
        : html`<${Graph} nodes=${graph.nodes} edges=${graph.edges} label="Topology, with the records a second at each node" selected=${chosen || null}
            onSelect=${(/** @type {string} */ id) => setQuery({ node: id === chosen ? null : id }, { replace: true })} />`}
    <//>
    ${node && html`<${Panel} title=${html`<span class="mono">${node.name}</span>`} aside=${html`<button type="button" class="plain" data-close aria-label="Close" onClick=${() => setQuery({ node: null })}><${Icon} name="close" /></button>`}>
      <${Facts} items=${[
        ['Kind', node.kind],
        ['Records', rate(node.records_per_s)],
        ...(node.sub_topology !== undefined && node.sub_topology !== null ? [['Sub-topology', node.sub_topology]] : []),
        ...(node.topic || node.topics?.length ? [['Topics', html`<${NodeTopics} node=${node} />`]] : []),
        ...(node.store ?? node.stores?.[0] ? [['Store', html`<a class="mono" href=${href(['applications', route.value.parts[1], 'stores', node.store ?? node.stores[0]])}>${node.store ?? node.stores[0]}</a>`]] : []),
        ...(node.held_back > 0 ? [['Held back', `${count(node.held_back)}: ${node.held_because ?? ''}`]] : []),
      ]} /><//>`}
    ${(app.partitions ?? []).length > 0 && html`<${Panel} title="Input partitions" flush><${DataTable} label="Input partitions" rows=${app.partitions} first="-lag" rowKey=${(/** @type {any} */ row) => `${row.topic} ${row.partition}`} columns=${[
      { id: 'topic', title: 'Topic', className: 'clip', sort: (/** @type {any} */ row) => row.topic, cell: (/** @type {any} */ row) => html`<a class="mono" href=${href(['topics', row.topic])}>${row.topic}</a>` },
      { id: 'partition', title: 'Partition', numeric: true, width: '100px', sort: (/** @type {any} */ row) => row.partition, cell: (/** @type {any} */ row) => row.partition },
      { id: 'position', title: 'Position', numeric: true, cell: (/** @type {any} */ row) => count(row.position) },
      { id: 'end', title: 'End', numeric: true, cell: (/** @type {any} */ row) => count(row.end_offset) },
      { id: 'lag', title: 'Lag', numeric: true, sort: (/** @type {any} */ row) => row.lag, cell: (/** @type {any} */ row) => count(row.lag) },
      { id: 'held', title: 'Held back', className: 'muted', cell: (/** @type {any} */ row) => row.held_because ?? '' },
    ]} /><//>`}
  `;
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
      { id: 'retries', title: 'Retries', numeric: true, sort: (/** @type {any} */ row) => row.retries, cell: (/** @type {any} */ row) => (row.retries > 0 ? html`<${Badge} tone="warn">${row.retries}<//>` : (row.retries ?? '–')) },
      { id: 'transaction', title: 'Transaction', width: '140px', cell: (/** @type {any} */ row) => (row.transaction ? html`<${State} text=${row.transaction} />` : '') },
    ]} /><//>
  `;
}

/** @param {{app: any, parts: string[]}} props */
function Stores({ app, parts }) {
  const stores = app.stores ?? [];
  if (stores.length === 0) return html`<${Empty} title="This application has no stores" />`;
  return html`<${Panel} flush><${DataTable} label="Stores" rows=${stores} first="name" rowKey=${(/** @type {any} */ row) => row.name} onOpen=${(/** @type {any} */ row) => go(href([...parts, 'stores', row.name]))} columns=${[
    { id: 'name', title: 'Store', sort: (/** @type {any} */ row) => row.name, cell: (/** @type {any} */ row) => html`<a class="mono" href=${href([...parts, 'stores', row.name])}>${row.name}</a>` },
    { id: 'kind', title: 'Kind', cell: (/** @type {any} */ row) => html`<${Badge}>${row.kind}<//>` },
    { id: 'partitions', title: 'Partitions', numeric: true, cell: (/** @type {any} */ row) => count(row.partitions) },
    { id: 'entries', title: 'Entries', numeric: true, sort: (/** @type {any} */ row) => row.entries, cell: (/** @type {any} */ row) => count(row.entries) },
    { id: 'size', title: 'Size', numeric: true, sort: (/** @type {any} */ row) => row.size_bytes, cell: (/** @type {any} */ row) => bytes(row.size_bytes) },
  ]} /><//>`;
}

/** @param {{number: string, name: string, app: any}} props */
function Store({ number, name, app }) {
  const { partition = '', key = '', from = '', to = '', row: open = '' } = route.value.query;
  const { data, error, loading } = useLoad(url(['apps', number, 'stores', name], { partition, key, from, to, limit: ROWS }));
  const [form, setForm] = useState({ key, from, to, partition });
  const set = (/** @type {string} */ field) => (/** @type {any} */ event) => setForm({ ...form, [field]: event.currentTarget.value });
  const rows = data?.rows ?? [];
  const id = (/** @type {any} */ row) => `${row.partition ?? ''} ${row.key} ${(row.window ?? []).join('-')}`;
  const chosen = rows.find((/** @type {any} */ row) => id(row) === open);
  const search = (/** @type {Event} */ event) => { event.preventDefault(); setQuery({ ...form, row: null }); };
  const windowed = rows.some((/** @type {any} */ row) => row.window);
  return html`
    <form class="toolbar inside" onSubmit=${search}>
      <a href=${href(['applications', number, 'stores'])}>All stores</a><b class="mono">${name}</b>
      <span class="grow"></span>
      <${Field} label="Key"><input class="mono" value=${form.key} data-search onInput=${set('key')} placeholder='["UA","2013-07-04"]' spellcheck=${false} /><//>
      <${Field} label="From"><input class="mono short" value=${form.from} onInput=${set('from')} spellcheck=${false} /><//>
      <${Field} label="To"><input class="mono short" value=${form.to} onInput=${set('to')} spellcheck=${false} /><//>
      <${Field} label="Partition"><input class="short" inputmode="numeric" value=${form.partition} onInput=${set('partition')} /><//>
      <button type="submit">Look up</button>
    </form>
    <${Failure} error=${error} />
    ${loading && html`<${Loading} />`}
    ${data && rows.length === 0 && html`<${Empty} title="No rows" />`}
    ${rows.length > 0 && html`<${Panel} flush><${DataTable} label="Rows of the store" rows=${rows} rowKey=${id} rowClass=${(/** @type {any} */ row) => (row === chosen ? 'selected' : '')}
      onOpen=${(/** @type {any} */ row) => setQuery({ row: id(row) }, { replace: true })} columns=${[
        { id: 'key', title: 'Key', className: 'clip mono', width: '32%', cell: (/** @type {any} */ row) => html`<a href=${href(route.value.parts, { ...route.value.query, row: id(row) })}>${row.key}</a>` },
        ...(windowed ? [{ id: 'window', title: 'Window', width: '320px', cell: (/** @type {any} */ row) => row.window && html`<${Time} ms=${row.window[0]} brief /> to <${Time} ms=${row.window[1]} brief />` }] : []),
        { id: 'value', title: 'Value', className: 'clip mono', cell: (/** @type {any} */ row) => row.value },
        { id: 'partition', title: 'P', label: 'Partition', numeric: true, width: '50px', className: 'muted', cell: (/** @type {any} */ row) => row.partition },
        { id: 'time', title: 'Time', width: '170px', cell: (/** @type {any} */ row) => (row.timestamp !== undefined && row.timestamp !== null ? html`<${Time} ms=${row.timestamp} brief />` : '') },
      ]} />
      ${data.next && html`<p class="inset"><button type="button" class="small" onClick=${() => setQuery({ from: data.next, row: null })}>Further rows</button></p>`}
    <//>`}
    ${chosen && html`<${Inputs} number=${number} store=${name} row=${chosen} />`}
  `;
}

/** @param {{number: string, store: string, row: any}} props */
function Inputs({ number, store, row }) {
  const { data, error, loading } = useLoad(url(['apps', number, 'inputs'], { store, partition: row.partition, key: row.key }));
  const found = data?.inputs ?? [];
  return html`<div class="columns">
    <${Panel} title="The row" aside=${html`<button type="button" class="plain" data-close aria-label="Close the row" onClick=${() => setQuery({ row: null })}><${Icon} name="close" /></button>`}><${Json} text=${row.value ?? ''} /><//>
    <${Panel} title="The records it comes from" flush>
      ${error && html`<div class="inset"><${Failure} error=${error} /></div>`}
      ${loading && html`<${Loading} />`}
      ${data?.note && html`<p class="inset muted">${data.note}</p>`}
      ${data && found.length === 0 && html`<${Empty} title="No record is known" />`}
      ${found.length > 0 && html`<${DataTable} label="Input records" rows=${found} rowKey=${(/** @type {any} */ one) => `${one.topic} ${one.partition} ${one.offset}`} columns=${[
        { id: 'place', title: 'Record', width: '200px', cell: (/** @type {any} */ one) => html`<${RecordLink} topic=${one.topic} partition=${one.partition} offset=${one.offset} />` },
        { id: 'value', title: 'Value', className: 'clip mono', cell: (/** @type {any} */ one) => one.value ?? '' },
      ]} />`}
    <//>
  </div>`;
}
