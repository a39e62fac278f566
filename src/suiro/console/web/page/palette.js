/** Go to a page, a topic or a group by a part of its name. */

import { html, useMemo, useState } from './lib.js';
import { Dialog } from './dialog.js';
import { Icon } from './icons.js';
import { groups, topics } from './live.js';
import { go, href } from './router.js';

const SHOWN = 12;

/** @param {{places: {id: string, text: string}[], onClose: () => void}} props */
export function Palette({ places, onClose }) {
  const [text, setText] = useState('');
  const [at, setAt] = useState(0);
  const found = useMemo(() => {
    const wanted = text.trim().toLowerCase();
    const all = [
      ...places.map((place) => ({ icon: place.id, name: place.text, kind: 'page', to: `#/${place.id}` })),
      ...[...(topics.value?.keys() ?? [])].map((name) => ({ icon: 'topics', name, kind: 'topic', to: href(['topics', name]) })),
      ...[...(groups.value?.keys() ?? [])].map((name) => ({ icon: 'groups', name, kind: 'group', to: href(['groups', name]) })),
    ];
    const hits = wanted === '' ? all.slice(0, SHOWN) : all.filter(({ name }) => name.toLowerCase().includes(wanted));
    const rank = (/** @type {string} */ name) => (name.toLowerCase() === wanted ? 0 : name.toLowerCase().startsWith(wanted) ? 1 : 2);
    return wanted === '' ? hits : hits.sort((left, right) => rank(left.name) - rank(right.name)).slice(0, SHOWN);
  }, [text, topics.value, groups.value]);
  const chosen = Math.min(at, found.length - 1);
  const open = (/** @type {{to: string}|undefined} */ target) => {
    if (target) {
      onClose();
      go(target.to);
    }
  };
  const onKeyDown = (/** @type {KeyboardEvent} */ event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      setAt(Math.max(0, Math.min(found.length - 1, chosen + step)));
    } else if (event.key === 'Enter') {
      event.preventDefault();
      open(found[chosen]);
    }
  };
  return html`<${Dialog} title="Go to" onClose=${onClose}>
    <input class="palette-input" role="combobox" aria-label="Name of a page, topic or group" aria-expanded="true"
      aria-controls="palette-found" aria-activedescendant=${found.length > 0 ? `palette-${chosen}` : undefined}
      placeholder="A page, topic or group" autocomplete="off" spellcheck=${false} value=${text}
      onInput=${(/** @type {any} */ event) => { setText(event.currentTarget.value); setAt(0); }} onKeyDown=${onKeyDown} />
    <ul class="palette" id="palette-found" role="listbox" aria-label="Found">
      ${found.map((one, number) => html`<li key=${one.to} id=${`palette-${number}`} role="option" aria-selected=${number === chosen}
        onClick=${() => open(one)}>
        <${Icon} name=${one.icon} /><span class="palette-name">${one.name}</span><span class="muted">${one.kind}</span>
      </li>`)}
    </ul>
    ${found.length === 0 && html`<p class="muted">No matches.</p>`}
  <//>`;
}
