"""Tables for the engines on local scores: each with its score, and the units it is computed in."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from vcuda.data.dataset import Dataset
from vcuda.data.scaling import Scaling
from vcuda.data.streaming import StreamedTable
from vcuda.data.streaming.blocks import OnProgress
from vcuda.data.streaming.passes import gather_features
from vcuda.infer.workers import SERIAL, Workers, mapped_by
from vcuda.models import contexts
from vcuda.models.environment_sets import Changes
from vcuda.models.interventions import prepare_streamed
from vcuda.models.prediction import Predictive
from vcuda.models.protocol import LocalScore, ScoreSpec


class ScoredTable(NamedTuple):
    """A table with the score prepared for it; ``units`` leads from the user's units to the table's.

    ``log_jacobian`` is what the log density of the free cells gains by going from the table's own units to the user's.
    """

    data: Dataset | StreamedTable
    score: LocalScore
    units: Scaling
    log_jacobian: float

    @classmethod
    def prepare(
        cls,
        data: Dataset,
        spec: ScoreSpec,
        *,
        logarithm: np.ndarray,
        standardise: bool,
        changes: Changes = "mechanisms",
    ) -> ScoredTable:
        """Take the logarithms of the marked columns (d,), standardise all if asked to, and prepare the score;
        ``changes`` says what environments may change."""
        table, units = rescaled(data, logarithm=logarithm, standardise=standardise)
        spec.check_spreads(table.source, table.names, table.scale)
        return cls.of(data, table, contexts.prepare(spec, table, changes), units)

    @classmethod
    def of(cls, data: Dataset, table: Dataset, score: LocalScore, units: Scaling) -> ScoredTable:
        """A table in memory on its own scale, with its score; ``data`` is the same in the user's units."""
        return cls(table, score, units, float(column_log_jacobians(data, units).sum()))

    @classmethod
    def stream(
        cls,
        table: StreamedTable,
        spec: ScoreSpec,
        *,
        logarithm: np.ndarray,
        standardise: bool,
        changes: Changes = "mechanisms",
        on_progress: OnProgress,
        workers: Workers = SERIAL,
    ) -> ScoredTable:
        """A table on disk: one more pass if logarithms are taken, and one where the score needs features."""
        mapped = mapped_by(workers)
        logged = table.with_logarithms(logarithm, on_progress=on_progress, mapped=mapped)
        sums = []
        for column in np.flatnonzero(logarithm).tolist():
            free = logged.statistics.where_free(logged.names[column])
            sums.append(free.rows * float(free.mean[column]))
        units = Scaling(np.zeros(table.d), np.ones(table.d), logarithm)
        # Other models standardise the columns in any case.
        if standardise and spec.depends_on_scale:
            units = Scaling(logged.mean, logged.scale, logarithm)
        log_jacobian = float(units.log_jacobians_of(logged.free_counts, np.array(sums)).sum())
        if standardise and spec.depends_on_scale:
            logged = replace(logged, statistics=logged.statistics.standardised())
        spec.check_spreads(logged.source, logged.names, logged.scale)
        if logged.contexts is not None:
            return cls(logged, contexts.prepare_streamed(spec, logged.statistics, changes), units, log_jacobian)
        features = None
        functions = spec.features_of(
            (logged.sample.values - logged.mean) / logged.scale, zero=-logged.mean / logged.scale
        )
        if functions is not None:
            features = gather_features(
                logged.data, functions.expand, statistics=logged.statistics, on_progress=on_progress, mapped=mapped
            )
        score = prepare_streamed(spec, logged.statistics, features, functions)
        return cls(logged, score, units, log_jacobian)

    def predictive(self, shared: float | None) -> Predictive | None:
        """How new rows in the user's units are predicted; ``shared`` is the value of what all nodes share, if any."""
        return self.score.predictive(self.data, scaling=self.units, value=shared)


def column_log_jacobians(data: Dataset, units: Scaling) -> np.ndarray:
    """What the density of each column (d,) of a table gains by going from the scaled units to its own."""
    return units.column_log_jacobians(data.values, None if data.interventions is None else ~data.interventions)


def rescaled(data: Dataset, *, logarithm: np.ndarray, standardise: bool) -> tuple[Dataset, Scaling]:
    """The table that is fitted, and the way to it from the user's units."""
    logged = data.with_logarithms(logarithm)
    if not standardise:
        return logged, Scaling(np.zeros(data.d), np.ones(data.d), logarithm)
    table = replace(logged, values=logged.standardised())
    return table, Scaling(logged.mean, logged.scale, logarithm)
