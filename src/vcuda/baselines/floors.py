"""The honest floor: what must be beaten before a method can be said to have learned anything."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from vcuda.baselines.base import check_options, found, ranking
from vcuda.dags.bulk import BulkSampler
from vcuda.data.dataset import Dataset
from vcuda.infer.engine import Engine, Info, Plan, interrupted
from vcuda.posterior.posterior import Outcome, Status
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


class AtOnce(Engine[None]):
    """What takes no steps: all is done at the end."""

    stores_state = False

    def init(self) -> None:
        return None

    def is_done(self, state: None) -> bool:
        return True


class NoGraph(AtOnce):
    """The empty graph, whatever the data."""

    def finish(self, state: None, stopped: str | None) -> Outcome:
        table = self.problem.table
        nothing = np.zeros((table.d, table.d))
        status = Status("ok", "The empty graph, as asked for: the data were not looked at.")
        return found(self.problem, GraphSamples.from_dense(table.names, nothing > 0), nothing, status, {})


class RandomGraphs(AtOnce):
    """Random DAGs, whatever the data."""

    def finish(self, state: None, stopped: str | None) -> Outcome:
        spec, table = self.spec, self.problem.table
        # A node has (d - 1) / 2 predecessors in the mean.
        given_order = min(2 * spec.parents / max(table.d - 1, 1), 1.0)
        rng = np.random.default_rng(self.problem.seed)
        sampler = BulkSampler.from_sparse(table.d, background=given_order)
        lists = sampler.sample_many(rng, rng.random((spec.samples, table.d)))
        return found(
            self.problem,
            samples=GraphSamples.from_counts(table.names, *lists),
            scores=ranking(np.full((table.d, table.d), given_order / 2)),
            status=Status("ok", "Random graphs, as asked for: the data were not looked at."),
            diagnostics={"edge_probability": given_order / 2},
        )


class Regressed(NamedTuple):
    """Weights ``(d, d)`` of the regressions of the first ``done`` columns in order; the first column has none."""

    weights: np.ndarray
    done: int


class SortedRegressions(Engine[Regressed]):
    """Regress every column on those before it by a lasso that the BIC chooses; scores are absolute weights.

    O(n d²) for each column.
    """

    def init(self) -> Regressed:
        data, rng = self.problem.rows, np.random.default_rng(self.problem.seed)
        # Ties in random order: standardised columns differ by rounding alone, and a table's order is no evidence.
        self.order = np.lexsort((rng.random(data.d), np.round(_SORTED_BY[self.spec.name](data, rng), 9)))
        self.centred = data.values - data.mean
        return Regressed(np.zeros((data.d, data.d)), 1)

    def is_done(self, state: Regressed) -> bool:
        return state.done >= self.problem.table.d

    def advance(self, state: Regressed, plan: Plan) -> tuple[Regressed, Info]:
        before, target = self.order[: state.done], self.order[state.done]
        weights = state.weights.copy()
        weights[before, target] = _adaptive_lasso(self.centred[:, before], self.centred[:, target])
        done = state.done + 1
        return Regressed(weights, done), Info(0, done, self.problem.table.d, "regressing columns")

    def finish(self, state: Regressed, stopped: str | None) -> Outcome:
        names, scores = self.problem.table.names, ranking(np.abs(state.weights))
        early = interrupted(stopped, f"{state.done} of {len(names)} columns")
        return found(
            self.problem,
            samples=GraphSamples.from_dense(names, scores > 0),
            scores=scores,
            status=early or Status("ok", "All columns were regressed."),
            diagnostics={"order": [names[node] for node in self.order]},
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
    # The BIC needs the noise variance, which least squares cannot tell when there are not more rows than columns.
    known = None if rows > columns + 1 else float(target.var())
    with _quiet, warnings.catch_warnings():
        warnings.simplefilter("ignore", LassoWarning)  # columns that are copies of each other are left out, and said so
        lasso = LassoLarsIC(criterion="bic", noise_variance=known).fit(inputs * first, target)
    return lasso.coef_ * first
