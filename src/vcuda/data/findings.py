"""Notes on tables that can be fitted: few rows, row numbers, lost digits, copied and collinear columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from vcuda.data.messages import HOW_TO_LEAVE_OUT, listed, shortened

if TYPE_CHECKING:
    from vcuda.data.dataset import Dataset

FloatArray = npt.NDArray[np.float64]

FEW_ROWS_A_COLUMN = 5
# Below this ratio of spread to mean, fewer than about six of the sixteen digits distinguish the rows.
SMALLEST_RELATIVE_SCALE = 1e-10
# A column counts as a linear function of others when they leave less than this share of its variance: sums of
# numbers written with six digits, or in single precision, do. The Gram matrix resolves shares of d * 2e-16.
UNEXPLAINED = 1e-10
# Above so many columns only copies are looked for: the rest costs O(d³), a second or two at this width.
WIDEST = 2000
# Copies and relations of a table with missing values are looked for in its complete rows, if there are so many.
FEWEST_COMPLETE_ROWS = 20


def findings(data: Dataset) -> list[str]:
    """Row numbers, lost digits, copied and collinear columns of a table of numbers, in words.

    Copies and relations are those of the rows in which nothing is missing; of fewer than 20 nothing is said.
    """
    notes: list[str] = []
    counting = np.flatnonzero(np.all(np.diff(data.values, axis=0) == 1, axis=0))
    notes.extend(
        f"Column {shortened(data.names[k])} only counts the rows: if it is a row number, leave it out "
        f"{HOW_TO_LEAVE_OUT}."
        for k in counting
    )
    lost = np.flatnonzero(data.scale < SMALLEST_RELATIVE_SCALE * np.abs(data.mean))
    notes.extend(
        f"Column {shortened(data.names[k])} varies by {data.scale[k]:.3g} around {data.mean[k]:.3g}, so "
        "little that rounding has taken most of its digits: subtract a constant before saving it."
        for k in lost
    )
    if data.missing is not None:
        data = data.select(~data.missing.any(axis=1))
        if data.n < FEWEST_COMPLETE_ROWS:
            return notes
    return notes + _collinear_notes(data)


def row_notes(data: Dataset) -> list[str]:
    """That the rows are few, in words."""
    if data.n >= FEW_ROWS_A_COLUMN * data.d:
        return []
    return [
        f"{data.n:,} rows are few for {data.d:,} columns (less than {FEW_ROWS_A_COLUMN} rows a column): "
        "expect uncertain edges."
    ]


def missing_notes(data: Dataset) -> list[str]:
    """Which columns are missing in most of the rows, in words."""
    if data.missing is None:
        return []
    shares = data.missing.mean(axis=0)
    return [
        f"Column {shortened(data.names[k])} is missing in {shares[k]:.0%} of the rows: its edges rest on few values."
        for k in np.flatnonzero(shares > 0.5)
    ]


def _collinear_notes(data: Dataset) -> list[str]:
    standardised = data.standardised()
    notes: list[str] = []
    first_of_group = np.ones(data.d, dtype=bool)
    for group in copies(standardised):
        first_of_group[list(group[1:])] = False
        same = all(np.array_equal(data.values[:, group[0]], data.values[:, k]) for k in group[1:])
        how = "hold the same values" if same else "are the same up to unit and sign"
        notes.append(
            f"Columns {listed([data.names[k] for k in group])} {how}: the data cannot distinguish them, leave "
            "out all but one."
        )
    kept = np.flatnonzero(first_of_group)
    for *others, last in relations(standardised[:, kept]):
        names = [data.names[kept[k]] for k in others]
        notes.append(
            f"Column {shortened(data.names[kept[last]])} is an exact linear function of {listed(names)}: "
            "directions among them cannot be trusted, leave one of them out."
        )
    return notes


def copies(standardised: FloatArray) -> list[tuple[int, ...]]:
    """Groups of columns whose correlation is 1 or -1, at a cost of O(n d) for n rows and d columns.

    Copies have the same projection on any direction, so that after a sort by a random projection only
    neighbours are compared.
    """
    rows = standardised.shape[0]
    direction = np.random.default_rng(0).standard_normal(rows)
    projections = direction @ standardised
    signs = np.where(projections < 0, -1.0, 1.0)
    keys = np.abs(projections)
    order = np.argsort(keys, kind="stable")
    # The projection of a difference of norm sqrt(UNEXPLAINED * rows) is normal with that standard deviation.
    apart = np.diff(keys[order]) > 3 * np.sqrt(UNEXPLAINED * rows)
    groups: list[list[int]] = []
    for run in np.split(order, np.flatnonzero(apart) + 1):
        if run.size > 1:
            groups.extend(_equal_members(standardised, signs, np.sort(run).tolist()))
    return sorted(tuple(group) for group in groups)


def _equal_members(standardised: FloatArray, signs: FloatArray, run: list[int]) -> list[list[int]]:
    groups: list[list[int]] = []
    for column in run:
        for group in groups:
            difference = standardised[:, column] * signs[column] - standardised[:, group[0]] * signs[group[0]]
            if np.mean(difference**2) < UNEXPLAINED:
                group.append(column)
                break
        else:
            groups.append([column])
    return [group for group in groups if len(group) > 1]


def relations(standardised: FloatArray, *, limit: int = 5) -> list[tuple[int, ...]]:
    """Up to `limit` sets of columns tied by a linear equation, the last of each a function of the others.

    Rows must outnumber columns by two at least, otherwise every column is a function of the others and
    nothing is returned. A Cholesky factorisation with pivoting of the correlations of at most 2 d + 100 rows
    finds candidates; each is then confirmed on all rows. Costs O(d³) for d columns.
    """
    from scipy.linalg import solve_triangular
    from scipy.linalg.lapack import dpstrf

    rows, columns = standardised.shape
    if rows < columns + 2 or columns > WIDEST:
        return []
    some_rows = np.unique(np.linspace(0, rows - 1, min(rows, 2 * columns + 100)).astype(np.int64))
    sample = standardised[some_rows] - standardised[some_rows].mean(axis=0)
    lengths = np.sqrt(np.mean(sample**2, axis=0))
    usable = np.flatnonzero(lengths > 0)
    sample = sample[:, usable] / lengths[usable]
    factor, pivots, rank, _ = dpstrf(sample.T @ sample / some_rows.size, tol=UNEXPLAINED)
    if rank == usable.size:
        return []
    chosen, dependent = usable[pivots[:rank] - 1], usable[pivots[rank:] - 1]
    weights = solve_triangular(factor[:rank, :rank], factor[:rank, rank:])
    found: list[tuple[int, ...]] = []
    for column, weight in zip(dependent, weights.T, strict=True):
        others = np.sort(chosen[weight**2 > 0.1 * UNEXPLAINED / columns])  # the rest cannot add up to anything
        if _explained(standardised[:, others], standardised[:, column]):
            found.append((*others.tolist(), int(column)))
        if len(found) == limit:
            break
    return found


def _explained(predictors: FloatArray, response: FloatArray) -> bool:
    coefficients = np.linalg.lstsq(predictors, response, rcond=None)[0]
    return bool(np.mean((response - predictors @ coefficients) ** 2) < UNEXPLAINED)
