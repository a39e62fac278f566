/** Dead letters: grouped by where they come from and why; one beside the record it came from; sent back after a fix. */

import { html, useRef, useReveal, useState } from './lib.js';
import { Failure, post, url, useLoad, useShown } from './api.js';
import { Dialog } from './dialog.js';
import { Ago, count, plural, rate, Time } from './format.js';
import { Icon } from './icons.js';
import { may, topics } from './live.js';
import { Badge, Empty, Field, Head, Loading, Panel, say, State } from './parts.js';
import { RecordContent, RecordLink } from './record.js';
import { go, href, route, setQuery } from './router.js';
import { DataTable } from './table.js';

const LIMIT = 500;

/** @param {{parts: string[]}} props */
export function DeadLetters({ parts }) {
  return parts.length === 0 ? html`<${List} />` : html`<${Topic} key=${parts[0]} topic=${parts[0]} />`;
}

function List() {
  const { data, error, loading, reload } = useLoad(url(['dead-letters']), { everyMs: 10_000 });
  const [name, setName] = useState('');
  return html`
    <${Head} title="Dead letters" note="Records that a topology or a connector could not process" />
    <div class="content">
      <${Failure} error=${error} retry=${reload} />
      ${loading && html`<${Loading} />`}
      ${data && (data.topics.length === 0
        ? html`<${Empty} title="No topic of dead letters">A topology writes them with <code>on_processing_error="dead-letter:TOPIC"</code>, a connector with <code>dead_letter_topic</code>. Topics with “dead” or “dlq” in their names appear here.<//>`
        : html`<${Panel} flush><${DataTable} label="Topics of dead letters" rows=${data.topics} first="-records" rowKey=${(/** @type {any} */ row) => row.name}
            onOpen=${(/** @type {any} */ row) => go(href(['dead-letters', row.name]))} columns=${[
              { id: 'name', title: 'Topic', className: 'clip', sort: (/** @type {any} */ row) => row.name, cell: (/** @type {any} */ row) => html`<a class="mono" href=${href(['dead-letters', row.name])}>${row.name}</a>` },
              { id: 'now', title: 'In', numeric: true, width: '140px', cell: (/** @type {any} */ row) => rate(topics.value?.get(row.name)?.in_per_s) },
              { id: 'records', title: 'Records', numeric: true, width: '140px', sort: (/** @type {any} */ row) => row.records, cell: (/** @type {any} */ row) => (row.records > 0 ? html`<b>${count(row.records)}</b>` : count(row.records)) },
            ]} /><//>`)}
      <form class="toolbar inside" onSubmit=${(/** @type {Event} */ event) => { event.preventDefault(); if (name.trim()) go(href(['dead-letters', name.trim()])); }}>
        <${Field} label="Another topic"><input class="mono" value=${name} autocomplete="off" spellcheck=${false} onInput=${(/** @type {any} */ event) => setName(event.currentTarget.value)} /><//>
        <button type="submit" disabled=${name.trim() === ''}>Open</button>
      </form>
    </div>
  `;
}

/** Of a group, in the URL. It is one also where all that it has is empty. @param {any} row */
const placeOf = (row) => ({ origin: row.origin_topic, exception: row.exception, reason: row.reason, group: '1', at: null });

/** @param {{topic: string}} props */
function Topic({ topic }) {
  const { data, error, loading, reload } = useLoad(url(['dead-letters', topic]));
  const { origin, reason, exception, group, at } = route.value.query;
  const [redriving, setRedriving] = useState(/** @type {any} */ (null));
  // With each redrive the letters and the history are others, and what was chosen has gone.
  const [done, setDone] = useState(0);
  const waiting = (data?.groups ?? []).reduce((/** @type {number} */ sum, /** @type {any} */ group) => sum + Number(group.waiting), 0);
  const alike = [reason, exception, group].every((one) => one === undefined) ? [] : (data?.groups ?? []).filter((/** @type {any} */ one) => one.origin_topic === (origin ?? null) && one.reason === (reason ?? ''));
  // A link may name the reason alone.
  const chosen = alike.find((/** @type {any} */ one) => one.exception === (exception ?? '')) ?? (exception === undefined ? alike[0] : undefined);
  return html`
    <${Head} title=${html`<span class="mono">${topic}</span>`} trail=${[{ text: 'Dead letters', to: '#/dead-letters' }]}
      note=${data && `${plural(waiting, 'record')} waiting of ${count(data.read)} read${data.complete ? '' : '; there are more than were read'}`}>
      <a class="button" href=${href(['topics', topic, 'records'])}>Records</a>
      ${may('operator') && data && waiting > 0 && html`<button type="button" class="primary" onClick=${() => setRedriving({})}>Redrive all…</button>`}
    <//>
    <div class="content">
      <${Failure} error=${error} retry=${reload} />
      ${loading && html`<${Loading} />`}
      ${data && data.groups.length === 0 && html`<${Empty} title="No dead letters" >The topic has no records that can be shown as dead letters.<//>`}
      ${data && data.groups.length > 0 && html`<${Panel} title="By reason" flush>
        <${DataTable} label="Reasons" rows=${data.groups} first="-waiting" rowKey=${(/** @type {any} */ row) => `${row.origin_topic} ${row.exception} ${row.reason}`}
          rowClass=${(/** @type {any} */ row) => (row === chosen ? 'selected' : '')}
          onOpen=${(/** @type {any} */ row) => setQuery(placeOf(row))} columns=${[
            { id: 'reason', title: 'Reason', className: 'wrap', sort: (/** @type {any} */ row) => row.reason, cell: (/** @type {any} */ row) => html`
              <a href=${href(['dead-letters', topic], placeOf(row))}>${row.reason || 'no reason given'}</a>
              <div class="muted small-text">${row.exception}</div>` },
            { id: 'origin', title: 'From', width: '180px', className: 'clip', sort: (/** @type {any} */ row) => row.origin_topic, cell: (/** @type {any} */ row) => (row.origin_topic ? html`<a class="mono" href=${href(['topics', row.origin_topic])}>${row.origin_topic}</a>` : html`<span class="muted">unknown</span>`) },
            { id: 'waiting', title: 'Waiting', numeric: true, width: '90px', sort: (/** @type {any} */ row) => row.waiting, cell: (/** @type {any} */ row) => html`<b>${count(row.waiting)}</b>` },
            { id: 'records', title: 'Records', numeric: true, width: '90px', sort: (/** @type {any} */ row) => row.records, cell: (/** @type {any} */ row) => count(row.records) },
            { id: 'last', title: 'Last', width: '140px', sort: (/** @type {any} */ row) => row.last_timestamp, cell: (/** @type {any} */ row) => html`<${Ago} ms=${row.last_timestamp} />` },
            { id: 'redrive', title: '', label: 'Redrive', width: '100px', cell: (/** @type {any} */ row) => may('operator') && row.waiting > 0 && row.origin_topic !== null && html`<button type="button" class="small" aria-label=${`Redrive: ${row.reason}`} onClick=${() => setRedriving({ origin_topic: row.origin_topic, exception: row.exception, group_reason: row.reason })}>Redrive…</button>` },
          ]} />
      <//>`}
      ${chosen && html`<${Letters} key=${`${done} ${JSON.stringify([chosen.origin_topic, chosen.exception, chosen.reason])}`} topic=${topic} group=${chosen} at=${at} onRedrive=${setRedriving} />`}
      ${data && html`<${History} key=${done} topic=${topic} />`}
    </div>
    ${redriving && html`<${Redrive} topic=${topic} choice=${redriving} onClose=${() => setRedriving(null)} onDone=${() => { reload(); setDone((before) => before + 1); }} />`}
  `;
}

/** @param {{topic: string, group: any, at?: string, onRedrive: (choice: any) => void}} props */
function Letters({ topic, group, at, onRedrive }) {
  // What is empty is said, too: else those of other groups would be among them.
  const said = new URLSearchParams({ origin_topic: group.origin_topic ?? '', exception: group.exception, group_reason: group.reason });
  const { data, error, loading } = useLoad(`${url(['dead-letters', topic, 'records'], { limit: LIMIT })}&${said}`);
  const [chosen, setChosen] = useState(/** @type {Set<string>} */ (new Set()));
  const letters = data?.letters ?? [];
  const place = (/** @type {any} */ letter) => `${letter.record.partition}:${letter.record.offset}`;
  const open = letters.find((/** @type {any} */ letter) => place(letter) === at);
  const toggle = (/** @type {string} */ one) => {
    const next = new Set(chosen);
    if (!next.delete(one)) next.add(one);
    setChosen(next);
  };
  const places = () => letters.filter((/** @type {any} */ letter) => chosen.has(place(letter))).map((/** @type {any} */ letter) => [letter.record.partition, letter.record.offset]);
  return html`<${Panel} title=${html`Records: ${group.reason || 'no reason given'}`} flush aside=${may('operator') && html`<button type="button" class="small" disabled=${chosen.size === 0} onClick=${() => onRedrive({ places: places() })}>Redrive ${chosen.size} chosen…</button>`}>
    <${Failure} error=${error} />
    ${loading && html`<${Loading} />`}
    ${data && html`<div class="letters"><${DataTable} label="Dead letters" rows=${letters} rowKey=${place} rowClass=${(/** @type {any} */ letter) => (place(letter) === at ? 'selected' : '')}
      onOpen=${(/** @type {any} */ letter) => setQuery({ at: place(letter) })} columns=${[
        ...(may('operator') ? [{ id: 'choose', title: '', label: 'Choose', width: '40px', cell: (/** @type {any} */ letter) => html`<input type="checkbox" aria-label=${`Choose ${place(letter)}`} disabled=${letter.done || letter.refusal !== null} checked=${chosen.has(place(letter))} onChange=${() => toggle(place(letter))} />` }] : []),
        { id: 'place', title: 'Place', width: '90px', className: 'mono', cell: (/** @type {any} */ letter) => html`<a href=${href(['dead-letters', topic], { ...route.value.query, at: place(letter) })}>${place(letter)}</a>` },
        { id: 'time', title: 'Time', width: '202px', className: 'time', cell: (/** @type {any} */ letter) => html`<${Time} ms=${letter.record.timestamp} />` },
        { id: 'key', title: 'Key', width: '120px', className: 'clip mono', cell: (/** @type {any} */ letter) => letter.record.key?.text ?? html`<span class="muted">null</span>` },
        { id: 'value', title: 'Value', className: 'clip mono', cell: (/** @type {any} */ letter) => letter.record.value?.text.slice(0, 200) ?? html`<span class="muted">null</span>` },
        { id: 'state', title: 'State', width: '120px', cell: (/** @type {any} */ letter) => (letter.done ? html`<${State} text="redriven" tone="good" />` : letter.refusal ? html`<span title=${letter.refusal}><${State} text="cannot go" tone="bad" /></span>` : html`<${State} text="waiting" />`) },
      ]} /></div>`}
    ${data && !data.complete && html`<p class="muted inset">There are more than these.</p>`}
    ${open && html`<${Pair} topic=${topic} letter=${open} />`}
  <//>`;
}

