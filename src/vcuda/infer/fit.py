"""``fit``: from a table to a posterior over causal graphs, in one call."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches
from importlib.metadata import version
from platform import python_version
from typing import Any, Literal, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from vcuda.dags.base import DagPrior
from vcuda.data.dataset import Dataset, as_dataset
from vcuda.errors import ConfigError, ConvergenceWarning
from vcuda.infer.choice.engines import choose_engine
from vcuda.infer.choice.models import Choice, choose_model
from vcuda.infer.exact import Exact
from vcuda.infer.orders import Orders
from vcuda.infer.progress import ProgressCallback, silent
from vcuda.infer.scored import SCORES, ScoredEngine, ScoredTable, rescaled, run_scored, score_for
from vcuda.infer.straight_through import StraightThrough, run_straight_through
from vcuda.infer.variational import Variational
from vcuda.models import MODELS
from vcuda.models.base import FunctionalModel, Noise, check_noise
from vcuda.models.scores import EqualNoise, EqualNoiseScore, ScoreSpec, SharedNoise
from vcuda.posterior import Posterior
from vcuda.posterior.posterior import Outcome
from vcuda.specs import to_json

Preset = Literal["default", "paper"]
Engine = ScoredEngine | StraightThrough
ENGINES: dict[str, type] = {
    "exact": Exact,
    "orders": Orders,
    "variational": Variational,
    "straight-through": StraightThrough,
}
ENGINE_NAMES = ("auto", *ENGINES)
MODEL_NAMES = ("auto", *MODELS, *SCORES)
# What is compared for engines that do not take every model; straight-through then answers "nonlinear" with an MLP.
NARROW_CHOICE = ("linear", "additive")
# The part of a time limit after which no further model is compared.
CHOOSING_SHARE = 0.3


def fit(
    data: Any,
    *,
    model: str | FunctionalModel | ScoreSpec = "auto",
    noise: Noise | None = None,
    logarithm: Sequence[str] | None = None,
    prior: float | DagPrior | None = None,
    engine: str | Engine = "auto",
    preset: Preset = "default",
    standardise: bool = False,
    time_limit: float | None = None,
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
        ``"auto"`` lets the evidence decide between the others; ``"linear"``; ``"gp"``, a smooth function of all causes
        together; ``"additive"``, a sum of smooth functions of single causes; ``"mlp"``, trained by gradient; or a spec
        such as ``MLP(hidden=(64,))`` or ``BGe()``.
    noise
        ``"unit"``, ``"equal"`` or ``"unequal"`` noise variances; only with a model given by name. With ``"auto"`` the
        evidence decides; otherwise unequal, which does not depend on the units of the columns; preset ``paper`` has
        unit noise.
    logarithm
        Names of columns that are taken by their logarithm; ``()`` for none. By default the evidence decides with
        model ``"auto"``, and none with any other.
    prior
        The probability of an edge between two variables when the order allows it, or a :class:`DagPrior`. By default
        one expected parent a variable.
    engine
        ``"auto"`` takes the best one for the size of the problem: ``"exact"`` (up to about 20 columns), ``"orders"``
        (up to thousands), ``"variational"``; ``"straight-through"`` is the paper's, for mlp. Or a spec such as
        ``Orders(replicas=8)``.
    preset
        ``"default"``, or ``"paper"`` for the authors' program as it was run (engine straight-through, bias-free
        functions, unit noise, one graph a step, edge prior 0.1).
    standardise
        Bring every column to mean 0 and variance 1 first, whatever the noise; unequal noise does so anyway.
    time_limit
        Seconds after which the fit ends with what it has; the status says so.
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
    _check(model, engine, noise, preset, time_limit)
    dag_prior = _prior(prior, table, preset)
    marked = None if logarithm is None else _marked(logarithm, table)
    started = time.perf_counter()
    deadline = None if time_limit is None else time.monotonic() + time_limit
    request = _Request(table, dag_prior, marked, standardise, seed, progress, deadline, time_limit)
    # Thousands of small factorisations: threads of BLAS that wait for each other took three times as long, and changed
    # last digits with the number of cores.
    with threadpool_limits(1, user_api="blas"):
        if preset == "paper" or _is_gradient_trained(model, engine):
            outcome, told = _fit_by_gradient(request, model, noise, engine, preset)
        else:
            outcome, told = _fit_scored(request, model, noise, engine)
    provenance = {
        **told,
        "prior": to_json(dag_prior),
        "preset": preset,
        "standardise": standardise,
        "time_limit": time_limit,
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


class _Request(NamedTuple):
    """What was asked for, apart from model and engine."""

    table: Dataset
    prior: DagPrior
    logarithm: np.ndarray | None
    standardise: bool
    seed: int
    progress: ProgressCallback
    deadline: float | None
    time_limit: float | None

    def prepared(self, spec: EqualNoise | ScoreSpec) -> ScoredTable:
        """The table with a score that was asked for."""
        marked = np.zeros(self.table.d, dtype=bool) if self.logarithm is None else self.logarithm
        return ScoredTable.prepare(self.table, spec, logarithm=marked, standardise=self.standardise)

    def seconds_left(self) -> float | None:
        return None if self.deadline is None else self.deadline - time.monotonic()


def _fit_scored(
    request: _Request, model: Any, noise: Noise | None, engine: str | Engine
) -> tuple[Outcome, dict[str, Any]]:
    chosen, told = _score(request, model, noise, engine)
    if engine == "auto":
        choice = choose_engine(chosen.score, seconds=request.seconds_left())
        engine = choice.engine
        told["choice"]["sentences"].append(choice.sentence)
    elif isinstance(engine, str):
        engine = ENGINES[engine]()
    outcome = run_scored(
        engine,  # type: ignore[arg-type]
        chosen,
        prior=request.prior,
        seed=request.seed,
        progress=request.progress,
        deadline=request.deadline,
    )
    note = _varsortability_note(chosen, request.standardise, outcome)
    if note:
        told["choice"]["sentences"].append(note)
    return outcome, {"engine": _described(engine)} | told


def _score(
    request: _Request, model: Any, noise: Noise | None, engine: str | Engine
) -> tuple[ScoredTable, dict[str, Any]]:
    """The table with its score, chosen or as asked for, and what is told of it."""
    if isinstance(model, str) and model == "auto":
        choice = _choose(request, noise, engine)
        candidate, scored = choice.candidate, choice.scored
        spec, name, reasons = candidate.spec, {"name": candidate.model, "noise": candidate.noise}, choice.told()
    elif isinstance(model, str):
        spec, name, reasons = score_for(model, noise), {"name": model, "noise": noise or "unequal"}, {"sentences": []}
        scored = request.prepared(spec)
    else:
        spec, name, reasons = model, {"name": type(model).__name__}, {"sentences": []}
        scored = request.prepared(spec)
    described = name | {"score": type(spec).__name__, **to_json(spec)}
    logarithm = [name for name, taken in zip(request.table.names, scored.units.logarithm, strict=True) if taken]
    return scored, {"model": described, "logarithm": logarithm, "choice": reasons}


def _choose(request: _Request, noise: Noise | None, engine: str | Engine) -> Choice:
    """The model by its evidence, within its share of the time."""
    kind = ENGINES.get(engine) if isinstance(engine, str) else type(engine)
    share = None if request.time_limit is None else time.monotonic() + CHOOSING_SHARE * request.time_limit
    return choose_model(
        request.table,
        edge_probability=request.prior.edge_probability,
        models=NARROW_CHOICE if kind in (Variational, StraightThrough) else ("linear", *SCORES),
        noise=noise,
        logarithm=request.logarithm,
        standardise=request.standardise,
        seed=request.seed,
        progress=request.progress,
        deadline=share,
    )


def _fit_by_gradient(
    request: _Request, model: Any, noise: Noise | None, engine: str | Engine, preset: Preset
) -> tuple[Outcome, dict[str, Any]]:
    reasons: dict[str, Any] = {"sentences": []}
    logarithm = request.logarithm
    if isinstance(model, str) and model == "auto":
        if preset == "paper":
            model = "linear"
        else:
            choice = _choose(request, noise, engine)
            linear = choice.candidate.model == "linear"
            model, noise = ("linear", choice.candidate.noise) if linear else ("mlp", noise)
            logarithm, reasons = choice.scored.units.logarithm, choice.told()
    functional = _functional(model, noise, preset)
    chosen = _straight_through(engine, functional, preset, request.table.n)
    if request.standardise:
        chosen = replace(chosen, scaling="columns")
    marked = np.zeros(request.table.d, dtype=bool) if logarithm is None else logarithm
    table, units = rescaled(request.table, logarithm=marked, standardise=False)
    outcome = run_straight_through(
        chosen,
        table,
        model=functional,
        prior=request.prior,
        seed=request.seed,
        units=units,
        progress=request.progress,
        deadline=request.deadline,
    )
    names = [name for name, taken in zip(request.table.names, marked, strict=True) if taken]
    return outcome, {
        "engine": _described(chosen),
        "model": to_json(functional),
        "logarithm": names,
        "choice": reasons,
    }


def _varsortability_note(scored: ScoredTable, standardise: bool, outcome: Outcome) -> str | None:
    """Said when equal noise was used on raw scales: the columns' units then help to decide directions."""
    if standardise or not isinstance(scored.score, SharedNoise | EqualNoiseScore):
        return None
    probabilities = outcome.law.edge_probabilities()
    rising = scored.data.scale[:, None] < scored.data.scale
    total = float(probabilities.sum())
    if total < 0.5:
        return None
    share = float(probabilities[rising].sum()) / total
    return (
        f"Equal noise reads directions from the variances of the columns: {share:.0%} of the expected edges go from a "
        "smaller to a larger one. If the units of the columns are arbitrary, use unequal noise instead."
    )


