/** A run: its progress, and then what was found. */

import { fill, h, percent } from "../dom";
import { GraphView } from "../graph";
import type { ShownEdge } from "../graph";
import { download, get, post, query, runAddress } from "./api";
import type { Driver, Drivers, Effect, Job, Result, Run, State, Table, Why } from "./api";
import { curve, forest, interval } from "./chart";
import { arrowKeys, bar, copyable, dataTable, duration, field, load, option, plainNote, problem, withArrows } from "./parts";

const EVERY = 700;

export function run(place: HTMLElement, name: string): () => void {
  const screen = new RunScreen(place, name);
  void screen.look();
  return () => screen.close();
}

class RunScreen {
  private timer = 0;
  private closed = false;
  private view: GraphView | null = null;
  private readonly body = h("div", {});
  private watching: { bar: HTMLProgressElement; text: HTMLElement; lines: HTMLElement; stop: HTMLButtonElement } | null = null;

  constructor(
    place: HTMLElement,
    private readonly name: string,
  ) {
    fill(place, h("h1", {}, h("bdi", {}, name)), this.body);
  }

  close(): void {
    this.closed = true;
    clearTimeout(this.timer);
    this.view?.destroy();
  }

  async look(): Promise<void> {
    try {
      const { run: found, job } = await get<{ run: Run | null; job: Job | null }>(runAddress(this.name, "progress"));
      if (this.closed) return;
      if (job && ["waiting", "running", "stopping"].includes(job.state)) {
        this.watch(job);
        this.timer = window.setTimeout(() => void this.look(), EVERY);
        return;
      }
      this.watching = null;
      if (found?.finished) void load(this.body, "Opening the run", get<Result>(runAddress(this.name)), (result) => !this.closed && this.show(result, found, job));
      else this.without(found, job);
    } catch (error) {
      if (!this.closed) fill(this.body, problem(error));
    }
  }

  private watch(job: Job): void {
    if (!this.watching) {
      const shown = {
        bar: h("progress", { max: 1, id: "progress", "aria-label": "How much of the fit is done" }),
        text: h("p", { class: "large", role: "status", id: "progress-text" }),
        lines: h("ul", { class: "plain faint" }),
        stop: h("button", { type: "button", class: "main", id: "stop", onclick: () => void this.stop() }, "Stop and keep what is found"),
      };
      this.watching = shown;
      fill(this.body, h("section", { class: "card" }, shown.text, shown.bar, h("p", {}, shown.stop), shown.lines, h("p", { class: "faint" }, "You may close this page: the fit goes on, and the run is in the list when you come back.")));
    }
    const { bar: line, text, lines, stop } = this.watching;
    const progress = job.progress;
    if (progress && progress.share > 0) line.value = progress.share;
    else line.removeAttribute("value");
    const doing = job.state === "waiting" ? "Waiting for its turn" : job.state === "stopping" ? "Stopping, and keeping what is found" : progress && progress.share >= 1 ? `Last steps: ${progress.detail}` : progress && progress.share > 0 ? `${progress.doing}: ${Math.floor(100 * progress.share)} % done` : "Preparing";
    const left = progress?.seconds_left && progress.share < 1 && job.state === "running" ? `, at most ${duration(progress.seconds_left)} left` : "";
    const said = `${doing}${left}.`;
    if (text.textContent !== said) text.textContent = said;
    stop.disabled = job.state === "stopping";
    fill(lines, progress?.detail && h("li", {}, progress.detail), h("li", {}, `${duration(job.seconds)} so far.`), job.lines.slice(-3).map((one) => h("li", {}, one)));
  }

  private async stop(): Promise<void> {
    try {
      await post(runAddress(this.name, "stop"));
    } catch (error) {
      this.body.append(problem(error));
    }
    clearTimeout(this.timer);
    void this.look();
  }

  private async resume(place: HTMLElement): Promise<void> {
    try {
      await post(runAddress(this.name, "resume"));
      void this.look();
    } catch (error) {
      place.append(problem(error));
    }
  }

  private resumeButton(): HTMLElement {
    const place = h("p", {});
    place.append(h("button", { type: "button", class: "main", id: "resume", onclick: () => void this.resume(place) }, "Go on with the fit"));
    return place;
  }

  private without(found: Run | null, job: Job | null): void {
    const lines = job?.lines.length ? job.lines.slice(-4) : ["The fit was stopped before there was a result."];
    fill(
      this.body,
      h("section", { class: "card" }, h("h2", {}, "There is no result"), lines.map((line) => h("p", {}, line)), found?.resumable ? this.resumeButton() : h("p", {}, h("a", { href: "#/" }, "Back to the start"))),
    );
  }

