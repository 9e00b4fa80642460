/** A causal graph to look at: a picture to drag and zoom, and beside it the same as lists that every keyboard reads. */

import cytoscape from "cytoscape";
import type { Core, EdgeSingular, NodeSingular } from "cytoscape";
import { fill, h, percent } from "../dom";
import { GraphIndex, MOST_EDGES, NEIGHBOURS, around, everything, onItself, sideBySide, strength } from "./data";
import type { GraphData, Part, ShownEdge } from "./data";
import { LARGEST_FIT, layered, relative, scale } from "./layout";
import type { Layout, Size } from "./layout";
import { FONT_SIZE, colours, measured, sheet, wrapped } from "./style";

export interface GraphOptions {
  /** The least probability that is shown at first. */
  threshold?: number;
  /** The column that the question is about; it is marked, and in the middle where not all can be shown. */
  target?: string;
  onThreshold?: (threshold: number) => void;
  /** A column was chosen, or none any more. */
  onNode?: (id: string | null) => void;
  onEdge?: (edge: ShownEdge) => void;
}

/** Beyond these a picture of everything is no longer read: it opens around one column. */
const READABLE = { nodes: 45, edges: 110, lines: 3 };
const MOST_ALONE = 45;
/** Pixels of letters that can still be read. */
const LEAST_LETTERS = 8.5;
/** Lines with their percentage written on them. */
const MOST_LABELLED = 45;
const MOST_LISTED = 300;
/** Room that the head of an arrow and some of its line need beside a percentage. */
const HEAD = 14;
const ZOOM = { least: 0.05, most: 3 };
const SURE = 0.9;
/** A hidden cause that is less probable is not named beside an arrow. */
const SHOWN_HIDDEN = 0.1;
/** With more columns all of them are drawn as dots, and only those with most lines have their names written. */
const MOST_BOXES = 80;
const DOT = { size: { width: 18, height: 18 }, named: 14, font: 11 };
/** What the graph library would put into the page as a style of its own, which a strict policy refuses. */
const LIBRARY_STYLE = "__________cytoscape_stylesheet";

let views = 0;

export class GraphView {
  threshold: number;
  chosen: string | null = null;
  private readonly index: GraphIndex;
  private readonly cy: Core;
  private readonly prefix = `graph-${++views}`;
  private readonly slider: HTMLInputElement;
  private readonly stage: HTMLElement;
  private readonly said: HTMLElement;
  private readonly list: HTMLElement;
  private readonly search: HTMLInputElement;
  private readonly scope: HTMLSelectElement;
  private readonly output: HTMLElement;
  private readonly dark = matchMedia("(prefers-color-scheme: dark)");
  private readonly resized: ResizeObserver;
  private edges: ShownEdge[] = [];
  private part: Part = { nodes: new Set(), edges: [], folded: { causes: 0, effects: 0 } };
  private chosenEdge: string | null = null;
  private redraw = 0;

