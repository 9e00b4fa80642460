"""What linear and additive scores need of a table, from one pass over files that need not fit into memory.

`gather` reads a table once and keeps its moments (rows, means, centred products, extremes), for every set of targets of
an intervention apart, and a uniform sample of rows. `gather_features` reads it a second time, for products of basis
functions of the standardised columns. Both hold a few (d, d) arrays and what `streaming` holds, whatever the rows.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from vcuda.data.checks import check_cells, check_scales
from vcuda.data.dataset import Dataset
from vcuda.data.interventions import FEWEST_FREE_ROWS
from vcuda.data.moments import Moments, merge, merged
from vcuda.data.partitions import is_partitioned, open_partitions
from vcuda.data.sources import FloatArray, listed, shortened
from vcuda.data.streaming import Block, Mapped, Reading, Stream, Told, open_stream, silent
from vcuda.errors import ConfigError, DataError

SAMPLE_ROWS = 10_000
# 64 MB: beyond 800 columns the sample has fewer rows than asked for.
SAMPLE_CELLS = 1 << 23
# Products are kept for each set of targets; this many bytes of them are still no burden.
REGIME_BYTES = 400_000_000

Regime = tuple[str, ...]


# What a pass finds --------------------------------------------------------------------------------------------


class Sample(NamedTuple):
    """Rows drawn uniformly without replacement: ``rows`` (s,) their places in the table, ascending, ``values`` (s, d),
    and ``regime`` (s,), which of the table's regimes each has."""

    rows: npt.NDArray[np.int64]
    values: FloatArray
    regime: npt.NDArray[np.intp]


@dataclass(frozen=True, eq=False, repr=False)
class Statistics:
    """What one pass finds out about a table of d named columns.

    Parameters
    ----------
    names
        The d column names.
    moments
        Of all rows.
    regimes
        The moments of the rows in which the same columns were set, by the names of these, in the order of the table;
        ``()`` where nothing was.
    sample
        At most `SAMPLE_ROWS` rows, or as many as were asked for.
    checksum
        (d + 1,) integers that depend on every cell and its row, and on what was set, but not on how the table is cut
        into blocks and files.
    source
        Where the table is.
    target_column
        The column that says what was set, or None.
    logarithm
        (d,) booleans: the columns whose logarithms everything above is about, but the checksum.
    notes
        What the checks found that does not forbid a fit.
    """

    names: tuple[str, ...]
    moments: Moments
    regimes: Mapping[Regime, Moments]
    sample: Sample
    checksum: npt.NDArray[np.uint64]
    source: str
    target_column: str | None
    logarithm: npt.NDArray[np.bool_]
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Statistics({self.rows:,} rows x {len(self.names):,} columns from {self.source!r})"

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self.moments.rows

    @property
    def mean(self) -> FloatArray:
        """The mean of each column, shape (d,)."""
        return self.moments.mean

    @property
    def scale(self) -> FloatArray:
        """The standard deviation of each column (division by n), shape (d,)."""
        return self.moments.scale

    @cached_property
    def fingerprint(self) -> str:
        """A sha256, in hexadecimal, of names, number of rows and checksum: equal tables have equal fingerprints."""
        digest = hashlib.sha256(json.dumps([self.names, self.rows]).encode())
        digest.update(self.checksum.astype("<u8").data)
        return digest.hexdigest()

    def standardised(self) -> Statistics:
        """The same of the columns less their means, over their standard deviations."""
        mean, scale = self.mean, self.scale

        def of(moments: Moments) -> Moments:
            ends = ((end - mean) / scale for end in (moments.least, moments.largest))
            return Moments(moments.rows, (moments.mean - mean) / scale, moments.gram / np.outer(scale, scale), *ends)

        regimes = {targets: of(moments) for targets, moments in self.regimes.items()}
        sample = self.sample._replace(values=(self.sample.values - mean) / scale)
        return replace(self, moments=of(self.moments), regimes=regimes, sample=sample)

    def where_free(self, name: str) -> Moments:
        """The moments of the rows in which a column was not set, which tell what it depends on."""
        return _where_free(self.regimes, name, len(self.names))

    def sampled(self) -> Dataset:
        """The sample as a table in memory, for what needs rows: quantiles, a choice of logarithms, a quick look."""
        held = np.zeros(self.sample.values.shape, dtype=bool)
        for k, targets in enumerate(self.regimes):
            held[np.ix_(self.sample.regime == k, [self.names.index(name) for name in targets])] = True
        source = f"{len(held):,} of {self.rows:,} rows of {self.source}"
        return Dataset(self.names, self.sample.values, source, self.notes, interventions=held if held.any() else None)


