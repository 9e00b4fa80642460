"use strict";
(function () {
  const data = JSON.parse(document.getElementById("report-data").textContent).graph;
  const ROWS_AT_A_TIME = 100;
  const MOST_RELATIVES = 15;
  const LEAST_RELATIVE = 0.05;
  const LEAST_DRAWN = 0.02;
  const edgeCount = data.source.length;
  const nodeCount = data.names.length;
  const byId = (id) => document.getElementById(id);

  // Names come from the user's table: they reach the page as the text of a node of the document, and in no other way.
  function element(tag, text, className) {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    if (className) made.className = className;
    return made;
  }

  const state = { threshold: 0.5, variable: -1, key: "probability", descending: true, rows: ROWS_AT_A_TIME };

  // ---- the graph to explore, in the place of the still picture

  function explore() {
    const doubted = new Set(data.doubted);
    const known = new Set(data.known);
    const edges = [];
    for (let k = 0; k < edgeCount && data.probability[k] >= LEAST_DRAWN; k++) {
      edges.push({
        source: String(data.source[k]),
        target: String(data.target[k]),
        // What was rounded to 1 is still no certainty, unless somebody said that it is there.
        probability: known.has(k) ? data.probability[k] : Math.min(data.probability[k], 0.999),
        doubted: doubted.has(k),
        known: known.has(k),
      });
    }
    const nodes = data.names.map((label, k) => ({ id: String(k), label }));
    byId("still").classList.add("paper");
    byId("explore").hidden = false;
    return window.vcudaGraph(byId("explore"), { nodes, edges }, {
      threshold: state.threshold,
      target: data.variable === null ? undefined : String(data.variable),
      onThreshold: (threshold) => {
        state.threshold = threshold;
        remember();
      },
      onNode: (id) => tell(id === null ? -1 : Number(id)),
    });
  }

  // ---- one variable

  function relatives(variable, here, there) {
    const direct = new Map();
    for (let k = 0; k < edgeCount; k++) {
      if (data[here][k] === variable) direct.set(data[there][k], data.probability[k]);
    }
    const all = new Map();
    for (const [other, probability] of direct) {
      if (probability >= LEAST_RELATIVE) all.set(other, [probability, null]);
    }
    if (data.upstream) {
      for (let k = 0; k < data.upstream.share.length; k++) {
        if (data.upstream[here][k] !== variable) continue;
        const other = data.upstream[there][k];
        // Shares are counted over drawn graphs; a direct edge is a path as well.
        const probability = direct.get(other) || 0;
        all.set(other, [probability, Math.max(probability, data.upstream.share[k])]);
      }
    }
    return [...all].sort((a, b) => b[1][0] - a[1][0] || (b[1][1] || 0) - (a[1][1] || 0));
  }

  function relativesTable(found, anyWay) {
    if (!found.length) return element("p", "None with a probability of " + LEAST_RELATIVE + " or more.");
    const table = element("table");
    const head = element("tr");
    const labels = data.upstream ? ["Variable", "Direct", anyWay] : ["Variable", "Direct"];
    labels.forEach((label, k) => {
      const cell = element("th", label, k ? "number" : "");
      cell.scope = "col";
      head.append(cell);
    });
    const top = element("thead");
    top.append(head);
    const body = element("tbody");
    for (const [other, [probability, share]] of found.slice(0, MOST_RELATIVES)) {
      const row = element("tr");
      const cell = element("td");
      cell.append(element("bdi", data.names[other]));
      row.append(cell, element("td", probability.toFixed(2), "number"));
      if (data.upstream) row.append(element("td", share === null ? "< 0.05" : share.toFixed(2), "number"));
      body.append(row);
    }
    table.append(top, body);
    const box = element("div", undefined, "wide");
    box.append(table);
    if (found.length > MOST_RELATIVES) box.append(element("p", "and " + (found.length - MOST_RELATIVES) + " more"));
    return box;
  }

  function tell(variable) {
    state.variable = variable;
    byId("focus").hidden = variable < 0;
    if (variable >= 0) {
      byId("focus-name").replaceChildren(element("bdi", data.names[variable]));
      byId("focus-causes").replaceChildren(relativesTable(relatives(variable, "target", "source"), "By any path"));
      byId("focus-effects").replaceChildren(relativesTable(relatives(variable, "source", "target"), "By any path"));
    }
    remember();
  }

  // ---- the table of edges

  const collator = new Intl.Collator(undefined, { numeric: true });
  const nameRank = new Array(nodeCount);
  data.names
    .map((_, k) => k)
    .sort((a, b) => collator.compare(data.names[a], data.names[b]) || a - b)
    .forEach((k, rank) => (nameRank[k] = rank));
  const lowered = data.names.map((name) => name.toLowerCase());
  const values = {
    source: (k) => nameRank[data.source[k]],
    target: (k) => nameRank[data.target[k]],
    probability: (k) => data.probability[k],
    opposite: (k) => data.opposite[k],
    apart: (k) => Math.max(1 - data.probability[k] - data.opposite[k], 0),
    agreed: (k) => data.agreed[k],
  };
  const body = document.querySelector("#edge-table tbody");

  function fillTable() {
    const sought = byId("search").value.trim().toLowerCase();
    const matches = lowered.map((name) => name.includes(sought));
    const found = [];
    for (let k = 0; k < edgeCount; k++) if (matches[data.source[k]] || matches[data.target[k]]) found.push(k);
    const value = values[state.key];
    const sign = state.descending ? -1 : 1;
    found.sort((a, b) => sign * (value(a) - value(b)) || a - b);
    body.replaceChildren(...found.slice(0, state.rows).map(tableRow));
    const shown = Math.min(state.rows, found.length);
    byId("edges-shown").textContent = shown < found.length || sought ? "Shown: " + shown + " of " + found.length + "." : "";
    byId("more").hidden = shown === found.length;
    for (const button of document.querySelectorAll("#edge-table th button")) {
      const order = button.dataset.key !== state.key ? "none" : state.descending ? "descending" : "ascending";
      button.parentElement.setAttribute("aria-sort", order);
    }
  }

  function tableRow(k) {
    const row = element("tr");
    for (const end of [data.source[k], data.target[k]]) {
      const cell = element("td");
      cell.append(element("bdi", data.names[end]));
      row.append(cell);
    }
    for (const key of ["probability", "opposite", "apart"]) row.append(element("td", values[key](k).toFixed(3), "number"));
    row.append(element("td", data.agreed[k] ? "yes" : ""));
    return row;
  }

  // ---- what is shown, as part of the address, so that a link shows the same

  function remember() {
    const parts = ["threshold=" + state.threshold.toFixed(2)];
    if (state.variable >= 0) parts.push("variable=" + state.variable);
    try {
      history.replaceState(null, "", "#" + parts.join("&"));
    } catch (error) {
      // Some viewers of files have no address to change; nothing else depends on it.
    }
  }

  function recall() {
    const stored = new URLSearchParams(location.hash.slice(1));
    const threshold = Number.parseFloat(stored.get("threshold"));
    const variable = Number.parseInt(stored.get("variable"), 10);
    if (threshold >= 0.02 && threshold <= 1) {
      state.threshold = threshold;
    }
    return variable >= 0 && variable < nodeCount ? variable : -1;
  }

  // ---- beginning

  byId("search").addEventListener("input", () => {
    state.rows = ROWS_AT_A_TIME;
    fillTable();
  });
  byId("more").addEventListener("click", () => {
    state.rows += 2 * ROWS_AT_A_TIME;
    fillTable();
  });
  for (const button of document.querySelectorAll("#edge-table th button")) {
    button.addEventListener("click", () => {
      const names = button.dataset.key === "source" || button.dataset.key === "target";
      state.descending = button.dataset.key === state.key ? !state.descending : !names;
      state.key = button.dataset.key;
      fillTable();
    });
  }
  const asked = recall();
  const view = nodeCount ? explore() : null;
  if (view && asked >= 0) view.choose(String(asked));
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && view && state.variable >= 0 && event.target.type !== "search") view.choose(null);
  });
  window.addEventListener("hashchange", () => {
    if (!view || !location.hash.includes("threshold=")) return;
    const variable = recall();
    view.setThreshold(state.threshold);
    view.choose(variable < 0 ? null : String(variable));
  });
  fillTable();
})();
