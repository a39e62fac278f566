/** All topics: filter as you type, sort, create. */

import { html, useMemo, useState } from './lib.js';
import { url } from './api.js';
import { FormDialog, pairs, whole } from './dialog.js';
import { bytes, count, rate } from './format.js';
import { Icon } from './icons.js';
import { may, refreshTopics, topicRows } from './live.js';
import { Badge, Empty, Field, Head, Loading, say, Search } from './parts.js';
import { go, href, route, setQuery } from './router.js';
import { orderOf, orderText, VirtualTable } from './table.js';
import { Topic } from './topic.js';

/** @type {import('./table.js').Column[]} */
const COLUMNS = [
  {
    id: 'name', title: 'Name', sort: (row) => row.name.toLowerCase(), className: 'clip',
    cell: (row) => html`<a class="mono" href=${href(['topics', row.name])}>${row.name}</a>${row.internal && html` <${Badge}>internal<//>`}`,
  },
  {
    id: 'health', title: '', label: 'Health', width: '170px', cell: (row) =>
      row.without_leader > 0 ? html`<${Badge} tone="bad">${row.without_leader} without leader<//>`
        : row.under_replicated > 0 ? html`<${Badge} tone="warn">${row.under_replicated} under-replicated<//>` : '',
  },
  { id: 'in', title: 'In', numeric: true, width: '90px', sort: (row) => row.in_per_s, cell: (row) => rate(row.in_per_s) },
  { id: 'records', title: 'Records', numeric: true, width: '130px', sort: (row) => row.records, cell: (row) => count(row.records) },
  { id: 'size', title: 'Size', numeric: true, width: '100px', sort: (row) => row.size_bytes, cell: (row) => bytes(row.size_bytes) },
  { id: 'partitions', title: 'Partitions', numeric: true, width: '100px', sort: (row) => row.partitions, cell: (row) => count(row.partitions) },
  { id: 'replicas', title: 'Replicas', numeric: true, width: '90px', sort: (row) => row.replication_factor, cell: (row) => row.replication_factor },
];

/** @param {{parts: string[]}} props */
export function Topics({ parts }) {
  return parts.length === 0 ? html`<${List} />` : html`<${Topic} key=${parts[0]} name=${parts[0]} tab=${parts[1] ?? ''} />`;
}

function List() {
  const rows = topicRows.value;
  const { filter = '', sort, internal } = route.value.query;
  const [creating, setCreating] = useState(false);
  const shown = useMemo(() => {
    const wanted = filter.toLowerCase().split(/\s+/).filter((word) => word !== '');
    return (rows ?? []).filter(
      (row) => (internal === '1' || !row.internal) && wanted.every((word) => row.name.toLowerCase().includes(word)),
    );
  }, [rows, filter, internal]);
  const hidden = (rows ?? []).filter((row) => row.internal).length;
  if (rows === null) return html`<${Loading} />`;
  return html`<div class="fill">
    <${Head} title="Topics" note=${`${count(shown.length)} of ${count(rows.length)}`}>
      ${may('operator') && html`<button type="button" class="primary" onClick=${() => setCreating(true)}><${Icon} name="plus" />Create topic</button>`}
    <//>
    <div class="toolbar">
      <${Search} label="Filter topics by name" value=${filter} onInput=${(/** @type {string} */ text) => setQuery({ filter: text }, { replace: true })} />
      ${hidden > 0 && html`<label class="check"><input type="checkbox" checked=${internal === '1'}
        onChange=${(/** @type {any} */ event) => setQuery({ internal: event.currentTarget.checked ? '1' : null })} />Internal topics (${hidden})</label>`}
    </div>
    <${VirtualTable} label="Topics" columns=${COLUMNS} rows=${shown} rowKey=${(/** @type {any} */ row) => row.name}
      order=${orderOf(sort, 'name')} onOrder=${(/** @type {any} */ order) => setQuery({ sort: orderText(order) })}
      onOpen=${(/** @type {any} */ row) => go(href(['topics', row.name]))}
      empty=${filter
        ? html`<${Empty} title="No matching topics" command=${`suiro topic create ${/^[\w.-]+$/.test(filter) ? filter : 'orders'} --partitions 3`} />`
        : html`<${Empty} title="No topics yet" command="suiro topic create orders --partitions 3">New topics appear here within seconds.<//>`} />
    ${creating && html`<${CreateTopic} name=${/^[\w.-]+$/.test(filter) ? filter : ''} onClose=${() => setCreating(false)} />`}
  </div>`;
}

/** @param {{name: string, onClose: () => void}} props */
function CreateTopic({ name, onClose }) {
  const [form, setForm] = useState({ name, partitions: '3', replicas: '', configs: '' });
  const set = (/** @type {string} */ field) => (/** @type {any} */ event) => setForm({ ...form, [field]: event.currentTarget.value });
  const body = () => {
    const configs = pairs(form.configs, 'Configs');
    return {
      name: form.name.trim(),
      partitions: whole(form.partitions, 'Partitions'),
      replication_factor: whole(form.replicas, 'Replication factor'),
      ...(Object.keys(configs).length > 0 ? { configs } : {}),
    };
  };
  return html`<${FormDialog} title="Create topic" action="Create topic" target=${url(['topics'])} body=${body} ready=${form.name.trim() !== ''}
    onClose=${onClose} onDone=${() => { say(`Topic ${form.name} was created.`); refreshTopics().catch(() => {}); go(href(['topics', form.name.trim()])); }}>
    <${Field} label="Name" wide><input class="mono" value=${form.name} onInput=${set('name')} autocomplete="off" spellcheck=${false} /><//>
    <div class="fields">
      <${Field} label="Partitions"><input inputmode="numeric" value=${form.partitions} onInput=${set('partitions')} /><//>
      <${Field} label="Replication factor"><input inputmode="numeric" placeholder="the cluster's" value=${form.replicas} onInput=${set('replicas')} /><//>
    </div>
    <${Field} label="Configs" note="One per line: name=value" wide>
      <textarea class="mono" rows="4" placeholder="retention.ms=604800000" value=${form.configs} onInput=${set('configs')} spellcheck=${false}></textarea>
    <//>
  <//>`;
}
