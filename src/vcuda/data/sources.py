"""Tables in memory, of other libraries and arrays: their names, and their cells as a matrix of numbers."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from vcuda.errors import ConfigError, DataError

FloatArray = npt.NDArray[np.float64]

TEXT_REMEDY = "leave the column out or code it as numbers"
DATE_REMEDY = "leave the column out or turn it into a number, such as days since the start"
CATEGORY_REMEDY = "leave the column out or code its categories as numbers (0 and 1 for two of them)"
COMPLEX_REMEDY = "give the real and the imaginary part as two columns"


@dataclass(frozen=True)
class RawTable:
    """A table that nobody has checked yet: its names are known, its cells are read when `read` is called.

    Names before cells, so that a table too wide for the machine is refused before it is loaded.
    """

    source: str
    names: tuple[str, ...]
    read: Callable[[Sequence[int]], FloatArray]  # a new (n, k) C-order matrix of k columns, NaN where a cell is missing
    labels: Callable[[int], list[str]]  # the cells of one column as text, empty where one is missing
    place: Callable[[int], str]  # row index, from 0 -> how a person finds that row
    has_header_line: bool = False  # the names are the first line of a text file, or what was taken for it
    notes: tuple[str, ...] = ()


def data_row(row: int) -> str:
    """How messages name a row: counted from 1, without the header."""
    return f"data row {row + 1:,}"


def shortened(cell: object, limit: int = 30) -> str:
    """A cell in quotes, on one line, and not longer than a message can bear."""
    text = str(cell)
    return repr(text if len(text) <= limit else text[: limit - 3] + "...")


def listed(names: Sequence[str], limit: int = 6) -> str:
    """Names in quotes, joined as in a sentence, the tail counted when there are many.

    Examples
    --------
    >>> listed(["a", "b", "c"])
    "'a', 'b' and 'c'"
    """
    shown = [shortened(name) for name in names[:limit]]
    if len(names) > limit:
        shown.append(f"{len(names) - limit:,} more")
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def nearest(wanted: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: " (did you mean 'x'?)", or nothing when none is near."""
    by_lower = {name.lower(): name for name in known}
    matches = difflib.get_close_matches(wanted.lower(), by_lower, n=1, cutoff=0.6)
    return f" (did you mean {by_lower[matches[0]]!r}?)" if matches else ""


# Tables in memory -------------------------------------------------------------------------------------------


def from_arrow(table: Any, source: str) -> RawTable:
    """An Arrow table, or any table that speaks Arrow's stream protocol, such as a Polars one."""
    import pyarrow as pa

    try:
        arrow = table if isinstance(table, pa.Table) else pa.table(table)
    except Exception as error:  # whatever the other library raises when a column has no Arrow form
        reason = str(error).split("\n")[0].rstrip(".")
        raise DataError(f"{source}: it cannot be read as a table ({reason}): {TEXT_REMEDY}.") from error
    kept, names, notes = columns_without_index(arrow.schema)
    return RawTable(
        source,
        names,
        lambda columns: matrix_from_arrow(arrow.select([kept[k] for k in columns]), source, data_row),
        lambda column: as_labels(arrow.column(kept[column]).to_pylist()),
        data_row,
        notes=notes,
    )


def columns_without_index(schema: Any) -> tuple[list[int], tuple[str, ...], tuple[str, ...]]:
    """The positions and names of an Arrow schema's columns, and a note if a pandas index was left out."""
    # pandas writes a row index as a column and says so in the metadata; read back by pandas it is no column.
    index = {name for name in (schema.pandas_metadata or {}).get("index_columns", []) if isinstance(name, str)}
    every = schema.names  # once: Arrow makes a new list each time
    kept = [k for k, name in enumerate(every) if name not in index]
    left_out = [name for name in every if name in index]
    notes = (f"The pandas index {listed(left_out)} was left out.",) if left_out else ()
    return kept, tuple(every[k] for k in kept), notes


