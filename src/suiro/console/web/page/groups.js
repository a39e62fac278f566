/** Consumer groups: how far behind, in records and in time; members; moving committed offsets, shown before it is done. */

import { html, useMemo, useRef, useState } from './lib.js';
import { Failure, post, url, useLoad, useShown } from './api.js';
import { Chart, Sparkline } from './chart.js';
import { ConfirmByName, Dialog, whole } from './dialog.js';
import { count, duration, plural, short } from './format.js';
import { groupRows, may, refreshGroups } from './live.js';
import { Empty, Field, Head, Loading, Panel, say, Search, Select, State, Tile } from './parts.js';
import { go, href, route, setQuery } from './router.js';
import { DataTable, orderOf, orderText, VirtualTable } from './table.js';

const REFRESH_MS = 5_000;

/** @type {import('./table.js').Column[]} */
const COLUMNS = [
  { id: 'group', title: 'Group', sort: (row) => row.group.toLowerCase(), className: 'clip', cell: (row) => html`<a class="mono" href=${href(['groups', row.group])}>${row.group}</a>` },
  { id: 'state', title: 'State', width: '150px', sort: (row) => row.state, cell: (row) => html`<${State} text=${row.state} />` },
  { id: 'topics', title: 'Topics', className: 'clip muted', width: '22%', cell: (row) => row.topics.join(', ') },
  { id: 'members', title: 'Members', numeric: true, width: '92px', sort: (row) => row.members, cell: (row) => count(row.members) },
  { id: 'trend', title: 'Trend', width: '110px', cell: (row) => html`<${Sparkline} values=${row.trend ?? []} label=${`Lag of ${row.group} over time`} tone=${rising(row) ? 'warn' : ''} />` },
  { id: 'lag', title: 'Lag', numeric: true, width: '110px', sort: (row) => row.lag, cell: (row) => count(row.lag) },
  { id: 'time', title: 'Behind', numeric: true, width: '110px', sort: (row) => row.lag_ms, cell: (row) => duration(row.lag_ms) },
];

/** @param {any} row */
function rising(row) {
  const trend = row.trend ?? [];
  return trend.length > 4 && trend.at(-1) > 1_000 && trend.at(-1) > 1.5 * trend[0];
}

/** @param {{parts: string[]}} props */
export function Groups({ parts }) {
  return parts.length === 0 ? html`<${List} />` : html`<${Group} key=${parts[0]} name=${parts[0]} />`;
}

