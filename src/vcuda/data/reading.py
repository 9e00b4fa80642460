"""Tables of every kind, checked and made a `Dataset`."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeGuard, Union

import numpy.typing as npt

from vcuda.data.categorical import category_findings
from vcuda.data.checks import (
    Missing,
    check_columns,
    check_index,
    check_memory,
    check_rows,
    check_scales,
    check_size,
    checked_names,
    too_large_refused,
)
from vcuda.data.columns import ColumnChoice, left_out, variable_columns
from vcuda.data.contexts import NO_CONTEXTS, ContextOptions, environments_of_rows
from vcuda.data.conversion.kinds import WHOLE, TablePart
from vcuda.data.dataset import Dataset, read_only
from vcuda.data.examination import AS_FOUND, ReadOptions, examined, notes_on_kinds, with_read_options
from vcuda.data.files import from_path, refuse_without_header
from vcuda.data.findings import findings, missing_notes, row_notes
from vcuda.data.in_memory import from_array, from_arrow, from_pandas, from_polars
from vcuda.data.interventions import BoolArray, as_mask, check_free_cells, set_cells
from vcuda.data.kinds import Kind
from vcuda.data.messages import listed, nearest, shortened
from vcuda.data.raw_table import RawTable
from vcuda.data.sources import copied
from vcuda.deprecation import warn_renamed
from vcuda.errors import ConfigError, DataError

TableLike = Union[Dataset, str, "os.PathLike[str]", npt.ArrayLike, Any]


def as_dataset(
    data: TableLike,
    *,
    names: Sequence[str] | None = None,
    interventions: str | npt.ArrayLike | None = None,
    contexts: str | Sequence[str] | None = None,
    reference: str | None = None,
    columns: Sequence[str] | None = None,
    exclude: Sequence[str] | None = None,
    kinds: Mapping[str, Kind] | None = None,
    missing_values: Sequence[str | float] | None = None,
    strict: bool = False,
    missing: Missing = "refuse",
    without: Sequence[str] | None = None,
    header: bool = True,
    sheet: str | None = None,
    query: str | None = None,
) -> Dataset:
    """Check a table and make it a `Dataset`; the table itself is not changed.

    Parameters
    ----------
    data
        A path to a file (docs/files.md has the formats) or to a pipe, "-" for standard input, the address of a
        database, the name of a bundled table such as "sachs", a pandas, Polars, Arrow or Dask table, an (n, d)
        array, or a Dataset, which comes back as it is. ``"book.xlsx#Sheet"`` and ``"shop.sqlite#orders"`` name a
        part of a file.
    names
        The column names of an array, X1 ... Xd if not given.
    interventions
        Which cells an experiment set. The name of a column that says so for each row: empty or "none", the name of a
        variable, or several joined by a semicolon; or a mask, (n, d) or a table with columns of the same names. Of a
        table from which columns are chosen the mask is about all.
    contexts
        Columns that say which environment each row comes from, such as a site or a batch; several name combinations.
        They are no variables.
    reference
        The environment that the others are compared with; by default the one with most rows.
    columns, exclude
        Names of the columns to take, or of those to leave out; by default all are taken. Their order is that of the
        table. The others are neither read nor checked. The column of ``interventions`` need not be among those to take.
    kinds
        The kind of columns by name: "number", "count", "yes/no", "ordered" or "label". The rules of docs/kinds.md find
        those of the others.
    missing_values
        Cells that stand for missing values in this table, such as -999.
    strict
        Whether to refuse a table with columns that are no variables (identifiers, dates, free text, columns that do not
        vary). By default they are left out, and a note says so.
    missing
        ``"refuse"`` a table with missing cells, or ``"keep"`` them as NaN, as `fit` does, which imputes
        them. Rows without any value are left out, with a note.
    without
        The old name of ``exclude``.
    header
        Whether the first line of a text file holds names. If not, the columns are X1 ... Xd.
    sheet
        The sheet of an Excel or OpenDocument file; by default the first with a table.
    query
        A query in SQL for a SQLite or DuckDB file, or for the address of a database.

    Raises
    ------
    DataError
        In one sentence that names the column, the row where there is one, and the remedy.

    Examples
    --------
    >>> data = as_dataset([[1, 2.5], [2, 0.5], [3, 2.0], [4, 1.0], [5, 1.5]], names=["dose", "response"])
    >>> data.n, data.names, data.mean.tolist()
    (5, ('dose', 'response'), [3.0, 1.5])
    """
    if names is not None and not _is_array(data):
        raise ConfigError("names belong to an array; this table has names of its own: rename its columns instead.")
    if missing not in ("refuse", "keep"):
        raise ConfigError(f"missing must be refuse or keep, not {missing!r}.")
    if without is not None:
        warn_renamed("without=", "exclude=")
        exclude = without
    choice, how = ColumnChoice.of(columns, exclude, header=header), ReadOptions.of(kinds, missing_values, strict)
    return read_table(
        data,
        choice=choice,
        how=how,
        names=names,
        interventions=interventions,
        contexts=ContextOptions.of(contexts, reference),
        missing=missing,
        part=TablePart(sheet, query),
    )


def read_table(
    data: TableLike,
    *,
    choice: ColumnChoice,
    how: ReadOptions = AS_FOUND,
    names: Sequence[str] | None = None,
    interventions: Any = None,
    contexts: ContextOptions = NO_CONTEXTS,
    missing: Missing,
    part: TablePart = WHOLE,
) -> Dataset:
    """`as_dataset`, with its options checked."""
    if isinstance(data, Dataset) or _is_bundled(data) or not isinstance(data, (str, os.PathLike)):
        refuse_without_header(choice.header, "this is")
    if isinstance(data, Dataset) or _is_bundled(data):
        part.refuse("this table")
    if isinstance(data, Dataset):
        _check_contexts(data, contexts)
        return _without_empty_rows(_taken_of(data, choice, interventions, missing, how))
    if _is_bundled(data):
        from vcuda.data import library

        given = library.load(data).dataset
        _check_contexts(given, contexts)
        return _without_empty_rows(_taken_of(given, choice, interventions, missing, how))
    copy = copied(data, part)
    if copy is not None:
        with copy.opened() as path:
            table = read_table(
                path, choice=choice, how=how, interventions=interventions, contexts=contexts, missing=missing
            )
        copy.remove()
        return replace(table, source=copy.shown, notes=(*copy.notes, *table.notes))
    raw = _raw_table(data, names, choice.header)
    with too_large_refused(raw.source):
        return _without_empty_rows(_read_and_checked(raw, choice, interventions, contexts, missing, how))


def new_rows(data: TableLike, fitted: Sequence[str], *, header: bool = True) -> Dataset:
    """Rows for a posterior about these columns, in their order.

    They are variables whatever the new rows look like, so none is left out or has its kind found again.
    """
    how = ReadOptions({}, are_variables=True)
    table = read_table(data, choice=ColumnChoice.of(fitted, None, header=header), how=how, missing="refuse")
    return table if table.names == tuple(fitted) else table.take([table.names.index(name) for name in fitted])


def _taken_of(given: Dataset, choice: ColumnChoice, interventions: Any, missing: Missing, how: ReadOptions) -> Dataset:
    """A table that was read before, or some of its columns."""
    if isinstance(interventions, str) and interventions != given.target_column:
        raise ConfigError(
            f"{given.source} has no column {shortened(interventions)} of texts any more, since it is checked and holds "
            "numbers only: name it when the Dataset is made, by as_dataset."
        )
    kept = choice.positions(given.names, source=given.source, target_column=given.target_column)
    beside = {name: given.beside.get(name) or _as_text(given, name) for name in how.beside}
    kept = [k for k in kept if given.names[k] not in beside]
    table = given if len(kept) == given.d else _narrowed(given, kept, choice)
    table = replace(table, beside={**given.beside, **beside}) if beside else table
    table = with_read_options(table, how)
    # The Dataset may be a selection of rows in which a column does not vary, or made by hand. Labels are known beyond
    # the rows that are there, so that a column of one label can be scored.
    numbers = [k for k in range(table.d) if table.categories is None or table.categories[k] is None]
    if table.missing is not None or len(numbers) == table.d:
        check_columns(table.source, table.names, table.values, missing=missing)
    elif numbers:
        check_columns(table.source, [table.names[k] for k in numbers], table.values[:, numbers], missing=missing)
    if interventions is None or isinstance(interventions, str):
        return table
    return _with_interventions(table, as_mask(interventions, given.names, given.n)[:, kept])


def _as_text(given: Dataset, name: str) -> tuple[str, ...]:
    """The cells of a column of a table that was read before."""
    if name not in given.names:
        raise _no_such_column(given.source, name, given.names)
    k = given.names.index(name)
    labels = None if given.categories is None else given.categories[k]
    column = given.values[:, k].tolist()
    if labels is not None:
        return tuple("" if code != code else labels[int(code)] for code in column)
    return tuple("" if cell != cell else f"{cell:.15g}" for cell in column)


def _no_such_column(source: str, name: str, known: Sequence[str]) -> DataError:
    return DataError(
        f"{source}: there is no column {shortened(name)}{nearest(name, known)}: the columns are {listed(list(known))}."
    )


def _beside(raw: RawTable, names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Columns that say something of the rows, as text."""
    every = [name.strip() for name in raw.names]
    for name in names:
        if name not in every:
            raise _no_such_column(raw.source, name, every)
    return {name: tuple(raw.labels(every.index(name))) for name in names}