def matrix_from_arrow(
    table: Any,
    source: str,
    place: Callable[[int], str],
    *,
    text_is_parsed: bool = False,
) -> FloatArray:
    values = np.empty((table.num_rows, table.num_columns))
    for k, name in enumerate(table.column_names):
        column = table.column(k)
        kind = str(column.type)
        refuse = _Refusal(source, name, place)
        if kind.startswith("dictionary"):
            refuse("holds categories", CATEGORY_REMEDY)
        elif kind.startswith(("date", "time", "duration", "month")):
            refuse("holds dates or times", DATE_REMEDY)
        elif kind in {"string", "large_string", "string_view"}:
            cells = column.to_pylist()
            values[:, k] = _parsed_text(cells, refuse) if text_is_parsed else _plain_numbers(cells, refuse)
        elif kind == "null":
            values[:, k] = np.nan
        elif kind.startswith(("bool", "int", "uint", "halffloat", "float", "double", "decimal")):
            if kind == "bool":
                column = column.cast("uint8")
            values[:, k] = column.cast("float64", safe=False).to_numpy()
        else:
            refuse(f"holds values of type {kind}", TEXT_REMEDY)
    return values


def from_pandas(frame: Any) -> RawTable:
    """A pandas table; its index is no column."""
    source = "pandas table"
    if frame.columns.nlevels > 1:
        raise DataError(f"{source}: the columns have {frame.columns.nlevels} levels of names: give them one.")
    missing = frame.columns.isna()
    names = tuple("" if none else str(label) for label, none in zip(frame.columns, missing, strict=True))

    def read(columns: Sequence[int]) -> FloatArray:
        values = np.empty((len(frame), len(columns)))
        for place, k in enumerate(columns):
            values[:, place] = _pandas_numbers(frame.iloc[:, k], _Refusal(source, names[k], data_row))
        return values

    return RawTable(source, names, read, lambda column: as_labels(frame.iloc[:, column].tolist()), data_row)


def _pandas_numbers(column: Any, refuse: _Refusal) -> Any:
    import pandas as pd

    dtype, kinds = column.dtype, pd.api.types
    if isinstance(dtype, pd.CategoricalDtype):
        refuse("holds categories", CATEGORY_REMEDY)
    if kinds.is_complex_dtype(dtype):
        refuse("holds complex numbers", COMPLEX_REMEDY)
    if kinds.is_datetime64_any_dtype(dtype) or kinds.is_timedelta64_dtype(dtype) or isinstance(dtype, pd.PeriodDtype):
        refuse("holds dates or times", DATE_REMEDY)
    if kinds.is_numeric_dtype(dtype) or kinds.is_bool_dtype(dtype):
        return column.to_numpy(dtype=np.float64, na_value=np.nan)
    return _plain_numbers(column, refuse)


def from_array(data: Any, names: Sequence[str] | None) -> RawTable:
    """A two-dimensional array, its columns named X1 ... Xd unless names are given."""
    source = "array"
    if hasattr(data, "toarray"):
        raise DataError(f"{source}: sparse matrices are not read: pass data.toarray().")
    try:
        array = data if isinstance(data, np.ma.MaskedArray) else np.asarray(data)
    except ValueError:
        raise DataError(f"{source}: its rows do not have the same length: make them equal.") from None
    if array.dtype.names is not None:
        raise DataError(f"{source}: it is a structured array: pass pandas.DataFrame(data).")
    if array.ndim != 2:
        expected = "a two-dimensional array with a row for each observation and a column for each variable"
        raise DataError(f"{source}: its shape is {array.shape}: pass {expected}.")
    if isinstance(names, str):
        raise ConfigError(f"names must be a list of names, one for each column, not the text {shortened(names)}.")
    width = array.shape[1]
    labels = tuple(f"X{k}" for k in range(1, width + 1)) if names is None else tuple(str(name) for name in names)
    if len(labels) != width:
        raise DataError(f"{source}: it has {width:,} columns and {len(labels):,} names came: give one name for each.")

    def read(columns: Sequence[int]) -> FloatArray:
        refuse = _Refusal(source, labels[0], data_row)
        if array.dtype.kind == "c":
            refuse("holds complex numbers", COMPLEX_REMEDY)
        if array.dtype.kind in "mM":
            refuse("holds dates or times", DATE_REMEDY)
        if array.dtype.kind in "biuf":
            values = array[:, columns].astype(np.float64, order="C")
            return values.filled(np.nan) if isinstance(values, np.ma.MaskedArray) else values
        cells = [_plain_numbers(array[:, k], _Refusal(source, labels[k], data_row)) for k in columns]
        return np.array(cells).T.copy()

    return RawTable(source, labels, read, lambda column: as_labels(array[:, column].tolist()), data_row)


