"""From the name of an engine, a preset and options to a fitted posterior, the same way for every method."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import vcuda
from vcuda.baselines import BASELINES
from vcuda.dags.priority import PriorityDags
from vcuda.data.dataset import Dataset
from vcuda.errors import ConfigError
from vcuda.fitting.spec import ENGINE_NAMES
from vcuda.infer.progress import ProgressCallback
from vcuda.infer.straight_through import StraightThrough
from vcuda.models import MODELS
from vcuda.posterior import Posterior

PRESETS = {"baseline": ("reference", "fixed"), "straight-through": ("paper",), "engine": ("default",)}
# What preset `paper` of the straight-through engine can be told here, beside what `vcuda.fit` itself takes.
PAPER_OPTIONS = ("model", "hidden", "prior", "order_scale", "batch_size", "order_temperature")
FIT_OPTIONS = ("model", "noise", "prior")
# The authors' batch sizes where as many edges as nodes were drawn.
BATCH_SIZES = {"linear": 64, "mlp": 256}


def engine_names() -> tuple[str, ...]:
    """All that a method of the grid can name as its engine."""
    return (*ENGINE_NAMES, *(name for name in BASELINES if name not in ENGINE_NAMES))


def check(engine: str, preset: str, options: dict[str, Any]) -> None:
    """Refuse what cannot be run, before anything is."""
    kind = "baseline" if engine in BASELINES else engine if engine in PRESETS else "engine"
    if preset not in PRESETS[kind]:
        raise ConfigError(f"preset of engine {engine} must be one of {', '.join(PRESETS[kind])}, not {preset!r}")
    if kind == "baseline":
        _baseline_spec(engine, preset, options)
        return
    known = PAPER_OPTIONS if kind == "straight-through" else FIT_OPTIONS
    for name in options:
        if name not in known:
            raise ConfigError(f"engine {engine} takes the options {', '.join(known)}, not {name!r}")
    if kind == "straight-through":
        _paper_arguments(options)


def fit(
    engine: str,
    preset: str,
    options: dict[str, Any],
    data: Dataset,
    *,
    seed: int,
    time_limit: float,
    progress: ProgressCallback,
) -> Posterior:
    """Run a method of the grid."""
    if engine in BASELINES:
        arguments = {"engine": _baseline_spec(engine, preset, options)}
    else:
        arguments = _paper_arguments(options) if engine == "straight-through" else {"engine": engine, **options}
    return vcuda.fit(data, seed=seed, time_limit=time_limit, progress=progress, **arguments)


def _baseline_spec(engine: str, preset: str, options: dict[str, Any]) -> Any:
    changes = {name: tuple(value) if isinstance(value, list) else value for name, value in options.items()}
    # Stored lines say "fixed" for what the package calls corrected.
    maker = "corrected" if preset == "fixed" else preset
    try:
        return getattr(BASELINES[engine].spec, maker)(**changes)
    except TypeError as error:
        raise ConfigError(f"engine {engine} does not take the options {', '.join(options)}: {error}") from None


def _paper_arguments(options: dict[str, Any]) -> dict[str, Any]:
    """The arguments of `vcuda.fit` for the authors' program, with the changes that some of their figures have."""
    name = options.get("model", "linear")
    if name not in MODELS:
        raise ConfigError(f"model of engine straight-through must be one of {', '.join(MODELS)}, not {name!r}")
    hidden = {"hidden": tuple(options["hidden"])} if "hidden" in options else {}
    order = {"order_scale": options["order_scale"]} if "order_scale" in options else {}
    engine = StraightThrough.paper(batch_size=options.get("batch_size", BATCH_SIZES[name]))
    if "order_temperature" in options:
        engine = replace(engine, dags=PriorityDags(order_temperature=options["order_temperature"]))
    return {
        "engine": engine,
        "preset": "paper",
        "model": MODELS[name](noise="unit", bias=False, **hidden),
        "prior": vcuda.DagPrior(options.get("prior", 0.1), **order),
    }
