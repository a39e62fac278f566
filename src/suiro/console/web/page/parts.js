/** The small parts that pages are made of: headings, tiles, badges, fields, empty states, messages that pass. */

import { html, signal, useEffect, useId, useRef, useState } from './lib.js';
import { Icon } from './icons.js';
import { layOut } from './json.js';

const TOAST_MS = 6_000;

/**
 * The head of a page: where it is, its name, what can be done.
 * @param {{title: any, trail?: {text: string, to: string}[], note?: any, children?: any}} props
 */
export function Head({ title, trail = [], note, children }) {
  return html`<header class="head">
    <div class="head-text">
      ${trail.length > 0 &&
      html`<nav class="trail" aria-label="Breadcrumb">
        ${trail.map(({ text, to }) => html`<a key=${to} href=${to}>${text}</a><span aria-hidden="true">/</span>`)}
      </nav>`}
      <h1 tabindex="-1">${title}</h1>
      ${note && html`<p class="note">${note}</p>`}
    </div>
    ${children && html`<div class="actions">${children}</div>`}
  </header>`;
}

/** @param {{items: {id: string, text: any, to: string}[], now: string, label: string}} props */
export function Tabs({ items, now, label }) {
  return html`<nav class="tabs" aria-label=${label}>
    ${items.map(
      ({ id, text, to }) => html`<a key=${id} href=${to} aria-current=${id === now ? 'page' : undefined}>${text}</a>`,
    )}
  </nav>`;
}

/** @param {{label: string, value: any, note?: any, tone?: string, children?: any}} props */
export function Tile({ label, value, note, tone, children }) {
  return html`<div class=${`tile ${tone ?? ''}`}>
    <div class="tile-label">${label}</div>
    <div class="tile-value">${value}</div>
    ${note && html`<div class="tile-note">${note}</div>`}
    ${children}
  </div>`;
}

/** @type {Record<string, string>} */
const TONES = {
  stable: 'good', running: 'good', ready: 'good', committed: 'good', alone: 'good', ok: 'good',
  empty: 'quiet', paused: 'quiet', retired: 'quiet', dead: 'quiet', stopped: 'quiet', done: 'quiet', created: 'quiet',
  failed: 'bad', error: 'bad', aborted: 'bad', deny: 'bad',
  preparingrebalance: 'warn', completingrebalance: 'warn', assigning: 'warn', reconciling: 'warn', building: 'warn',
  restarting: 'warn', reading: 'accent', locked: 'warn', complete: 'good', idling: 'warn', restoring: 'warn', rebalancing: 'warn', starting: 'warn', open: 'warn', shifting: 'accent', waiting: 'warn',
};

/** A state, as a word with a dot of its colour. @param {{text: string, tone?: string}} props */
export function State({ text, tone }) {
  return html`<span class=${`state ${tone ?? TONES[String(text).toLowerCase().replace(/[\s_-]/g, '')] ?? 'quiet'}`}>${text}</span>`;
}

/** @param {{children: any, tone?: string}} props */
export function Badge({ children, tone }) {
  return html`<span class=${`badge ${tone ?? ''}`}>${children}</span>`;
}

/** @param {{title?: any, aside?: any, children: any, flush?: boolean}} props */
export function Panel({ title, aside, children, flush }) {
  return html`<section class=${`panel ${flush ? 'flush' : ''}`}>
    ${title && html`<div class="panel-head"><h2>${title}</h2>${aside && html`<div class="panel-aside">${aside}</div>`}</div>`}
    ${children}
  </section>`;
}

/** What to do where there is nothing. @param {{title: any, command?: string, children?: any}} props */
export function Empty({ title, command, children }) {
  return html`<div class="empty">
    <p class="empty-title">${title}</p>
    ${children && html`<p>${children}</p>`}
    ${command && html`<${Command} text=${command} />`}
  </div>`;
}

/** A command to copy. @param {{text: string}} props */
export function Command({ text }) {
  return html`<div class="command"><code>${text}</code><${Copy} text=${text} label="Copy the command" /></div>`;
}

/** @param {{text: string, label: string}} props */
export function Copy({ text, label }) {
  const [copied, setCopied] = useState(false);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      setCopied(true);
      setTimeout(() => setCopied(false), 1_500);
    } catch {
      say('The browser does not allow copying here. Select the text instead.', 'error');
    }
  };
  return html`<button type="button" class="plain" onClick=${copy} aria-label=${label} title=${label}>
    <${Icon} name=${copied ? 'ok' : 'copy'} />
  </button>`;
}

export function Loading() {
  return html`<div class="loading" role="status"><span class="spinner" aria-hidden="true"></span>Loading</div>`;
}

/**
 * A label and its control. `control` gets the id.
 * @param {{label: any, note?: any, children: any, wide?: boolean}} props
 */
export function Field({ label, note, children, wide }) {
  return html`<label class=${`field ${wide ? 'wide' : ''}`}>
    <span class="field-label">${label}</span>
    ${children}
    ${note && html`<span class="field-note">${note}</span>`}
  </label>`;
}

