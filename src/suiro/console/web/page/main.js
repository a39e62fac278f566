/** The page's frame: navigation, state of the connection, keyboard, and the page that the URL names. */

import { html, render, signal, useEffect } from './lib.js';
import { post } from './api.js';
import { Applications } from './applications.js';
import { Connectors } from './connectors.js';
import { DeadLetters } from './dead_letters.js';
import { Dialog } from './dialog.js';
import { Groups } from './groups.js';
import { Icon, Mark } from './icons.js';
import { onKey, SHORTCUTS } from './keyboard.js';
import { count as counted } from './format.js';
import { connect, connection, groups, loginAt, lostAt, me, overview, refused, topics } from './live.js';
import { Overview } from './overview.js';
import { Loading, Toasts } from './parts.js';
import { Palette } from './palette.js';
import { route } from './router.js';
import { Schemas } from './schemas.js';
import { Security } from './security.js';
import { Topics } from './topics.js';
import { Views } from './views.js';

/** @typedef {{id: string, text: string, page: (props: {parts: string[]}) => any, has?: (named: import('./live.js').Me['has']) => boolean,
 *   count?: () => any}} Place `has`: whether the console was told of it; what it was not told of has a page, but no link */

/** @type {{title: string, places: Place[]}[]} */
const SECTIONS = [
  {
    title: 'Cluster',
    places: [
      { id: 'overview', text: 'Overview', page: Overview },
      { id: 'topics', text: 'Topics', page: Topics, count: () => topics.value?.size },
      { id: 'groups', text: 'Groups', page: Groups, count: () => groups.value?.size },
      { id: 'schemas', text: 'Schemas', page: Schemas, has: (named) => named.registry },
    ],
  },
  {
    title: 'Processing',
    places: [
      { id: 'applications', text: 'Applications', page: Applications, has: (named) => named.apps > 0 },
      { id: 'views', text: 'Views', page: Views, has: (named) => named.views > 0 },
      { id: 'connectors', text: 'Connectors', page: Connectors, has: (named) => named.connect > 0 },
    ],
  },
  {
    title: 'Operations',
    places: [
      { id: 'dead-letters', text: 'Dead letters', page: DeadLetters },
      { id: 'security', text: 'Security', page: Security },
    ],
  },
];
const PLACES = SECTIONS.flatMap(({ places }) => places);

const help = signal(false);
const palette = signal(false);

