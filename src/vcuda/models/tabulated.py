"""A score that was computed before a search begins: a number for each set of parents that may count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from vcuda.data.scaling import Scaling
from vcuda.models.prediction import Predictive
from vcuda.models.protocol import LocalScore

Set = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class TabulatedScore(LocalScore):
    """Scores of listed sets of parents; all others have the score minus infinity.

    Parameters
    ----------
    scores
        For each column the scores of its sets, which are sorted tuples; among them every set without one of its
        members, so that a search can go step by step.
    """

    scores: tuple[Mapping[Set, float], ...]
    rows: int
    log_jacobian: float
    max_parents: int | None = field(default=None)
    forecast: Predictive | None = None

    cheap_tables = True

    @property
    def nodes(self) -> int:
        return len(self.scores)

    def table_seconds(self) -> float:
        # The scores are there, and are only put in their places.
        return 2e-6 * sum(len(own) for own in self.scores)

    def score(self, target: int, parents: Sequence[int]) -> float:
        return self.scores[target].get(tuple(sorted(int(parent) for parent in parents)), -np.inf)

    def table(self, target: int, candidates: np.ndarray) -> np.ndarray:
        found = np.full(1 << len(candidates), -np.inf)
        bits = {int(column): 1 << place for place, column in enumerate(candidates)}
        for parents, score in self.scores[target].items():
            if all(parent in bits for parent in parents):
                found[sum(bits[parent] for parent in parents)] = score
        return found

    def gains(self, target: int, parents: Sequence[int]) -> np.ndarray:
        own, chosen = self.scores[target], tuple(sorted(int(parent) for parent in parents))
        now = own.get(chosen, -np.inf)
        found = np.full(self.nodes, -np.inf)
        if np.isfinite(now):
            for other in range(self.nodes):
                if other != target and other not in chosen:
                    found[other] = own.get(tuple(sorted((*chosen, other))), -np.inf) - now
        return found

    def predictive_in(self, units: Scaling) -> Predictive | None:
        return self.forecast