  constructor(
    readonly host: HTMLElement,
    readonly data: GraphData,
    private readonly options: GraphOptions = {},
  ) {
    this.index = new GraphIndex(data);
    this.threshold = options.threshold ?? 0.5;
    if (!document.getElementById(LIBRARY_STYLE)) document.head.append(h("meta", { id: LIBRARY_STYLE }));
    const names = `${this.prefix}-names`;
    this.search = h("input", {
      type: "search",
      list: names,
      placeholder: "Find a column",
      "aria-label": "Find a column",
      onchange: () => this.find(),
      onkeydown: (event: KeyboardEvent) => event.key === "Enter" && this.find(),
    });
    this.slider = h("input", {
      type: "range",
      id: `${this.prefix}-threshold`,
      class: "gv-threshold",
      min: 5,
      max: 99,
      step: 1,
      value: Math.round(100 * this.threshold),
      oninput: () => this.setThreshold(Number(this.slider.value) / 100),
    });
    this.output = h("output", { for: this.slider.id });
    this.scope = h(
      "select",
      { "aria-label": "How much to show", onchange: () => this.draw() },
      h("option", { value: "all" }, "All columns"),
      h("option", { value: "1" }, "Around one column"),
      h("option", { value: "2" }, "Two steps around it"),
    );
    this.stage = h("div", {
      class: "gv-stage",
      tabindex: 0,
      role: "img",
      "aria-label": "The graph as a picture. Arrow keys move it, plus and minus zoom, 0 shows all of it.",
      onkeydown: (event: KeyboardEvent) => this.key(event),
    });
    this.said = h("p", { class: "gv-said", role: "status" });
    this.list = h("div", { class: "gv-list" });
    host.classList.add("gv");
    fill(
      host,
      h(
        "div",
        { class: "gv-bar" },
        h("label", { class: "gv-slider", for: this.slider.id }, "At least ", this.output, this.slider),
        this.search,
        h(
          "datalist",
          { id: names },
          data.nodes.map((node) => h("option", { value: node.label })),
        ),
        this.scope,
        h(
          "span",
          { class: "gv-buttons" },
          this.button("−", "Zoom out", () => this.zoom(1 / 1.3)),
          this.button("+", "Zoom in", () => this.zoom(1.3)),
          this.button("⤢", "Show all of it", () => this.fit()),
        ),
      ),
      this.said,
      h("div", { class: "gv-both" }, h("div", { class: "gv-picture" }, this.stage, legend(this.knowsHidden())), this.list),
    );
    this.cy = cytoscape({
      container: this.stage,
      style: sheet(colours(host)),
      minZoom: ZOOM.least,
      maxZoom: ZOOM.most,
      boxSelectionEnabled: false,
      autounselectify: true,
    });
    this.cy.on("tap", "node", (event) => this.choose((event.target as NodeSingular).id()));
    this.cy.on("tap", "edge", (event) => this.chooseEdge((event.target as EdgeSingular).id()));
    this.cy.on("tap", (event) => event.target === this.cy && this.choose(null));
    this.dark.addEventListener("change", this.recolour);
    this.resized = new ResizeObserver(() => {
      cancelAnimationFrame(this.redraw);
      this.redraw = requestAnimationFrame(() => this.draw());
    });
    this.edges = this.index.shown(this.threshold);
    if (!this.isReadable()) this.scope.value = "1";
    this.show();
    if (this.scope.value === "all" && this.cy.zoom() * FONT_SIZE < LEAST_LETTERS) {
      // On a phone already fewer columns are too small to be read.
      this.scope.value = "1";
      this.draw();
    }
    this.resized.observe(this.stage);
  }

  /** Show what is at least so probable. */
  setThreshold(threshold: number): void {
    this.threshold = threshold;
    this.slider.value = String(Math.round(100 * threshold));
    this.show();
    this.options.onThreshold?.(threshold);
  }

  /** Look at one column: its causes and effects come forward; null looks at all of them again. */
  choose(id: string | null): void {
    this.chosen = id !== null && this.index.nodes.has(id) ? id : null;
    this.chosenEdge = null;
    if (this.chosen !== null) this.search.value = this.index.label(this.chosen);
    if (this.scope.value !== "all" || (this.chosen !== null && !this.part.nodes.has(this.chosen))) this.draw();
    this.mark();
    this.tell();
    this.options.onNode?.(this.chosen);
  }

  chooseEdge(id: string): void {
    const edge = this.edges.find((one) => one.id === id);
    if (!edge) return;
    this.chosenEdge = id;
    this.mark();
    this.options.onEdge?.(edge);
  }

  /** Where a column stands in the picture, in pixels from its corner; null where it is not drawn. */
  place(id: string): [number, number] | null {
    const node = this.cy.getElementById(id);
    if (node.empty()) return null;
    const { x, y } = node.renderedPosition();
    return [x, y];
  }

  destroy(): void {
    this.resized.disconnect();
    this.dark.removeEventListener("change", this.recolour);
    this.cy.destroy();
    fill(this.host);
  }

  private readonly recolour = (): void => {
    this.cy.style(sheet(colours(this.host)));
  };

  private isReadable(): boolean {
    const lines = Math.min(READABLE.edges, READABLE.lines * this.data.nodes.length + 10);
    return this.data.nodes.length <= READABLE.nodes && this.edges.length <= lines;
  }

  private knowsHidden(): boolean {
    return this.data.edges.some((edge) => edge.hidden);
  }

  private find(): void {
    const text = this.search.value.trim().toLowerCase();
    if (!text) return this.choose(null);
    const exact = this.data.nodes.find((node) => node.label.toLowerCase() === text);
    const found = exact ?? this.data.nodes.find((node) => node.label.toLowerCase().includes(text));
    if (found) this.choose(found.id);
    else this.said.textContent = `No column has a name with "${this.search.value.trim()}" in it.`;
  }

  private button(text: string, title: string, onclick: () => void): HTMLButtonElement {
    return h("button", { type: "button", title, "aria-label": title, onclick }, text);
  }