# Cells ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Refusal:
    """Says what is wrong with one column, and where."""

    source: str
    name: str
    place: Callable[[int], str]

    def __call__(self, fault: str, remedy: str) -> NoReturn:
        raise DataError(f"{self.source}: column {shortened(self.name)} {fault}: {remedy}.")

    def cell(self, row: int, cell: object, fault: str, remedy: str) -> NoReturn:
        where = f"{self.place(row)} of column {shortened(self.name)}"
        raise DataError(f"{self.source}: {where} holds {shortened(cell)}, {fault}: {remedy}.")


def as_labels(cells: Iterable[Any]) -> list[str]:
    """Cells as text without spaces around it; empty where one is missing."""
    return ["" if cell is None or cell != cell else str(cell).strip() for cell in cells]


def _plain_numbers(cells: Iterable[Any], refuse: _Refusal) -> list[float]:
    """Cells that are Python objects, of which numbers and missing ones are taken; text is not parsed."""
    numbers: list[float] = []
    for row, cell in enumerate(cells):
        if cell is None or cell is np.ma.masked or type(cell).__name__ in {"NAType", "NaTType"}:
            numbers.append(np.nan)
        elif isinstance(cell, (Real, Decimal, np.bool_)):
            numbers.append(_float(cell))
        elif isinstance(cell, (str, bytes)):
            refuse.cell(row, cell, "which is text and not a number", f"{TEXT_REMEDY} (pandas.to_numeric)")
        elif isinstance(cell, complex):
            refuse.cell(row, cell, "a complex number", COMPLEX_REMEDY)
        else:
            kind = type(cell).__name__
            date = kind.lower().startswith(("date", "time"))
            refuse.cell(row, cell, f"which is no number but a {kind}", DATE_REMEDY if date else TEXT_REMEDY)
    return numbers


def _parsed_text(cells: Sequence[str | None], refuse: _Refusal) -> list[float]:
    """Cells of a text file in a column that Arrow did not take as numbers, most often for a reason."""
    parsed = [np.nan if cell is None else _number(cell) for cell in cells]
    numbers = [number for number in parsed if number is not None]
    if len(numbers) == len(parsed):
        return numbers
    bad = parsed.index(None)
    cell = cells[bad]
    if np.all(np.isnan(numbers)):
        refuse.cell(bad, cell, "and no cell of the column is a number", TEXT_REMEDY)
    remedy = "write a number there, or leave out the row or the column"
    if re.fullmatch(r"\s*[+-]?[\d.]*,\d+\s*", str(cell)):
        remedy = "write numbers with a decimal point and without commas"
    return refuse.cell(bad, cell, "which is not a number", remedy)


def _number(cell: str) -> float | None:
    try:
        return None if "_" in cell else float(cell)  # Python reads 1_000 as a number; people do not
    except ValueError:
        return None


def _float(cell: Any) -> float:
    try:
        return float(cell)
    except OverflowError:
        return np.inf
