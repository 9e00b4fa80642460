"""Causes that are not in the table: edges that hold all the same, pairs that share a hidden cause, and how strong a
hidden cause would have to be. Beside FCI of causal-learn and a posterior over DAGs."""

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
from vcuda.metrics import average_precision

TITLE = "Causes that are not in the table"
SURE, CONFOUNDED = 0.9, 0.8
# Columns, hidden causes of two columns, rows; and sets of each.
HOLDS, HOLDS_SETS = [(10, 4, 1000), (10, 6, 1000), (20, 4, 1000), (20, 6, 1000)], 15
# Few pairs of a set are confounded: of ten sets of 6 columns the AUC has a standard error of .07.
PAIRS = [(6, 2, 1000), (6, 2, 5000), (8, 3, 1000), (8, 3, 5000)]
PAIRS_SETS = {6: 20, 8: 10}
HOLDS_DENSITY = 1.5
PAIR_METHODS = ("hidden=True", "posterior over DAGs", "FCI")
# Tables of a cause, an outcome, two measured causes of the first, and a hidden cause of both.
STRENGTH_ROWS, STRENGTH_SETS = 500, 100


def cases() -> list[dict[str, Any]]:
    pairs: list[dict[str, Any]] = [
        {"what": "pairs", "columns": d, "hidden": hidden, "rows": rows, "density": 1.0, "method": method, "set": number}
        for d, hidden, rows in PAIRS
        for number in range(PAIRS_SETS[d])
        for method in PAIR_METHODS
    ]
    holds: list[dict[str, Any]] = [
        {"what": "holds", "columns": d, "hidden": hidden, "rows": rows, "method": method, "set": number}
        for number in range(HOLDS_SETS)
        for d, hidden, rows in HOLDS
        for method in ("posterior over DAGs", "FCI")
    ]
    strength: list[dict[str, Any]] = [{"what": "strength", "set": number} for number in range(STRENGTH_SETS)]
    # What takes seconds comes first.
    quick = (10, 20, 6, 8)
    return strength + sorted(holds + pairs, key=lambda case: (quick.index(case["columns"]), case["set"]))


class World(NamedTuple):
    """A table, its direct effects (d, d), and the pairs (d, d) that a hidden variable causes; no pair has both."""

    table: pd.DataFrame
    graph: np.ndarray
    hidden: np.ndarray


def drawn(columns: int, hidden: int, rows: int, seed: int, *, density: float) -> World:
    """A linear model with normal noise and so many expected direct effects a column; effects are .5 to 1.5, those of
    the hidden variables .7 to 1.5 standard deviations of the noise."""
    rng = np.random.default_rng([seed, columns, hidden, rows])
    order = rng.permutation(columns)
    graph = np.zeros((columns, columns), dtype=bool)
    for late in range(1, columns):
        for early in range(late):
            graph[order[early], order[late]] = rng.random() < 2 * density / (columns - 1)
    weights = graph * rng.choice([-1, 1], graph.shape) * rng.uniform(0.5, 1.5, graph.shape)
    noise = rng.standard_normal((rows, columns))
    apart = np.argwhere(np.triu(~(graph | graph.T), k=1))
    shared = np.zeros_like(graph)
    for i, j in apart[rng.choice(len(apart), min(hidden, len(apart)), replace=False)]:
        cause = rng.standard_normal(rows)
        for node in (i, j):
            noise[:, node] += rng.choice([-1, 1]) * rng.uniform(0.7, 1.5) * cause
        shared[i, j] = shared[j, i] = True
    values = noise @ np.linalg.inv(np.eye(columns) - weights)
    return World(pd.DataFrame(values, columns=[f"X{k + 1}" for k in range(columns)]), graph, shared)


def measure(case: dict[str, Any], peers: str | None) -> dict[str, Any] | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        if case["what"] == "strength":
            return _strength(case["set"])
        density = case.get("density", HOLDS_DENSITY)
        world = drawn(case["columns"], case["hidden"], case["rows"], case["set"], density=density)
        begun = time.process_time()
        found = _answers(case["method"], case["what"], world, peers)
    return None if found is None else {"seconds": time.process_time() - begun} | found


