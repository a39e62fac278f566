/** Views: versions beside each other, a shift of callers as steps with its guards, differences, decisions. */

import { html, useEffect, useState } from './lib.js';
import { Failure, post, url, useLoad } from './api.js';
import { Bar } from './chart.js';
import { Dialog, FormDialog, whole } from './dialog.js';
import { count, duration, percent, plural, rate, Time } from './format.js';
import { Icon } from './icons.js';
import { may } from './live.js';
import { Badge, Empty, Facts, Field, Head, Loading, Panel, say, State, Tabs } from './parts.js';
import { go, href, route, setQuery } from './router.js';
import { Deploy } from './deploy.js';

const REFRESH_MS = 2_000;
const ALL = 10_000;
/** Basis points: all callers. */

/** @type {Record<string, string>} */
const POSITIONS = {
  none: 'There is no version, and nothing is served.',
  first: 'The first version is being built; nothing is served yet.',
  alone: 'One version serves all callers.',
  building: 'One version serves all callers; the candidate is being built next to it.',
  ready: 'The candidate has caught up; no caller has moved yet.',
  shifting: 'Some callers are on the candidate.',
  shifted: 'All callers are on the candidate; the serving version is still updated.',
  'rolled back': 'All callers are back on the serving version; the candidate is still updated.',
};

/** @param {{parts: string[]}} props */
export function Views({ parts }) {
  return parts.length < 2 ? html`<${List} />` : html`<${View} key=${parts.join('/')} host=${parts[0]} name=${parts[1]} tab=${parts[2] ?? ''} />`;
}

