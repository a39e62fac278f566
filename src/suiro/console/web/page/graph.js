/** A topology as a picture: laid out by dagre, drawn as SVG, with what happens at each node. */

import { Graph as Layout, layout } from './vendor/dagre.js';
import { html, useMemo } from './lib.js';
import { plural, rate } from './format.js';
import { href } from './router.js';

const NODE = { width: 210, height: 58 };
const CHARS = 26;
const SMALLEST = 0.75;
/** Of its size is the least to which a wide picture shrinks; then it scrolls. */

/** @typedef {{id: string, name: string, kind: string, sub_topology?: number, topic?: string|null, topics?: string[],
 *   store?: string|null, stores?: string[], records_per_s?: number|null, held_back?: number|null, held_because?: string|null}} GraphNode */

/** @param {string} text */
const cut = (text) => (text.length > CHARS ? `${text.slice(0, CHARS - 1)}…` : text);

/** Of one step, or from one of a chain to the next. @param {{x: number, y: number}[]} points */
function path(points) {
  const [first, ...rest] = points;
  let text = `M${first.x},${first.y}`;
  for (let at = 0; at < rest.length - 1; at += 1) {
    const [point, next] = [rest[at], rest[at + 1]];
    const [x, y] = at === rest.length - 2 ? [next.x, next.y] : [(point.x + next.x) / 2, (point.y + next.y) / 2];
    text += ` Q${point.x},${point.y} ${x},${y}`;
  }
  if (rest.length === 1) text += ` L${rest[0].x},${rest[0].y}`;
  return text;
}

/**
 * @param {{nodes: GraphNode[], edges: {from: string, to: string}[], label: string, selected: string|null,
 *   onSelect: (id: string) => void}} props
 */
export function Graph({ nodes, edges, label, selected, onSelect }) {
  const shape = JSON.stringify([nodes.map(({ id }) => id), edges]);
  const placed = useMemo(() => {
    const graph = new Layout();
    graph.setGraph({ rankdir: 'LR', nodesep: 26, ranksep: 56, marginx: 12, marginy: 12 });
    graph.setDefaultEdgeLabel(() => ({}));
    const known = new Set(nodes.map(({ id }) => id));
    for (const { id } of nodes) graph.setNode(id, { ...NODE });
    for (const { from, to } of edges) if (known.has(from) && known.has(to)) graph.setEdge(from, to);
    layout(graph);
    return {
      size: graph.graph(),
      nodes: new Map(nodes.map(({ id }) => [id, graph.node(id)])),
      edges: graph.edges().map((/** @type {any} */ edge) => ({ key: `${edge.v} ${edge.w}`, points: graph.edge(edge).points })),
    };
  }, [shape]);
  const { width, height } = placed.size;
  return html`<div class="graph" tabindex="0" role="region" aria-label=${label}>
    <svg style=${{ width: '100%', height: 'auto', maxWidth: `${width}px`, minWidth: `${width * SMALLEST}px` }} viewBox=${`0 0 ${width} ${height}`}>
      <defs>
        <marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
          <path d="M0,0.500 L7,4 L0,7.500" class="arrow-head" />
        </marker>
      </defs>
      ${placed.edges.map((/** @type {any} */ edge) => html`<path key=${edge.key} class="edge" d=${path(edge.points)} marker-end="url(#arrow)" />`)}
      ${nodes.map((node) => html`<${Drawn} key=${node.id} node=${node} at=${placed.nodes.get(node.id)}
        selected=${node.id === selected} onSelect=${onSelect} />`)}
    </svg>
  </div>`;
}

/** @param {{node: GraphNode, at: {x: number, y: number}, selected: boolean, onSelect: (id: string) => void}} props */
function Drawn({ node, at, selected, onSelect }) {
  const held = Number(node.held_back ?? 0);
  const store = node.store ?? node.stores?.[0];
  const under = held > 0 ? `${plural(held, 'record')} held back` : store ? `store ${store}` : node.kind;
  const choose = () => onSelect(node.id);
  return html`<g class=${`node ${node.kind} ${held > 0 ? 'held' : ''} ${selected ? 'chosen' : ''}`}
    transform=${`translate(${at.x - NODE.width / 2},${at.y - NODE.height / 2})`}
    role="button" tabindex="0" aria-pressed=${selected} aria-label=${`${node.kind} ${node.name}, ${rate(node.records_per_s)}, ${under}`}
    onClick=${choose}
    onKeyDown=${(/** @type {KeyboardEvent} */ event) => { if (event.key === 'Enter' || event.key === ' ') { event.preventDefault(); choose(); } }}>
    <title>${node.held_because ?? node.name}</title>
    <rect class="node-box" width=${NODE.width} height=${NODE.height} rx="8" />
    <rect class="node-edge" width="4" height=${NODE.height} rx="2" />
    <text x="16" y="23" class="node-name">${cut(node.name)}</text>
    <text x="16" y="42" class="node-under">${cut(under)}</text>
    <text x=${NODE.width - 12} y="42" class="node-rate" text-anchor="end">${node.records_per_s === null || node.records_per_s === undefined ? '' : rate(node.records_per_s)}</text>
  </g>`;
}

/** Topics that a node reads or writes, as links. @param {{node: GraphNode}} props */
export function NodeTopics({ node }) {
  const names = node.topics ?? (node.topic ? [node.topic] : []);
  return names.map((name) => html`<a key=${name} class="mono" href=${href(['topics', name])}>${name}</a>`);
}
