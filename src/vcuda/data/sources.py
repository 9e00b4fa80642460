"""Tables in memory, of other libraries and arrays: their names, and their cells as numbers or numbered labels."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from numbers import Integral, Real
from typing import Any, Literal, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from vcuda.errors import ConfigError, DataError

FloatArray = npt.NDArray[np.float64]

TEXT_REMEDY = "leave the column out or code it as numbers"
DATE_REMEDY = "leave the column out or turn it into a number, such as days since the start"
COMPLEX_REMEDY = "give the real and the imaginary part as two columns"
# A column of text in which more than this share of the cells are numbers is one of numbers, with bad cells.
MOSTLY = 0.5
LONGEST_COMPARED = 100
DATE = re.compile(r"(\d{4}[./-]\d{1,2}[./-]\d{1,2}|\d{1,2}[./-]\d{1,2}[./-]\d{4})(\D.*)?", flags=re.DOTALL)
DECIMAL_COMMA = re.compile(r"\s*[+-]?[\d.]*,\d+\s*")

Kind = Literal["real", "integer", "truth", "labels"]


class Labels(NamedTuple):
    """The labels of a column, as its numbers 0, 1, 2, ... count them; ``ordered`` if somebody chose that order."""

    names: tuple[str, ...]
    ordered: bool = False


class Column(NamedTuple):
    """One column as it was read: ``values`` (n,), NaN where a cell is missing, and what they stand for."""

    values: npt.ArrayLike
    kind: Kind
    labels: Labels | None = None


class Cells(NamedTuple):
    """Columns as they were read: ``values`` (n, k), the kind of each, and the labels of those that have any."""

    values: FloatArray
    kinds: tuple[Kind, ...]
    labels: dict[int, Labels]

    @classmethod
    def of(cls, rows: int, columns: Sequence[int], read: Callable[[int], Column]) -> Cells:
        """Fill a new C-order matrix column by column."""
        values = np.empty((rows, len(columns)))
        kinds: list[Kind] = []
        labels: dict[int, Labels] = {}
        for place, k in enumerate(columns):
            values[:, place], kind, own = read(k)
            kinds.append(kind)
            if own is not None:
                labels[place] = own
        return cls(values, tuple(kinds), labels)


@dataclass(frozen=True)
class RawTable:
    """A table that nobody has checked yet: its names are known, its cells are read when `read` is called.

    Names before cells, so that a table too wide for the machine is refused before it is loaded.
    """

    source: str
    names: tuple[str, ...]
    read: Callable[[Sequence[int]], Cells]  # some of the columns, by their positions
    labels: Callable[[int], list[str]]  # the cells of one column as text, empty where one is missing
    place: Callable[[int], str]  # row index, from 0 -> how a person finds that row
    has_header_line: bool = False  # the names are the first line of a text file, or what was taken for it
    rows: int | None = None  # where they are known before a cell is read
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
    # Comparing two texts costs the product of their lengths; nobody mistypes a name of more letters than this.
    by_lower = {name.lower(): name for name in known if len(name) <= LONGEST_COMPARED}
    if len(wanted) > LONGEST_COMPARED:
        return ""
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
        lambda columns: cells_from_arrow(arrow.select([kept[k] for k in columns]), source, data_row),
        lambda column: as_labels(arrow.column(kept[column]).to_pylist()),
        data_row,
        notes=notes,
    )


def columns_without_index(schema: Any) -> tuple[list[int], tuple[str, ...], tuple[str, ...]]:
    """The positions and names of an Arrow schema's columns, and a note if a pandas index was left out."""
    # pandas writes a row index as a column and says so in the metadata; read back by pandas it is no column.
    told = schema.pandas_metadata
    index_columns = told.get("index_columns") if isinstance(told, dict) else None
    index = {name for name in index_columns if isinstance(name, str)} if isinstance(index_columns, list) else set()
    every = schema.names  # once: Arrow makes a new list each time
    kept = [k for k, name in enumerate(every) if name not in index]
    left_out = [name for name in every if name in index]
    notes = (f"The pandas index {listed(left_out)} was left out.",) if left_out else ()
    return kept, tuple(every[k] for k in kept), notes


