"""Passes over a table that need not fit into memory.

`gather` reads a table once and keeps its moments (rows, means, centred products, extremes), for every set of targets of
an intervention apart, and a uniform sample of rows. `gather_features` reads it a second time, for products of basis
functions of the standardised columns. Both hold a few (d, d) arrays and what `streams` holds, whatever the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from vcuda.data.checks import check_cells, check_scales
from vcuda.data.columns import EVERY_COLUMN, ColumnChoice
from vcuda.data.contexts import NO_CONTEXTS, ContextOptions
from vcuda.data.dataset import Dataset
from vcuda.data.examination import TableError
from vcuda.data.interventions import FEWEST_FREE_ROWS
from vcuda.data.messages import listed, shortened
from vcuda.data.moments import Moments, merged, varies
from vcuda.data.raw_table import FloatArray
from vcuda.data.streaming.accumulators import Gathering, Reservoir
from vcuda.data.streaming.blocks import Block, Mapped, OnProgress, Reading, silent
from vcuda.data.streaming.statistics import FeatureStatistics, Regime, Statistics, where_free
from vcuda.data.streaming.streams import Stream, open_stream
from vcuda.data.unfit import constant
from vcuda.errors import ConfigError, DataError

SAMPLE_ROWS = 10_000
# 64 MB: beyond 800 columns the sample has fewer rows than asked for.
SAMPLE_CELLS = 1 << 23


class ConstantColumnsError(TableError):
    """Columns that hold one value in every row, with that value; only a whole pass shows them."""

    def __init__(self, source: str, values: Mapping[str, float]) -> None:
        self.unfit = {name: constant(f"{value:g}") for name, value in values.items()}
        sentences = [f"{source}: {one.refusal(name)}" for name, one in self.unfit.items()]
        super().__init__(sentences[0], sentences)

    def __reduce__(self) -> tuple[Any, ...]:
        return DataError, self.args


def gather(
    path: Any,
    *,
    interventions: str | None = None,
    contexts: ContextOptions = NO_CONTEXTS,
    choice: ColumnChoice = EVERY_COLUMN,
    logarithm: npt.ArrayLike | None = None,
    sample_rows: int = SAMPLE_ROWS,
    seed: int = 0,
    on_progress: OnProgress = silent,
    mapped: Mapped | None = None,
) -> Statistics:
    """Read a table once, in bounded memory, and keep what linear scores and a choice of bases need.

    Parameters
    ----------
    path
        A file, a folder of files or a Dask DataFrame, as `streams.open_stream` takes it.
    interventions
        The name of a column that says for each row what was set.
    contexts
        The columns that name the environment of each row; moments are then kept for each environment apart.
    choice
        Which columns to take; d of them.
    logarithm
        (d,) booleans: take the natural logarithms of these columns, which must be positive.
    sample_rows
        The size of the sample of rows; smaller where so many rows would take more than 64 MB.
    seed
        Of the sample. It does not depend on how the table is cut into blocks and files.
    on_progress
        Called after every block with how far the pass is.
    mapped
        Lets others read the files or partitions of a table that has several; it changes no number.
    """
    if sample_rows < 1:
        raise ConfigError(f"sample_rows must be at least 1, got {sample_rows}")
    stream = open_stream(path, interventions=interventions, contexts=contexts.columns, choice=choice)
    marked = _checked_marks(logarithm, len(stream.names))
    size = min(sample_rows, max(1, SAMPLE_CELLS // len(stream.names)))
    work = _Work(stream, _AsTheyAre(marked), len(stream.names), stream.block_rows(), (size, seed))
    gathering, reservoir = _passed(work, on_progress=on_progress, mapped=mapped)
    assert reservoir is not None
    regimes = gathering.regimes()
    moments = merged(regimes.values(), len(stream.names))
    _check_spread(stream, moments, regimes)
    found = Statistics(
        stream.names,
        moments,
        regimes,
        reservoir.sample(),
        gathering.checksum,
        stream.source,
        interventions,
        marked,
        stream.notes,
        choice.header,
        contexts,
        gathering.strata() if contexts else None,
    )
    _ = found.environments  # refused where they cannot show anything
    return found


def gather_features(
    path: Any,
    expand: Callable[[FloatArray], FloatArray],
    *,
    statistics: Statistics,
    on_progress: OnProgress = silent,
    mapped: Mapped | None = None,
) -> FeatureStatistics:
    """Read a table a second time, and add up products of features of its standardised columns.

    Parameters
    ----------
    path
        The table that ``statistics`` is about.
    expand
        Turns standardised rows (n_b, d) into features (n_b, f), each row by itself. Features need not be centred.
    statistics
        What `gather` found: names, means, scales, logarithms and the column of targets are taken from there.
    on_progress, mapped
        As for `gather`.

    Raises
    ------
    DataError
        Also when the table is not the one that the statistics are about.
    """
    stream = open_stream(
        path,
        interventions=statistics.target_column,
        contexts=statistics.asked.columns,
        choice=statistics.choice,
    )
    columns = len(stream.names)
    if stream.names != statistics.names:
        raise DataError(f"{stream.source}: its columns are not those that the statistics are about: gather them again.")
    features = expand(np.zeros((1, columns))).shape[1]
    change = _Expanded(statistics.mean, statistics.scale, statistics.logarithm, expand, features)
    width = features + columns
    gathering, _ = _passed(
        _Work(stream, change, width, stream.block_rows(width), None), on_progress=on_progress, mapped=mapped
    )
    if not np.array_equal(gathering.checksum, statistics.checksum):
        raise DataError(f"{stream.source}: the table has changed since it was read first: gather its statistics again.")
    regimes = gathering.regimes()
    return FeatureStatistics(merged(regimes.values(), features + columns), regimes, features)


class _AsTheyAre(NamedTuple):
    """What is added up of a block: its columns, those marked in (d,) by their logarithm."""

    logarithm: npt.NDArray[np.bool_]

    def __call__(self, block: Block, stream: Stream) -> FloatArray:
        _take_logarithms(block, self.logarithm, stream)
        return block.values


class _Expanded(NamedTuple):
    """What is added up of a block: features of its standardised columns, beside these."""

    mean: FloatArray
    scale: FloatArray
    logarithm: npt.NDArray[np.bool_]
    expand: Callable[[FloatArray], FloatArray]
    features: int

    def __call__(self, block: Block, stream: Stream) -> FloatArray:
        _take_logarithms(block, self.logarithm, stream)
        # Columns of a block are contiguous, and so are those of what is made of it.
        joint = np.empty((self.features + self.mean.size, len(block.values))).T
        standardised = joint[:, self.features :]
        np.subtract(block.values, self.mean, out=standardised)
        standardised /= self.scale
        joint[:, : self.features] = self.expand(standardised)
        return joint


class _Work(NamedTuple):
    """A pass over a table: what is added up of a block, of which width, in blocks of how many rows; and the size and
    the seed of a sample, if there is to be one."""

    stream: Stream
    change: _AsTheyAre | _Expanded
    width: int
    rows: int
    sample: tuple[int, int] | None

    def begin(self, *, start: int) -> tuple[Gathering, Reservoir | None]:
        """Nothing seen yet of the rows from ``start`` on."""
        columns = len(self.stream.names)
        reservoir = None if self.sample is None else Reservoir(self.sample[0], columns, self.sample[1], start)
        return Gathering(self.stream, width=self.width), reservoir

    def see(
        self,
        found: tuple[Gathering, Reservoir | None],
        number: int,
        *,
        start: int,
        on_progress: OnProgress,
        table: Any = None,
    ) -> int:
        """Read one file, and return the place of the row after its last one."""
        gathering, reservoir = found
        for block in self.stream.blocks_of(number, start=start, rows=self.rows, on_progress=on_progress, table=table):
            gathering.see(block)
            numbers = gathering.add(block, self.change(block, self.stream))
            if reservoir is not None:
                reservoir.see(block, numbers)
            start = block.start + len(block.values)
        gathering.end_file()
        return start


def _passed(work: _Work, *, on_progress: OnProgress, mapped: Mapped | None) -> tuple[Gathering, Reservoir | None]:
    """Read all files, in this process or elsewhere. Rows are summed by file and then over files, so the result is the
    same."""
    if mapped is not None and len(work.stream.files) > 1:
        try:
            return _passed_elsewhere(work, on_progress=on_progress, mapped=mapped)
        except DataError:
            pass  # a pass in this process reports it, in the order of the files; or nobody else can see them
    found, rows = work.begin(start=0), 0
    for number in range(len(work.stream.files)):
        rows = work.see(found, number, start=rows, on_progress=on_progress)
    work.stream.finish(rows, on_progress=on_progress)
    return found


def _passed_elsewhere(work: _Work, *, on_progress: OnProgress, mapped: Mapped) -> tuple[Gathering, Reservoir | None]:
    stream, tables = work.stream, work.stream.tables
    # The places of the rows, on which checksum and sample depend, follow from how many each file has.
    parts: list[tuple[Any, ...]] = [(k, None if tables is None else tables[k]) for k in range(len(stream.files))]
    bare = work._replace(stream=replace(stream, tables=None))
    rows = mapped(_rows_of_part, parts, shared=bare, on_progress=lambda share: on_progress(Reading(0, 0.0)))
    ends = np.cumsum(rows)
    items = [(k, table, int(end - count)) for (k, table), end, count in zip(parts, ends, rows, strict=True)]
    total = int(ends[-1])
    gathering, reservoir = work.begin(start=0)
    read = mapped(
        _see_part, items, shared=bare, on_progress=lambda share: on_progress(Reading(int(share * total), share))
    )
    for own_gathering, own_reservoir in read:
        numbers = gathering.absorb(own_gathering)
        if reservoir is not None:
            reservoir.absorb(own_reservoir, numbers)
    stream.finish(total, on_progress=on_progress)
    return gathering, reservoir


def _rows_of_part(work: _Work, item: tuple[int, Any]) -> int:
    return work.stream.rows_of(*item)


def _see_part(work: _Work, item: tuple[int, Any, int]) -> tuple[Gathering, Reservoir | None]:
    """Read one file or partition."""
    number, table, start = item
    found = work.begin(start=start)
    work.see(found, number, start=start, on_progress=silent, table=table)
    return found[0].detached(), found[1]


# Checks -----------------------------------------------------------------------------------------------------


def _checked_marks(logarithm: npt.ArrayLike | None, columns: int) -> npt.NDArray[np.bool_]:
    marked = np.zeros(columns, dtype=bool) if logarithm is None else np.asarray(logarithm, dtype=bool)
    if marked.shape != (columns,):
        raise ConfigError(f"logarithm must mark each of {columns} columns true or false, got the shape {marked.shape}")
    return marked


def _take_logarithms(block: Block, marked: npt.NDArray[np.bool_], stream: Stream) -> None:
    for column in np.flatnonzero(marked):
        if block.least[column] <= 0:
            raise DataError(
                f"{stream.source}: column {shortened(stream.names[column])} reaches down to {block.least[column]:g}, "
                "and only positive numbers have a logarithm; leave the column as it is, or shift it"
            )
        np.log(block.values[:, column], out=block.values[:, column])


def _check_spread(stream: Stream, moments: Moments, regimes: Mapping[Regime, Moments]) -> None:
    """Refuse what does not vary, in the words in which tables in memory are refused."""
    still = np.flatnonzero(moments.least == moments.largest).tolist()
    if still:
        raise ConstantColumnsError(stream.source, {stream.names[k]: float(moments.least[k]) for k in still})
    check_cells(stream.described(), stream.names, np.stack([moments.least, moments.largest]))
    check_scales(Dataset(stream.names, np.stack([-moments.scale, moments.scale]), stream.source))
    if set(regimes) == {()}:
        return
    unmoved = []
    for name, k in zip(stream.names, range(len(stream.names)), strict=True):
        free = where_free(regimes, name, len(stream.names))
        if 0 < free.rows < FEWEST_FREE_ROWS:
            raise DataError(
                f"{stream.source}: column {shortened(name)} was set in all but {free.rows} of {moments.rows:,} rows, "
                f"too few to learn what it depends on: leave these rows out, or have at least {FEWEST_FREE_ROWS}."
            )
        if free.rows and not varies(free.least[k], free.largest[k]):
            unmoved.append(name)
    if unmoved:
        raise DataError(
            f"{stream.source}: column {listed(unmoved)} does not vary in the rows in which it was not set: "
            "if it depends on nothing else in the table, mark it as set in every row."
        )
