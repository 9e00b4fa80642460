"""The degenerate Gaussian: BGe of one-hot blocks, a cheap score for thousands of columns of any kind.

A column of labels becomes a block of numbers, one for each label but the last; every other column becomes one number.
The blocks are then scored as if they were jointly Gaussian: log p(column | parents) is the BGe evidence of the blocks
of column and parents together, less that of the parents' blocks. The score is therefore equal for Markov equivalent
graphs, and needs of the table only products of these numbers. It finds candidates; it is no density of labels, so its
evidence does not compare with that of other models unless all columns are numbers, where it is BGe.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import gammaln

from vcuda.data.kinds import KINDS, MOST_LABELS
from vcuda.data.moments import Moments
from vcuda.data.scaling import units_log_jacobian
from vcuda.data.streaming.statistics import FeatureStatistics
from vcuda.errors import ConfigError, DataError
from vcuda.models.checks import centred_columns, check_max_parents, check_positive
from vcuda.models.protocol import LocalScore, PowerLaw, ScoreSpec
from vcuda.models.sets import checked_candidates, set_sizes, sets_of

# Matrices of so many numbers in all are eliminated side by side: they stay in the cache, and rows are long.
SIDE_BY_SIDE = 1 << 16
# With more numbers a column on average, a table of 18 candidates takes longer than the third of a second of this.
CHEAP_WIDTH = 4.0
# Measured with 300, 1,000 and 2,000 columns of all kinds, 1.5 numbers each, and 500 rows: 7 to 11, 37 and 88 seconds
# of one core, at most 0.6, 1.3 and 2.3 gigabytes.
START, SWEEP, BASE, TABLES, COLUMNS, ROWS = 1.4, 0.0045, 0.45, 1.6e-5, 1.5, 0.7
# The products of all numbers, in gigabytes, and copies of them and of their rows while they are made.
PRODUCTS = 3 * 8e-9
# A label is known by its code up to so much of the range of all codes, which rounding of standardised codes needs.
CODE_TOLERANCE = 1e-9


# Columns as blocks of numbers --------------------------------------------------------------------------------------


class Blocks(NamedTuple):
    """How the columns of a table become blocks of numbers, as some of its rows chose them.

    ``kinds`` has the kind of each column, ``zero`` (d,) the value that stands for zero, ``levels`` for each coded
    column its different values in order, and ``mixing`` for each column that is no number the centre (m,) of its block,
    and what makes it uncorrelated, of variance one (m, m).
    """

    kinds: tuple[str, ...]
    zero: np.ndarray
    levels: tuple[np.ndarray, ...]
    mixing: tuple[tuple[np.ndarray, np.ndarray], ...]

    @classmethod
    def of(cls, kinds: tuple[str, ...], rows: np.ndarray, *, zero: np.ndarray, max_levels: int) -> Blocks:
        """Choose the blocks by rows (n, d)."""
        # Columns that vary elsewhere, but not in a sample, are standardised as they are: for yes/no that is the same.
        still = rows.min(axis=0) == rows.max(axis=0)
        kinds = tuple("number" if constant else kind for kind, constant in zip(kinds, still.tolist(), strict=True))
        coded, nothing = ("yes/no", "ordered", "label"), np.zeros(0)
        levels = tuple(
            np.unique(column) if kind in coded else nothing for kind, column in zip(kinds, rows.T, strict=True)
        )
        mixing = []
        for k, kind in enumerate(kinds):
            if kind == "number":
                mixing.append((nothing, np.zeros((0, 0))))
                continue
            if kind == "label" and levels[k].size > max_levels:
                raise DataError(
                    f"column {k} has {levels[k].size:,} different labels, more than the {max_levels} that the "
                    "degenerate Gaussian takes (max_levels): leave the column out, or join rare labels"
                )
            block = _bare(kind, rows[:, k], levels[k], float(zero[k]))
            centre = block.mean(axis=0)
            moments = (block - centre).T @ (block - centre) / len(block)
            mixing.append((centre, np.linalg.inv(np.linalg.cholesky(moments))))
        return cls(kinds, zero, levels, tuple(mixing))

    @property
    def widths(self) -> np.ndarray:
        """How many numbers each column becomes (d,)."""
        return np.array([max(1, centre.size) for centre, _ in self.mixing], dtype=np.int64)

    def expand(self, rows: np.ndarray) -> np.ndarray:
        """Return the blocks (n, m) of rows (n, d); numbers stay what they are."""
        expanded = np.empty((len(rows), int(self.widths.sum())))
        start = 0
        for kind, column, levels, zero, (centre, whitening) in zip(
            self.kinds, rows.T, self.levels, self.zero.tolist(), self.mixing, strict=True
        ):
            width = max(1, centre.size)
            if kind == "number":
                expanded[:, start] = column
            else:
                expanded[:, start : start + width] = (_bare(kind, column, levels, zero) - centre) @ whitening.T
            start += width
        return expanded

    def shifted(self, shifts: np.ndarray) -> Blocks:
        """Return the same blocks of columns from which shifts (d,) were taken away."""
        levels = tuple(own - shift for own, shift in zip(self.levels, shifts.tolist(), strict=True))
        return self._replace(zero=self.zero - shifts, levels=levels)


def _bare(kind: str, column: np.ndarray, levels: np.ndarray, zero: float) -> np.ndarray:
    """The block (n, m) of a column (n,) before it is centred."""
    if kind == "count":
        # Standardised counts of zero may be rounded to just below it.
        return np.sqrt(np.maximum(column - zero, 0.0))[:, None]
    codes = np.searchsorted((levels[1:] + levels[:-1]) / 2, column)
    if kind != "label":
        return codes[:, None].astype(np.float64)
    # Labels that were not among the rows that chose the blocks count with the last one.
    known = np.abs(column - levels[codes]) <= CODE_TOLERANCE * (levels[-1] - levels[0])
    codes = np.where(known, codes, levels.size - 1)
    return (codes[:, None] == np.arange(levels.size - 1)).astype(np.float64)


# The score ---------------------------------------------------------------------------------------------------------


class _Group(NamedTuple):
    """Columns (g,) whose blocks have the same width w, the places (g, w) of their numbers, and their regularised
    products (g, w, w)."""

    columns: np.ndarray
    places: np.ndarray
    products: np.ndarray


@dataclass(frozen=True, eq=False)
class DegenerateGaussianScore(LocalScore):
    """BGe evidence of blocks of numbers; it needs of the table only their products.

    Attributes
    ----------
    gram : (m, m)
        Products of the centred, standardised numbers of all blocks.
    widths : (d,)
        How many numbers each column has, side by side.
    rows : int
        Number of rows n.
    ridge, excess, mean_rows : float
        As in BGe: what is added to the diagonal, alpha_w less the number of numbers, and alpha_mu.
    log_jacobian
        Of the numbers alone.
    max_parents
        See :class:`LocalScore`.
    """

    gram: np.ndarray
    widths: np.ndarray
    rows: int
    ridge: float
    excess: float
    mean_rows: float
    log_jacobian: float
    max_parents: int | None

    score_equivalent = True

    @property
    def nodes(self) -> int:
        return int(self.widths.size)

    @property
    def cheap_tables(self) -> bool:
        return float(self.widths.mean()) <= CHEAP_WIDTH

    @property
    def costs(self) -> Mapping[str, PowerLaw]:
        base = BASE + PRODUCTS * len(self.gram) ** 2
        return {"orders": PowerLaw(START, 0.0, 1.0, SWEEP, base, TABLES, COLUMNS, rows=ROWS)}

    def table_seconds(self) -> float:
        # A set takes an elimination of its last block: .1 microseconds for a number, and 1.2 for a block of four.
        return 1e-7 * float(np.mean(self.widths**2.0)) * self.nodes * sets_of(self.nodes - 1)

    @cached_property
    def _starts(self) -> np.ndarray:
        """The place (d,) of each column's first number."""
        return np.concatenate([[0], np.cumsum(self.widths)[:-1]]).astype(np.int64)

    @cached_property
    def _groups(self) -> tuple[_Group, ...]:
        groups = []
        for width in np.unique(self.widths).tolist():
            columns = np.flatnonzero(self.widths == width)
            places = self._starts[columns][:, None] + np.arange(width)
            products = self.gram[places[:, :, None], places[:, None, :]] + self.ridge * np.eye(width)
            groups.append(_Group(columns, places, products))
        return tuple(groups)

    @cached_property
    def _constants(self) -> np.ndarray:
        """The part (m + 1,) of the log evidence of so many numbers that their products do not decide."""
        members = np.arange(1, len(self.gram) + 1)
        prior = 0.5 * (self.excess + members)
        each = (
            0.5 * np.log(self.mean_rows / (self.rows + self.mean_rows))
            - 0.5 * self.rows * np.log(np.pi)
            + gammaln(prior + 0.5 * self.rows)
            - gammaln(prior)
            + (prior + 0.5 * (members - 1)) * np.log(self.ridge)
        )
        return np.concatenate([[0.0], np.cumsum(each)])

    def _local(self, width: int, given: Any, log_det: Any, added: Any) -> Any:
        """Return the scores of a target of so many numbers, elementwise.

        ``given`` is how many numbers the parents have, ``log_det`` the log determinant of their regularised products,
        and ``added`` what the target adds to it.
        """
        constants = self._constants[given + width] - self._constants[given]
        return constants - 0.5 * (self.rows + self.excess + given + width) * added - 0.5 * width * log_det

    def _places(self, columns: np.ndarray) -> np.ndarray:
        """Return the places (k,) of the numbers of some columns, in their order."""
        if columns.size == 0:
            return np.zeros(0, dtype=np.int64)
        return np.concatenate([np.arange(self._starts[k], self._starts[k] + self.widths[k]) for k in columns.tolist()])

    def _products(self, places: np.ndarray) -> np.ndarray:
        """Return the regularised products (k, k) of some numbers."""
        return self.gram[np.ix_(places, places)] + self.ridge * np.eye(places.size)

    def score(self, target: int, parents: Sequence[int]) -> float:
        chosen = checked_candidates(target, np.asarray(parents), self.nodes)
        places = self._places(np.append(chosen, target))
        pivots = 2 * np.log(np.diag(np.linalg.cholesky(self._products(places))))
        width = int(self.widths[target])
        given = places.size - width
        return float(self._local(width, given, pivots[:given].sum(), pivots[given:].sum()))

    def table(self, target: int, candidates: np.ndarray) -> np.ndarray:
        chosen = checked_candidates(target, candidates, self.nodes)
        return self.tables([target], chosen[None], np.zeros((1, 0), dtype=np.int64))[0]

    def tables(self, targets: Sequence[int], free: np.ndarray, fixed: np.ndarray) -> np.ndarray:
        # A set's determinant with the target is that of the set given the target: no block of the target is carried
        # through the recursion. Wide blocks go first, while there are few matrices.
        wide_first = np.argsort(-self.widths[free], axis=1, kind="stable")
        ordered = np.take_along_axis(free, wide_first, axis=1)
        alike: dict[tuple[int, ...], list[int]] = {}
        for number, widths in enumerate(self.widths[ordered].tolist()):
            alike.setdefault(tuple(widths), []).append(number)
        scores = np.empty((len(targets), 1 << free.shape[1]))
        for widths, members in alike.items():
            starts = [self._conditioned(int(targets[k]), ordered[k], fixed[k]) for k in members]
            matrices = np.stack([matrix for start in starts for matrix in start.products], axis=-1)
            log_dets = subset_log_dets(matrices, np.zeros(2 * len(members)), widths)
            for place, (number, start) in enumerate(zip(members, starts, strict=True)):
                target = int(targets[number])
                alone, beside = log_dets[:, 2 * place], log_dets[:, 2 * place + 1]
                given = start.given + _sums_over(np.array(widths, dtype=np.int64))
                found = self._local(
                    int(self.widths[target]), given, start.log_det + alone, start.added + beside - alone
                )
                scores[number] = found[_sums_over(1 << np.argsort(wide_first[number]))]
        if self.max_parents is not None:
            certain = fixed.shape[1]
            scores[:, set_sizes(free.shape[1]) + certain > max(self.max_parents, certain)] = -np.inf
        return scores

    def _conditioned(self, target: int, free: np.ndarray, fixed: np.ndarray) -> _Start:
        """Return the products of candidates given the fixed parents, and given the target as well."""
        first, own, rest = self._places(fixed), self._places(np.array([target])), self._places(free)
        inner = np.concatenate([first, own])
        factor = np.linalg.cholesky(self._products(inner))
        pivots = 2 * np.log(np.diag(factor))
        solved = solve_triangular(factor, self.gram[np.ix_(inner, rest)], lower=True, check_finite=False)
        alone = self._products(rest) - solved[: first.size].T @ solved[: first.size]
        beside = alone - solved[first.size :].T @ solved[first.size :]
        return _Start((alone, beside), first.size, float(pivots[: first.size].sum()), float(pivots[first.size :].sum()))

    def gains(self, target: int, parents: Sequence[int]) -> np.ndarray:
        chosen = checked_candidates(target, np.asarray(parents), self.nodes)
        places, width = self._places(np.append(chosen, target)), int(self.widths[target])
        given = places.size - width
        factor = np.linalg.cholesky(self._products(places))
        pivots = 2 * np.log(np.diag(factor))
        log_det, added = pivots[:given].sum(), pivots[given:].sum()
        projected = solve_triangular(factor, self.gram[places], lower=True, check_finite=False)
        before = self._local(width, given, log_det, added)
        gained = np.empty(self.nodes)
        excluded = np.zeros(self.nodes, dtype=bool)
        excluded[chosen] = excluded[target] = True
        for group in self._groups:
            out = excluded[group.columns]
            if out.all():
                continue
            size = group.places.shape[1]
            solved = projected[:, group.places].transpose(1, 0, 2)
            alone = group.products - _squares(solved[:, :given])
            beside = alone - _squares(solved[:, given:])
            alone[out] = beside[out] = np.eye(size)
            log_alone, log_beside = _log_det(alone), _log_det(beside)
            after = self._local(width, given + size, log_det + log_alone, added + log_beside - log_alone)
            gained[group.columns] = after - before
        gained[excluded] = -np.inf
        return gained

    def losses(self, target: int, parents: np.ndarray) -> np.ndarray:
        chosen = np.asarray(parents, dtype=np.int64)
        places, width = self._places(np.append(chosen, target)), int(self.widths[target])
        given = places.size - width
        products = self._products(places)
        pivots = 2 * np.log(np.diag(np.linalg.cholesky(products)))
        log_det, added = pivots[:given].sum(), pivots[given:].sum()
        # A block's own part of the inverse is the inverse of what it adds to the determinant.
        alone, beside = np.linalg.inv(products[:given, :given]), np.linalg.inv(products)
        whole = self._local(width, given, log_det, added)
        widths = self.widths[chosen]
        starts = np.concatenate([[0], np.cumsum(widths)]).astype(np.int64)
        lost = np.empty(chosen.size)
        for size in np.unique(widths).tolist():
            members = np.flatnonzero(widths == size)
            own = starts[members][:, None] + np.arange(size)
            log_alone, log_beside = (_log_det(inverse[own[:, :, None], own[:, None, :]]) for inverse in (alone, beside))
            without = self._local(width, given - size, log_det + log_alone, added + log_beside - log_alone)
            lost[members] = whole - without
        return lost

    def without_last_digits(self) -> LocalScore:
        return replace(self, gram=np.round(self.gram, 7))


