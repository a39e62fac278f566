/** Keys that work on every page. None works while one types, or with Ctrl, Alt or Meta. */

import { go, route } from './router.js';

/** @type {Record<string, string>} */
const GO = {
  o: 'overview', t: 'topics', g: 'groups', s: 'schemas', d: 'dead-letters', v: 'views', a: 'applications', c: 'connectors',
  u: 'security',
};

export const SHORTCUTS = [
  { keys: ['/'], text: 'Filter this page, or search' },
  { keys: ['Ctrl', 'K'], text: 'Go to a topic, group or page' },
  ...Object.entries(GO).map(([key, name]) => ({ keys: ['g', key], text: `Go to ${name.replace('-', ' ')}` })),
  { keys: ['j', 'k'], text: 'Next or previous row of a long table' },
  { keys: ['r'], text: 'Records of the topic that is open' },
  { keys: ['Esc'], text: 'Close what is open' },
  { keys: ['?'], text: 'This help' },
];

/** @param {EventTarget|null} target */
function types(target) {
  return target instanceof HTMLElement && (target.isContentEditable || ['INPUT', 'TEXTAREA', 'SELECT'].includes(target.tagName));
}

/** @param {{help: () => void, palette: () => void}} actions @returns {() => void} that ends it */
export function onKey({ help, palette }) {
  let leads = false;
  const take = (/** @type {KeyboardEvent} */ event) => {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === 'k') {
      event.preventDefault();
      palette();
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (types(event.target)) {
      if (event.key === 'Escape') /** @type {HTMLElement} */ (event.target).blur();
      return;
    }
    if (document.querySelector('dialog[open]')) return;
    if (leads && GO[event.key]) {
      leads = false;
      event.preventDefault();
      go(`#/${GO[event.key]}`);
      return;
    }
    leads = event.key === 'g';
    if (leads) return;
    if (event.key === '?') {
      help();
    } else if (event.key === '/') {
      event.preventDefault();
      const filter = document.querySelector('main [data-search]');
      if (filter instanceof HTMLInputElement) filter.select();
      else palette();
    } else if (event.key === 'r' && route.value.parts[0] === 'topics' && route.value.parts[1]) {
      go(`#/topics/${encodeURIComponent(route.value.parts[1])}/records`);
    } else if (event.key === 'j' || event.key === 'k') {
      const table = document.querySelector('main .virtual');
      if (table instanceof HTMLElement) {
        table.focus();
        table.dispatchEvent(new KeyboardEvent('keydown', { key: event.key, cancelable: true }));
      }
    } else if (event.key === 'Escape') {
      const close = document.querySelector('main [data-close]');
      if (close instanceof HTMLElement) close.click();
    }
  };
  addEventListener('keydown', take);
  return () => removeEventListener('keydown', take);
}
