/** What a row is: a case of its own, a step in time, or a case from one of several places; and whether causes may be hidden. */

import { fill, h } from "../dom";
import type { Column, Question } from "./api";
import { field, option } from "./parts";

export interface Rows {
  kind: "each" | "time" | "places";
  time: string;
  unit: string;
  lags: string;
  season: string;
  trend: string;
  resample: string;
  /** Whether causes may act within one step. */
  within: boolean;
  place: string;
  reference: string;
  changes: string;
  hidden: boolean;
}

export function eachRow(): Rows {
  return { kind: "each", time: "", unit: "", lags: "auto", season: "auto", trend: "auto", resample: "", within: true, place: "", reference: "", changes: "mechanisms", hidden: false };
}

const KINDS: [Rows["kind"], string][] = [
  ["each", "A case of its own: a customer, a patient, a cell"],
  ["time", "A step in time: what happened before may be a cause"],
  ["places", "A case from one of several places: sites, batches, experiments"],
];
const LAGS: [string, string][] = [["auto", "as many as the data support"], ...Array.from({ length: 12 }, (_, k): [string, string] => [String(k + 1), k ? `${k + 1} steps` : "1 step"])];
const SEASONS: [string, string][] = [
  ["auto", "take one out if the columns show it"],
  ["0", "there is none"],
  ["4", "4 steps, such as quarters"],
  ["7", "7 steps, such as days"],
  ["12", "12 steps, such as months"],
  ["24", "24 steps, such as hours"],
  ["52", "52 steps, such as weeks"],
];
const TRENDS: [string, string][] = [
  ["auto", "take one out if a column has it"],
  ["linear", "take a straight line out"],
  ["none", "keep it"],
];
const PERIODS: [string, string][] = [["", "one row"], ...["minute", "hour", "day", "week", "month", "quarter", "year"].map((period): [string, string] => [period, `the mean of each ${period}`])];
const CHANGES: [string, string][] = [
  ["mechanisms", "how a column follows its causes, and its level"],
  ["shifts", "only levels"],
];

/** The same as options of a fit; the server knows what they mean. */
export function rowOptions(rows: Rows): Record<string, unknown> {
  const { kind, time, unit, lags, season, trend, resample, within, place, reference, changes, hidden } = rows;
  if (kind === "time") return { lags: steps(lags), time, unit, season: steps(season), trend, resample, contemporaneous: within };
  if (kind === "places") return place ? { contexts: [place], reference, changes } : {};
  return { hidden };
}

function steps(value: string): number | string {
  return value === "auto" ? value : Number(value);
}

/** What must still be said before a fit. */
export function unsaid(rows: Rows): string {
  return rows.kind === "places" && !rows.place ? "Choose the column that says where a row comes from (under Rows)." : "";
}

/** What a column is for where it is no variable. */
export function role(rows: Rows, name: string): string {
  if (rows.kind === "time" && name === rows.time) return "says when, under Rows";
  if (rows.kind === "time" && name === rows.unit) return "says whose steps they are, under Rows";
  return rows.kind === "places" && name === rows.place ? "says where a row comes from, under Rows" : "";
}

/** Questions that such rows do not answer, and why. */
export function unanswered(rows: Rows): Partial<Record<Question["kind"], string>> {
  if (rows.kind === "time") return { target: "What drives one column is answered where each row is a case of its own; of steps in time ask what one column does to another." };
  if (rows.kind === "each" && rows.hidden) return { pair: "With hidden causes there are no effects to show." };
  return {};
}

/** The form; `onChange` is called when something was chosen, and the form is then filled again. */
export function showRows(form: HTMLElement, rows: Rows, columns: Column[], takenAs: string[], onChange: () => void): void {
  const focused = document.activeElement?.id;
  const change = (then: () => void) => () => {
    then();
    onChange();
  };
  const radio = ([kind, label]: [Rows["kind"], string]): HTMLElement => {
    const input = h("input", { type: "radio", name: "rows", id: `row-is-${kind}`, value: kind, onchange: change(() => (rows.kind = kind)) });
    input.checked = rows.kind === kind;
    return h("label", { class: "radio" }, input, label);
  };
  type Text = "time" | "unit" | "lags" | "season" | "trend" | "resample" | "place" | "changes";
  const select = (name: Text, label: string, choices: [string, string][]): HTMLElement => {
    const control = h("select", { id: `rows-${name}`, onchange: change(() => (rows[name] = control.value)) }, choices.map(([value, words]) => option(value, rows[name], words)));
    return field(label, control);
  };
  const box = (name: "within" | "hidden", label: string, disabled = false): HTMLElement => {
    const control = h("input", { type: "checkbox", id: `rows-${name}-box`, disabled, onchange: change(() => (rows[name] = control.checked)) });
    control.checked = rows[name] && !disabled;
    return h("label", { class: "radio" }, control, label);
  };
  const names = (none: string): [string, string][] => [["", none], ...columns.map(({ name }): [string, string] => [name, name])];
  const reference = h("input", { type: "text", id: "rows-reference", list: "places", value: rows.reference, placeholder: "the one with most rows", onchange: change(() => (rows.reference = reference.value)) });
  const places = (columns.find(({ name }) => name === rows.place)?.bars ?? []).map(([label]) => h("option", { value: label }));
  const more: Record<Rows["kind"], () => HTMLElement[]> = {
    each: () => [],
    time: () => [
      select("time", "Which column says when?", names("none: rows are in their order")),
      select("unit", "Which column says whose steps they are: shop, patient, machine?", names("none: all rows are one series")),
      select("lags", "How many steps back may a cause lie?", LAGS),
      h(
        "details",
        { open: rows.season !== "auto" || rows.trend !== "auto" || Boolean(rows.resample) || !rows.within },
        h("summary", {}, "Season, trend and steps"),
        select("season", "Season", SEASONS),
        select("trend", "Trend", TRENDS),
        select("resample", "One step is", PERIODS),
        box("within", "A cause may act within one step"),
      ),
    ],
    places: () => [
      select("place", "Which column says where a row comes from?", names("choose a column")),
      field("Compare the others with", reference),
      h("datalist", { id: "places" }, places),
      select("changes", "What may differ between places?", CHANGES),
    ],
  };
  fill(
    form,
    h("fieldset", {}, h("legend", {}, "What is a row?"), KINDS.map(radio), h("div", { class: "rows-more" }, more[rows.kind]())),
    h(
      "fieldset",
      {},
      h("legend", {}, "What is not in the table"),
      box("hidden", "Allow for hidden causes", rows.kind !== "each"),
      h("p", { class: "faint" }, rows.kind === "each" ? "Two columns may then share a cause that is not in the table. For up to 15 columns of numbers; effects are not computed." : "Only where each row is a case of its own."),
    ),
    h("div", { id: "rows-said", role: "status" }, takenAs.map((line) => h("p", {}, line))),
  );
  if (focused) document.getElementById(focused)?.focus();
}