class _Start(NamedTuple):
    """Where a table starts: products of the candidates without the target and beside it, how many numbers the fixed
    parents have, the log determinant of these, and what the target adds to it."""

    products: tuple[np.ndarray, np.ndarray]
    given: int
    log_det: float
    added: float


def subset_log_dets(matrices: np.ndarray, log_dets: np.ndarray, widths: Sequence[int]) -> np.ndarray:
    """Return the log determinants (2**c, b) of all subsets of c blocks of b matrices (m, m, b).

    ``widths`` are those of the blocks, side by side; bit t of the index is block t. ``log_dets`` (b,) is what the
    result starts from. Matrices shrink as their number grows; where they are too many for the cache, they are halved.
    """
    if not widths:
        return log_dets[None]
    batch = log_dets.size
    if batch > 1 and matrices.size > SIDE_BY_SIDE:
        half = batch // 2
        parts = [(matrices[..., :half], log_dets[:half]), (matrices[..., half:], log_dets[half:])]
        return np.concatenate([subset_log_dets(*part, widths) for part in parts], axis=1)
    width = widths[0]
    included, gained = matrices, log_dets
    for _ in range(width):
        pivot, row = included[0, 0], included[0, 1:]
        included = included[1:, 1:] - row[:, None] * (row / pivot)[None]
        gained = gained + np.log(pivot)
    both = np.concatenate([matrices[width:, width:], included], axis=-1)
    return subset_log_dets(both, np.concatenate([log_dets, gained]), widths[1:]).reshape(-1, batch)


