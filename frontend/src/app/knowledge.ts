/** What is known before the fit: drawn on a canvas, or said in a form that does the same by keyboard. */

import cytoscape from "cytoscape";
import type { Core, NodeSingular, StylesheetJson } from "cytoscape";
import { fill, h } from "../dom";
import { FONT, colours, measured, wrapped } from "../graph/style";
import { keep, post } from "./api";
import type { Knowledge } from "./api";
import { field, option, problem } from "./parts";

export function emptyKnowledge(): Knowledge {
  return { required: [], forbidden: [], tiers: [], within_tiers: true, roots: [], sinks: [] };
}

type Tool = "move" | "required" | "forbidden";
const GHOST = "\u0000pointer";
const BAND = { width: 210, row: 46 };
const MOST_DRAWN = 120;
/** Columns that stand on a ring. */
const MOST_ROUND = 26;
const TOOLS: [Tool, string][] = [
  ["required", "Draw: causes"],
  ["forbidden", "Draw: does not cause"],
  ["move", "Move into tiers"],
];

export class KnowledgeEditor {
  private readonly cy: Core;
  private tool: Tool = "required";
  private pending: string | null = null;
  private dragged = false;
  private readonly stage: HTMLElement;
  private readonly said = h("p", { class: "said", role: "status", id: "known-said" });
  private readonly lists = h("div", {});
  private readonly form = h("div", { class: "known-form" });
  private toml = "";
  private checking = 0;
  private readonly dark = matchMedia("(prefers-color-scheme: dark)");

  constructor(
    place: HTMLElement,
    private readonly names: string[],
    private readonly knowledge: Knowledge,
    private readonly onChange: (knowledge: Knowledge) => void,
  ) {
    this.dropUnknown();
    this.stage = h("div", { class: "known-stage", id: "known-stage", role: "img", "aria-label": "Columns as boxes, with what is known drawn between them. The form below does the same by keyboard." });
    const tools = h(
      "div",
      { class: "tools", role: "radiogroup", "aria-label": "What the pointer does" },
      TOOLS.map(([tool, label]) => {
        const input = h("input", { type: "radio", name: "tool", value: tool, id: `tool-${tool}`, onchange: () => this.use(tool) });
        input.checked = tool === this.tool;
        return h("label", { class: "radio" }, input, label);
      }),
      h("button", { type: "button", id: "add-tier", onclick: () => this.addTier() }, "Add a tier"),
      h("button", { type: "button", onclick: () => this.removeTier() }, "Remove the last tier"),
    );
    const reader = h("input", { type: "file", class: "hidden", tabindex: -1, "aria-hidden": "true", onchange: () => reader.files?.[0] && void this.read(reader.files[0]) });
    fill(
      place,
      h("p", {}, "Say only what you are sure of: every graph will obey it. Drag from one column to another to draw; click a line to remove it. No arrow points from a later tier to an earlier one."),
      tools,
      this.stage,
      this.said,
      this.form,
      this.lists,
      h(
        "p",
        { class: "buttons" },
        h("button", { type: "button", onclick: () => this.save() }, "Save as a knowledge file"),
        h("button", { type: "button", onclick: () => reader.click() }, "Read a knowledge file"),
        reader,
      ),
    );
    // For tests, which cannot ask a canvas where a column is.
    Object.assign(window, { vcudaKnown: { places: (names_: string[]) => names_.map((name) => this.place(name)) } });
    this.cy = cytoscape({ container: this.stage, style: this.sheet(), minZoom: 0.1, maxZoom: 2, boxSelectionEnabled: false, autounselectify: true });
    this.listen();
    this.dark.addEventListener("change", this.recolour);
    this.use(this.tool);
    this.changed(false);
  }

  destroy(): void {
    this.dark.removeEventListener("change", this.recolour);
    this.cy.destroy();
  }

  private place(name: string): [number, number] {
    const { x, y } = this.cy.getElementById(name).renderedPosition();
    return [x, y];
  }

  /** What is known, or null where nothing is. */
  known(): Knowledge | null {
    const { required, forbidden, tiers, roots, sinks } = this.knowledge;
    const filled = tiers.filter((tier) => tier.length);
    if (!(required.length + forbidden.length + filled.length + roots.length + sinks.length)) return null;
    return { ...this.knowledge, tiers: filled };
  }

  private readonly recolour = (): void => {
    this.cy.style(this.sheet());
  };