def _check_contexts(given: Dataset, asked: ContextOptions) -> None:
    """Refuse context columns that a table which was read before did not set aside."""
    known = () if given.contexts is None else given.contexts.columns
    if asked and asked.columns != known:
        raise ConfigError(
            f"{given.source} has no context column {shortened(asked.columns[0])} any more, since it is checked: name "
            "it when the Dataset is made, by as_dataset(..., contexts=...)."
        )
    if asked.reference is not None and given.contexts is not None and asked.reference != given.contexts.reference:
        raise ConfigError("the reference is chosen when the Dataset is made, by as_dataset(..., reference=...)")


def _narrowed(given: Dataset, kept: Sequence[int], choice: ColumnChoice) -> Dataset:
    """The columns of a table at some positions, with what there is to be noted of them."""
    table = given.take(kept)
    table = replace(table, choice=given.choice.then(choice, table.names))
    kinds = notes_on_kinds(given)
    before = {*_found(given), *missing_notes(given), *kinds}
    again = notes_on_kinds(table) if set(kinds) & set(given.notes) else ()
    return replace(table, notes=(*(note for note in given.notes if note not in before), *again, *_found(table)))


def _is_bundled(data: object) -> TypeGuard[str]:
    from vcuda.data import library

    return isinstance(data, str) and data in library.names()


