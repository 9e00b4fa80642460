"""What passes over a streamed table compute, enough for linear and additive scores: moments and a sample."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from vcuda.data.columns import ColumnChoice
from vcuda.data.contexts import NO_CONTEXTS, Cells, ContextOptions, Contexts, contexts_of
from vcuda.data.dataset import Dataset
from vcuda.data.moments import Moments, merged
from vcuda.data.raw_table import FloatArray

Regime = tuple[str, ...]


class Sample(NamedTuple):
    """Rows drawn uniformly without replacement: ``rows`` (s,) their places in the table, ascending, ``values`` (s, d),
    and ``regime`` (s,), which of the table's regimes, or of its strata where it has contexts, each has."""

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
    header
        Whether the first line of a text file holds the names.
    asked
        The columns that name the environment of each row, and the reference that was asked for.
    strata
        The moments of each regime in each environment, by the cells of the context columns; None without contexts.
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
    header: bool = True
    asked: ContextOptions = NO_CONTEXTS
    strata: Mapping[tuple[Regime, Cells], Moments] | None = None

    @cached_property
    def environments(self) -> tuple[Contexts, list[Cells]] | None:
        """The environments, and the context cells of each; None where there are none."""
        if self.strata is None:
            return None
        counts: dict[Cells, int] = {}
        for (_, cells), moments in self.strata.items():
            counts[cells] = counts.get(cells, 0) + moments.rows
        return contexts_of(self.asked, counts, self.source)

    @property
    def choice(self) -> ColumnChoice:
        """The choice of these columns, for another pass over the same table."""
        return ColumnChoice(columns=self.names, header=self.header)

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
        if self.environments is not None:
            contexts = self.environments[0]
            digest.update(json.dumps([contexts.columns, contexts.reference]).encode())
        return digest.hexdigest()

    def standardised(self) -> Statistics:
        """The same of the columns less their means, over their standard deviations."""
        mean, scale = self.mean, self.scale

        def of(moments: Moments) -> Moments:
            ends = ((end - mean) / scale for end in (moments.least, moments.largest))
            return Moments(moments.rows, (moments.mean - mean) / scale, moments.gram / np.outer(scale, scale), *ends)

        regimes = {targets: of(moments) for targets, moments in self.regimes.items()}
        strata = None if self.strata is None else {key: of(moments) for key, moments in self.strata.items()}
        sample = self.sample._replace(values=(self.sample.values - mean) / scale)
        return replace(self, moments=of(self.moments), regimes=regimes, sample=sample, strata=strata)

    def where_free(self, name: str) -> Moments:
        """The moments of the rows in which a column was not set, which show what it depends on."""
        return where_free(self.regimes, name, len(self.names))

    def sampled(self) -> Dataset:
        """The sample as a table in memory, for what needs rows: quantiles, a choice of logarithms, a quick look."""
        held = np.zeros(self.sample.values.shape, dtype=bool)
        regimes = list(self.regimes) if self.strata is None else [targets for targets, _ in self.strata]
        for k, targets in enumerate(regimes):
            held[np.ix_(self.sample.regime == k, [self.names.index(name) for name in targets])] = True
        source = f"{len(held):,} of {self.rows:,} rows of {self.source}"
        table = Dataset(self.names, self.sample.values, source, self.notes, interventions=held if held.any() else None)
        if self.strata is None or self.environments is None:
            return table
        contexts, cells = self.environments
        codes = np.array([cells.index(own) for _, own in self.strata], dtype=np.intp)[self.sample.regime]
        return replace(table, contexts=contexts.with_rows(codes), environment=codes)


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
        free = where_free(self.regimes, name, len(self.moments.mean))
        kept = {targets: moments for targets, moments in self.regimes.items() if name not in targets}
        return FeatureStatistics(free, kept, self.features)


def where_free(regimes: Mapping[Regime, Moments], name: str, columns: int) -> Moments:
    """The moments of so many columns in the rows of all regimes that did not set the named one."""
    return merged((moments for targets, moments in regimes.items() if name not in targets), columns)
