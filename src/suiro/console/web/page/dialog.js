/** Dialogs: what is asked before something changes. Escape closes, focus returns to where it was. */

import { html, useEffect, useRef, useState } from './lib.js';
import { Failure, useCommand, useShown } from './api.js';
import { Icon } from './icons.js';
import { Field } from './parts.js';

/** @param {{title: any, onClose: () => void, children: any, wide?: boolean}} props */
export function Dialog({ title, onClose, children, wide }) {
  const place = useRef(/** @type {HTMLDialogElement|null} */ (null));
  useEffect(() => {
    const dialog = place.current;
    if (!dialog) return undefined;
    const before = /** @type {HTMLElement|null} */ (document.activeElement);
    dialog.showModal();
    const first = dialog.querySelector('[data-first]') ?? dialog.querySelector('.dialog-body :is(input, select, textarea)');
    if (first instanceof HTMLElement) first.focus();
    return () => {
      dialog.close();
      before?.focus?.();
    };
  }, []);
  return html`<dialog ref=${place} class=${wide ? 'wide' : ''} aria-labelledby="dialog-title"
    onCancel=${(/** @type {Event} */ event) => { event.preventDefault(); onClose(); }}
    onMouseDown=${(/** @type {Event} */ event) => { if (event.target === place.current) onClose(); }}>
    <div class="dialog-inside">
      <div class="dialog-head">
        <h2 id="dialog-title">${title}</h2>
        <button type="button" class="plain" aria-label="Close" onClick=${onClose}><${Icon} name="close" /></button>
      </div>
      <div class="dialog-body">${children}</div>
    </div>
  </dialog>`;
}

/**
 * A form in a dialog: its button sends `body()`, and what was refused is said above it.
 * @param {{title: any, target: string, body: () => any, action: string, onClose: () => void, onDone: (answer: any) => void,
 *   children?: any, wide?: boolean, danger?: boolean, ready?: boolean}} props
 */
export function FormDialog({ title, target, body, action, onClose, onDone, children, wide, danger, ready = true }) {
  const [wrong, setWrong] = useState(/** @type {string|null} */ (null));
  const open = useShown();
  // Once it was closed, what is open is another dialog.
  const command = useCommand(target, (answer) => { onDone(answer); if (open.current) onClose(); });
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    let made;
    try {
      made = body();
      setWrong(null);
    } catch (error) {
      setWrong(/** @type {Error} */ (error).message);
      return;
    }
    command.run(made);
  };
  return html`<${Dialog} title=${title} onClose=${onClose} wide=${wide}>
    <form onSubmit=${submit}>
      ${children}
      <${Failure} error=${wrong ?? command.error} />
      <div class="dialog-foot">
        <button type="button" onClick=${onClose}>Cancel</button>
        <button type="submit" class=${danger ? 'danger' : 'primary'} disabled=${command.busy || !ready}>
          ${command.busy ? 'Working…' : action}
        </button>
      </div>
    </form>
  <//>`;
}

/**
 * For what nothing brings back: the name has to be typed.
 * @param {{title: any, name: string, target: string, more?: any, action: string, onClose: () => void,
 *   onDone: (answer: any) => void, children: any}} props `more`: fields of the body beside `confirm`
 */
export function ConfirmByName({ title, name, target, more = {}, action, onClose, onDone, children }) {
  const [typed, setTyped] = useState('');
  return html`<${FormDialog} title=${title} target=${target} action=${action} danger
    ready=${typed === name} body=${() => ({ ...more })} onClose=${onClose} onDone=${onDone}>
    <p>${children}</p>
    <${Field} label=${html`Type <b class="mono">${name}</b> to confirm`} wide>
      <input class="mono" value=${typed} autocomplete="off" spellcheck=${false} data-first
        onInput=${(/** @type {any} */ event) => setTyped(event.currentTarget.value)} />
    <//>
  <//>`;
}

/** A whole number of an input, or nothing; says what is wrong. @param {string} text @param {string} what */
export function whole(text, what) {
  if (text.trim() === '') return undefined;
  if (!/^-?\d+$/.test(text.trim())) throw new Error(`${what}: ${text} is no whole number`);
  const value = BigInt(text.trim());
  return Number.isSafeInteger(Number(value)) ? Number(value) : value;
}

/** Lines of `name=value` as an object. `bare`: a name alone has the value null. @param {string} text @param {string} what @param {boolean} [bare] */
export function pairs(text, what, bare = false) {
  /** @type {Map<string, string|null>} */
  const found = new Map();
  for (const line of text.split('\n')) {
    if (line.trim() === '') continue;
    const at = line.indexOf('=');
    if (at < 1 && (at === 0 || !bare)) throw new Error(`${what}: ${line} has not the form name=value`);
    const name = (at < 0 ? line : line.slice(0, at)).trim();
    if (found.has(name)) throw new Error(`${what}: ${name} is given twice`);
    found.set(name, at < 0 ? null : line.slice(at + 1).trim());
  }
  return Object.fromEntries(found);
}
