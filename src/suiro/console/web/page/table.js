/**
 * Tables. `DataTable` draws all of its rows; `VirtualTable` draws those in sight, of any number, in rows of one height.
 * Both sort by a click on a heading. In a virtual table the arrow keys, `j` and `k` go from row to row.
 */

import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from './lib.js';

const ROW_PX = 30;
const BEYOND = 12;
/** Rows drawn above and below those in sight. */
const HEIGHT_MAX_PX = 15_000_000;
/** Browsers draw no element of more; beyond it, scrolling covers the rows in larger steps. */

/**
 * @typedef {{id: string, title: any, cell: (row: any) => any, sort?: (row: any) => any, numeric?: boolean, width?: string,
 *   className?: string, label?: string}} Column
 * @typedef {{by: string, down: boolean}} Order
 */

/** @param {any} left @param {any} right */
function compare(left, right) {
  if (left === right) return 0;
  if (left === null || left === undefined) return -1;
  if (right === null || right === undefined) return 1;
  return left < right ? -1 : 1;
}

/** @param {any[]} rows @param {Column[]} columns @param {Order} order */
export function sorted(rows, columns, order) {
  const column = columns.find(({ id }) => id === order.by);
  const value = column?.sort;
  if (!value) return rows;
  const sign = order.down ? -1 : 1;
  return rows.map((row) => /** @type {[any, any]} */ ([value(row), row])).sort((left, right) => sign * compare(left[0], right[0])).map(([, row]) => row);
}

/** "-lag": by lag, the largest first. @param {string|undefined} text @param {string} other @returns {Order} */
export function orderOf(text, other) {
  const said = text || other;
  return { by: said.replace(/^-/, ''), down: said.startsWith('-') };
}

/** @param {Order} order */
export const orderText = ({ by, down }) => `${down ? '-' : ''}${by}`;

/** @param {{columns: Column[], order?: Order, onOrder?: (order: Order) => void}} props */
function Heading({ columns, order, onOrder }) {
  return html`<thead>
    <tr>
      ${columns.map((column) => {
        const now = order?.by === column.id ? (order.down ? 'descending' : 'ascending') : undefined;
        return html`<th key=${column.id} scope="col" class=${column.numeric ? 'num' : ''} aria-sort=${now}>
          ${column.sort && onOrder
            ? html`<button type="button" class="sort" onClick=${() =>
                onOrder({ by: column.id, down: now ? !order?.down : Boolean(column.numeric) })}>
                ${column.title}<span aria-hidden="true" class="sort-mark">${now ? (order?.down ? '↓' : '↑') : ''}</span>
              </button>`
            : column.title || html`<span class="hidden">${column.label ?? column.id}</span>`}
        </th>`;
      })}
    </tr>
  </thead>`;
}

/** @param {{columns: Column[]}} props */
const Widths = ({ columns }) => html`<colgroup>
  ${columns.map(({ id, width }) => html`<col key=${id} style=${width ? { width } : undefined} />`)}
</colgroup>`;

/**
 * @param {{columns: Column[], rows: any[], rowKey: (row: any, at: number) => string, label: string, first?: string,
 *   onOpen?: (row: any) => void, rowClass?: (row: any) => string}} props `first`: the order it has at first
 */
export function DataTable({ columns, rows, rowKey, label, first = '', onOpen, rowClass }) {
  const [order, setOrder] = useState(orderOf(first, ''));
  const shown = sorted(rows, columns, order);
  return html`<div class="table-scroll" tabindex="0" role="region" aria-label=${label}>
    <table aria-label=${label}>
      <${Widths} columns=${columns} />
      <${Heading} columns=${columns} order=${order} onOrder=${setOrder} />
      <tbody>
        ${shown.map(
          (row, at) => html`<tr key=${rowKey(row, at)} class=${`${rowClass?.(row) ?? ''} ${onOpen ? 'opens' : ''}`}
            onClick=${onOpen && ((/** @type {Event} */ event) => openUnlessLink(event, () => onOpen(row)))}>
            ${columns.map((column) => html`<td key=${column.id} class=${classOf(column)}>${column.cell(row)}</td>`)}
          </tr>`,
        )}
      </tbody>
    </table>
    ${shown.length === 0 && html`<p class="inset muted">No rows</p>`}
  </div>`;
}

/** @param {Column} column */
const classOf = (column) => `${column.numeric ? 'num' : ''} ${column.className ?? ''}`;

/** A click into a row, except on what has a meaning of its own. @param {Event} event @param {() => void} open */
function openUnlessLink(event, open) {
  const target = /** @type {Element} */ (event.target);
  if (target.closest('a, button, input, label') === null && !getSelection()?.toString()) open();
}

/**
 * @param {{columns: Column[], rows: any[], rowKey: (row: any) => string, label: string, order?: Order,
 *   onOrder?: (order: Order) => void, onOpen?: (row: any) => void, selected?: string|null, onEdge?: (edge: 'top'|'bottom') => void,
 *   stick?: import('./records_list.js').Stick, empty?: any, rowClass?: (row: any) => string}} props
 *   `onEdge`: the first or last row came near; `stick`: where to scroll to when rows came or went
 */