function List() {
  const { data, error, loading, reload } = useLoad(url(['views']), { everyMs: REFRESH_MS });
  const hosts = data?.hosts ?? [];
  const [host, setHost] = useState(/** @type {number|null} */ (null));
  return html`
    <${Head} title="Views" note="Data derived from the log, served in versions" />
    <div class="content">
      <${Failure} error=${error} retry=${reload} />
      ${loading && html`<${Loading} />`}
      ${data && hosts.length === 0 && html`<${Empty} title="No view hosts configured" command="suiro console --views http://127.0.0.1:8085">Start one with <code>suiro view serve</code>, and pass its address to the console.<//>`}
      ${hosts.map((/** @type {any} */ host) => html`<section key=${host.host} class="host">
        <div class="host-head"><h2 class="host-name"><span class="mono">${host.url}</span></h2>
          ${!host.error && may('admin') && html`<button type="button" class="small" onClick=${() => setHost(host.host)}>Deploy…</button>`}</div>
        <${Failure} error=${host.error} />
        ${!host.error && host.views.length === 0 && html`<${Empty} title="No views yet" command="suiro view deploy carrier_delays.py:carrier_delays" />`}
        <div class="cards">${host.views.map((/** @type {any} */ view) => html`<a key=${view.view} class="card" href=${href(['views', host.host, view.view])}>
          <div class="card-head"><span class="card-title mono">${view.view}</span><${State} text=${view.position} /></div>
          <${Share} view=${view} />
          <p class="muted">${POSITIONS[view.position] ?? ''}</p>
        </a>`)}</div>
      </section>`)}
    </div>
    ${host !== null && html`<${Deploy} host=${host} onClose=${() => setHost(null)} onDone=${(/** @type {any} */ made) => go(href(['views', host, made.view]))} />`}
  `;
}

/** How the callers are shared among the versions. @param {{view: any}} props */
function Share({ view }) {
  const { serving, candidate, share } = view.routing;
  if (serving === null) return null;
  const moved = candidate === null ? 0 : share / ALL;
  return html`<div class="share">
    <span>version ${serving} <b>${percent(1 - moved)}</b></span>
    <${Bar} share=${1 - moved} tone=${candidate === null ? '' : 'parted'} label=${`${percent(moved)} of the callers on the candidate`} />
    <span class="share-end">${candidate === null ? html`<span class="muted">no candidate</span>` : html`version ${candidate} <b>${percent(moved)}</b>`}</span>
  </div>`;
}

/** @param {{host: string, name: string, tab: string}} props */
function View({ host, name, tab }) {
  const parts = ['views', host, name];
  const { data: view, error, loading, reload } = useLoad(url(parts), { everyMs: REFRESH_MS });
  const [dialog, setDialog] = useState(/** @type {any} */ (null));
  const command = (/** @type {string} */ path, /** @type {any} */ body, /** @type {string} */ text) =>
    post(url([...parts, path]), body).then(() => { say(text); reload(); }, (failed) => say(failed.message, 'error'));
  const position = view?.position;
  const can = (/** @type {string[]} */ ...positions) => may('operator') && positions.includes(position);
  return html`
    <${Head} title=${html`<span class="mono">${name}</span>`} trail=${[{ text: 'Views', to: '#/views' }]} note=${view && POSITIONS[position]}>
      ${view && may('admin') && ['none', 'alone'].includes(position) && html`<button type="button" onClick=${() => setDialog('deploy')}>Deploy…</button>`}
      ${can('rolled back') && html`<button type="button" onClick=${() => setDialog('forward')}>Forward…</button>`}
      ${can('ready', 'shifting', 'shifted', 'rolled back', 'building') && position !== 'building' && html`<button type="button" class="primary" onClick=${() => setDialog('shift')}>Shift…</button>`}
      ${can('shifting', 'shifted') && html`<button type="button" class="danger" onClick=${() => setDialog('rollback')}>Roll back</button>`}
    <//>
    <${Tabs} label="Parts of the view" now=${tab} items=${[
      { id: '', text: 'Versions', to: href(parts) },
      { id: 'differences', text: 'Differences', to: href([...parts, 'differences']) },
      { id: 'history', text: 'History', to: href([...parts, 'history']) },
    ]} />
    <div class="content">
      <${Failure} error=${error} retry=${reload} />
      ${loading && html`<${Loading} />`}
      ${view && tab === '' && html`
        <${Panel} title="Callers"><${Share} view=${view} /><${Steps} view=${view} /><//>
        <div class="cards versions">${[...view.versions].reverse().map((/** @type {any} */ version) => html`<${Version} key=${version.version} version=${version} view=${view}
          onRetire=${() => setDialog({ retire: version.version })} onThrottle=${() => setDialog('throttle')} />`)}</div>
        ${view.versions.length === 0 && html`<${Empty} title="No version yet" command="suiro view deploy carrier_delays.py:carrier_delays" />`}
      `}
      ${view && tab === 'differences' && html`<${Differences} parts=${parts} />`}
      ${view && tab === 'history' && html`<${History} parts=${parts} />`}
    </div>
    ${dialog === 'deploy' && html`<${Deploy} host=${host} view=${name} onClose=${() => setDialog(null)} onDone=${(/** @type {any} */ made) => { say(`Version ${made.deployed} is being built.`); if (made.view === name) reload(); else go(href(['views', host, made.view])); }} />`}
    ${view && dialog === 'shift' && html`<${Shift} parts=${parts} view=${view} onClose=${() => setDialog(null)} onDone=${() => { say('The shift has begun.'); reload(); }} />`}
    ${dialog === 'throttle' && html`<${Throttle} parts=${parts} onClose=${() => setDialog(null)} onDone=${() => { say('The limit applies from the next micro-batch.'); reload(); }} />`}
    ${view && dialog === 'rollback' && html`<${Sure} title="Roll back" action="Roll back" onClose=${() => setDialog(null)} onSure=${() => command('rollback', {}, 'All callers are back on the serving version.')}>
      All callers go back to version ${view.routing.serving} at once. Version ${view.routing.candidate} is still updated, so you can move forward to it again.<//>`}
    ${dialog === 'forward' && html`<${Sure} title="Forward" action="Forward" onClose=${() => setDialog(null)} onSure=${() => command('forward', {}, 'The callers are back where they were before the rollback.')}>
      The callers go to the candidate again, with the share that it had before the rollback.<//>`}
    ${view && dialog?.retire !== undefined && html`<${Retire} parts=${parts} view=${view} number=${dialog.retire} onClose=${() => setDialog(null)} onDone=${() => { say(`Version ${dialog.retire} was retired.`); reload(); }} />`}
  `;
}

/** The steps of a shift that the host guides, and what it watches. @param {{view: any}} props */
function Steps({ view }) {
  const { guide, guards, share } = view.routing;
  const watched = Object.entries(guards ?? {}).filter(([, value]) => value !== null);
  if (!guide && watched.length === 0) return null;
  return html`
    ${guide && html`<ol class="steps" aria-label="Steps of the shift">
      ${guide.steps.map((/** @type {number} */ step, /** @type {number} */ at) => {
        const state = at < guide.at ? 'done' : at === guide.at ? 'now' : 'next';
        const held = state === 'now' && guide.hold_ms > 0 ? Math.min(1, Number(guide.held_ms ?? 0) / guide.hold_ms) : state === 'done' ? 1 : 0;
        return html`<li key=${at} class=${`step ${state}`} aria-current=${state === 'now' ? 'step' : undefined}>
          <span class="step-share">${percent(step / ALL)}</span>
          <${Bar} share=${held} label=${state === 'now' ? `${percent(held)} of the time of this step` : state} tone=${state === 'done' ? 'good' : ''} />
          <span class="muted">${state === 'done' ? 'done' : state === 'now' ? `${duration(Math.max(0, guide.hold_ms - Number(guide.held_ms ?? 0)))} left` : 'next'}</span>
        </li>`;
      })}
    </ol>`}
    ${watched.length > 0 && html`<ul class="guards" aria-label="Guards">${watched.map(([name, value]) => html`<${Guard} key=${name} name=${name} allowed=${value} view=${view} share=${share} />`)}</ul>`}
  `;
}

/** One guard: what it allows, and where the candidate is, as far as the host tells. @param {{name: string, allowed: any, view: any, share: number}} props */
function Guard({ name, allowed, view }) {
  const candidate = view.versions.find((/** @type {any} */ one) => one.version === view.routing.candidate);
  const sample = view.sample ?? view.routing.sample ?? {};
  const now = name === 'lag_ms' ? (sample.lag_ms ?? candidate?.lag_ms) : name === 'errors' && sample.reads ? sample.errors / sample.reads : sample[name];
  const text = (/** @type {any} */ value) => (name.endsWith('_ms') ? duration(value) : percent(value));
  /** @type {Record<string, string>} */
  const names = { errors: 'Failed reads', p99_ms: 'p99 of reads', difference: 'Rows that differ', lag_ms: 'Lag' };
  const known = now !== null && now !== undefined;
  const share = known ? Number(now) / Math.max(Number(allowed), 1e-9) : 0;
  return html`<li class="guard">
    <span class="guard-name">${names[name] ?? name}</span>
    ${known ? html`<${Bar} share=${share} label=${`${text(now)} of ${text(allowed)}`} tone=${share > 1 ? 'bad' : share > 0.8 ? 'warn' : 'good'} />` : html`<span class="grow"></span>`}
    <span class="guard-value">${known ? html`<b>${text(now)}</b> of ` : 'at most '}${text(allowed)}</span>
  </li>`;
}

/** @param {{version: any, view: any, onRetire: () => void, onThrottle: () => void}} props */
function Version({ version, view, onRetire, onThrottle }) {
  const { serving, candidate } = view.routing;
  const role = version.version === serving ? 'serving' : version.version === candidate ? 'candidate' : '';
  const { progress, pipeline } = version;
  const retirable = ['ready', 'building', 'failed'].includes(version.state);
  return html`<article class=${`card version ${role} ${version.state}`} aria-label=${`Version ${version.version}`}>
    <div class="card-head">
      <span class="card-title">Version ${version.version}</span>
      ${role && html`<${Badge} tone="accent">${role}<//>`}<${State} text=${version.paused ? 'paused' : version.state} />
    </div>
    ${version.state === 'building' && progress && html`<div class="progress">
      <${Bar} share=${progress.total > 0 ? Number(progress.done) / Number(progress.total) : 0} label="Records of the inputs that were read" />
      <span>${count(progress.done)} of ${count(progress.total)}, ${rate(progress.rate)}${progress.left_s !== null ? `, ${duration(progress.left_s * 1_000)} left` : ''}</span>
    </div>`}
    ${version.error && html`<div class="notice error">${version.error}</div>`}
    ${version.follower_error && html`<div class="notice error">${version.follower_error}</div>`}
    <${Facts} items=${[
      ...(version.lag_ms !== undefined ? [['Lag', duration(version.lag_ms)]] : []),
      ...(version.input_lag_ms !== undefined ? [['Input lag', duration(version.input_lag_ms)]] : []),
      ...(version.cut !== undefined ? [['Cut', html`${count(version.cut)} <span class="muted">of <${Time} ms=${version.cut_time_ms} brief /></span>`]] : []),
      ...(pipeline ? [['Pipeline', html`<${State} text=${pipeline.state} />${pipeline.restarts > 0 ? ` ${plural(pipeline.restarts, 'restart')}` : ''}`]] : []),
      ['Inputs', (version.inputs ?? []).map((/** @type {string} */ topic) => html`<a key=${topic} class="mono listed" href=${href(['topics', topic])}>${topic}</a>`)],
      ['Output', version.output_topic ? html`<a class="mono" href=${href(['topics', version.output_topic])}>${version.output_topic}</a>` : '–'],
      ['Key', html`<span class="mono">${(version.key ?? []).join(', ')}</span>`],
      ['Code', html`<span class="mono">${version.entry ?? ''}</span> <span class="muted mono">${String(version.fingerprint ?? '').slice(0, 12)}</span>`],
    ]} />
    <div class="actions">
      ${version.state === 'building' && may('operator') && html`<button type="button" class="small" onClick=${onThrottle}>Limit the build…</button>`}
      ${retirable && may('admin') && html`<button type="button" class="small danger-text" onClick=${onRetire}>Retire…</button>`}
    </div>
  </article>`;
}

/** @param {{title: string, action: string, onClose: () => void, onSure: () => Promise<any>, children: any}} props */
function Sure({ title, action, onClose, onSure, children }) {
  return html`<${Dialog} title=${title} onClose=${onClose}>
    <p>${children}</p>
    <div class="dialog-foot"><button type="button" onClick=${onClose}>Cancel</button>
      <button type="button" class="primary" data-first onClick=${() => { onClose(); onSure(); }}>${action}</button></div>
  <//>`;
}