@dataclass(frozen=True, eq=False)
class FeatureStatistics:
    """Products of f features of the standardised columns, of all rows and by regime.

    ``moments`` and ``regimes`` are about f + d columns side by side, the features first; features and columns are
    centred over the rows that they are about.
    """

    moments: Moments
    regimes: Mapping[Regime, Moments]
    features: int

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self.moments.rows

    @property
    def means(self) -> FloatArray:
        """The mean of each feature, shape (f,)."""
        return self.moments.mean[: self.features]

    @property
    def gram(self) -> FloatArray:
        """Products of the centred features, shape (f, f)."""
        return self.moments.gram[: self.features, : self.features]

    @property
    def products(self) -> FloatArray:
        """Products of the centred features with the standardised columns, shape (f, d)."""
        return self.moments.gram[: self.features, self.features :]

    @property
    def squares(self) -> FloatArray:
        """Sums of squares of the standardised columns, shape (d,)."""
        return np.diag(self.moments.gram)[self.features :].copy()

    def where_free(self, name: str) -> FeatureStatistics:
        """The same of the rows in which a column was not set."""
        free = _where_free(self.regimes, name, len(self.moments.mean))
        kept = {targets: moments for targets, moments in self.regimes.items() if name not in targets}
        return FeatureStatistics(free, kept, self.features)


def _where_free(regimes: Mapping[Regime, Moments], name: str, columns: int) -> Moments:
    return merged((moments for targets, moments in regimes.items() if name not in targets), columns)


# The passes -------------------------------------------------------------------------------------------------


