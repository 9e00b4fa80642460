"""The validated table that everything else takes."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard, Union

import numpy as np
import numpy.typing as npt

from vcuda.data.categories import Categories, category_findings, coded, labelled_frame, number_findings
from vcuda.data.cells import FloatArray, RawTable
from vcuda.data.checks import (
    Missing,
    check_cells,
    check_columns,
    check_memory,
    check_rows,
    check_scales,
    check_size,
    checked_names,
    too_large_refused,
)
from vcuda.data.columns import EVERY_COLUMN, Choice, left_out, variable_columns
from vcuda.data.files import from_path
from vcuda.data.findings import findings, gap_notes
from vcuda.data.in_memory import from_array, from_arrow, from_pandas, from_polars
from vcuda.data.interventions import BoolArray, Design, as_mask, check_free_cells, set_cells
from vcuda.data.wording import shortened
from vcuda.errors import ConfigError, DataError

if TYPE_CHECKING:
    import pandas as pd

TableLike = Union["Dataset", str, "os.PathLike[str]", npt.ArrayLike, Any]


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """A table of finite numbers, n rows by d named columns, that passed every check; NaN where a cell is missing.

    Build it with `as_dataset`; the constructor takes values that are known to be sound.

    Parameters
    ----------
    names
        The d column names.
    values
        The (n, d) numbers in the user's units; kept as float64, C-order and read-only, copied where need be.
    source
        Where the table came from, in words.
    notes
        What the checks found that does not forbid a fit, one sentence each.
    interventions
        The (n, d) cells that an experiment set, whatever their causes; None when nothing was set.
    target_column
        The column of the user's table that told so, if one did; it is none of the d columns.
    categories
        The labels of each column where all columns hold categories; ``values`` are then codes 0, 1, 2, ... for them.
        None for a table of numbers.
    choice
        Which columns were taken of the user's table, if somebody said so.
    """

    names: tuple[str, ...]
    values: FloatArray
    source: str = "array"
    notes: tuple[str, ...] = ()
    interventions: BoolArray | None = None
    target_column: str | None = None
    categories: Categories | None = None
    choice: Choice = EVERY_COLUMN

    def __post_init__(self) -> None:
        values = self.values
        if values.dtype != np.float64 or values.flags.writeable or not values.flags.owndata:
            values = np.array(values, dtype=np.float64, order="C")
        values = np.ascontiguousarray(values)
        values.flags.writeable = False
        if values.ndim != 2 or values.shape[1] != len(self.names):
            raise DataError(f"{self.source}: values of shape {values.shape} do not fit {len(self.names)} names.")
        if self.categories is not None and len(self.categories) != len(self.names):
            told = f"labels of {len(self.categories)} columns do not fit {len(self.names)} names"
            raise DataError(f"{self.source}: {told}.")
        object.__setattr__(self, "names", tuple(self.names))
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "notes", tuple(self.notes))

    def __repr__(self) -> str:
        return f"Dataset({self.n:,} rows x {self.d:,} columns from {self.source!r})"

    @property
    def n(self) -> int:
        """The number of rows."""
        return self.values.shape[0]

    @property
    def d(self) -> int:
        """The number of columns."""
        return self.values.shape[1]

    @cached_property
    def missing(self) -> BoolArray | None:
        """The (n, d) cells that are missing; None when nothing is."""
        gaps = np.isnan(self.values)
        return _read_only(gaps) if gaps.any() else None

    @cached_property
    def mean(self) -> FloatArray:
        """The mean of each column, in the user's units, shape (d,); of what is not missing."""
        if self.missing is None:
            return _read_only(self.values.mean(axis=0))
        return _read_only(np.where(self.missing, 0.0, self.values).sum(axis=0) / (~self.missing).sum(axis=0))

    @property
    def extremes(self) -> tuple[FloatArray, FloatArray]:
        """The least and the largest value of each column (d,), in the user's units."""
        return np.fmin.reduce(self.values, axis=0), np.fmax.reduce(self.values, axis=0)

    @cached_property
    def scale(self) -> FloatArray:
        """The standard deviation of each column (division by its number of values), in the user's units, (d,)."""
        scale = np.empty(self.d)
        present = np.full(self.d, self.n) if self.missing is None else (~self.missing).sum(axis=0)
        width = max(1, 4_000_000 // max(self.n, 1))  # columns at a time, so that the copies stay small
        for start in range(0, self.d, width):
            block = slice(start, start + width)
            centred = self.values[:, block] - self.mean[block]
            if self.missing is not None:
                centred[self.missing[:, block]] = 0.0
            # Divided by the largest first: the square of 1e-170 would be zero.
            largest = np.abs(centred).max(axis=0, initial=0.0)
            centred /= np.where(largest > 0, largest, 1.0)
            scale[block] = largest * np.sqrt(np.sum(centred**2, axis=0) / present[block])
        return _read_only(scale)

    @cached_property
    def fingerprint(self) -> str:
        """The sha256, in hexadecimal, of names, shape and values: equal tables have equal fingerprints."""
        digest = hashlib.sha256(json.dumps([self.names, self.values.shape]).encode())
        # There are many ways to write NaN; the fingerprint knows one.
        values = self.values if self.missing is None else np.where(self.missing, np.nan, self.values)
        digest.update(values.astype("<f8", copy=False).data)
        if self.interventions is not None:
            digest.update(np.packbits(self.interventions).data)
        if self.categories is not None:
            digest.update(json.dumps(self.categories).encode())
        return digest.hexdigest()

    def free_rows(self, column: int) -> BoolArray | slice:
        """The rows in which a column was not set by an experiment, as an index."""
        return slice(None) if self.interventions is None else ~self.interventions[:, column]

    @cached_property
    def design(self) -> Design | None:
        """What experiments set, in numbers of rows; None where they set nothing."""
        return None if self.interventions is None else Design.of(self.interventions)

    @property
    def free_counts(self) -> npt.NDArray[np.int64]:
        """How many cells of each column (d,) were not set by an experiment."""
        return np.full(self.d, self.n) if self.interventions is None else (~self.interventions).sum(axis=0)

    def standardised(self) -> FloatArray:
        """A new (n, d) array in which each column has mean zero and standard deviation one."""
        # A selection of rows may leave a column constant, which then is zero.
        return (self.values - self.mean) / np.where(self.scale > 0, self.scale, 1.0)

    def with_logarithms(self, columns: npt.ArrayLike) -> Dataset:
        """The table with the natural logarithms of the columns marked in (d,) booleans, which must be positive."""
        marked = np.asarray(columns, dtype=bool)
        if not marked.any():
            return self
        least = np.fmin.reduce(self.values, axis=0)
        if (least[marked] <= 0).any():
            column = int(np.flatnonzero(marked & (least <= 0))[0])
            raise DataError(
                f"column {self.names[column]!r} reaches down to {least[column]:g}, and only positive numbers have a "
                "logarithm; leave the column as it is, or shift it"
            )
        values = self.values.copy()
        values[:, marked] = np.log(values[:, marked])
        return replace(self, values=values)

    def select(self, rows: npt.ArrayLike | slice) -> Dataset:
        """The table of some rows, by indices, a boolean mask or a slice; the checks are not repeated."""
        chosen = rows if isinstance(rows, slice) else np.asarray(rows)
        held = None if self.interventions is None else self.interventions[chosen].copy()
        return replace(self, values=self.values[chosen].copy(), interventions=held)

    def to_frame(self) -> pd.DataFrame:
        """The table as a new pandas DataFrame; columns of categories hold their labels."""
        import pandas as pd

        if self.categories is not None:
            return labelled_frame(self.names, self.values, self.categories)
        return pd.DataFrame(self.values.copy(), columns=list(self.names))


def as_dataset(
    data: TableLike,
    *,
    names: Sequence[str] | None = None,
    interventions: str | npt.ArrayLike | None = None,
    columns: Sequence[str] | None = None,
    without: Sequence[str] | None = None,
    missing: Missing = "refuse",
) -> Dataset:
    """Check a table and make it a `Dataset`; the table itself is not changed.

    Parameters
    ----------
    data
        A path to a CSV, TSV, Parquet or Feather file, the name of a bundled table such as "sachs", a pandas,
        Polars, Arrow or Dask table, an (n, d) array, or a Dataset, which comes back as it is.
    names
        The column names of an array, X1 ... Xd if not given.
    interventions
        Which cells an experiment set. The name of a column that says so for each row: empty or "none", the name of a
        variable, or several joined by a semicolon; or a mask, (n, d) or a table with columns of the same names. Of a
        table from which columns are chosen the mask is about all.
    columns, without
        Names of the columns to take, or of those to leave out; by default all are taken. Their order is that of the
        table. The others are neither read nor checked. The column of ``interventions`` need not be among those to take.
    missing
        ``"refuse"`` a table with missing cells, or ``"keep"`` them as NaN, as `fit` does, which fills them by
        imputation. Rows without any value are left out, with a note.

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
    choice = Choice.of(columns, without)
    if isinstance(data, Dataset):
        return _without_empty_rows(_taken_of(data, choice, interventions, missing))
    if _is_bundled(data):
        from vcuda.data import library

        return _without_empty_rows(_taken_of(library.load(data).dataset, choice, interventions, missing))
    raw = _raw_table(data, names)
    with too_large_refused(raw.source):
        return _without_empty_rows(_read_and_checked(raw, choice, interventions, missing))


def _taken_of(given: Dataset, choice: Choice, interventions: Any, missing: Missing) -> Dataset:
    """A table that is checked already, or some of its columns."""
    if isinstance(interventions, str) and interventions != given.target_column:
        raise ConfigError(
            f"{given.source} has no column {shortened(interventions)} of texts any more, since it is checked and holds "
            "numbers only: name it when the Dataset is made, by as_dataset."
        )
    kept = choice.positions(given.names, source=given.source, target_column=given.target_column)
    table = given if len(kept) == given.d else _narrowed(given, kept, choice)
    if table.missing is not None:
        check_columns(table.source, table.names, table.values, missing=missing)
    if interventions is None or isinstance(interventions, str):
        return table
    return _with_interventions(table, as_mask(interventions, given.names, given.n)[:, kept])


def _narrowed(given: Dataset, kept: Sequence[int], choice: Choice) -> Dataset:
    """The columns of a table at some positions, with what there is to be noted of them."""
    names = tuple(given.names[k] for k in kept)
    held = None if given.interventions is None else given.interventions[:, kept]
    table = replace(
        given,
        names=names,
        values=given.values[:, kept],
        interventions=None if held is None or not held.any() else _read_only(held),
        categories=None if given.categories is None else tuple(given.categories[k] for k in kept),
        choice=given.choice.then(choice, names),
    )
    before = {*_found(given), *gap_notes(given)}
    return replace(table, notes=(*(note for note in given.notes if note not in before), *_found(table)))


def _is_bundled(data: object) -> TypeGuard[str]:
    from vcuda.data import library

    return isinstance(data, str) and data in library.names()


def _raw_table(data: Any, names: Sequence[str] | None) -> RawTable:
    if isinstance(data, (str, os.PathLike)):
        from vcuda.data import library

        return from_path(Path(data), also_known=library.names())
    # Its module imports the reading of files, which most tables in memory do not need.
    if "dask.dataframe" in sys.modules:
        from vcuda.data.large.partitions import in_memory, is_partitioned

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


def _read_and_checked(raw: RawTable, choice: Choice, interventions: Any, missing: Missing) -> Dataset:
    target_column = interventions if isinstance(interventions, str) else None
    kept = variable_columns(raw, target_column, choice)
    check_memory(raw, len(kept))
    check_size(raw, len(kept))
    names, notes = checked_names(raw, kept)
    read = raw.read(kept)
    check_rows(raw, read.values)
    values, categories, remarks = coded(read, names, source=raw.source, place=raw.place)
    check_cells(raw, names, values, missing=missing)
    values.flags.writeable = False
    bare = Dataset(names, values, raw.source, categories=categories, choice=choice)
    check_scales(bare)
    table = replace(bare, notes=(*raw.notes, *notes, *remarks, *_found(bare)))
    if interventions is None:
        return table
    every = [name.strip() for name in raw.names]
    if target_column is None:
        return _with_interventions(table, as_mask(interventions, every, table.n)[:, kept])
    cells = raw.labels(every.index(target_column))
    if len(cells) != table.n:
        raise DataError(
            f"{raw.source}: column {shortened(target_column)} has {len(cells):,} cells and the table {table.n:,} rows, "
            "so that quotes or line breaks in it can be read in two ways: save the table again."
        )
    held = set_cells(
        cells,
        names,
        column=target_column,
        source=raw.source,
        place=raw.place,
        left_out=left_out(raw, names, target_column),
    )
    return replace(_with_interventions(table, held), target_column=target_column)


def _found(table: Dataset) -> list[str]:
    """What is worth a note in the cells of a table."""
    if table.categories is not None:
        return category_findings(table)
    return [*findings(table), *number_findings(table)]


def _with_interventions(table: Dataset, held: BoolArray) -> Dataset:
    """The table with the cells that were set; one of which nothing was set stays as it is."""
    if not held.any():
        return table
    # A cell that is missing tells as little of its causes as one that was set.
    told = held if table.missing is None else held | table.missing
    check_free_cells(table.values, told, table.names, table.source)
    return replace(table, interventions=_read_only(held))


def _without_empty_rows(table: Dataset) -> Dataset:
    """The table without the rows that hold no value at all, and with a note of what is missing most."""
    if table.missing is None:
        return table
    kept = ~table.missing.all(axis=1)
    if not kept.all():
        count = int((~kept).sum())
        told = (
            "One row without any value was left out."
            if count == 1
            else f"{count:,} rows without any value were left out."
        )
        table = replace(table.select(kept), notes=(*table.notes, told))
    new = [note for note in gap_notes(table) if note not in table.notes]
    return replace(table, notes=(*table.notes, *new)) if new else table


def _read_only(array: Any) -> Any:
    array.flags.writeable = False
    return array
