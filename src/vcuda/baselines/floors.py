"""The honest floor: what must be beaten before a method can be said to have learned anything."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from vcuda.baselines.base import BaselineResult, Course, check_options, ranking
from vcuda.dags.bulk import BulkSampler
from vcuda.data.dataset import Dataset
from vcuda.infer.progress import ProgressCallback, silent
from vcuda.posterior.posterior import Status
from vcuda.posterior.samples import GraphSamples


class _OnePreset:
    """For methods of which there is one version only, and no choice of a model."""

    models: ClassVar[dict[str, dict[str, Any]]] = {}

    @classmethod
    def reference(cls, **changes: Any) -> Self:
        return replace(cls(), **changes)  # type: ignore[type-var]

    @classmethod
    def corrected(cls, **changes: Any) -> Self:
        return cls.reference(**changes)


@dataclass(frozen=True)
class EmptyGraph(_OnePreset):
    """No edge at all: its structural Hamming distance is the number of true edges."""

    name: ClassVar[str] = "empty"


@dataclass(frozen=True)
class BaseRate(_OnePreset):
    """Every edge with the same probability: random orders, and independent edges along them.

    Parameters
    ----------
    parents
        The expected number of parents of a node.
    samples
        The graphs drawn; the scores are exact.
    """

    parents: float = 1.0
    samples: int = 1000
    name: ClassVar[str] = "base-rate"

    def __post_init__(self) -> None:
        check_options(self, at_least={"parents": 0, "samples": 1})


@dataclass(frozen=True)
class VarianceSort(_OnePreset):
    """Sort-n-regress of Reisach, Seiler and Weichwald (2021): columns in the order of their variances.

    On simulated data the variance tends to rise along the causal order, which says nothing of the world.
    """

    name: ClassVar[str] = "variance-sort"


@dataclass(frozen=True)
class R2Sort(_OnePreset):
    """Sort-n-regress in the order of how well all other columns explain each (Reisach et al. 2023).

    The share R² of the variance that linear regression on all others explains does not depend on units.
    """

    name: ClassVar[str] = "r2-sort"


@dataclass(frozen=True)
class RandomSort(_OnePreset):
    """Sort-n-regress in a random order: what regression alone is worth."""

    name: ClassVar[str] = "random-sort"


def run_empty(
    spec: EmptyGraph,
    data: Dataset,
    *,
    seed: int,
    progress: ProgressCallback = silent,
    deadline: float | None = None,
) -> BaselineResult:
    """The empty graph, whatever the data."""
    nothing = np.zeros((data.d, data.d))
    status = Status("ok", "The empty graph, as asked for: the data were not looked at.")
    return BaselineResult(GraphSamples.from_dense(data.names, nothing > 0), nothing, status, {}, {})


def run_base_rate(
    spec: BaseRate,
    data: Dataset,
    *,
    seed: int,
    progress: ProgressCallback = silent,
    deadline: float | None = None,
) -> BaselineResult:
    """Random DAGs, whatever the data."""
    # A node has (d - 1) / 2 predecessors in the mean.
    given_order = min(2 * spec.parents / max(data.d - 1, 1), 1.0)
    rng = np.random.default_rng(seed)
    sampler = BulkSampler.from_sparse(data.d, background=given_order)
    lists = sampler.sample_many(rng, rng.random((spec.samples, data.d)))
    return BaselineResult(
        samples=GraphSamples.from_counts(data.names, *lists),
        scores=ranking(np.full((data.d, data.d), given_order / 2)),
        status=Status("ok", "Random graphs, as asked for: the data were not looked at."),
        diagnostics={"edge_probability": given_order / 2},
        trace={},
    )


def run_sorted(
    spec: VarianceSort | R2Sort | RandomSort,
    data: Dataset,
    *,
    seed: int,
    progress: ProgressCallback = silent,
    deadline: float | None = None,
) -> BaselineResult:
    """Regress every column on those before it by a lasso that the BIC chooses; scores are absolute weights.

    O(n d²) for each column.
    """
    rng = np.random.default_rng(seed)
    # Ties in random order: standardised columns differ by rounding alone, and the order of a table is no evidence.
    order = np.lexsort((rng.random(data.d), np.round(_SORTED_BY[spec.name](data, rng), 9)))
    centred = data.values - data.mean
    weights = np.zeros((data.d, data.d))
    course, done = Course(progress, deadline), 1
    with course.underway():
        while done < data.d:
            before, target = order[:done], order[done]
            weights[before, target] = _adaptive_lasso(centred[:, before], centred[:, target])
            done += 1
            course.tell(done, data.d, "regressing columns")
    scores = ranking(np.abs(weights))
    return BaselineResult(
        samples=GraphSamples.from_dense(data.names, scores > 0),
        scores=scores,
        status=course.interrupted(f"{done} of {data.d} columns") or Status("ok", "All columns were regressed."),
        diagnostics={"order": [data.names[node] for node in order]},
        trace={},
    )


def _explained_share(data: Dataset, rng: np.random.Generator) -> np.ndarray:
    """R² of every column given all others, ``(d,)``, from the inverse of the correlations."""
    standardised = data.standardised()
    correlation = standardised.T @ standardised / data.n
    # The pseudo-inverse is the inverse where there is one; copies of a column would otherwise divide by zero.
    precision = np.diag(np.linalg.pinv(correlation, hermitian=True))
    return 1 - 1 / np.maximum(precision, 1.0)


_SORTED_BY: dict[str, Callable[[Dataset, np.random.Generator], np.ndarray]] = {
    VarianceSort.name: lambda data, rng: np.log(np.maximum(data.scale, np.finfo(float).tiny)),
    R2Sort.name: _explained_share,
    RandomSort.name: lambda data, rng: rng.random(data.d),
}


# Filters of warnings are the whole process's: two threads that set and restore them in turn could leave them changed.
_quiet = threading.Lock()


def _adaptive_lasso(inputs: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Weights ``(k,)`` of a lasso on inputs multiplied by their least-squares weights, which spares the strong ones."""
    from sklearn.exceptions import ConvergenceWarning as LassoWarning
    from sklearn.linear_model import LassoLarsIC

    rows, columns = inputs.shape
    first = np.abs(np.linalg.lstsq(inputs, target, rcond=None)[0])
    # The BIC needs the noise variance, which least squares cannot estimate when there are not more rows than columns.
    known = None if rows > columns + 1 else float(target.var())
    with _quiet, warnings.catch_warnings():
        warnings.simplefilter("ignore", LassoWarning)  # columns that are copies of each other are left out, and said so
        lasso = LassoLarsIC(criterion="bic", noise_variance=known).fit(inputs * first, target)
    return lasso.coef_ * first
