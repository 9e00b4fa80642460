"""Local score of tables of categories: BDeu, the evidence of one distribution for every combination of the
parents' values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from scipy.special import gammaln

from vcuda.data.categorical import all_labels
from vcuda.data.scaling import Scaling
from vcuda.errors import DataError
from vcuda.models.categorical.prediction import CategoricalPredictive
from vcuda.models.checks import check_max_parents, check_positive
from vcuda.models.protocol import LocalScore, ScoreSpec
from vcuda.models.sets import checked_candidates

if TYPE_CHECKING:
    from vcuda.data.dataset import Dataset
    from vcuda.data.streaming import StreamedTable

CACHE_BYTES = 128e6


@dataclass(frozen=True, eq=False)
class BDeuScore(LocalScore):
    """BDeu evidence from counts; log p(x_j | x_U) is the difference of two sums over the cells of tables of
    counts.

    Attributes
    ----------
    codes : (n, d) int64
        The categories of each column as 0, 1, 2, ...
    levels : (d,) int64
        How many categories each column has.
    """

    codes: np.ndarray
    levels: np.ndarray
    equivalent_sample_size: float
    max_parents: int
    log_jacobian: float = 0.0
    joints: dict[tuple[int, ...], float] = field(default_factory=dict)

    score_equivalent = True

    @property
    def nodes(self) -> int:
        return int(self.levels.size)

    @property
    def rows(self) -> int:
        return len(self.codes)

    def joint(self, columns: tuple[int, ...]) -> float:
        """Return the sum of log(Gamma(count + weight) / Gamma(weight)) over all combinations of these
        columns.

        The prior's weight is spread evenly over the combinations. The score of a family is this sum for child
        and parents less that for the parents alone, so it is the same for Markov equivalent graphs.
        """
        value = self.joints.get(columns)
        if value is None:
            counts = self._counts(columns)
            weight = self.equivalent_sample_size / float(np.prod(self.levels[list(columns)], dtype=np.float64))
            value = float(np.sum(gammaln(counts + weight)) - counts.size * gammaln(weight))
            if len(self.joints) * 200 > CACHE_BYTES:
                self.joints.pop(next(iter(self.joints)), None)
            self.joints[columns] = value
        return value

    def _counts(self, columns: tuple[int, ...]) -> np.ndarray:
        """Return the counts of the combinations that occur; the others add nothing."""
        code = np.zeros(len(self.codes), dtype=np.int64)
        cells = 1
        for column in columns:
            code = code * self.levels[column] + self.codes[:, column]
            cells *= int(self.levels[column])
            if cells > 16 * len(self.codes):
                # Numbered anew, so that the products of many levels neither overflow nor need a counter for
                # each cell.
                present, code = np.unique(code, return_inverse=True)
                cells = present.size
        counts = np.bincount(code, minlength=1)
        return counts[counts > 0]

    def score(self, target: int, parents: Sequence[int]) -> float:
        chosen = checked_candidates(target, np.asarray(parents), self.nodes)
        members = tuple(sorted(chosen.tolist()))
        return self.joint(tuple(sorted((*members, target)))) - self.joint(members)

    def predictive(
        self, data: Dataset | StreamedTable, *, scaling: Scaling | None = None, value: float | None = None
    ) -> CategoricalPredictive | None:
        """None for codes without labels."""
        return None if all_labels(data) is None else CategoricalPredictive.of(data, self.equivalent_sample_size)


@dataclass(frozen=True)
class BDeu(ScoreSpec):
    """Categories: every combination of the parents' values has a distribution of its own; equal for Markov
    equivalent graphs.

    Parameters
    ----------
    equivalent_sample_size
        How many rows the prior is worth, spread evenly over all combinations.
    max_parents
        Largest set in tables; single sets of any size can be scored.
    max_levels
        A column with more distinct values than this is taken for a number and refused.
    """

    equivalent_sample_size: float = 1.0
    max_parents: int = 4
    max_levels: int = 50
    takes_categories: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_positive(equivalent_sample_size=self.equivalent_sample_size, max_levels=self.max_levels)
        check_max_parents(self.max_parents)

    def prepare(self, values: np.ndarray, *, scale: np.ndarray | None = None) -> BDeuScore:
        """Number the categories of a table (n, d), whose values may be any numbers that stand for them."""
        table = np.asarray(values)
        if table.ndim != 2 or table.shape[0] < 1 or table.shape[1] < 1:
            raise DataError(f"expected a table of rows and columns, got an array of shape {table.shape}")
        codes = np.empty(table.shape, dtype=np.int64)
        levels = np.empty(table.shape[1], dtype=np.int64)
        for column in range(table.shape[1]):
            if np.issubdtype(table.dtype, np.floating) and not np.isfinite(table[:, column]).all():
                raise DataError(f"column {column} holds missing or infinite values; fill or drop them before the fit")
            categories, codes[:, column] = np.unique(table[:, column], return_inverse=True)
            levels[column] = categories.size
            if categories.size > self.max_levels:
                raise DataError(
                    f"column {column} has {categories.size} distinct values, more than the {self.max_levels} "
                    "categories that BDeu takes (max_levels); use a score for numbers, or bin the column"
                )
        return BDeuScore(codes, levels, self.equivalent_sample_size, self.max_parents)

    def common_units(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        # Codes have neither means nor units.
        return np.zeros(np.shape(values)), np.ones(np.shape(values)[1])

    def prepare_parts(
        self, values: np.ndarray, rows: Sequence[np.ndarray], *, scale: np.ndarray, shifts: np.ndarray
    ) -> tuple[LocalScore, list[LocalScore]]:
        # The parts must agree on what the categories are.
        every = self.prepare(values)
        return every, [replace(every, codes=every.codes[some], joints={}) for some in rows]