def _raw_table(data: Any, names: Sequence[str] | None, header: bool) -> RawTable:
    if isinstance(data, (str, os.PathLike)):
        from vcuda.data import library

        return from_path(Path(data), header=header, also_known=library.names())
    # Its module imports the reading of files, which most tables in memory do not need.
    if "dask.dataframe" in sys.modules:
        from vcuda.data.streaming.partitions import in_memory, is_partitioned

        if is_partitioned(data):
            return in_memory(data)
    # A pandas table cannot come from a program that has not imported pandas.
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(data, pandas.DataFrame):
        return from_pandas(data)
    if hasattr(data, "collect") and hasattr(data, "collect_schema"):
        raise DataError("Polars table: it is lazy and holds no numbers yet: pass data.collect().")
    if hasattr(data, "__arrow_c_stream__") and not _is_array(data):
        return from_polars(data) if type(data).__module__.startswith("polars") else from_arrow(data, "Arrow table")
    if not _is_array(data):
        raise DataError(
            f"a {type(data).__name__} is no table: pass a path, a pandas, Polars or Arrow table, or a "
            "two-dimensional array with names."
        )
    return from_array(data, names)


def _is_array(data: object) -> bool:
    if isinstance(data, (Dataset, str, bytes, os.PathLike)) or hasattr(type(data), "columns"):
        return False
    return isinstance(data, (list, tuple)) or hasattr(data, "__array__") or hasattr(data, "toarray")


