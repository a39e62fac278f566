/** Icons of 16 by 16, drawn in lines of the text's colour. */

import { html } from './lib.js';

/** @type {Record<string, string[]>} */
const PATHS = {
  overview: ['M2.5 13.5h11', 'M4 11V8', 'M8 11V3', 'M12 11V6'],
  topics: ['M2.5 4h11', 'M2.5 8h11', 'M2.5 12h7'],
  groups: ['M6 7.5a2 2 0 1 0 0-4 2 2 0 0 0 0 4Z', 'M2.5 13c0-2.2 1.4-3.5 3.5-3.5S9.500 10.800 9.500 13', 'M10.500 4a1.800 1.800 0 0 1 0 3.400', 'M11.500 9.700c1.300.500 2 1.600 2 3.300'],
  schemas: ['M6 3H5a1.500 1.500 0 0 0-1.500 1.500V7L2.500 8l1 1v2.500A1.500 1.500 0 0 0 5 13h1', 'M10 3h1a1.500 1.500 0 0 1 1.500 1.500V7l1 1-1 1v2.500A1.500 1.500 0 0 1 11 13h-1'],
  applications: ['M2.500 3h4v4h-4z', 'M9.500 9h4v4h-4z', 'M4.500 7v4h5'],
  views: ['M2.500 4.500h7v7h-7z', 'M6.500 4.500v-2h7v7h-4'],
  connectors: ['M6 2.500v3', 'M10 2.500v3', 'M4 5.500h8v2a4 4 0 0 1-8 0z', 'M8 11.500v2'],
  'dead-letters': ['M2.500 4h11v8h-11z', 'M2.500 4.500 8 9l5.500-4.500'],
  security: ['M8 2.500 3 4.500V8c0 3 2.200 4.800 5 5.500 2.800-.7 5-2.500 5-5.500V4.500z'],
  help: ['M6 6a2 2 0 1 1 2.800 1.800c-.6.3-.8.7-.8 1.400', 'M8 11.600v.1', 'M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12Z'],
  search: ['M7 11.500a4.500 4.500 0 1 0 0-9 4.500 4.500 0 0 0 0 9Z', 'm10.500 10.500 3 3'],
  close: ['m4 4 8 8', 'm12 4-8 8'],
  plus: ['M8 3.500v9', 'M3.500 8h9'],
  play: ['M5 3.500v9l7-4.500z'],
  pause: ['M5.500 3.500v9', 'M10.500 3.500v9'],
  stop: ['M4.500 4.500h7v7h-7z'],
  down: ['m4 6.500 4 4 4-4'],
  up: ['m4 9.500 4-4 4 4'],
  right: ['m6.500 4 4 4-4 4'],
  download: ['M8 2.500v7', 'm5 7 3 3 3-3', 'M3 13h10'],
  warning: ['M8 2.500 14 13H2z', 'M8 6.500v3', 'M8 11.300v.1'],
  error: ['M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12Z', 'M8 5v3.500', 'M8 11v.1'],
  ok: ['m3.500 8.500 3 3 6-7'],
  copy: ['M5.500 5.500h7v7h-7z', 'M10.500 5.500v-2h-7v7h2'],
  back: ['M12.500 8h-9', 'm7 4.500-3.500 3.500L7 11.500'],
};

/** @param {{name: string}} props */
export function Icon({ name }) {
  return html`<svg class="icon" viewBox="0 0 16 16" aria-hidden="true" focusable="false">
    ${(PATHS[name] ?? []).map((path) => html`<path key=${path} d=${path} />`)}
  </svg>`;
}

/** The mark: a stream that parts and joins again. */
export function Mark() {
  return html`<svg class="mark" viewBox="0 0 24 24" aria-hidden="true" focusable="false">
    <path d="M2 8.500c4-4 6-4 10 0s6 4 10 0" />
    <path class="second" d="M2 15.500c4-4 6-4 10 0s6 4 10 0" />
  </svg>`;
}
