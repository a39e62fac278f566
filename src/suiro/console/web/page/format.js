/** Numbers, sizes, durations and times as people read them. Each takes a number, a BigInt or nothing. */

import { html } from './lib.js';

const NONE = '–';
const WHOLE = new Intl.NumberFormat('en-US');
const LATEST_MS = 8.64e15;

/** @param {number|bigint|null|undefined} value */
export function count(value) {
  return value === null || value === undefined ? NONE : WHOLE.format(value);
}

/** 12,345 becomes 12.3 k: for tiles and charts. @param {number|bigint|null|undefined} value */
export function short(value) {
  if (value === null || value === undefined) return NONE;
  const size = Math.abs(Number(value));
  if (size < 10_000) return WHOLE.format(value);
  for (const [unit, name] of /** @type {[number, string][]} */ ([[1e12, 'T'], [1e9, 'G'], [1e6, 'M'], [1e3, 'k']])) {
    if (size >= unit) return `${digits(Number(value) / unit)} ${name}`;
  }
  return String(value);
}

/** @param {number} value */
function digits(value) {
  const size = Math.abs(value);
  return size >= 100 ? value.toFixed(0) : size >= 10 ? value.toFixed(1) : value.toFixed(2);
}

/** @param {number|null|undefined} value */
export function rate(value) {
  if (value === null || value === undefined) return NONE;
  const number = Number(value);
  return number === 0 ? '0/s' : number < 10 ? `${number.toFixed(1)}/s` : `${short(Math.round(number))}/s`;
}

/** @param {number|bigint|null|undefined} value */
export function bytes(value) {
  if (value === null || value === undefined) return NONE;
  let size = Number(value);
  if (size < 1024) return `${size} B`;
  for (const unit of ['KiB', 'MiB', 'GiB', 'TiB']) {
    size /= 1024;
    if (size < 1024 || unit === 'TiB') return `${digits(size)} ${unit}`;
  }
  return NONE;
}

/** @param {number|bigint|null|undefined} value in ms */
export function duration(value) {
  if (value === null || value === undefined) return NONE;
  const ms = Number(value);
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1_000).toFixed(1)} s`;
  const minutes = Math.floor(ms / 60_000);
  if (minutes < 60) return `${minutes} min`;
  if (minutes < 48 * 60) return `${Math.floor(minutes / 60)} h${minutes % 60 === 0 ? '' : ` ${minutes % 60} min`}`;
  return `${Math.floor(minutes / (24 * 60))} d`;
}

/** @param {number|null|undefined} value from 0 to 1 */
export function percent(value) {
  if (value === null || value === undefined) return NONE;
  const share = Number(value) * 100;
  return `${Number(share.toFixed(share >= 10 ? 0 : share < 1 ? 2 : 1))} %`;
}

/** @param {number} value @param {number} width */
const padded = (value, width = 2) => String(value).padStart(width, '0');

/** In the reader's zone. @param {number} ms */
export function localTime(ms) {
  const at = new Date(ms);
  return (
    `${at.getFullYear()}-${padded(at.getMonth() + 1)}-${padded(at.getDate())} ` +
    `${padded(at.getHours())}:${padded(at.getMinutes())}:${padded(at.getSeconds())}.${padded(at.getMilliseconds(), 3)}`
  );
}

/**
 * A time in the reader's zone, with UTC in its title.
 * @param {{ms: number|bigint|null|undefined, brief?: boolean, ofDay?: boolean}} props `brief`: to the second; `ofDay`: without the date
 */
export function Time({ ms, brief, ofDay }) {
  if (ms === null || ms === undefined || ms === -1) return html`<span class="muted">no time</span>`;
  const at = Number(ms);
  if (!(Math.abs(at) <= LATEST_MS)) return html`<span>${String(ms)}</span>`;
  const utc = new Date(at).toISOString();
  const text = localTime(at);
  return html`<time datetime=${utc} title=${`${utc.replace('T', ' ').replace('Z', '')} UTC · ${ms} ms`}>
    ${ofDay ? text.slice(11) : brief ? text.slice(0, 19) : text}
  </time>`;
}

/** How far this machine's clock is behind that of the console, whose times are shown. */
let behindMs = 0;
/** The header `Date` has whole seconds, and an answer takes its time. */
const INEXACT_MS = 3_000;

/** Learns the console's time from an answer. @param {string|null} date its header `Date` */
export function learnTime(date) {
  const behind = Date.parse(date ?? '') - Date.now();
  if (!Number.isNaN(behind)) behindMs = Math.abs(behind) < INEXACT_MS ? 0 : behind;
}

/** Now, by the console's clock. */
export const now = () => Date.now() + behindMs;

/** "3 min ago"; the exact time is in the title. @param {{ms: number|null|undefined}} props */
export function Ago({ ms }) {
  if (ms === null || ms === undefined || ms < 0) return html`<span class="muted">never</span>`;
  const utc = Math.abs(Number(ms)) <= LATEST_MS ? new Date(Number(ms)).toISOString() : String(ms);
  return html`<time datetime=${utc} title=${`${utc.replace('T', ' ').replace('Z', '')} UTC`}>
    ${duration(Math.max(0, now() - Number(ms)))} ago
  </time>`;
}

/** `name` with an s where there are not one. @param {number|bigint} number @param {string} name */
export function plural(number, name) {
  return `${count(number)} ${name}${Number(number) === 1 ? '' : 's'}`;
}
