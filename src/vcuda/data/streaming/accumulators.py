"""What a pass keeps of the blocks that it has seen: moments, a checksum, and a sample of rows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from vcuda.data.contexts import Cells
from vcuda.data.messages import shortened
from vcuda.data.moments import Moments, merge
from vcuda.data.raw_table import FloatArray
from vcuda.data.streaming.blocks import Block
from vcuda.data.streaming.statistics import Regime, Sample
from vcuda.data.streaming.streams import Stream
from vcuda.errors import DataError

# Products are kept for each set of targets in each environment; this many bytes of them are still no burden.
REGIME_BYTES = 400_000_000
# What was set in some rows, by position, and the context cells that name their environment.
Stratum = tuple[tuple[int, ...], Cells]


class Gathering:
    """Moments by regime and environment, and the checksum, of the blocks that have been seen."""

    def __init__(self, stream: Stream, *, width: int | None = None) -> None:
        self.stream = stream
        self.width = width or len(stream.names)
        self.checksum = np.zeros(len(stream.names) + 1, dtype=np.uint64)
        self._moments: dict[Stratum, Moments] = {}
        self._of_file: dict[Stratum, Moments] = {}
        self._numbers: dict[Stratum, int] = {}

    def see(self, block: Block) -> None:
        """Take the block's cells, as they stand in the table, into the checksum, which is meant to overflow."""
        weights = _row_weights(block.start, len(block.values))
        for k, bits in enumerate(block.values.T.view(np.uint64)):
            # Whole numbers have zeros in their low bits, which products keep: the high bits are folded into them.
            mixed = bits >> np.uint64(32)
            mixed ^= bits
            mixed *= weights
            self.checksum[k : k + 1] += mixed.sum()
        # Without contexts the checksum is what it was before there were any.
        labels = [json.dumps([targets, own] if own else targets).encode() for targets, own in block.strata()]
        codes = [int.from_bytes(hashlib.sha256(label).digest()[:8], "little") for label in labels]
        self.checksum[-1:] += (np.array(codes, dtype=np.uint64)[block.regime] * weights).sum()

    def add(self, block: Block, values: FloatArray) -> npt.NDArray[np.intp]:
        """Add rows (n_b, width) that belong to the block's, and return the number of each row's regime."""
        numbers = np.array([self._number(stratum) for stratum in block.strata()], dtype=np.intp)
        for stratum, rows in _by_regime(block, values):
            so_far = self._of_file.get(stratum)
            new = Moments.of(rows)
            self._of_file[stratum] = new if so_far is None else merge(so_far, new)
        return numbers[block.regime]

    def end_file(self) -> None:
        """Add what was seen of a file to the table's."""
        for stratum, moments in self._of_file.items():
            self._moments[stratum] = merge(self._moments[stratum], moments)
        self._of_file = {}

    def absorb(self, other: Gathering) -> npt.NDArray[np.intp]:
        """Add what another one saw of a file that comes next; returns this one's numbers of the other's regimes."""
        numbers = np.array([self._number(stratum) for stratum in other._numbers], dtype=np.intp)
        self.checksum += other.checksum
        self._of_file = other._moments
        self.end_file()
        return numbers

    def detached(self) -> Gathering:
        """The same without the stream, which need not travel back."""
        self.stream = replace(self.stream, files=())
        return self

    def regimes(self) -> dict[Regime, Moments]:
        """The moments of each regime, by the names of what was set, in the order in which they first came."""
        found: dict[Regime, Moments] = {}
        for (targets, _), moments in self.strata().items():
            found[targets] = merge(found[targets], moments) if targets in found else moments
        return found

    def strata(self) -> dict[tuple[Regime, Cells], Moments]:
        """The moments of each regime in each environment, in the order in which they first came."""
        names = self.stream.names
        return {(tuple(names[k] for k in targets), own): found for (targets, own), found in self._moments.items()}

    def _number(self, stratum: Stratum) -> int:
        if stratum not in self._numbers:
            self._numbers[stratum] = len(self._numbers)
            self._moments[stratum] = Moments.none(self.width)
            needed = len(self._numbers) * 8 * self.width**2
            if len(self._numbers) > 1 and needed > REGIME_BYTES:
                by_context = bool(self.stream.contexts)
                column = self.stream.contexts[0] if by_context else self.stream.target_column
                what, rare = ("environments", "environments") if by_context else ("sets of targets", "targets")
                raise DataError(
                    f"{self.stream.source}: column {shortened(column)} has {len(self._numbers):,} or more {what}, and "
                    f"the products of {self.width:,} columns are kept for each, more than {REGIME_BYTES / 1e6:,.0f} "
                    f"MB: leave out columns, or give rare {rare} tables of their own."
                )
        return self._numbers[stratum]


def _by_regime(block: Block, values: FloatArray) -> Iterator[tuple[Stratum, FloatArray]]:
    """The rows of each regime; nothing is copied where there is one."""
    if len(block.targets) == 1:
        yield block.strata()[0], values
        return
    order = np.argsort(block.regime, kind="stable")
    by_column = np.take(values.T, order, axis=1)
    ends = np.cumsum(np.bincount(block.regime, minlength=len(block.targets)))
    for stratum, start, end in zip(block.strata(), [0, *ends[:-1]], ends, strict=True):
        yield stratum, by_column[:, start:end].T


def _row_weights(start: int, rows: int) -> npt.NDArray[np.uint64]:
    """Odd 64-bit integers that look random, one for each row number: the finaliser of SplitMix64."""
    mixed = np.arange(start, start + rows, dtype=np.uint64)
    mixed *= np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed ^= mixed >> np.uint64(shift)
        mixed *= np.uint64(factor)
    mixed ^= mixed >> np.uint64(31)
    return mixed | np.uint64(1)


class Reservoir:
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

    def absorb(self, other: Reservoir, numbers: npt.NDArray[np.intp]) -> None:
        """Add another one's rows to the competition; ``numbers`` are this one's numbers of its regimes."""
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
