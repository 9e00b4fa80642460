/** A table before a fit: its columns, what a row is, what is known, and the question. */

import { fill, h } from "../dom";
import { KINDS, Refused, get, post } from "./api";
import type { Column, Inspected, Knowledge, Question, State } from "./api";
import { KnowledgeEditor, emptyKnowledge } from "./knowledge";
import { eachRow, role, rowOptions, showRows, unanswered, unsaid } from "./rows";
import type { Rows } from "./rows";
import { arrowKeys, field, histogram, inWords, load, option, plainNote, problem } from "./parts";

interface Draft {
  kinds: Record<string, string>;
  exclude: string[];
  rows: Rows;
  knowledge: Knowledge;
  question: Question;
  minutes: string;
  /** Cells that stand for a missing value, between commas. */
  missing: string;
  /** The sheet of a workbook, or the query to a database. */
  part: string;
}

/** Files that hold several tables, and what the one that is wanted is called. */
const PARTS: [RegExp, "sheet" | "query", string][] = [
  [/\.(xlsx|xlsm|ods)$/i, "sheet", "Sheet (by default the first with a table)"],
  [/\.(sqlite3?|db|duckdb)$/i, "query", "Query in SQL (by default the one table)"],
];

/** With more columns there is a field to find one. */
const MANY = 20;

/** What somebody chose for a table, kept while the tab is open. */
function draftOf(table: string): Draft {
  const kept = sessionStorage.getItem(`draft:${table}`);
  const fresh: Draft = { kinds: {}, exclude: [], rows: eachRow(), knowledge: emptyKnowledge(), question: { kind: "all" }, minutes: "", missing: "", part: "" };
  return kept ? { ...fresh, ...(JSON.parse(kept) as Draft) } : fresh;
}

export function table(place: HTMLElement, name: string): () => void {
  const screen = new TableScreen(place, name);
  void screen.open();
  return () => screen.close();
}

class TableScreen {
  private readonly draft: Draft;
  private universe: Column[] = [];
  private current = new Map<string, Column>();
  private readonly said = h("div", { class: "said" });
  private readonly list = h("div", { class: "columns", id: "columns" });
  private readonly notes = h("div", { class: "notes" });
  private readonly ask = h("form", { class: "card ask", id: "ask", onsubmit: (event: Event) => (event.preventDefault(), void this.start()) });
  private readonly rows = h("form", { id: "rows", class: "rows", onsubmit: (event: Event) => event.preventDefault() });
  private readonly known = h("section", { id: "known", hidden: true });
  private editor: KnowledgeEditor | null = null;
  private tab = "columns";
  private asked = 0;
  private usable = false;

  constructor(
    private readonly place: HTMLElement,
    private readonly name: string,
  ) {
    this.draft = draftOf(name);
  }

  async open(): Promise<void> {
    fill(this.place);
    const tabs = h(
      "div",
      { class: "tabs", role: "tablist", "aria-label": "Before the fit" },
      this.tabButton("columns", "Columns"),
      this.tabButton("rows", "Rows"),
      this.tabButton("known", "What you know"),
    );
    arrowKeys(tabs);
    this.place.append(
      h("h1", {}, h("bdi", {}, this.name)),
      this.said,
      h(
        "div",
        { class: "with-aside" },
        h("div", {}, tabs, h("div", { role: "tabpanel", id: "panel-columns", "aria-labelledby": "tab-columns" }, this.notes, this.reading(), this.list), h("div", { role: "tabpanel", id: "panel-rows", "aria-labelledby": "tab-rows", hidden: true }, this.rows), this.known),
        this.ask,
      ),
    );
    this.known.setAttribute("role", "tabpanel");
    this.known.setAttribute("aria-labelledby", "tab-known");
    await this.inspect(true);
  }

  close(): void {
    this.editor?.destroy();
  }

  private keep(): void {
    sessionStorage.setItem(`draft:${this.name}`, JSON.stringify(this.draft));
  }

  private tabButton(id: string, label: string): HTMLElement {
    return h(
      "button",
      { type: "button", role: "tab", id: `tab-${id}`, "aria-selected": id === this.tab ? "true" : "false", onclick: () => this.show(id) },
      label,
    );
  }

