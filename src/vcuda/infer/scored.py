"""Engines on local scores: which score a model is, and what comes back as a posterior."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from vcuda.dags.base import DagPrior
from vcuda.data.dataset import Dataset
from vcuda.errors import ConfigError
from vcuda.infer.exact import exact_posterior
from vcuda.infer.orders import Orders, run_orders
from vcuda.infer.progress import ProgressCallback, silent
from vcuda.models.base import Noise
from vcuda.models.kernels import AdditiveBasis, GaussianProcess
from vcuda.models.scores import BGe, BGeScore, EqualNoise, EqualNoiseScore, LocalScore, ScoreSpec, SharedNoise
from vcuda.posterior.laws import Scaling
from vcuda.posterior.posterior import Outcome, Status
from vcuda.posterior.sampled import LinearPredictive, SampledGraphs

# Models whose weights can be integrated out, by the names that people give.
SCORES: dict[str, type] = {"gp": GaussianProcess, "additive": AdditiveBasis}
SAMPLED_GRAPHS = 1000


@dataclass(frozen=True)
class Exact:
    """Dynamic programming over all sets of variables: no approximation, for up to about 20 of them.

    Parameters
    ----------
    samples
        How many independent DAGs to draw and keep.
    memory_gb
        What needs more is refused before it starts.
    """

    samples: int = SAMPLED_GRAPHS
    memory_gb: float = 4.0

    def __post_init__(self) -> None:
        if self.samples < 1:
            raise ConfigError(f"samples must be at least 1, not {self.samples}")
        if not self.memory_gb > 0:
            raise ConfigError(f"memory_gb must be positive, not {self.memory_gb}")


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


def run_exact(
    engine: Exact,
    data: Dataset,
    *,
    model: EqualNoise | ScoreSpec,
    prior: DagPrior,
    seed: int,
    progress: ProgressCallback = silent,
) -> Outcome:
    """The exact posterior as an outcome like any other engine's."""
    score = model.prepare(data.values)
    result = exact_posterior(
        score,
        edge_probability=prior.edge_probability,
        samples=engine.samples,
        rng=np.random.default_rng(seed),
        names=data.names,
        memory_gb=engine.memory_gb,
        progress=progress,
    )
    diagnostics: dict[str, Any] = {"log_evidence": result.log_evidence, "noise_variance": result.noise_variance}
    law = SampledGraphs(result.samples, result.edge_probabilities, _predictive(score, data, result.noise_variance))
    status = Status(
        "ok",
        "Exact: every graph was counted, so what is uncertain here is due to the data, not to the computation. "
        "It holds as far as the model does.",
    )
    return Outcome(law, status, diagnostics, {})


def run_orders_engine(
    engine: Orders,
    data: Dataset,
    *,
    model: EqualNoise | ScoreSpec,
    prior: DagPrior,
    seed: int,
    progress: ProgressCallback = silent,
) -> Outcome:
    """The sampler over orders as an outcome like any other engine's."""
    score = model.prepare(data.values)
    result = run_orders(
        engine,
        score,
        edge_probability=prior.edge_probability,
        samples=SAMPLED_GRAPHS,
        seed=seed,
        names=data.names,
        progress=progress,
    )
    told = {"log_evidence": result.log_evidence, "noise_variance": result.noise_variance}
    law = SampledGraphs(result.samples, result.edge_probabilities, _predictive(score, data, result.noise_variance))
    return Outcome(law, result.status, told | result.diagnostics, result.trace)


def _predictive(
    score: LocalScore | SharedNoise, data: Dataset, noise_variance: float | None
) -> LinearPredictive | None:
    if isinstance(score, BGeScore):
        scaling = Scaling(data.mean, data.scale)
        return LinearPredictive(
            score.gram, scaling, data.n, score.ridge, excess=score.excess, mean_rows=score.mean_rows
        )
    if isinstance(score, SharedNoise) and noise_variance is not None:
        score = score.at(noise_variance)
    if isinstance(score, EqualNoiseScore):
        unit = np.exp(-score.log_jacobian / (data.n * data.d))
        scaling = Scaling(data.mean, np.full(data.d, unit))
        return LinearPredictive(score.gram, scaling, data.n, score.ridge, variance=score.variance)
    return None
