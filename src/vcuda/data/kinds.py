"""Kinds of columns: number, count, yes/no, ordered or label, and the rules that find them.

The first rule that holds decides; docs/kinds.md lists them for users.

1. Labels (text, categories of other libraries): two of them are yes/no, an ordered dtype is ordered, others are labels.
2. Two different numbers are yes/no.
3. At most 7 different whole numbers, close together and each with several rows, are ordered.
4. Whole numbers from 0 or 1 on with a median of at most 10 and a long upper tail are counts.
5. All others are numbers.

The rules see the cells alone, so a table has the same kinds whatever it was read from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from vcuda.data.messages import HOW_TO_LEAVE_OUT, listed, nearest, shortened
from vcuda.data.raw_table import as_number
from vcuda.errors import ConfigError, DataError

Kind = Literal["number", "count", "yes/no", "ordered", "label"]
KINDS: tuple[Kind, ...] = get_args(Kind)
HOW_TO_SET_KINDS = "(kinds=, --kind)"

FloatArray = npt.NDArray[np.float64]
# The labels of each column that has labels; None for a column of numbers.
ColumnLabels = tuple[tuple[str, ...] | None, ...]

# A column with more labels is no variable with categories but an identifier, or free text.
MOST_LABELS = 50
# Whole numbers are ordered levels if there are no more different ones than this, their range is no wider than so many
# times their number, and each has so many rows on average.
MOST_ORDERED, WIDEST_ORDERED, ROWS_A_LEVEL = 7, 2, 3
# Counts have their median no higher than this; above, a number with a grid of step 1 describes them as well. Scales
# such as months or grades, which end at about twice their median, are no counts.
HIGHEST_MEDIAN_COUNT, LEAST_TAIL = 10, 2
# Few rows without equal cells show nothing: a share of so many different values at most.
MOST_DIFFERENT = 0.8
# Whole numbers in a range no wider than this are counted without a sort.
WIDEST_COUNTED = 1_000
# Columns that are not whole or not two-valued show it in so many rows most often.
FIRST_ROWS = 100
# Of the cells of a rounded number at least this share has an equal cell before it.
FEWEST_TIES = 0.05
# How far cells may lie from their grid, as a share of its step.
GRID_TOLERANCE = 1e-3


class FoundKind(NamedTuple):
    """The kind of a column and why; ``note`` where a person may want another one."""

    kind: Kind
    why: str
    note: bool = False


NUMBER = FoundKind("number", "numbers with decimals")


# The rules ---------------------------------------------------------------------------------------------------


def found_kinds(
    values: FloatArray,
    categories: ColumnLabels | None = None,
    *,
    ordered: Sequence[int] = (),
    whole: npt.NDArray[np.bool_] | None = None,
) -> list[FoundKind]:
    """The kind of each column of a table (n, d), by the rules.

    ``ordered`` has the positions of columns whose labels were declared to be ordered, and ``whole`` (d,) marks columns
    of whole numbers, if they are known.
    """
    two = _two_valued(values)
    found = [FoundKind("yes/no", "two different values") if both else NUMBER for both in two.tolist()]
    rest = np.flatnonzero((whole_columns(values) if whole is None else whole) & ~two)
    for columns in _blocks(rest, len(values)):
        for k, column in zip(columns.tolist(), np.ascontiguousarray(values[:, columns].T), strict=True):
            found[k] = _of_whole(column)
    for k, own in enumerate(categories or ()):
        if own is not None:
            found[k] = _of_labels(own, k in ordered)
    return found


def default_kinds(columns: int, categories: ColumnLabels | None) -> tuple[Kind, ...]:
    """The kinds of a table of which only the labels are known: numbers, and labels or yes/no by their number."""
    labels = categories or (None,) * columns
    return tuple("number" if own is None else "yes/no" if len(own) == 2 else "label" for own in labels)


def kind_notes(names: Sequence[str], found: Sequence[FoundKind]) -> list[str]:
    """A sentence for every kind that was chosen by a rule that may be wrong."""
    notes = []
    for kind, what, otherwise in (
        ("ordered", "few different whole numbers", "if their order means nothing, or they count something"),
        ("count", "small whole numbers from 0 or 1 on", "if they count nothing"),
        ("label", "numbers and words", "correct the words if they are slips; if there is an order in them"),
    ):
        chosen = [name for name, one in zip(names, found, strict=True) if one.note and one.kind == kind]
        if chosen:
            subject = f"Columns {listed(chosen)} hold" if len(chosen) > 1 else f"Column {listed(chosen)} holds"
            notes.append(f"{subject} {what}, taken as {kind}: {otherwise}, say their kind {HOW_TO_SET_KINDS}.")
    return notes


def _of_labels(labels: tuple[str, ...], ordered: bool) -> FoundKind:
    if len(labels) == 2:
        return FoundKind("yes/no", "two labels")
    if ordered:
        return FoundKind("ordered", f"{len(labels)} labels of an ordered type")
    numbers = sum(as_number(label) is not None for label in labels)
    return FoundKind("label", f"{len(labels)} labels", note=1 < numbers < len(labels))


def _of_whole(column: FloatArray) -> FoundKind:
    levels, rows = _levels_of_whole(column)
    if not levels.size:
        return FoundKind("number", "no values")
    least, largest, present = levels[0], levels[-1], int(rows.sum())
    close = largest - least <= WIDEST_ORDERED * levels.size
    if levels.size <= MOST_ORDERED and close and present >= ROWS_A_LEVEL * levels.size:
        return FoundKind("ordered", f"{levels.size} different whole numbers, close together", note=True)
    median = float(levels[np.searchsorted(np.cumsum(rows), present / 2)])
    tail = largest > LEAST_TAIL * median and levels.size <= MOST_DIFFERENT * present
    if least in (0, 1) and median <= HIGHEST_MEDIAN_COUNT and tail:
        return FoundKind("count", f"whole numbers from {least:g}, median {median:g}, up to {largest:g}", note=True)
    return FoundKind("number", "whole numbers")


def _levels_of_whole(column: FloatArray) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """The different values of whole numbers in ascending order, and the rows of each."""
    present = column if not np.isnan(column.sum()) else column[~np.isnan(column)]
    if not present.size:
        return present, np.empty(0, dtype=np.int64)
    least = present.min()
    if present.max() - least > WIDEST_COUNTED:
        return np.unique(present, return_counts=True)
    counts = np.bincount((present - least).astype(np.int64))  # a tenth of the time of a sort
    levels = np.flatnonzero(counts)
    return levels + least, counts[levels]


def _two_valued(values: FloatArray) -> npt.NDArray[np.bool_]:
    """The columns (d,) with two different values."""
    least, largest = np.fmin.reduce(values, axis=0), np.fmax.reduce(values, axis=0)

    def holds(part: FloatArray, columns: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        own = part[:, columns]
        return np.asarray(((own == least[columns]) | (own == largest[columns]) | np.isnan(own)).all(axis=0))

    return _columns_in_which(holds, values) & (least < largest)


def whole_columns(values: FloatArray) -> npt.NDArray[np.bool_]:
    """The columns (d,) whose numbers are all whole."""

    def holds(part: FloatArray, columns: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        own = part[:, columns]
        return np.asarray(((own == np.rint(own)) | np.isnan(own)).all(axis=0))

    return _columns_in_which(holds, values)


def _columns_in_which(
    holds: Callable[[FloatArray, npt.NDArray[np.int64]], npt.NDArray[np.bool_]], values: FloatArray
) -> npt.NDArray[np.bool_]:
    """The columns (d,) for which something holds in all rows; the first rows rule most of the others out."""
    found = np.zeros(values.shape[1], dtype=bool)
    some = np.flatnonzero(holds(values[:FIRST_ROWS], np.arange(values.shape[1])))
    for columns in _blocks(some, len(values)):
        found[columns] = holds(values, columns)
    return found


def _blocks(columns: npt.NDArray[np.int64], rows: int) -> Iterator[npt.NDArray[np.int64]]:
    """Some columns at a time, so that copies of them stay small."""
    width = max(1, 1_000_000 // max(rows, 1))
    for start in range(0, columns.size, width):
        yield columns[start : start + width]


# Grids -------------------------------------------------------------------------------------------------------


def grid_step(column: FloatArray) -> float | None:
    """The step of the grid that all cells (n,) lie on, where they were rounded: many of them are then equal.

    Examples
    --------
    >>> grid_step(np.array([1.5, 2.0, 1.5, 3.5, 2.0, 2.0]))
    0.5
    >>> grid_step(np.array([0.31, 0.78, 0.49])) is None
    True
    """
    present = column[~np.isnan(column)]
    levels = np.unique(present)
    if levels.size < 2 or levels.size > (1 - FEWEST_TIES) * present.size:
        return None
    differences = np.diff(levels)
    # Cells of a grid have the digits that floating point leaves them.
    rounding = 8 * np.finfo(np.float64).eps * float(np.abs(levels).max())
    step = _common_divisor(np.unique(differences), rounding)
    if step is None:
        return None
    multiples = (levels - levels[0]) / step
    if np.abs(multiples - np.rint(multiples)).max() > GRID_TOLERANCE + rounding / step:
        return None
    # As people write it: 0.1 and not 0.09999999999999964.
    exact = float((levels[-1] - levels[0]) / np.rint(multiples[-1]))
    short = float(f"{exact:.6g}")
    return short if abs(short - exact) * np.rint(multiples[-1]) <= GRID_TOLERANCE * exact + rounding else exact


def _common_divisor(differences: FloatArray, rounding: float) -> float | None:
    """The largest number of which all differences are whole multiples, up to rounding; None where there is none."""
    divisor = float(differences[0])
    for difference in differences[1:].tolist():
        larger, smaller = difference, divisor
        while smaller > max(rounding * 100, GRID_TOLERANCE * divisor):
            rest = larger % smaller
            # A rest just below the divisor is rounding too.
            larger, smaller = smaller, min(rest, smaller - rest)
        if larger < GRID_TOLERANCE * divisor or larger <= rounding * 100:
            return None
        divisor = larger
    return divisor if divisor > rounding * 100 else None


# Kinds that somebody asks for ----------------------------------------------------------------------------------


def checked_kinds(given: Any) -> dict[str, Kind]:
    """Kinds by column name, as ``kinds=`` takes them."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise ConfigError(f'kinds must say the kind of columns by name, such as {{"grade": "ordered"}}, not {given!r}.')
    for name, kind in given.items():
        if not isinstance(kind, str) or kind not in KINDS:
            raise ConfigError(
                f"the kind of column {shortened(name)} must be one of {', '.join(KINDS)}, not {shortened(kind)}."
            )
    return {str(name).strip(): kind for name, kind in given.items()}