function Navigation() {
  const now = route.value.parts[0] ?? 'overview';
  const named = me.value?.has;
  const sections = SECTIONS.map(({ title, places }) => ({ title, places: places.filter(({ id, has }) => id === now || !has || (named !== undefined && has(named))) }));
  return html`<aside class="side">
    <a class="brand" href="#/overview" aria-label="suiro, overview"><${Mark} /><span>suiro</span></a>
    <button type="button" class="jump" onClick=${() => { palette.value = true; }}>
      <${Icon} name="search" /><span>Go to…</span><kbd aria-hidden="true">Ctrl K</kbd>
    </button>
    <nav aria-label="Main">
      ${sections.map(
        ({ title, places }) => places.length > 0 && html`<div key=${title} class="nav-section">
          <h2>${title}</h2>
          <ul>
            ${places.map(({ id, text, count }) => {
              const number = count?.();
              return html`<li key=${id}>
                <a href=${`#/${id}`} aria-current=${id === now ? 'page' : undefined} title=${text}>
                  <${Icon} name=${id} /><span>${text}</span>
                  ${number !== undefined && number !== null && html`<span class="nav-count">${counted(number)}</span>`}
                </a>
              </li>`;
            })}
          </ul>
        </div>`,
      )}
    </nav>
    <${Foot} />
  </aside>`;
}

/** Here, and then at the provider, if it has a page for that. */
async function logOut() {
  const { url } = await post('/logout', {}).catch(() => ({ url: null }));
  if (url) location.assign(url);
  else location.reload();
}

/** Back to the same place after that. */
function LogIn() {
  return html`<div class="empty">
    <p class="empty-title">Log in to see this cluster.</p>
    <p><a class="button primary" href=${`${loginAt.value}?to=${encodeURIComponent(location.hash)}`}>Log in</a></p>
  </div>`;
}

function Foot() {
  const state = connection.value;
  const words = { connecting: 'Connecting', live: 'Live', lost: 'Disconnected' };
  const who = me.value;
  return html`<div class="side-foot">
    <div class=${`link-state ${state}`} role="status"><span class="dot" aria-hidden="true"></span>${words[state]}</div>
    ${who && html`<div class="who" title=${`${who.bootstrap}, suiro ${who.version}`}>
      <span>${who.user ?? 'no login'}</span><span class="muted">${who.read_only ? 'read only' : who.role}</span>
    </div>`}
    ${who?.can_log_out && html`<button type="button" class="plain" onClick=${logOut}>Log out</button>`}
    <button type="button" class="plain" aria-label="Keyboard shortcuts" title="Keyboard shortcuts (?)" onClick=${() => { help.value = true; }}>
      <${Icon} name="help" />
    </button>
  </div>`;
}

function Banners() {
  const state = connection.value;
  const wrong = overview.value?.error;
  return html`<div class="banners">
    ${state === 'lost' && html`<div class="banner bad" role="alert">
      <${Icon} name="error" />The console has not answered since ${new Date(lostAt.value).toLocaleTimeString()}. The data is from before;
      this page reconnects by itself.
    </div>`}
    ${refused.value && loginAt.value === null && html`<div class="banner bad" role="alert"><${Icon} name="error" />${refused.value}</div>`}
    ${state === 'live' && wrong && html`<div class="banner warn" role="alert"><${Icon} name="warning" />${wrong}</div>`}
  </div>`;
}

function Help() {
  if (!help.value) return null;
  return html`<${Dialog} title="Keyboard shortcuts" onClose=${() => { help.value = false; }}>
    <table class="keys" aria-label="Keyboard shortcuts">
      <tbody>
        ${SHORTCUTS.map(
          ({ keys, text }) => html`<tr key=${text}>
            <th scope="row">${keys.map((key) => html`<kbd key=${key}>${key}</kbd>`)}</th>
            <td>${text}</td>
          </tr>`,
        )}
      </tbody>
    </table>
  <//>`;
}

function Page() {
  const { parts } = route.value;
  const place = PLACES.find(({ id }) => id === (parts[0] ?? 'overview'));
  useEffect(() => {
    // What had the focus may have gone with the page before this one.
    if (document.activeElement === document.body) {
      /** @type {HTMLElement|null} */ (document.querySelector('main h1'))?.focus({ preventScroll: true });
    }
    document.title = [...parts.slice(1).reverse(), place?.text ?? 'not found', 'suiro'].join(' · ');
  }, [route.value.path]);
  if (loginAt.value !== null) return html`<${LogIn} />`;
  if (me.value === null && refused.value === null) return html`<${Loading} />`;
  if (!place) return html`<div class="empty"><p class="empty-title">This page does not exist.</p><p><a href="#/overview">Go to the overview</a></p></div>`;
  return html`<${place.page} key=${place.id} parts=${parts.slice(1)} />`;
}

function App() {
  useEffect(
    () => onKey({
      help: () => { help.value = true; },
      palette: () => { palette.value = true; },
    }),
    [],
  );
  return html`
    <a class="skip" href="#/" onClick=${(/** @type {Event} */ event) => {
      event.preventDefault();
      /** @type {HTMLElement|null} */ (document.querySelector('main h1'))?.focus();
    }}>Skip to the content</a>
    <${Navigation} />
    <main class="main"><${Banners} /><${Page} /></main>
    <${Help} />
    ${palette.value && html`<${Palette} places=${PLACES} onClose=${() => { palette.value = false; }} />`}
    <${Toasts} />
  `;
}

const root = /** @type {HTMLElement} */ (document.getElementById('app'));
root.replaceChildren();
render(html`<${App} />`, root);
connect();
