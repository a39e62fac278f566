/** Lines over time: uPlot for charts, a path of SVG for the small ones in tables. */

import Plot from './vendor/uplot.js';
import { html, useEffect, useRef } from './lib.js';

const uPlot = /** @type {any} */ (Plot);

/** @param {string} name */
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/**
 * @typedef {{label: string, colour: string, values: (number|null)[], format: (value: number) => string}} Series
 *   `colour`: a variable of the style sheet
 * @param {{times: number[], series: Series[], label: string, height?: number, bars?: boolean}} props `times` in ms
 */
export function Chart({ times, series, label, height = 160, bars = false }) {
  const place = useRef(/** @type {HTMLDivElement|null} */ (null));
  const plot = useRef(/** @type {any} */ (null));
  const shape = `${series.map((one) => one.label).join()}${bars}`;

  useEffect(() => {
    const box = place.current;
    if (!box) return undefined;
    const make = () => {
      plot.current?.destroy();
      plot.current = new uPlot(options(series, box.clientWidth, height, bars), data(times, series), box);
    };
    make();
    const watcher = new ResizeObserver(() => plot.current?.setSize({ width: box.clientWidth, height }));
    watcher.observe(box);
    const theme = matchMedia('(prefers-color-scheme: dark)');
    theme.addEventListener('change', make);
    return () => {
      watcher.disconnect();
      theme.removeEventListener('change', make);
      plot.current?.destroy();
      plot.current = null;
    };
  }, [shape, height]);

  useEffect(() => {
    plot.current?.setData(data(times, series));
  }, [times, series]);

  const last = series.map((one) => {
    const value = one.values.at(-1);
    return `${one.label} ${value === null || value === undefined ? 'unknown' : one.format(value)}`;
  });
  return html`<div class="chart" ref=${place} role="img" aria-label=${`${label}: ${last.join(', ')}`}></div>`;
}

/** @param {number[]} times @param {Series[]} series */
function data(times, series) {
  return [times.map((ms) => ms / 1_000), ...series.map(({ values }) => values)];
}

/** @param {Series[]} series @param {number} width @param {number} height @param {boolean} bars */
function options(series, width, height, bars) {
  const font = '11px system-ui, sans-serif';
  const axis = { stroke: colour('--muted'), font, grid: { stroke: colour('--line'), width: 1 }, ticks: { show: false } };
  return {
    width,
    height,
    padding: [8, 26, 0, 0],
    legend: { live: true, show: series.length > 1 },
    cursor: { points: { size: 6 }, drag: { x: false, y: false } },
    scales: { y: { range: (/** @type {any} */ _, /** @type {number} */ low, /** @type {number} */ high) => [Math.min(0, low ?? 0), (high || 1) * 1.1] } },
    axes: [
      { ...axis, size: 22, space: 80, values: (/** @type {any} */ _, /** @type {number[]} */ marks) => marks.map((mark) => clock(mark, marks.every((one) => one % 60 === 0))) },
      { ...axis, size: 62, values: (/** @type {any} */ _, /** @type {number[]} */ marks) => marks.map((mark) => series[0].format(mark)) },
    ],
    series: [
      { value: (/** @type {any} */ _, /** @type {number|null} */ value) => (value === null ? '–' : clock(value)) },
      ...series.map((one) => ({
        label: one.label,
        stroke: colour(one.colour),
        fill: `color-mix(in srgb, ${colour(one.colour)} ${bars ? 55 : 12}%, transparent)`,
        width: 1.5,
        points: { show: false },
        value: (/** @type {any} */ _, /** @type {number|null} */ value) => (value === null || value === undefined ? '–' : one.format(value)),
        ...(bars && uPlot.paths?.bars ? { paths: uPlot.paths.bars({ size: [0.7, 40] }) } : {}),
      })),
    ],
  };
}

/** @param {number} seconds @param {boolean} [brief] to the minute */
function clock(seconds, brief = false) {
  const at = new Date(seconds * 1_000);
  return [at.getHours(), at.getMinutes(), ...(brief ? [] : [at.getSeconds()])].map((part) => String(part).padStart(2, '0')).join(':');
}

/** @param {{values: (number|bigint|null)[], label: string, tone?: string}} props */
export function Sparkline({ values, label, tone = '' }) {
  const known = values.map((value) => Number(value ?? 0));
  if (known.length < 2) return html`<span class="muted">–</span>`;
  const [width, height] = [88, 20];
  const top = Math.max(...known, 1e-9);
  const points = known.map((value, at) => `${((at / (known.length - 1)) * width).toFixed(1)},${(height - 2 - (value / top) * (height - 4)).toFixed(1)}`);
  return html`<svg class=${`spark ${tone}`} viewBox=${`0 0 ${width} ${height}`} width=${width} height=${height} role="img" aria-label=${label}>
    <path class="spark-area" d=${`M0,${height} L${points.join(' L')} L${width},${height} Z`} />
    <path class="spark-line" d=${`M${points.join(' L')}`} />
  </svg>`;
}

/** A share of something, from 0 to 1. @param {{share: number, label: string, tone?: string}} props */
export function Bar({ share, label, tone = '' }) {
  const width = Math.min(1, Math.max(0, share || 0)) * 100;
  return html`<span class=${`bar ${tone}`} role="img" aria-label=${label}><span class="bar-fill" style=${{ width: `${width}%` }}></span></span>`;
}
