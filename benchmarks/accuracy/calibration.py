"""Truth drawn from the model's own prior: an engine without error is then calibrated, edge by edge.

A node is x_j = b_j + w'x_parents + noise. Given the noise variance v_j, the intercept b_j is N(0, v_j / alpha) with
alpha = 1 row's worth of prior, as all linear scores have it. Integrating it out adds n alpha / (n + alpha) times the
products of the columns' means to their centred Gram matrix; the scores that `fit` uses take the prior of the intercept
around the columns' own means instead, and scale the prior of the noise by the columns' own scales. In ``"prior units"``
neither is done, so that the score is exactly the law of the drawn tables; ``"raw"`` is what `fit` would do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import wishart

from benchmarks.accuracy.cases import Case
from vcuda.dags.base import DagPrior
from vcuda.data.reading import as_dataset
from vcuda.data.scaling import Scaling
from vcuda.infer.driver import run
from vcuda.infer.edge_prior import edge_prior
from vcuda.infer.engine import Problem
from vcuda.infer.engines import ENGINES as METHODS
from vcuda.infer.exact import exact_posterior
from vcuda.infer.orders import Orders, run_orders
from vcuda.infer.scored import ScoredTable
from vcuda.infer.variational import Variational
from vcuda.models.linear import BGe, BGeScore, EqualNoise, EqualNoiseScore, SharedNoise

BINS = 10
INTERCEPT_ROWS = 1.0
SPECS: dict[str, EqualNoise | BGe] = {"unit": EqualNoise(variance=1.0), "equal": EqualNoise(), "unequal": BGe()}

LinearScore = EqualNoiseScore | SharedNoise | BGeScore


class Drawn(NamedTuple):
    """A table (n, d) and the graph (d, d) that made it."""

    values: np.ndarray
    truth: np.ndarray


def draw(noise: str, nodes: int, rows: int, rng: np.random.Generator) -> Drawn:
    """Draw order, edges, weights, noise variances and rows from the prior of a linear score."""
    probability = DagPrior.for_nodes(nodes).edge_probability
    spec = SPECS[noise]
    shared = 1.0
    if isinstance(spec, EqualNoise) and noise == "equal":
        shared = spec.noise_scale / rng.gamma(spec.noise_shape)
    truth = np.zeros((nodes, nodes), dtype=bool)
    values = np.zeros((rows, nodes))
    order = rng.permutation(nodes)
    for place, node in enumerate(order.tolist()):
        parents = order[:place][rng.random(place) < probability]
        if isinstance(spec, BGe):
            weights, variance = _normal_wishart(spec, parents.size, rng)
        else:
            weights, variance = np.sqrt(spec.weight_variance) * rng.standard_normal(parents.size), shared
        intercept = rng.normal(0.0, np.sqrt(variance / INTERCEPT_ROWS))
        noise_drawn = np.sqrt(variance) * rng.standard_normal(rows)
        values[:, node] = intercept + values[:, parents] @ weights + noise_drawn
        truth[parents, node] = True
    return Drawn(values, truth)


def score_of(noise: str, values: np.ndarray, *, prior_units: bool) -> LinearScore:
    """The score of a drawn table: as `fit` prepares it, or in the units of the prior."""
    prepared = SPECS[noise].prepare(values)
    if not prior_units:
        return prepared
    rows, mean = len(values), values.mean(axis=0)
    centred = values - mean
    gram = centred.T @ centred + rows * INTERCEPT_ROWS / (rows + INTERCEPT_ROWS) * np.outer(mean, mean)
    if isinstance(prepared, SharedNoise):
        return replace(prepared, known=replace(prepared.known, gram=gram, log_jacobian=0.0))
    return replace(prepared, gram=gram, log_jacobian=0.0)


def measure_block(case: Case, sets: int) -> dict[str, Any]:
    """Pool the stated probabilities and the truths of so many data sets; the same for every engine."""
    probability = DagPrior.for_nodes(case.nodes).edge_probability
    apart = ~np.eye(case.nodes, dtype=bool)
    pairs, stated, true = np.zeros(BINS), np.zeros(BINS), np.zeros(BINS)
    squares, statuses = 0.0, Counter[str]()
    if case.noise is None:
        raise ValueError(f"calibration needs the noise of its score: {case}")
    for number in range(sets):
        rng = np.random.default_rng([list(SPECS).index(case.noise), case.nodes, case.rows, case.index, number])
        values, truth = draw(case.noise, case.nodes, case.rows, rng)
        score = score_of(case.noise, values, prior_units=case.columns == "prior units")
        edges, status = ENGINES[case.engine](score, values, probability, number)
        statuses[status] += 1
        given, labels = edges[apart], truth[apart]
        which = np.minimum((given * BINS).astype(np.int64), BINS - 1)
        pairs += np.bincount(which, minlength=BINS)
        stated += np.bincount(which, weights=given, minlength=BINS)
        true += np.bincount(which, weights=labels, minlength=BINS)
        squares += float(np.sum((given - labels) ** 2))
    return {
        "sets": sets,
        "bin_pairs": pairs.astype(int).tolist(),
        "bin_stated": stated.tolist(),
        "bin_true": true.astype(int).tolist(),
        "squared_errors": squares,
        "statuses": dict(statuses),
    }


def _normal_wishart(spec: BGe, parents: int, rng: np.random.Generator) -> tuple[np.ndarray, float]:
    """Weights (k,) and noise variance of a node: the conditional law under the prior of it and its parents.

    The precision matrix of so many variables together is Wishart with alpha_w - d + (k + 1) degrees of freedom.
    """
    scale = spec.mean_rows * (spec.excess - 1) / (spec.mean_rows + 1)
    drawn = wishart.rvs(spec.excess + parents + 1, np.eye(parents + 1) / scale, random_state=rng)
    precision = np.atleast_2d(drawn)
    return -precision[-1, :-1] / precision[-1, -1], float(1 / precision[-1, -1])


def _exact(score: LinearScore, values: np.ndarray, probability: float, seed: int) -> tuple[np.ndarray, str]:
    rng = np.random.default_rng(seed)
    result = exact_posterior(score, edge_prior(score.nodes, probability), samples=1, rng=rng)
    return result.edge_probabilities, "ok"


def _orders(score: LinearScore, values: np.ndarray, probability: float, seed: int) -> tuple[np.ndarray, str]:
    result = run_orders(Orders(), score, edge_prior(score.nodes, probability), samples=1, seed=seed)
    return result.edge_probabilities, result.status.code


def _variational(score: LinearScore, values: np.ndarray, probability: float, seed: int) -> tuple[np.ndarray, str]:
    data = as_dataset(values)
    table = ScoredTable.of(data, data, score, Scaling(np.zeros(data.d), np.ones(data.d)))
    problem = Problem.of_score(table, seed=seed, edges=edge_prior(data.d, probability))
    outcome = run(METHODS["variational"], Variational(), problem)
    return outcome.graph_posterior.edge_probabilities(), outcome.status.code


ENGINES: dict[str, Callable[[LinearScore, np.ndarray, float, int], tuple[np.ndarray, str]]] = {
    "exact": _exact,
    "orders": _orders,
    "variational": _variational,
}
