"""Regressions on the odds of a column's values: what causes change of them, whatever the shape of the column.

Years of school, grouped incomes, ages at which people retire: half of the rows may share a value, and no density
describes that. A density would have to move such steps with every cause, and directions that were read from its failure
were wrong (docs/decisions.md). Odds do not mind, and explain a label by a number as well as the number by the label.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import gammaln

if TYPE_CHECKING:
    from vcuda.models.mixed.columns import Column

Set = tuple[int, ...]

# So few different values are all groups of their own. Of more a group has this share of the rows or more, and values
# that are as frequent are groups of their own.
FEW_VALUES = 24
SHARE_OF_GROUP = 1 / 16
# A prior of so many rows for each value (Jeffreys).
PRIOR_ROWS = 0.5


class Groups(NamedTuple):
    """Where groups end, ``cuts`` (k - 1,), and the mean features of each, ``straight`` (p, k) and ``smooth`` (q, k)."""

    cuts: np.ndarray
    straight: np.ndarray
    smooth: np.ndarray

    @classmethod
    def of(cls, cuts: np.ndarray, values: np.ndarray, straight: np.ndarray, smooth: np.ndarray) -> Groups:
        """From values (n,) and their features (p, n) and (q, n)."""
        member = np.searchsorted(cuts, values) == np.arange(cuts.size + 1)[:, None]
        shares = (member / np.maximum(member.sum(axis=1, keepdims=True), 1)).T
        return cls(cuts, straight @ shares, smooth @ shares)

    def place(self, values: np.ndarray) -> np.ndarray:
        """The group of each value (n,)."""
        return np.searchsorted(self.cuts, values)

    def scores(self, smooth: bool) -> np.ndarray:
        return self.smooth if smooth else self.straight


def cuts_of(values: np.ndarray) -> np.ndarray:
    """Where one group of values (n,) ends and the next begins."""
    present, rows = np.unique(values, return_counts=True)
    if present.size <= FEW_VALUES:
        return np.asarray((present[1:] + present[:-1]) / 2)
    enough = SHARE_OF_GROUP * values.size
    starts, filled = list[int](), 0
    for k, own in enumerate(rows.tolist()):
        if filled and (filled >= enough or own >= enough):
            starts.append(k)
            filled = 0
        filled += own
    first = np.array(starts, dtype=np.int64)
    return np.asarray((present[first - 1] + present[first]) / 2)


def log_evidence_of_values(values: np.ndarray) -> float:
    """The log evidence of values (n,) with probabilities of their own, a Dirichlet prior on them."""
    _, rows = np.unique(values, return_counts=True)
    size = PRIOR_ROWS * rows.size
    chances = (gammaln(rows + PRIOR_ROWS) - gammaln(PRIOR_ROWS)).sum()
    return float(gammaln(size) - gammaln(size + values.size) + chances)


class OddsRegressions:
    """What sets of causes explain of one column, on some rows.

    Parameters
    ----------
    groups
        For each column the group of each row (n,).
    before
        The same column on all rows, where the fits begin.
    """

    def __init__(
        self, target: int, columns: Sequence[Column], groups: Sequence[np.ndarray], before: OddsRegressions | None
    ) -> None:
        self.target, self.columns, self.groups, self.before = target, columns, groups, before
        self.weights: dict[tuple[Set, bool], np.ndarray] = {}
        self._without: dict[bool, float] = {}

    def gain(self, parents: Set, smooth: bool) -> float:
        """The log evidence of the groups with a set of causes, less that without any."""
        return self._log_evidence(parents, smooth) - self._log_evidence((), smooth) if parents else 0.0

    def _log_evidence(self, parents: Set, smooth: bool) -> float:
        if not parents and smooth in self._without:
            return self._without[smooth]
        # What compiles takes a while to import, and linear fits do without.
        from vcuda.models.glm.compiled_odds import fit_odds

        # Causes count by their groups, too: what one column explains of the other is then the same either way. Rows
        # whose causes are in the same groups count together.
        own = self.columns[self.target].groups.scores(smooth)
        place = np.zeros(self.groups[self.target].size, dtype=np.int64)
        for k in parents:
            place = place * (self.columns[k].groups.cuts.size + 1) + self.groups[k]
        _, first, place = np.unique(place, return_index=True, return_inverse=True)
        cells = own.shape[1] * place + self.groups[self.target]
        counts = np.bincount(cells, minlength=own.shape[1] * first.size).reshape(first.size, -1).T
        parts = [self.columns[k].groups.scores(smooth)[:, self.groups[k][first]] for k in parents]
        features = np.concatenate([np.zeros((0, first.size)), *parts])
        start = None if self.before is None else self.before.weights.get((parents, smooth))
        found = fit_odds(counts, own.T, features, start)
        if parents:
            self.weights[parents, smooth] = found.weights
        else:
            self._without[smooth] = found.log_evidence
        return found.log_evidence
