"""Engines on local scores: a table with its score, and what comes back as a posterior."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from vcuda.data.dataset import Dataset
from vcuda.data.scaling import Scaling
from vcuda.data.streaming import StreamedTable
from vcuda.data.streaming.blocks import OnProgress
from vcuda.data.streaming.passes import gather_features
from vcuda.infer.checkpoint import NO_CHECKPOINT, Checkpointer, remembering
from vcuda.infer.edge_prior import EdgePrior
from vcuda.infer.exact import Exact, exact_posterior
from vcuda.infer.orders import Orders, run_orders
from vcuda.infer.progress import ProgressCallback, silent
from vcuda.infer.variational import Variational, run_variational
from vcuda.infer.workers import SERIAL, Workers, mapped_by
from vcuda.models.interventions import prepare, prepare_streamed
from vcuda.models.prediction import Predictive
from vcuda.models.protocol import LocalScore, ScoreSpec
from vcuda.posterior.mixture import OrderMixture
from vcuda.posterior.posterior import Outcome, Status
from vcuda.posterior.sampled import SampledGraphs

SAMPLED_GRAPHS = 1000


ScoredEngine = Exact | Orders | Variational


class ScoredTable(NamedTuple):
    """A table with the score prepared for it; ``units`` leads from the user's units to the table's.

    ``log_jacobian`` is what the log density of the free cells gains by going from the table's own units to the user's.
    """

    data: Dataset | StreamedTable
    score: LocalScore
    units: Scaling
    log_jacobian: float

    @classmethod
    def prepare(cls, data: Dataset, spec: ScoreSpec, *, logarithm: np.ndarray, standardise: bool) -> ScoredTable:
        """Take the logarithms of the marked columns (d,), standardise all if asked to, and prepare the score."""
        table, units = rescaled(data, logarithm=logarithm, standardise=standardise)
        spec.check_spreads(table.source, table.names, table.scale)
        return cls.of(data, table, prepare(spec, table.values, table.interventions), units)

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
        features, functions = None, spec.features_of((logged.sample.values - logged.mean) / logged.scale)
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


def run_scored(
    engine: ScoredEngine,
    table: ScoredTable,
    *,
    prior: EdgePrior,
    seed: int,
    progress: ProgressCallback = silent,
    deadline: float | None = None,
    checkpointer: Checkpointer = NO_CHECKPOINT,
    workers: Workers = SERIAL,
) -> Outcome:
    """Run an engine on a score; ``deadline`` is on the clock of ``time.monotonic``.

    The ``workers`` are handed what can be done apart. What the ``checkpointer`` knows is not worked out again; the
    exact engine keeps nothing in it but scores of sets.
    """
    table = table._replace(score=remembering(table.score, checkpointer))
    asked: dict[str, Any] = {
        "names": table.data.names,
        "progress": progress,
        "deadline": deadline,
        "workers": workers,
    }
    if isinstance(engine, Exact):
        return _exact(engine, table, prior, seed, asked)
    asked["checkpointer"] = checkpointer
    if isinstance(engine, Orders):
        return _orders(engine, table, prior, seed, asked)
    return _variational(engine, table, prior, seed, asked)


def _exact(engine: Exact, table: ScoredTable, prior: EdgePrior, seed: int, asked: dict[str, Any]) -> Outcome:
    rng = np.random.default_rng(seed)
    found = exact_posterior(table.score, prior, samples=engine.samples, rng=rng, memory_gb=engine.memory_gb, **asked)
    status = Status(
        "ok",
        "Exact: every graph was counted, so what is uncertain here is due to the data, not to the computation. "
        "It holds as far as the model does.",
    )
    edges = prior.hold(found.edge_probabilities)
    graph_posterior = SampledGraphs(found.samples, edges, table.predictive(found.noise_variance))
    numbers = {"log_evidence": found.log_evidence + table.log_jacobian, "noise_variance": found.noise_variance}
    return Outcome(graph_posterior, status, numbers, {})


def _orders(engine: Orders, table: ScoredTable, prior: EdgePrior, seed: int, asked: dict[str, Any]) -> Outcome:
    found = run_orders(engine, table.score, prior, samples=SAMPLED_GRAPHS, seed=seed, **asked)
    edges = prior.hold(found.edge_probabilities)
    graph_posterior = SampledGraphs(found.samples, edges, table.predictive(found.noise_variance))
    evidence = None if found.log_evidence is None else found.log_evidence + table.log_jacobian
    numbers = {"log_evidence": evidence, "noise_variance": found.noise_variance} | found.diagnostics
    return Outcome(graph_posterior, found.status, numbers, found.trace)


def _variational(
    engine: Variational, table: ScoredTable, prior: EdgePrior, seed: int, asked: dict[str, Any]
) -> Outcome:
    found = run_variational(engine, table.score, prior, seed=seed, **asked)
    graph_posterior = OrderMixture.of(
        found.edge_logits,
        means=found.means,
        log_scale=found.log_scale,
        weights=found.weights,
        predictive=table.predictive(found.noise_variance),
        required=prior.required,
    )
    numbers = {"noise_variance": found.noise_variance} | found.diagnostics
    numbers["elbo"] = (found.elbo + table.log_jacobian).tolist()
    return Outcome(graph_posterior, found.status, numbers, found.trace)
