"""What linear and additive scores need of a table, from one pass over files that need not fit into memory.

`gather` reads a table once and keeps its moments (rows, means, centred products, extremes), for every set of targets of
an intervention apart, and a uniform sample of rows. `gather_features` reads it a second time, for products of basis
functions of the standardised columns. Both hold a few (d, d) arrays and what `streaming` holds, whatever the rows.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from vcuda.data.checks import check_cells, check_scales
from vcuda.data.dataset import Dataset
from vcuda.data.interventions import FEWEST_FREE_ROWS
from vcuda.data.moments import Moments, merge, merged
from vcuda.data.sources import FloatArray, listed, shortened
from vcuda.data.streaming import Block, Stream, Told, open_stream, silent
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
    path: str | os.PathLike[str],
    *,
    interventions: str | None = None,
    logarithm: npt.ArrayLike | None = None,
    sample_rows: int = SAMPLE_ROWS,
    seed: int = 0,
    told: Told = silent,
) -> Statistics:
    """Read a table once, in bounded memory, and keep what linear scores and a choice of bases need.

    Parameters
    ----------
    path
        A file or a folder of files, as `streaming.open_stream` takes it.
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
    """
    if sample_rows < 1:
        raise ConfigError(f"sample_rows must be at least 1, got {sample_rows}")
    stream = open_stream(path, interventions=interventions)
    marked = _checked_marks(logarithm, len(stream.names))
    gathering = _Gathering(stream)
    reservoir = _Reservoir(min(sample_rows, max(1, SAMPLE_CELLS // len(stream.names))), len(stream.names), seed)
    for block in stream.blocks(told=told):
        gathering.see(block)
        _take_logarithms(block, marked, stream)
        numbers = gathering.add(block, block.values)
        reservoir.see(block, numbers)
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
    path: str | os.PathLike[str],
    expand: Callable[[FloatArray], FloatArray],
    *,
    statistics: Statistics,
    told: Told = silent,
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
    told
        Hears after every block how far the pass is.

    Raises
    ------
    DataError
        Also when the table is not the one that the statistics are about.
    """
    stream = open_stream(path, interventions=statistics.target_column)
    columns = len(stream.names)
    if stream.names != statistics.names:
        raise DataError(f"{stream.source}: its columns are not those that the statistics are about: gather them again.")
    features = expand(np.zeros((1, columns))).shape[1]
    gathering = _Gathering(stream, width=features + columns)
    for block in stream.blocks(rows=stream.block_rows(features + columns), told=told):
        gathering.see(block)
        _take_logarithms(block, statistics.logarithm, stream)
        # Columns of a block are contiguous, and so are those of what is made of it here.
        joint = np.empty((features + columns, len(block.values))).T
        standardised = joint[:, features:]
        np.subtract(block.values, statistics.mean, out=standardised)
        standardised /= statistics.scale
        joint[:, :features] = expand(standardised)
        gathering.add(block, joint)
    if not np.array_equal(gathering.checksum, statistics.checksum):
        raise DataError(f"{stream.source}: the table has changed since it was read first: gather its statistics again.")
    regimes = gathering.regimes()
    return FeatureStatistics(merged(regimes.values(), features + columns), regimes, features)


class _Gathering:
    """Moments by regime and the checksum, of the blocks that have been seen."""

    def __init__(self, stream: Stream, *, width: int | None = None) -> None:
        self.stream = stream
        self.width = width or len(stream.names)
        self.checksum = np.zeros(len(stream.names) + 1, dtype=np.uint64)
        self._moments: dict[tuple[int, ...], Moments] = {}
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
            self._moments[targets] = merge(self._moments[targets], Moments.of(rows))
        return numbers[block.regime]

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

    def __init__(self, size: int, columns: int, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._keys = np.full(size, np.inf)
        self._rows = np.zeros(size, dtype=np.int64)
        self._regime = np.zeros(size, dtype=np.intp)
        self._values = np.empty((size, columns))

    def see(self, block: Block, regime: npt.NDArray[np.intp]) -> None:
        """Let the block's rows compete, whose regimes are numbered as in the whole table."""
        size = self._keys.size
        keys = self._rng.random(len(block.values))
        able = np.flatnonzero(keys < self._keys.max())
        together = np.concatenate([self._keys, keys[able]])
        winners = np.argpartition(together, size - 1)[:size]
        stays = np.zeros(size, dtype=bool)
        stays[winners[winners < size]] = True
        slots, rows = np.flatnonzero(~stays), able[winners[winners >= size] - size]
        self._keys[slots], self._rows[slots] = keys[rows], block.start + rows
        self._values[slots], self._regime[slots] = block.values[rows], regime[rows]

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