  private show(): void {
    this.edges = this.index.shown(this.threshold);
    const shown = percent(this.threshold);
    this.output.textContent = shown;
    this.slider.setAttribute("aria-valuetext", `${shown} probable`);
    this.draw();
    this.tell();
  }

  /** Which column is in the middle where only a part is shown: the chosen one, the target, the one with most lines. */
  private middle(): string {
    if (this.chosen !== null) return this.chosen;
    if (this.options.target && this.index.nodes.has(this.options.target)) return this.options.target;
    return byLines(this.edges)[0] ?? this.data.nodes[0]?.id ?? "";
  }

  private draw(): void {
    if (!this.data.nodes.length) return;
    const stage = { width: this.stage.clientWidth || 600, height: this.stage.clientHeight || 400 };
    const all = this.scope.value === "all";
    const drawn = this.edges.filter((edge) => !onItself(edge));
    const parts = all
      ? [everything(this.data, drawn, this.data.nodes.length > MOST_BOXES ? 0 : MOST_ALONE)]
      : NEIGHBOURS.map((most) => around(drawn, this.middle(), Number(this.scope.value), most));
    let laid = this.laid(parts[0]!, stage);
    for (const part of parts.slice(1)) if (FONT_SIZE * scale(laid.layout, stage) < LEAST_LETTERS) laid = this.laid(part, stage);
    this.part = laid.part;
    const { labels, sizes, dots, layout } = laid;
    // Dots and their names keep a size on the screen, however large the map is.
    const pixel = Math.max(layout.width / stage.width, layout.height / stage.height, 1);
    const dot = { width: 7 * pixel, height: 7 * pixel, font: DOT.font * pixel };
    const named = dots ? apart(byLines(this.part.edges), labels, layout, pixel) : new Set<string>();
    const labelled = this.part.edges.length <= MOST_LABELLED;
    const beside = sideBySide(this.part.edges);
    this.cy.batch(() => {
      this.cy.elements().remove();
      this.cy.add(
        [...this.part.nodes].map((id) => ({
          group: "nodes" as const,
          data: { id, label: labels.get(id)!, ...(dots ? dot : sizes.get(id)!) },
          position: { ...layout.places.get(id)! },
          classes: [id === this.options.target && "target", dots && "dot", named.has(id) && "named"]
            .filter(Boolean)
            .join(" "),
        })),
      );
      this.cy.add(
        this.part.edges.map((edge) => {
          const bends = beside.has(edge.id) ? undefined : layout.bends.get(edge.id);
          const ends = [layout.places.get(edge.source)!, layout.places.get(edge.target)!] as const;
          const classes = [bends && "bent", beside.has(edge.id) && "beside", edge.open && "open", edge.unsettled && "unsettled", edge.bidirected && "bidirected", edge.doubted && "doubted", labelled && "labelled"];
          if (strength(edge) >= SURE && !edge.open) classes.push("sure");
          return {
            group: "edges" as const,
            data: {
              id: edge.id,
              source: edge.source,
              target: edge.target,
              percent: [percent(strength(edge)), edge.when].filter(Boolean).join("\n"),
              ...(bends ? relative(bends, ...ends) : {}),
            },
            classes: classes.filter(Boolean).join(" "),
          };
        }),
      );
    });
    this.cy.resize();
    this.unclutter();
    this.fit();
    this.mark();
    this.summarise(all);
  }

  private laid(part: Part, stage: Size): { part: Part; labels: Map<string, string>; sizes: Map<string, Size>; dots: boolean; layout: Layout } {
    const labels = new Map([...part.nodes].map((id) => [id, wrapped(this.index.label(id))]));
    const dots = labels.size > MOST_BOXES;
    const sizes = new Map([...labels].map(([id, label]) => [id, dots ? DOT.size : measured(label)]));
    return { part, labels, sizes, dots, layout: layered(part, sizes, stage) };
  }

  /** Percentages that would lie on a name, on a surer percentage or on a whole arrow are left out; the list has them all. */
  private unclutter(): void {
    const labelled = this.cy.edges(".labelled");
    labelled.boundingBox({}); // so that every label has its place
    const taken = this.cy.nodes().map((node) => node.boundingBox({ includeLabels: false, includeOverlays: false }));
    labelled.forEach((edge) => {
      const own = edge.boundingBox({ includeEdges: false, includeNodes: false, includeOverlays: false });
      const inside = 3; // around a label there is some air
      const overlaps = taken.some(
        (other) =>
          own.x1 + inside < other.x2 && other.x1 < own.x2 - inside && own.y1 + inside < other.y2 && other.y1 < own.y2 - inside,
      );
      const [from, to] = [edge.sourceEndpoint(), edge.targetEndpoint()];
      const hidesArrow = Math.abs(to.x - from.x) < own.w + HEAD && Math.abs(to.y - from.y) < own.h + HEAD;
      if (overlaps || hidesArrow) edge.removeClass("labelled");
      else taken.push(own);
    });
  }

