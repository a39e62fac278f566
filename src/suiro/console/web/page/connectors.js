/** Connectors and captures: state, position, lag, errors; pause, resume, restart. */

import { html, useState } from './lib.js';
import { Failure, post, url, useLoad } from './api.js';
import { Bar } from './chart.js';
import { Ago, bytes, count, duration, now, plural, short } from './format.js';
import { may } from './live.js';
import { Badge, Empty, Facts, Head, Loading, say, State } from './parts.js';
import { href } from './router.js';
import { DataTable } from './table.js';

export function Connectors() {
  const { data, error, loading, reload } = useLoad(url(['connectors']), { everyMs: 2_000 });
  const hosts = data?.hosts ?? [];
  return html`
    <${Head} title="Connectors" note="Sources, sinks and captures" />
    <div class="content">
      <${Failure} error=${error} retry=${reload} />
      ${loading && html`<${Loading} />`}
      ${data && hosts.length === 0 && html`<${Empty} title="No Connect processes configured" command="suiro console --connect http://127.0.0.1:8083">Start one with <code>suiro connect run</code>, and pass its address to the console.<//>`}
      ${hosts.map((/** @type {any} */ host) => html`<section key=${host.host} class="host">
        <h2 class="host-name"><span class="mono">${host.url}</span></h2>
        <${Failure} error=${host.error} />
        ${!host.error && host.connectors.length === 0 && html`<${Empty} title="No connectors run there" />`}
        <div class="cards wide">${host.connectors.map((/** @type {any} */ one) => html`<${Connector} key=${one.name} host=${host.host} connector=${one.status ?? one} onChanged=${reload} />`)}</div>
      </section>`)}
    </div>
  `;
}

/** @param {{host: number, connector: any, onChanged: () => void}} props */
function Connector({ host, connector, onChanged }) {
  const [busy, setBusy] = useState(false);
  const act = async (/** @type {string} */ action) => {
    setBusy(true);
    try {
      await post(url(['connectors', host, connector.name, action]), {});
      say(`${connector.name}: ${action} was asked for.`);
      onChanged();
    } catch (error) {
      say(/** @type {Error} */ (error).message, 'error');
    }
    setBusy(false);
  };
  const paused = connector.state === 'PAUSED';
  const offsets = Object.entries(connector.offsets ?? {});
  const capture = connector.capture ?? null;
  const failed = connector.state === 'FAILED' || (connector.error !== null && connector.state !== 'RUNNING');
  return html`<article class=${`card ${failed ? 'failed' : ''} ${capture ? 'whole' : ''}`} aria-label=${connector.name}>
    <div class="card-head">
      <span class="card-title mono">${connector.name}</span>
      <${Badge}>${connector.kind} ${connector.type}<//><${State} text=${connector.state} />
    </div>
    ${connector.error && html`<div class=${`notice ${failed ? 'error' : 'warn'}`}><span>${failed ? '' : 'The last error: '}${connector.error}${connector.retry_at_ms && connector.retry_at_ms > now() ? `. Next try in ${duration(connector.retry_at_ms - now())}.` : ''}</span></div>`}
    ${capture ? html`<${Capture} connector=${connector} capture=${capture} />` : html`<${Facts} items=${[
      ['Lag', count(connector.lag)],
      ['Records', count(connector.records)],
      ['Rejected', connector.rejected > 0 ? html`<b>${count(connector.rejected)}</b>` : '0'],
      ['Commits', count(connector.commits)],
      ['Restarts', count(connector.restarts)],
    ]} />`}
    ${offsets.length > 0 && html`<details class="more"><summary>Position, ${plural(offsets.length, 'entry').replace('entrys', 'entries')}</summary><dl class="facts mono">${offsets.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${String(value)}</dd></div>`)}</dl></details>`}
    ${may('operator') && html`<div class="actions">
      ${paused ? html`<button type="button" class="small" disabled=${busy} onClick=${() => act('resume')}>Resume</button>` : html`<button type="button" class="small" disabled=${busy} onClick=${() => act('pause')}>Pause</button>`}
      <button type="button" class="small" disabled=${busy} onClick=${() => act('restart')}>Restart</button>
    </div>`}
  </article>`;
}

