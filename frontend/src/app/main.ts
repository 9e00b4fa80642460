/** The app: a header, and the screen that the address names. */

import { fill, h } from "../dom";
import { compare } from "./compare";
import { home } from "./home";
import { run } from "./run";
import { openedTable, table } from "./table";
import "../graph/graph.css";
import "./app.css";

const screen = h("main", { id: "screen", tabindex: -1 });
let leave: (() => void) | void;

function show(): void {
  leave?.();
  leave = undefined;
  fill(screen);
  const place = h("div", {});
  screen.append(place);
  const [name = "", ...rest] = location.hash.replace(/^#\//, "").split("/").map(decoded);
  document.title = rest[0] ? `${rest[0]} · vcuda` : "vcuda";
  if (name === "table" && rest[0]) leave = table(place, rest[0]);
  else if (name === "run" && rest[0]) leave = run(place, rest[0]);
  else if (name === "compare") compare(place, rest[0], rest[1]);
  else home(place);
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

document.getElementById("app")!.append(
  h("a", { class: "skip", href: "#screen", onclick: (event: Event) => (event.preventDefault(), screen.focus()) }, "Skip to the content"),
  h("header", {}, h("a", { href: "#/", class: "brand" }, "vcuda"), h("nav", { "aria-label": "Main" }, h("a", { href: "#/" }, "Start"), h("a", { href: "#/compare" }, "Compare"))),
  screen,
);
// A file that misses the field must not take the place of the page.
for (const kind of ["dragover", "drop"]) window.addEventListener(kind, (event) => event.preventDefault());
window.addEventListener("hashchange", () => {
  show();
  screen.focus();
});
if (location.hash) show();
else
  void openedTable().then(
    (name) => (name ? location.replace(`#/table/${encodeURIComponent(name)}`) : show()),
    () => show(),
  );