/** The dead letter, and the record it came from. @param {{topic: string, letter: any}} props */
function Pair({ topic, letter }) {
  const { partition, offset } = letter.record;
  const { data, error, loading } = useLoad(letter.origin ? url(['dead-letters', topic, 'origin'], { partition, offset }) : null);
  const whole = useLoad(url(['topics', topic, 'record'], { partition, offset }));
  const reveal = useReveal();
  return html`<div class="pair" ref=${reveal}>
    <button type="button" class="plain pair-close" data-close aria-label="Close the dead letter" onClick=${() => setQuery({ at: null })}><${Icon} name="close" /></button>
    <section aria-label="The dead letter">
      <h3>The dead letter</h3>
      <p class="mono">${letter.exception}</p>
      <p>${letter.reason}</p>
      ${letter.refusal && html`<div class="notice warn">It cannot be sent back: ${letter.refusal}.</div>`}
      <${RecordContent} record=${whole.data ?? letter.record} />
    </section>
    <section aria-label="The record it came from">
      <h3>The record it came from</h3>
      <${Failure} error=${error} />
      ${!letter.origin && html`<p class="muted">Its headers do not name one.</p>`}
      ${letter.origin && loading && html`<${Loading} />`}
      ${data && (data.record ? html`<p><${RecordLink} topic=${data.record.topic} partition=${data.record.partition} offset=${data.record.offset} /></p><${RecordContent} record=${data.record} />`
        : html`<p class="muted">It is no longer in the topic.</p>`)}
    </section>
  </div>`;
}

