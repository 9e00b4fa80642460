"""Every check of a user's table: its names and size before a cell is read, then its cells."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

import numpy as np

from vcuda.data.columns import saved_index
from vcuda.data.messages import HOW_TO_CHOOSE, HOW_TO_LEAVE_OUT, data_row, listed, shortened
from vcuda.data.moments import varies
from vcuda.data.raw_table import FloatArray, RawTable, is_number
from vcuda.errors import DataError
from vcuda.memory import memory_available

if TYPE_CHECKING:
    from vcuda.data.dataset import Dataset

# A regression on two parents with an intercept leaves two degrees of freedom in five rows, and one row can be
# held out; with fewer no edge has anything to say.
MINIMUM_ROWS = 5
# A column with missing values must have so many others: imputation estimates from them.
MINIMUM_PRESENT = 5
# Squares and their sums over many rows must stay finite, and not vanish, in double precision.
LARGEST_VALUE = 1e150
SMALLEST_SCALE = 1e-150
# What fitting by gradient holds of shape (d, d) in single precision: edge logits and weights, each with a
# gradient and the optimiser's two moments, and noise, soft graph, hard graph and their product for a
# sample.
SQUARE_ARRAYS = 12

# Of every cell: as it was read, as a number of the table, standardised, and in a comparison.
CELL_COPIES = 4

Missing = Literal["refuse", "keep"]


# Names and size, before a cell is read ----------------------------------------------------------------------


def checked_names(raw: RawTable, kept: Sequence[int]) -> tuple[tuple[str, ...], list[str]]:
    """The names of the columns that are kept, by position, without spaces around them, and a note of what was done."""
    given = [raw.names[k] for k in kept]
    names = tuple(name.strip() for name in given)
    nameless = [k for k, name in enumerate(names) if not name]
    first = names[0] if names else ""
    if nameless:
        hint = " (a separator at the end of the first line makes one)" if raw.has_header_line else ""
        raise DataError(
            f"{raw.source}: column {kept[nameless[0]] + 1:,} has no name: give it one, or remove the column{hint}."
        )
    if len(names) < 2:
        count = f"only one column, {shortened(first)}" if names else "no columns"
        raise DataError(
            f"{raw.source}: the table has {count}: a graph needs at least two, separated in a text file by "
            "commas, semicolons or tabs."
        )
    if raw.has_header_line and all(is_number(name) for name in raw.names):
        example = ",".join(f"X{k}" for k in range(1, min(len(names), 3) + 1))
        raise DataError(
            f"{raw.source}: the first line holds only numbers ({listed(names, 3)}) where names should be: if they are "
            f"values, use header=False (--no-header), or add a line of names above it, such as {example}; if they are "
            "names, put a letter before each, or pass pandas.read_csv(...) as the table."
        )
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        at = [f"{k + 1:,}" for k, name in zip(kept, names, strict=True) if name == repeated[0]]
        raise DataError(
            f"{raw.source}: the name {shortened(repeated[0])} is used by columns {', '.join(at[:-1])} and "
            f"{at[-1]}: give each column a name of its own."
        )
    trimmed = [name for name, before in zip(names, given, strict=True) if name != before]
    notes = [f"Spaces around the name {listed(trimmed)} were removed."] if trimmed else []
    return names, [*index_notes(raw, kept), *notes]


def index_notes(raw: RawTable, kept: Sequence[int]) -> list[str]:
    """A note on row numbers that were saved with the table, if they are not among the columns that are kept."""
    index = [raw.names[k].strip() for k in saved_index(raw.names) if k not in kept]
    if not index:
        return []
    called = f" ({listed(index)})" if any(index) else ""
    return [
        f"The first column has no name{called}, as a row index that was saved with a table (pandas, R), and was left "
        "out: give it a name if it is a variable."
    ]


def check_index(raw: RawTable, kept: Sequence[int]) -> None:
    """Refuse row numbers that were saved with the table, for those who want nothing to be left out."""
    for note in index_notes(raw, kept):
        fault = note[0].lower() + note[1:].split(", and was")[0]
        raise DataError(
            f"{raw.source}: {fault}: save the table without it (pandas: index=False, R: row.names = FALSE), or name "
            "the column if it is a variable."
        )


def memory_needed(columns: int) -> int:
    """The bytes that a fit of so many columns needs for its square arrays, about."""
    return SQUARE_ARRAYS * 4 * columns**2


@contextmanager
def too_large_refused(source: str) -> Iterator[None]:
    """A sentence in place of a MemoryError, for what could not be foreseen."""
    try:
        yield
    except MemoryError:
        raise DataError(
            f"{source}: the table does not fit into the {memory_available() / 1e9:,.1f} GB of memory that are free: "
            "take fewer rows or columns, or use a machine with more memory."
        ) from None


def check_memory(raw: RawTable, columns: int) -> None:
    """Refuse, before a cell is read, so many columns that a fit cannot hold their square arrays."""
    needed, available = memory_needed(columns), memory_available()
    if needed > available:
        most = math.isqrt(available // (SQUARE_ARRAYS * 4))
        raise DataError(
            f"{raw.source}: {columns:,} columns would need about {needed / 1e9:,.1f} GB of memory "
            f"({SQUARE_ARRAYS} arrays of {columns:,} x {columns:,}) and {available / 1e9:,.1f} GB are free: "
            f"choose at most {most:,} columns {HOW_TO_CHOOSE}, or use a machine with more memory."
        )


def check_size(raw: RawTable, columns: int) -> None:
    """Refuse, before they are read, so many rows that the table cannot be held; of text files they are not known."""
    available = memory_available()
    cells = (raw.rows or 0) * columns
    if 8 * CELL_COPIES * cells > available:
        raise DataError(
            f"{raw.source}: {raw.rows:,} rows of {columns:,} columns would need about "
            f"{8 * CELL_COPIES * cells / 1e9:,.1f} GB of memory and {available / 1e9:,.1f} GB are free: take fewer "
            f"rows or columns {HOW_TO_CHOOSE}, or use a machine with more memory."
        )


# Cells ------------------------------------------------------------------------------------------------------


def check_rows(raw: RawTable, values: FloatArray) -> None:
    rows = values.shape[0]
    if rows == 0:
        raise DataError(f"{raw.source}: the table has names but no rows: add at least {MINIMUM_ROWS} rows of numbers.")
    if rows < MINIMUM_ROWS:
        count = "one row" if rows == 1 else f"{rows} rows"
        raise DataError(f"{raw.source}: the table has only {count}: at least {MINIMUM_ROWS} are needed.")


def check_cells(raw: RawTable, names: Sequence[str], values: FloatArray, *, missing: Missing = "refuse") -> None:
    for bad, fault, remedy in (
        (np.isinf(values), "which is not finite", "correct the cell or leave out the row"),
        (np.abs(values) > LARGEST_VALUE, "too large to be squared", "give the column in another unit"),
    ):
        if bad.any():
            row, k = np.argwhere(bad)[0].tolist()
            where = f"{raw.place(row)} of column {shortened(names[k])}"
            raise DataError(f"{raw.source}: {where} holds {values[row, k]:g}, {fault}: {remedy}.")
    check_columns(raw.source, names, values, missing=missing, place=raw.place)


def check_columns(
    source: str,
    names: Sequence[str],
    values: FloatArray,
    *,
    missing: Missing,
    place: Callable[[int], str] = data_row,
) -> None:
    """Refuse columns without values, or that do not vary, and missing values unless they are kept."""
    present = (~np.isnan(values)).sum(axis=0)
    empty = np.flatnonzero(present == 0)
    if empty.size:
        which = f"column{'s' if empty.size > 1 else ''} {listed([names[k] for k in empty.tolist()])}"
        raise DataError(f"{source}: there is no value in {which}: leave out what is empty {HOW_TO_LEAVE_OUT}.")
    if missing == "refuse" and present.min() < len(values):
        raise DataError(f"{source}: {missing_fault(names, values, place)}.")
    few = np.flatnonzero(present < min(MINIMUM_PRESENT, len(values)))
    if few.size:
        raise DataError(
            f"{source}: column {shortened(names[few[0]])} has only {present[few[0]]} values, and the other "
            f"{len(values) - present[few[0]]:,} are missing: leave the column out {HOW_TO_LEAVE_OUT}, or have at "
            f"least {MINIMUM_PRESENT} values in it."
        )
    least, largest = np.fmin.reduce(values, axis=0), np.fmax.reduce(values, axis=0)
    still = ~varies(least, largest)
    constant = np.flatnonzero(largest == least).tolist()
    if constant:
        which = listed([names[k] for k in constant])
        everywhere = "in every row" if present[constant[0]] == len(values) else "wherever it is not missing"
        fault = f"column {which} does not vary ({least[constant[0]]:g} {everywhere})"
        if len(constant) > 1:
            fault = f"columns {which} do not vary"
        raise DataError(
            f"{source}: {fault}: leave out what is constant {HOW_TO_LEAVE_OUT}, it has neither causes nor effects."
        )
    if still.any():
        k = int(np.argmax(still))
        raise DataError(
            f"{source}: column {shortened(names[k])} varies by only {largest[k] - least[k]:.3g} around {least[k]:.6g}, "
            "which is no more than the rounding of such numbers: subtract a constant from it before saving it, or "
            f"leave the column out {HOW_TO_LEAVE_OUT}."
        )


def missing_fault(names: Sequence[str], values: FloatArray, place: Callable[[int], str]) -> str:
    """What is missing in these columns (n, k), and what to do."""
    missing = np.isnan(values)
    counts = missing.sum(axis=0)
    columns = np.flatnonzero(counts).tolist()
    total = int(counts.sum())
    row = int(np.argmax(missing[:, columns[0]]))
    where = f"column{'s' if len(columns) > 1 else ''} {listed([names[k] for k in columns])}"
    first = place(row) if len(columns) == 1 else f"{place(row)} of {shortened(names[columns[0]])}"
    fault = f"one value is missing in {where}, in {first}: fill it in, or leave out the row or the column"
    if total > 1:
        fault = (
            f"{total:,} values are missing in {where}, the first in {first}: fill them in, or leave out these rows or "
            "columns"
        )
    return f"{fault}; a fit (vcuda.fit, vcuda fit) imputes missing values by itself"


def check_scales(data: Dataset) -> None:
    small = np.flatnonzero(data.scale < SMALLEST_SCALE)
    if small.size:
        name = shortened(data.names[small[0]])
        raise DataError(
            f"{data.source}: column {name} varies by only {data.scale[small[0]]:g}, too little to be "
            "squared: give the column in another unit."
        )
