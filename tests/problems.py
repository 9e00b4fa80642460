"""Engines and baselines run on plain tables, as their own tests do."""

from typing import Any

import numpy as np

from vcuda.baselines import BASELINES
from vcuda.dags.base import DagPrior
from vcuda.data.dataset import Dataset
from vcuda.data.knowledge import EdgeRules
from vcuda.data.reading import as_dataset
from vcuda.infer.driver import run
from vcuda.infer.engine import Problem
from vcuda.infer.engines import ENGINES
from vcuda.infer.scored import ScoredTable
from vcuda.posterior.graph_posterior import Scaling
from vcuda.posterior.posterior import Outcome


def run_baseline(spec: Any, data: Dataset, *, seed: int, **options: Any) -> Outcome:
    return run(BASELINES[spec.name], spec, Problem(data, seed), **options)


def run_trained(spec: Any, data: Dataset, *, model: Any, prior: DagPrior, seed: int, **options: Any) -> Outcome:
    return run(ENGINES["straight-through"], spec, Problem(data, seed, prior, model=model), **options)


def scored_problem(
    score: Any, values: np.ndarray, *, edge_probability: float, seed: int, allowed=None, names=None, interventions=None
) -> Problem:
    """A prepared score of a table ``(n, d)``, or its spec."""
    data = as_dataset(values, names=names, interventions=interventions)
    prepared = score if hasattr(score, "nodes") else score.prepare(values)
    units = Scaling(np.zeros(data.d), np.ones(data.d))
    rules = None if allowed is None else EdgeRules(allowed, np.zeros_like(allowed), None)
    table = ScoredTable.of(data, prepared, units)
    return Problem.of_score(table, seed=seed, prior=DagPrior(edge_probability), rules=rules)


def run_variational(
    spec: Any, score: Any, values: np.ndarray, *, progress=None, deadline: float | None = None, **problem: Any
) -> Outcome:
    options = {} if progress is None else {"progress": progress}
    return run(ENGINES["variational"], spec, scored_problem(score, values, **problem), deadline=deadline, **options)
