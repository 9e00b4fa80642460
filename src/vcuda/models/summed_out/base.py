"""What scores with nuisance sets share: their prior, what is drawn given the parents, what engines see."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from vcuda.data.scaling import Scaling
from vcuda.models.prediction import Predictive
from vcuda.models.protocol import LocalScore, WrappedScore


class NuisancePrior(NamedTuple):
    """What is known of the nuisance columns (m of them, behind the d nodes) as parents of the nodes, each (m, d).

    ``log_odds`` of each edge, minus infinity where it cannot be; ``log_absent``, what its absence adds; ``required``.
    What is required has 0 for both numbers.
    """

    log_odds: np.ndarray
    log_absent: np.ndarray
    required: np.ndarray

    def free(self, target: int) -> np.ndarray:
        """The columns, counted from 0, that may be parents or not."""
        return np.flatnonzero(np.isfinite(self.log_odds[:, target]) & ~self.required[:, target])

    def certain(self, target: int) -> np.ndarray:
        return np.flatnonzero(self.required[:, target])

    def constant(self, target: int) -> float:
        """What the absence of all edges adds."""
        return float(self.log_absent[self.free(target), target].sum())


class NuisancePosterior(NamedTuple):
    """The nuisance columns (m) of one node given its parents among the nodes.

    Sets as rows of booleans (s, m) with their probabilities (s,), and probabilities (m,) of the columns that are in
    none of them and stand each by itself.
    """

    sets: np.ndarray
    probabilities: np.ndarray
    apart: np.ndarray

    def marginals(self) -> np.ndarray:
        """The probability (m,) of each column."""
        return self.probabilities @ self.sets + self.apart

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """One set, as the columns in it."""
        chosen = self.sets[rng.choice(self.probabilities.size, p=self.probabilities)]
        return np.flatnonzero(chosen | (rng.random(self.apart.size) < self.apart))


class SummedOutScore(WrappedScore):
    """What the ways to sum have in common: ``inner`` is a score of d nodes and m more columns behind them."""

    inner: LocalScore
    prior: NuisancePrior
    jacobian: float

    # Which lags there are tells the order of columns.
    score_equivalent = False
    cheap_tables = False
    makes_all_tables = False
    slow_sets = False
    shares_sets = False
    columns = None
    costs = MappingProxyType[str, Any]({})

    @property
    def nodes(self) -> int:
        return int(self.prior.log_odds.shape[1])

    @property
    def log_jacobian(self) -> float:
        """Of the nodes alone."""
        return self.jacobian

    def nuisance_posteriors(self, target: int, sets: Sequence[Sequence[int]]) -> Iterator[NuisancePosterior]:
        """The nuisance columns of a node given each of some sets of parents."""
        raise NotImplementedError

    def screen(self) -> None:
        return None

    def start_order(self, *given: Any, **more: Any) -> None:
        return None

    def regressions(self) -> None:
        return None

    def predictive_in(self, units: Scaling) -> Predictive | None:
        # That of the wide table predicts.
        return None

    def _is_free(self, target: int) -> bool:
        """Whether a node was left free by experiments in any row."""
        return bool(self.inner.free_rows[target])
