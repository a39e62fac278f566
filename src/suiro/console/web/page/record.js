/** One record in full: key, value and headers, decoded and in bytes; where it is, and what its batch was. */

import { html, useState } from './lib.js';
import { Failure, url, useLoad } from './api.js';
import { FormDialog } from './dialog.js';
import { bytes, count, plural, Time } from './format.js';
import { Icon } from './icons.js';
import { may, topics } from './live.js';
import { Badge, Copy, Facts, Field, Hex, Json, Loading, say, State } from './parts.js';
import { href, setQuery } from './router.js';

/** @param {{topic: string, partition: string, offset: string, formats: {key: string, value: string}, onProduce: (record: any) => void}} props */
export function RecordDetails({ topic, partition, offset, formats, onProduce }) {
  const { data: record, error, loading, reload } = useLoad(url(['topics', topic, 'record'], { partition, offset, ...formats }));
  const [copying, setCopying] = useState(false);
  return html`<aside class="split-side" aria-label="Record">
    <div class="side-head">
      <h2>Partition ${partition}, offset ${offset}</h2>
      <button type="button" class="plain" data-close aria-label="Close the record" title="Close (Esc)" onClick=${() => setQuery({ at: null })}><${Icon} name="close" /></button>
    </div>
    <div class="side-body" tabindex="0" role="region" aria-label="Content of the record">
      <${Failure} error=${error} retry=${reload} />
      ${loading && html`<${Loading} />`}
      ${record && html`
        <div class="actions">
          ${may('operator') && html`<button type="button" class="small" onClick=${() => setCopying(true)}>Copy to a topic…</button>
            <button type="button" class="small" onClick=${() => onProduce(record)}>Produce one like it…</button>`}
        </div>
        <${RecordContent} record=${record} />
      `}
    </div>
    ${copying && record && html`<${CopyTo} record=${record} onClose=${() => setCopying(false)} />`}
  </aside>`;
}

/** @param {{record: any}} props */
export function RecordContent({ record }) {
  const batch = record.batch;
  return html`
    <${Facts} items=${[
      ['Time', html`<${Time} ms=${record.timestamp} />`],
      ['Size', bytes(record.bytes)],
      ...(batch ? [['Batch', `${plural(batch.records, 'record')}, ${bytes(batch.bytes)}${batch.codec && batch.codec !== 'none' ? `, ${batch.codec}` : ', not compressed'}`]] : []),
      ...(record.transaction ? [['Transaction', html`<${State} text=${record.transaction} />`]] : []),
    ]} />
    <${Content} title="Key" field=${record.key} hex=${record.key_hex} />
    <${Content} title="Value" field=${record.value} hex=${record.value_hex} />
    <section class="content-part">
      <div class="content-head"><h3>Headers</h3><span class="muted">${count(record.headers.length)}</span></div>
      ${record.headers.length > 0 && html`<div class="table-scroll" tabindex="0" role="region" aria-label="Headers"><table class="headers" aria-label="Headers">
        <tbody>${record.headers.map((/** @type {any} */ header, /** @type {number} */ at) => html`<tr key=${at}>
          <th scope="row" class="mono">${header.name}</th><td class="mono">${header.text ?? html`<span class="muted">null</span>`}</td></tr>`)}</tbody>
      </table></div>`}
    </section>
  `;
}

/** @param {{title: string, field: any, hex?: string|null}} props */
function Content({ title, field, hex }) {
  const [shown, setShown] = useState('decoded');
  if (field === null) {
    return html`<section class="content-part"><div class="content-head"><h3>${title}</h3><span class="muted">null</span></div></section>`;
  }
  const kinds = [['decoded', 'Decoded'], ['text', 'Text'], ...(hex ? [['hex', 'Bytes']] : [])];
  return html`<section class="content-part">
    <div class="content-head">
      <h3>${title}</h3>
      <${Badge}>${field.format}${field.schema_id !== null && field.schema_id !== undefined ? `, schema ${field.schema_id}` : ''}<//>
      <span class="muted">${bytes(field.bytes)}</span>
      <span class="grow"></span>
      <span class="switch" role="group" aria-label=${`How the ${title.toLowerCase()} is shown`}>
        ${kinds.map(([id, text]) => html`<button key=${id} type="button" aria-pressed=${id === shown} onClick=${() => setShown(id)}>${text}</button>`)}
      </span>
      <${Copy} text=${shown === 'hex' ? (hex ?? '') : field.text} label=${`Copy the ${title.toLowerCase()}`} />
    </div>
    ${field.error && html`<div class="notice warn">${field.error}</div>`}
    ${shown === 'decoded' && html`<${Json} text=${field.text} />`}
    ${shown === 'text' && html`<pre class="code" tabindex="0">${field.text}</pre>`}
    ${shown === 'hex' && html`<${Hex} hex=${hex ?? ''} />`}
    ${field.cut && html`<p class="muted">The rest is not shown.</p>`}
  </section>`;
}

/** @param {{record: any, onClose: () => void}} props */
function CopyTo({ record, onClose }) {
  const [to, setTo] = useState('');
  const names = [...(topics.value?.values() ?? [])].filter((row) => !row.internal).slice(0, 200);
  return html`<${FormDialog} title="Copy the record to a topic" action="Copy" target=${url(['topics', record.topic, 'copy'])} ready=${to.trim() !== ''} onClose=${onClose}
    body=${() => ({ partition: record.partition, offset: record.offset, to: to.trim() })}
    onDone=${() => say(`The record was copied to ${to}.`)}>
    <p>Key, value, headers and time stay byte for byte as they are.</p>
    <${Field} label="Topic" wide>
      <input class="mono" list="topic-names" value=${to} autocomplete="off" spellcheck=${false} onInput=${(/** @type {any} */ event) => setTo(event.currentTarget.value)} />
    <//>
    <datalist id="topic-names">${names.map(({ name }) => html`<option key=${name} value=${name}></option>`)}</datalist>
  <//>`;
}

/** A link to a record. @param {{topic: string, partition: number, offset: number|bigint}} props */
export function RecordLink({ topic, partition, offset }) {
  return html`<a class="mono" href=${href(['topics', topic, 'records'], { partition, from: String(offset), at: `${partition}:${offset}` })}>${topic}-${partition} @ ${String(offset)}</a>`;
}
