"""A table of every kind of column with its true causal model, for tests of the mixed family."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.special import expit

from vcuda.data.dataset import Dataset
from vcuda.data.kinds import Kind
from vcuda.models.mixed import MixedPredictive
from vcuda.posterior.posterior import Posterior, Status
from vcuda.posterior.provenance import Provenance
from vcuda.posterior.sampled import SampledGraphs
from vcuda.posterior.samples import GraphSamples

NAMES = ("age", "sex", "region", "smoker", "visits", "income", "grade", "plan")
KINDS: tuple[Kind, ...] = ("number", "yes/no", "label", "yes/no", "count", "number", "ordered", "label")
LABELS = (None, ("f", "m"), ("east", "north", "west"), ("no", "yes"), None, None, None, ("basic", "family", "gold"))
EDGES = (
    ("sex", "smoker"),
    ("age", "visits"),
    ("smoker", "visits"),
    ("age", "income"),
    ("region", "income"),
    ("smoker", "grade"),
    ("visits", "grade"),
    ("sex", "plan"),
    ("income", "plan"),
    ("grade", "plan"),
)
LOGARITHM = np.array([name == "income" for name in NAMES])


def simulated(rows: int, seed: int, setting: Mapping[str, float] | None = None) -> np.ndarray:
    """Rows (n, 8) of the true model, in which an experiment may set columns."""
    rng = np.random.default_rng(seed)
    found: dict[str, np.ndarray] = {}

    def add(name: str, values: np.ndarray) -> None:
        wanted = (setting or {}).get(name)
        found[name] = np.asarray(values, dtype=np.float64) if wanted is None else np.full(rows, float(wanted))

    def one_of(scores: list[np.ndarray]) -> np.ndarray:
        raised = np.exp(np.stack(scores, axis=1))
        below = np.cumsum(raised / raised.sum(axis=1, keepdims=True), axis=1)[:, :-1]
        return (below < rng.random(rows)[:, None]).sum(axis=1)

    add("age", 50 + 10 * rng.standard_normal(rows))
    add("sex", rng.random(rows) < 0.5)
    add("region", one_of([np.zeros(rows) + height for height in (0.5, 0.0, -0.5)]))
    old = (found["age"] - 50) / 10
    add("smoker", rng.random(rows) < expit(-1.0 + 1.5 * found["sex"]))
    add("visits", rng.poisson(np.exp(0.5 + 0.3 * old + 0.6 * found["smoker"])))
    add("income", np.exp(8 + 0.2 * old + 0.5 * (found["region"] == 1) + 0.25 * rng.laplace(size=rows)))
    illness = 1.2 * found["smoker"] + 0.3 * found["visits"] + rng.logistic(size=rows)
    add("grade", 1 + sum((illness > threshold).astype(float) for threshold in (0.0, 1.5, 3.0)))
    rich = (np.log(found["income"]) - 8) / 0.4
    add("plan", one_of([np.zeros(rows), 0.8 * found["sex"] - 0.5, 0.9 * rich + 0.4 * (found["grade"] - 2.5) - 0.8]))
    return np.stack([found[name] for name in NAMES], axis=1)


def dataset(rows: int = 1000, seed: int = 0) -> Dataset:
    return Dataset(NAMES, simulated(rows, seed), kinds=KINDS, categories=LABELS)


def samples(*graphs: tuple[tuple[str, str], ...]) -> GraphSamples:
    """Graphs of equal weight from their edges."""
    ends = [[(NAMES.index(source), NAMES.index(target)) for source, target in edges] for edges in graphs]
    flat = np.array([end for edges in ends for end in edges], dtype=np.int64).reshape(-1, 2)
    return GraphSamples.from_counts(NAMES, np.array([len(edges) for edges in ends]), flat[:, 0], flat[:, 1])


def posterior(data: Dataset | None = None, *graphs: tuple[tuple[str, str], ...]) -> Posterior:
    """A posterior of the true graph, or of those given, for the mixed family."""
    table = dataset() if data is None else data
    pool = samples(*(graphs or (EDGES,)))
    marginals = np.zeros((len(NAMES), len(NAMES)))
    for k in range(len(pool)):
        marginals[pool.edges(k)] += 1 / len(pool)
    graph_posterior = SampledGraphs(pool, marginals, MixedPredictive.of(table, LOGARITHM))
    size = {"rows": table.n, "columns": table.d}
    made: dict[str, Any] = {
        "data": size | {"source": "simulated", "fingerprint": table.fingerprint, "notes": []},
        "model": {"name": "mixed"},
        "engine": {"name": "exact"},
        "prior": None,
        "preset": "default",
        "standardise": False,
        "seed": 0,
        "seconds": 0.0,
        "versions": {},
    }
    return Posterior(NAMES, graph_posterior, Status("ok", "Ok."), {}, {}, Provenance(made))