/**
 * @param {{label: string, value: string, options: (string | [string, string])[], onChange: (value: string) => void,
 *   beside?: boolean}} props `beside`: the label is beside it, not above
 */
export function Select({ label, value, options, onChange, beside }) {
  const id = useId();
  return html`<span class=${beside ? 'inline' : 'field'}>
    <label class=${beside ? 'field-inline' : 'field-label'} for=${id}>${label}</label>
    <select id=${id} value=${value} onChange=${(/** @type {any} */ event) => onChange(event.currentTarget.value)}>
      ${options.map((option) => {
        const [name, text] = typeof option === 'string' ? [option, option] : option;
        return html`<option key=${name} value=${name} selected=${name === value}>${text}</option>`;
      })}
    </select>
  </span>`;
}

/**
 * The page's filter: `/` focuses it.
 * @param {{value: string, onInput: (text: string) => void, label: string}} props
 */
export function Search({ value, onInput, label }) {
  return html`<label class="search">
    <${Icon} name="search" />
    <span class="hidden">${label}</span>
    <input type="search" data-search placeholder=${label} value=${value} autocomplete="off" spellcheck=${false}
      onInput=${(/** @type {any} */ event) => onInput(event.currentTarget.value)} />
    <kbd aria-hidden="true">/</kbd>
  </label>`;
}

/** JSON laid out and coloured; any other text as it is. @param {{text: string}} props */
export function Json({ text }) {
  const tokens = layOut(text);
  return html`<pre class="code" tabindex="0">${
    tokens === null ? text : tokens.map(({ kind, text: part }, at) => (kind === 'mark' ? part : html`<span key=${at} class=${`j-${kind}`}>${part}</span>`))
  }</pre>`;
}

/** Bytes as a hex editor shows them. @param {{hex: string}} props */
export function Hex({ hex }) {
  const lines = [];
  for (let at = 0; at < hex.length; at += 32) {
    const part = hex.slice(at, at + 32).match(/../g) ?? [];
    const text = part.map((pair) => {
      const code = parseInt(pair, 16);
      return code >= 32 && code < 127 ? String.fromCharCode(code) : '·';
    });
    lines.push(
      `${(at / 2).toString(16).padStart(6, '0')}  ${part.slice(0, 8).join(' ').padEnd(23)}  ${part.slice(8).join(' ').padEnd(23)}  ${text.join('')}`,
    );
  }
  return html`<pre class="code hex" tabindex="0">${lines.join('\n')}</pre>`;
}

/** A text in which `names` are marked. @param {{text: string}} props */
export const Prose = ({ text }) => text.split('`').map((part, at) => (at % 2 === 1 ? html`<code key=${at}>${part}</code>` : part));

/** Names and values. @param {{items: [any, any][]}} props */
export function Facts({ items }) {
  return html`<dl class="facts">
    ${items.map(([name, value], at) => html`<div key=${at}><dt>${name}</dt><dd>${value}</dd></div>`)}
  </dl>`;
}

// -- messages that pass ----------------------------------------------------------------------------------------------

/** @type {import('./lib.js').Signal<{id: number, text: string, tone: string}[]>} */
const said = signal([]);
let spoken = 0;

/** @param {string} text @param {'good'|'error'} [tone] */
export function say(text, tone = 'good') {
  const id = (spoken += 1);
  said.value = [...said.value, { id, text, tone }];
  setTimeout(() => { said.value = said.value.filter((one) => one.id !== id); }, TOAST_MS);
}

export function Toasts() {
  return html`<div class="toasts" role="status" aria-live="polite">
    ${said.value.map(({ id, text, tone }) => html`<div key=${id} class=${`toast ${tone}`}><${Icon} name=${tone === 'error' ? 'error' : 'ok'} />${text}</div>`)}
  </div>`;
}

/** A menu of links or buttons below a button. @param {{text: any, children: any}} props */
export function Menu({ text, children }) {
  const place = useRef(/** @type {HTMLDetailsElement|null} */ (null));
  useEffect(() => {
    const away = (/** @type {Event} */ event) => {
      const details = place.current;
      if (details?.open && !details.contains(/** @type {Node} */ (event.target))) details.open = false;
    };
    const escape = (/** @type {KeyboardEvent} */ event) => {
      const details = place.current;
      if (event.key === 'Escape' && details?.open) {
        details.open = false;
        details.querySelector('summary')?.focus();
        event.stopPropagation();
      }
    };
    addEventListener('click', away);
    addEventListener('keydown', escape, true);
    return () => {
      removeEventListener('click', away);
      removeEventListener('keydown', escape, true);
    };
  }, []);
  const close = () => { if (place.current) place.current.open = false; };
  return html`<details class="menu" ref=${place}>
    <summary class="button">${text}<${Icon} name="down" /></summary>
    <div class="menu-items" onClick=${close}>${children}</div>
  </details>`;
}