/** A capture: its place in the database's log, its snapshots by table, and what changed of the tables. @param {{connector: any, capture: any}} props */
function Capture({ connector, capture }) {
  const changes = capture.schema_changes ?? [];
  return html`<div class="capture">
    <${Facts} items=${[
      ['Lag', html`<span title="What the slot has not confirmed of the database's log">${bytes(capture.lag_bytes)}</span>`],
      ['Log kept', bytes(capture.retained_bytes)],
      ['Position', html`<span class="mono">${capture.position ?? 'none yet'}</span>`],
      ['Last commit', capture.last_commit_ms === null ? 'none yet' : html`<${Ago} ms=${capture.last_commit_ms} />`],
      ['Records', count(connector.records)],
      ['Restarts', count(connector.restarts)],
    ]} />
    <section class="capture-part" aria-label="Snapshot">
      <h3>Snapshot <span class="muted">${count(capture.tables_complete)} of ${plural(capture.tables_in_all, 'table')} complete</span></h3>
      ${capture.tables.length > 0 && html`<div class="framed short"><${DataTable} label="Tables of the snapshot" rows=${capture.tables} rowKey=${(/** @type {any} */ row) => row.table} columns=${[
        { id: 'table', title: 'Table', className: 'clip', cell: (/** @type {any} */ row) => html`<a class="mono" href=${href(['topics', row.topic])} title=${row.table}>${row.table}</a>` },
        { id: 'state', title: 'State', width: '96px', cell: (/** @type {any} */ row) => html`<${State} text=${row.state} />` },
        { id: 'share', title: '', label: 'Share', width: '76px', cell: (/** @type {any} */ row) => html`<${Rows} row=${row} />` },
        { id: 'rows', title: 'Rows', numeric: true, width: '146px', cell: (/** @type {any} */ row) => html`<span title=${`${count(row.rows)}${row.is_resumed ? ' since the last start; earlier ones are in the topic, too' : ''}${row.expected === null ? '' : `, of about ${count(row.expected)}`}`}>${row.is_resumed && '+ '}${row.state === 'complete' ? count(row.rows) : short(row.rows)}${row.expected !== null && row.state !== 'complete' && html` <span class="muted">of ${short(row.expected)}</span>`}</span>` },
      ]} /></div>`}
      ${capture.tables.length < capture.tables_in_all && html`<p class="muted">and ${plural(capture.tables_in_all - capture.tables.length, 'further table')}</p>`}
    </section>
    <section class="capture-part" aria-label="Schema changes">
      <h3>Schema changes <span class="muted">since the start</span></h3>
      ${changes.length === 0 ? html`<p class="muted">None.</p>` : html`<div class="short dots"><ol class="timeline">${changes.map((/** @type {any} */ change, /** @type {number} */ at) => html`<li key=${at}>
        <div><a class="mono" href=${href(['schemas', `${change.topic}-value`])}>${change.table}</a> <span class="muted"><${Ago} ms=${change.at_ms} />, id ${change.schema_id}</span></div>
        <div>${change.changes.join('; ')}</div>
      </li>`)}</ol></div>`}
    </section>
  </div>`;
}

/** How much of a table was read, where that is known. @param {{row: any}} props */
function Rows({ row }) {
  if (row.state === 'complete') return html`<${Bar} share=${1} tone="good" label="all rows" />`;
  if (row.is_resumed || !(row.expected > 0)) return null;
  const share = Math.min(Number(row.rows) / Number(row.expected), 0.99);
  return html`<${Bar} share=${share} label=${`${Math.round(share * 100)} % of the rows, about`} />`;
}
