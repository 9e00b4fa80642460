"""Faults in single rows: does the attribution name the column whose noise was disturbed, beside DoWhy's gcm."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import vcuda
from benchmarks.records import Line, grouped, markdown
from benchmarks.worlds.peers import ask
from vcuda.graphs import ancestors

TITLE = "Which cause made a row unusual"
NODES, ROWS, FAULTS = 8, 1000, 5
WORLDS = {"linear": 20, "curves": 3}
# gcm knows the true graph, and so does the second of ours; the first has to learn it.
METHODS = ("vcuda", "vcuda, true graph", "DoWhy gcm, true graph", "largest z-score")


def cases() -> list[dict[str, Any]]:
    return [
        {"world": world, "method": method, "set": number}
        for world, sets in WORLDS.items()
        for number in range(sets)
        for method in METHODS
    ]


class Faults(NamedTuple):
    """A table without faults, its graph (d, d), the outcome, and faulty rows (f, d) with their causes (f,)."""

    table: pd.DataFrame
    graph: np.ndarray
    target: int
    rows: np.ndarray
    causes: np.ndarray


def drawn(world: str, seed: int) -> Faults:
    """Eight columns; in a faulty row the noise of one column upstream of the outcome is 4 to 6 standard deviations."""
    rng = np.random.default_rng([seed, list(WORLDS).index(world), 77])
    while True:
        order = rng.permutation(NODES)
        graph = np.zeros((NODES, NODES), dtype=bool)
        for late in range(1, NODES):
            for early in range(late):
                graph[order[early], order[late]] = rng.random() < 2.5 / (NODES - 1)
        target = int(np.argmax(ancestors(graph).sum(axis=0)))
        above = [*np.flatnonzero(ancestors(graph)[:, target]).tolist(), target]
        above = sorted(set(above))
        if len(above) >= 4:
            break
    weights = graph * rng.choice([-1, 1], graph.shape) * rng.uniform(0.5, 1.2, graph.shape)
    spread = rng.uniform(0.5, 1.2, NODES)

    def rows_of(noise: np.ndarray) -> np.ndarray:
        values = np.zeros_like(noise)
        for node in order:
            inputs = values if world == "linear" else np.tanh(values) + 0.3 * values
            values[:, node] = inputs @ weights[:, node] + spread[node] * noise[:, node]
        return values

    table = pd.DataFrame(rows_of(rng.standard_normal((ROWS, NODES))), columns=[f"X{k + 1}" for k in range(NODES)])
    noise, causes = rng.standard_normal((FAULTS, NODES)), rng.choice(above, FAULTS)
    noise[np.arange(FAULTS), causes] = rng.choice([-1, 1], FAULTS) * rng.uniform(4, 6, FAULTS)
    return Faults(table, graph, target, rows_of(noise), causes)


def measure(case: dict[str, Any], peers: str | None) -> dict[str, Any] | None:
    """In how many faulty rows the column with the largest contribution is the cause; None for a peer that is absent."""
    faults, begun = drawn(case["world"], case["set"]), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = _attributed(case, faults, peers)
    if found is None:
        return None
    contributions, seconds = found
    order = np.argsort(-contributions, axis=1)
    right = order == faults.causes[:, None]
    return {
        "rows": FAULTS,
        "first": int(right[:, 0].sum()),
        "second": int(right[:, :2].sum()),
        "seconds": time.process_time() - begun if seconds is None else seconds,
    }


def _attributed(case: dict[str, Any], faults: Faults, peers: str | None) -> tuple[np.ndarray, float | None] | None:
    names, target = list(faults.table.columns), faults.target
    edges = [(names[i], names[j]) for i, j in np.argwhere(faults.graph)]
    if case["method"] == "largest z-score":
        z = np.abs((faults.rows - faults.table.mean().to_numpy()) / faults.table.std().to_numpy())
        upstream = ancestors(faults.graph)[:, target] | (np.arange(NODES) == target)
        return np.where(upstream, z, -1.0), None
    if case["method"].startswith("DoWhy"):
        given = {"values": faults.table.to_numpy(), "names": names, "edges": edges, "target": names[target]}
        answer = ask(
            peers, "gcm", given | {"rows": faults.rows, "linear": case["world"] == "linear", "seed": case["set"]}
        )
        if answer is None:
            return None
        found = np.zeros((FAULTS, NODES))
        for name, own in answer["contributions"].items():
            found[:, names.index(name)] = own
        return found, answer["seconds"]
    knowledge = None
    if case["method"] != "vcuda":
        absent = [(names[i], names[j]) for i, j in np.argwhere(~faults.graph & ~np.eye(NODES, dtype=bool))]
        knowledge = vcuda.Knowledge(required=tuple(edges), forbidden=tuple(absent))
    posterior = vcuda.fit(faults.table, knowledge=knowledge, checks=False)
    ours = [
        posterior.attribute(dict(zip(names, row, strict=True)), names[target]).table["contribution"][names]
        for row in faults.rows
    ]
    return np.array(ours), None


def tables(lines: Sequence[Line]) -> str:
    """How often the disturbed column comes first, by world and method."""
    by_case, rows = grouped(lines, ("world", "method")), []
    for world in WORLDS:
        for method in METHODS:
            own = by_case.get((world, method), [])
            if own:
                total = sum(line["rows"] for line in own)
                hits = [sum(line[key] for line in own) for key in ("first", "second")]
                shown = [f"{count} of {total} ({count / total:.0%})" for count in hits]
                rows.append([world, method, *shown, f"{np.mean([line['seconds'] for line in own]):.1f}"])
    text = markdown(
        ["tables", "method", "the cause comes first", "first or second", "processor seconds for 5 rows"], rows
    )
    return (
        f"Tables of {NODES} columns and {ROWS:,} rows without faults, and {FAULTS} rows in which the noise of one "
        "column upstream of the outcome is 4 to 6 standard deviations. `vcuda` learns the graph from the table; the "
        "others are told. `largest z-score` takes the column upstream that is farthest from its mean. gcm has "
        "linear functions where these are true, else boosted trees, and 1,000 samples.\n\n" + text
    )
