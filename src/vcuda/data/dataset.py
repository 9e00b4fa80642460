"""The validated table that everything else takes, and every check of user data."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

import numpy as np
import numpy.typing as npt

from vcuda.data.files import from_path
from vcuda.data.findings import findings
from vcuda.data.sources import (
    FloatArray,
    RawTable,
    from_array,
    from_arrow,
    from_pandas,
    listed,
    shortened,
)
from vcuda.errors import ConfigError, DataError

if TYPE_CHECKING:
    import pandas as pd

# A regression on two parents with an intercept leaves two degrees of freedom in five rows, and one row can be
# held out; with fewer no edge has anything to say.
MINIMUM_ROWS = 5
# Squares and their sums over many rows must stay finite, and not vanish, in double precision.
LARGEST_VALUE = 1e150
SMALLEST_SCALE = 1e-150
# What fitting by gradient holds of shape (d, d) in single precision: edge logits and weights, each with a
# gradient and the optimiser's two moments, and noise, soft graph, hard graph and their product for a
# sample.
SQUARE_ARRAYS = 12

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
    """

    names: tuple[str, ...]
    values: FloatArray
    source: str = "array"
    notes: tuple[str, ...] = ()

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
        return Dataset(self.names, values, self.source, self.notes)

    def select(self, rows: npt.ArrayLike | slice) -> Dataset:
        """The table of some rows, by indices, a boolean mask or a slice; the checks are not repeated."""
        chosen = rows if isinstance(rows, slice) else np.asarray(rows)
        return Dataset(self.names, self.values[chosen].copy(), self.source, self.notes)

    def to_frame(self) -> pd.DataFrame:
        """The table as a new pandas DataFrame."""
        import pandas as pd

        return pd.DataFrame(self.values.copy(), columns=list(self.names))


