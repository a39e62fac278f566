/** Produces one record: by text, JSON, a long, bytes in hex, or the newest schema of the topic. */

import { html, useState } from './lib.js';
import { url } from './api.js';
import { FormDialog, pairs, whole } from './dialog.js';
import { Field, say, Select } from './parts.js';

const FORMATS = ['string', 'json', 'avro', 'long', 'hex'];

/** @param {any} field @param {string} other */
const formatOf = (field, other) => (FORMATS.includes(field?.format) ? field.format : other);

/** @param {any} header */
const lineOf = (header) => (header.text === null ? header.name : `${header.name}=${header.text}`);

/** Whether the header is the same after it was a line of the form. A line end in it, which \r becomes there, begins another header. @param {any} header */
const isLine = (header) => {
  try {
    const found = pairs(lineOf(header).replaceAll('\r', '\n'), 'Headers', true);
    return Object.keys(found).length === 1 && found[header.name] === header.text;
  } catch {
    return false;
  }
};

/** @param {{topic: string, like: any, onClose: () => void, onDone: (answer: any) => void}} props `like`: a record, or {} */
export function Produce({ topic, like, onClose, onDone }) {
  const [form, setForm] = useState({
    key: like.key?.text ?? '',
    noKey: like.key === null,
    keyFormat: formatOf(like.key, 'string'),
    value: like.value?.text ?? '',
    noValue: like.value === null,
    valueFormat: formatOf(like.value, 'json'),
    headers: (like.headers ?? []).filter(isLine).map(lineOf).join('\n'),
    partition: '',
  });
  const change = (/** @type {any} */ patch) => setForm({ ...form, ...patch });
  const set = (/** @type {string} */ name) => (/** @type {any} */ event) => change({ [name]: event.currentTarget.value });
  const body = () => {
    const headers = pairs(form.headers, 'Headers', true);
    return {
      key: form.noKey ? null : form.key,
      value: form.noValue ? null : form.value,
      key_format: form.keyFormat,
      value_format: form.valueFormat,
      ...(Object.keys(headers).length > 0 ? { headers } : {}),
      ...(form.partition.trim() === '' ? {} : { partition: whole(form.partition, 'Partition') }),
    };
  };
  const unlike = [['key', form.keyFormat], ['value', form.valueFormat]].filter(([part, format]) => like[part]?.schema_id != null && format !== 'avro');
  return html`<${FormDialog} title=${html`Produce to <span class="mono">${topic}</span>`} action="Produce" wide target=${url(['topics', topic, 'records'])}
    body=${body} onClose=${onClose} onDone=${(/** @type {any} */ answer) => { say(`Written to partition ${answer.partition} at offset ${answer.offset}.`); onDone(answer); }}>
    ${unlike.map(([part, format]) => html`<div key=${part} class="notice warn">The ${part} has a schema (${like[part].format}, schema ${like[part].schema_id}). As ${format} it is written without it.</div>`)}
    ${(like.headers ?? []).filter((/** @type {any} */ header) => !isLine(header)).map((/** @type {any} */ header, /** @type {number} */ at) => html`<div key=${`left out ${at}`} class="notice warn">The header ${header.name} is left out: its line ends, outer blanks or equals sign cannot be written here.</div>`)}
    <div class="fields">
      <${Select} label="Key as" value=${form.keyFormat} options=${FORMATS} onChange=${(/** @type {string} */ keyFormat) => change({ keyFormat })} />
      <${Field} label="Partition" note="Leave empty to choose by the key"><input inputmode="numeric" value=${form.partition} onInput=${set('partition')} /><//>
      <label class="check"><input type="checkbox" checked=${form.noKey} onChange=${(/** @type {any} */ event) => change({ noKey: event.currentTarget.checked })} />No key</label>
    </div>
    <${Field} label="Key" wide><input class="mono" value=${form.key} disabled=${form.noKey} data-first onInput=${set('key')} spellcheck=${false} /><//>
    <div class="fields">
      <${Select} label="Value as" value=${form.valueFormat} options=${FORMATS} onChange=${(/** @type {string} */ valueFormat) => change({ valueFormat })} />
      <label class="check"><input type="checkbox" checked=${form.noValue} onChange=${(/** @type {any} */ event) => change({ noValue: event.currentTarget.checked })} />No value (a tombstone)</label>
    </div>
    <${Field} label="Value" wide><textarea class="mono" rows="9" value=${form.value} disabled=${form.noValue} onInput=${set('value')} spellcheck=${false}></textarea><//>
    <${Field} label="Headers" note="One per line: name=value, or a name alone for null" wide><textarea class="mono" rows="2" value=${form.headers} onInput=${set('headers')} spellcheck=${false}></textarea><//>
  <//>`;
}