  private show(tab: string): void {
    this.tab = tab;
    for (const button of this.place.querySelectorAll("[role=tab]")) button.setAttribute("aria-selected", button.id === `tab-${tab}` ? "true" : "false");
    document.getElementById("panel-columns")!.hidden = tab !== "columns";
    document.getElementById("panel-rows")!.hidden = tab !== "rows";
    this.known.hidden = tab !== "known";
    if (tab === "known") {
      this.editor?.destroy();
      this.editor = new KnowledgeEditor(this.known, this.taken(), this.draft.knowledge, (knowledge) => {
        this.draft.knowledge = knowledge;
        this.keep();
      });
    }
  }

  private options(): Record<string, unknown> {
    const { kinds, exclude, rows, missing, part } = this.draft;
    const cells = missing.split(",").map((cell) => cell.trim()).filter(Boolean);
    const [, place] = this.parted() ?? [];
    // A column that says when or where is read, whatever was said of it before.
    const variable = (name: string): boolean => !role(rows, name);
    const own = Object.fromEntries(Object.entries(kinds).filter(([name]) => variable(name)));
    return { kinds: own, exclude: exclude.filter(variable), missing_values: cells, ...rowOptions(rows), ...(place && part ? { [place]: part } : {}) };
  }

  private parted(): (typeof PARTS)[number] | undefined {
    return PARTS.find(([ending]) => ending.test(this.name));
  }

  /** What the file cannot say of itself: which cells are missing values, and which of its tables is meant. */
  private reading(): HTMLElement {
    const { draft } = this;
    const text = (id: "missing" | "part", label: string, placeholder: string): HTMLElement => {
      const input = h("input", {
        type: "text",
        id,
        value: draft[id],
        placeholder,
        onchange: () => {
          draft[id] = input.value;
          // Another sheet has other columns.
          if (id === "part") this.universe = [];
          this.changed();
        },
      });
      return field(label, input);
    };
    const part = this.parted();
    return h(
      "details",
      { open: Boolean(draft.missing || draft.part) },
      h("summary", {}, "How the file is read"),
      text("missing", "Cells that mean a missing value, between commas", "-999, unknown"),
      part && text("part", part[2], ""),
    );
  }

  private taken(): string[] {
    return this.universe.map((column) => column.name).filter((name) => this.current.get(name)?.kind);
  }

  private async inspect(first = false): Promise<void> {
    const mine = ++this.asked;
    const body = { table: this.name, options: this.options() };
    let takenAs: string[] = [];
    if (first) fill(this.list, h("p", { class: "busy", role: "status" }, h("span", { class: "spinner", "aria-hidden": "true" }), "Looking at every column …"));
    try {
      const found = await post<Inspected>("/api/columns", body);
      if (mine !== this.asked) return;
      this.usable = true;
      takenAs = found.taken_as;
      fill(this.said);
      this.take(found.columns);
      const rows = `${found.rows.toLocaleString("en")} rows${found.sampled ? " (bars show a sample of them)" : ""}.`;
      const set = found.interventions ? ` The column ${found.interventions} says what an experiment set.` : "";
      fill(
        this.notes,
        h("p", {}, rows + set),
        found.notes.length > 0 && h("details", { open: found.notes.length < 4 }, h("summary", {}, `${found.notes.length} ${found.notes.length === 1 ? "finding" : "findings"}`), h("ul", {}, found.notes.map((note) => h("li", {}, plainNote(note))))),
      );
    } catch (error) {
      if (mine !== this.asked) return;
      this.usable = false;
      fill(this.said, problem(error));
      if (error instanceof Refused && error.columns.length) this.take(error.columns);
      else if (!this.universe.length) fill(this.list);
    }
    this.showColumns();
    this.showRows(takenAs);
    this.showQuestion();
  }

  private showRows(takenAs: string[]): void {
    showRows(this.rows, this.draft.rows, this.universe, takenAs, () => this.rowsChanged());
  }

  private rowsChanged(): void {
    const { draft } = this;
    if (unanswered(draft.rows)[draft.question.kind]) draft.question = { kind: "all" };
    // At once: the server looks at the rows for a while.
    this.showRows([]);
    this.showQuestion();
    this.changed();
  }

