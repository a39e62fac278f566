/** Records of a topic: jump to any place, scroll both ways, follow, filter, export; one of them in full beside. */

import { html, useEffect, useMemo, useRef, useState } from './lib.js';
import { Failure, url, useLoad } from './api.js';
import { Bar } from './chart.js';
import { count, plural, rate, Time } from './format.js';
import { Icon } from './icons.js';
import { may } from './live.js';
import { Badge, Empty, Menu, Select } from './parts.js';
import { Produce } from './produce.js';
import { RecordDetails } from './record.js';
import { useRecords } from './records_list.js';
import { href, route, setQuery } from './router.js';
import { VirtualTable } from './table.js';

const SHOWN_CHARS = 300;
/** @type {[string, string][]} */
const FORMATS = [['', 'auto'], ['string', 'string'], ['json', 'json'], ['avro', 'avro'], ['long', 'long'], ['hex', 'hex']];

/** @param {{topic: string, row: any}} props */
export function Records({ topic, row }) {
  const { query } = route.value;
  const { partition = '', key = '', value = '', filter = '', live = '', at = '', limit = '' } = query;
  const from = fromOf(query);
  const question = { topic, from, partition, key, value, filter, live: live === '1', limit };
  const { held, stick, onEdge, more, stop, restart } = useRecords(question);
  const [producing, setProducing] = useState(/** @type {any} */ (null));
  const chosen = at.match(/^(\d+):(\d+)$/);
  const columns = useMemo(() => columnsOf(query, chosen !== null), [JSON.stringify({ ...query, at: '' }), chosen === null]);
  return html`
    <${Toolbar} topic=${topic} query=${query} partitions=${row?.partitions ?? Object.keys(held.ranges).length} onProduce=${() => setProducing({})} />
    <${Filter} filter=${filter} live=${live === '1'} held=${held} onStop=${stop} onAgain=${restart} />
    ${held.error && html`<div class="toolbar"><${Failure} error=${held.error} retry=${restart} /></div>`}
    <div class=${`split ${chosen ? 'open' : ''}`}>
      <div class="split-list">
        <${VirtualTable} label="Records" columns=${columns} rows=${held.records} rowKey=${placeOf} selected=${at}
          onOpen=${(/** @type {any} */ record) => setQuery({ at: placeOf(record) }, { replace: at !== '' })}
          onEdge=${onEdge} stick=${stick} rowClass=${(/** @type {any} */ record) => (record.transaction === 'aborted' ? 'aborted' : '')}
          empty=${!held.busy && !held.error && html`<${NoRecords} topic=${topic} question=${question} held=${held} />`} />
        <${Foot} held=${held} question=${question} leaderless=${partition === '' ? row?.without_leader ?? 0 : 0} onMore=${more} />
      </div>
      ${chosen && html`<${RecordDetails} topic=${topic} partition=${chosen[1]} offset=${chosen[2]} formats=${{ key, value }}
        onProduce=${(/** @type {any} */ record) => setProducing(record)} />`}
    </div>
    ${producing && html`<${Produce} topic=${topic} like=${producing} onClose=${() => setProducing(null)}
      onDone=${(/** @type {any} */ answer) => { setQuery({ at: `${answer.partition}:${answer.offset}` }); if (live !== '1') restart(); }} />`}
  `;
}

/** Where to begin. The newest are what is shown if nothing is said; a search or a file from there on has no records. @param {Record<string, string>} query */
const fromOf = ({ from = '' }) => (from === 'latest' ? '' : from);

/** @param {any} record */
const placeOf = (record) => `${record.partition}:${record.offset}`;

