"""Tables that are in memory already: those of pandas, Polars and Arrow, and arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from vcuda.data.messages import data_row, listed, shortened
from vcuda.data.raw_table import (
    COMPLEX_REMEDY,
    TEXT_REMEDY,
    Cells,
    CellType,
    Column,
    Labels,
    RawTable,
    Refusal,
    as_labels,
    numbered,
    parsed_text,
    plain_cells,
)
from vcuda.errors import ConfigError, DataError


def from_arrow(table: Any, source: str) -> RawTable:
    """An Arrow table, or any table that speaks Arrow's stream protocol."""
    arrow = _as_arrow(table, source)
    kept, names, notes = columns_without_index(arrow.schema)
    return RawTable(
        source,
        names,
        lambda columns: cells_from_arrow(arrow.select([kept[k] for k in columns]), source, data_row),
        lambda column: as_labels(arrow.column(kept[column]).to_pylist()),
        data_row,
        notes=notes,
    )


def from_polars(frame: Any) -> RawTable:
    """A Polars table; Arrow gets what is read of it, since some columns may have no Arrow form."""
    source, names = "Polars table", tuple(frame.columns)

    def arrow(columns: Sequence[int]) -> Any:
        for k in columns:
            # Versions of Polars end the process when Arrow asks for such a column.
            if str(frame.dtypes[k]).startswith("Object"):
                raise DataError(
                    f"{source}: it cannot be read as a table (column {shortened(names[k])} holds Python objects, which "
                    f"have no Arrow form): {TEXT_REMEDY}."
                )
        return _as_arrow(frame.select([names[k] for k in columns]), source)

    return RawTable(
        source,
        names,
        lambda columns: cells_from_arrow(arrow(columns), source, data_row),
        lambda column: as_labels(arrow([column]).column(0).to_pylist()),
        data_row,
    )


def _as_arrow(table: Any, source: str) -> Any:
    import pyarrow as pa

    try:
        return table if isinstance(table, pa.Table) else pa.table(table)
    except Exception as error:  # whatever the other library raises when a column has no Arrow form
        reason = str(error).split("\n")[0].rstrip(".")
        raise DataError(f"{source}: it cannot be read as a table ({reason}): {TEXT_REMEDY}.") from error


def columns_without_index(schema: Any) -> tuple[list[int], tuple[str, ...], tuple[str, ...]]:
    """The positions and names of an Arrow schema's columns, and a note if a pandas index was left out."""
    # pandas writes a row index as a column and says so in the metadata; read back by pandas it is no column.
    metadata = schema.pandas_metadata
    index_columns = metadata.get("index_columns") if isinstance(metadata, dict) else None
    index = {name for name in index_columns if isinstance(name, str)} if isinstance(index_columns, list) else set()
    every = schema.names  # once: Arrow makes a new list each time
    kept = [k for k, name in enumerate(every) if name not in index]
    left_out = [name for name in every if name in index]
    notes = (f"The pandas index {listed(left_out)} was left out.",) if left_out else ()
    return kept, tuple(every[k] for k in kept), notes


def cells_from_arrow(
    table: Any,
    source: str,
    place: Callable[[int], str],
    *,
    text_is_parsed: bool = False,
    comma_first: bool = False,
) -> Cells:
    """All columns of an Arrow table; text that is numbers is taken for numbers only where it comes from a file that
    has no types of its own. ``comma_first`` as in `parsed_text`."""

    def read(k: int) -> Column:
        column = table.column(k)
        kind = str(column.type)
        refuse = Refusal(source, table.column_names[k], place)
        if kind.startswith("dictionary"):
            return _arrow_categories(column, table.schema.field(k).metadata)
        if kind.startswith(("date", "time", "duration", "month")):
            refuse.dates()
        if kind in {"string", "large_string", "string_view"}:
            cells = column.to_pylist()
            if not text_is_parsed:
                return plain_cells(cells, refuse)
            return parsed_text(cells, refuse, comma_first=comma_first)
        if kind == "null":
            return Column(np.nan, "real")
        if not kind.startswith(("bool", "int", "uint", "halffloat", "float", "double", "decimal")):
            refuse(f"holds values of type {kind}", TEXT_REMEDY)
        whole: CellType = "truth" if kind == "bool" else "integer" if kind.startswith(("int", "uint")) else "real"
        numbers = column.cast("uint8") if kind == "bool" else column
        return Column(numbers.cast("float64", safe=False).to_numpy(), whole)

    return Cells.of(table.num_rows, range(table.num_columns), read)


