/** Two runs side by side: which arrows became surer. */

import { fill, h, percent } from "../dom";
import { get, runAddress } from "./api";
import type { Comparison } from "./api";
import { field, load, option, problem } from "./parts";
import { runNames } from "./run";

export function compare(place: HTMLElement, first?: string, second?: string): void {
  fill(place, h("h1", {}, "Compare two runs"));
  const body = h("div", {});
  place.append(body);
  void load(body, "Looking for runs", runNames(), (names) => {
    if (names.length < 2) {
      body.append(h("p", {}, "There must be two finished runs to compare."));
      return;
    }
    const one = h("select", { id: "compare-one" }, names.map((name) => option(name, first)));
    const other = h("select", { id: "compare-other" }, names.map((name) => option(name, second ?? names.find((candidate) => candidate !== (first ?? names[0])))));
    const found = h("div", { "aria-live": "polite" });
    const ask = (): void => {
      if (one.value === other.value) return fill(found, problem("Choose two different runs."));
      void load(found, "Comparing", get<Comparison>(runAddress(one.value, "compare", other.value)), (answer) => show(found, answer, one.value, other.value));
    };
    body.append(h("form", { class: "inline", onsubmit: (event: Event) => (event.preventDefault(), ask()) }, field("Run", one), field("and", other), h("button", { type: "submit", class: "main", id: "compare-ask" }, "Compare")), found);
    if (first && second) ask();
  });
}

function show(place: HTMLElement, found: Comparison, one: string, other: string): void {
  const only = (names: string[], run: string): HTMLElement | false => names.length > 0 && h("p", {}, `Only in ${run}: ${names.join(", ")}.`);
  fill(
    place,
    h("p", {}, `Graphs of the two differ about at least ${found.pairs_that_differ.toFixed(1)} pairs of columns.`),
    only(found.only_here, one),
    only(found.only_there, other),
    found.edges.length
      ? h(
          "div",
          { class: "scrolled", tabindex: 0, role: "region", "aria-label": "What changed" },
          h(
            "table",
            { id: "comparison" },
            h("caption", {}, "What changed most"),
            h("thead", {}, h("tr", {}, ["Arrow", one, other, "Change"].map((title) => h("th", { scope: "col" }, title)))),
            h("tbody", {}, found.edges.map((edge) => h("tr", {}, h("th", { scope: "row" }, h("bdi", {}, edge.source), " → ", h("bdi", {}, edge.target)), h("td", { class: "number" }, percent(edge.probability)), h("td", { class: "number" }, percent(edge.other)), h("td", { class: "number" }, `${edge.difference > 0 ? "+" : "−"}${Math.round(100 * Math.abs(edge.difference))}`)))),
          ),
        )
      : h("p", {}, "No arrow differs by half a percentage point or more."),
  );
}