  /** Columns that are left out now keep what was seen of them before. */
  private take(columns: Column[]): void {
    this.current = new Map(columns.map((column) => [column.name, column]));
    if (!this.universe.length) {
      // Columns that were left out in an earlier visit are asked about once more.
      this.universe = columns;
      for (const name of this.draft.exclude) if (!this.current.has(name)) this.universe.push({ name, kind: null, why: "left out by you" });
      const { time, unit, place } = this.draft.rows;
      for (const name of new Set([time, unit, place])) if (role(this.draft.rows, name) && !this.current.has(name)) this.universe.push({ name, kind: null, why: "" });
    }
    this.universe = this.universe.map((column) => {
      const now = this.current.get(column.name);
      return now?.bars ? now : column;
    });
  }

  private showColumns(): void {
    const focused = document.activeElement?.id;
    const rows = this.universe.map((column) => ({ column, row: this.row(column) }));
    const find = h("input", {
      type: "search",
      placeholder: "Find a column",
      "aria-label": "Find a column",
      oninput: () => {
        for (const { column, row } of rows) row.hidden = !column.name.toLowerCase().includes(find.value.toLowerCase());
      },
    });
    fill(this.list, rows.length > MANY && h("p", {}, find), h("ul", { class: "plain" }, rows.map(({ row }) => row)));
    if (focused) document.getElementById(focused)?.focus();
  }

  private row(column: Column): HTMLElement {
    const { name } = column;
    const now = this.current.get(name);
    const excluded = this.draft.exclude.includes(name);
    const taken = Boolean(now?.kind);
    const at = this.universe.indexOf(column);
    const purpose = role(this.draft.rows, name);
    const box = h("input", { type: "checkbox", id: `take-${at}`, disabled: Boolean(purpose), onchange: () => this.toggle(name, box.checked) });
    box.checked = taken;
    const found = this.draft.kinds[name] ? null : now?.kind;
    const kind = h(
      "select",
      { id: `kind-${at}`, "aria-label": `Kind of ${name}`, disabled: Boolean(purpose), onchange: () => this.setKind(name, kind.value) },
      h("option", { value: "" }, found ? `${found} (as found)` : excluded || !taken ? "left out" : "as found"),
      KINDS.map((one) => option(one, this.draft.kinds[name])),
    );
    const why = purpose || (excluded ? "left out by you" : (now?.why ?? column.why));
    const rows = (column.bars ?? []).reduce((sum, bar) => sum + bar[1], 0) + (column.missing ?? 0);
    return h(
      "li",
      { class: taken ? "column" : "column out", "data-column": name },
      h("label", { class: "take", for: box.id }, box, h("bdi", {}, name)),
      kind,
      h("div", { class: "cells" }, (column.bars ?? []).length > 0 && (histogram(column) as unknown as Node), h("span", { class: "faint" }, inWords(column))),
      h(
        "div",
        { class: "faint" },
        why,
        (column.missing ?? 0) > 0 && h("span", { class: "missing" }, ` ${column.missing} missing (${Math.round((100 * column.missing!) / Math.max(rows, 1))} %)`),
        now?.code && h("p", {}, h("span", { class: "missing" }, `${now.code} may mean that a value is missing. `), h("button", { type: "button", class: "small", id: `code-${at}`, onclick: () => this.takeAsMissing(now.code!) }, `Take ${now.code} as missing`)),
      ),
    );
  }

  private takeAsMissing(cell: string): void {
    this.draft.missing = [this.draft.missing, cell].filter(Boolean).join(", ");
    (document.getElementById("missing") as HTMLInputElement).value = this.draft.missing;
    this.changed();
  }

  private toggle(name: string, take: boolean): void {
    if (!take) {
      delete this.draft.kinds[name];
      this.draft.exclude.push(name);
    } else if (this.draft.exclude.includes(name)) this.draft.exclude = this.draft.exclude.filter((one) => one !== name);
    // What the rules leave out is taken where somebody says what it is.
    else this.draft.kinds[name] = "label";
    this.changed();
  }

  private setKind(name: string, kind: string): void {
    this.draft.exclude = this.draft.exclude.filter((one) => one !== name);
    if (kind) this.draft.kinds[name] = kind;
    else delete this.draft.kinds[name];
    this.changed();
  }