  private show(result: Result, found: Run, job: Job | null): void {
    const asked = result.asked.question ?? { kind: "all" };
    const arrow = (one: Result["first"][number]): HTMLElement =>
      h("li", {}, h("bdi", {}, one.source), one.is_open ? " — " : " → ", h("bdi", {}, one.target), " ", h("strong", { class: "share" }, percent(one.probability)), one.note && h("span", { class: "faint" }, ` ${one.note}`), one.in_doubt ? h("span", { class: "doubt" }, " in doubt") : one.is_open ? h("span", { class: "faint" }, " direction open") : "");
    const cards = h(
      "div",
      { class: "cards" },
      h("section", { class: "card" }, h("h2", {}, "What was found"), h("p", {}, result.found), h("ul", { class: "plain" }, result.first.map(arrow)), result.found_more.map((line) => h("p", {}, line))),
      h("section", { class: "card" }, h("h2", {}, "How sure it is"), result.sure.map((line) => h("p", {}, line))),
      h("section", { class: `card verdict ${result.status}` }, h("h2", {}, "What could be wrong"), h("p", {}, h("strong", {}, `${result.verdict}.`)), result.wrong.map((line) => h("p", {}, plainNote(line)))),
    );
    const panels: [string, string, (panel: HTMLElement) => void][] = [
      ["graph", "Graph", (panel) => this.graph(panel, result)],
      ...result.sections.map((one): [string, string, (panel: HTMLElement) => void] => [one.id, one.title, (panel) => panel.append(...one.sentences.map((line) => h("p", {}, line)), one.table.rows.length ? dataTable(one.table) : "")]),
      ["effects", "Effects", (panel) => this.effects(panel, result)],
      ["checks", "Checks", (panel) => this.checks(panel, result)],
      ["next", "Next experiment", (panel) => (result.cannot.next ? panel.append(h("p", {}, result.cannot.next)) : this.experiments(panel))],
      ["downloads", "Downloads", (panel) => this.downloads(panel, result)],
    ];
    const first = asked.kind === "all" ? "graph" : "effects";
    const tabs = h("div", { class: "tabs", role: "tablist", "aria-label": "Result" });
    arrowKeys(tabs);
    const sections = panels.map(([id, label, make]) => {
      const panel = h("section", { id: `panel-${id}`, role: "tabpanel", "aria-labelledby": `tab-${id}`, hidden: true });
      let made = false;
      const open = (): void => {
        for (const other of tabs.children) other.setAttribute("aria-selected", String(other === button));
        for (const [section] of sections) section.hidden = section !== panel;
        if (!made) make(panel);
        made = true;
      };
      const button = h("button", { type: "button", role: "tab", id: `tab-${id}`, "aria-selected": "false", onclick: open }, label);
      tabs.append(button);
      return [panel, open, id] as const;
    });
    fill(
      this.body,
      found.resumable && h("section", { class: "card caution" }, h("p", {}, "This fit was stopped before its end; what it had found is below."), this.resumeButton()),
      job && job.state === "failed" && h("div", { class: "problem" }, job.lines.slice(-2).map((line) => h("p", {}, line))),
      headline(result),
      cards,
      tabs,
      sections.map(([panel]) => panel),
    );
    sections.find(([, , id]) => id === first)![1]();
  }

  private graph(panel: HTMLElement, result: Result): void {
    const host = h("div", { id: "graph" });
    const about = h("div", { id: "edge", class: "card", hidden: true, "aria-live": "polite" });
    panel.append(host, about);
    const asked = result.asked.question;
    this.view = new GraphView(
      host,
      {
        nodes: result.names.map((name) => ({ id: name, label: name })),
        edges: result.edges.map(([source, target, probability, doubted, known, lag, hidden]) => ({ source, target, probability, doubted, known, lag, when: result.when?.[lag], hidden })),
      },
      { target: asked?.kind === "target" ? asked.target : undefined, onEdge: (edge) => this.edge(about, edge, result) },
    );
    // For tests, which cannot ask a canvas where a column is.
    Object.assign(host, { view: this.view });
  }