# The metadata of a field whose labels somebody has put in order, without saying that the order has a meaning.
LABELS_IN_ORDER = {b"vcuda.labels": b"in order"}


def _arrow_categories(column: Any, metadata: dict[bytes, bytes] | None) -> Column:
    if not column.num_chunks:
        return Column(np.empty(0), "labels", Labels(()))
    whole = column.unify_dictionaries()
    codes = np.concatenate([chunk.indices.to_numpy(zero_copy_only=False).astype(float) for chunk in whole.chunks])
    ordered = bool(column.type.ordered)
    in_order = ordered or (metadata or {}).items() >= LABELS_IN_ORDER.items()
    return numbered(whole.chunk(0).dictionary.to_pylist(), codes, in_order=in_order, ordered=ordered)


def from_pandas(frame: Any, *, source: str = "pandas table") -> RawTable:
    """A pandas table; its index is no column."""
    if frame.columns.nlevels > 1:
        raise DataError(f"{source}: the columns have {frame.columns.nlevels} levels of names: give them one.")
    missing = frame.columns.isna()
    names = tuple("" if none else str(label) for label, none in zip(frame.columns, missing, strict=True))

    def read(k: int) -> Column:
        return _pandas_column(frame.iloc[:, k], Refusal(source, names[k], data_row))

    return RawTable(
        source,
        names,
        lambda columns: Cells.of(len(frame), columns, read),
        lambda column: as_labels(frame.iloc[:, column].tolist()),
        data_row,
    )


def _pandas_column(column: Any, refuse: Refusal) -> Column:
    import pandas as pd

    dtype, kinds = column.dtype, pd.api.types
    if isinstance(dtype, pd.CategoricalDtype):
        codes = column.cat.codes.to_numpy(dtype=np.float64)
        names = [str(category) for category in dtype.categories]
        # pandas sorts what nobody has ordered, numbers that are text by their first digit.
        in_order = bool(dtype.ordered) or names != sorted(names)
        return numbered(names, np.where(codes < 0, np.nan, codes), in_order=in_order, ordered=bool(dtype.ordered))
    if kinds.is_complex_dtype(dtype):
        refuse("holds complex numbers", COMPLEX_REMEDY)
    if kinds.is_datetime64_any_dtype(dtype) or kinds.is_timedelta64_dtype(dtype) or isinstance(dtype, pd.PeriodDtype):
        refuse.dates()
    if kinds.is_bool_dtype(dtype) or kinds.is_numeric_dtype(dtype):
        whole: CellType = "integer" if kinds.is_integer_dtype(dtype) else "real"
        numbers = column.to_numpy(dtype=np.float64, na_value=np.nan)
        return Column(numbers, "truth" if kinds.is_bool_dtype(dtype) else whole)
    return plain_cells(column, refuse)


def default_names(width: int) -> tuple[str, ...]:
    """The names of so many columns that have none: X1, X2, ..."""
    return tuple(f"X{k}" for k in range(1, width + 1))


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
    labels = default_names(width) if names is None else tuple(str(name) for name in names)
    if len(labels) != width:
        raise DataError(f"{source}: it has {width:,} columns and {len(labels):,} names came: give one name for each.")

    def read(columns: Sequence[int]) -> Cells:
        refuse = Refusal(source, labels[columns[0]], data_row)
        if array.dtype.kind == "c":
            refuse("holds complex numbers", COMPLEX_REMEDY)
        if array.dtype.kind in "mM":
            refuse.dates()
        if array.dtype.kind in "biuf":
            values = array[:, columns].astype(np.float64, order="C")
            values = values.filled(np.nan) if isinstance(values, np.ma.MaskedArray) else values
            kind: CellType = "truth" if array.dtype.kind == "b" else "real" if array.dtype.kind == "f" else "integer"
            return Cells(values, (kind,) * len(columns), {}, {}, {}, {})
        return Cells.of(len(array), columns, lambda k: plain_cells(array[:, k], Refusal(source, labels[k], data_row)))

    return RawTable(source, labels, read, lambda column: as_labels(array[:, column].tolist()), data_row)
