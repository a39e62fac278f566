/**
 * The records that the page holds of a topic: a window that grows at both ends as one scrolls, what a filter found, or
 * the last ones of a live tail. Oldest first in all three, so that newer is always below.
 */

import { useEffect, useMemo, useRef, useState } from './lib.js';
import { generation, get, listen, url, whileSeen } from './api.js';

const PAGE_RECORDS = 200;
const HELD_MAX = 5_000;
/** Records in memory. Beyond it those far from where one looks are let go, and come again when one scrolls back. */
const RATE_MS = 3_000;

/**
 * @typedef {{topic: string, from: string, partition: string, key: string, value: string, filter: string, live: boolean,
 *   limit: string}} Question
 * @typedef {{records: any[], ranges: Record<string, [any, any]>, atStart: boolean, atEnd: boolean, busy: boolean,
 *   error: string|null, progress: any, ended: any, dropped: number, unclear: any, leaderless: number[], perSecond: number,
 *   away: boolean}} Held `away`: records that came while the page was out of sight are missing
 */

/** Where the table scrolls to after rows came or went. */
export class Stick {
  constructor() {
    this.version = 0;
    /** @type {'top'|'bottom'|'follow'|null} */
    this.wish = null;
    this.shift = 0;
    this.shown = 0;
  }

  /** @param {'top'|'bottom'|'follow'|null} wish @param {number} [shift] rows that came (or, below 0, went) above */
  ask(wish, shift = 0) {
    this.wish = wish;
    this.shift += shift;
    this.version += 1;
  }

  /** @param {number} top @param {number} height @param {number} row @param {number} count @returns {number|null} */
  place(top, height, row, count) {
    const { wish, shift, shown } = this;
    const wasAtEnd = top + height >= shown * row - row;
    this.wish = null;
    this.shift = 0;
    this.shown = count;
    if (wish === 'top') return 0;
    if (wish === 'bottom' || (wish === 'follow' && wasAtEnd)) return (count + 3) * row;
    return shift === 0 ? null : Math.max(0, top + shift * row);
  }
}

/** @type {Held} */
const NOTHING = {
  records: [], ranges: {}, atStart: false, atEnd: false, busy: true, error: null, progress: null, ended: null, dropped: 0,
  unclear: null, leaderless: [], perSecond: 0, away: false,
};

/** What was let go counts as not read. @param {'before'|'after'} side @param {Record<string, any>} positions @param {any[]} gone */
function forget(side, positions, gone) {
  const next = { ...positions };
  for (const record of side === 'before' ? gone : [...gone].reverse()) {
    const place = next[record.partition] ?? {};
    next[record.partition] = { ...place, [side]: side === 'before' ? add(record.offset, 1) : record.offset };
  }
  return next;
}

/** @param {number|bigint} offset @param {number} step */
const add = (offset, step) => (typeof offset === 'bigint' ? offset + BigInt(step) : offset + step);

/** @param {Record<string, any>} positions @param {'before'|'after'} side */
const positionsText = (positions, side) => Object.entries(positions).map(([partition, place]) => `${partition}:${place[side]}`).join();

/** @param {Question} question */
export function useRecords(question) {
  const [held, setHeld] = useState(NOTHING);
  const stick = useMemo(() => new Stick(), []);
  const running = useRef(/** @type {{stop: () => void, edge: (edge: 'top'|'bottom', again?: boolean) => void}|null} */ (null));
  const [again, setAgain] = useState(0);
  const known = generation.value;
  const begun = useRef(known);
  const asked = JSON.stringify(question);

  useEffect(() => {
    begun.current = known;
    /** @type {Held} */
    let now = NOTHING;
    let over = false;
    const show = (/** @type {Partial<Held>} */ change) => {
      if (over) return;
      now = { ...now, ...change };
      setHeld(now);
    };
    show({});
    const started = question.live ? tail(question, show, () => now, stick)
      : question.filter ? scan(question, show, () => now, stick)
        : browse(question, show, () => now, stick);
    running.current = started;
    return () => {
      over = true;
      started.stop();
    };
  }, [asked, again]);
  useEffect(() => {
    // What is shown is of the log, and stays where one reads. Only what the loss of the connection ended begins anew,
    // also where that is told when the connection has come back.
    if (held.error !== null && begun.current !== known) setAgain((count) => count + 1);
  }, [known, held.error]);

  const onEdge = useMemo(() => (/** @type {'top'|'bottom'} */ edge) => running.current?.edge(edge), []);
  return {
    held,
    stick,
    onEdge,
    more: () => running.current?.edge('bottom', true),
    stop: () => running.current?.stop(),
    restart: () => setAgain((count) => count + 1),
  };
}

/**
 * @param {Question} question
 * @param {(change: Partial<Held>) => void} show
 * @param {() => Held} now
 * @param {Stick} stick
 */