export function VirtualTable({ columns, rows, rowKey, label, order, onOrder, onOpen, selected, onEdge, stick, empty, rowClass }) {
  const place = useRef(/** @type {HTMLDivElement|null} */ (null));
  const [view, setView] = useState({ top: 0, height: 600 });
  const shown = useMemo(() => (order ? sorted(rows, columns, order) : rows), [rows, order?.by, order?.down]);

  useEffect(() => {
    const box = place.current;
    if (!box) return undefined;
    const look = () => setView({ top: box.scrollTop, height: box.clientHeight });
    const watcher = new ResizeObserver(look);
    watcher.observe(box);
    box.addEventListener('scroll', look, { passive: true });
    look();
    return () => {
      watcher.disconnect();
      box.removeEventListener('scroll', look);
    };
  }, []);

  const whole = shown.length * ROW_PX;
  const scale = whole > HEIGHT_MAX_PX ? whole / HEIGHT_MAX_PX : 1;
  const from = Math.max(0, Math.floor((view.top * scale) / ROW_PX) - BEYOND);
  const until = Math.min(shown.length, Math.ceil((view.top * scale + view.height) / ROW_PX) + BEYOND);

  useLayoutEffect(() => {
    const box = place.current;
    if (!box || !stick) return;
    const target = stick.place(box.scrollTop, box.clientHeight, ROW_PX, shown.length);
    if (target !== null) {
      box.scrollTop = target;
      setView({ top: box.scrollTop, height: box.clientHeight });
    }
  }, [stick, shown.length, stick?.version]);

  useEffect(() => {
    if (!onEdge || shown.length === 0) return;
    const box = place.current;
    if (!box || box.clientHeight === 0) return;
    // Where the box is now, not where it was drawn: it may just have been put elsewhere.
    if (box.scrollTop < ROW_PX * BEYOND) onEdge('top');
    if (box.scrollTop + box.clientHeight > whole - ROW_PX * BEYOND) onEdge('bottom');
  }, [view.top, view.height, shown.length, onEdge]);

  const move = (/** @type {KeyboardEvent} */ event) => {
    const step = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1, PageDown: 0, PageUp: 0 }[event.key];
    const box = place.current;
    if (!step || !box || event.ctrlKey || event.metaKey || event.altKey) return;
    const row = /** @type {HTMLElement} */ (event.target).closest('tr[data-at]');
    const at = row instanceof HTMLElement ? Number(row.dataset.at) + step : from + (from > 0 ? BEYOND : 0);
    if (at < 0 || at >= shown.length) return;
    event.preventDefault();
    focusRow(box, at, scale);
    if (selected !== undefined && onOpen) onOpen(shown[at]);
  };

  return html`<div class="virtual" ref=${place} tabindex="0" role="region" aria-label=${label} onKeyDown=${move}>
    <table aria-label=${label} aria-rowcount=${shown.length + 1}>
      <${Widths} columns=${columns} />
      <${Heading} columns=${columns} order=${order} onOrder=${onOrder} />
      <tbody>
        ${from > 0 && html`<tr aria-hidden="true" class="spacer" style=${{ height: `${(from * ROW_PX) / scale}px` }}><td colspan=${columns.length}></td></tr>`}
        ${shown.slice(from, until).map((row, step) => {
          const key = rowKey(row);
          return html`<tr key=${key} data-at=${from + step} aria-rowindex=${from + step + 2}
            class=${`${key === selected ? 'selected' : ''} ${onOpen ? 'opens' : ''} ${rowClass?.(row) ?? ''}`}
            onClick=${onOpen && ((/** @type {Event} */ event) => openUnlessLink(event, () => onOpen(row)))}>
            ${columns.map((column) => html`<td key=${column.id} class=${classOf(column)}>${column.cell(row)}</td>`)}
          </tr>`;
        })}
        ${until < shown.length && html`<tr aria-hidden="true" class="spacer" style=${{ height: `${((shown.length - until) * ROW_PX) / scale}px` }}><td colspan=${columns.length}></td></tr>`}
      </tbody>
    </table>
    ${shown.length === 0 && empty}
  </div>`;
}

/** @param {HTMLElement} box @param {number} at @param {number} scale */
function focusRow(box, at, scale) {
  const top = (at * ROW_PX) / scale;
  if (top < box.scrollTop) box.scrollTop = top;
  else if (top + ROW_PX * 2 > box.scrollTop + box.clientHeight) box.scrollTop = top + ROW_PX * 2 - box.clientHeight;
  requestAnimationFrame(() => requestAnimationFrame(() => {
    const target = box.querySelector(`tr[data-at="${at}"] a, tr[data-at="${at}"] button`);
    if (target instanceof HTMLElement) target.focus({ preventScroll: true });
  }));
}
