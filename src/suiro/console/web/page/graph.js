/** A topology as a picture: laid out by dagre, drawn as SVG, with what happens at each node. */

import { Graph as Layout, layout } from './vendor/dagre.js';
import { html, useMemo } from './lib.js';
import { plural, rate } from './format.js';
import { href } from './router.js';

const HEIGHT = 54;
const NARROWEST = 130;
const CHARS = 26;
const WIDEST = 1_150;
/** A picture that would be wider goes from top to bottom. */
const SMALLEST = 0.85;
/** Of its size is the least to which a wide picture shrinks; then it scrolls. */

/** @typedef {{id: string, name: string, kind: string, sub_topology?: number, topic?: string|null, topics?: string[],
 *   store?: string|null, stores?: string[], records_per_s?: number|null, held_back?: number|null, held_because?: string|null}} GraphNode */

/** @param {string} text */
const cut = (text) => (text.length > CHARS ? `${text.slice(0, CHARS - 1)}…` : text);

/** What is said under a node's name. @param {GraphNode} node */
function under(node) {
  const held = Number(node.held_back ?? 0);
  const store = node.store ?? node.stores?.[0];
  return held > 0 ? `${plural(held, 'record')} held back` : store ? `store ${store}` : node.kind;
}

/** All nodes are as wide as the widest needs, about. @param {GraphNode[]} nodes */
const widthOf = (nodes) => Math.max(NARROWEST, ...nodes.map((node) => Math.max(cut(node.name).length * 7.4 + 30, cut(under(node)).length * 6 + 78)));

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

/** @param {GraphNode[]} nodes @param {{from: string, to: string}[]} edges @param {'LR'|'TB'} rankdir */
function place(nodes, edges, rankdir) {
  const graph = new Layout();
  const size = { width: Math.round(widthOf(nodes)), height: HEIGHT };
  graph.setGraph({ rankdir, nodesep: 24, ranksep: 40, marginx: 12, marginy: 12 });
  graph.setDefaultEdgeLabel(() => ({}));
  const known = new Set(nodes.map(({ id }) => id));
  for (const { id } of nodes) graph.setNode(id, { ...size });
  for (const { from, to } of edges) if (known.has(from) && known.has(to)) graph.setEdge(from, to);
  layout(graph);
  return {
    size: graph.graph(),
    box: size,
    nodes: new Map(nodes.map(({ id }) => [id, graph.node(id)])),
    edges: graph.edges().map((/** @type {any} */ edge) => ({ key: `${edge.v} ${edge.w}`, points: graph.edge(edge).points })),
  };
}

/**
 * @param {{nodes: GraphNode[], edges: {from: string, to: string}[], label: string, selected: string|null,
 *   onSelect: (id: string) => void}} props
 */
export function Graph({ nodes, edges, label, selected, onSelect }) {
  const shape = JSON.stringify([nodes.map(({ id }) => id), edges]);
  const placed = useMemo(() => {
    const across = place(nodes, edges, 'LR');
    return across.size.width <= WIDEST ? across : place(nodes, edges, 'TB');
  }, [shape]);
  const { width, height } = placed.size;
  return html`<div class="graph" tabindex="0" role="region" aria-label=${label}>
    <svg style=${{ width: '100%', height: 'auto', maxWidth: `${width}px`, minWidth: `${width * SMALLEST}px` }} viewBox=${`0 0 ${width} ${height}`}>
      <defs>
        <marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
          <path d="M0,0.500 L7,4 L0,7.500" class="arrow-head" />
        </marker>
        <clipPath id="node-clip"><rect width=${placed.box.width} height=${placed.box.height} rx="8" /></clipPath>
      </defs>
      ${placed.edges.map((/** @type {any} */ edge) => html`<path key=${edge.key} class="edge" d=${path(edge.points)} marker-end="url(#arrow)" />`)}
      ${nodes.map((node) => html`<${Drawn} key=${node.id} node=${node} at=${placed.nodes.get(node.id)}
        selected=${node.id === selected} onSelect=${onSelect} />`)}
    </svg>
  </div>`;
}

/** @param {{node: GraphNode, at: {x: number, y: number, width: number, height: number}, selected: boolean, onSelect: (id: string) => void}} props */
function Drawn({ node, at, selected, onSelect }) {
  const held = Number(node.held_back ?? 0);
  const { width, height } = at;
  const choose = () => onSelect(node.id);
  return html`<g class=${`node ${node.kind} ${held > 0 ? 'held' : ''} ${selected ? 'chosen' : ''}`}
    transform=${`translate(${at.x - width / 2},${at.y - height / 2})`}
    role="button" tabindex="0" aria-pressed=${selected} aria-label=${`${node.kind} ${node.name}, ${rate(node.records_per_s)}, ${under(node)}`}
    onClick=${choose}
    onKeyDown=${(/** @type {KeyboardEvent} */ event) => { if (event.key === 'Enter' || event.key === ' ') { event.preventDefault(); choose(); } }}>
    <title>${node.held_because ?? node.name}</title>
    <rect class="node-box" width=${width} height=${height} rx="8" />
    <rect class="node-edge" width="5" height=${height} clip-path="url(#node-clip)" />
    <text x="15" y="22" class="node-name">${cut(node.name)}</text>
    <text x="15" y="40" class="node-under">${cut(under(node))}</text>
    <text x=${width - 11} y="40" class="node-rate" text-anchor="end">${node.records_per_s === null || node.records_per_s === undefined ? '' : rate(node.records_per_s)}</text>
  </g>`;
}

/** Topics that a node reads or writes, as links. @param {{node: GraphNode}} props */
export function NodeTopics({ node }) {
  const names = node.topics ?? (node.topic ? [node.topic] : []);
  return names.map((name) => html`<a key=${name} class="mono" href=${href(['topics', name])}>${name}</a>`);
}
