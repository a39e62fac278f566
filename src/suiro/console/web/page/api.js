/** Asking the console's API, and reading its event streams. */

import { html, signal, useCallback, useEffect, useRef, useState } from './lib.js';
import { learnTime } from './format.js';
import { parse, stringify } from './json.js';
import { say } from './parts.js';

const BASE = '/api/v1';
const OUT_OF_SIGHT_MS = 10_000;

/** Counted up when the connection came back: whatever was loaded before is loaded again. */
export const generation = signal(0);

/** What the API refused, or that it could not be reached (`status` 0). */
export class ApiError extends Error {
  /** @param {number} status @param {string} message @param {string|null} [login] where to log in, if that helps */
  constructor(status, message, login = null) {
    super(message);
    this.status = status;
    this.login = login;
  }
}

/**
 * A path of the API from its segments.
 * @param {(string|number)[]} parts
 * @param {Record<string, string|number|boolean|null|undefined>} [query]
 */
export function url(parts, query = {}) {
  const said = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== '');
  const text = new URLSearchParams(said.map(([name, value]) => [name, String(value)])).toString();
  return `${BASE}/${parts.map((part) => encodeURIComponent(String(part))).join('/')}${text ? `?${text}` : ''}`;
}

/** @param {string} target @param {RequestInit} [options] @returns {Promise<any>} */
async function ask(target, options = {}) {
  let answer, text;
  try {
    answer = await fetch(target, { credentials: 'same-origin', cache: 'no-store', ...options });
    learnTime(answer.headers.get('date'));
    text = await answer.text();
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new ApiError(0, 'The console does not answer. Is `suiro console` still running?');
  }
  let data = null;
  try {
    data = text === '' ? null : parse(text);
  } catch {
    throw new ApiError(answer.status, `The console answered ${answer.status} with something that is no JSON.`);
  }
  if (!answer.ok) throw new ApiError(answer.status, data?.message ?? `The console answered ${answer.status}.`, data?.login ?? null);
  return data;
}

/** @param {string} target @param {AbortSignal} [signal] */
export const get = (target, signal) => ask(target, { signal });

/** @param {string} target @param {any} body */
export const post = (target, body) =>
  ask(target, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: stringify(body) });

/**
 * What is at `target`, loaded again when that changes, every `everyMs` while the page is seen, and after a reconnect.
 * What was there stays until the new answer has come. `target` null: nothing is asked.
 * @param {string|null} target
 * @param {{everyMs?: number}} [options]
 * @returns {{data: any, error: ApiError|null, loading: boolean, reload: () => void}}
 */
export function useLoad(target, { everyMs = 0 } = {}) {
  const [state, setState] = useState(/** @type {any} */ ({ target: null, data: null, error: null, loading: true }));
  const [again, setAgain] = useState(0);
  const known = generation.value;
  useEffect(() => {
    if (target === null) return undefined;
    const abort = new AbortController();
    let timer = 0;
    const load = () =>
      get(target, abort.signal).then(
        (data) => setState({ target, data, error: null, loading: false }),
        (error) => {
          if (abort.signal.aborted) return;
          setState((/** @type {any} */ before) => ({
            target,
            // Of what may be answered the next time, what is known stays, and so do the forms over it.
            data: before.target === target && (error.status === 0 || error.status >= 500) ? before.data : null,
            error,
            loading: false,
          }));
        },
      ).then(next);
    const next = () => {
      if (everyMs > 0 && !abort.signal.aborted) timer = setTimeout(() => (document.hidden ? next() : load()), everyMs);
    };
    load();
    return () => {
      abort.abort();
      clearTimeout(timer);
    };
  }, [target, again, known, everyMs]);
  const reload = useCallback(() => setAgain((count) => count + 1), []);
  const fits = state.target === target;
  return { data: fits ? state.data : null, error: fits ? state.error : null, loading: !fits, reload };
}

/**
 * An event stream of the API, open until `close` is called on what this returns. It does not reconnect by itself.
 * @param {string} target
 * @param {Record<string, (data: any) => void>} events
 * @param {(message: string) => void} failed
 */
export function listen(target, events, failed) {
  const source = new EventSource(target);
  for (const [name, take] of Object.entries(events)) {
    source.addEventListener(name, (event) => take(parse(/** @type {MessageEvent} */ (event).data)));
  }
  source.onerror = () => {
    source.close();
    // An EventSource does not tell why it was refused; the same request by fetch does.
    const abort = new AbortController();
    fetch(target, { signal: abort.signal, credentials: 'same-origin' })
      .then(async (answer) => {
        const text = answer.ok ? '' : await answer.text();
        abort.abort();
        failed(text === '' ? 'The connection was lost.' : (parse(text).message ?? `The console answered ${answer.status}.`));
      })
      .catch(() => failed('The connection was lost.'));
  };
  return source;
}

/**
 * Calls `open` when the page is seen, and what that returned when it was out of sight for a while: a browser gives all
 * tabs of a host six connections together, and a stream holds one.
 * @param {() => () => void} open
 * @returns {() => void} that ends it
 */
export function whileSeen(open) {
  /** @type {(() => void)|null} */
  let close = null;
  let timer = 0;
  const shut = () => {
    close?.();
    close = null;
  };
  const look = () => {
    clearTimeout(timer);
    if (document.hidden) timer = setTimeout(shut, OUT_OF_SIGHT_MS);
    else close ??= open();
  };
  document.addEventListener('visibilitychange', look);
  look();
  return () => {
    document.removeEventListener('visibilitychange', look);
    clearTimeout(timer);
    shut();
  };
}

/** Whether what calls it is still shown: the answer to a form may come when it was closed. */
export function useShown() {
  const shown = useRef(true);
  useEffect(() => () => { shown.current = false; }, []);
  return shown;
}

/**
 * A command in hand: `run(body)` posts, and tells its outcome.
 * @param {string} target
 * @param {(answer: any) => void} done
 */
export function useCommand(target, done) {
  const [state, setState] = useState(/** @type {{busy: boolean, error: string|null}} */ ({ busy: false, error: null }));
  const alive = useShown();
  const run = async (/** @type {any} */ body) => {
    setState({ busy: true, error: null });
    try {
      const answer = await post(target, body);
      if (alive.current) setState({ busy: false, error: null });
      done(answer);
    } catch (error) {
      const { message } = /** @type {Error} */ (error);
      if (alive.current) setState({ busy: false, error: message });
      else say(message, 'error'); // what showed it was closed meanwhile
    }
  };
  return { ...state, run };
}

/** @param {{error: {message: string}|string|null|undefined, retry?: () => void}} props */
export function Failure({ error, retry }) {
  if (!error) return null;
  return html`<div class="notice error" role="alert">
    <span>${typeof error === 'string' ? error : error.message}</span>
    ${retry && html`<button type="button" onClick=${retry}>Try again</button>`}
  </div>`;
}
