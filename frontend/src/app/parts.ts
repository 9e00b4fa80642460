/** Parts that several screens show: messages, tables, small pictures. */

import { fill, h, percent, svg } from "../dom";
import { Refused } from "./api";
import type { Column, Table } from "./api";

/** Show what a promise brings; meanwhile a line that says what is being done, and a sentence where it is refused. */
export async function load<T>(place: HTMLElement, doing: string, promise: Promise<T>, show: (found: T) => void): Promise<void> {
  fill(place, h("p", { class: "busy", role: "status" }, h("span", { class: "spinner", "aria-hidden": "true" }), `${doing} …`));
  try {
    const found = await promise;
    fill(place);
    show(found);
  } catch (error) {
    fill(place, problem(error));
  }
}

/** A sentence about what went wrong. */
export function problem(error: unknown): HTMLElement {
  const lines = error instanceof Refused && error.faults.length > 1 ? error.faults : [error instanceof Error ? error.message : String(error)];
  if (error instanceof Error && !(error instanceof Refused)) console.error(error);
  return h("div", { class: "problem", role: "alert" }, lines.map((line) => h("p", {}, plainNote(line))));
}

export function dataTable(table: Table): HTMLElement {
  return h(
    "div",
    { class: "scrolled", tabindex: 0, role: "region", "aria-label": table.title },
    h(
      "table",
      {},
      h("caption", {}, table.title),
      h("thead", {}, h("tr", {}, table.head.map((name, k) => h("th", { scope: "col", class: table.numeric[k] ? "number" : null }, name)))),
      h(
        "tbody",
        {},
        table.rows.map((row) => h("tr", {}, row.map((cell, k) => h("td", { class: table.numeric[k] ? "number" : null }, h("bdi", {}, cell))))),
      ),
    ),
    table.more > 0 && h("p", {}, `and ${table.more} more.`),
  );
}

/** The cells of a column as bars; the words beside it say the same. */
export function histogram(column: Column): SVGElement {
  const bars = column.bars ?? [];
  const [width, height] = [132, 36];
  const most = Math.max(...bars.map((bar) => bar[1]), 1);
  const step = width / Math.max(bars.length, 1);
  return svg(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, width, height, class: "histogram", role: "img", "aria-label": inWords(column) },
    svg("title", {}, inWords(column)),
    bars.map(([label, count], k) =>
      svg(
        "rect",
        { x: k * step + 0.5, y: height - (height - 2) * (count / most) - 1, width: Math.max(step - 1, 1), height: (height - 2) * (count / most) + 1 },
        svg("title", {}, `${label}: ${count}`),
      ),
    ),
  );
}

export function inWords(column: Column): string {
  if (column.mean !== undefined && column.min !== undefined && column.max !== undefined)
    return `${short(column.min)} to ${short(column.max)}, on average ${short(column.mean)}`;
  const bars = [...(column.bars ?? [])].sort((a, b) => b[1] - a[1]);
  const more = bars.length - 3 + (column.more_labels ?? 0);
  return bars.slice(0, 3).map(([label, count]) => `${label} (${count})`).join(", ") + (more > 0 ? ` and ${more} more` : "");
}

export function short(value: number): string {
  if (value === 0) return "0";
  const size = Math.abs(value);
  return size >= 1e5 || size < 1e-3 ? value.toExponential(2) : String(Number(value.toPrecision(4)));
}

export function duration(seconds: number): string {
  if (seconds < 59.5) return `${Math.max(Math.round(seconds), 1)} s`;
  const minutes = Math.round(seconds / 60);
  return minutes < 60 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** A share as a bar with its number. */
export function bar(share: number): HTMLElement {
  const picture = svg("svg", { viewBox: "0 0 100 8", width: 100, height: 8, class: "bar", "aria-hidden": "true" });
  picture.append(svg("rect", { width: 100, height: 8, class: "bar-all" }), svg("rect", { width: Math.max(100 * share, 1), height: 8, class: "bar-part" }));
  return h("span", { class: "barred" }, picture as unknown as Node, ` ${percent(share)}`);
}

export function copyable(text: string, name: string): HTMLElement {
  const said = h("span", { role: "status" });
  return h(
    "div",
    { class: "copyable" },
    h("pre", { tabindex: 0, role: "region", "aria-label": name }, h("code", {}, text)),
    h(
      "button",
      {
        type: "button",
        onclick: () =>
          navigator.clipboard.writeText(text).then(
            () => (said.textContent = "Copied."),
            () => (said.textContent = "The browser does not let a page copy: select the lines."),
          ),
      },
      "Copy",
    ),
    said,
  );
}

export function option(value: string, chosen?: string, label = value): HTMLOptionElement {
  return h("option", { value, selected: value === chosen }, label);
}

/** A labelled field. */
export function field(label: string, control: HTMLElement): HTMLElement {
  return h("label", { class: "field" }, h("span", {}, label), control);
}

/** A note or a refusal without the options of Python and the command line, which have no place on a page. */
export function plainNote(note: string): string {
  return note.replace(/ \((?:[a-z_]+=(?:\.\.\.|\w*)(?:, --[a-z-]+(?: -?\d+)?)?|--[a-z-]+)\)/g, "");
}

/** Arrows of one sign: a browser breaks a line inside of "->". */
export function withArrows(sentence: string): string {
  return sentence.replaceAll(" -> ", " → ");
}

/** Left and right lead from one tab to the next, as people expect of tabs. */
export function arrowKeys(tabs: HTMLElement): void {
  tabs.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const all = [...tabs.querySelectorAll<HTMLElement>("[role=tab]")];
    const at = all.indexOf(document.activeElement as HTMLElement);
    if (step === undefined || at < 0) return;
    event.preventDefault();
    const next = all[(at + step + all.length) % all.length]!;
    next.focus();
    next.click();
  });
}
