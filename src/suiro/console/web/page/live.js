/** What the server keeps telling: who I am, the overview, topics and groups. Changes come as deltas of `/events`. */

import { batch, computed, signal } from './lib.js';
import { generation, get, url, whileSeen } from './api.js';
import { parse } from './json.js';

const RETRY_MS = 1_000;
const RANK = { viewer: 0, operator: 1, admin: 2 };

/** @typedef {{user: string|null, role: 'viewer'|'operator'|'admin', read_only: boolean, can_log_out: boolean, version: string,
 *   has: {registry: boolean, connect: number, views: number, apps: number}, bootstrap: string}} Me */

export const me = signal(/** @type {Me|null} */ (null));
export const overview = signal(/** @type {any} */ (null));
export const topics = signal(/** @type {Map<string, any>|null} */ (null));
export const groups = signal(/** @type {Map<string, any>|null} */ (null));
/** connecting: for the first time; lost: since when; live. */
export const connection = signal(/** @type {'connecting'|'live'|'lost'} */ ('connecting'));
export const lostAt = signal(0);
/** Why nothing could be loaded at all: not allowed in, for example. */
export const refused = signal(/** @type {string|null} */ (null));
/** Where to log in, when that is why. */
export const loginAt = signal(/** @type {string|null} */ (null));

export const topicRows = computed(() => (topics.value === null ? null : [...topics.value.values()]));
export const groupRows = computed(() => (groups.value === null ? null : [...groups.value.values()]));

/** Whether who looks may do what needs `role`. @param {'viewer'|'operator'|'admin'} role */
export function may(role) {
  const who = me.value;
  return who !== null && (role === 'viewer' || !who.read_only) && RANK[who.role] >= RANK[role];
}

/** Deltas that came while something is loaded, which may be from before them. @type {any[]} */
let since = [];
let loads = 0;

/** @param {() => Promise<void>} load */
async function loading(load) {
  loads += 1;
  try {
    await load();
  } finally {
    loads -= 1;
    if (loads === 0) since = [];
  }
}

/**
 * The rows of an answer, and what came after it.
 * @param {any} answer
 * @param {'topics'|'groups'} list
 * @param {'name'|'group'} name
 */
function rowsOf(answer, list, name) {
  const rows = /** @type {Map<string, any>|null} */ (new Map(answer[list].map((/** @type {any} */ row) => [row[name], row])));
  return since.filter(({ version }) => version > answer.version).reduce((known, delta) => withDelta(known, delta, list, name), rows);
}

const loadAll = () => loading(async () => {
  const [who, seen, allTopics, allGroups] = await Promise.all([
    get(url(['me'])), get(url(['overview'])), get(url(['topics'])), get(url(['groups'])),
  ]);
  batch(() => {
    refused.value = null;
    loginAt.value = null;
    me.value = who;
    overview.value = since.map((delta) => delta.overview).filter((one) => one?.at >= seen.at).at(-1) ?? seen;
    topics.value = rowsOf(allTopics, 'topics', 'name');
    groups.value = rowsOf(allGroups, 'groups', 'group');
    connection.value = 'live';
  });
});

/**
 * @param {Map<string, any>|null} known
 * @param {any} delta
 * @param {'topics'|'groups'} list
 * @param {'name'|'group'} name
 */
function withDelta(known, delta, list, name) {
  const { changed = [], removed = [] } = delta[list] ?? {};
  if (known === null || (changed.length === 0 && removed.length === 0)) return known;
  const next = new Map(known);
  for (const row of changed) next.set(row[name], row);
  for (const row of removed) next.delete(row);
  return next;
}

/** @param {string} text */
function take(text) {
  const delta = parse(text);
  if (loads > 0) since.push(delta);
  batch(() => {
    topics.value = withDelta(topics.value, delta, 'topics', 'name');
    groups.value = withDelta(groups.value, delta, 'groups', 'group');
    if (delta.overview) overview.value = delta.overview;
  });
}

/** @param {import('./api.js').ApiError} error */
function refuse(error) {
  batch(() => {
    refused.value = error.message;
    loginAt.value = error.login;
    if (error.login !== null) connection.value = 'connecting'; // the console answers
  });
}

function lost() {
  if (connection.value !== 'lost') lostAt.value = Date.now();
  connection.value = 'lost';
}

/** Keeps the stream open for as long as the page is there and seen. */
export function connect() {
  whileSeen(() => {
    let ended = false;
    let timer = 0;
    /** @type {EventSource|null} */
    let source = null;
    const open = () => {
      const first = connection.peek() === 'connecting';
      const now = (source = new EventSource(url(['events'])));
      const again = () => {
        now.close();
        clearTimeout(timer);
        if (!ended) timer = setTimeout(open, RETRY_MS);
      };
      now.onopen = () =>
        loadAll().then(
          () => { if (!first) generation.value += 1; },
          (error) => {
            if (error.status === 0) lost();
            else refuse(error);
            again();
          },
        );
      now.addEventListener('delta', (event) => take(/** @type {MessageEvent} */ (event).data));
      // The server left changes out, because this page was too slow for them.
      now.addEventListener('reload', () => loadAll().catch(() => {}));
      now.onerror = () => {
        if (loginAt.peek() === null) lost();
        again();
        // Not let in, or no more: a session may end while the page is open.
        get(url(['me'])).catch((error) => {
          if (error.status !== 0) refuse(error);
          if (error.login) clearTimeout(timer); // who logs in loads the page again
        });
      };
    };
    open();
    return () => {
      ended = true;
      clearTimeout(timer);
      source?.close();
    };
  });
}

/** After a change that this page made itself: what is known of topics and groups is behind by a refresh. */
export const refreshTopics = () => loading(async () => { topics.value = rowsOf(await get(url(['topics'])), 'topics', 'name'); });

export const refreshGroups = () => loading(async () => { groups.value = rowsOf(await get(url(['groups'])), 'groups', 'group'); });