  private edge(about: HTMLElement, edge: ShownEdge, result: Result): void {
    const { source, target, probability, opposite, hidden, lag, when } = edge;
    const { why, effects } = result.cannot;
    const more = h("div", {});
    const line = (from: string, to: string, share: number): HTMLElement => h("li", {}, h("bdi", {}, from), " → ", h("bdi", {}, to), " ", bar(share));
    about.hidden = false;
    fill(
      about,
      h("h3", {}, h("bdi", {}, source), " and ", h("bdi", {}, target), when && `, ${when}`),
      h(
        "ul",
        { class: "plain" },
        line(source, target, probability),
        !lag && line(target, source, opposite),
        hidden > 0 && h("li", {}, "a hidden cause of both ", bar(hidden)),
        h("li", {}, "no arrow ", bar(Math.max(1 - probability - opposite - hidden, 0))),
      ),
      h(
        "p",
        { class: "buttons" },
        !why && h("button", { type: "button", id: "why", onclick: () => void load(more, "Asking what decides it; this takes up to half a minute", get<Why>(runAddress(this.name, "why") + query({ cause: source, effect: target })), (found) => showWhy(more, found)) }, "Why?"),
        !effects && source !== target && h("button", { type: "button", id: "edge-effect", onclick: () => this.effect(more, source, target) }, "What does changing it do?"),
      ),
      [why, effects].map((line) => line && h("p", { class: "faint" }, line)),
      more,
    );
    about.scrollIntoView({ block: "nearest" });
  }

  private effect(place: HTMLElement, cause: string, outcome: string): void {
    void load(place, "Computing the effect", get<Effect>(runAddress(this.name, "effect") + query({ cause, outcome })), (found) => showEffect(place, found));
  }

  private effects(panel: HTMLElement, result: Result): void {
    const asked = result.asked.question;
    const place = h("div", { id: "effect", "aria-live": "polite" });
    const cause = h("select", { id: "effect-cause" }, result.names.map((name) => option(name, asked?.kind === "pair" ? asked.cause : undefined)));
    const outcome = h("select", { id: "effect-outcome" }, result.names.map((name, k) => option(name, asked?.kind === "pair" ? asked.outcome : asked?.kind === "target" ? asked.target : k === 1 ? name : undefined)));
    const ask = (): void => {
      if (cause.value === outcome.value) fill(place, problem("Choose two different columns."));
      else this.effect(place, cause.value, outcome.value);
    };
    const drivers = h("div", { id: "drivers" });
    panel.append(
      drivers,
      result.cannot.effects ? h("p", {}, result.cannot.effects) : h("form", { class: "inline", onsubmit: (event: Event) => (event.preventDefault(), ask()) }, field("If this is changed", cause), field("what happens to", outcome), h("button", { type: "submit", class: "main", id: "effect-ask" }, "Show")),
      place,
    );
    if (asked?.kind === "pair" && !result.cannot.effects) ask();
    if (asked?.kind === "target") {
      const target = asked.target;
      void load(drivers, `Looking for what drives ${target}`, get<Drivers>(runAddress(this.name, "drivers") + query({ target })), (found) => {
        const show = (name: string): void => {
          cause.value = name;
          outcome.value = target;
          ask();
          place.scrollIntoView({ block: "nearest" });
        };
        showDrivers(drivers, found, result.cannot.effects ? null : show);
      });
    }
  }

  private checks(panel: HTMLElement, result: Result): void {
    panel.append(
      h("p", {}, result.checks.summary),
      ...result.checks.findings.map((one) => h("article", { class: `card finding ${one.severity}` }, h("h3", {}, `${one.severity}: ${one.check}`), [one.sentence, one.changes, one.remedy].filter(Boolean).map((line) => h("p", {}, line)), one.edges.length > 0 && h("p", {}, one.edges.map(([a, b]) => `${a} → ${b}`).join(", ")))),
      h("h3", {}, "How far to trust it"),
      h("dl", {}, result.trust.flatMap(([name, text]) => [h("dt", {}, name), h("dd", {}, text)])),
      h("h3", {}, "About the table"),
      result.notes.length ? h("ul", {}, result.notes.map((note) => h("li", {}, plainNote(note)))) : h("p", {}, "Nothing odd was found."),
    );
  }

  private experiments(panel: HTMLElement): void {
    const place = h("div", {});
    panel.append(h("p", {}, "Which column should an experiment set next, to learn most about the directions that are open?"), place);
    void load(place, "Comparing experiments", get<{ settles: boolean; table: Table }>(runAddress(this.name, "experiments")), (found) => {
      if (found.settles) place.append(dataTable(found.table));
      else place.append(h("p", {}, "No experiment on a single column is expected to settle a direction that is still open."));
    });
  }

