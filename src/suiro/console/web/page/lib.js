/** What every module of the page needs of Preact, htm and signals: one place that names the vendored files, and says
 *  the types of what is in them, which have none. */

import { Fragment, h, render } from './vendor/preact.js';
import * as hooks from './vendor/preact-hooks.js';
import * as signals from './vendor/signals.js';
import htm from './vendor/htm.js';

/**
 * Markup as a template; what is put into it becomes text nodes and properties, never markup.
 * @type {(strings: TemplateStringsArray, ...values: any[]) => any}
 */
const html = htm.bind(h);

/**
 * @template T
 * @typedef {{value: T, peek: () => T}} Signal
 */
/**
 * @typedef {{
 *   useState: <T>(first: T | (() => T)) => [T, (next: T | ((before: T) => T)) => void],
 *   useRef: <T>(first: T) => {current: T},
 *   useMemo: <T>(make: () => T, inputs: any[]) => T,
 *   useCallback: <T extends Function>(call: T, inputs: any[]) => T,
 *   useEffect: (run: () => void | (() => void), inputs?: any[]) => void,
 *   useLayoutEffect: (run: () => void | (() => void), inputs?: any[]) => void,
 *   useId: () => string,
 * }} Hooks
 * @typedef {{
 *   signal: <T>(first: T) => Signal<T>,
 *   computed: <T>(make: () => T) => Signal<T>,
 *   effect: (run: () => void | (() => void)) => () => void,
 *   batch: <T>(run: () => T) => T,
 *   untracked: <T>(run: () => T) => T,
 * }} Signals
 */

const { useCallback, useEffect, useId, useLayoutEffect, useMemo, useRef, useState } = /** @type {Hooks} */ (/** @type {any} */ (hooks));
const { batch, computed, effect, signal, untracked } = /** @type {Signals} */ (/** @type {any} */ (signals));

/** Scrolls to an element when it appears, where it is out of sight. @returns {(element: HTMLElement|null) => void} a ref */
const useReveal = () => useCallback((/** @type {HTMLElement|null} */ element) => element?.scrollIntoView({ block: 'nearest' }), []);

export {
  Fragment, batch, computed, effect, h, html, render, signal, untracked,
  useCallback, useEffect, useId, useLayoutEffect, useMemo, useRef, useReveal, useState,
};
