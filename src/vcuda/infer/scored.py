"""Engines on local scores: which score a model is, and what comes back as a posterior."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from vcuda.dags.base import DagPrior
from vcuda.data.dataset import Dataset
from vcuda.data.knowledge import EdgeRules
from vcuda.data.messages import shortened
from vcuda.data.streaming import StreamedTable
from vcuda.data.streaming.blocks import OnProgress
from vcuda.data.streaming.passes import gather_features
from vcuda.errors import ConfigError, DataError
from vcuda.infer.checkpoint import NO_CHECKPOINT, Checkpointer, remembering
from vcuda.infer.exact import Exact, ExactResult, exact_posterior
from vcuda.infer.orders import Orders, OrdersResult, run_orders
from vcuda.infer.progress import ProgressCallback, silent
from vcuda.infer.variational import Variational, run_variational
from vcuda.infer.workers import SERIAL, Workers, mapped_by
from vcuda.models.additive import AdditiveBasis, ColumnBasis
from vcuda.models.base import Noise
from vcuda.models.categorical import BDeu
from vcuda.models.gaussian_process import GaussianProcess
from vcuda.models.interventions import prepare, prepare_streamed
from vcuda.models.scores import BGe, EqualNoise, LocalScore, ScoreSpec, SharedNoise
from vcuda.posterior.graph_posterior import Scaling
from vcuda.posterior.mixture import OrderMixture
from vcuda.posterior.posterior import Outcome, Status
from vcuda.posterior.predictive import Predictive
from vcuda.posterior.predictives import predictive_for
from vcuda.posterior.sampled import SampledGraphs

# Models other than linear whose weights or tables can be integrated out, by the names that people give.
SCORES: dict[str, type] = {"gp": GaussianProcess, "additive": AdditiveBasis, "categorical": BDeu}
SAMPLED_GRAPHS = 1000


ScoredEngine = Exact | Orders | Variational


class ScoredTable(NamedTuple):
    """A table with the score prepared for it; ``units`` leads from the user's units to the table's.

    ``log_jacobian`` is what the log density of the free cells gains by going from the table's own units to the user's.
    """

    data: Dataset | StreamedTable
    score: LocalScore | SharedNoise
    units: Scaling
    log_jacobian: float

    @classmethod
    def prepare(
        cls, data: Dataset, spec: EqualNoise | ScoreSpec, *, logarithm: np.ndarray, standardise: bool
    ) -> ScoredTable:
        """Take the logarithms of the marked columns (d,), standardise all if asked to, and prepare the score."""
        table, units = rescaled(data, logarithm=logarithm, standardise=standardise)
        check_one_unit(spec, table)
        return cls.of(table, prepare(spec, table.values, table.interventions), units)

    @classmethod
    def of(cls, data: Dataset, score: LocalScore | SharedNoise, units: Scaling) -> ScoredTable:
        """A table in memory, on its own scale, with its score."""
        logs = data.values[:, units.logarithm] * units.scale[units.logarithm] + units.centre[units.logarithm]
        if data.interventions is not None:
            logs = logs[~data.interventions[:, units.logarithm]]
        return cls(data, score, units, -float(data.free_counts @ np.log(units.scale)) - float(logs.sum()))

    @classmethod
    def stream(
        cls,
        table: StreamedTable,
        spec: EqualNoise | BGe | AdditiveBasis,
        *,
        logarithm: np.ndarray,
        standardise: bool,
        on_progress: OnProgress,
        workers: Workers = SERIAL,
    ) -> ScoredTable:
        """A table on disk: one more pass if logarithms are taken, and one for the features of an additive score."""
        mapped = mapped_by(workers)
        logged = table.with_logarithms(logarithm, on_progress=on_progress, mapped=mapped)
        sums = []
        for column in np.flatnonzero(logarithm).tolist():
            free = logged.statistics.where_free(logged.names[column])
            sums.append(free.rows * float(free.mean[column]))
        units, log_jacobian = Scaling(np.zeros(table.d), np.ones(table.d), logarithm), -sum(sums)
        # Unequal noise, and functions, are on standardised columns in any case.
        if standardise and isinstance(spec, EqualNoise):
            units = Scaling(logged.mean, logged.scale, logarithm)
            log_jacobian -= float(logged.free_counts @ np.log(logged.scale))
            logged = replace(logged, statistics=logged.statistics.standardised())
        check_one_unit(spec, logged)
        features, bases = None, None
        if isinstance(spec, AdditiveBasis):
            standardised = (logged.sample.values - logged.mean) / logged.scale
            chosen = [spec.choose(column) for column in standardised.T]
            bases = ColumnBasis(*(np.stack(parts) for parts in zip(*chosen, strict=True)))
            expand = partial(_expanded, chosen)
            features = gather_features(
                logged.data, expand, statistics=logged.statistics, on_progress=on_progress, mapped=mapped
            )
        score = prepare_streamed(spec, logged.statistics, features, bases)
        return cls(logged, score, units, log_jacobian)

    def predictive(self, noise_variance: float | None) -> Predictive | None:
        """How new rows in the user's units are predicted."""
        return predictive_for(self.score, self.data, noise_variance=noise_variance, scaling=self.units)


def _expanded(bases: Sequence[ColumnBasis], rows: np.ndarray) -> np.ndarray:
    """The functions (n, d m) of standardised rows (n, d)."""
    return np.concatenate([basis.at(column) for basis, column in zip(bases, rows.T, strict=True)], axis=1)


