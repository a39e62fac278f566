/** Schemas of the registry: subjects, versions and what changed between them, a check of a new one. */

import { html, useEffect, useMemo, useState } from './lib.js';
import { Failure, post, url, useLoad } from './api.js';
import { Dialog, FormDialog } from './dialog.js';
import { count, plural } from './format.js';
import { Icon } from './icons.js';
import { may, me } from './live.js';
import { Badge, Copy, Empty, Field, Head, Json, Loading, Panel, say, Search, Select } from './parts.js';
import { go, href, route, setQuery } from './router.js';
import { orderOf, orderText, VirtualTable } from './table.js';

const TYPES = ['AVRO', 'JSON', 'PROTOBUF'];

/** @type {import('./table.js').Column[]} */
const COLUMNS = [
  { id: 'subject', title: 'Subject', sort: (row) => row.subject.toLowerCase(), className: 'clip', cell: (row) => html`<a class="mono" href=${href(['schemas', row.subject])}>${row.subject}</a>` },
  { id: 'type', title: 'Type', width: '120px', sort: (row) => row.type, cell: (row) => row.type && html`<${Badge}>${row.type}<//>` },
  { id: 'versions', title: 'Versions', numeric: true, width: '100px', sort: (row) => row.versions.length, cell: (row) => (row.latest_id === null ? '' : count(row.versions.length)) },
  { id: 'latest', title: 'Latest id', numeric: true, width: '100px', sort: (row) => row.latest_id, cell: (row) => row.latest_id },
  { id: 'compatibility', title: 'Compatibility', width: '210px', sort: (row) => row.compatibility, cell: (row) => row.compatibility },
];

/** @param {{parts: string[]}} props */
export function Schemas({ parts }) {
  if (me.value && !me.value.has.registry) {
    return html`<${Head} title="Schemas" /><div class="content"><${Empty} title="No registry was named" command="suiro console --registry http://127.0.0.1:8081" /></div>`;
  }
  return parts.length === 0 ? html`<${List} />` : html`<${Subject} key=${parts[0]} subject=${parts[0]} />`;
}

function List() {
  const [everyMs, setEveryMs] = useState(15_000);
  const { data, error, loading, reload } = useLoad(url(['schemas']), { everyMs });
  const { filter = '', sort } = route.value.query;
  const [creating, setCreating] = useState(false);
  // What the registry could not be asked yet comes with the next lists.
  useEffect(() => setEveryMs(data?.complete === false ? 2_000 : 15_000), [data?.complete]);
  const rows = data?.subjects ?? [];
  const shown = useMemo(() => rows.filter((/** @type {any} */ row) => row.subject.toLowerCase().includes(filter.toLowerCase())), [data, filter]);
  return html`<div class="fill">
    <${Head} title="Schemas" note=${data && `${count(shown.length)} of ${plural(rows.length, 'subject')}`}>
      ${may('operator') && html`<button type="button" class="primary" onClick=${() => setCreating(true)}><${Icon} name="plus" />Register schema</button>`}
    <//>
    <div class="toolbar"><${Search} label="Filter subjects by name" value=${filter} onInput=${(/** @type {string} */ text) => setQuery({ filter: text }, { replace: true })} /></div>
    ${error && html`<div class="content"><${Failure} error=${error} retry=${reload} /></div>`}
    ${loading && html`<${Loading} />`}
    ${data && html`<${VirtualTable} label="Subjects" columns=${COLUMNS} rows=${shown} rowKey=${(/** @type {any} */ row) => row.subject}
      order=${orderOf(sort, 'subject')} onOrder=${(/** @type {any} */ order) => setQuery({ sort: orderText(order) })}
      onOpen=${(/** @type {any} */ row) => go(href(['schemas', row.subject]))}
      empty=${html`<${Empty} title=${filter ? 'No matching subjects' : 'No schemas yet'} command="suiro schema register orders-value order.avsc" />`} />`}
    ${creating && html`<${Register} subject="" onClose=${() => setCreating(false)} onDone=${(/** @type {string} */ subject) => go(href(['schemas', subject]))} />`}
  </div>`;
}

