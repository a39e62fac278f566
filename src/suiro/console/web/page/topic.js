/** One topic: partitions, who reads and writes it, configs; records are a page of their own (records.js). */

import { html, useMemo, useState } from './lib.js';
import { Failure, url, useLoad } from './api.js';
import { Chart, Sparkline } from './chart.js';
import { ConfirmByName, FormDialog, whole } from './dialog.js';
import { bytes, count, duration, plural, rate } from './format.js';
import { Lineage } from './lineage.js';
import { may, refreshTopics, topics } from './live.js';
import { Badge, Empty, Field, Head, Loading, Menu, Panel, say, Search, State, Tabs, Tile } from './parts.js';
import { Records } from './records.js';
import { go, href, route, setQuery } from './router.js';
import { DataTable } from './table.js';

const REFRESH_MS = 5_000;
const DEFAULT = 'default';

/** @param {{name: string, tab: string}} props */
export function Topic({ name, tab }) {
  const { data, error, loading, reload } = useLoad(tab === 'records' ? null : url(['topics', name]), { everyMs: REFRESH_MS });
  const [dialog, setDialog] = useState('');
  const row = topics.value?.get(name);
  const close = () => setDialog('');
  const done = (/** @type {string} */ text) => () => { say(text); reload(); refreshTopics().catch(() => {}); };
  const tabs = [
    { id: '', text: 'Overview', to: href(['topics', name]) },
    { id: 'records', text: 'Records', to: href(['topics', name, 'records']) },
    { id: 'groups', text: 'Groups', to: href(['topics', name, 'groups']) },
    { id: 'configs', text: 'Configs', to: href(['topics', name, 'configs']) },
  ];
  return html`<div class=${tab === 'records' ? 'fill' : ''}>
    <${Head} title=${html`<span class="mono">${name}</span>`} trail=${[{ text: 'Topics', to: '#/topics' }]}>
      ${may('operator') && tab !== 'records' && html`<${Menu} text="Change">
        <button type="button" onClick=${() => setDialog('partitions')}>Add partitions…</button>
        ${may('admin') && html`<button type="button" onClick=${() => setDialog('empty')}>Delete all records…</button>
          <button type="button" class="danger-text" onClick=${() => setDialog('delete')}>Delete topic…</button>`}
      <//>`}
      ${tab !== 'records' && html`<a class="button primary" href=${href(['topics', name, 'records'])}>Records</a>`}
    <//>
    <${Tabs} items=${tabs} now=${tab} label="Parts of the topic" />
    ${tab === 'records' && html`<${Records} topic=${name} row=${row} />`}
    ${tab !== 'records' && error && html`<div class="content"><${Failure} error=${error} retry=${reload} /></div>`}
    ${tab !== 'records' && loading && html`<${Loading} />`}
    ${data && tab === '' && html`<${Summary} topic=${data} row=${row} />`}
    ${data && tab === 'groups' && html`<${TopicGroups} topic=${data} />`}
    ${data && tab === 'configs' && html`<${Configs} topic=${data} onChanged=${reload} />`}
    ${dialog === 'partitions' && data && html`<${AddPartitions} topic=${data} onClose=${close} onDone=${done('Partitions were added.')} />`}
    ${dialog === 'empty' && html`<${ConfirmByName} title="Delete all records" name=${name} more=${{ confirm: name }} action="Delete all records"
      target=${url(['topics', name, 'delete-records'])} onClose=${close} onDone=${done(`All records of ${name} were deleted.`)}>
      Every record that the topic has now is deleted. Offsets go on from where they are; nothing brings the records back.
    <//>`}
    ${dialog === 'delete' && html`<${ConfirmByName} title="Delete topic" name=${name} more=${{ confirm: name }} action="Delete topic"
      target=${url(['topics', name, 'delete'])} onClose=${close} onDone=${() => { say(`Topic ${name} was deleted.`); refreshTopics().catch(() => {}); go('#/topics'); }}>
      The topic and all of its records are deleted. Consumers and producers of it fail from then on.
    <//>`}
  </div>`;
}

/** @param {{topic: any, row: any}} props */
function Summary({ topic, row }) {
  const times = useMemo(() => topic.history.map((/** @type {any} */ point) => point[0]), [topic]);
  const series = useMemo(
    () => [{ label: 'Records in', colour: '--accent', values: topic.history.map((/** @type {any} */ point) => point[1]), format: rate }],
    [topic],
  );
  const records = topic.partitions.some((/** @type {any} */ one) => one.end_offset === null) ? null : topic.partitions.reduce((/** @type {number} */ sum, /** @type {any} */ one) => sum + Number(one.end_offset) - Number(one.first_offset), 0);
  const size = topic.partitions.some((/** @type {any} */ one) => one.size_bytes !== null)
    ? topic.partitions.reduce((/** @type {number} */ sum, /** @type {any} */ one) => sum + Number(one.size_bytes ?? 0), 0) : null;
  return html`<div class="content">
    <div class="tiles">
      <${Tile} label="Records in" value=${rate(row?.in_per_s)} />
      <${Tile} label="Records" value=${count(records)} note="by offsets" />
      <${Tile} label="Size" value=${bytes(size)} />
      <${Tile} label="Partitions" value=${count(topic.partitions.length)} note=${`${plural(topic.partitions[0]?.replicas.length ?? 0, 'replica')} each`} />
      <${Tile} label="Groups" value=${count(topic.groups.length)} />
    </div>
    ${times.length > 1 && html`<${Panel} title="Records in"><${Chart} times=${times} series=${series} label=${`Records into ${topic.name} per second`} height=${140} /><//>`}
    <${Lineage} topic=${topic} />
    <${Panel} title="Partitions" flush>
      <${DataTable} label="Partitions" rows=${topic.partitions} rowKey=${(/** @type {any} */ one) => String(one.partition)} first="partition"
        onOpen=${(/** @type {any} */ one) => go(href(['topics', topic.name, 'records'], { partition: one.partition }))}
        columns=${[
          { id: 'partition', title: 'Partition', numeric: true, width: '90px', sort: (/** @type {any} */ one) => one.partition,
            cell: (/** @type {any} */ one) => html`<a href=${href(['topics', topic.name, 'records'], { partition: one.partition })}>${one.partition}</a>` },
          { id: 'first', title: 'First offset', numeric: true, sort: (/** @type {any} */ one) => one.first_offset, cell: (/** @type {any} */ one) => count(one.first_offset) },
          { id: 'end', title: 'End offset', numeric: true, sort: (/** @type {any} */ one) => one.end_offset, cell: (/** @type {any} */ one) => count(one.end_offset) },
          { id: 'size', title: 'Size', numeric: true, sort: (/** @type {any} */ one) => one.size_bytes, cell: (/** @type {any} */ one) => bytes(one.size_bytes) },
          { id: 'leader', title: 'Leader', numeric: true, sort: (/** @type {any} */ one) => one.leader,
            cell: (/** @type {any} */ one) => (one.leader === null || one.leader < 0 ? html`<${Badge} tone="bad">none<//>` : one.leader) },
          { id: 'replicas', title: 'Replicas', cell: (/** @type {any} */ one) => one.replicas.map((/** @type {number} */ replica) =>
            one.in_sync.includes(replica) ? html`<span key=${replica} class="replica">${replica}</span>`
              : html`<span key=${replica} class="replica out" title="not in sync">${replica}<span class="hidden"> not in sync</span></span>`) },
        ]} />
    <//>
  </div>`;
}

/** @param {{topic: any}} props */
function TopicGroups({ topic }) {
  if (topic.groups.length === 0) {
    return html`<div class="content"><${Empty} title="No group reads this topic" command=${`suiro topic consume ${topic.name} --group billing`} /></div>`;
  }
  return html`<div class="content"><${Panel} flush>
    <${DataTable} label="Groups of the topic" rows=${topic.groups} rowKey=${(/** @type {any} */ row) => row.group} first="-lag"
      onOpen=${(/** @type {any} */ row) => go(href(['groups', row.group]))}
      columns=${[
        { id: 'group', title: 'Group', sort: (/** @type {any} */ row) => row.group, className: 'clip', cell: (/** @type {any} */ row) => html`<a class="mono" href=${href(['groups', row.group])}>${row.group}</a>` },
        { id: 'state', title: 'State', width: '130px', sort: (/** @type {any} */ row) => row.state, cell: (/** @type {any} */ row) => html`<${State} text=${row.state} />` },
        { id: 'members', title: 'Members', width: '100px', numeric: true, sort: (/** @type {any} */ row) => row.members, cell: (/** @type {any} */ row) => count(row.members) },
        { id: 'trend', title: 'Trend', width: '110px', cell: (/** @type {any} */ row) => html`<${Sparkline} values=${row.trend ?? []} label=${`Lag of ${row.group} over time`} />` },
        { id: 'lag', title: 'Lag', width: '110px', numeric: true, sort: (/** @type {any} */ row) => row.lag, cell: (/** @type {any} */ row) => count(row.lag) },
        { id: 'time', title: 'Behind', width: '100px', numeric: true, sort: (/** @type {any} */ row) => row.lag_ms, cell: (/** @type {any} */ row) => duration(row.lag_ms) },
      ]} /><//></div>`;
}

