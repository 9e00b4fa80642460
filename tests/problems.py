"""Engines and baselines run on plain tables, as their own tests do."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from vcuda.baselines import BASELINES
from vcuda.dags.base import DagPrior
from vcuda.data.dataset import Dataset
from vcuda.data.reading import as_dataset
from vcuda.data.scaling import Scaling
from vcuda.infer.driver import run
from vcuda.infer.edge_prior import EdgePrior
from vcuda.infer.engine import Problem
from vcuda.infer.engines import ENGINES
from vcuda.infer.scored import ScoredTable
from vcuda.posterior.posterior import Outcome


def run_baseline(spec: Any, data: Dataset, *, seed: int, **options: Any) -> Outcome:
    return run(BASELINES[spec.name], spec, Problem(data, seed), **options)


def run_trained(spec: Any, data: Dataset, *, model: Any, prior: DagPrior, seed: int, **options: Any) -> Outcome:
    return run(ENGINES["straight-through"], spec, Problem(data, seed, prior, model=model), **options)


def run_variational(
    spec: Any, score: Any, prior: EdgePrior, *, seed: int, names: Sequence[str] | None = None, **options: Any
) -> Outcome:
    """On a prepared score; the table is nobody's, since only predictions need it."""
    data = as_dataset(np.random.default_rng(0).normal(size=(5, score.nodes)), names=names)
    table = ScoredTable(data, score, Scaling(np.zeros(data.d), np.ones(data.d)), 0.0)
    return run(ENGINES["variational"], spec, Problem.of_score(table, seed=seed, edges=prior), **options)