  /** Numbers of what is shown, in words; programs that test the page read them too. */
  private summarise(all: boolean): void {
    const [open, hidden] = [this.part.edges.filter((edge) => edge.open).length, this.part.edges.filter((edge) => edge.bidirected).length];
    const arrows = this.part.edges.length - open - hidden;
    this.stage.dataset.nodes = String(this.part.nodes.size);
    this.stage.dataset.arrows = String(arrows);
    const shown = percent(this.threshold);
    const lines = `${count(arrows, "arrow")} of at least ${shown}`;
    const parts = [all ? `${lines} between ${this.data.nodes.length} columns.` : `${lines} around ${this.index.label(this.middle())}, of ${this.edges.filter((edge) => !edge.open && !edge.bidirected && !onItself(edge)).length} in all.`];
    if (hidden) parts.push(`${count(hidden, "line")} with two heads: a hidden cause of both is likelier.`);
    if (open) parts.push(`${count(open, "line")} without a head: connected, ${this.knowsHidden() ? "how is open" : "direction open"}.`);
    const past = new Set(this.edges.filter(onItself).map((edge) => edge.source)).size;
    if (past) parts.push(`${count(past, "column")} ${past === 1 ? "depends on its" : "depend on their"} own past: see the list.`);
    const alone = this.data.nodes.length - this.part.nodes.size;
    if (all && alone) parts.push(`${count(alone, "column")} without any ${alone === 1 ? "is" : "are"} not drawn.`);
    if (all && this.edges.length > MOST_EDGES) parts.push(`Only the ${MOST_EDGES} surest lines are drawn.`);
    const { causes, effects } = this.part.folded;
    if (causes + effects) parts.push(`${causes + effects} more neighbours are in the list only.`);
    this.said.textContent = parts.join(" ");
  }

  private fit(): void {
    this.cy.fit(undefined, 18);
    if (this.cy.zoom() > LARGEST_FIT) {
      this.cy.zoom(LARGEST_FIT);
      this.cy.center();
    }
  }

  private zoom(factor: number): void {
    const at = { x: this.cy.width() / 2, y: this.cy.height() / 2 };
    this.cy.zoom({ level: this.cy.zoom() * factor, renderedPosition: at });
  }

  private key(event: KeyboardEvent): void {
    const step = 60;
    const moves: Record<string, () => void> = {
      ArrowLeft: () => this.cy.panBy({ x: step, y: 0 }),
      ArrowRight: () => this.cy.panBy({ x: -step, y: 0 }),
      ArrowUp: () => this.cy.panBy({ x: 0, y: step }),
      ArrowDown: () => this.cy.panBy({ x: 0, y: -step }),
      "+": () => this.zoom(1.3),
      "-": () => this.zoom(1 / 1.3),
      "0": () => this.fit(),
      Escape: () => this.choose(null),
    };
    const move = moves[event.key];
    if (!move) return;
    event.preventDefault();
    move();
  }

  /** Colours of what is chosen; everything else steps back. */
  private mark(): void {
    this.cy.batch(() => {
      this.cy.elements().removeClass("chosen dim cause effect");
      if (this.chosenEdge !== null) this.cy.getElementById(this.chosenEdge).addClass("chosen");
      if (this.chosen === null) return;
      const node = this.cy.getElementById(this.chosen);
      if (node.empty()) return;
      this.cy.elements().difference(node.closedNeighborhood()).addClass("dim");
      node.addClass("chosen");
      node.incomers("edge").addClass("cause");
      node.outgoers("edge").addClass("effect");
    });
  }