  private changed(): void {
    this.keep();
    void this.inspect();
  }

  private showQuestion(): void {
    const names = this.taken();
    const { draft } = this;
    const focused = document.activeElement?.id;
    const asked = draft.question;
    const pick = (id: string, label: string, chosen: string | undefined, then: (value: string) => void): HTMLElement => {
      const select = h("select", { id, onchange: () => (then(select.value), this.keep()) }, h("option", { value: "" }, "choose a column"), names.map((name) => option(name, chosen)));
      return field(label, select);
    };
    const closed = unanswered(draft.rows);
    const radio = (kind: Question["kind"], label: string): HTMLElement => {
      const input = h("input", { type: "radio", name: "question", id: `question-${kind}`, value: kind, disabled: Boolean(closed[kind]), onchange: () => set(kind) });
      input.checked = asked.kind === kind;
      return h("label", { class: "radio" }, input, label);
    };
    const set = (kind: Question["kind"]): void => {
      draft.question = kind === "all" ? { kind } : kind === "target" ? { kind, target: "" } : { kind, cause: "", outcome: "" };
      this.keep();
      this.showQuestion();
    };
    const minutes = h("input", { type: "number", id: "minutes", min: 0.1, step: "any", value: draft.minutes, placeholder: "no limit", oninput: () => ((draft.minutes = minutes.value), this.keep()) });
    fill(
      this.ask,
      h("h2", {}, "What do you want to know?"),
      h(
        "fieldset",
        {},
        h("legend", { class: "hidden" }, "Question"),
        radio("all", "Everything: what causes what"),
        radio("target", "What drives one column"),
        asked.kind === "target" && pick("target", "Which one", asked.target, (value) => (asked.target = value)),
        radio("pair", "What one column does to another"),
        asked.kind === "pair" && pick("cause", "If this is changed", asked.cause, (value) => (asked.cause = value)),
        asked.kind === "pair" && pick("outcome", "what happens to", asked.outcome, (value) => (asked.outcome = value)),
      ),
      Object.values(closed).map((line) => h("p", { class: "faint" }, line)),
      field("Minutes at most", minutes),
      this.perhapsMissing(),
      h("button", { type: "submit", class: "main", id: "start", disabled: !this.usable }, "Start"),
      h("p", { class: "faint" }, `${names.length} columns are taken. You can stop at any time and keep what is found.`),
      h("div", { id: "start-said" }),
    );
    if (focused) document.getElementById(focused)?.focus();
  }

  /** That a number may stand for missing values, before the fit is started: it spoils the answer more than all else. */
  private perhapsMissing(): HTMLElement | null {
    const coded = [...this.current.values()].filter((column) => column.code);
    if (!coded.length) return null;
    const [first] = coded;
    const more = coded.length > 1 ? `, and ${coded.length - 1} more like it` : "";
    return h("p", { class: "missing" }, `${first.code} in `, h("bdi", {}, first.name), ` may mean that a value is missing${more}: see the column.`);
  }

  private async start(): Promise<void> {
    const { draft } = this;
    const said = document.getElementById("start-said")!;
    const asked = draft.question;
    const missing = (asked.kind === "target" && !asked.target) || (asked.kind === "pair" && (!asked.cause || !asked.outcome));
    if (unsaid(draft.rows)) return fill(said, problem(unsaid(draft.rows)));
    if (missing) return fill(said, problem("Choose the column that the question is about."));
    if (asked.kind === "pair" && asked.cause === asked.outcome) return fill(said, problem("Choose two different columns."));
    const seconds = draft.minutes ? 60 * Number(draft.minutes) : null;
    const body = { table: this.name, options: { ...this.options(), time_limit: seconds }, knowledge: this.editor?.known() ?? known(draft.knowledge), question: asked };
    await load(said, "Starting", post<{ run: string }>("/api/fits", body), ({ run }) => (location.hash = `#/run/${encodeURIComponent(run)}`));
  }
}

function known(knowledge: Knowledge): Knowledge | null {
  const { required, forbidden, tiers, roots, sinks } = knowledge;
  return required.length + forbidden.length + tiers.length + roots.length + sinks.length ? knowledge : null;
}

export async function openedTable(): Promise<string | null> {
  return (await get<State>("/api/state")).opened;
}