/** @param {{parts: string[], view: any, onClose: () => void, onDone: () => void}} props */
function Shift({ parts, view, onClose, onDone }) {
  const [form, setForm] = useState({ steps: '1, 10, 50, 100', hold: '10', errors: '1', p99: '', difference: '', lag: '10' });
  const set = (/** @type {string} */ name) => (/** @type {any} */ event) => setForm({ ...form, [name]: event.currentTarget.value });
  const number = (/** @type {string} */ text, /** @type {string} */ what) => {
    if (text.trim() === '') return null;
    const value = Number(text);
    if (!Number.isFinite(value)) throw new Error(`${what}: ${text} is no number`);
    return value;
  };
  const body = () => {
    const steps = form.steps.split(',').map((text) => number(text, 'Steps')).filter((step) => step !== null);
    const [errors, p99, difference, lag] = [number(form.errors, 'Failed reads'), number(form.p99, 'p99'), number(form.difference, 'Rows that differ'), number(form.lag, 'Lag')];
    return {
      steps,
      ...(steps.length > 1 ? { hold_ms: Math.round((number(form.hold, 'Hold') ?? 0) * 60_000) } : {}),
      guards: {
        ...(errors !== null ? { errors: errors / 100 } : {}),
        ...(p99 !== null ? { p99_ms: p99 } : {}),
        ...(difference !== null ? { difference: difference / 100 } : {}),
        ...(lag !== null ? { lag_ms: Math.round(lag * 1_000) } : {}),
      },
    };
  };
  return html`<${FormDialog} title=${`Shift callers to version ${view.routing.candidate}`} action="Shift" wide target=${url([...parts, 'shift'])} body=${body} onClose=${onClose} onDone=${onDone}>
    <p>The same caller is always on the same side. A guard that does not hold takes all callers back at once.</p>
    <div class="fields">
      <${Field} label="Steps, in percent of the callers"><input value=${form.steps} onInput=${set('steps')} /><//>
      <${Field} label="Hold each step, in minutes"><input inputmode="decimal" value=${form.hold} onInput=${set('hold')} /><//>
    </div>
    <fieldset><legend>Guards: leave empty to ignore</legend><div class="fields">
      <${Field} label="Failed reads, max %"><input inputmode="decimal" value=${form.errors} onInput=${set('errors')} /><//>
      <${Field} label="p99 of reads, max ms"><input inputmode="decimal" value=${form.p99} onInput=${set('p99')} /><//>
      <${Field} label="Rows that differ, max %"><input inputmode="decimal" value=${form.difference} onInput=${set('difference')} /><//>
      <${Field} label="Lag, max s"><input inputmode="decimal" value=${form.lag} onInput=${set('lag')} /><//>
    </div></fieldset>
  <//>`;
}

