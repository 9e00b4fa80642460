"""Tables that stay on disk: what a fit asks of them, from passes over their files."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vcuda.data.checks import memory_available
from vcuda.data.dataset import Dataset, as_dataset
from vcuda.data.interventions import Design
from vcuda.data.partitions import BYTES_A_CELL, cells_in, is_partitioned
from vcuda.data.sources import FloatArray
from vcuda.data.statistics import Statistics, gather
from vcuda.data.streaming import Mapped, Told, cells_on_disk, silent
from vcuda.errors import DataError

# Beyond so many cells a file is read block by block unless somebody says otherwise: 32 MB of numbers.
STREAMED_CELLS = 4_000_000


@dataclass(frozen=True, eq=False, repr=False)
class LargeTable:
    """A table on disk and the statistics of it; what it shares with a `Dataset` has the same names.

    Build it with `open_table`.
    """

    path: Any
    statistics: Statistics

    # A table that is streamed has only numbers, and all of them.
    missing = None
    categories = None

    def __repr__(self) -> str:
        return f"LargeTable({self.n:,} rows x {self.d:,} columns in {self.source!r})"

    @property
    def names(self) -> tuple[str, ...]:
        return self.statistics.names

    @property
    def n(self) -> int:
        return self.statistics.rows

    @property
    def d(self) -> int:
        return len(self.statistics.names)

    @property
    def source(self) -> str:
        return self.statistics.source

    @property
    def notes(self) -> tuple[str, ...]:
        return self.statistics.notes

    @property
    def fingerprint(self) -> str:
        return self.statistics.fingerprint

    @property
    def target_column(self) -> str | None:
        return self.statistics.target_column

    @property
    def mean(self) -> FloatArray:
        return self.statistics.mean

    @property
    def scale(self) -> FloatArray:
        return self.statistics.scale

    @cached_property
    def sample(self) -> Dataset:
        """Rows in memory, drawn uniformly, for what needs rows."""
        return self.statistics.sampled()

    @cached_property
    def design(self) -> Design | None:
        """What experiments set, in numbers of rows; None where they set nothing."""
        regimes = {targets: moments.rows for targets, moments in self.statistics.regimes.items() if targets}
        if not regimes:
            return None
        held = [sum(rows for targets, rows in regimes.items() if name in targets) for name in self.names]
        alone = [regimes.get((name,), 0) for name in self.names]
        return Design(self.n, sum(regimes.values()), np.array(held), np.array(alone))

    @property
    def free_counts(self) -> npt.NDArray[np.int64]:
        """How many cells of each column (d,) were not set by an experiment."""
        return np.full(self.d, self.n) if self.design is None else self.n - self.design.held

    def with_logarithms(
        self, columns: npt.ArrayLike, *, told: Told = silent, mapped: Mapped | None = None
    ) -> LargeTable:
        """The table with the logarithms of the columns marked in (d,) booleans, by another pass over its files."""
        marked = np.asarray(columns, dtype=bool)
        if not marked.any():
            return self
        again = gather(
            self.path,
            interventions=self.target_column,
            logarithm=marked,
            sample_rows=max(1, len(self.statistics.sample.rows)),
            told=told,
            mapped=mapped,
        )
        if again.fingerprint != self.fingerprint:
            raise DataError(f"{self.source}: the table has changed since it was read first: fit it again.")
        return LargeTable(self.path, again)


def open_table(
    data: Any,
    *,
    interventions: Any = None,
    streamed: bool | None = None,
    told: Told = silent,
    mapped: Mapped | None = None,
) -> Any:
    """A table as `fit` takes it: a `LargeTable` of a folder, a large file or a large Dask DataFrame, and a `Dataset` of
    all else.

    ``streamed`` says which, instead of the size. A large file whose cells are not all numbers is read into memory if it
    fits there, since labels and gaps need its rows. ``mapped`` lets others read the parts of a table.
    """
    if isinstance(data, LargeTable):
        return data
    if is_partitioned(data):
        return _open_frame(data, interventions, streamed, told, mapped)
    path = _path(data)
    if path is None or streamed is False or not (interventions is None or isinstance(interventions, str)):
        return as_dataset(data, interventions=interventions, missing="keep")
    cells = np.inf if path.is_dir() else cells_on_disk(path)
    if not (streamed or cells > STREAMED_CELLS):
        return as_dataset(data, interventions=interventions, missing="keep")
    try:
        return LargeTable(str(path), gather(path, interventions=interventions, told=told, mapped=mapped))
    except DataError:
        if streamed or BYTES_A_CELL * cells > memory_available():
            raise
        return as_dataset(data, interventions=interventions, missing="keep")


def _open_frame(frame: Any, interventions: Any, streamed: bool | None, told: Told, mapped: Mapped | None) -> Any:
    if streamed is False or not (interventions is None or isinstance(interventions, str)):
        return as_dataset(frame, interventions=interventions, missing="keep")
    cells = cells_in(frame, mapped=mapped)
    if not (streamed or cells > STREAMED_CELLS):
        return as_dataset(frame, interventions=interventions, missing="keep")
    try:
        return LargeTable(frame, gather(frame, interventions=interventions, told=told, mapped=mapped))
    except DataError:
        if streamed or BYTES_A_CELL * cells > memory_available():
            raise
        return as_dataset(frame, interventions=interventions, missing="keep")


def _path(data: Any) -> Path | None:
    """The file or folder that a table is in, if it is in one."""
    from vcuda.data import library

    if not isinstance(data, (str, os.PathLike)) or data in library.names():
        return None
    path = Path(data).expanduser()
    return path if path.exists() else None