def gather(
    path: Any,
    *,
    interventions: str | None = None,
    logarithm: npt.ArrayLike | None = None,
    sample_rows: int = SAMPLE_ROWS,
    seed: int = 0,
    told: Told = silent,
    mapped: Mapped | None = None,
) -> Statistics:
    """Read a table once, in bounded memory, and keep what linear scores and a choice of bases need.

    Parameters
    ----------
    path
        A file or a folder of files, as `streaming.open_stream` takes it, or a Dask DataFrame.
    interventions
        The name of a column that says for each row what was set.
    logarithm
        (d,) booleans: take the natural logarithms of these columns, which must be positive.
    sample_rows
        The size of the sample of rows; smaller where so many rows would take more than 64 MB.
    seed
        Of the sample. It does not depend on how the table is cut into blocks and files.
    told
        Hears after every block how far the pass is.
    mapped
        Lets others read the files or partitions of a table that has several; it changes no number.
    """
    if sample_rows < 1:
        raise ConfigError(f"sample_rows must be at least 1, got {sample_rows}")
    stream = _opened(path, interventions)
    marked = _checked_marks(logarithm, len(stream.names))
    size = min(sample_rows, max(1, SAMPLE_CELLS // len(stream.names)))
    work = _Work(stream, _AsTheyAre(marked), len(stream.names), stream.block_rows(), (size, seed))
    gathering, reservoir = _passed(work, told=told, mapped=mapped)
    assert reservoir is not None
    regimes = gathering.regimes()
    moments = merged(regimes.values(), len(stream.names))
    _check_spread(stream, moments, regimes)
    return Statistics(
        stream.names,
        moments,
        regimes,
        reservoir.sample(),
        gathering.checksum,
        stream.source,
        interventions,
        marked,
        stream.notes,
    )


def gather_features(
    path: Any,
    expand: Callable[[FloatArray], FloatArray],
    *,
    statistics: Statistics,
    told: Told = silent,
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
        What `gather` found: means, scales, logarithms and the column of targets are taken from there.
    told, mapped
        As for `gather`.

    Raises
    ------
    DataError
        Also when the table is not the one that the statistics are about.
    """
    stream = _opened(path, statistics.target_column)
    columns = len(stream.names)
    if stream.names != statistics.names:
        raise DataError(f"{stream.source}: its columns are not those that the statistics are about: gather them again.")
    features = expand(np.zeros((1, columns))).shape[1]
    change = _Expanded(statistics.mean, statistics.scale, statistics.logarithm, expand, features)
    width = features + columns
    gathering, _ = _passed(_Work(stream, change, width, stream.block_rows(width), None), told=told, mapped=mapped)
    if not np.array_equal(gathering.checksum, statistics.checksum):
        raise DataError(f"{stream.source}: the table has changed since it was read first: gather its statistics again.")
    regimes = gathering.regimes()
    return FeatureStatistics(merged(regimes.values(), features + columns), regimes, features)


def _opened(path: Any, interventions: str | None) -> Stream:
    if is_partitioned(path):
        return open_partitions(path, interventions=interventions)
    return open_stream(path, interventions=interventions)


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
        # Columns of a block are contiguous, and so are those of what is made of it here.
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

    def begin(self, *, start: int) -> tuple[_Gathering, _Reservoir | None]:
        """Nothing seen yet of the rows from ``start`` on."""
        columns = len(self.stream.names)
        reservoir = None if self.sample is None else _Reservoir(self.sample[0], columns, self.sample[1], start)
        return _Gathering(self.stream, width=self.width), reservoir

    def see(
        self, found: tuple[_Gathering, _Reservoir | None], number: int, *, start: int, told: Told, table: Any = None
    ) -> int:
        """Read one file, and return the place of the row after its last one."""
        gathering, reservoir = found
        for block in self.stream.blocks_of(number, start=start, rows=self.rows, told=told, table=table):
            gathering.see(block)
            numbers = gathering.add(block, self.change(block, self.stream))
            if reservoir is not None:
                reservoir.see(block, numbers)
            start = block.start + len(block.values)
        gathering.end_file()
        return start


def _passed(work: _Work, *, told: Told, mapped: Mapped | None) -> tuple[_Gathering, _Reservoir | None]:
    """Read all files, here or elsewhere. Rows are added up file by file and then the files, so that it is the same."""
    if mapped is not None and len(work.stream.files) > 1:
        try:
            return _passed_elsewhere(work, told=told, mapped=mapped)
        except DataError:
            pass  # told by a pass here, in the order of the files; or nobody else can see them
    found, rows = work.begin(start=0), 0
    for number in range(len(work.stream.files)):
        rows = work.see(found, number, start=rows, told=told)
    work.stream.finish(rows, told=told)
    return found


def _passed_elsewhere(work: _Work, *, told: Told, mapped: Mapped) -> tuple[_Gathering, _Reservoir | None]:
    stream, tables = work.stream, work.stream.tables
    # The places of the rows, on which checksum and sample depend, follow from how many each file has.
    parts: list[tuple[Any, ...]] = [(k, None if tables is None else tables[k]) for k in range(len(stream.files))]
    bare = work._replace(stream=replace(stream, tables=None))
    rows = mapped(_rows_of_part, parts, shared=bare, told=lambda share: told(Reading(0, 0.0)))
    ends = np.cumsum(rows)
    items = [(k, table, int(end - count)) for (k, table), end, count in zip(parts, ends, rows, strict=True)]
    total = int(ends[-1])
    gathering, reservoir = work.begin(start=0)
    read = mapped(_see_part, items, shared=bare, told=lambda share: told(Reading(int(share * total), share)))
    for own_gathering, own_reservoir in read:
        numbers = gathering.absorb(own_gathering)
        if reservoir is not None:
            reservoir.absorb(own_reservoir, numbers)
    stream.finish(total, told=told)
    return gathering, reservoir


def _rows_of_part(work: _Work, item: tuple[int, Any]) -> int:
    return work.stream.rows_of(*item)


def _see_part(work: _Work, item: tuple[int, Any, int]) -> tuple[_Gathering, _Reservoir | None]:
    """Read one file or partition."""
    number, table, start = item
    found = work.begin(start=start)
    work.see(found, number, start=start, told=silent, table=table)
    return found[0].detached(), found[1]


class _Gathering:
    """Moments by regime and the checksum, of the blocks that have been seen."""

    def __init__(self, stream: Stream, *, width: int | None = None) -> None:
        self.stream = stream
        self.width = width or len(stream.names)
        self.checksum = np.zeros(len(stream.names) + 1, dtype=np.uint64)
        self._moments: dict[tuple[int, ...], Moments] = {}
        self._of_file: dict[tuple[int, ...], Moments] = {}
        self._numbers: dict[tuple[int, ...], int] = {}

    def see(self, block: Block) -> None:
        """Take the block's cells, as they stand in the table, into the checksum, which is meant to overflow."""
        weights = _row_weights(block.start, len(block.values))
        for k, bits in enumerate(block.values.T.view(np.uint64)):
            # Whole numbers have zeros in their low bits, which products keep: the high bits are folded into them.
            mixed = bits >> np.uint64(32)
            mixed ^= bits
            mixed *= weights
            self.checksum[k : k + 1] += mixed.sum()
        labels = [json.dumps(targets).encode() for targets in block.targets]
        codes = [int.from_bytes(hashlib.sha256(label).digest()[:8], "little") for label in labels]
        self.checksum[-1:] += (np.array(codes, dtype=np.uint64)[block.regime] * weights).sum()

    def add(self, block: Block, values: FloatArray) -> npt.NDArray[np.intp]:
        """Add rows (n_b, width) that belong to the block's, and return the number of each row's regime."""
        numbers = np.array([self._number(targets) for targets in block.targets], dtype=np.intp)
        for targets, rows in _by_regime(block, values):
            so_far = self._of_file.get(targets)
            new = Moments.of(rows)
            self._of_file[targets] = new if so_far is None else merge(so_far, new)
        return numbers[block.regime]

    def end_file(self) -> None:
        """Add what was seen of a file to the table's."""
        for targets, moments in self._of_file.items():
            self._moments[targets] = merge(self._moments[targets], moments)
        self._of_file = {}

    def absorb(self, other: _Gathering) -> npt.NDArray[np.intp]:
        """Add what another one saw of a file that comes next; returns the numbers here of the other's regimes."""
        numbers = np.array([self._number(targets) for targets in other._numbers], dtype=np.intp)
        self.checksum += other.checksum
        self._of_file = other._moments
        self.end_file()
        return numbers

    def detached(self) -> _Gathering:
        """The same without the stream, which need not travel back."""
        self.stream = replace(self.stream, files=())
        return self

    def regimes(self) -> dict[Regime, Moments]:
        """The moments of each regime, by the names of what was set, in the order in which they first came."""
        names = self.stream.names
        return {tuple(names[k] for k in targets): moments for targets, moments in self._moments.items()}

    def _number(self, targets: tuple[int, ...]) -> int:
        if targets not in self._numbers:
            self._numbers[targets] = len(self._numbers)
            self._moments[targets] = Moments.none(self.width)
            needed = len(self._numbers) * 8 * self.width**2
            if len(self._numbers) > 1 and needed > REGIME_BYTES:
                raise DataError(
                    f"{self.stream.source}: column {shortened(self.stream.target_column)} has {len(self._numbers):,} "
                    f"or more sets of targets, and the products of {self.width:,} columns are kept for each, "
                    f"more than {REGIME_BYTES / 1e6:,.0f} MB: leave out columns, or give rare targets tables of "
                    "their own."
                )
        return self._numbers[targets]


def _by_regime(block: Block, values: FloatArray) -> Iterator[tuple[tuple[int, ...], FloatArray]]:
    """The rows of each regime; nothing is copied where there is one."""
    if len(block.targets) == 1:
        yield block.targets[0], values
        return
    order = np.argsort(block.regime, kind="stable")
    by_column = np.take(values.T, order, axis=1)
    ends = np.cumsum(np.bincount(block.regime, minlength=len(block.targets)))
    for targets, start, end in zip(block.targets, [0, *ends[:-1]], ends, strict=True):
        yield targets, by_column[:, start:end].T


def _row_weights(start: int, rows: int) -> npt.NDArray[np.uint64]:
    """Odd 64-bit integers that look random, one for each row number: the finaliser of SplitMix64."""
    mixed = np.arange(start, start + rows, dtype=np.uint64)
    mixed *= np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed ^= mixed >> np.uint64(shift)
        mixed *= np.uint64(factor)
    mixed ^= mixed >> np.uint64(31)
    return mixed | np.uint64(1)


class _Reservoir:
    """The rows with the smallest of independent uniform keys: a sample without replacement, however blocks are cut."""

    def __init__(self, size: int, columns: int, seed: int, start: int = 0) -> None:
        bits = np.random.PCG64(seed)
        bits.advance(start)  # one key for each row, whoever reads it
        self._rng = np.random.Generator(bits)
        self._keys = np.full(size, np.inf)
        self._rows = np.zeros(size, dtype=np.int64)
        self._regime = np.zeros(size, dtype=np.intp)
        self._values = np.empty((size, columns))

    def see(self, block: Block, regime: npt.NDArray[np.intp]) -> None:
        """Let the block's rows compete, whose regimes are numbered as in the whole table."""
        keys = self._rng.random(len(block.values))
        self._compete(keys, block.start + np.arange(len(keys)), block.values, regime)

    def absorb(self, other: _Reservoir, numbers: npt.NDArray[np.intp]) -> None:
        """Let the rows compete that another one has of other rows; ``numbers`` are those of its regimes here."""
        taken = np.isfinite(other._keys)
        regime = numbers[other._regime[taken]]
        self._compete(other._keys[taken], other._rows[taken], other._values[taken], regime)

    def _compete(
        self,
        keys: FloatArray,
        places: npt.NDArray[np.int64],
        values: FloatArray,
        regime: npt.NDArray[np.intp],
    ) -> None:
        size = self._keys.size
        able = np.flatnonzero(keys < self._keys.max())
        together = np.concatenate([self._keys, keys[able]])
        winners = np.argpartition(together, size - 1)[:size]
        stays = np.zeros(size, dtype=bool)
        stays[winners[winners < size]] = True
        slots, rows = np.flatnonzero(~stays), able[winners[winners >= size] - size]
        self._keys[slots], self._rows[slots] = keys[rows], places[rows]
        self._values[slots], self._regime[slots] = values[rows], regime[rows]

    def sample(self) -> Sample:
        """The rows so far, in the order of the table."""
        order = np.argsort(self._rows[np.isfinite(self._keys)], kind="stable")
        order = np.flatnonzero(np.isfinite(self._keys))[order]
        return Sample(self._rows[order], self._values[order], self._regime[order])


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
    check_cells(stream.described(), stream.names, np.stack([moments.least, moments.largest]))
    check_scales(Dataset(stream.names, np.stack([-moments.scale, moments.scale]), stream.source))
    if set(regimes) == {()}:
        return
    still = []
    for name, k in zip(stream.names, range(len(stream.names)), strict=True):
        free = _where_free(regimes, name, len(stream.names))
        if 0 < free.rows < FEWEST_FREE_ROWS:
            raise DataError(
                f"{stream.source}: column {shortened(name)} was set in all but {free.rows} of {moments.rows:,} rows, "
                f"too few to learn what it depends on: leave these rows out, or have at least {FEWEST_FREE_ROWS}."
            )
        if free.rows and free.least[k] == free.largest[k]:
            still.append(name)
    if still:
        raise DataError(
            f"{stream.source}: column {listed(still)} does not vary in the rows in which it was not set: "
            "if it depends on nothing else in the table, mark it as set in every row."
        )