/** @param {Record<string, string>} query @param {boolean} narrow @returns {import('./table.js').Column[]} */
function columnsOf(query, narrow) {
  const { parts } = route.peek();
  return [
    { id: 'partition', title: 'P', label: 'Partition', numeric: true, width: '44px', className: 'muted', cell: (record) => record.partition },
    { id: 'offset', title: 'Offset', numeric: true, width: '96px', cell: (record) => html`<a href=${href(parts, { ...query, at: placeOf(record) })}>${String(record.offset)}</a>` },
    { id: 'time', title: 'Time', width: narrow ? '114px' : '202px', className: 'time', cell: (record) => html`<${Time} ms=${record.timestamp} ofDay=${narrow} />` },
    { id: 'key', title: 'Key', width: '17%', className: 'clip mono', cell: (record) => html`<${Text} field=${record.key} />` },
    {
      id: 'value', title: 'Value', className: 'clip mono', cell: (record) => html`
        ${record.transaction === 'aborted' && html`<${Badge} tone="bad">aborted<//> `}
        ${record.transaction === 'open' && html`<${Badge} tone="warn">open<//> `}
        <${Text} field=${record.value} />`,
    },
    ...(narrow ? [] : [{ id: 'bytes', title: 'Bytes', numeric: true, width: '104px', className: 'muted', cell: (/** @type {any} */ record) => count(record.bytes) }]),
  ];
}

/** @param {{field: any}} props */
function Text({ field }) {
  if (field === null) return html`<span class="muted">null</span>`;
  if (field.error) return html`<${Badge} tone="warn">undecoded<//> <span class="muted" title=${field.error}>${field.text.slice(0, SHOWN_CHARS)}</span>`;
  if (field.text === '') return html`<span class="muted">empty</span>`;
  return field.text.slice(0, SHOWN_CHARS);
}

/** @param {{topic: string, query: Record<string, string>, partitions: number, onProduce: () => void}} props */
function Toolbar({ topic, query, partitions, onProduce }) {
  const { partition = '', key = '', value = '', live = '', filter = '', limit = '' } = query;
  const from = fromOf(query);
  const numbers = Array.from({ length: Number(partitions) || 0 }, (_, number) => String(number));
  const exported = (/** @type {string} */ format) => url(['topics', topic, 'export'], { format, filter, from: from || 'earliest', partition, key, value, limit });
  return html`<div class="toolbar">
    <${StartAt} from=${from} filter=${filter} disabled=${live === '1'} />
    <${Select} label="Partition" beside value=${partition} options=${[['', 'all'], ...numbers.map((number) => /** @type {[string, string]} */ ([number, number]))]}
      onChange=${(/** @type {string} */ chosen) => setQuery({ partition: chosen })} />
    <${Select} label="Key" beside value=${key} options=${FORMATS} onChange=${(/** @type {string} */ chosen) => setQuery({ key: chosen })} />
    <${Select} label="Value" beside value=${value} options=${FORMATS} onChange=${(/** @type {string} */ chosen) => setQuery({ value: chosen })} />
    <span class="grow"></span>
    <button type="button" class=${live === '1' ? 'on' : ''} aria-pressed=${live === '1'} onClick=${() => setQuery({ live: live === '1' ? null : '1', at: null })}>
      <${Icon} name=${live === '1' ? 'stop' : 'play'} />Live
    </button>
    <${Menu} text=${html`<${Icon} name="download" />Export`}>
      <a href=${exported('jsonl')} download>JSON lines</a>
      <a href=${exported('csv')} download>CSV</a>
    <//>
    ${may('operator') && html`<button type="button" class="primary" onClick=${onProduce}><${Icon} name="plus" />Produce</button>`}
  </div>`;
}

/** @param {{from: string, filter: string, disabled: boolean}} props */
function StartAt({ from, filter, disabled }) {
  const kind = from === '' ? (filter ? 'earliest' : 'latest') : from === 'earliest' ? from
    : /^\d+$/.test(from) ? 'offset' : /^-\d+$/.test(from) ? 'last' : 'time';
  const [asked, setAsked] = useState(kind);
  useEffect(() => setAsked(kind), [kind]);
  const choose = (/** @type {string} */ chosen) => {
    setAsked(chosen);
    if (chosen === 'earliest' || chosen === 'latest') setQuery({ from: chosen, at: null });
  };
  const set = (/** @type {any} */ event) => {
    const text = event.currentTarget.value.trim();
    if (text === '') return;
    if (asked === 'time') {
      const at = new Date(text);
      if (!Number.isNaN(at.getTime())) setQuery({ from: at.toISOString(), at: null });
    } else if (/^\d+$/.test(text)) {
      setQuery({ from: asked === 'last' ? `-${text}` : text, at: null });
    }
  };
  const onKeyDown = (/** @type {KeyboardEvent} */ event) => { if (event.key === 'Enter') set(event); };
  const shown = asked !== kind ? '' : kind === 'time' ? localOf(from) : from.replace('-', '');
  return html`<span class="joined">
    <label class="inline">
      <span class="field-inline">From</span>
      <select value=${asked} disabled=${disabled} onChange=${(/** @type {any} */ event) => choose(event.currentTarget.value)}>
        ${[['latest', 'newest'], ['earliest', 'oldest'], ['offset', 'offset'], ['last', 'last'], ['time', 'time']].slice(filter ? 1 : 0).map(
          ([id, text]) => html`<option key=${id} value=${id} selected=${id === asked}>${text}</option>`,
        )}
      </select>
    </label>
    ${asked === 'time' && html`<input type="datetime-local" step="0.001" aria-label="Time" value=${shown} disabled=${disabled} onChange=${set} />`}
    ${(asked === 'offset' || asked === 'last') && html`<input class="short" inputmode="numeric" key=${asked} disabled=${disabled}
      aria-label=${asked === 'offset' ? 'Offset' : 'How many of the last records of each partition'} placeholder=${asked === 'offset' ? 'offset' : 'records'}
      value=${shown} onKeyDown=${onKeyDown} onChange=${set} />`}
  </span>`;
}

/** For an input of a local time. @param {string} iso */
function localOf(iso) {
  const at = new Date(iso);
  if (Number.isNaN(at.getTime())) return '';
  return new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 23);
}

/** @param {{filter: string, live: boolean, held: any, onStop: () => void, onAgain: () => void}} props */
function Filter({ filter, live, held, onStop, onAgain }) {
  const [text, setText] = useState(filter);
  useEffect(() => setText(filter), [filter]);
  const run = (/** @type {Event} */ event) => {
    event.preventDefault();
    if (text.trim() === filter) onAgain();
    else setQuery({ filter: text.trim(), at: null });
  };
  const scanning = filter !== '' && !live && held.busy && !held.error;
  const { progress, ended } = held;
  return html`<form class="filter" role="search" onSubmit=${run}>
    <label class="search wide">
      <${Icon} name="search" /><span class="hidden">Filter records by an expression</span>
      <input type="search" class="mono" data-search value=${text} placeholder="carrier == 'UA' and dep_delay > 60" autocomplete="off" spellcheck=${false}
        onInput=${(/** @type {any} */ event) => setText(event.currentTarget.value)} />
      <kbd aria-hidden="true">/</kbd>
    </label>
    ${scanning ? html`<button key="cancel" type="button" onClick=${onStop}><${Icon} name="stop" />Cancel</button>` : html`<button key="filter" type="submit">Filter</button>`}
    ${filter !== '' && html`<button type="button" class="plain" onClick=${() => setQuery({ filter: null, at: null })}>Clear</button>`}
    ${filter !== '' && !live && html`<span class="progress" role="status">
      ${progress && html`<${Bar} share=${progress.share} label=${`${Math.round(progress.share * 100)} percent read`} />
        <span>${count(progress.scanned)} read, <b>${count(progress.matched)}</b> found</span>`}
      ${ended?.reason === 'limit' && html`<span class="muted">stopped at the limit</span>`}
      ${ended?.reason === 'cancelled' && html`<span class="muted">cancelled</span>`}
      ${ended?.reason === 'end' && html`<span class="muted">complete</span>`}
      ${ended?.leaderless?.length > 0 && html`<${Badge} tone="warn">not complete: ${without(ended.leaderless)}<//>`}
      ${ended?.deleted > 0 && html`<${Badge} tone="warn">${plural(ended.deleted, 'offset')} deleted meanwhile<//>`}
      <${Unclear} of=${ended} />
    </span>`}
  </form>`;
}

/** How many records the filter does not fit. @param {{of: any}} props */
function Unclear({ of }) {
  if (!(of?.unclear > 0)) return null;
  return html`<span title=${of.first_unclear}><${Badge} tone="warn">the filter says nothing of ${plural(of.unclear, 'record')}<//></span>`;
}

/** @param {number[]} partitions */
const without = (partitions) => `${partitions.length === 1 ? 'partition' : 'partitions'} ${partitions.join(', ')} without a leader`;

/** `leaderless`: how many partitions cannot be read now. @param {{held: any, question: any, leaderless: number, onMore: () => void}} props */
function Foot({ held, question, leaderless, onMore }) {
  const shown = plural(held.records.length, 'record');
  const missing = (held.leaderless.length > 0 && html`<${Badge} tone="warn">left out: ${without(held.leaderless)}<//>`)
    || (leaderless > 0 && html`<${Badge} tone="warn">${plural(leaderless, 'partition')} left out: no leader<//>`);
  if (question.live) {
    return html`<div class="list-foot" role="status">
      <span class=${`pulse ${held.ended || held.error ? 'off' : ''}`} aria-hidden="true"></span>
      ${held.ended || held.error ? 'Stopped' : html`Following, ${rate(Math.round(held.perSecond))}`}<span class="muted">${shown} shown</span>
      ${held.dropped > 0 && html`<${Badge} tone="warn">${count(held.dropped)} left out: they came faster than the page shows<//>`}
      ${held.away && html`<${Badge} tone="warn">without those that came while this page was out of sight<//>`}
      ${missing}
      <${Unclear} of=${held.unclear} />
    </div>`;
  }
  if (question.filter !== '') return html`<div class="list-foot"><span class="muted">${shown}</span></div>`;
  const range = Object.entries(held.ranges);
  return html`<div class="list-foot">
    <span class="muted">${held.busy ? 'Loading…' : `${shown} here`}${range.length === 1 ? `, offsets ${range[0][1][0]} to ${range[0][1][1]} in the partition` : ''}</span>
    ${missing}
    <span class="grow"></span>
    ${held.atEnd && !held.busy && held.records.length > 0 && html`<span class="muted">End of the topic.</span><button type="button" class="small" onClick=${onMore}>Newer ones</button>`}
  </div>`;
}

/** @param {{topic: string, question: any, held: any}} props */
function NoRecords({ topic, question, held }) {
  if (question.live) return html`<${Empty} title="Waiting for records" command=${`suiro topic produce ${topic}`} />`;
  if (question.filter !== '') {
    return html`<${Empty} title=${held.ended?.reason === 'end' ? 'No record matches the filter' : 'Nothing found so far'}>
      Read from another place, or change the filter. A name is a field of the value; <code>record_key()</code> and <code>record_timestamp()</code> are the rest, as in <code>record_key() == 'UA' and delay > 15</code>.
    <//>`;
  }
  if (Object.values(held.ranges).some((/** @type {any} */ range) => range[1] > range[0])) {
    return html`<${Empty} title="No records from here on"><a href=${href(['topics', topic, 'records'], { from: 'earliest' })}>Go to the oldest</a><//>`;
  }
  return html`<${Empty} title="This topic has no records" command=${`suiro topic produce ${topic}`} />`;
}
