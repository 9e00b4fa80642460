"""Rows that are steps in time, beside PCMCI+ of Tigramite and VARLiNGAM of lingam."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.metrics import average_precision_score

import vcuda
from benchmarks.records import Line, grouped, markdown
from benchmarks.worlds.peers import ask
from vcuda.graphs import topological_order_edges
from vcuda.summaries.impulses import ImpulseResponse

TITLE = "Rows that are steps in time"
LAGS, SURE = 2, 0.9
OURS, KEPT, PCMCI, PCMCI_CURVES, VARLINGAM = "vcuda", "vcuda, left in", "PCMCI+", "PCMCI+ (GPDC)", "VARLiNGAM"
# Sets of many columns that peers, which take minutes there, are run on.
PEERS_OF_MANY = 1
# Sets of curves that PCMCI+ has a test for curves on, which takes a minute each.
CURVES_SETS = 3
# No series goes farther.
LARGEST = 1e3
# Steps of responses that are compared with the truth, and pairs of columns of each set.
HORIZON, PAIRS = 6, 10


class Kind(NamedTuple):
    """One kind of series: columns, steps, what its functions and noise are, what is added to it, and how many sets."""

    nodes: int
    steps: int = 500
    functions: str = "linear"
    noise: str = "normal"
    added: str = ""
    sets: int = 10

    @property
    def words(self) -> str:
        own = [f"d = {self.nodes}"]
        if self.steps != 500:
            own.append(f"T = {self.steps}")
        own += [word for word in (self.functions, self.noise) if word not in ("linear", "normal")]
        return ", ".join(own + ([f"with {self.added}"] if self.added else []))


KINDS = (
    Kind(5),
    Kind(5, steps=200),
    Kind(5, functions="additive"),
    Kind(5, noise="Laplace"),
    Kind(10),
    Kind(10, functions="additive"),
    Kind(20),
    Kind(5, added="trend"),
    Kind(5, added="season"),
    Kind(5, added="units"),
    Kind(100, sets=3),
    Kind(20, functions="additive", sets=2),
)


def cases() -> list[dict[str, Any]]:
    found = []
    for number in range(10):
        for kind in KINDS:
            if number >= kind.sets:
                continue
            methods = [OURS, KEPT] if kind.added else [OURS, PCMCI, VARLINGAM]
            if kind.nodes >= 20 and number >= PEERS_OF_MANY:
                methods = [OURS]
            if kind == KINDS[2] and number < CURVES_SETS:
                methods.append(PCMCI_CURVES)
            found += [{**kind._asdict(), "method": method, "set": number} for method in methods]
    # What is quick comes first.
    return sorted(found, key=lambda case: (case["nodes"] > 10, case["nodes"] > 20))


class World(NamedTuple):
    """A table, and the weights (lags + 1, d, d) from which it was made, 0 where there is no effect."""

    table: pd.DataFrame
    weights: np.ndarray


def drawn(kind: Kind, seed: int) -> World:
    """A series whose columns have one expected cause within a step, one among earlier steps of others, and mostly their
    own last step; effects of .3 to .8 within a step, of .25 to .6 from earlier ones."""
    rng = np.random.default_rng([seed, kind.nodes, kind.steps, len(kind.functions + kind.noise + kind.added)])
    units = 10 if kind.added == "units" else 1
    values = np.full((1, 1), np.inf)
    # Weights are stable with lines; a circle of steep curves may still grow without end, and is drawn again.
    while not np.abs(values).max() < LARGEST:
        weights = _stable_weights(kind.nodes, rng)
        with np.errstate(over="ignore", invalid="ignore"):
            parts = [_simulated(kind, weights, rng, kind.steps // units) for _ in range(units)]
        values = np.concatenate(parts)
    step = np.concatenate([np.arange(len(part)) for part in parts])
    table = pd.DataFrame(values, columns=[f"x{k}" for k in range(kind.nodes)])
    scale = values.std(axis=0)
    if kind.added == "trend":
        table += scale * rng.uniform(1, 4, kind.nodes) * rng.choice([-1, 1], kind.nodes) * step[:, None] / kind.steps
    if kind.added == "season":
        phases = rng.standard_normal((12, kind.nodes)) * scale * rng.uniform(0.5, 1.5, kind.nodes)
        table += phases[step % 12]
    if kind.added == "units":
        names = np.repeat(np.arange(units), kind.steps // units)
        table += (rng.standard_normal((units, kind.nodes)) * 2 * scale)[names]
        table["unit"] = [f"unit {name}" for name in names]
    months = pd.date_range("1980-01-01", periods=int(step.max()) + 1, freq="MS").strftime("%Y-%m")
    table["month"] = months[step]
    return World(table, weights)


def _stable_weights(nodes: int, rng: np.random.Generator) -> np.ndarray:
    weights = np.zeros((LAGS + 1, nodes, nodes))
    order = rng.permutation(nodes)
    later = np.argsort(order)[:, None] < np.argsort(order)
    within = later & (rng.random((nodes, nodes)) < min(2 / (nodes - 1), 1))
    weights[0] = np.where(within, rng.uniform(0.3, 0.8, (nodes, nodes)) * rng.choice([-1, 1], (nodes, nodes)), 0)
    for _ in range(1000):
        past = rng.random((LAGS, nodes, nodes)) < 1 / (LAGS * nodes)
        sizes = rng.uniform(0.25, 0.6, past.shape) * rng.choice([-1, 1], past.shape)
        weights[1:] = np.where(past, sizes, 0)
        own = np.where(rng.random(nodes) < 0.8, rng.uniform(0.25, 0.6, nodes), 0)
        weights[1][np.diag_indices(nodes)] = own
        if _radius(weights) < 0.95:
            return weights
    # Of many columns no draw is stable: the past is made weaker.
    while _radius(weights) >= 0.95:
        weights[1:] *= 0.95
    return weights


def _radius(weights: np.ndarray) -> float:
    nodes = weights.shape[1]
    inverse = np.linalg.inv(np.eye(nodes) - weights[0])
    companion = np.eye(LAGS * nodes, k=-nodes)
    companion[:nodes] = np.concatenate([(one @ inverse).T for one in weights[1:]], axis=1)
    return float(np.abs(np.linalg.eigvals(companion)).max())


def _simulated(kind: Kind, weights: np.ndarray, rng: np.random.Generator, steps: int) -> np.ndarray:
    nodes = kind.nodes
    spread = rng.uniform(0.5, 1.5, nodes)
    noise = rng.standard_normal((steps + 100, nodes))
    if kind.noise == "Laplace":
        noise = rng.laplace(scale=np.sqrt(0.5), size=noise.shape)
    sources, targets = np.nonzero(weights[0])
    order = topological_order_edges(sources, targets, nodes).tolist()
    bends = rng.integers(4, size=weights.shape)
    functions = (np.tanh, np.sin, lambda x: np.abs(x) - 0.8, lambda x: 2 * x * np.exp(-0.5 * x**2))
    values = np.zeros((steps + 100, nodes))
    for t in range(LAGS, len(values)):
        for j in order:
            value = spread[j] * noise[t, j]
            for lag, i in np.argwhere(weights[:, :, j]):
                cause = values[t - lag, i]
                curved = kind.functions == "additive" and not (lag and i == j)
                weight = weights[lag, i, j] * (2 if curved else 1)
                value += weight * (functions[bends[lag, i, j]](cause) if curved else cause)
            values[t, j] = value
    return values[100:]


def measure(case: dict[str, Any], peers: str | None) -> dict[str, Any] | None:
    kind = Kind(**{name: case[name] for name in Kind._fields})
    world = drawn(kind, case["set"])
    if case["method"] not in (OURS, KEPT):
        values = world.table.iloc[:, : kind.nodes].to_numpy()
        answer = ask(peers, case["method"], {"values": values, "lags": LAGS})
        if answer is None:
            return None
        scores = np.array(answer.pop("scores"))
        return {**_accuracy(scores, world.weights), **answer}
    options: dict[str, Any] = {"time": "month"} | ({"unit": "unit"} if kind.added == "units" else {})
    table = world.table
    if case["method"] == KEPT:
        options = {"season": 0, "trend": "none"}
        table = table.iloc[:, : kind.nodes]
    begun, processor = time.perf_counter(), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        posterior = vcuda.fit(table, lags=LAGS, seed=case["set"], **options)
    spent = {"seconds": time.process_time() - processor, "wall": time.perf_counter() - begun}
    assert posterior.lagged is not None
    scores = posterior.lagged.by_lag(posterior.edge_probabilities.to_numpy())
    found: dict[str, Any] = {**_accuracy(scores, world.weights), **spent}
    for where, own in (("lagged", slice(1, None)), ("now", slice(0, 1))):
        sure = scores[own] >= SURE
        found |= {f"sure_{where}": int(sure.sum()), f"sure_{where}_true": int((sure & (world.weights[own] != 0)).sum())}
    found |= {"model": posterior.provenance.model_name, "status": posterior.status.code}
    if kind.functions == "linear" and kind.nodes <= 10 and not kind.added:
        found |= _responses(posterior, world.weights, case["set"])
    return found


def _accuracy(scores: np.ndarray, weights: np.ndarray) -> dict[str, float]:
    truth = weights != 0
    apart = ~np.eye(weights.shape[1], dtype=bool)
    return {
        "ap_lagged": float(average_precision_score(truth[1:].reshape(-1), scores[1:].reshape(-1))),
        "ap_now": float(average_precision_score(truth[0][apart], scores[0][apart])),
    }


def _responses(posterior: vcuda.Posterior, weights: np.ndarray, seed: int) -> dict[str, int]:
    """How many of the true responses that are not zero lie in their 90 % bands."""
    nodes = weights.shape[1]
    at_once = np.linalg.inv(np.eye(nodes) - weights[0])
    truth = [at_once]
    for step in range(1, HORIZON + 1):
        past = sum(truth[step - lag] @ weights[lag] for lag in range(1, min(step, LAGS) + 1))
        truth.append(past @ at_once)
    rng = np.random.default_rng(seed)
    pairs = [(i, j) for i in range(nodes) for j in range(nodes) if i != j]
    covered = asked = 0
    for k in rng.choice(len(pairs), min(PAIRS, len(pairs)), replace=False).tolist():
        i, j = pairs[k]
        response = posterior.effect(f"x{i}", f"x{j}", horizon=HORIZON, draws=400, seed=seed)
        assert isinstance(response, ImpulseResponse)
        table = response.table
        for step in range(HORIZON + 1):
            value = truth[step][i, j]
            if abs(value) > 0.01:
                asked += 1
                covered += bool(table["low"][step] <= value <= table["high"][step])
    return {"responses": asked, "responses_covered": covered}


def tables(lines: Sequence[Line]) -> str:
    """AP of lagged and contemporaneous edges, sure edges that are true, seconds, and covered responses."""
    by_case = grouped(lines, (*Kind._fields, "method"))
    rows = []
    for kind in KINDS:
        for method in (OURS, KEPT, PCMCI, PCMCI_CURVES, VARLINGAM):
            own = by_case.get((*kind, method), [])
            if own:
                rows.append([kind.words, method, len(own), *_cells(own)])
    head = ["series", "method", "sets", "AP lagged", "AP within a step", "sure lagged", "sure within a step", "seconds"]
    text = (
        f"T = 500 steps and {LAGS} lags unless said; the column sets counts those that were run. Sure: edges of at "
        "least 90 %, those that are true of all. Seconds are of one processor. PCMCI+ with partial correlations, or "
        "with GPDC on one set; VARLiNGAM by its weights. Trend, season and levels of units are left to the defaults, "
        "and left in for comparison.\n\n"
    )
    text += markdown(head, rows)
    asked = [line for line in lines if line.get("responses")]
    if asked:
        covered, every = sum(line["responses_covered"] for line in asked), sum(line["responses"] for line in asked)
        text += (
            f"\n\nImpulse responses up to {HORIZON} steps that are not zero: {covered:,} of {every:,} "
            f"({covered / every:.0%}) lie in their bands of 90 %, in {len(asked)} sets."
        )
    return text


def _cells(own: Sequence[Line]) -> list[str]:
    def mean(name: str) -> float:
        return float(np.mean([line[name] for line in own]))

    def sure(where: str) -> str:
        if f"sure_{where}" not in own[0]:
            return ""
        return f"{sum(line[f'sure_{where}_true'] for line in own):,} of {sum(line[f'sure_{where}'] for line in own):,}"

    return [f"{mean('ap_lagged'):.3f}", f"{mean('ap_now'):.3f}", sure("lagged"), sure("now"), f"{mean('seconds'):.2g}"]