  private sheet(): StylesheetJson {
    const c = colours(document.documentElement);
    return [
      { selector: "node", style: { shape: "round-rectangle", width: "data(width)", height: "data(height)", "background-color": c.raised, "border-color": c.faint, "border-width": 1, label: "data(label)", color: c.ink, "font-family": FONT, "font-size": 13, "text-valign": "center", "text-wrap": "wrap", "overlay-opacity": 0 } },
      { selector: "node.band", style: { "background-color": c.ground, "border-style": "dashed", "border-color": c.line, "text-valign": "top", "text-margin-y": -4, color: c.faint, "z-index": 0, events: "no" } },
      { selector: "node.pointer", style: { width: 1, height: 1, "background-opacity": 0, "border-width": 0, label: "", events: "no" } },
      { selector: "node.pending", style: { "border-color": c.link, "border-width": 3 } },
      { selector: "edge", style: { width: 2.5, "curve-style": "bezier", "line-color": c.effect, "target-arrow-color": c.effect, "target-arrow-shape": "triangle", "overlay-opacity": 0 } },
      { selector: "edge.forbidden", style: { "line-color": c.cause, "target-arrow-color": c.cause, "target-arrow-shape": "tee", "line-style": "dashed" } },
    ] as unknown as StylesheetJson;
  }

  private use(tool: Tool): void {
    this.tool = tool;
    this.point(null);
    const moving = tool === "move";
    this.cy.autoungrabify(!moving);
    this.cy.userPanningEnabled(moving);
    this.cy.userZoomingEnabled(false);
    this.stage.classList.toggle("drawing", !moving);
  }

  /** Drag from one box to another, or click one and then the other. */
  private listen(): void {
    this.cy.on("tapstart", "node", (event) => {
      if (this.tool === "move") return;
      this.dragged = false;
      const id = (event.target as NodeSingular).id();
      if (this.pending === null) this.point(id);
    });
    this.cy.on("tapdrag", (event) => {
      if (this.pending === null || this.tool === "move") return;
      this.dragged = true;
      this.ghost(event.position);
    });
    this.cy.on("tapend", (event) => {
      if (this.pending === null || this.tool === "move") return;
      const target = this.at(event.position);
      this.cy.getElementById(GHOST).remove();
      if (target && target !== this.pending) {
        this.add(this.tool, this.pending, target);
        this.point(null);
      } else if (!target || this.dragged) this.point(null);
    });
    this.cy.on("tap", "edge", (event) => {
      const { kind, source, target } = event.target.data() as { kind: "required" | "forbidden"; source: string; target: string };
      this.remove(kind, source, target);
    });
    this.cy.on("dragfree", "node", (event) => {
      const node = event.target as NodeSingular;
      const tiers = this.knowledge.tiers.length;
      if (!tiers) return;
      const band = Math.floor(node.position().x / BAND.width);
      this.setTier(node.id(), band >= 1 && band <= tiers ? band - 1 : null);
    });
  }

  private at(position: { x: number; y: number }): string | null {
    const found = this.cy.nodes().filter((node) => {
      const box = node.boundingBox();
      return !node.hasClass("band") && !node.hasClass("pointer") && box.x1 <= position.x && position.x <= box.x2 && box.y1 <= position.y && position.y <= box.y2;
    });
    return found.nonempty() ? found.first().id() : null;
  }

  private ghost(position: { x: number; y: number }): void {
    const there = this.cy.getElementById(GHOST);
    if (there.nonempty()) {
      there.position({ ...position });
      return;
    }
    this.cy.add([
      { group: "nodes", data: { id: GHOST, label: "", width: 1, height: 1 }, position: { ...position }, classes: "pointer" },
      { group: "edges", data: { source: this.pending!, target: GHOST }, classes: this.tool },
    ]);
  }

  private point(id: string | null): void {
    this.cy.nodes().removeClass("pending");
    this.pending = id;
    if (id !== null) this.cy.getElementById(id).addClass("pending");
  }

  private add(kind: "required" | "forbidden", source: string, target: string): void {
    if (source === target || this.knowledge[kind].some(([a, b]) => a === source && b === target)) return;
    this.knowledge[kind].push([source, target]);
    this.changed();
  }

  private remove(kind: "required" | "forbidden", source: string, target: string): void {
    this.knowledge[kind] = this.knowledge[kind].filter(([a, b]) => a !== source || b !== target);
    this.changed();
  }