def _answers(method: str, what: str, world: World, peers: str | None) -> dict[str, Any] | None:
    if method == "FCI":
        answer = ask(peers, "fci", {"values": world.table.to_numpy()})
        if answer is None:
            return None
        directed, bidirected = np.array(answer["directed"]), np.array(answer["bidirected"])
        own = {"seconds": answer["seconds"]}
        return own | (_of_edges(directed, world) if what == "holds" else _of_pairs(directed, bidirected, world))
    if method == "hidden=True":
        mixed = vcuda.fit(world.table, hidden=True)
        hidden = mixed.bidirected_probabilities.to_numpy()  # type: ignore[attr-defined]
        found = _of_pairs(mixed.edge_probabilities.to_numpy(), hidden, world)
        own = {name: mixed.diagnostics[name] for name in ("disagreement", "gain_over_dags")}
        return found | {"status": mixed.status.code} | own
    posterior = vcuda.fit(world.table, model="linear", noise="unequal", checks=False)
    edges = posterior.edge_probabilities.to_numpy()
    if what == "pairs":
        # A posterior over DAGs has no word for it: what speaks for a hidden cause is a direction that is open.
        return _of_pairs(edges, np.minimum(edges, edges.T), world)
    table = posterior.edges()
    holding = np.zeros_like(edges)
    places = {name: k for k, name in enumerate(posterior.names)}
    where = table.source.map(places).to_numpy(), table.target.map(places).to_numpy()
    holding[where] = table.holds_with_hidden_causes
    own = _of_edges(holding, world)
    return _of_edges(edges, world) | {f"holding_{key}": value for key, value in own.items()}


def _of_edges(stated: np.ndarray, world: World) -> dict[str, Any]:
    sure = stated >= SURE
    return {"sure": int(sure.sum()), "sure_true": int((sure & world.graph).sum()), "edges": int(world.graph.sum())}


def _of_pairs(directed: np.ndarray, bidirected: np.ndarray, world: World) -> dict[str, Any]:
    """Scores of the pairs that are truly joined: how much speaks for a hidden cause rather than an effect."""
    first, second = np.nonzero(np.triu(world.graph | world.graph.T | world.hidden, k=1))
    effect = directed[first, second] + directed[second, first]
    cause = bidirected[first, second]
    share = np.where(effect + cause > 0, cause / np.maximum(effect + cause, 1e-12), 0.5)
    called = np.triu(bidirected >= CONFOUNDED, k=1)
    return {
        "scores": np.round(share, 4).tolist(),
        "confounded": world.hidden[first, second].astype(int).tolist(),
        "called": int(called.sum()),
        "called_true": int((called & world.hidden).sum()),
        "ap": average_precision(directed, world.graph),
        **_of_edges(directed, world),
    }


def _strength(seed: int) -> dict[str, Any]:
    """A table with a hidden cause u of a and b: is the sign of the effect adjusted for u that of the one without, and
    does the curve promise it?"""
    rng = np.random.default_rng([seed, 7])
    u, c, e = rng.standard_normal((3, STRENGTH_ROWS))
    strong, effect = rng.uniform(-1.5, 1.5, 2), rng.uniform(-0.6, 0.6)
    a = 0.8 * c + 0.8 * e + strong[0] * u + rng.standard_normal(STRENGTH_ROWS)
    b = effect * a + strong[1] * u + rng.standard_normal(STRENGTH_ROWS)
    table = pd.DataFrame({"a": a, "b": b, "c": c, "e": e})
    apart = (("b", "a"), ("c", "b"), ("e", "b"), ("c", "e"), ("e", "c"))
    known = vcuda.Knowledge(required=(("c", "a"), ("e", "a")), forbidden=apart)
    posterior = vcuda.fit(table, model="linear", noise="unequal", knowledge=known, checks=False)
    found = posterior.sensitivity("a", "b")
    columns = {name: own - own.mean() for name, own in {"a": a, "b": b, "c": c, "e": e, "u": u}.items()}
    strength = max(_share(columns, "a", "u", "ce"), _share(columns, "b", "u", "ace"))
    signs = [np.sign(_slope(columns, given)) for given in ("ce", "ceu")]
    return {
        "promised": bool(strength < found.holds_up_to()),
        "holds": bool(signs[0] == signs[1]),
        "strength": strength,
        "holds_up_to": found.holds_up_to(),
    }


def _left(columns: dict[str, np.ndarray], of: str, given: str) -> np.ndarray:
    design = np.stack([columns[name] for name in given], axis=1)
    return columns[of] - design @ np.linalg.lstsq(design, columns[of], rcond=None)[0]