def as_dataset(data: TableLike, *, names: Sequence[str] | None = None) -> Dataset:
    """Check a table and make it a `Dataset`; the table itself is not changed.

    Parameters
    ----------
    data
        A path to a CSV, TSV, Parquet or Feather file, the name of a bundled table such as "sachs", a pandas,
        Polars or Arrow table, an (n, d) array, or a Dataset, which comes back as it is.
    names
        The column names of an array, X1 ... Xd if not given.

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
    if isinstance(data, Dataset):
        return data
    if isinstance(data, (str, os.PathLike)):
        from vcuda.data import library

        if isinstance(data, str) and data in library.names():
            return library.load(data).dataset
        return _checked(from_path(Path(data), also_known=library.names()))
    # A pandas table cannot come from a program that has not imported pandas.
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(data, pandas.DataFrame):
        return _checked(from_pandas(data))
    if hasattr(data, "collect") and hasattr(data, "collect_schema"):
        raise DataError("Polars table: it is lazy and holds no numbers yet: pass data.collect().")
    if hasattr(data, "__arrow_c_stream__") and not _is_array(data):
        maker = "Polars" if type(data).__module__.startswith("polars") else "Arrow"
        return _checked(from_arrow(data, f"{maker} table"))
    if not _is_array(data):
        raise DataError(
            f"a {type(data).__name__} is no table: pass a path, a pandas, Polars or Arrow table, or a "
            "two-dimensional array with names."
        )
    return _checked(from_array(data, names))


def _is_array(data: object) -> bool:
    if isinstance(data, (Dataset, str, bytes, os.PathLike)) or hasattr(type(data), "columns"):
        return False
    return isinstance(data, (list, tuple)) or hasattr(data, "__array__") or hasattr(data, "toarray")


def _checked(raw: RawTable) -> Dataset:
    names, notes = _checked_names(raw)
    _check_memory(raw, len(names))
    values = raw.read()
    _check_rows(raw, values)
    _check_cells(raw, names, values)
    values.flags.writeable = False
    bare = Dataset(names, values, raw.source)
    _check_scales(bare)
    return Dataset(names, bare.values, raw.source, (*raw.notes, *notes, *findings(bare)))


def _read_only(array: FloatArray) -> FloatArray:
    array.flags.writeable = False
    return array


# Names and size, before a cell is read ----------------------------------------------------------------------


def _checked_names(raw: RawTable) -> tuple[tuple[str, ...], list[str]]:
    names = tuple(name.strip() for name in raw.names)
    nameless = [k for k, name in enumerate(names) if not name or re.fullmatch(r"Unnamed: \d+", name)]
    first = names[0] if names else ""
    if len(names) > 1 and (nameless[:1] == [0] or re.fullmatch(r"__index_level_\d+__", first)):
        raise DataError(
            f"{raw.source}: the first column has no name and looks like row numbers that were saved with the "
            "table: save it without them (pandas: index=False, R: row.names = FALSE), or name the column if "
            "it is a variable."
        )
    if nameless:
        hint = " (a separator at the end of the first line makes one)" if raw.has_header_line else ""
        raise DataError(
            f"{raw.source}: column {nameless[0] + 1:,} has no name: give it one, or remove the column{hint}."
        )
    if len(names) < 2:
        count = f"only one column, {shortened(first)}" if names else "no columns"
        raise DataError(
            f"{raw.source}: the table has {count}: a graph needs at least two, separated in a text file by "
            "commas, semicolons or tabs."
        )
    if raw.has_header_line and all(_is_number(name) for name in names):
        example = ",".join(f"X{k}" for k in range(1, min(len(names), 3) + 1))
        raise DataError(
            f"{raw.source}: the first line holds only numbers ({listed(names, 3)}) where names should be: "
            f"add a line of names above it, such as {example}."
        )
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        at = [f"{k + 1:,}" for k, name in enumerate(names) if name == repeated[0]]
        raise DataError(
            f"{raw.source}: the name {shortened(repeated[0])} stands over columns {', '.join(at[:-1])} and "
            f"{at[-1]}: give each column a name of its own."
        )
    trimmed = [name for name, given in zip(names, raw.names, strict=True) if name != given]
    notes = [f"Spaces around the name {listed(trimmed)} were taken away."] if trimmed else []
    return names, notes


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def memory_needed(columns: int) -> int:
    """The bytes that a fit of so many columns needs for its square arrays, about."""
    return SQUARE_ARRAYS * 4 * columns**2


def memory_available() -> int:
    """The bytes that this process may still take, as far as the system tells, otherwise 8 GB."""
    limits: list[int] = []
    for file, pattern, unit in (
        ("/proc/meminfo", r"MemAvailable:\s+(\d+) kB", 1024),
        ("/sys/fs/cgroup/memory.max", r"(\d+)", 1),
    ):
        try:
            match = re.search(pattern, Path(file).read_text())
        except OSError:
            continue
        if match:
            limits.append(int(match.group(1)) * unit)
    if not limits:
        try:
            limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
        except (AttributeError, ValueError, OSError):
            limits.append(8_000_000_000)
    return min(limits)


def _check_memory(raw: RawTable, columns: int) -> None:
    needed, available = memory_needed(columns), memory_available()
    if needed > available:
        most = math.isqrt(available // (SQUARE_ARRAYS * 4))
        raise DataError(
            f"{raw.source}: {columns:,} columns would need about {needed / 1e9:,.1f} GB of memory "
            f"({SQUARE_ARRAYS} arrays of {columns:,} x {columns:,}) and {available / 1e9:,.1f} GB are free: "
            f"choose at most {most:,} columns, or use a machine with more memory."
        )


# Cells ------------------------------------------------------------------------------------------------------


def _check_rows(raw: RawTable, values: FloatArray) -> None:
    rows = values.shape[0]
    if rows == 0:
        raise DataError(f"{raw.source}: the table has names but no rows: add at least {MINIMUM_ROWS} rows of numbers.")
    if rows < MINIMUM_ROWS:
        count = "one row" if rows == 1 else f"{rows} rows"
        raise DataError(f"{raw.source}: the table has only {count}: at least {MINIMUM_ROWS} are needed.")


def _check_cells(raw: RawTable, names: Sequence[str], values: FloatArray) -> None:
    missing = np.isnan(values)
    if missing.any():
        counts = missing.sum(axis=0)
        columns = np.flatnonzero(counts).tolist()
        total = int(counts.sum())
        row = int(np.argmax(missing[:, columns[0]]))
        where = f"column{'s' if len(columns) > 1 else ''} {listed([names[k] for k in columns])}"
        first = raw.place(row) if len(columns) == 1 else f"{raw.place(row)} of {shortened(names[columns[0]])}"
        fault = f"one value is missing in {where}, in {first}: fill it in, or leave out the row or the column"
        if total > 1:
            fault = (
                f"{total:,} values are missing in {where}, the first in {first}: fill them in, or leave out "
                "these rows or columns"
            )
        raise DataError(f"{raw.source}: {fault}.")
    for bad, fault, remedy in (
        (np.isinf(values), "which is not finite", "correct the cell or leave out the row"),
        (np.abs(values) > LARGEST_VALUE, "too large to be squared", "give the column in another unit"),
    ):
        if bad.any():
            row, k = np.argwhere(bad)[0].tolist()
            where = f"{raw.place(row)} of column {shortened(names[k])}"
            raise DataError(f"{raw.source}: {where} holds {values[row, k]:g}, {fault}: {remedy}.")
    constant = np.flatnonzero(values.max(axis=0) == values.min(axis=0)).tolist()
    if constant:
        which = listed([names[k] for k in constant])
        fault = f"column {which} does not vary ({values[0, constant[0]]:g} in every row)"
        if len(constant) > 1:
            fault = f"columns {which} do not vary"
        raise DataError(f"{raw.source}: {fault}: leave out what is constant, it has neither causes nor effects.")


def _check_scales(data: Dataset) -> None:
    small = np.flatnonzero(data.scale < SMALLEST_SCALE)
    if small.size:
        name = shortened(data.names[small[0]])
        raise DataError(
            f"{data.source}: column {name} varies by only {data.scale[small[0]]:g}, too little to be "
            "squared: give the column in another unit."
        )
