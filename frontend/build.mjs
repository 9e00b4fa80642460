/** Builds both bundles into the package: `npm run build`, or `make frontend` from the root of the repository. */

import { createHash } from "node:crypto";
import { cpSync, mkdirSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join, relative, sep } from "node:path";
import { build } from "vite";

const here = import.meta.dirname;
const BUNDLED = ["cytoscape", "@dagrejs/dagre"];
const ENTRIES = {
  app: { entry: "src/app/main.ts", folder: "../src/vcuda/app/static", name: "app" },
  graph: { entry: "src/report-graph.ts", folder: "../src/vcuda/outputs/report/assets", name: "graph" },
};

/** One number for all that the bundles are made of; tests/test_frontend.py computes the same. */
function sourcesHash() {
  const files = ["build.mjs", "package.json", "package-lock.json", "tsconfig.json", "app.html"];
  const walk = (folder) => {
    for (const name of readdirSync(folder)) {
      const path = join(folder, name);
      if (statSync(path).isDirectory()) walk(path);
      else files.push(relative(here, path).split(sep).join("/"));
    }
  };
  walk(join(here, "src"));
  const hash = createHash("sha256");
  for (const file of files.sort()) hash.update(`${file}\n`).update(readFileSync(join(here, file))).update("\n");
  return hash.digest("hex");
}

function licences() {
  return BUNDLED.map((name) => {
    const folder = join(here, "node_modules", name);
    const { version } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
    return `${name} ${version}\n\n${readFileSync(join(folder, "LICENSE"), "utf8").trim()}`;
  }).join("\n\n----\n\n");
}

const only = process.argv[2];
const out = process.argv[3];
const banner = `/*! Built from frontend/, sources sha256:${sourcesHash()}\nHolds these libraries under their licences:\n\n${licences()}\n*/`;
for (const [key, { entry, folder, name }] of Object.entries(ENTRIES)) {
  if (only && only !== "all" && only !== key) continue;
  const target = out ? join(out, key) : join(here, folder);
  const made = join(here, "node_modules", ".built", key);
  await build({
    root: here,
    configFile: false,
    logLevel: "warn",
    build: {
      outDir: made,
      emptyOutDir: true,
      target: "es2022",
      cssCodeSplit: false,
      lib: { entry: join(here, entry), formats: ["iife"], name: "vcuda", fileName: () => `${name}.js`, cssFileName: name },
    },
  });
  mkdirSync(target, { recursive: true });
  const script = readFileSync(join(made, `${name}.js`), "utf8");
  if (/<\/script|<!--/i.test(script)) throw new Error(`${name}.js could not stand inside a page`);
  writeFileSync(join(target, `${name}.js`), `${banner}\n${script}`);
  cpSync(join(made, `${name}.css`), join(target, `${name}.css`));
  if (key === "app") cpSync(join(here, "app.html"), join(target, "index.html"));
  rmSync(made, { recursive: true });
}