function List() {
  const rows = groupRows.value;
  const { filter = '', sort } = route.value.query;
  const shown = useMemo(() => {
    const wanted = filter.toLowerCase();
    return (rows ?? []).filter((row) => row.group.toLowerCase().includes(wanted) || row.topics.some((/** @type {string} */ topic) => topic.toLowerCase().includes(wanted)));
  }, [rows, filter]);
  if (rows === null) return html`<${Loading} />`;
  return html`<div class="fill">
    <${Head} title="Groups" note=${`${count(shown.length)} of ${count(rows.length)}`} />
    <div class="toolbar">
      <${Search} label="Filter by group or topic" value=${filter} onInput=${(/** @type {string} */ text) => setQuery({ filter: text }, { replace: true })} />
    </div>
    <${VirtualTable} label="Groups" columns=${COLUMNS} rows=${shown} rowKey=${(/** @type {any} */ row) => row.group}
      order=${orderOf(sort, '-lag')} onOrder=${(/** @type {any} */ order) => setQuery({ sort: orderText(order) })}
      onOpen=${(/** @type {any} */ row) => go(href(['groups', row.group]))}
      empty=${html`<${Empty} title=${filter ? 'No matching groups' : 'No groups yet'} command="suiro topic consume orders --group billing">A group appears when a consumer joins it or commits.<//>`} />
  </div>`;
}

/** @param {{name: string}} props */
function Group({ name }) {
  const { data: group, error, loading, reload } = useLoad(url(['groups', name]), { everyMs: REFRESH_MS });
  const [dialog, setDialog] = useState('');
  const history = group?.history ?? [];
  const times = useMemo(() => history.map((/** @type {any} */ point) => point[0]), [history]);
  const lag = useMemo(() => [{ label: 'Lag', colour: '--accent', values: history.map((/** @type {any} */ point) => point[1]), format: short }], [history]);
  const behind = useMemo(() => [{ label: 'Behind', colour: '--second', values: history.map((/** @type {any} */ point) => point[2]), format: duration }], [history]);
  const close = () => setDialog('');
  return html`
    <${Head} title=${html`<span class="mono">${name}</span>`} trail=${[{ text: 'Groups', to: '#/groups' }]}>
      ${may('operator') && html`<button type="button" onClick=${() => setDialog('reset')} disabled=${!group}>Reset offsets…</button>`}
      ${may('admin') && html`<button type="button" class="danger-text" onClick=${() => setDialog('delete')}>Delete group…</button>`}
    <//>
    <div class="content">
      <${Failure} error=${error} retry=${reload} />
      ${loading && html`<${Loading} />`}
      ${group && html`
        <div class="tiles">
          <${Tile} label="State" value=${html`<${State} text=${group.state} />`} note=${group.type} />
          <${Tile} label="Lag" value=${count(group.lag)} note="records" />
          <${Tile} label="Behind" value=${duration(group.lag_ms)} note="the oldest record not yet read" />
          <${Tile} label="Members" value=${count(group.members.length)} note=${group.assignor || 'no assignor'} />
          <${Tile} label="Coordinator" value=${html`<span class="tile-text mono">${group.coordinator}</span>`} />
        </div>
        ${times.length > 1 && html`<div class="columns">
          <${Panel} title="Lag in records"><${Chart} times=${times} series=${lag} label=${`Lag of ${name} in records`} height=${140} /><//>
          <${Panel} title="Lag in time"><${Chart} times=${times} series=${behind} label=${`Lag of ${name} in time`} height=${140} /><//>
        </div>`}
        <${Panel} title="Partitions" flush>
          ${group.partitions.length > 0 ? html`<${DataTable} label="Partitions" rows=${group.partitions} columns=${PARTITIONS} first="-lag"
            rowKey=${(/** @type {any} */ row) => `${row.topic} ${row.partition}`} />`
            : html`<${Empty} title="The group has committed nothing" />`}
        <//>
        <${Panel} title="Members" flush>
          ${group.members.length > 0 ? html`<${DataTable} label="Members" rows=${group.members} columns=${MEMBERS} first="client" rowKey=${(/** @type {any} */ row) => row.member_id} />`
            : html`<${Empty} title="No members" >Nobody reads for this group now. Its offsets can be reset, and it can be deleted.<//>`}
        <//>
      `}
    </div>
    ${dialog === 'reset' && group && html`<${Reset} group=${group} onClose=${close} onDone=${reload} />`}
    ${dialog === 'delete' && html`<${ConfirmByName} title="Delete group" name=${name} more=${{ confirm: name }} action="Delete group" target=${url(['groups', name, 'delete'])}
      onClose=${close} onDone=${() => { say(`Group ${name} was deleted.`); refreshGroups().catch(() => {}); go('#/groups'); }}>
      The group's committed offsets are deleted. Consumers that come back begin where auto.offset.reset says.
    <//>`}
  `;
}

/** @type {import('./table.js').Column[]} */
const PARTITIONS = [
  { id: 'topic', title: 'Topic', sort: (row) => row.topic, className: 'clip', cell: (row) => html`<a class="mono" href=${href(['topics', row.topic])}>${row.topic}</a>` },
  { id: 'partition', title: 'Partition', numeric: true, width: '90px', sort: (row) => row.partition, cell: (row) => row.partition },
  {
    id: 'committed', title: 'Committed', numeric: true, width: '120px', sort: (row) => row.committed, cell: (row) => (row.committed === null || row.committed < 0 ? html`<span class="muted">none</span>`
      : html`<a href=${href(['topics', row.topic, 'records'], { partition: row.partition, from: String(row.committed) })} title="Records from here on">${count(row.committed)}</a>`),
  },
  { id: 'end', title: 'End', numeric: true, width: '120px', sort: (row) => row.end_offset, cell: (row) => count(row.end_offset) },
  { id: 'lag', title: 'Lag', numeric: true, width: '100px', sort: (row) => row.lag, cell: (row) => count(row.lag) },
  { id: 'time', title: 'Behind', numeric: true, width: '100px', sort: (row) => row.lag_ms, cell: (row) => duration(row.lag_ms) },
  { id: 'client', title: 'Client', className: 'clip', sort: (row) => row.client_id, cell: (row) => row.client_id ?? html`<span class="muted">nobody</span>` },
  { id: 'host', title: 'Host', className: 'clip muted', width: '130px', cell: (row) => row.host ?? '' },
];

/** @type {import('./table.js').Column[]} */
const MEMBERS = [
  { id: 'client', title: 'Client', sort: (row) => row.client_id, className: 'clip', cell: (row) => row.client_id },
  { id: 'member', title: 'Member id', className: 'clip mono muted', cell: (row) => row.member_id },
  { id: 'host', title: 'Host', width: '140px', sort: (row) => row.host, cell: (row) => row.host },
  { id: 'assigned', title: 'Partitions', className: 'clip', cell: (row) => assigned(row.assignment) },
];

/** @param {[string, number][]} assignment */
function assigned(assignment) {
  /** @type {Map<string, number[]>} */
  const topics = new Map();
  for (const [topic, partition] of assignment) topics.set(topic, [...(topics.get(topic) ?? []), partition]);
  return topics.size === 0 ? html`<span class="muted">none</span>`
    : [...topics].map(([topic, partitions]) => `${topic} ${partitions.sort((left, right) => left - right).join(', ')}`).join('; ');
}

/** First the plan by a dry run, then the same for good. @param {{group: any, onClose: () => void, onDone: () => void}} props */
function Reset({ group, onClose, onDone }) {
  const names = [...new Set(group.partitions.map((/** @type {any} */ row) => row.topic))];
  const [form, setForm] = useState({ to: 'earliest', value: '', topic: '', partitions: '' });
  const [planned, setPlanned] = useState(/** @type {{said: any, rows: any[]}|null} */ (null));
  const plan = planned?.rows ?? null;
  const changes = useRef(0);
  const open = useShown();
  const [state, setState] = useState(/** @type {{busy: boolean, error: string|null}} */ ({ busy: false, error: null }));
  const change = (/** @type {any} */ patch) => { changes.current += 1; setForm({ ...form, ...patch }); setPlanned(null); };
  const body = () => {
    const partitions = form.partitions.split(',').map((text) => text.trim()).filter((text) => text !== '').map((text) => whole(text, 'Partitions'));
    const time = form.to === 'datetime' ? new Date(form.value).getTime() : undefined;
    if (form.to === 'datetime' && Number.isNaN(time)) throw new Error('Give a time.');
    if ((form.to === 'offset' || form.to === 'shift') && form.value.trim() === '') throw new Error('Give a number.');
    return {
      to: form.to,
      ...(form.to === 'datetime' ? { value: time } : form.to === 'offset' || form.to === 'shift' ? { value: whole(form.value, 'Value') } : {}),
      ...(form.topic ? { topics: { [form.topic]: partitions.length > 0 ? partitions : null } } : {}),
    };
  };
  const run = async (/** @type {boolean} */ dryRun) => {
    setState({ busy: true, error: null });
    try {
      // What is done is what the plan was made of, and a plan of what the form said before is none.
      const [said, before] = [planned?.said ?? body(), changes.current];
      const found = await post(url(['groups', group.group, 'reset']), { ...said, dry_run: dryRun });
      setState({ busy: false, error: null });
      if (dryRun) {
        if (before === changes.current) setPlanned({ said, rows: found });
      } else {
        say(`Offsets of ${plural(found.length, 'partition')} were reset.`);
        onDone();
        if (open.current) onClose();
      }
    } catch (error) {
      const { message } = /** @type {Error} */ (error);
      if (open.current) setState({ busy: false, error: message });
      else if (!dryRun) say(message, 'error');
    }
  };
  const value = (/** @type {any} */ event) => change({ value: event.currentTarget.value });
  const members = group.members.length;
  return html`<${Dialog} title=${html`Reset offsets of <span class="mono">${group.group}</span>`} wide onClose=${onClose}>
    <form onSubmit=${(/** @type {Event} */ event) => { event.preventDefault(); run(plan === null); }}>
      ${members > 0 && html`<div class="notice warn">The group has ${plural(members, 'member')}. Stop them first: the brokers refuse a reset of a group that is in use.</div>`}
      <div class="fields">
        <${Select} label="To" value=${form.to} onChange=${(/** @type {string} */ to) => change({ to, value: '' })} options=${[
          ['earliest', 'the oldest record'], ['latest', 'the end'], ['offset', 'an offset'], ['datetime', 'a time'], ['shift', 'by a number of records'],
        ]} />
        ${form.to === 'datetime' && html`<${Field} label="Time, in your zone"><input type="datetime-local" step="0.001" value=${form.value} onChange=${value} /><//>`}
        ${form.to === 'offset' && html`<${Field} label="Offset"><input inputmode="numeric" value=${form.value} onInput=${value} /><//>`}
        ${form.to === 'shift' && html`<${Field} label="Records" note="Negative: backwards"><input value=${form.value} onInput=${value} /><//>`}
        <${Select} label="Topic" value=${form.topic} options=${[['', 'all'], ...names.map((name) => /** @type {[string, string]} */ ([String(name), String(name)]))]}
          onChange=${(/** @type {string} */ topic) => change({ topic, partitions: '' })} />
        ${form.topic && html`<${Field} label="Partitions" note="Leave empty for all"><input placeholder="0, 1" value=${form.partitions} onInput=${(/** @type {any} */ event) => change({ partitions: event.currentTarget.value })} /><//>`}
      </div>
      ${plan && html`<${Panel} title=${`What would change: ${plural(plan.length, 'partition')}`} flush>
        <${DataTable} label="Plan" rows=${plan} rowKey=${(/** @type {any} */ row) => `${row.topic} ${row.partition}`} columns=${[
          { id: 'topic', title: 'Topic', className: 'clip mono', cell: (/** @type {any} */ row) => row.topic },
          { id: 'partition', title: 'Partition', numeric: true, cell: (/** @type {any} */ row) => row.partition },
          { id: 'committed', title: 'Now', numeric: true, cell: (/** @type {any} */ row) => count(row.committed) },
          { id: 'offset', title: 'Then', numeric: true, cell: (/** @type {any} */ row) => html`<b>${count(row.offset)}</b>` },
          { id: 'change', title: 'Change', numeric: true, cell: (/** @type {any} */ row) => {
            if (row.committed === null || row.committed === undefined) return '–';
            const moved = BigInt(row.offset) - BigInt(row.committed);
            return `${moved > 0n ? '+' : ''}${count(moved)}`;
          } },
        ]} /><//>`}
      <${Failure} error=${state.error} />
      <div class="dialog-foot">
        <button type="button" onClick=${onClose}>Cancel</button>
        <button type="submit" class=${plan ? 'danger' : 'primary'} disabled=${state.busy || plan?.length === 0}>${state.busy ? 'Working…' : plan ? 'Reset the offsets' : 'Show the plan'}</button>
      </div>
    </form>
  <//>`;
}
