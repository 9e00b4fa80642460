/** The first screen: choose a table, or a run. */

import { h } from "../dom";
import { get, post, runAddress, upload } from "./api";
import type { Run, State } from "./api";
import { duration, load, problem } from "./parts";

export function home(place: HTMLElement): void {
  void load(place, "Looking around", get<State>("/api/state"), (state) => show(place, state));
}

function show(place: HTMLElement, state: State): void {
  const said = h("div", { class: "said" });
  const picker = h("input", { type: "file", id: "file", class: "hidden", tabindex: -1, "aria-hidden": "true", onchange: () => picker.files?.[0] && void send(picker.files[0]) });
  const send = (file: File): Promise<void> =>
    load(said, `Reading ${file.name}`, upload(file, state.upload_limit), ({ table }) => {
      location.hash = `#/table/${encodeURIComponent(table)}`;
    });
  const drop = h(
    "div",
    {
      class: "drop",
      id: "drop",
      ondragover: (event: DragEvent) => (event.preventDefault(), drop.classList.add("over")),
      ondragleave: () => drop.classList.remove("over"),
      ondrop: (event: DragEvent) => {
        event.preventDefault();
        drop.classList.remove("over");
        const files = event.dataTransfer?.files;
        if (files && files.length > 1) said.replaceChildren(problem("Drop one file at a time: each is a table of its own."));
        else if (files?.[0]) void send(files[0]);
      },
    },
    h("p", { class: "large" }, "Drop a table here"),
    h("p", {}, h("button", { type: "button", class: "main", id: "choose", onclick: () => picker.click() }, "Choose a file"), picker),
    h("p", { class: "faint" }, "CSV, Excel, Parquet, JSON, SPSS, Stata, SAS, SQLite or DuckDB. Rows are cases, columns are what was measured. Nothing leaves this machine."),
  );
  place.append(
    h("h1", {}, "What causes what in your table?"),
    drop,
    said,
    h(
      "section",
      {},
      h("h2", {}, "Or try an example"),
      h("ul", { class: "plain" }, state.examples.map((one) => h("li", {}, link(one.name), ` ${one.title}`))),
    ),
  );
  if (state.tables.length)
    place.append(
      h("section", {}, h("h2", {}, "Tables that are here"), h("ul", { class: "plain" }, state.tables.slice(0, 30).map((one) => h("li", {}, link(one.name), one.size === null ? "" : ` ${bytes(one.size)}`)))),
    );
  place.append(h("section", { id: "runs" }, h("h2", {}, "Runs"), runs(state, place), h("p", { class: "faint" }, `They are folders in ${state.folder}, as the command line writes them.`)));
}

function link(name: string): HTMLElement {
  return h("a", { href: `#/table/${encodeURIComponent(name)}` }, h("bdi", {}, name));
}

function bytes(size: number): string {
  return size < 1e6 ? `${Math.max(Math.round(size / 1e3), 1)} kB` : size < 1e9 ? `${(size / 1e6).toFixed(1)} MB` : `${(size / 1e9).toFixed(1)} GB`;
}

function runs(state: State, place: HTMLElement): HTMLElement {
  const alive = Object.values(state.jobs).filter((job) => ["waiting", "running", "stopping"].includes(job.state));
  const ended = state.runs.filter((run) => !alive.some((job) => job.run === run.name));
  if (!alive.length && !ended.length) return h("p", {}, "None yet.");
  return h(
    "ul",
    { class: "plain runs" },
    alive.map((job) => h("li", {}, h("a", { href: address(job.run) }, h("bdi", {}, job.run)), h("span", { class: "tag" }, job.state))),
    ended.map((run) => h("li", {}, h("a", { href: address(run.name) }, h("bdi", {}, run.name)), ...about(run, place))),
  );
}

function about(run: Run, place: HTMLElement): (HTMLElement | string)[] {
  const size = run.rows ? ` ${run.rows.toLocaleString("en")} rows, ${run.columns} columns, ${duration(run.seconds ?? 0)}. ` : " ";
  const resume = h(
    "button",
    {
      type: "button",
      onclick: () =>
        void post(runAddress(run.name, "resume")).then(
          () => (location.hash = address(run.name)),
          (error) => place.prepend(problem(error)),
        ),
    },
    "Go on",
  );
  return [h("span", { class: `tag ${run.status ?? ""}` }, run.finished ? (run.status ?? "finished") : "stopped"), size, question(run), ...(run.resumable ? [resume] : [])];
}

export function question(run: { asked: Run["asked"] }): string {
  const asked = run.asked.question;
  if (asked?.kind === "target") return `What drives ${asked.target}?`;
  if (asked?.kind === "pair") return `What does ${asked.cause} do to ${asked.outcome}?`;
  return "";
}

function address(run: string): string {
  return `#/run/${encodeURIComponent(run)}`;
}
