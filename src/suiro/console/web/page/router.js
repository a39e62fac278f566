/** The page's state is the URL's hash: `#/topics/orders/records?from=-50`. Each part is one path segment. */

import { html, signal } from './lib.js';

/** @typedef {{parts: string[], query: Record<string, string>, path: string}} Route */

/** @param {string} text @returns {string} */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** @returns {Route} */
function read() {
  const hash = location.hash.replace(/^#\/?/, '');
  const [path, ...rest] = hash.split('?');
  return {
    parts: path.split('/').filter((part) => part !== '').map(decoded),
    query: Object.fromEntries(new URLSearchParams(rest.join('?'))),
    path,
  };
}

export const route = signal(read());

addEventListener('hashchange', () => {
  route.value = read();
});

/**
 * @param {(string|number)[]} parts
 * @param {Record<string, string|number|null|undefined>} [query] what is null, undefined or '' is left out
 */
export function href(parts, query = {}) {
  const said = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== '');
  const text = new URLSearchParams(said.map(([name, value]) => [name, String(value)])).toString();
  return `#/${parts.map((part) => encodeURIComponent(String(part))).join('/')}${text ? `?${text}` : ''}`;
}

/** @param {string} hash */
export function go(hash) {
  location.hash = hash;
}

/**
 * Changes a part of the query. `replace`: without a step in the history, for what changes as one types.
 * @param {Record<string, string|number|null|undefined>} patch
 * @param {{replace?: boolean}} [options]
 */
export function setQuery(patch, { replace = false } = {}) {
  const now = route.peek();
  const target = href(now.parts, { ...now.query, ...patch });
  if (target === location.hash) return;
  if (replace) {
    history.replaceState(null, '', target);
    route.value = read();
  } else {
    location.hash = target;
  }
}

/**
 * A link the server names. Only places of this page: a link from elsewhere is shown as text.
 * @param {{to: string, children: any}} props
 */
export function SafeLink({ to, children }) {
  return typeof to === 'string' && to.startsWith('#/') ? html`<a href=${to}>${children}</a>` : html`<span>${children}</span>`;
}
