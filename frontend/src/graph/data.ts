/** What a graph is made of, and which part of it is shown. */

export interface GraphNode {
  /** Unique; what edges name. */
  id: string;
  label: string;
}

export interface GraphEdge {
  source: string;
  target: string;
  probability: number;
  /** A check puts this edge in doubt. */
  doubted?: boolean;
  /** Somebody said that it is there. */
  known?: boolean;
  /** So many steps later it acts; edges of different lags may all be there, in both directions. */
  lag?: number;
  /** The lag in words. */
  when?: string;
  /** How probable it is that a hidden cause joins the two instead; the same in both directions. */
  hidden?: number;
}

export interface GraphData {
  nodes: GraphNode[];
  edges: GraphEdge[];
}

/** An edge as it is drawn: with a head, or without one where the direction is open. */
export interface ShownEdge {
  id: string;
  source: string;
  target: string;
  probability: number;
  /** Of the other direction. */
  opposite: number;
  open: boolean;
  /** Drawn with a head, and yet the other direction is not ruled out. */
  unsettled: boolean;
  doubted: boolean;
  known: boolean;
  lag: number;
  when: string;
  /** How probable it is that a hidden cause joins the two. */
  hidden: number;
  /** Drawn with two heads: a hidden cause is likelier than both arrows. */
  bidirected: boolean;
}

/** From this share of both directions on one of them is settled; the sentences of a report say the same. */
const SETTLED = 0.9;

/** More edges than these are a black field, whatever draws them. */
export const MOST_EDGES = 1500;

/** The edges of a graph by their ends, for quick answers. */
export class GraphIndex {
  readonly nodes: ReadonlyMap<string, GraphNode>;
  private readonly byPair = new Map<string, GraphEdge>();

  constructor(readonly data: GraphData) {
    this.nodes = new Map(data.nodes.map((node) => [node.id, node]));
    for (const edge of data.edges) this.byPair.set(key(edge.source, edge.target, edge.lag), edge);
  }

  label(id: string): string {
    return this.nodes.get(id)?.label ?? id;
  }

  /**
   * One line for each pair: an arrow where its probability reaches the threshold, two heads where that of a hidden cause
   * does, otherwise a line without a head where all of them together do. What acts later has a line for each lag: it
   * has one direction. The surest come first.
   */
  shown(threshold: number): ShownEdge[] {
    const found: ShownEdge[] = [];
    for (const edge of this.data.edges) {
      const { source, target, probability, lag = 0, when = "", hidden = 0 } = edge;
      const back = lag ? undefined : this.byPair.get(key(target, source));
      const opposite = back?.probability ?? 0;
      if (opposite > probability || (back && opposite === probability && source > target)) continue;
      const [likeliest, joined] = [Math.max(probability, hidden), probability + opposite + hidden];
      const open = likeliest < threshold;
      if (open && joined < threshold) continue;
      found.push({
        id: key(source, target, lag),
        source,
        target,
        probability,
        opposite,
        open,
        unsettled: !open && likeliest < SETTLED * joined,
        doubted: Boolean(edge.doubted || back?.doubted),
        known: Boolean(edge.known),
        lag,
        when,
        hidden,
        bidirected: !open && hidden > probability,
      });
    }
    return found.sort((a, b) => strength(b) - strength(a));
  }
}

/** What the threshold is compared with: the arrow or the hidden cause, or all together where none is sure enough. */
export function strength(edge: ShownEdge): number {
  if (edge.open) return edge.probability + edge.opposite + edge.hidden;
  return edge.bidirected ? edge.hidden : edge.probability;
}

/** Whether a column acts on itself later; such lines are listed and not drawn. */
export function onItself(edge: ShownEdge): boolean {
  return edge.source === edge.target;
}

/** Ids of lines that join the same two columns as another line does: they are bowed, so that all can be seen. */
export function sideBySide(edges: ShownEdge[]): Set<string> {
  const byEnds = new Map<string, string[]>();
  for (const { id, source, target } of edges) {
    const ends = source < target ? key(source, target) : key(target, source);
    byEnds.set(ends, [...(byEnds.get(ends) ?? []), id]);
  }
  return new Set([...byEnds.values()].filter((ids) => ids.length > 1).flat());
}

/** Ids of edges; names may hold anything, so the separator alone would not do. */
export function key(source: string, target: string, lag = 0): string {
  return JSON.stringify(lag ? [source, target, lag] : [source, target]);
}

/** A part of a graph: which columns and lines are drawn, and how many neighbours of the middle are folded away. */
export interface Part {
  nodes: Set<string>;
  edges: ShownEdge[];
  folded: { causes: number; effects: number };
}

/** Neighbours of the middle that are drawn, fewer where the window is small; the side panel lists all of them. */
export const NEIGHBOURS = [14, 10, 7, 5];

/** What lies within some steps of one column, the surest neighbours first where there are many. */
export function around(edges: ShownEdge[], middle: string, steps: number, most: number): Part {
  const nodes = new Set([middle]);
  const folded = { causes: 0, effects: 0 };
  let border = [middle];
  for (let step = 0; step < steps; step++) {
    const next: string[] = [];
    for (const edge of edges) {
      const [here, there] = border.includes(edge.source)
        ? [edge.source, edge.target]
        : border.includes(edge.target)
          ? [edge.target, edge.source]
          : ["", ""];
      if (!here || nodes.has(there)) continue;
      if (nodes.size > most * (step + 1)) {
        if (step === 0) folded[edge.target === middle ? "causes" : "effects"] += 1;
        continue;
      }
      nodes.add(there);
      next.push(there);
    }
    border = next;
  }
  return { nodes, edges: edges.filter((edge) => nodes.has(edge.source) && nodes.has(edge.target)), folded };
}

/** Everything; columns without a line are drawn only where there are few. */
export function everything(data: GraphData, edges: ShownEdge[], mostAlone: number): Part {
  const drawn = edges.slice(0, MOST_EDGES);
  const nodes = new Set(drawn.flatMap((edge) => [edge.source, edge.target]));
  const alone = data.nodes.filter((node) => !nodes.has(node.id));
  if (alone.length <= mostAlone) for (const node of alone) nodes.add(node.id);
  return { nodes, edges: drawn, folded: { causes: 0, effects: 0 } };
}