def cells_from_arrow(table: Any, source: str, place: Callable[[int], str], *, text_is_parsed: bool = False) -> Cells:
    """All columns of an Arrow table; text that is numbers is taken for numbers only where it comes from a text file."""

    def read(k: int) -> Column:
        column = table.column(k)
        kind = str(column.type)
        refuse = _Refusal(source, table.column_names[k], place)
        if kind.startswith("dictionary"):
            return _arrow_categories(column)
        if kind.startswith(("date", "time", "duration", "month")):
            refuse("holds dates or times", DATE_REMEDY)
        if kind in {"string", "large_string", "string_view"}:
            cells = column.to_pylist()
            return _parsed_text(cells, refuse) if text_is_parsed else _plain_cells(cells, refuse)
        if kind == "null":
            return Column(np.nan, "real")
        if not kind.startswith(("bool", "int", "uint", "halffloat", "float", "double", "decimal")):
            refuse(f"holds values of type {kind}", TEXT_REMEDY)
        whole: Kind = "truth" if kind == "bool" else "integer" if kind.startswith(("int", "uint")) else "real"
        numbers = column.cast("uint8") if kind == "bool" else column
        return Column(numbers.cast("float64", safe=False).to_numpy(), whole)

    return Cells.of(table.num_rows, range(table.num_columns), read)


def _arrow_categories(column: Any) -> Column:
    if not column.num_chunks:
        return Column(np.empty(0), "labels", Labels(()))
    whole = column.unify_dictionaries()
    codes = np.concatenate([chunk.indices.to_numpy(zero_copy_only=False).astype(float) for chunk in whole.chunks])
    return _numbered(whole.chunk(0).dictionary.to_pylist(), codes, ordered=column.type.ordered)


def from_pandas(frame: Any, *, source: str = "pandas table") -> RawTable:
    """A pandas table; its index is no column."""
    if frame.columns.nlevels > 1:
        raise DataError(f"{source}: the columns have {frame.columns.nlevels} levels of names: give them one.")
    missing = frame.columns.isna()
    names = tuple("" if none else str(label) for label, none in zip(frame.columns, missing, strict=True))

    def read(k: int) -> Column:
        return _pandas_column(frame.iloc[:, k], _Refusal(source, names[k], data_row))

    return RawTable(
        source,
        names,
        lambda columns: Cells.of(len(frame), columns, read),
        lambda column: as_labels(frame.iloc[:, column].tolist()),
        data_row,
    )


def _pandas_column(column: Any, refuse: _Refusal) -> Column:
    import pandas as pd

    dtype, kinds = column.dtype, pd.api.types
    if isinstance(dtype, pd.CategoricalDtype):
        codes = column.cat.codes.to_numpy(dtype=np.float64)
        names = [str(category) for category in dtype.categories]
        # pandas sorts what nobody has ordered, numbers that are text by their first digit.
        ordered = bool(dtype.ordered) or names != sorted(names)
        return _numbered(names, np.where(codes < 0, np.nan, codes), ordered=ordered)
    if kinds.is_complex_dtype(dtype):
        refuse("holds complex numbers", COMPLEX_REMEDY)
    if kinds.is_datetime64_any_dtype(dtype) or kinds.is_timedelta64_dtype(dtype) or isinstance(dtype, pd.PeriodDtype):
        refuse("holds dates or times", DATE_REMEDY)
    if kinds.is_bool_dtype(dtype) or kinds.is_numeric_dtype(dtype):
        kind: Kind = "truth" if kinds.is_bool_dtype(dtype) else "integer" if kinds.is_integer_dtype(dtype) else "real"
        return Column(column.to_numpy(dtype=np.float64, na_value=np.nan), kind)
    return _plain_cells(column, refuse)


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

    def read(columns: Sequence[int]) -> Cells:
        refuse = _Refusal(source, labels[0], data_row)
        if array.dtype.kind == "c":
            refuse("holds complex numbers", COMPLEX_REMEDY)
        if array.dtype.kind in "mM":
            refuse("holds dates or times", DATE_REMEDY)
        if array.dtype.kind in "biuf":
            values = array[:, columns].astype(np.float64, order="C")
            values = values.filled(np.nan) if isinstance(values, np.ma.MaskedArray) else values
            kind: Kind = "truth" if array.dtype.kind == "b" else "real" if array.dtype.kind == "f" else "integer"
            return Cells(values, (kind,) * len(columns), {})
        return Cells.of(len(array), columns, lambda k: _plain_cells(array[:, k], _Refusal(source, labels[k], data_row)))

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