def _described(engine: Any) -> dict[str, Any]:
    name = next(name for name, kind in ENGINES.items() if isinstance(engine, kind))
    return {"name": name, **to_json(engine)}


def _check(model: Any, engine: Any, noise: Noise | None, preset: Preset, time_limit: float | None) -> None:
    """What can be said to be wrong before anything is computed."""
    if preset not in ("default", "paper"):
        raise ConfigError(f"preset must be default or paper, not {preset!r}")
    if isinstance(engine, str) and engine not in ENGINE_NAMES:
        raise ConfigError(f"engine must be one of {', '.join(ENGINE_NAMES)}, not {engine!r}")
    if isinstance(model, str) and model not in MODEL_NAMES:
        raise ConfigError(f"model must be one of {', '.join(MODEL_NAMES)}, not {model!r}")
    if noise is not None:
        if not isinstance(model, str):
            raise ConfigError("noise goes with a model given by name; set it inside the spec instead")
        check_noise(noise)
    by_gradient = isinstance(engine, StraightThrough) or engine == "straight-through" or preset == "paper"
    if by_gradient and not isinstance(model, (str, *MODELS.values())):
        raise ConfigError(f"engine straight-through takes a spec such as Linear() or MLP(), not {type(model).__name__}")
    if not by_gradient and engine != "auto" and isinstance(model, tuple(MODELS.values())):
        raise ConfigError(
            f"{type(model).__name__}() is trained by gradient: use engine straight-through, or model linear, gp or "
            "additive"
        )
    if preset == "paper" and not (engine in ("auto", "straight-through") or isinstance(engine, StraightThrough)):
        raise ConfigError("preset paper belongs to engine straight-through; leave the engine out")
    if time_limit is not None and not time_limit > 0:
        raise ConfigError(f"time_limit must be a positive number of seconds, not {time_limit}")