/** @param {{parts: string[], onClose: () => void, onDone: () => void}} props */
function Throttle({ parts, onClose, onDone }) {
  const [limit, setLimit] = useState('');
  return html`<${FormDialog} title="Limit the build" action="Set" target=${url([...parts, 'throttle'])} onClose=${onClose} onDone=${onDone}
    body=${() => ({ records_per_second: whole(limit, 'Records a second') ?? null })}>
    <${Field} label="Records a second" note="0 pauses it; leave empty to remove the limit" wide><input inputmode="numeric" value=${limit} onInput=${(/** @type {any} */ event) => setLimit(event.currentTarget.value)} /><//>
  <//>`;
}

/** @param {{parts: string[], view: any, number: number, onClose: () => void, onDone: () => void}} props */
function Retire({ parts, view, number, onClose, onDone }) {
  const [typed, setTyped] = useState('');
  const name = parts[2];
  const last = view.versions.filter((/** @type {any} */ one) => ['ready', 'building'].includes(one.state)).length === 1 && number === view.routing.serving;
  return html`<${FormDialog} title=${`Retire version ${number}`} action="Retire" danger target=${url([...parts, 'retire'])} ready=${typed === name}
    body=${() => ({ version: number, yes: true, ...(last ? { last: true } : {}) })} onClose=${onClose} onDone=${onDone}>
    <p>Its topics, its store and its checkpoint are deleted, and nothing brings them back.${last ? ' It is the last one: nothing serves the view afterwards.' : ''}</p>
    <${Field} label=${html`Type <b class="mono">${name}</b> to confirm`} wide><input class="mono" data-first value=${typed} autocomplete="off" spellcheck=${false} onInput=${(/** @type {any} */ event) => setTyped(event.currentTarget.value)} /><//>
  <//>`;
}

