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
    for (const edge of data.edges) this.byPair.set(key(edge.source, edge.target), edge);
  }

  label(id: string): string {
    return this.nodes.get(id)?.label ?? id;
  }

  probability(source: string, target: string): number {
    return this.byPair.get(key(source, target))?.probability ?? 0;
  }

  /**
   * One line for each pair: an arrow where its probability reaches the threshold, otherwise a line without a head where
   * both directions together do. The surest come first.
   */
  shown(threshold: number): ShownEdge[] {
    const found: ShownEdge[] = [];
    for (const edge of this.data.edges) {
      const { source, target, probability } = edge;
      const opposite = this.probability(target, source);
      if (opposite > probability || (opposite === probability && source > target)) continue;
      const open = probability < threshold;
      if (open && probability + opposite < threshold) continue;
      const back = this.byPair.get(key(target, source));
      found.push({
        id: key(source, target),
        source,
        target,
        probability,
        opposite,
        open,
        unsettled: !open && probability < SETTLED * (probability + opposite),
        doubted: Boolean(edge.doubted || back?.doubted),
        known: Boolean(edge.known),
      });
    }
    return found.sort((a, b) => strength(b) - strength(a));
  }
}

/** What the threshold is compared with: the arrow, or both directions together where none is sure enough. */
export function strength(edge: ShownEdge): number {
  return edge.open ? edge.probability + edge.opposite : edge.probability;
}

/** Ids of edges; names may hold anything, so the separator alone would not do. */
export function key(source: string, target: string): string {
  return JSON.stringify([source, target]);
}

/** A part of a graph: which columns and lines are drawn, and how many neighbours of the middle are folded away. */
export interface Part {
  nodes: Set<string>;
  edges: ShownEdge[];
  folded: { causes: number; effects: number };
}

/** Neighbours of the middle that are drawn; the side panel lists all of them. */
const MOST_NEIGHBOURS = 14;

/** What lies within some steps of one column, the surest neighbours first where there are many. */
export function around(edges: ShownEdge[], middle: string, steps: number): Part {
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
      if (nodes.size > MOST_NEIGHBOURS * (step + 1)) {
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
