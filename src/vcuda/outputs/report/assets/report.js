"use strict";
(function () {
  const data = JSON.parse(document.getElementById("report-data").textContent).graph;
  const SVG = "http://www.w3.org/2000/svg";
  const MOST_DRAWN = 1500;
  const MOST_LABELLED = 30;
  const OPEN_DIRECTION = 0.2;
  const ROWS_AT_A_TIME = 100;
  const MOST_RELATIVES = 15;
  const LEAST_RELATIVE = 0.05;
  const SMALLEST_SCALE = 0.55;
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

  function drawn(tag, attributes) {
    const made = document.createElementNS(SVG, tag);
    for (const key in attributes) made.setAttribute(key, attributes[key]);
    return made;
  }

  function clipped(name, most) {
    let width = 0;
    let shown = "";
    for (const character of name) {
      width += character.codePointAt(0) > 0x2e80 ? 2 : 1;
      if (width > most) return shown + "…";
      shown += character;
    }
    return shown;
  }

  const state = { threshold: 0.5, variable: -1, scale: 1, key: "probability", descending: true, rows: ROWS_AT_A_TIME };

  // ---- the graph

  const canvas = byId("canvas");
  const picture = drawn("svg", {
    viewBox: "0 0 " + data.width + " " + data.height,
    role: "group",
    "aria-label": "Graph of causes and effects",
  });
  const edgeLayer = drawn("g", { id: "drawn-edges" });
  const nodeLayer = drawn("g", { id: "drawn-nodes" });
  picture.append(edgeLayer, nodeLayer);
  canvas.append(picture);

  const edgeElements = new Array(edgeCount);
  const nodeElements = data.names.map(makeNode);
  nodeLayer.append(...nodeElements);
  const readingOrder = data.names.map((_, k) => k).sort((a, b) => data.y[a] - data.y[b] || data.x[a] - data.x[b]);
  if (nodeCount) nodeElements[readingOrder[0]].setAttribute("tabindex", "0");

  function makeNode(name, k) {
    const [width, height] = data.box;
    const group = drawn("g", { class: "node", tabindex: "-1", role: "button", "aria-pressed": "false" });
    group.setAttribute("transform", "translate(" + data.x[k] + " " + data.y[k] + ")");
    group.setAttribute("aria-label", name);
    const title = drawn("title", {});
    title.textContent = name;
    const text = drawn("text", {});
    text.textContent = clipped(name, 15);
    group.append(title, drawn("rect", { x: -width / 2, y: -height / 2, width, height, rx: 8 }), text);
    group.addEventListener("click", () => choose(state.variable === k ? -1 : k));
    group.addEventListener("keydown", (event) => onNodeKey(event, k));
    return group;
  }

  function onNodeKey(event, k) {
    const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
    if (event.key === "Enter" || event.key === " ") choose(state.variable === k ? -1 : k);
    else if (event.key === "Escape") choose(-1);
    else if (event.key in steps) {
      const place = readingOrder.indexOf(k) + steps[event.key];
      const next = readingOrder[(place + nodeCount) % nodeCount];
      nodeElements[k].setAttribute("tabindex", "-1");
      nodeElements[next].setAttribute("tabindex", "0");
      nodeElements[next].focus();
    } else return;
    event.preventDefault();
  }

  // A quadratic arc between two boxes, cut where it leaves the one and where it meets the other.
  function arc(k) {
    const start = [data.x[data.source[k]], data.y[data.source[k]]];
    const end = [data.x[data.target[k]], data.y[data.target[k]]];
    const dx = end[0] - start[0];
    const dy = end[1] - start[1];
    const length = Math.max(Math.hypot(dx, dy), 1e-6);
    // Both directions of a pair would lie on each other.
    const bend = data.bend[k] || (data.opposite[k] >= 0.02 ? 12 : 0);
    const middle = [
      (start[0] + end[0]) / 2 + (2 * bend * dy) / length,
      (start[1] + end[1]) / 2 - (2 * bend * dx) / length,
    ];
    const at = (t) => [0, 1].map((i) => (1 - t) * (1 - t) * start[i] + 2 * t * (1 - t) * middle[i] + t * t * end[i]);
    const inside = (point, box) =>
      Math.abs(point[0] - box[0]) < data.box[0] / 2 + 3 && Math.abs(point[1] - box[1]) < data.box[1] / 2 + 3;
    const cut = (box, near, far) => {
      for (let step = 0; step < 14; step++) {
        const half = (near + far) / 2;
        if (inside(at(half), box)) near = half;
        else far = half;
      }
      return far;
    };
    const from = cut(start, 0, 0.5);
    const to = cut(end, 1, 0.5);
    const first = at(from);
    const tip = at(to);
    // The control point of the part between the two cuts.
    const control = [0, 1].map(
      (i) =>
        (1 - from) * (1 - to) * start[i] + ((1 - from) * to + from * (1 - to)) * middle[i] + from * to * end[i],
    );
    return { first, control, tip };
  }

  function makeEdge(k) {
    const { first, control, tip } = arc(k);
    const probability = data.probability[k];
    const group = drawn("g", { class: "edge" + (data.opposite[k] >= OPEN_DIRECTION ? " open" : "") + (data.doubted[k] ? " doubted" : "") });
    group.setAttribute("stroke-opacity", (0.2 + 0.8 * probability).toFixed(3));
    group.setAttribute("fill-opacity", (0.2 + 0.8 * probability).toFixed(3));
    const angle = Math.atan2(tip[1] - control[1], tip[0] - control[0]);
    const size = 7 + 5 * probability;
    const corner = (side) =>
      (tip[0] - size * Math.cos(angle + side)).toFixed(1) + "," + (tip[1] - size * Math.sin(angle + side)).toFixed(1);
    const stop = [tip[0] - 0.7 * size * Math.cos(angle), tip[1] - 0.7 * size * Math.sin(angle)];
    const shown = (point) => point[0].toFixed(1) + " " + point[1].toFixed(1);
    const line = drawn("path", { d: "M" + shown(first) + " Q" + shown(control) + " " + shown(stop) });
    line.setAttribute("stroke-width", (0.8 + 3.6 * probability).toFixed(2));
    const title = drawn("title", {});
    title.textContent =
      data.names[data.source[k]] + " → " + data.names[data.target[k]] + ": " + probability.toFixed(3) + (data.doubted[k] ? ", in doubt" : "");
    const head = tip[0].toFixed(1) + "," + tip[1].toFixed(1) + " " + corner(0.45) + " " + corner(-0.45);
    // Before the middle, where arcs that go round the same space from both sides meet.
    const place = [0, 1].map((i) => 0.36 * first[i] + 0.48 * control[i] + 0.16 * tip[i]);
    const label = drawn("text", { x: place[0].toFixed(1), y: place[1].toFixed(1) });
    label.textContent = probability.toFixed(2);
    group.append(title, line, drawn("polygon", { points: head }), label);
    return group;
  }

  function drawGraph() {
    // Edges are stored with the surest first.
    let count = 0;
    while (count < edgeCount && data.probability[count] >= state.threshold - 1e-9) count++;
    const chosen = state.variable;
    const wanted = [];
    for (let k = 0; k < count; k++) {
      const own = data.source[k] === chosen || data.target[k] === chosen;
      if (k < MOST_DRAWN || own) wanted.push(k);
    }
    const near = new Set([chosen]);
    for (const k of wanted) {
      edgeElements[k] = edgeElements[k] || makeEdge(k);
      const classes = edgeElements[k].classList;
      classes.toggle("cause", data.target[k] === chosen);
      classes.toggle("effect", data.source[k] === chosen);
      classes.toggle("dim", chosen >= 0 && data.source[k] !== chosen && data.target[k] !== chosen);
      if (data.target[k] === chosen) near.add(data.source[k]);
      if (data.source[k] === chosen) near.add(data.target[k]);
    }
    edgeLayer.classList.toggle("labelled", wanted.length <= MOST_LABELLED);
    edgeLayer.replaceChildren(...wanted.map((k) => edgeElements[k]));
    nodeElements.forEach((node, k) => {
      node.classList.toggle("chosen", k === chosen);
      node.classList.toggle("dim", chosen >= 0 && !near.has(k));
      node.setAttribute("aria-pressed", String(k === chosen));
    });
    const left = count - wanted.length;
    byId("threshold-value").textContent = state.threshold.toFixed(2);
    byId("drawn").textContent =
      wanted.length.toLocaleString("en") +
      (wanted.length === 1 ? " edge" : " edges") +
      (left ? ", the surest of " + count.toLocaleString("en") + "; choose a variable to see all of its own" : "");
  }

  function resize(scale) {
    state.scale = Math.min(Math.max(scale, 0.1), 3);
    picture.setAttribute("width", Math.floor(data.width * state.scale));
    picture.setAttribute("height", Math.floor(data.height * state.scale));
  }

  const fitting = () => Math.min((canvas.clientWidth - 4) / data.width, 1.2);

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

  function choose(variable) {
    state.variable = variable;
    byId("variable").value = variable < 0 ? "" : String(variable);
    byId("focus").hidden = variable < 0;
    if (variable >= 0) {
      byId("focus-name").replaceChildren(element("bdi", data.names[variable]));
      byId("focus-causes").replaceChildren(relativesTable(relatives(variable, "target", "source"), "By any path"));
      byId("focus-effects").replaceChildren(relativesTable(relatives(variable, "source", "target"), "By any path"));
    }
    drawGraph();
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
      byId("threshold").value = String(threshold);
    }
    return variable >= 0 && variable < nodeCount ? variable : -1;
  }

  // ---- beginning

  byId("variable").append(
    ...data.names.map((name, k) => {
      const option = element("option", clipped(name, 60));
      option.value = String(k);
      return option;
    }),
  );
  byId("variable").addEventListener("change", (event) => choose(event.target.value === "" ? -1 : Number(event.target.value)));
  byId("threshold").addEventListener("input", (event) => {
    state.threshold = Number(event.target.value);
    drawGraph();
  });
  byId("threshold").addEventListener("change", remember);
  byId("smaller").addEventListener("click", () => resize(state.scale / 1.25));
  byId("larger").addEventListener("click", () => resize(state.scale * 1.25));
  byId("fit").addEventListener("click", () => resize(fitting()));
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
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && state.variable >= 0 && event.target.id !== "search") choose(-1);
  });
  window.addEventListener("hashchange", () => {
    if (location.hash.includes("threshold=")) choose(recall());
  });
  resize(Math.max(fitting(), SMALLEST_SCALE));
  const asked = recall();
  if (asked >= 0) choose(asked);
  else drawGraph();
  fillTable();
})();