// -- differences -------------------------------------------------------------------------------------------------------

const NOTHING = { busy: '', error: null, text: null, places: new Set() };

/** @param {{parts: string[]}} props */
function Differences({ parts }) {
  const { data, error, loading, reload } = useLoad(url([...parts, 'comparisons']));
  const [state, setState] = useState(/** @type {{busy: string, error: string|null, text: string|null, places: Set<string>}} */ (NOTHING));
  const kept = Object.values(data ?? {}).sort((left, right) => Number(right.time_ms) - Number(left.time_ms));
  const { comparison } = route.value.query;
  const shown = kept.find((one) => one.id === comparison) ?? kept[0];
  useEffect(() => setState(NOTHING), [shown?.id]);
  const ask = async (/** @type {string} */ path, /** @type {any} */ body) => {
    setState({ ...NOTHING, busy: path });
    try {
      const found = await post(url([...parts, path]), body);
      setState(path === 'explain' ? { ...NOTHING, text: found.text ?? texts(found), places: placesOf(found) } : NOTHING);
      if (path === 'compare') reload();
    } catch (failed) {
      setState({ ...NOTHING, error: /** @type {Error} */ (failed).message });
    }
  };
  return html`
    <div class="toolbar inside">
      <button type="button" class="primary" disabled=${state.busy !== ''} onClick=${() => ask('compare', {})}>${state.busy === 'compare' ? 'Comparing…' : 'Compare the versions'}</button>
      ${kept.length > 1 && html`<label class="inline"><span class="field-inline">Comparison</span><select value=${shown?.id} onChange=${(/** @type {any} */ event) => setQuery({ comparison: event.currentTarget.value })}>
        ${kept.map((one) => html`<option key=${one.id} value=${one.id} selected=${one === shown}>${one.old} and ${one.new}, ${new Date(Number(one.time_ms)).toLocaleString()}</option>`)}</select></label>`}
    </div>
    <${Failure} error=${error ?? state.error} />
    ${loading && html`<${Loading} />`}
    ${data && !shown && html`<${Empty} title="No comparison yet">Both versions are compared at the newest offsets that both have.<//>`}
    ${shown && html`<${Comparison} made=${shown} onExplain=${(/** @type {any} */ body) => ask('explain', { old: shown.old, new: shown.new, ...body })} busy=${state.busy === 'explain'} />`}
    ${state.text && html`<${Panel} title="Why"><pre class="code" tabindex="0">${withRecords(state.text, state.places)}</pre><//>`}
  `;
}

/** @param {any} found */
const texts = (found) => (found.explanations ?? []).map((/** @type {any} */ one) => one.text).join('\n\n') || JSON.stringify(found, (_, each) => (typeof each === 'bigint' ? String(each) : each), 2);

/** The records that an explanation shows, as its text names them. @param {any} found */
function placesOf(found) {
  const decided = (found.explanations ?? []).flatMap((/** @type {any} */ one) => [one.parting, ...one.kinds.flatMap((/** @type {any} */ kind) => kind.examples)]);
  const named = (found.causes ?? []).flatMap((/** @type {any} */ cause) => cause.examples.map((/** @type {any} */ [, where]) => where.split(' ')[0]));
  return new Set([...decided.filter(Boolean).map((/** @type {any} */ { place: [topic, partition, offset] }) => `${topic}-${partition}@${offset}`), ...named]);
}

/** A text with links at those records. @param {string} text @param {Set<string>} places */
function withRecords(text, places) {
  return text.split(/([\w.-]+-\d+@\d+)/).map((part, at) => {
    const [, topic, partition, offset] = (places.has(part) && /^(.+)-(\d+)@(\d+)$/.exec(part)) || [];
    return topic === undefined ? part : html`<a key=${at} href=${href(['topics', topic, 'records'], { at: `${partition}:${offset}` })}>${part}</a>`;
  });
}

/** @param {{made: any, onExplain: (body: any) => void, busy: boolean}} props */
function Comparison({ made, onExplain, busy }) {
  const found = made.result ?? made;
  const unequal = Number(found.differing) + Number(found.only_old?.rows ?? 0) + Number(found.only_new?.rows ?? 0);
  return html`
    <div class="tiles">
      <div class="tile"><div class="tile-label">Rows that differ</div><div class="tile-value">${percent(made.share)}</div><div class="tile-note">${count(unequal)} of ${count(unequal + Number(found.equal))}</div></div>
      <div class="tile"><div class="tile-label">Equal</div><div class="tile-value">${count(found.equal)}</div><div class="tile-note">${count(found.near)} within tolerances</div></div>
      <div class="tile"><div class="tile-label">Only in version ${made.old}</div><div class="tile-value">${count(found.only_old?.rows)}</div></div>
      <div class="tile"><div class="tile-label">Only in version ${made.new}</div><div class="tile-value">${count(found.only_new?.rows)}</div></div>
    </div>
    <${Panel} title="Patterns" aside=${unequal > 0 && html`<button type="button" class="small" disabled=${busy} onClick=${() => onExplain({})}>${busy ? 'Explaining…' : 'Explain the examples'}</button>`}>
      ${found.patterns.length === 0 && html`<p class="muted">No row of both differs.</p>`}
      ${found.patterns.map((/** @type {any} */ pattern, /** @type {number} */ at) => html`<section key=${at} class="pattern">
        <h3>${pattern.columns.map((/** @type {any} */ [column, kind], /** @type {number} */ at) => html`<span key=${column}>${at > 0 && ', '}<span class="mono">${column}</span> ${kind}</span>`)} <${Badge}>${plural(pattern.rows, 'row')}<//></h3>
        ${pattern.examples.map((/** @type {any} */ example, /** @type {number} */ number) => html`<div key=${number} class="example">
          <div class="example-key"><span class="mono">${example.key.map(String).join(', ')}</span>
            <button type="button" class="small" disabled=${busy} onClick=${() => onExplain({ keys: [example.key] })}>Why</button></div>
          <div class="table-scroll" tabindex="0" role="region" aria-label="Differing columns"><table class="even" aria-label="Differing columns"><thead><tr><th scope="col">Column</th><th scope="col" class="num">Version ${made.old}</th><th scope="col" class="num">Version ${made.new}</th></tr></thead>
            <tbody>${Object.entries(example.columns).map(([column, [before, after]]) => html`<tr key=${column}><th scope="row" class="mono">${column}</th><td class="num mono">${plainText(before)}</td><td class="num mono"><b>${plainText(after)}</b></td></tr>`)}</tbody></table></div>
        </div>`)}
      </section>`)}
      ${found.patterns_left_out > 0 && html`<p class="muted">${plural(found.patterns_left_out, 'row')} of further patterns are not kept.</p>`}
    <//>
  `;
}

/** @param {any} value */
const plainText = (value) => (typeof value === 'object' && value !== null ? JSON.stringify(value, (_, each) => (typeof each === 'bigint' ? String(each) : each)) : String(value));

// -- history -----------------------------------------------------------------------------------------------------------

/** What is known of a decision; shares of callers are told in basis points. @param {any} event */
function detail({ command, detail: told }) {
  const share = (/** @type {string} */ name, /** @type {any} */ value) => command === 'shift' && ['from', 'to'].includes(name) && value !== null && Number.isFinite(Number(value));
  return Object.entries(told).map(([name, value]) => `${name}: ${share(name, value) ? percent(Number(value) / ALL) : plainText(value)}`).join(', ');
}

/** @param {{parts: string[]}} props */
function History({ parts }) {
  const { data, error, loading } = useLoad(url([...parts, 'history']), { everyMs: 5_000 });
  const events = [...(Array.isArray(data) ? data : (data?.events ?? []))].reverse();
  return html`
    <${Failure} error=${error} />
    ${loading && html`<${Loading} />`}
    ${data && events.length === 0 && html`<${Empty} title="Nothing was decided yet" />`}
    ${events.length > 0 && html`<ol class="timeline" aria-label="Decisions, the newest first">
      ${events.map((/** @type {any} */ event, /** @type {number} */ at) => html`<li key=${at} class=${event.command === 'trip' || event.command === 'fail' ? 'bad' : ''}>
        <div><b>${event.command}</b>${event.version !== null && event.version !== undefined && ` version ${event.version}`} <span class="muted">by</span> ${event.who ?? 'host'}</div>
        <div class="muted"><${Time} ms=${event.time_ms ?? event.at ?? null} brief />${event.before !== event.after && html`, ${event.before} <${Icon} name="right" /> ${event.after}`}</div>
        ${event.detail && Object.keys(event.detail).length > 0 && html`<div class="mono small-text">${detail(event)}</div>`}
      </li>`)}
    </ol>`}
  `;
}