def _share(columns: dict[str, np.ndarray], of: str, by: str, given: str) -> float:
    return float(1 - _left(columns, of, given + by).var() / _left(columns, of, given).var())


def _slope(columns: dict[str, np.ndarray], given: str) -> float:
    cause = _left(columns, "a", given)
    return float(cause @ columns["b"] / (cause @ cause))


def auc(scores: np.ndarray, positive: np.ndarray) -> float:
    """The chance that a positive scores above a negative one; half for a tie."""
    high, low = scores[positive], scores[~positive]
    return float(np.mean((high[:, None] > low) + 0.5 * (high[:, None] == low)))


def tables(lines: Sequence[Line]) -> str:
    parts = [_holds_table(lines), _pairs_table(lines), _strength_words(lines)]
    return "\n\n".join(part for part in parts if part)


def _holds_table(lines: Sequence[Line]) -> str:
    by_case = grouped([line for line in lines if line["what"] == "holds"], ("columns", "hidden", "method"))
    rows = []
    for (columns, hidden, method), own in sorted(by_case.items(), key=str):
        sure, true, edges = (sum(line[key] for line in own) for key in ("sure", "sure_true", "edges"))
        rows.append((columns, hidden, method, len(own), *_true_of(true, sure, edges)))
        if "holding_sure" in own[0]:
            sure, true = (sum(line[f"holding_{key}"] for line in own) for key in ("sure", "sure_true"))
            rows.append((columns, hidden, "holds_with_hidden_causes", len(own), *_true_of(true, sure, edges)))
    if not rows:
        return ""
    head = ("columns", "hidden causes", "stated by", "sets", "truly direct, of edges >= 90 %", "share", "recall")
    about = "Edges that are stated as sure, and how many of them are direct effects (1,000 rows, 1.5 effects a column):"
    return f"{about}\n\n{markdown(head, rows)}"


def _true_of(true: int, stated: int, edges: int) -> tuple[str, str, str]:
    return f"{true:,} of {stated:,}", f"{true / stated:.3f}" if stated else "-", f"{true / edges:.2f}"


def _pairs_table(lines: Sequence[Line]) -> str:
    by_case = grouped([line for line in lines if line["what"] == "pairs"], ("columns", "rows", "method"))
    rows = []
    for (columns, count, method), own in sorted(by_case.items(), key=str):
        scores = np.concatenate([line["scores"] for line in own])
        positive = np.concatenate([line["confounded"] for line in own]).astype(bool)
        called = f"{sum(line['called_true'] for line in own)} of {sum(line['called'] for line in own)}"
        ap = np.mean([line["ap"] for line in own])
        seconds = np.mean([line["seconds"] for line in own])
        pairs = f"{positive.sum()} and {(~positive).sum()}"
        rated = (f"{auc(scores, positive):.3f}", called, f"{ap:.3f}", f"{seconds:.1f}")
        rows.append((columns, count, method, len(own), pairs, *rated))
    if not rows:
        return ""
    called_words = "right, of pairs called confounded"
    head = ("columns", "rows", "method", "sets", "pairs of both kinds", "AUC", called_words, "directed AP", "seconds")
    about = (
        "Pairs that share a hidden cause against pairs with a direct effect (one effect a column): the chance that the "
        "first has the higher share of its probability on a hidden cause (AUC; .5 is guessing), pairs called so "
        "at >= 80 %, and how "
        "well direct effects are ranked among all ordered pairs. FCI counts `<->` as one, `->` as zero, and what it "
        "leaves open as half:"
    )
    return f"{about}\n\n{markdown(head, rows)}"


def _strength_words(lines: Sequence[Line]) -> str:
    own = [line for line in lines if line["what"] == "strength"]
    if not own:
        return ""
    promised = [line for line in own if line["promised"]]
    others = [line for line in own if not line["promised"]]
    right, also = (sum(line["holds"] for line in some) for some in (promised, others))
    return (
        f"How strong a hidden cause would have to be: of {len(own)} tables with a hidden cause of a and b, in "
        f"{len(promised)} it was weaker than `sensitivity` asks for (probability .9), and in {right} of these the "
        f"effect adjusted for it has the sign of the stated one. In the other {len(others)} tables it has in {also}."
    )