def _read_and_checked(
    raw: RawTable,
    choice: ColumnChoice,
    interventions: Any,
    contexts: ContextOptions,
    missing: Missing,
    how: ReadOptions,
) -> Dataset:
    target_column = interventions if isinstance(interventions, str) else None
    beside = _beside(raw, how.beside)
    kept = variable_columns(raw, target_column, choice, contexts=contexts.columns)
    kept = [k for k in kept if raw.names[k].strip() not in beside]
    check_memory(raw, len(kept))
    check_size(raw, len(kept))
    names, notes = checked_names(raw, kept)
    if how.strict and choice.columns is None:
        check_index(raw, kept)
    read = raw.read(kept)
    check_rows(raw, read.values)
    found = examined(read, names, raw, how=how, insists=choice.columns is not None, missing=missing)
    kept, names = [kept[k] for k in found.kept], tuple(names[k] for k in found.kept)
    found.values.flags.writeable = False
    bare = Dataset(
        names,
        found.values,
        raw.source,
        categories=found.categories,
        choice=choice,
        kinds=found.kinds,
        left_out=found.left_out,
        beside=beside,
    )
    check_scales(bare)
    table = replace(bare, notes=(*raw.notes, *notes, *found.notes, *_found(bare)))
    every = [name.strip() for name in raw.names]
    if contexts:
        cells = [_cells_of(raw, every.index(name), name, table.n) for name in contexts.columns]
        found_contexts, environment = environments_of_rows(contexts, cells, raw.source, raw.place)
        table = replace(table, contexts=found_contexts, environment=environment)
    if interventions is None:
        return table
    if target_column is None:
        return _with_interventions(table, as_mask(interventions, every, table.n)[:, kept])
    held = set_cells(
        _cells_of(raw, every.index(target_column), target_column, table.n),
        names,
        column=target_column,
        source=raw.source,
        place=raw.place,
        left_out=left_out(raw, names, target_column) - set(contexts.columns),
    )
    return replace(_with_interventions(table, held), target_column=target_column)


def _cells_of(raw: RawTable, column: int, name: str, rows: int) -> list[str]:
    """The cells of a column that is no variable, one a row."""
    cells = raw.labels(column)
    if len(cells) != rows:
        raise DataError(
            f"{raw.source}: column {shortened(name)} has {len(cells):,} cells and the table {rows:,} rows, "
            "so that quotes or line breaks in it can be read in two ways: save the table again."
        )
    return cells


def _found(table: Dataset) -> list[str]:
    """What is worth a note in the cells of a table."""
    if table.categories is None:
        return [*row_notes(table), *findings(table)]
    labels = [k for k, own in enumerate(table.categories) if own is not None]
    numbers = [k for k, own in enumerate(table.categories) if own is None]
    return [
        *row_notes(table),
        *(findings(table.take(numbers)) if numbers else ()),
        *category_findings(table, labels),
    ]


def _with_interventions(table: Dataset, held: BoolArray) -> Dataset:
    """The table with the cells that were set; one of which nothing was set stays as it is."""
    if not held.any():
        return table
    # A missing cell says as little about its causes as one that was set.
    uninformative = held if table.missing is None else held | table.missing
    check_free_cells(table.values, uninformative, table.names, table.source)
    return replace(table, interventions=read_only(held))


def _without_empty_rows(table: Dataset) -> Dataset:
    """The table without the rows that hold no value at all, and with a note of what is missing most."""
    if table.missing is None:
        return table
    kept = ~table.missing.all(axis=1)
    if not kept.all():
        count = int((~kept).sum())
        sentence = (
            "One row without any value was left out."
            if count == 1
            else f"{count:,} rows without any value were left out."
        )
        table = replace(table.select(kept), notes=(*table.notes, sentence))
    new = [note for note in missing_notes(table) if note not in table.notes]
    return replace(table, notes=(*table.notes, *new)) if new else table