/** @param {{subject: string}} props */
function Subject({ subject }) {
  const { data, error, loading, reload } = useLoad(url(['schemas', subject]));
  const { version, old } = route.value.query;
  const [dialog, setDialog] = useState('');
  const versions = useMemo(() => [...(data?.versions ?? [])].sort((left, right) => left.version - right.version), [data]);
  const shown = versions.find((/** @type {any} */ one) => String(one.version) === version) ?? versions.at(-1);
  const before = versions.find((/** @type {any} */ one) => String(one.version) === old);
  return html`
    <${Head} title=${html`<span class="mono">${subject}</span>`} trail=${[{ text: 'Schemas', to: '#/schemas' }]} note=${data && `Compatibility ${data.compatibility}${data.earlier > 0 ? `; the ${plural(data.earlier, 'earliest version')} left out` : ''}`}>
      <button type="button" onClick=${() => setDialog('check')} disabled=${!data}>Check a schema…</button>
      ${may('operator') && html`<button type="button" class="primary" onClick=${() => setDialog('register')}>Register a version…</button>`}
    <//>
    <div class="content">
      <${Failure} error=${error} retry=${reload} />
      ${loading && html`<${Loading} />`}
      ${shown && html`
        <div class="toolbar inside">
          <${Select} label="Version" beside value=${String(shown.version)} options=${versions.map((/** @type {any} */ one) => String(one.version))} onChange=${(/** @type {string} */ chosen) => setQuery({ version: chosen })} />
          ${versions.length > 1 && html`<${Select} label="Changes since" beside value=${before ? String(before.version) : ''}
            options=${[['', 'none'], ...versions.filter((/** @type {any} */ one) => one !== shown).map((/** @type {any} */ one) => [String(one.version), `version ${one.version}`])]} onChange=${(/** @type {string} */ chosen) => setQuery({ old: chosen })} />`}
          <${Badge}>${shown.type}<//><span class="muted">id ${shown.id}</span>
          <span class="grow"></span>
          ${data.topics.length > 0 && html`<span class="muted">${data.topics.length === 1 ? 'Topic' : 'Topics'}</span>`}
          ${data.topics.map((/** @type {string} */ topic) => html`<a key=${topic} class="mono" href=${href(['topics', topic])}>${topic}</a>`)}
        </div>
        ${before ? html`<${Diff} subject=${subject} old=${before.version} now=${shown.version} />`
          : html`<${Panel} title=${`Version ${shown.version}`} aside=${html`<${Copy} text=${shown.text} label="Copy the schema" />`}><${Json} text=${shown.text} /><//>`}
        ${shown.references.length > 0 && html`<${Panel} title="References"><ul class="plain-list">
          ${shown.references.map((/** @type {any} */ one) => html`<li key=${one.name}><span class="mono">${one.name}</span> is <a class="mono" href=${href(['schemas', one.subject], { version: one.version })}>${one.subject}</a>, version ${one.version}</li>`)}
        </ul><//>`}
      `}
    </div>
    ${dialog === 'check' && html`<${Check} subject=${subject} type=${shown?.type ?? 'AVRO'} onClose=${() => setDialog('')} />`}
    ${dialog === 'register' && html`<${Register} subject=${subject} type=${shown?.type} text=${shown?.text} onClose=${() => setDialog('')} onDone=${reload} />`}
  `;
}

/** @param {{subject: string, old: number, now: number}} props */
function Diff({ subject, old, now }) {
  const { data, error, loading } = useLoad(url(['schemas', subject, 'diff'], { old, new: now }));
  return html`<${Panel} title=${`From version ${old} to ${now}`}>
    <${Failure} error=${error} />
    ${loading && html`<${Loading} />`}
    ${data && (data.lines.length === 0 ? html`<p class="muted">They are the same.</p>` : html`<pre class="code diff" tabindex="0">${data.lines.map(
      (/** @type {string} */ line, /** @type {number} */ at) => html`<span key=${at} class=${line.startsWith('+++') || line.startsWith('---') || line.startsWith('@@') ? 'diff-head' : line.startsWith('+') ? 'diff-new' : line.startsWith('-') ? 'diff-old' : ''}>${line}</span>`,
    )}</pre>`)}
  <//>`;
}

/** @param {{subject: string, type: string, onClose: () => void}} props */
function Check({ subject, type, onClose }) {
  const [form, setForm] = useState({ schema: '', type });
  const [found, setFound] = useState(/** @type {any} */ (null));
  const send = async (/** @type {Event} */ event) => {
    event.preventDefault();
    setFound(null);
    setFound(await post(url(['schemas', subject, 'check']), form).catch((error) => ({ error: error.message })));
  };
  return html`<${Dialog} title="Check a schema" wide onClose=${onClose}>
    <form onSubmit=${send}>
    <${SchemaFields} form=${form} setForm=${setForm} />
    ${found?.error && html`<${Failure} error=${found.error} />`}
    ${found && !found.error && (found.compatible
      ? html`<div class="notice good" role="status">It is compatible and can be registered.</div>`
      : html`<div class="notice error" role="alert"><div>It is not compatible.<ul>${found.reasons.map((/** @type {string} */ reason, /** @type {number} */ at) => html`<li key=${at}>${reason}</li>`)}</ul></div></div>`)}
    <div class="dialog-foot">
      <button type="button" onClick=${onClose}>Close</button>
      <button type="submit" class="primary" disabled=${form.schema.trim() === ''}>Check</button>
    </div>
    </form>
  <//>`;
}

/** @param {{subject: string, type?: string, text?: string, onClose: () => void, onDone: (subject: string) => void}} props */
function Register({ subject, type = 'AVRO', text = '', onClose, onDone }) {
  const [name, setName] = useState(subject);
  const [form, setForm] = useState({ schema: text, type });
  return html`<${FormDialog} title=${subject ? html`Register a version of <span class="mono">${subject}</span>` : 'Register schema'} action="Register" wide
    target=${url(['schemas', name.trim(), 'register'])} ready=${name.trim() !== '' && form.schema.trim() !== ''} body=${() => form} onClose=${onClose}
    onDone=${(/** @type {any} */ answer) => { say(`Registered as version ${answer.version ?? '?'}, id ${answer.id ?? '?'}.`); onDone(name.trim()); }}>
    ${!subject && html`<${Field} label="Subject" note="TOPIC-value or TOPIC-key" wide><input class="mono" value=${name} onInput=${(/** @type {any} */ event) => setName(event.currentTarget.value)} /><//>`}
    <${SchemaFields} form=${form} setForm=${setForm} />
  <//>`;
}

/** @param {{form: {schema: string, type: string}, setForm: (form: any) => void}} props */
function SchemaFields({ form, setForm }) {
  return html`
    <${Select} label="Type" value=${form.type} options=${TYPES} onChange=${(/** @type {string} */ type) => setForm({ ...form, type })} />
    <${Field} label="Schema" wide><textarea class="mono" rows="14" spellcheck=${false} value=${form.schema} onInput=${(/** @type {any} */ event) => setForm({ ...form, schema: event.currentTarget.value })}></textarea><//>
  `;
}