/** @param {{topic: string}} props */
function History({ topic }) {
  const { data, error } = useLoad(url(['dead-letters', topic, 'history']));
  if (error) return html`<${Failure} error=${`The redrives so far cannot be shown: ${error.message}`} />`;
  if (!data || data.length === 0) return null;
  return html`<${Panel} title="Redrives so far" flush><${DataTable} label="Redrives" rows=${data} rowKey=${(/** @type {any} */ _, /** @type {number} */ at) => String(at)} columns=${[
    { id: 'at', title: 'Time', width: '190px', cell: (/** @type {any} */ row) => html`<${Time} ms=${row.at} brief />` },
    { id: 'who', title: 'Who', width: '160px', className: 'clip', cell: (/** @type {any} */ row) => row.who },
    { id: 'records', title: 'Records', numeric: true, width: '100px', cell: (/** @type {any} */ row) => count(row.records) },
    { id: 'targets', title: 'To', className: 'clip mono', cell: (/** @type {any} */ row) => row.error ?? row.targets.join(', ') },
  ]} /><//>`;
}

/** First what would be sent where, then the same for good. @param {{topic: string, choice: any, onClose: () => void, onDone: () => void}} props */
function Redrive({ topic, choice, onClose, onDone }) {
  const [byKey, setByKey] = useState(false);
  const [plan, setPlan] = useState(/** @type {any} */ (null));
  const changes = useRef(0);
  const open = useShown();
  const [state, setState] = useState(/** @type {{busy: boolean, error: string|null}} */ ({ busy: false, error: null }));
  const run = async (/** @type {boolean} */ dryRun) => {
    setState({ busy: true, error: null });
    try {
      const picked = Object.fromEntries(Object.entries(choice).filter(([, value]) => value !== null && value !== undefined));
      const before = changes.current;
      const found = await post(url(['dead-letters', topic, 'redrive']), { ...picked, ...(byKey ? { by_key: true } : {}), ...(plan ? { only_to: [...new Set(plan.targets.map((/** @type {any} */ one) => one.topic))] } : {}), dry_run: dryRun });
      setState({ busy: false, error: null });
      if (dryRun) {
        if (before === changes.current) setPlan(found);
      } else {
        say(`${plural(found.redriven ?? 0, 'record')} went back.`);
        onDone();
        if (open.current) onClose();
      }
    } catch (error) {
      const { message } = /** @type {Error} */ (error);
      if (open.current) setState({ busy: false, error: message });
      else if (!dryRun) say(message, 'error');
    }
  };
  const which = choice.places ? plural(choice.places.length, 'chosen record') : choice.group_reason !== undefined ? (choice.group_reason === '' ? 'those without a reason' : `those with the reason “${choice.group_reason}”`) : 'all that wait';
  return html`<${Dialog} title=${html`Redrive from <span class="mono">${topic}</span>`} wide onClose=${onClose}>
    <form onSubmit=${(/** @type {Event} */ event) => { event.preventDefault(); run(plan === null); }}>
      <p>Sends ${which} back to the topic that each came from. Each goes once, in transactions, and the journal of redrives tells of it.</p>
      <label class="check"><input type="checkbox" data-first checked=${byKey} onChange=${(/** @type {any} */ event) => { changes.current += 1; setByKey(event.currentTarget.checked); setPlan(null); }} />Choose the partition by the key, where the topic has another number of partitions now</label>
      ${plan && html`<${Panel} title=${`What would be sent: ${plural(plan.records, 'record')}`} flush>
        <${DataTable} label="Targets" rows=${plan.targets} rowKey=${(/** @type {any} */ row) => `${row.topic} ${row.partition}`} columns=${[
          { id: 'topic', title: 'To topic', className: 'clip mono', cell: (/** @type {any} */ row) => row.topic },
          { id: 'partition', title: 'Partition', numeric: true, width: '110px', cell: (/** @type {any} */ row) => row.partition },
          { id: 'records', title: 'Records', numeric: true, width: '110px', cell: (/** @type {any} */ row) => count(row.records) },
        ]} />
        ${!plan.complete && html`<p class="inset"><${Badge} tone="warn">not all<//> This is planned by the newest ones; there are more, and they go as well.</p>`}
        ${plan.done_before > 0 && html`<p class="inset muted">${plural(plan.done_before, 'record')} went back before, and will not go again.</p>`}
        ${plan.refused.map((/** @type {any} */ one) => html`<p key=${one.reason} class="inset"><${Badge} tone="warn">${count(one.records)} stay<//> ${one.reason}</p>`)}
      <//>`}
      <${Failure} error=${state.error} />
      <div class="dialog-foot">
        <button type="button" onClick=${onClose}>Cancel</button>
        <button type="submit" class="primary" disabled=${state.busy || plan?.records === 0}>${state.busy ? 'Working…' : plan ? `Send ${plural(plan.records, 'record')} back` : 'Show what would be sent'}</button>
      </div>
    </form>
  <//>`;
}