  /** The list beside the picture: all lines, or the causes and effects of the column that is chosen. */
  private tell(): void {
    const item = (edge: ShownEdge): HTMLElement =>
      h(
        "li",
        {},
        h(
          "button",
          { type: "button", class: "gv-edge", onclick: () => this.chooseEdge(edge.id) },
          h("bdi", {}, this.index.label(edge.source)),
          h("span", { class: "gv-arrow" }, edge.open ? " — " : edge.bidirected ? " ↔ " : " → "),
          h("bdi", {}, this.index.label(edge.target)),
          " ",
          h("strong", {}, percent(strength(edge))),
          edge.when && h("span", { class: "gv-known" }, ` ${edge.when}`),
          edge.bidirected && h("span", { class: "gv-known" }, ` hidden cause, or an arrow ${percent(edge.probability + edge.opposite)}`),
          edge.unsettled && !edge.bidirected && edge.opposite >= 0.01 && h("span", { class: "gv-known" }, ` or back ${percent(edge.opposite)}`),
          !edge.bidirected && edge.hidden >= SHOWN_HIDDEN && h("span", { class: "gv-known" }, ` or a hidden cause ${percent(edge.hidden)}`),
          edge.doubted && h("span", { class: "gv-doubt" }, " in doubt"),
          edge.known && h("span", { class: "gv-known" }, " as you said"),
        ),
      );
    const section = (title: string, edges: ShownEdge[], none: string): HTMLElement[] => [
      h("h3", {}, `${title} (${edges.length})`),
      edges.length ? h("ul", {}, edges.slice(0, MOST_LISTED).map(item)) : h("p", { class: "gv-none" }, none),
      ...(edges.length > MOST_LISTED ? [h("p", {}, `and ${edges.length - MOST_LISTED} more.`)] : []),
    ];
    if (this.chosen === null) {
      const shown = percent(this.threshold);
      fill(this.list, ...section("Arrows and lines", this.edges, `No arrow has a probability of ${shown} or more.`));
      return;
    }
    const id = this.chosen;
    const label = this.index.label(id);
    const arrows = this.edges.filter((edge) => !edge.open && !edge.bidirected && !onItself(edge));
    const past = this.edges.filter((edge) => onItself(edge) && edge.source === id);
    const touching = (edge: ShownEdge): boolean => edge.source === id || edge.target === id;
    fill(
      this.list,
      h(
        "p",
        { class: "gv-chosen" },
        h("strong", {}, h("bdi", {}, label)),
        h("button", { type: "button", onclick: () => this.choose(null) }, "Back to all"),
      ),
      ...section("Causes", arrows.filter((edge) => edge.target === id), "None is sure enough."),
      ...section("Effects", arrows.filter((edge) => edge.source === id), "None is sure enough."),
      ...(past.length ? section("Its own past", past, "") : []),
      ...(this.knowsHidden() ? section("A hidden cause of both", this.edges.filter((edge) => edge.bidirected && touching(edge)), "None is sure enough.") : []),
      ...section(this.knowsHidden() ? "Connected, how is open" : "Connected, direction open", this.edges.filter((edge) => edge.open && touching(edge)), "None."),
    );
  }
}

/** Columns by how many lines they are expected to have, the most first. */
function byLines(edges: ShownEdge[]): string[] {
  const degrees = new Map<string, number>();
  for (const edge of edges)
    for (const id of [edge.source, edge.target]) degrees.set(id, (degrees.get(id) ?? 0) + strength(edge));
  return [...degrees].sort((a, b) => b[1] - a[1]).map(([id]) => id);
}

/** The first of these columns whose names, written below their dots, do not lie on each other. */
function apart(ids: string[], labels: Map<string, string>, layout: Layout, pixel: number): Set<string> {
  const taken: { id: string; x: number; y: number; width: number; height: number }[] = [];
  for (const id of ids) {
    if (taken.length === DOT.named) break;
    const { x, y } = layout.places.get(id)!;
    const room = measured(labels.get(id)!);
    const own = { id, x, y, width: room.width * pixel, height: room.height * pixel };
    if (taken.every((other) => Math.abs(x - other.x) > (own.width + other.width) / 2 || Math.abs(y - other.y) > (own.height + other.height) / 2)) taken.push(own);
  }
  return new Set(taken.map((one) => one.id));
}

function count(number: number, word: string): string {
  return `${number} ${word}${number === 1 ? "" : "s"}`;
}

function legend(hidden: boolean): HTMLElement {
  return h(
    "p",
    { class: "gv-legend" },
    h("span", { class: "gv-key sure" }, "90 % or more"),
    h("span", { class: "gv-key less" }, "less"),
    h("span", { class: "gv-key open" }, hidden ? "how is open (hollow heads: likely)" : "direction open (hollow head: likely)"),
    hidden && h("span", { class: "gv-key two" }, "hidden cause of both"),
    h("span", { class: "gv-key doubted" }, "in doubt"),
  );
}
