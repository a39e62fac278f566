/** Connectors and captures: state, position, lag, errors; pause, resume, restart. */

import { html, useState } from './lib.js';
import { Failure, post, url, useLoad } from './api.js';
import { count, duration, plural } from './format.js';
import { may } from './live.js';
import { Badge, Empty, Facts, Head, Loading, say, State } from './parts.js';

export function Connectors() {
  const { data, error, loading, reload } = useLoad(url(['connectors']), { everyMs: 2_000 });
  const hosts = data?.hosts ?? [];
  return html`
    <${Head} title="Connectors" note="Sources, sinks and captures" />
    <div class="content">
      <${Failure} error=${error} retry=${reload} />
      ${loading && html`<${Loading} />`}
      ${data && hosts.length === 0 && html`<${Empty} title="No host of connectors was named" command="suiro console --connect http://127.0.0.1:8084">Start one with <code>suiro connect run</code>, and name it to the console.<//>`}
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
  return html`<article class=${`card ${connector.state === 'FAILED' ? 'failed' : ''}`} aria-label=${connector.name}>
    <div class="card-head">
      <span class="card-title mono">${connector.name}</span>
      <${Badge}>${connector.kind} ${connector.type}<//><${State} text=${connector.state} />
    </div>
    ${connector.error && html`<div class="notice error"><span>${connector.error}${connector.retry_at_ms && connector.retry_at_ms > Date.now() ? `. Next try in ${duration(connector.retry_at_ms - Date.now())}.` : ''}</span></div>`}
    <${Facts} items=${[
      ['Lag', count(connector.lag)],
      ['Records', count(connector.records)],
      ['Put aside', connector.rejected > 0 ? html`<b>${count(connector.rejected)}</b>` : '0'],
      ['Commits', count(connector.commits)],
      ['Restarts', count(connector.restarts)],
    ]} />
    ${offsets.length > 0 && html`<details class="more"><summary>Position, ${plural(offsets.length, 'entry').replace('entrys', 'entries')}</summary><dl class="facts mono">${offsets.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${String(value)}</dd></div>`)}</dl></details>`}
    ${may('operator') && html`<div class="actions">
      ${paused ? html`<button type="button" class="small" disabled=${busy} onClick=${() => act('resume')}>Resume</button>` : html`<button type="button" class="small" disabled=${busy} onClick=${() => act('pause')}>Pause</button>`}
      <button type="button" class="small" disabled=${busy} onClick=${() => act('restart')}>Restart</button>
    </div>`}
  </article>`;
}
