/** Colours of the page, read from its style sheet, as the canvas takes them. */

import type { StylesheetJson } from "cytoscape";

const NAMES = ["ground", "raised", "ink", "faint", "line", "link", "edge", "cause", "effect", "caution"] as const;
export type Colours = Record<(typeof NAMES)[number], string>;

export function colours(host: Element): Colours {
  const style = getComputedStyle(host);
  return Object.fromEntries(NAMES.map((name) => [name, style.getPropertyValue(`--${name}`).trim() || "#888"])) as Colours;
}

export const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';
export const FONT_SIZE = 13;

/** Arrows that are sure are solid, others are dashed: width would be read as the strength of an effect. */
export function sheet(c: Colours): StylesheetJson {
  return [
    {
      selector: "node",
      style: {
        shape: "round-rectangle",
        width: "data(width)",
        height: "data(height)",
        "background-color": c.raised,
        "border-color": c.faint,
        "border-width": 1,
        label: "data(label)",
        color: c.ink,
        "font-family": FONT,
        "font-size": FONT_SIZE,
        "text-valign": "center",
        "text-halign": "center",
        "text-wrap": "wrap",
        "text-max-width": "400px",
        "min-zoomed-font-size": 5,
        "overlay-opacity": 0,
      },
    },
    {
      selector: "edge",
      style: {
        width: 1.6,
        "line-color": c.edge,
        "target-arrow-color": c.edge,
        "source-arrow-color": c.edge,
        "target-arrow-shape": "triangle",
        "arrow-scale": 1,
        "curve-style": "straight",
        "line-style": "dashed",
        "line-dash-pattern": [6, 4],
        "overlay-opacity": 0,
        "overlay-padding": 6,
        "font-family": FONT,
        "font-size": 11,
        color: c.ink,
        "text-wrap": "wrap",
        "text-background-color": c.ground,
        "text-background-opacity": 0.85,
        "text-background-padding": "2px",
        "min-zoomed-font-size": 7,
      },
    },
    {
      selector: "edge.bent",
      style: {
        "curve-style": "round-segments",
        "segment-weights": "data(weights)" as unknown as number[],
        "segment-distances": "data(distances)" as unknown as number[],
        "segment-radii": [14],
        "edge-distances": "node-position",
      },
    },
    { selector: "edge.beside", style: { "curve-style": "bezier", "control-point-step-size": 60 } },
    { selector: "edge.bidirected", style: { "source-arrow-shape": "triangle" } },
    { selector: "edge.sure", style: { "line-style": "solid", width: 2 } },
    { selector: "edge.unsettled", style: { "target-arrow-fill": "hollow", "source-arrow-fill": "hollow" } },
    { selector: "edge.open", style: { "target-arrow-shape": "none", "line-color": c.faint } },
    { selector: "edge.doubted", style: { "line-color": c.caution, "target-arrow-color": c.caution } },
    { selector: "edge.labelled", style: { label: "data(percent)" } },
    {
      selector: "node.dot",
      style: {
        shape: "ellipse",
        "background-color": c.edge,
        "border-width": 0,
        "text-valign": "bottom",
        "text-margin-y": 3,
        "min-zoomed-font-size": 9,
        "text-background-color": c.ground,
        "text-background-opacity": 0.8,
      },
    },
    { selector: "node.dot.named, node.dot.chosen", style: { "font-size": "data(font)", "min-zoomed-font-size": 5, "z-index": 10 } },
    { selector: "node.target", style: { "border-width": 3, "border-color": c.effect } },
    { selector: ".dim", style: { opacity: 0.22 } },
    { selector: "edge.cause", style: { "line-color": c.cause, "target-arrow-color": c.cause, width: 2.6 } },
    { selector: "edge.effect", style: { "line-color": c.effect, "target-arrow-color": c.effect, width: 2.6 } },
    { selector: "edge.open.cause, edge.open.effect", style: { "line-color": c.faint } },
    { selector: "edge.bidirected.cause, edge.bidirected.effect", style: { "line-color": c.edge, "target-arrow-color": c.edge } },
    {
      selector: "node.chosen",
      style: { "border-width": 3, "border-color": c.link, "background-color": c.ground, "font-weight": "bold" },
    },
    { selector: "edge.chosen", style: { width: 4, label: "data(percent)" } },
  ] as unknown as StylesheetJson;
}

const BREAKS = /(?<=[\s_.\-/:])|(?<=[a-z])(?=[A-Z])/;
const LINE = 17;

/** A name on at most two lines, shortened in the middle where it does not fit: endings tell columns apart. */
export function wrapped(name: string): string {
  const clean = [...name].filter((letter) => letter >= " ").join("");
  if (clean.length <= LINE) return clean;
  let first = "";
  for (const piece of clean.split(BREAKS)) {
    if ((first + piece).length > LINE) break;
    first += piece;
  }
  if (!first) first = clean.slice(0, LINE);
  let rest = clean.slice(first.length);
  if (rest.length > LINE) rest = `${rest.slice(0, 7)}…${rest.slice(-8)}`;
  return `${first}\n${rest}`;
}

let pen: CanvasRenderingContext2D | null = null;

/** How much room a wrapped name takes. */
export function measured(label: string): { width: number; height: number } {
  pen ??= document.createElement("canvas").getContext("2d");
  const lines = label.split("\n");
  if (pen) pen.font = `bold ${FONT_SIZE}px ${FONT}`;
  const width = Math.max(...lines.map((line) => (pen ? pen.measureText(line).width : line.length * 8)));
  return { width: Math.max(Math.ceil(width) + 18, 40), height: 14 + 16 * lines.length };
}
