"""``fit``: from a table to a posterior over causal graphs, in one call."""

from __future__ import annotations

import time
import warnings
from dataclasses import replace
from importlib.metadata import version
from platform import python_version
from typing import Any, Literal

from vcuda.dags.base import DagPrior
from vcuda.data.dataset import Dataset, as_dataset
from vcuda.errors import ConfigError, ConvergenceWarning
from vcuda.infer.progress import ProgressCallback, silent
from vcuda.infer.variational import Variational, run_variational
from vcuda.models import MODELS
from vcuda.models.base import FunctionalModel, Noise
from vcuda.posterior import Posterior
from vcuda.specs import to_json

Preset = Literal["default", "paper"]
ENGINES: dict[str, type] = {"variational": Variational}


def fit(
    data: Any,
    *,
    model: str | FunctionalModel = "linear",
    noise: Noise | None = None,
    prior: float | DagPrior | None = None,
    engine: str | Variational = "variational",
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
        ``"linear"``, ``"mlp"``, or a spec such as ``MLP(hidden=(64,))``.
    noise
        ``"unit"``, ``"equal"`` or ``"unequal"`` noise variances; only with a model given by name. By default unequal,
        which does not depend on the units of the columns; preset ``paper`` has unit noise.
    prior
        The probability of an edge between two variables when the order allows it, or a :class:`DagPrior`. By default
        one expected parent a variable.
    engine
        ``"variational"``, or a spec such as ``Variational(restarts=8)``.
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
    functional = _model(model, noise, preset)
    dag_prior = _prior(prior, table, preset)
    chosen = _engine(engine, functional, preset, table.n)
    if standardise:
        chosen = replace(chosen, scaling="columns")
    started = time.perf_counter()
    outcome = run_variational(chosen, table, model=functional, prior=dag_prior, seed=seed, progress=progress)
    provenance = {
        "engine": {"name": "variational", **to_json(chosen)},
        "model": to_json(functional),
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


def _model(model: str | FunctionalModel, noise: Noise | None, preset: Preset) -> FunctionalModel:
    if preset not in ("default", "paper"):
        raise ConfigError(f"preset must be default or paper, not {preset!r}")
    if not isinstance(model, str):
        if noise is not None:
            raise ConfigError("noise goes with a model given by name; set it inside the spec instead")
        return model
    if model not in MODELS:
        raise ConfigError(f"model must be one of {', '.join(MODELS)}, not {model!r}")
    if preset == "paper":
        return MODELS[model](noise=noise or "unit", bias=False)
    return MODELS[model](noise=noise or "unequal")


def _prior(prior: float | DagPrior | None, table: Dataset, preset: Preset) -> DagPrior:
    if isinstance(prior, DagPrior):
        return prior
    if prior is not None:
        return DagPrior(edge_probability=prior)
    return DagPrior(edge_probability=0.1) if preset == "paper" else DagPrior.for_nodes(table.d)


def _engine(engine: str | Variational, model: FunctionalModel, preset: Preset, rows: int) -> Variational:
    if isinstance(engine, str):
        if engine not in ENGINES:
            raise ConfigError(f"engine must be one of {', '.join(ENGINES)}, not {engine!r}")
        if preset == "paper":
            return Variational.paper(batch_size=64 if model.name == "linear" else 256)
        return Variational.for_rows(rows)
    return engine