def _marked(logarithm: Sequence[str], table: Dataset) -> np.ndarray:
    """The named columns as (d,) booleans."""
    asked = (logarithm,) if isinstance(logarithm, str) else tuple(logarithm)
    for name in asked:
        if name not in table.names:
            near = get_close_matches(name, table.names, n=1)
            meant = f"; did you mean {near[0]!r}?" if near else f"; they are {', '.join(table.names[:10])}"
            raise ConfigError(f"logarithm names {name!r}, which is no column{meant}")
    return np.isin(np.array(table.names, dtype=object), np.array(asked, dtype=object))


def _is_gradient_trained(model: Any, engine: Any) -> bool:
    """Whether the functions are trained rather than integrated out."""
    if isinstance(engine, StraightThrough) or engine == "straight-through":
        return True
    return engine == "auto" and (model == "mlp" or isinstance(model, tuple(MODELS.values())))


def _functional(model: str | FunctionalModel, noise: Noise | None, preset: Preset) -> FunctionalModel:
    if not isinstance(model, str):
        return model
    if model not in MODELS:
        raise ConfigError(
            f"engine straight-through takes model {' or '.join(MODELS)}, not {model!r}; use engine exact or orders"
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


def _straight_through(engine: str | Engine, model: FunctionalModel, preset: Preset, rows: int) -> StraightThrough:
    if isinstance(engine, StraightThrough):
        return engine
    if preset == "paper":
        return StraightThrough.paper(batch_size=64 if model.name == "linear" else 256)
    return StraightThrough.for_rows(rows)
