/** Places of nodes and bends of edges: causes before effects, components beside each other. */

import dagre from "@dagrejs/dagre";
import type { Part, ShownEdge } from "./data";

export interface Point {
  x: number;
  y: number;
}

export interface Layout {
  places: Map<string, Point>;
  /** Bends of edges between their ends, by the id of the edge. */
  bends: Map<string, Point[]>;
  width: number;
  height: number;
}

export interface Size {
  width: number;
  height: number;
}

/** Between nodes of a layer, and between layers. */
const GAP = { node: 22, layer: 58, part: 46 };
/** Lines that decide places, for each node: with all lines of a dense graph the layout takes minutes. */
const LINES_A_NODE = 4;
/** With more columns only one direction is tried. */
const MOST_TRIED = 80;
/** By how much layers are moved apart at most. */
const MOST_APART = 240;
/** A small graph is not blown up further than this; what room it leaves goes between its layers. */
export const LARGEST_FIT = 1.25;

/** The layout that is shown largest in a window: from top to bottom, or from left to right. */
export function layered(part: Part, sizes: Map<string, Size>, stage: Size): Layout {
  const wide = stage.width > stage.height;
  const directions = (wide ? (["LR", "TB"] as const) : (["TB", "LR"] as const)).slice(0, part.nodes.size <= MOST_TRIED ? 2 : 1);
  const tried = directions.map((direction) => ({ direction, layout: packed(part, sizes, stage, direction, GAP.layer) }));
  const best = tried.reduce((best, one) => (scale(one.layout, stage) > scale(best.layout, stage) * 1.05 ? one : best));
  // Boxes are dots there, so that nothing but distances is stretched.
  if (part.nodes.size > MOST_TRIED) return stretched(best.layout, stage);
  // Layers as far apart as there is room: lines of a fan then pass between names, and not through them.
  const sideways = best.direction === "LR";
  const places = [...best.layout.places.values()].map((at) => Math.round(sideways ? at.x : at.y));
  const gaps = Math.max(new Set(places).size - 1, 1);
  const free = sideways
    ? stage.width / scale(best.layout, stage) - best.layout.width
    : stage.height / scale(best.layout, stage) - best.layout.height;
  if (free < GAP.layer) return best.layout;
  const wider = packed(part, sizes, stage, best.direction, GAP.layer + Math.min((0.85 * free) / gaps, MOST_APART));
  return scale(wider, stage) > scale(best.layout, stage) * 0.97 ? wider : best.layout;
}

/** The layout with the shape of the window: the shorter side is stretched. */
function stretched(layout: Layout, stage: Size): Layout {
  const ratio = (stage.width / Math.max(stage.height, 1)) * (layout.height / Math.max(layout.width, 1));
  const by = { x: Math.max(ratio, 1), y: Math.max(1 / ratio, 1) };
  const moved = (at: Point): Point => ({ x: at.x * by.x, y: at.y * by.y });
  return {
    places: new Map([...layout.places].map(([id, at]) => [id, moved(at)])),
    bends: new Map([...layout.bends].map(([id, bends]) => [id, bends.map(moved)])),
    width: layout.width * by.x,
    height: layout.height * by.y,
  };
}

/** How large a layout is shown in a window. */
export function scale(layout: Size, stage: Size): number {
  return Math.min(stage.width / Math.max(layout.width, 1), stage.height / Math.max(layout.height, 1), LARGEST_FIT);
}

/** Each component by itself, and all of them on shelves about as wide as the window. */
function packed(part: Part, sizes: Map<string, Size>, stage: Size, direction: "TB" | "LR", gap: number): Layout {
  const parts = components(part).map((one) => oneComponent(one, sizes, direction, gap));
  parts.sort((a, b) => b.height * b.width - a.height * a.width);
  const area = parts.reduce((sum, one) => sum + (one.width + GAP.part) * (one.height + GAP.part), 0);
  const ratio = stage.width / Math.max(stage.height, 1);
  const shelf = Math.max(...parts.map((one) => one.width), Math.sqrt(area * ratio));
  const whole: Layout = { places: new Map(), bends: new Map(), width: 0, height: 0 };
  let [x, y, tallest] = [0, 0, 0];
  for (const one of parts) {
    if (x > 0 && x + one.width > shelf * 1.02) [x, y, tallest] = [0, y + tallest + GAP.part, 0];
    const moved = (at: Point): Point => ({ x: at.x + x, y: at.y + y });
    for (const [id, at] of one.places) whole.places.set(id, moved(at));
    for (const [id, bends] of one.bends) whole.bends.set(id, bends.map(moved));
    x += one.width + GAP.part;
    tallest = Math.max(tallest, one.height);
    whole.width = Math.max(whole.width, x - GAP.part);
    whole.height = Math.max(whole.height, y + tallest);
  }
  return whole;
}

function components(part: Part): Part[] {
  const home = new Map([...part.nodes].map((id) => [id, id]));
  const root = (id: string): string => {
    let at = id;
    while (home.get(at) !== at) at = home.get(at)!;
    home.set(id, at);
    return at;
  };
  for (const edge of part.edges) home.set(root(edge.source), root(edge.target));
  const found = new Map<string, Part>();
  const of = (id: string): Part => {
    const at = root(id);
    if (!found.has(at)) found.set(at, { nodes: new Set(), edges: [], folded: { causes: 0, effects: 0 } });
    return found.get(at)!;
  };
  for (const id of part.nodes) of(id).nodes.add(id);
  for (const edge of part.edges) of(edge.source).edges.push(edge);
  return [...found.values()];
}

function oneComponent(part: Part, sizes: Map<string, Size>, direction: "TB" | "LR", gap: number): Layout {
  const graph = new dagre.graphlib.Graph({ multigraph: false });
  graph.setGraph({ rankdir: direction, nodesep: GAP.node, ranksep: gap, edgesep: 10 });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const id of part.nodes) graph.setNode(id, { ...sizes.get(id)! });
  const laid: ShownEdge[] = part.edges.slice(0, Math.max(LINES_A_NODE * part.nodes.size, 40));
  // Sure arrows first: where there is a cycle, it is the least sure one that is turned round.
  for (const edge of laid) graph.setEdge(edge.source, edge.target, { weight: edge.open ? 1 : 2 });
  dagre.layout(graph);
  const whole = graph.graph();
  const layout: Layout = {
    places: new Map(),
    bends: new Map(),
    width: whole.width ?? 0,
    height: whole.height ?? 0,
  };
  for (const id of part.nodes) {
    const { x, y } = graph.node(id) as unknown as Point;
    layout.places.set(id, { x, y });
  }
  for (const edge of laid) {
    const points = ((graph.edge(edge.source, edge.target) as { points?: Point[] }).points ?? []).slice(1, -1);
    // One point lies between neighbouring layers, where a straight line does as well.
    if (points.length > 1) layout.bends.set(edge.id, points);
  }
  return layout;
}

/** Bends as the graph library takes them: along the line between two nodes (0 to 1), and beside it. */
export function relative(bends: Point[], from: Point, to: Point): { weights: number[]; distances: number[] } {
  const [dx, dy] = [to.x - from.x, to.y - from.y];
  const length = Math.hypot(dx, dy) || 1;
  return {
    weights: bends.map((at) => ((at.x - from.x) * dx + (at.y - from.y) * dy) / length ** 2),
    distances: bends.map((at) => ((at.y - from.y) * dx - (at.x - from.x) * dy) / length),
  };
}
