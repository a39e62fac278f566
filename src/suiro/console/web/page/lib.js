/** What every module of the page needs of Preact, htm and signals: one place that names the vendored files. */

import { Fragment, h, render } from './vendor/preact.js';
import { useCallback, useEffect, useId, useLayoutEffect, useMemo, useRef, useState } from './vendor/preact-hooks.js';
import { batch, computed, effect, signal, untracked } from './vendor/signals.js';
import htm from './vendor/htm.js';

/**
 * Markup as a template; what is put into it becomes text nodes and properties, never markup.
 * @type {(strings: TemplateStringsArray, ...values: any[]) => any}
 */
const html = htm.bind(h);

/** Scrolls to an element when it appears, where it is out of sight. @returns {(element: HTMLElement|null) => void} a ref */
const useReveal = () => useCallback((element) => element?.scrollIntoView({ block: 'nearest' }), []);

export {
  Fragment, batch, computed, effect, h, html, render, signal, untracked,
  useCallback, useEffect, useId, useLayoutEffect, useMemo, useRef, useReveal, useState,
};
