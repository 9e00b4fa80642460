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
from typing import TYPE_CHECKING, Any, Union

import numpy as np
import numpy.typing as npt

from vcuda.data.checks import check_cells, check_memory, check_rows, check_scales, checked_names
from vcuda.data.files import from_path
from vcuda.data.findings import findings
from vcuda.data.interventions import BoolArray, as_mask, check_free_cells, set_cells
from vcuda.data.sources import FloatArray, RawTable, from_array, from_arrow, from_pandas, nearest, shortened
from vcuda.errors import ConfigError, DataError

if TYPE_CHECKING:
    import pandas as pd

TableLike = Union["Dataset", str, "os.PathLike[str]", npt.ArrayLike, Any]


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """A table of finite numbers, n rows by d named columns, that passed every check.

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
    """

    names: tuple[str, ...]
    values: FloatArray
    source: str = "array"
    notes: tuple[str, ...] = ()
    interventions: BoolArray | None = None

    def __post_init__(self) -> None:
        values = self.values
        if values.dtype != np.float64 or values.flags.writeable or not values.flags.owndata:
            values = np.array(values, dtype=np.float64, order="C")
        values = np.ascontiguousarray(values)
        values.flags.writeable = False
        if values.ndim != 2 or values.shape[1] != len(self.names):
            raise DataError(f"{self.source}: values of shape {values.shape} do not fit {len(self.names)} names.")
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
    def mean(self) -> FloatArray:
        """The mean of each column, in the user's units, shape (d,)."""
        return _read_only(self.values.mean(axis=0))

    @cached_property
    def scale(self) -> FloatArray:
        """The standard deviation of each column (division by n), in the user's units, shape (d,)."""
        scale = np.empty(self.d)
        width = max(1, 4_000_000 // max(self.n, 1))  # columns at a time, so that the copies stay small
        for start in range(0, self.d, width):
            block = slice(start, start + width)
            centred = self.values[:, block] - self.mean[block]
            # Divided by the largest first: the square of 1e-170 would be zero.
            largest = np.abs(centred).max(axis=0, initial=0.0)
            centred /= np.where(largest > 0, largest, 1.0)
            scale[block] = largest * np.sqrt(np.mean(centred**2, axis=0))
        return _read_only(scale)

    @cached_property
    def fingerprint(self) -> str:
        """The sha256, in hexadecimal, of names, shape and values: equal tables have equal fingerprints."""
        digest = hashlib.sha256(json.dumps([self.names, self.values.shape]).encode())
        digest.update(self.values.astype("<f8", copy=False).data)
        if self.interventions is not None:
            digest.update(np.packbits(self.interventions).data)
        return digest.hexdigest()

    def standardised(self) -> FloatArray:
        """A new (n, d) array in which each column has mean zero and standard deviation one."""
        # A selection of rows may leave a column constant, which then is zero.
        return (self.values - self.mean) / np.where(self.scale > 0, self.scale, 1.0)

    def with_logarithms(self, columns: npt.ArrayLike) -> Dataset:
        """The table with the natural logarithms of the columns marked in (d,) booleans, which must be positive."""
        marked = np.asarray(columns, dtype=bool)
        if not marked.any():
            return self
        least = self.values.min(axis=0)
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
        """The table as a new pandas DataFrame."""
        import pandas as pd

        return pd.DataFrame(self.values.copy(), columns=list(self.names))


def as_dataset(
    data: TableLike, *, names: Sequence[str] | None = None, interventions: str | npt.ArrayLike | None = None
) -> Dataset:
    """Check a table and make it a `Dataset`; the table itself is not changed.

    Parameters
    ----------
    data
        A path to a CSV, TSV, Parquet or Feather file, the name of a bundled table such as "sachs", a pandas,
        Polars or Arrow table, an (n, d) array, or a Dataset, which comes back as it is.
    names
        The column names of an array, X1 ... Xd if not given.
    interventions
        Which cells an experiment set. The name of a column that says so for each row: empty or "none", the name of a
        variable, or several joined by a semicolon; or a mask, (n, d) or a table with columns of the same names.

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
    if isinstance(interventions, str) and not isinstance(data, Dataset):
        return _checked(_raw_table(data, names), target_column=interventions)
    table = data if isinstance(data, Dataset) else _dataset(data, names)
    if interventions is None:
        return table
    if isinstance(interventions, str):
        raise ConfigError("a Dataset holds numbers only: give interventions when it is made, by as_dataset.")
    return _with_interventions(table, as_mask(interventions, table.names, table.n))


def _dataset(data: Any, names: Sequence[str] | None) -> Dataset:
    if isinstance(data, str):
        from vcuda.data import library

        if data in library.names():
            return library.load(data).dataset
    return _checked(_raw_table(data, names))


def _raw_table(data: Any, names: Sequence[str] | None) -> RawTable:
    if isinstance(data, (str, os.PathLike)):
        from vcuda.data import library

        return from_path(Path(data), also_known=library.names())
    # A pandas table cannot come from a program that has not imported pandas.
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(data, pandas.DataFrame):
        return from_pandas(data)
    if hasattr(data, "collect") and hasattr(data, "collect_schema"):
        raise DataError("Polars table: it is lazy and holds no numbers yet: pass data.collect().")
    if hasattr(data, "__arrow_c_stream__") and not _is_array(data):
        maker = "Polars" if type(data).__module__.startswith("polars") else "Arrow"
        return from_arrow(data, f"{maker} table")
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


def _checked(raw: RawTable, *, target_column: str | None = None) -> Dataset:
    every = tuple(name.strip() for name in raw.names)
    if target_column is not None and target_column not in every:
        raise DataError(
            f"{raw.source}: there is no column {shortened(target_column)} that could tell what was set in each "
            f"row{nearest(target_column, every)}: give the name of such a column."
        )
    kept = [k for k, name in enumerate(every) if name != target_column]
    names, notes = checked_names(raw, kept)
    check_memory(raw, len(names))
    values = raw.read(kept)
    check_rows(raw, values)
    check_cells(raw, names, values)
    values.flags.writeable = False
    bare = Dataset(names, values, raw.source)
    check_scales(bare)
    table = replace(bare, notes=(*raw.notes, *notes, *findings(bare)))
    if target_column is None:
        return table
    cells = raw.labels(every.index(target_column))
    return _with_interventions(table, set_cells(cells, names, column=target_column, source=raw.source, place=raw.place))


def _with_interventions(table: Dataset, held: BoolArray) -> Dataset:
    """The table with the cells that were set; one of which nothing was set stays as it is."""
    if not held.any():
        return table
    check_free_cells(table.values, held, table.names, table.source)
    return replace(table, interventions=_read_only(held))


def _read_only(array: Any) -> Any:
    array.flags.writeable = False
    return array