def _numbered(names: Sequence[Any], codes: FloatArray, *, ordered: bool) -> Column:
    """Categories that another library has numbered; equal but for spaces they are one, and an empty one is missing."""
    labels = as_labels(names)
    distinct = {label: number for number, label in enumerate(dict.fromkeys(label for label in labels if label))}
    again = np.array([distinct.get(label, np.nan) for label in labels] + [np.nan])
    values = again[np.where(np.isnan(codes), len(labels), codes).astype(np.int64)]
    return Column(values, "labels", Labels(tuple(distinct), ordered))


def _plain_cells(cells: Iterable[Any], refuse: _Refusal) -> Column:
    """Cells that are Python objects: numbers, or text, which is not parsed; missing ones are taken."""
    held = list(cells)
    missing = [_is_missing(cell) for cell in held]
    if not all(missing) and all(none or isinstance(cell, str) for cell, none in zip(held, missing, strict=True)):
        read = _numbered_text([None if none else cell for cell, none in zip(held, missing, strict=True)])
        if _share_of_numbers(read) > MOSTLY:
            row = int(np.argmin(missing))
            refuse.cell(row, held[row], "which is text and not a number", f"{TEXT_REMEDY} (pandas.to_numeric)")
        return _no_dates(read, refuse)
    numbers: list[float] = []
    for row, (cell, none) in enumerate(zip(held, missing, strict=True)):
        if none:
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
    present = [cell for cell, none in zip(held, missing, strict=True) if not none]
    if present and all(isinstance(cell, (bool, np.bool_)) for cell in present):
        return Column(numbers, "truth")
    return Column(numbers, "integer" if all(isinstance(cell, Integral) for cell in present) else "real")


def _is_missing(cell: Any) -> bool:
    if cell is None or cell is np.ma.masked or type(cell).__name__ in {"NAType", "NaTType"}:
        return True
    return isinstance(cell, (float, np.floating)) and bool(np.isnan(cell))


def _parsed_text(cells: Sequence[str | None], refuse: _Refusal) -> Column:
    """Cells of a text file in a column that Arrow did not take as numbers, most often for a reason."""
    read = _numbered_text(cells)
    assert read.labels is not None
    names, values = read.labels.names, np.asarray(read.values)
    numbers = [_number(name) for name in names]
    if None not in numbers:
        known = np.array([*numbers, np.nan], dtype=np.float64)
        whole = not any(set(name.lower()) & set(".einf") for name in names)
        return Column(
            known[np.where(np.isnan(values), len(names), values).astype(np.int64)], "integer" if whole else "real"
        )
    if _share_of_numbers(read) <= MOSTLY:
        return _no_dates(read, refuse)
    bad = int(np.argmax(np.isin(values, [k for k, number in enumerate(numbers) if number is None])))
    remedy = "write a number there, or leave out the row or the column"
    if DECIMAL_COMMA.fullmatch(str(cells[bad])):
        remedy = "write numbers with a decimal point and without commas"
    return refuse.cell(bad, cells[bad], "which is not a number", remedy)


def _numbered_text(cells: Iterable[str | None]) -> Column:
    """Text as numbered labels, in the order of their first appearance; spaces around them do not count."""
    numbers: dict[str, int] = {}
    values = []
    for cell in cells:
        label = "" if cell is None else str(cell).strip()
        values.append(float(numbers.setdefault(label, len(numbers))) if label else np.nan)
    return Column(np.array(values, dtype=np.float64), "labels", Labels(tuple(numbers)))


def _share_of_numbers(column: Column) -> float:
    """Of the cells of a column of text that are there; those with a decimal comma are numbers too."""
    assert column.labels is not None
    values = np.asarray(column.values)
    counts = np.bincount(values[~np.isnan(values)].astype(np.int64), minlength=1)
    alike = [_number(name) is not None or bool(DECIMAL_COMMA.fullmatch(name)) for name in column.labels.names]
    return float(counts[: len(alike)][alike].sum() / max(counts.sum(), 1))


def _no_dates(column: Column, refuse: _Refusal) -> Column:
    assert column.labels is not None
    if column.labels.names and all(DATE.fullmatch(name) for name in column.labels.names):
        refuse("holds dates or times", DATE_REMEDY)
    return column


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