/** @param {{topic: any, onChanged: () => void}} props */
function Configs({ topic, onChanged }) {
  const [editing, setEditing] = useState(/** @type {any} */ (null));
  const { filter = '', all } = route.value.query;
  if (topic.configs === null) {
    return html`<div class="content"><${Empty} title="The configs cannot be read">The console's user is not allowed to describe the configs of this topic.<//></div>`;
  }
  const rows = topic.configs.filter((/** @type {any} */ config) => (all !== '0' || config.source !== DEFAULT) && config.name.includes(filter));
  return html`<div class="content">
    <div class="toolbar inside">
      <${Search} label="Filter configs by name" value=${filter} onInput=${(/** @type {string} */ text) => setQuery({ filter: text }, { replace: true })} />
      <label class="check"><input type="checkbox" checked=${all === '0'} onChange=${(/** @type {any} */ event) => setQuery({ all: event.currentTarget.checked ? '0' : null })} />Only what was set</label>
    </div>
    <${Panel} flush>
      <${DataTable} label="Configs" rows=${rows} rowKey=${(/** @type {any} */ row) => row.name} first="name" columns=${[
        { id: 'name', title: 'Name', width: '36%', sort: (/** @type {any} */ row) => row.name, cell: (/** @type {any} */ row) => html`<span class="mono">${row.name}</span>` },
        { id: 'value', title: 'Value', className: 'clip', cell: (/** @type {any} */ row) => html`<span class="mono">${row.is_sensitive ? '(hidden)' : row.value}</span>${human(row)}` },
        { id: 'source', title: 'Source', width: '150px', sort: (/** @type {any} */ row) => row.source, cell: (/** @type {any} */ row) => (row.source === DEFAULT ? html`<span class="muted">${row.source}</span>` : html`<${Badge} tone="accent">${row.source}<//>`) },
        { id: 'edit', title: '', label: 'Change', width: '90px', cell: (/** @type {any} */ row) => may('operator') && !row.is_read_only && html`<button type="button" class="small" aria-label=${`Change ${row.name}`} onClick=${() => setEditing(row)}>Change</button>` },
      ]} />
    <//>
    ${editing && html`<${EditConfig} topic=${topic.name} config=${editing} onClose=${() => setEditing(null)} onDone=${() => { say(`${editing.name} was changed.`); onChanged(); }} />`}
  </div>`;
}

/** What a number of ms or bytes is, beside it. @param {any} row */
function human(row) {
  if (!/^\d+$/.test(row.value ?? '')) return '';
  const value = Number(row.value);
  const text = row.name.endsWith('.ms') ? duration(value) : row.name.endsWith('bytes') && value >= 1024 ? bytes(value) : '';
  return text && value < 1e15 && html`<span class="muted"> ${text}</span>`;
}

/** @param {{topic: string, config: any, onClose: () => void, onDone: () => void}} props */
function EditConfig({ topic, config, onClose, onDone }) {
  const [value, setValue] = useState(config.is_sensitive ? '' : (config.value ?? ''));
  const [unset, setUnset] = useState(false);
  return html`<${FormDialog} title="Change config" action=${unset ? 'Remove the value' : 'Save'} target=${url(['topics', topic, 'alter'])}
    body=${() => ({ configs: { [config.name]: unset ? null : value } })} onClose=${onClose} onDone=${onDone}>
    <${Field} label=${html`<span class="mono">${config.name}</span>`} wide>
      <input class="mono" value=${value} disabled=${unset} onInput=${(/** @type {any} */ event) => setValue(event.currentTarget.value)} spellcheck=${false} />
    <//>
    ${config.source === 'topic' && html`<label class="check"><input type="checkbox" checked=${unset} onChange=${(/** @type {any} */ event) => setUnset(event.currentTarget.checked)} />Remove it from the topic, so that the cluster's value applies</label>`}
  <//>`;
}

/** @param {{topic: any, onClose: () => void, onDone: () => void}} props */
function AddPartitions({ topic, onClose, onDone }) {
  const now = topic.partitions.length;
  const [total, setTotal] = useState(String(now + 1));
  return html`<${FormDialog} title="Add partitions" action="Add partitions" target=${url(['topics', topic.name, 'alter'])} onClose=${onClose} onDone=${onDone}
    body=${() => ({ partitions: whole(total, 'Partitions') })} ready=${Number(total) > now}>
    <p>Keys go to other partitions from then on: records of one key that are in different partitions have no order among each other. Partitions cannot be taken away.</p>
    <${Field} label=${`Partitions, ${now} now`}><input inputmode="numeric" value=${total} onInput=${(/** @type {any} */ event) => setTotal(event.currentTarget.value)} /><//>
  <//>`;
}