  private addTier(): void {
    while (this.knowledge.tiers.length < 2) this.knowledge.tiers.push([]);
    if (this.cy.nodes(".band").length) this.knowledge.tiers.push([]);
    const move = document.getElementById("tool-move") as HTMLInputElement;
    move.checked = true;
    this.use("move");
    this.changed();
  }

  private removeTier(): void {
    this.knowledge.tiers.pop();
    if (this.knowledge.tiers.length === 1) this.knowledge.tiers = [];
    this.changed();
  }

  private setTier(name: string, tier: number | null): void {
    this.knowledge.tiers = this.knowledge.tiers.map((members) => members.filter((one) => one !== name));
    if (tier !== null) this.knowledge.tiers[tier]?.push(name);
    this.changed();
  }

  private tierOf(name: string): number {
    return this.knowledge.tiers.findIndex((members) => members.includes(name));
  }

  private dropUnknown(): void {
    const here = new Set(this.names);
    const both = ([a, b]: [string, string]): boolean => here.has(a) && here.has(b);
    const { knowledge } = this;
    knowledge.required = knowledge.required.filter(both);
    knowledge.forbidden = knowledge.forbidden.filter(both);
    knowledge.tiers = knowledge.tiers.map((tier) => tier.filter((name) => here.has(name)));
    knowledge.roots = knowledge.roots.filter((name) => here.has(name));
    knowledge.sinks = knowledge.sinks.filter((name) => here.has(name));
  }

  private changed(tell = true): void {
    this.draw();
    this.showForm();
    this.showLists();
    if (tell) this.onChange(this.knowledge);
    void this.check();
  }

  /** Boxes in bands, one for each tier; the first holds columns without one. */
  private draw(): void {
    const tiers = this.knowledge.tiers.length;
    const shown = this.names.slice(0, MOST_DRAWN);
    const wide = Math.max(Math.floor((this.stage.clientWidth || 700) / BAND.width), 1);
    const rows = new Map<number, number>();
    const round = !tiers && shown.length <= MOST_ROUND;
    const radius = { x: Math.max(wide * BAND.width * 0.42, 180), y: Math.max(150, shown.length * 16) };
    this.cy.batch(() => {
      this.cy.elements().remove();
      const labels = shown.map((name) => wrapped(name));
      shown.forEach((name, k) => {
        const band = tiers ? this.tierOf(name) + 1 : k % wide;
        const row = rows.get(band) ?? 0;
        rows.set(band, row + 1);
        this.cy.add({
          group: "nodes",
          data: { id: name, label: labels[k]!, ...measured(labels[k]!) },
          // On a ring no line crosses a box; columns of a grid are shifted, so that few do.
          position: round
            ? { x: radius.x * Math.sin((2 * Math.PI * k) / shown.length), y: -radius.y * Math.cos((2 * Math.PI * k) / shown.length) }
            : { x: BAND.width * (band + 0.5), y: 40 + BAND.row * 1.35 * row + (tiers ? 0 : 31 * (band % 2)) },
        });
      });
      const height = Math.max(...rows.values(), 3) * BAND.row * 1.35 + 20;
      for (let band = 0; tiers && band <= tiers; band++)
        this.cy.add({
          group: "nodes",
          data: { id: `\u0000band-${band}`, label: band === 0 ? "no tier" : band === 1 ? "1: earliest" : band === tiers ? `${band}: latest` : String(band), width: BAND.width - 10, height },
          position: { x: BAND.width * (band + 0.5), y: height / 2 },
          classes: "band",
          grabbable: false,
        });
      for (const kind of ["required", "forbidden"] as const)
        for (const [source, target] of this.knowledge[kind])
          if (shown.includes(source) && shown.includes(target)) this.cy.add({ group: "edges", data: { source, target, kind }, classes: kind });
    });
    this.stage.dataset.lines = String(this.knowledge.required.length + this.knowledge.forbidden.length);
    this.cy.resize();
    this.cy.fit(undefined, 16);
    if (this.cy.zoom() > 1.1) {
      this.cy.zoom(1.1);
      this.cy.center();
    }
  }