def _sums_over(values: np.ndarray) -> np.ndarray:
    """Return the sums (2**c,) of values (c,) over all subsets."""
    sums = np.zeros(1, dtype=np.int64)
    for value in values.tolist():
        sums = np.concatenate([sums, sums + value])
    return sums


def _squares(blocks: np.ndarray) -> np.ndarray:
    """Return the products (g, w, w) of the columns of matrices (g, k, w)."""
    return np.asarray(blocks.transpose(0, 2, 1) @ blocks)


def _log_det(matrices: np.ndarray) -> np.ndarray:
    """Return the log determinants (g,) of positive definite matrices (g, w, w)."""
    if matrices.shape[-1] == 1:
        return np.asarray(np.log(matrices[:, 0, 0]))
    return np.asarray(np.linalg.slogdet(matrices)[1])


@dataclass(frozen=True)
class DegenerateGaussian(ScoreSpec):
    """Columns of any kind as if they were jointly Gaussian: labels as blocks of one-hot numbers; equal for Markov
    equivalent graphs, free of units, and cheap.

    Counts go by their square roots, ordered and yes/no columns by the ranks of their values. A block of labels is made
    uncorrelated, so that neither the order of the labels nor the one left out matters.

    Parameters
    ----------
    kinds
        The kind of each column: number, count, yes/no, ordered or label; None where all are numbers.
    mean_rows, excess
        As in :class:`BGe`.
    max_parents
        Largest number of parents, or None.
    max_levels
        A column of labels with more of them is refused.
    """

    kinds: tuple[str, ...] | None = None
    mean_rows: float = 1.0
    excess: float = 2.0
    max_parents: int | None = None
    max_levels: int = MOST_LABELS
    streams: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_positive(mean_rows=self.mean_rows, excess=self.excess, max_levels=self.max_levels)
        if self.excess <= 1:
            raise ConfigError(f"excess must be above 1, so that the prior has a mean; got {self.excess}")
        check_max_parents(self.max_parents)
        unknown = [kind for kind in self.kinds or () if kind not in KINDS]
        if unknown:
            raise ConfigError(f"a kind must be one of {', '.join(KINDS)}; got {unknown[0]!r}")

    def prepare(self, values: np.ndarray, *, scale: np.ndarray | None = None) -> DegenerateGaussianScore:
        """Expand a table (n, d) into its blocks, and reduce these to their products."""
        # Columns that do not vary, and missing values, are refused before there are blocks.
        _, units = centred_columns(values, scale)
        blocks, expanded = self._expanded(values)
        return self._of_rows(blocks, expanded, units)

    def prepare_parts(
        self, values: np.ndarray, rows: Sequence[np.ndarray], *, scale: np.ndarray, shifts: np.ndarray
    ) -> tuple[LocalScore, list[LocalScore]]:
        # The parts must agree on what the labels are.
        blocks, expanded = self._expanded(values)
        return self._of_rows(blocks, expanded, scale), [self._of_rows(blocks, expanded[some], scale) for some in rows]

    def common_units(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        centred, units = centred_columns(values)
        return centred, self._units(units)

    def features_of(self, sample: np.ndarray, *, zero: np.ndarray) -> Blocks | None:
        kinds = self._kinds(sample.shape[1])
        if set(kinds) == {"number"}:
            return None
        return Blocks.of(kinds, sample, zero=zero, max_levels=self.max_levels)

    def from_statistics(
        self, moments: Moments, features: FeatureStatistics | None, functions: Any, *, scale: np.ndarray
    ) -> DegenerateGaussianScore:
        if features is None:
            gram, widths = moments.gram / np.outer(scale, scale), np.ones(scale.size, dtype=np.int64)
        else:
            gram, widths = features.gram, functions.widths
        return self._prepared(gram, widths, moments.rows, scale)

    def _kinds(self, columns: int) -> tuple[str, ...]:
        if self.kinds is None:
            return ("number",) * columns
        if len(self.kinds) != columns:
            raise ConfigError(f"kinds has {len(self.kinds)} kinds, and the table {columns} columns: give one for each")
        return self.kinds

    def _units(self, scale: np.ndarray) -> np.ndarray:
        """The units (d,) of densities: those of numbers, one for what has no unit."""
        numbers = np.array([kind == "number" for kind in self._kinds(scale.size)])
        return np.where(numbers, scale, 1.0)

    def _expanded(self, values: np.ndarray) -> tuple[Blocks, np.ndarray]:
        table = np.asarray(values, dtype=np.float64)
        kinds = self._kinds(table.shape[1])
        for k, kind in enumerate(kinds):
            if kind == "count" and table[:, k].min() < 0:
                raise DataError(
                    f"column {k} holds {table[:, k].min():g}, and counts are never negative: give it as it was "
                    "counted, or with the kind number"
                )
        blocks = Blocks.of(kinds, table, zero=np.zeros(table.shape[1]), max_levels=self.max_levels)
        return blocks, blocks.expand(table)

    def _of_rows(self, blocks: Blocks, expanded: np.ndarray, scale: np.ndarray) -> DegenerateGaussianScore:
        units = np.repeat(self._units(scale), blocks.widths)
        centred, _ = centred_columns(expanded, units)
        standardised = centred / units
        return self._prepared(standardised.T @ standardised, blocks.widths, len(centred), scale)

    def _prepared(self, gram: np.ndarray, widths: np.ndarray, rows: int, scale: np.ndarray) -> DegenerateGaussianScore:
        return DegenerateGaussianScore(
            gram=gram,
            widths=widths,
            rows=rows,
            ridge=self.mean_rows * (self.excess - 1) / (self.mean_rows + 1),
            excess=self.excess,
            mean_rows=self.mean_rows,
            log_jacobian=units_log_jacobian(rows, self._units(scale)),
            max_parents=self.max_parents,
        )
