"""Tables that stay on disk: what a fit asks of them, from passes over their files."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vcuda.data.checks import check_index
from vcuda.data.columns import EVERY_COLUMN, FEWEST_COLUMNS, ColumnChoice, variable_columns
from vcuda.data.contexts import NO_CONTEXTS, ContextOptions, Contexts
from vcuda.data.conversion.kinds import WHOLE, TablePart
from vcuda.data.dataset import Dataset
from vcuda.data.examination import AS_FOUND, ReadOptions, unfit_in_first_rows, with_read_options
from vcuda.data.files import from_path
from vcuda.data.interventions import FEWEST_FREE_ROWS, Design
from vcuda.data.kinds import NUMBER, Kind, check_kind_names, found_kinds, kind_notes
from vcuda.data.messages import HOW_TO_LEAVE_OUT, shortened
from vcuda.data.number_styles import style_notes
from vcuda.data.raw_table import FloatArray
from vcuda.data.reading import read_table
from vcuda.data.sources import copied
from vcuda.data.streaming.blocks import Mapped, OnlyInMemoryError, OnProgress, silent
from vcuda.data.streaming.file_readers import cells_on_disk
from vcuda.data.streaming.partitions import BYTES_A_CELL, cells_in, described, is_partitioned, narrowed
from vcuda.data.streaming.passes import ConstantColumnsError, gather
from vcuda.data.streaming.statistics import Statistics
from vcuda.data.streaming.streams import open_stream
from vcuda.data.unfit import Unfit, left_out_notes
from vcuda.errors import ConfigError, DataError
from vcuda.memory import memory_available

# Beyond so many cells a file is read block by block unless somebody says otherwise: 32 MB of numbers.
STREAMED_CELLS = 4_000_000
# What is no variable shows in the first rows.
FIRST_ROWS = 1_000


@dataclass(frozen=True, eq=False, repr=False)
class StreamedTable:
    """A table on disk and the statistics of it; what it shares with a `Dataset` has the same names.

    Build it with `open_table`.
    """

    data: Any
    statistics: Statistics
    choice: ColumnChoice = EVERY_COLUMN
    how: ReadOptions = AS_FOUND
    unfit: Mapping[str, Unfit] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()  # on how its cells were read

    # A table that is streamed has only numbers, and all of them.
    missing = None
    categories = None

    def __repr__(self) -> str:
        return f"StreamedTable({self.n:,} rows x {self.d:,} columns in {self.source!r})"

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
        return self.sample.notes

    @property
    def left_out(self) -> tuple[tuple[str, str], ...]:
        """Names of columns that are no variables, with the reason."""
        return tuple((name, one.fault[0]) for name, one in self.unfit.items())

    @property
    def fingerprint(self) -> str:
        """That of the statistics, and of kinds that somebody asked for; those that are found depend on the cells."""
        if not self.how.kinds:
            return self.statistics.fingerprint
        asked = json.dumps([self.statistics.fingerprint, sorted(self.how.kinds.items())])
        return hashlib.sha256(asked.encode()).hexdigest()

    @cached_property
    def kinds(self) -> tuple[Kind, ...]:
        """The kind of each column, as its sample shows it; a value that is not in the sample makes it a number."""
        return self.sample.kinds

    @property
    def target_column(self) -> str | None:
        return self.statistics.target_column

    @property
    def contexts(self) -> Contexts | None:
        """The environments that the rows come from, if columns name them."""
        return None if self.statistics.environments is None else self.statistics.environments[0]

    @property
    def mean(self) -> FloatArray:
        return self.statistics.mean

    @property
    def scale(self) -> FloatArray:
        return self.statistics.scale

    @property
    def extremes(self) -> tuple[FloatArray, FloatArray]:
        return self.statistics.moments.least, self.statistics.moments.largest

    @cached_property
    def sample(self) -> Dataset:
        """Rows in memory, drawn uniformly, with the kinds of the whole table."""
        drawn = self.statistics.sampled()
        within = (drawn.extremes[0] == self.extremes[0]) & (drawn.extremes[1] == self.extremes[1])
        found = [
            one if seen or one.kind == "count" else NUMBER
            for one, seen in zip(found_kinds(drawn.values), within, strict=True)
        ]
        guessed = [
            one._replace(note=one.note and name not in self.how.kinds)
            for name, one in zip(self.names, found, strict=True)
        ]
        drawn = replace(
            drawn,
            kinds=tuple(one.kind for one in found),
            notes=(*drawn.notes, *self.remarks, *left_out_notes(self.unfit), *kind_notes(self.names, guessed)),
            left_out=self.left_out,
        )
        return with_read_options(drawn, self.how)

    @property
    def positive(self) -> npt.NDArray[np.bool_]:
        """The columns (d,) of which every row has a logarithm, and not those of the sample alone."""
        return self.statistics.moments.least > 0

    def sample_to_fit(self) -> Dataset:
        """The sample, for models that are fitted to rows; refused where a rare value of a column is not in it."""
        sample, always = self.sample, None if self.design is None else self.design.always
        for k, name in enumerate(self.names):
            if always is not None and always[k]:
                continue
            free = sample.values[sample.free_rows(k), k]
            if len(free) < FEWEST_FREE_ROWS or free.min() == free.max():
                raise DataError(
                    f"{self.source}: column {shortened(name)} does not vary in the {sample.n:,} of {self.n:,} rows "
                    "that were drawn at random for a model that needs rows: leave the column out "
                    f"{HOW_TO_LEAVE_OUT}, or use model linear or additive, with engine exact, orders or variational, "
                    "for which all rows count."
                )
        return sample

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
        self, columns: npt.ArrayLike, *, on_progress: OnProgress = silent, mapped: Mapped | None = None
    ) -> StreamedTable:
        """The table with the logarithms of the columns marked in (d,) booleans, by another pass over its files."""
        marked = np.asarray(columns, dtype=bool)
        if not marked.any():
            return self
        again = gather(
            self.data,
            interventions=self.target_column,
            contexts=self.statistics.asked,
            choice=self.statistics.choice,
            logarithm=marked,
            sample_rows=max(1, len(self.statistics.sample.rows)),
            on_progress=on_progress,
            mapped=mapped,
        )
        if again.fingerprint != self.statistics.fingerprint:
            raise DataError(f"{self.source}: the table has changed since it was read first: fit it again.")
        return replace(self, statistics=again)


def open_table(
    data: Any,
    *,
    interventions: Any = None,
    contexts: ContextOptions = NO_CONTEXTS,
    streamed: bool | None = None,
    choice: ColumnChoice = EVERY_COLUMN,
    how: ReadOptions = AS_FOUND,
    on_progress: OnProgress = silent,
    mapped: Mapped | None = None,
    part: TablePart = WHOLE,
) -> Any:
    """A table as `fit` takes it: a `StreamedTable` of a folder, a large file or a large Dask DataFrame, and a `Dataset`
    of all else.

    ``streamed`` says which, instead of the size. A large file whose cells are not all numbers is read into memory if it
    fits there, since labels and missing values need its rows; whatever else is wrong with it is refused. ``mapped``
    lets others read the parts of a table. ``part`` says which table of a file or a database is meant.
    """
    from vcuda.data import library

    is_read = isinstance(data, Dataset) or (isinstance(data, str) and data in library.names())
    if is_read:
        part.refuse("this table")
    copy = None if is_read else copied(data, part)
    if copy is not None:
        with copy.opened() as path:
            table = open_table(
                path,
                interventions=interventions,
                contexts=contexts,
                streamed=streamed,
                choice=choice,
                how=how,
                on_progress=on_progress,
                mapped=mapped,
            )
        if isinstance(table, Dataset):
            copy.remove()
            return replace(table, source=copy.shown, notes=(*copy.notes, *table.notes))
        remarks = (*copy.notes, *table.remarks)
        return replace(table, statistics=replace(table.statistics, source=copy.shown), remarks=remarks)

    def in_memory() -> Dataset:
        return read_table(data, choice=choice, how=how, interventions=interventions, contexts=contexts, missing="keep")

    kept = data if is_partitioned(data) else _path(data)
    by_column = interventions is None or isinstance(interventions, str)
    if kept is not None:
        _check_wish(kept, streamed, by_column=by_column)
    if kept is None or streamed is False or not by_column:
        return in_memory()
    cells = np.inf if streamed else _cells(kept, interventions, contexts.columns, choice, mapped)
    if cells <= STREAMED_CELLS:
        return in_memory()
    try:
        if how.missing_values:
            raise OnlyInMemoryError(
                f"{kept}: missing_values needs a table that fits into memory: mark missing cells in the table itself."
            )
        table = _streamed(kept, interventions, contexts, choice, how, on_progress=on_progress, mapped=mapped)
    except OnlyInMemoryError:
        if BYTES_A_CELL * cells > memory_available():
            raise
        return in_memory()
    check_kind_names(how.kinds, table.names, table.source)
    return table


def _streamed(
    kept: Any,
    interventions: str | None,
    contexts: ContextOptions,
    choice: ColumnChoice,
    how: ReadOptions,
    **reading: Any,
) -> StreamedTable:
    """A pass over a table without the columns that are no variables.

    The first rows show identifiers, dates and free text. That a column does not vary shows after a pass, and takes a
    second one.
    """
    insists = choice.columns is not None
    aside = contexts.columns
    stream = open_stream(kept, interventions=interventions, contexts=aside, choice=choice)
    if how.strict and not insists:
        kept_columns = variable_columns(stream.files[0], interventions, choice, contexts=aside)
        check_index(stream.files[0], kept_columns)
    head, unfit = stream.head(FIRST_ROWS), {}
    remarks: tuple[str, ...] = ()
    if head is not None:
        remarks = tuple(style_notes(head.styles, stream.names))
        unfit = unfit_in_first_rows(head, stream.names, stream.files[0], how=how, insists=insists)
    while True:
        taken = ColumnChoice.of(None, [*(choice.exclude or ()), *unfit]) if unfit else choice
        try:
            found = gather(kept, interventions=interventions, contexts=contexts, choice=taken, **reading)
        except ConstantColumnsError as error:
            if insists or how.strict or len(stream.names) - len(unfit) - len(error.unfit) < FEWEST_COLUMNS:
                raise
            unfit |= error.unfit
        else:
            return StreamedTable(kept, found, choice, how, unfit, remarks)


def _check_wish(kept: Any, streamed: bool | None, *, by_column: bool) -> None:
    """Refuse what a table that is not in memory cannot do."""
    is_folder = isinstance(kept, Path) and kept.is_dir()
    if is_folder and streamed is False:
        raise ConfigError(
            f"streamed=False has a table read into memory, and {kept} is a folder, whose files are read block by "
            "block: leave it out, or give the path of one file"
        )
    if (is_folder or streamed) and not by_column:
        raise ConfigError(
            "interventions as a mask go with a table that is read into memory: of one that is read block by block (a "
            "folder, or streamed=True) give the name of a column that says for each row what was set"
        )


def _cells(
    kept: Any, interventions: str | None, contexts: Sequence[str], choice: ColumnChoice, mapped: Mapped | None
) -> float:
    """About how many cells the chosen columns have of a table that is not in memory; of a folder, more than fit."""
    if is_partitioned(kept):
        taken = (
            variable_columns(described(kept), interventions, choice, contexts=contexts)
            if choice
            else range(len(kept.columns))
        )
        return cells_in(narrowed(kept, taken), mapped=mapped)
    if kept.is_dir():
        return np.inf
    if not choice:
        return cells_on_disk(kept, enough=STREAMED_CELLS)
    raw = from_path(kept, header=choice.header)
    share = len(variable_columns(raw, interventions, choice, contexts=contexts)) / len(raw.names)
    return cells_on_disk(kept, enough=STREAMED_CELLS / share) * share


def _path(data: Any) -> Path | None:
    """The file or folder that a table is in, if it is in one."""
    from vcuda.data import library

    if not isinstance(data, (str, os.PathLike)) or data in library.names():
        return None
    try:
        path = Path(data).expanduser()
        return path if path.exists() else None
    except (OSError, RuntimeError, ValueError):
        return None  # a name that no file can have is refused by who reads files, in a sentence