function browse(question, show, now, stick) {
  const { topic, from, partition, key, value } = question;
  const parts = ['topics', topic, 'records'];
  const backward = from === '';
  const abort = new AbortController();
  /** @type {Record<string, any>} */
  let positions = {};
  let busy = false;

  /**
   * A page from where the last one ended. It may be empty though there is more, since a page costs at most so many bytes
   * of reading: then the next one is asked for at once.
   * @param {any} query
   * @param {'before'|'after'} side
   * @param {(records: any[], ranges: Record<string, [any, any]>, over: boolean) => void} take
   */
  const load = async (query, side, take) => {
    busy = true;
    show({ busy: true });
    try {
      let next = query;
      for (;;) {
        const answer = await get(url(parts, { partition, key, value, limit: PAGE_RECORDS, ...next }), abort.signal);
        show({ leaderless: answer.leaderless });
        const before = positionsText(positions, side);
        positions = next.positions === undefined ? answer.positions : joined(positions, answer.positions, side);
        const over = reached(positions, answer.ranges, side) || positionsText(positions, side) === before;
        if (answer.records.length > 0 || over) {
          busy = false;
          take(answer.records, answer.ranges, over);
          return;
        }
        next = { positions: positionsText(positions, side), direction: query.direction };
      }
    } catch (error) {
      if (!abort.signal.aborted) show({ busy: false, error: /** @type {Error} */ (error).message });
    }
  };

  load({ from: from || 'latest', direction: backward ? 'backward' : 'forward' }, backward ? 'before' : 'after', (records, ranges) => {
    stick.ask(backward ? 'bottom' : 'top');
    show({
      records, ranges, busy: false, error: null,
      atStart: reached(positions, ranges, 'before'), atEnd: reached(positions, ranges, 'after'),
    });
  });

  const edge = (/** @type {'top'|'bottom'} */ side, again = false) => {
    const state = now();
    if (busy || abort.signal.aborted || state.error || Object.keys(positions).length === 0) return;
    if (side === 'top' && !state.atStart) {
      load({ positions: positionsText(positions, 'before'), direction: 'backward' }, 'before', (found, ranges, over) => {
        let records = [...found, ...now().records];
        const gone = records.slice(HELD_MAX);
        positions = forget('after', positions, gone);
        records = records.slice(0, HELD_MAX);
        stick.ask(null, found.length);
        show({ records, ranges, busy: false, atStart: over, atEnd: now().atEnd && gone.length === 0 });
      });
    } else if (side === 'bottom' && (again || !state.atEnd)) {
      load({ positions: positionsText(positions, 'after'), direction: 'forward' }, 'after', (found, ranges, over) => {
        const all = [...now().records, ...found];
        const gone = Math.max(0, all.length - HELD_MAX);
        positions = forget('before', positions, all.slice(0, gone));
        stick.ask(again ? 'bottom' : null, -gone);
        show({ records: all.slice(gone), ranges, busy: false, atEnd: over, atStart: now().atStart && gone === 0 });
      });
    }
  };
  return { stop: () => abort.abort(), edge };
}

/** @param {Record<string, any>} positions @param {Record<string, any>} answered @param {'before'|'after'} side */
function joined(positions, answered, side) {
  const next = { ...positions };
  for (const [partition, place] of Object.entries(answered)) next[partition] = { ...next[partition], [side]: place[side] };
  return next;
}

/** @param {Record<string, any>} positions @param {Record<string, [any, any]>} ranges @param {'before'|'after'} side */
function reached(positions, ranges, side) {
  return Object.entries(positions).every(([partition, place]) => {
    const [first, end] = ranges[partition] ?? [0, 0];
    return side === 'before' ? place.before <= first : place.after >= end;
  });
}

/**
 * @param {Question} question
 * @param {(change: Partial<Held>) => void} show
 * @param {() => Held} now
 * @param {Stick} stick
 */
function scan(question, show, now, stick) {
  const { topic, from, partition, key, value, filter, limit } = question;
  const target = url(['topics', topic, 'scan'], { filter, from: from || 'earliest', partition, key, value, limit });
  const source = listen(target, {
    records: (found) => {
      stick.ask(null);
      show({ records: [...now().records, ...found] });
    },
    progress: (progress) => show({ progress }),
    end: (ended) => {
      source.close();
      show({ ended, busy: false, atEnd: true, atStart: true });
    },
    failed: ({ message }) => {
      source.close();
      show({ error: message, busy: false });
    },
  }, (message) => show({ error: message, busy: false }));
  stick.ask('top');
  return {
    stop: () => {
      if (source.readyState === EventSource.CLOSED) return;
      source.close();
      show({ busy: false, ended: { reason: 'cancelled', ...now().progress } });
    },
    edge: () => {},
  };
}

/**
 * @param {Question} question
 * @param {(change: Partial<Held>) => void} show
 * @param {() => Held} now
 * @param {Stick} stick
 */
function tail(question, show, now, stick) {
  const { topic, partition, key, value, filter } = question;
  /** @type {[number, number][]} */
  let seen = [];
  let stopped = false;
  let opened = false;
  const close = whileSeen(() => {
    show({ away: opened, error: null, busy: true });
    opened = true;
    const source = listen(url(['topics', topic, 'tail'], { filter, partition, key, value }), {
      records: ({ records: found, dropped, leaderless, ...unclear }) => {
        const at = performance.now();
        seen = [...seen.filter(([when]) => at - when < RATE_MS), [at, found.length + Number(dropped)]];
        const all = [...now().records, ...found];
        const gone = Math.max(0, all.length - HELD_MAX);
        stick.ask('follow', -gone);
        const counted = seen.reduce((sum, [, number]) => sum + number, 0);
        show({
          records: gone > 0 ? all.slice(gone) : all,
          dropped: now().dropped + Number(dropped),
          unclear,
          leaderless,
          perSecond: counted / Math.max(1, (at - seen[0][0]) / 1_000),
        });
      },
      failed: ({ message }) => {
        source.close();
        show({ error: message, busy: false });
      },
    }, (message) => show({ error: message, busy: false }));
    return () => source.close();
  });
  stick.ask('bottom');
  return {
    stop: () => {
      if (stopped) return;
      stopped = true;
      close();
      show({ busy: false, ended: { reason: 'cancelled' } });
    },
    edge: () => {},
  };
}