  private showForm(): void {
    const focused = document.activeElement?.id;
    const names = this.names;
    const from = h("select", { id: "known-from" }, names.map((name) => option(name)));
    const to = h("select", { id: "known-to" }, names.map((name, k) => option(name, k === 1 ? name : undefined)));
    const how = h("select", { id: "known-how" }, option("required", "required", "causes"), option("forbidden", undefined, "does not cause"));
    const column = h("select", { id: "known-column", onchange: () => fillPlace() }, names.map((name) => option(name)));
    const place = h("select", { id: "known-place" });
    const fillPlace = (): void => {
      const name = column.value;
      const chosen = this.knowledge.roots.includes(name) ? "root" : this.knowledge.sinks.includes(name) ? "sink" : String(this.tierOf(name));
      const tiers = this.knowledge.tiers.map((_, k) => option(String(k), chosen, `tier ${k + 1}`));
      fill(place, option("-1", chosen, "free"), option("root", chosen, "has no causes"), option("sink", chosen, "has no effects"), ...tiers);
    };
    fillPlace();
    const set = (): void => {
      const [name, value] = [column.value, place.value];
      this.knowledge.roots = this.knowledge.roots.filter((one) => one !== name);
      this.knowledge.sinks = this.knowledge.sinks.filter((one) => one !== name);
      if (value === "root") this.knowledge.roots.push(name);
      if (value === "sink") this.knowledge.sinks.push(name);
      this.setTier(name, /^\d+$/.test(value) ? Number(value) : null);
    };
    fill(
      this.form,
      h("fieldset", {}, h("legend", {}, "Between two columns"), field("Column", from), field("", how), field("Column", to), h("button", { type: "button", id: "known-add", onclick: () => this.add(how.value as "required", from.value, to.value) }, "Add")),
      h("fieldset", {}, h("legend", {}, "About one column"), field("Column", column), field("is", place), h("button", { type: "button", id: "known-set", onclick: set }, "Set")),
    );
    how.setAttribute("aria-label", "What is known");
    if (focused) document.getElementById(focused)?.focus();
  }

  private showLists(): void {
    const { knowledge } = this;
    const items: HTMLElement[] = [];
    const entry = (text: (string | HTMLElement)[], onclick: () => void): HTMLElement => h("li", {}, ...text, h("button", { type: "button", class: "small", onclick }, "Remove"));
    const bdi = (name: string): HTMLElement => h("bdi", {}, name);
    for (const [kind, verb] of [["required", " causes "], ["forbidden", " does not cause "]] as const)
      for (const [a, b] of knowledge[kind]) items.push(entry([bdi(a), verb, bdi(b), " "], () => this.remove(kind, a, b)));
    for (const [field_, words] of [["roots", " has no causes "], ["sinks", " has no effects "]] as const)
      for (const name of knowledge[field_])
        items.push(entry([bdi(name), words], () => ((knowledge[field_] = knowledge[field_].filter((one) => one !== name)), this.changed())));
    knowledge.tiers.forEach((members, k) => members.length && items.push(h("li", {}, `Tier ${k + 1}: `, h("bdi", {}, members.join(", ")))));
    fill(this.lists, h("h3", {}, "What you said"), items.length ? h("ul", { class: "plain", id: "known-list" }, items) : h("p", { class: "faint" }, "Nothing yet; that is fine."));
  }

  private async check(): Promise<void> {
    const mine = ++this.checking;
    const known = this.known();
    if (!known) {
      this.toml = "";
      fill(this.said);
      return;
    }
    try {
      const found = await post<{ sentence: string; toml: string }>("/api/knowledge", { knowledge: known, names: this.names });
      if (mine !== this.checking) return;
      this.toml = found.toml;
      fill(this.said, found.sentence);
    } catch (error) {
      if (mine === this.checking) fill(this.said, problem(error));
    }
  }

  private save(): void {
    if (!this.toml) {
      fill(this.said, "There is nothing to save yet.");
      return;
    }
    keep(new Blob([this.toml], { type: "text/plain" }), "knowledge.toml");
  }

  private async read(file: File): Promise<void> {
    try {
      const found = await post<Knowledge>("/api/knowledge/read", { name: file.name, text: await file.text() });
      Object.assign(this.knowledge, { required: found.required, forbidden: found.forbidden, tiers: found.tiers, within_tiers: found.within_tiers, roots: found.roots, sinks: found.sinks });
      this.dropUnknown();
      this.changed();
    } catch (error) {
      fill(this.said, problem(error));
    }
  }
}