def rescaled(data: Dataset, *, logarithm: np.ndarray, standardise: bool) -> tuple[Dataset, Scaling]:
    """The table that is fitted, and the way to it from the user's units."""
    logged = data.with_logarithms(logarithm)
    if not standardise:
        return logged, Scaling(np.zeros(data.d), np.ones(data.d), logarithm)
    table = replace(logged, values=logged.standardised())
    return table, Scaling(logged.mean, logged.scale, logarithm)


def check_one_unit(spec: EqualNoise | ScoreSpec, table: Dataset | StreamedTable) -> None:
    """Refuse equal noise for columns that vary by amounts too far apart to be scored in one unit."""
    if not isinstance(spec, EqualNoise) or not spec.out_of_range(table.scale).size:
        return
    least, largest = int(np.argmin(table.scale)), int(np.argmax(table.scale))
    beside = f", column {shortened(table.names[least])} by {table.scale[least]:.3g}" if spec.variance is None else ""
    raise DataError(
        f"{table.source}: column {shortened(table.names[largest])} varies by {table.scale[largest]:.3g}{beside}, too "
        "much for one noise variance in all columns: give the columns in one unit, standardise them "
        "(standardise=True, --standardise), or take noise='unequal' (--noise unequal)."
    )


def score_for(model: str, noise: Noise | None) -> EqualNoise | ScoreSpec:
    """The local score of a model given by name: linear ones by their noise, nonlinear ones have unequal noise."""
    if model == "linear":
        linear: dict[Noise | None, EqualNoise | BGe] = {
            "unit": EqualNoise(variance=1.0),
            "equal": EqualNoise(),
            "unequal": BGe(),
            None: BGe(),
        }
        if noise not in linear:
            raise ConfigError(f"noise must be one of unit, equal, unequal, not {noise!r}")
        return linear[noise]
    if model not in SCORES:
        raise ConfigError(f"this engine takes model linear, {' or '.join(SCORES)}, not {model!r}")
    if noise not in (None, "unequal"):
        raise ConfigError(f"model {model} has unequal noise; leave noise out")
    return SCORES[model]()


def run_scored(
    engine: ScoredEngine,
    table: ScoredTable,
    *,
    prior: DagPrior,
    seed: int,
    rules: EdgeRules | None = None,
    progress: ProgressCallback = silent,
    deadline: float | None = None,
    checkpointer: Checkpointer = NO_CHECKPOINT,
    workers: Workers = SERIAL,
) -> Outcome:
    """Run an engine on a score, as far as known ``rules`` admit; ``deadline`` is on the clock of ``time.monotonic``.

    The ``workers`` are handed what can be done apart. What the ``journal`` knows is not worked out again; the exact
    engine keeps nothing in it but scores of sets.
    """
    table = table._replace(score=remembering(table.score, checkpointer))
    asked: dict[str, Any] = {
        "edge_probability": prior.edge_probability,
        "names": table.data.names,
        "progress": progress,
        "deadline": deadline,
    }
    if rules is not None:
        asked |= rules._asdict()
    if isinstance(engine, Exact):
        return _exact(engine, table, seed, asked | {"workers": workers})
    asked["checkpointer"] = checkpointer
    if isinstance(engine, Orders):
        return _orders(engine, table, seed, asked | {"workers": workers})
    return _variational(engine, table, seed, asked | {"workers": workers})


def _exact(engine: Exact, table: ScoredTable, seed: int, asked: dict[str, Any]) -> Outcome:
    rng = np.random.default_rng(seed)
    found = exact_posterior(table.score, samples=engine.samples, rng=rng, memory_gb=engine.memory_gb, **asked)
    status = Status(
        "ok",
        "Exact: every graph was counted, so what is uncertain here is due to the data, not to the computation. "
        "It holds as far as the model does.",
    )
    graph_posterior = SampledGraphs(found.samples, _certain(found, asked), table.predictive(found.noise_variance))
    numbers = {"log_evidence": found.log_evidence + table.log_jacobian, "noise_variance": found.noise_variance}
    return Outcome(graph_posterior, status, numbers, {})


def _orders(engine: Orders, table: ScoredTable, seed: int, asked: dict[str, Any]) -> Outcome:
    found = run_orders(engine, table.score, samples=SAMPLED_GRAPHS, seed=seed, **asked)
    graph_posterior = SampledGraphs(found.samples, _certain(found, asked), table.predictive(found.noise_variance))
    evidence = None if found.log_evidence is None else found.log_evidence + table.log_jacobian
    numbers = {"log_evidence": evidence, "noise_variance": found.noise_variance} | found.diagnostics
    return Outcome(graph_posterior, found.status, numbers, found.trace)


def _variational(engine: Variational, table: ScoredTable, seed: int, asked: dict[str, Any]) -> Outcome:
    found = run_variational(engine, table.score, seed=seed, **asked)
    graph_posterior = OrderMixture.of(
        found.edge_logits,
        means=found.means,
        log_scale=found.log_scale,
        weights=found.weights,
        predictive=table.predictive(found.noise_variance),
        required=asked.get("required"),
    )
    numbers = {"noise_variance": found.noise_variance} | found.diagnostics
    numbers["elbo"] = (found.elbo + table.log_jacobian).tolist()
    return Outcome(graph_posterior, found.status, numbers, found.trace)


def _certain(found: ExactResult | OrdersResult, asked: dict[str, Any]) -> np.ndarray:
    """Edge probabilities in which what is required is 1, and what is forbidden 0, to the last digit."""
    if "required" not in asked:
        return found.edge_probabilities
    return EdgeRules(asked["allowed"], asked["required"], None).hold(found.edge_probabilities)
