"""A column as the family takes it: its values in the units of its likelihood, and its features as a cause."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from zlib import crc32

import numpy as np

from vcuda.data.kinds import grid_step
from vcuda.models.mixed.features import LINE, Features, LabelFeatures, Line, NumberFeatures
from vcuda.models.mixed.odds import Groups, cuts_of
from vcuda.models.mixed.ranks import NormalScores

# A number has steps where so large a share of the rows has one value.
SHARE_OF_STEP = 0.1


@dataclass(frozen=True, eq=False)
class Column:
    """One column of a table.

    Parameters
    ----------
    kind
        number, count, yes/no, ordered or label.
    levels
        The different values of a column that is coded, in order; empty for numbers and counts.
    line
        Of a number: what standardises it.
    features
        What it is to its effects.
    values
        (n,) those that it was made from.
    step
        Of a number that was rounded: the step of its grid, in the user's units.
    logarithm
        Whether the column is the logarithm of the user's.
    """

    kind: str
    levels: np.ndarray
    line: Line | None
    features: NumberFeatures | LabelFeatures
    values: np.ndarray
    step: float | None = None
    logarithm: bool = False

    @classmethod
    def of(cls, kind: str, values: np.ndarray, *, logarithm: bool = False) -> Column:
        """Describe a column (n,)."""
        nothing = np.zeros(0)
        if kind == "number":
            step = grid_step(np.exp(values) if logarithm else values)
            return cls(kind, nothing, Line.of(values), NumberFeatures.of(values), values, step, logarithm)
        if kind == "count":
            return cls(kind, nothing, None, NumberFeatures.of(np.sqrt(values)), values)
        levels = np.unique(values)
        codes = np.searchsorted(levels, values).astype(np.float64)
        features = NumberFeatures.of(codes) if kind == "ordered" else LabelFeatures.of(codes, levels.size)
        return cls(kind, levels, None, features, values)

    @cached_property
    def groups(self) -> Groups:
        """Values that are alike, for regressions on odds: every label, or values that lie beside each other."""
        is_label = self.kind in ("yes/no", "label")
        cuts = (self.levels[1:] + self.levels[:-1]) / 2 if is_label else cuts_of(self.values)
        return Groups.of(cuts, self.values, *self.expand(self.values))

    @cached_property
    def has_steps(self) -> bool:
        """Whether many rows share a value, which no density describes."""
        if not self.is_number:
            return True
        return bool(np.unique(self.values, return_counts=True)[1].max() >= SHARE_OF_STEP * self.values.size)

    @property
    def has_density(self) -> bool:
        """Whether a density can describe the column: steps must lie on a grid."""
        return not self.is_number or not self.has_steps or self.step is not None

    @property
    def is_number(self) -> bool:
        return self.kind == "number"

    def scaled(self, values: np.ndarray) -> np.ndarray:
        """Values (n,) in the units of the likelihood: standardised, counted, or codes."""
        if self.line is not None:
            return self.line.apply(values)
        return np.searchsorted(self.levels, values).astype(np.float64) if self.levels.size else values

    def to_explain(self, values: np.ndarray) -> np.ndarray:
        """Values (n,) as what is explained: in the units of the likelihood, and a rounded number drawn from the cell of
        its grid.

        A density could be as high as it likes at values that many rows share; directions that were read from it would
        be directions of the rounding.
        """
        if self.step is None:
            return self.scaled(values)
        rng = np.random.default_rng(crc32(values.tobytes()))
        width = np.minimum(self.step / np.exp(values), 1.0) if self.logarithm else self.step
        return self.scaled(values + width * rng.uniform(-0.5, 0.5, values.size))

    @cached_property
    def normal_scores(self) -> NormalScores:
        """From the normal scores of its ranks to its values, and back."""
        return NormalScores.of(self.values)

    def expand(self, values: np.ndarray) -> Features:
        """The features of values (n,)."""
        if self.kind == "count":
            return self.features.expand(np.sqrt(values))
        return self.features.expand(values if self.is_number else self.scaled(values))

    def straight_by_ranks(self, values: np.ndarray) -> np.ndarray:
        """The features of a straight description (p, n), numbers and counts on the scale of their ranks."""
        return self.expand(values).straight if self.levels.size else LINE * self.normal_scores.of_values(values)[None]

    def points(self, values: np.ndarray) -> np.ndarray:
        """Where rows lie by their values (n,), for a kernel, (n, k): the mean squared distance of two rows is two, and
        one label lies as far from another as any."""
        if self.kind not in ("yes/no", "label"):
            return self.expand(values).straight.T / LINE
        hit, shares = np.eye(self.levels.size), np.unique(self.values, return_counts=True)[1] / self.values.size
        return hit[self.scaled(values).astype(np.int64)] / np.sqrt(1 - (shares**2).sum())

    def log_width(self, values: np.ndarray) -> float:
        """The log of the width of the cells of the grid around values (n,), in the units of the likelihood, summed."""
        if self.line is None or self.step is None:
            return 0.0
        step = self.step / np.exp(values) if self.logarithm else np.full(values.size, self.step)
        return float(np.log(step / self.line.scale).sum())

    def log_jacobian(self, rows: int) -> float:
        """What the log density of so many values gains by going from the units of the likelihood to their own."""
        return 0.0 if self.line is None else -rows * float(np.log(self.line.scale))


def columns_of(kinds: Sequence[str], values: np.ndarray, logarithm: np.ndarray | None = None) -> tuple[Column, ...]:
    """Describe the columns of a table (n, d), of which those marked (d,) are logarithms."""
    marked = np.zeros(len(kinds), dtype=bool) if logarithm is None else logarithm
    return tuple(Column.of(kind, values[:, k], logarithm=bool(marked[k])) for k, kind in enumerate(kinds))