def check_kind_names(asked: Mapping[str, Kind], names: Sequence[str], source: str) -> None:
    """Refuse kinds of columns that are not taken."""
    unknown = [name for name in asked if name not in set(names)]
    if unknown:
        raise DataError(
            f"{source}: kinds names {shortened(unknown[0])}, and no such column is taken{nearest(unknown[0], names)}: "
            f"the columns are {listed(names)}."
        )


def kind_fault(
    kind: Kind, column: FloatArray, labels: tuple[str, ...] | None, place: Callable[[int], str]
) -> tuple[str, str] | None:
    """Why a column (n,) cannot be of this kind, and what to do; None where it can."""

    def cell(row: int) -> str:
        own = column[row] if labels is None else labels[int(column[row])]
        return f"{shortened(own if isinstance(own, str) else f'{own:g}')} in {place(row)}"

    present = ~np.isnan(column)
    levels = np.unique(column[present])
    if kind in ("number", "count") and labels is not None:
        row = int(np.argmax(present))
        return (
            f"cannot be a {kind}, since it holds text ({cell(row)})",
            f"take it as a label {HOW_TO_SET_KINDS}, or code it as numbers",
        )
    if kind == "count":
        bad = present & ~((column >= 0) & (column == np.rint(column)))
        if bad.any():
            row = int(np.argmax(bad))
            fault = "a negative number" if column[row] < 0 else "no whole number"
            return (
                f"cannot be a count, since it holds {fault} ({cell(row)})",
                f"take it as a number {HOW_TO_SET_KINDS}, or correct the cell",
            )
    if kind == "yes/no" and levels.size != 2:
        row = int(np.argmax(column == levels[min(2, levels.size - 1)]))
        return (
            f"cannot be yes/no, since it has {levels.size:,} different values ({cell(row)})",
            f"take it as a label or ordered {HOW_TO_SET_KINDS}, or join its values into two",
        )
    if kind in ("label", "ordered") and levels.size > MOST_LABELS:
        row = int(np.argmax(present))
        what = "a label" if kind == "label" else "ordered"
        remedy = "join its labels into fewer" if labels is not None else f"take it as a number {HOW_TO_SET_KINDS}"
        return (
            f"cannot be {what}, since it has {levels.size:,} different values ({cell(row)}), more than {MOST_LABELS}",
            f"{remedy}, or leave the column out {HOW_TO_LEAVE_OUT}",
        )
    return None
