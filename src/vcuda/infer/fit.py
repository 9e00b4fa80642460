"""``fit``: from a table to a posterior over causal graphs, in one call."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from platform import python_version
from typing import Any, Literal

from vcuda.dags.base import DagPrior
from vcuda.data.dataset import Dataset, as_dataset
from vcuda.errors import ConfigError, ConvergenceWarning
from vcuda.infer.orders import Orders
from vcuda.infer.progress import ProgressCallback, silent
from vcuda.infer.scored import SCORES, Exact, run_exact, run_orders_engine, score_for
from vcuda.infer.variational import Variational, run_variational
from vcuda.models import MODELS
from vcuda.models.base import FunctionalModel, Noise
from vcuda.models.scores import ScoreSpec
from vcuda.posterior import Posterior
from vcuda.posterior.posterior import Outcome
from vcuda.specs import to_json

Preset = Literal["default", "paper"]
ENGINES: dict[str, type] = {"variational": Variational, "exact": Exact, "orders": Orders}
SCORED: dict[type, Callable[..., Outcome]] = {Exact: run_exact, Orders: run_orders_engine}
MODEL_NAMES = (*MODELS, *SCORES)


def fit(
    data: Any,
    *,
    model: str | FunctionalModel | ScoreSpec = "linear",
    noise: Noise | None = None,
    prior: float | DagPrior | None = None,
    engine: str | Variational | Exact | Orders = "variational",
    preset: Preset = "default",
    standardise: bool = False,
    seed: int = 0,
    progress: ProgressCallback = silent,
) -> Posterior:
    """Learn which variable causes which, and how sure that is.

    Parameters
    ----------
    data
        A path (CSV, TSV, Parquet, Feather), a pandas, Polars or Arrow table, an array, a :class:`Dataset`, or the
        name of a bundled table (``"sachs"``).
    model
        ``"linear"``; ``"mlp"`` for engine variational; ``"gp"`` or ``"additive"`` for engines exact and orders;
        or a spec such as ``MLP(hidden=(64,))`` or ``BGe()``.
    noise
        ``"unit"``, ``"equal"`` or ``"unequal"`` noise variances; only with a model given by name. By default unequal,
        which does not depend on the units of the columns; preset ``paper`` has unit noise.
    prior
        The probability of an edge between two variables when the order allows it, or a :class:`DagPrior`. By default
        one expected parent a variable.
    engine
        ``"variational"``, ``"exact"`` (up to about 20 columns), ``"orders"`` (up to thousands), or a spec such as
        ``Variational(restarts=8)``.
    preset
        ``"default"``, or ``"paper"`` for the authors' program as it was run (bias-free functions, unit noise, one
        graph a step, edge prior 0.1).
    standardise
        Bring every column to mean 0 and variance 1 first, whatever the noise; unequal noise does so anyway.
    seed
        The same seed gives the same posterior on the same machine and versions.
    progress
        Called with a :class:`Progress` between compiled chunks.

    Returns
    -------
    Posterior
        An interrupt from the keyboard ends the fit early and returns what is there, with status ``interrupted``.
    """
    table = as_dataset(data)
    _check_names(model, engine, noise, preset)
    dag_prior = _prior(prior, table, preset)
    started = time.perf_counter()
    if isinstance(engine, Variational) or engine == "variational":
        outcome, described = _fit_variational(
            engine, table, model, noise, dag_prior, preset, standardise, seed, progress
        )
    else:
        if preset == "paper" or standardise:
            raise ConfigError("preset paper and standardise belong to engine variational; leave them out")
        outcome, described = _fit_scored(engine, table, model, noise, dag_prior, seed, progress)
    provenance = {
        **described,
        "prior": to_json(dag_prior),
        "preset": preset,
        "seed": seed,
        "data": {
            "source": table.source,
            "fingerprint": table.fingerprint,
            "rows": table.n,
            "columns": table.d,
            "notes": list(table.notes),
        },
        "versions": versions(),
        "seconds": time.perf_counter() - started,
    }
    if outcome.status.code != "ok":
        warnings.warn(outcome.status.sentence, ConvergenceWarning, stacklevel=2)
    return Posterior(
        names=table.names,
        law=outcome.law,
        status=outcome.status,
        diagnostics=outcome.diagnostics,
        trace=outcome.trace,
        provenance=provenance,
    )


def versions() -> dict[str, str]:
    """Of everything that may change a number."""
    packages = ("vcuda", "jax", "jaxlib", "numpy", "scipy", "optax")
    return {"python": python_version(), **{package: version(package) for package in packages}}


def _fit_scored(
    engine: Any, table: Dataset, model: Any, noise: Noise | None, prior: DagPrior, seed: int, progress: ProgressCallback
) -> tuple[Outcome, dict[str, Any]]:
    score = score_for(model, noise) if isinstance(model, str) else model
    chosen = ENGINES[engine]() if isinstance(engine, str) else engine
    outcome = SCORED[type(chosen)](chosen, table, model=score, prior=prior, seed=seed, progress=progress)
    told = {"name": model, "noise": noise or "unequal"} if isinstance(model, str) else {"name": type(model).__name__}
    return outcome, {
        "engine": _described(chosen),
        "model": told | {"score": type(score).__name__, **to_json(score)},
    }


def _described(engine: Any) -> dict[str, Any]:
    name = next(name for name, kind in ENGINES.items() if isinstance(engine, kind))
    return {"name": name, **to_json(engine)}


def _fit_variational(
    engine: Any,
    table: Dataset,
    model: Any,
    noise: Noise | None,
    prior: DagPrior,
    preset: Preset,
    standardise: bool,
    seed: int,
    progress: ProgressCallback,
) -> tuple[Outcome, dict[str, Any]]:
    functional = _functional(model, noise, preset)
    chosen = _variational(engine, functional, preset, table.n)
    if standardise:
        chosen = replace(chosen, scaling="columns")
    outcome = run_variational(chosen, table, model=functional, prior=prior, seed=seed, progress=progress)
    return outcome, {"engine": _described(chosen), "model": to_json(functional)}


def _check_names(model: Any, engine: Any, noise: Noise | None, preset: Preset) -> None:
    """What can be said to be wrong before anything is computed."""
    if preset not in ("default", "paper"):
        raise ConfigError(f"preset must be default or paper, not {preset!r}")
    if isinstance(engine, str) and engine not in ENGINES:
        raise ConfigError(f"engine must be one of {', '.join(ENGINES)}, not {engine!r}")
    if isinstance(model, str) and model not in MODEL_NAMES:
        raise ConfigError(f"model must be one of {', '.join(MODEL_NAMES)}, not {model!r}")
    if not isinstance(model, str) and noise is not None:
        raise ConfigError("noise goes with a model given by name; set it inside the spec instead")


def _functional(model: str | FunctionalModel, noise: Noise | None, preset: Preset) -> FunctionalModel:
    if not isinstance(model, str):
        return model
    if model not in MODELS:
        raise ConfigError(
            f"engine variational takes model {' or '.join(MODELS)}, not {model!r}; use engine exact or orders"
        )
    if preset == "paper":
        return MODELS[model](noise=noise or "unit", bias=False)
    return MODELS[model](noise=noise or "unequal")


def _prior(prior: float | DagPrior | None, table: Dataset, preset: Preset) -> DagPrior:
    if isinstance(prior, DagPrior):
        return prior
    if prior is not None:
        return DagPrior(edge_probability=prior)
    return DagPrior(edge_probability=0.1) if preset == "paper" else DagPrior.for_nodes(table.d)


def _variational(engine: str | Variational, model: FunctionalModel, preset: Preset, rows: int) -> Variational:
    if not isinstance(engine, str):
        return engine
    if preset == "paper":
        return Variational.paper(batch_size=64 if model.name == "linear" else 256)
    return Variational.for_rows(rows)