  private downloads(panel: HTMLElement, result: Result): void {
    const said = h("div", {});
    const save = (address: string) => (event: Event) => {
      event.preventDefault();
      void load(said, "Writing the file", download(address), () => fill(said));
    };
    const link = (kind: string, label: string): HTMLElement => {
      const href = runAddress(this.name, "download", kind);
      return h("li", {}, h("a", { href, onclick: save(href), id: `download-${kind}` }, label));
    };
    const known = runAddress(this.name, "knowledge");
    const formats = Object.entries(result.exports).map(([kind, endings]) => link(kind, `${kind} (${endings[0]})`));
    const shell = result.asked.words?.map(quoted).join(" ") ?? result.shell;
    panel.append(
      said,
      h("h3", {}, "The report"),
      h("ul", { class: "plain" }, h("li", {}, h("a", { href: `${runAddress(this.name, "download", "report")}?look=1`, target: "_blank", rel: "noopener" }, "Open the report")), link("report", "Download the report, one HTML file")),
      h("h3", {}, "The graph for other programs"),
      h("ul", { class: "plain formats" }, formats),
      h("h3", {}, "How to repeat it"),
      h("p", {}, "In Python:"),
      copyable(result.python, "Lines of Python"),
      ...(shell ? [h("p", {}, "In a terminal:"), copyable(shell, "The command")] : []),
      h("ul", { class: "plain" }, link("python", "Download the lines of Python"), shell ? link("shell", "Download the command") : "", result.asked.knowledge ? h("li", {}, h("a", { href: known, onclick: save(known) }, "Download what you said as a knowledge file")) : ""),
      h("h3", {}, "Compare"),
      h("p", {}, h("a", { href: `#/compare/${encodeURIComponent(this.name)}` }, "Compare with another run")),
      h("h3", {}, "How it was made"),
      h("dl", {}, result.settings.flatMap(([name, text]) => [h("dt", {}, name), h("dd", {}, text)])),
    );
  }
}

function headline(result: Result): HTMLElement {
  const asked = result.asked.question;
  const question = asked?.kind === "target" ? `What drives ${asked.target}?` : asked?.kind === "pair" ? `What does ${asked.cause} do to ${asked.outcome}?` : "What causes what?";
  const table = result.asked.table;
  return h("p", { class: "faint" }, `${question} ${result.rows.toLocaleString("en")} rows, ${result.names.length} columns, ${duration(result.seconds)}. `, table ? h("a", { href: `#/table/${encodeURIComponent(table)}` }, "Ask again with other settings") : "");
}

function quoted(word: string): string {
  return /^[\w./:=,+-]+$/.test(word) ? word : `'${word.replaceAll("'", `'"'"'`)}'`;
}

/** What drives a column: sentences, and a picture where all effects are changes of the same thing. */
function showDrivers(place: HTMLElement, found: Drivers, effect: ((name: string) => void) | null): void {
  const rows = found.drivers.filter((one) => one.effect !== null);
  const alike = rows.length > 0 && rows.every((one) => one.measure === rows[0]!.measure && one.unit === rows[0]!.unit);
  const row = (one: Driver): HTMLElement =>
    h(
      "tr",
      {},
      h("th", { scope: "row" }, h("bdi", {}, one.driver)),
      h("td", {}, bar(one.upstream)),
      h("td", {}, bar(one.direct)),
      h("td", { class: "wide" }, withArrows(one.sentence)),
      h("td", {}, effect && h("button", { type: "button", class: "small", onclick: () => effect(one.driver), "aria-label": `Effect of ${one.driver}` }, "More")),
    );
  fill(
    place,
    h("h2", {}, "What drives ", h("bdi", {}, found.target), "?"),
    alike && (forest(rows, found.target) as unknown as Node),
    found.drivers.length
      ? h("div", { class: "scrolled", tabindex: 0, role: "region", "aria-label": "Drivers" }, h("table", { id: "driver-table" }, h("thead", {}, h("tr", {}, ["Column", "drives it", "directly", "what it does", ""].map((title) => (title ? h("th", { scope: "col" }, title) : h("td", {})))) ), h("tbody", {}, found.drivers.map(row))))
      : found.sentences.map((line) => h("p", {}, withArrows(line))),
    found.note && h("p", {}, found.note),
    h("p", { class: "caveat" }, found.caveat),
  );
}

function showWhy(place: HTMLElement, found: Why): void {
  fill(place, h("div", { class: "why" }, found.sentences.map((line) => h("p", {}, line)), found.tables.map(dataTable), found.notes.map((line) => h("p", { class: "faint" }, line))));
}

function showEffect(place: HTMLElement, found: Effect): void {
  fill(
    place,
    h(
      "figure",
      { class: "effect" },
      h("figcaption", {}, found.answer),
      found.mean !== undefined && (interval(found) as unknown as Node),
      (found.curve?.length ?? 0) > 1 && (curve(found) as unknown as Node),
      found.tables.map(dataTable),
    ),
    h("p", {}, `No effect at all: ${percent(found.probability_zero)}.`),
    h("p", { class: "caveat" }, found.caveat),
  );
}

export async function runNames(): Promise<string[]> {
  return (await get<State>("/api/state")).runs.filter((one) => one.finished).map((one) => one.name);
}
