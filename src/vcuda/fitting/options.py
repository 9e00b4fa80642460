"""The options of a fit, each checked by a function of its own: what was passed, as a plain value or refused at once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from vcuda.arguments import flag, plain, whole_number
from vcuda.baselines import BASELINES
from vcuda.dags.base import DagPrior
from vcuda.errors import ConfigError
from vcuda.fitting.routes import ENGINES
from vcuda.infer.progress import ProgressCallback, silent
from vcuda.infer.scored import SCORES
from vcuda.models import MODELS
from vcuda.models.base import Noise, check_noise
from vcuda.models.scores import BGe, EqualNoise

PRESETS = ("default", "paper")
ENGINE_NAMES = ("auto", *ENGINES, *BASELINES)
MODEL_NAMES = ("auto", *MODELS, *SCORES)
ENGINE_SPECS: tuple[type, ...] = (*ENGINES.values(), *(kind for kind, _ in BASELINES.values()))
MODEL_SPECS: tuple[type, ...] = (*MODELS.values(), EqualNoise, BGe, *SCORES.values())


def model_of(value: Any) -> Any:
    """The name of a model, or a spec of one."""
    return _named_or_spec("model", value, MODEL_NAMES, MODEL_SPECS, example="MLP(hidden=(64,))")


def engine_of(value: Any) -> Any:
    """The name of an engine or another method, or a spec of one."""
    return _named_or_spec("engine", value, ENGINE_NAMES, ENGINE_SPECS, example="Orders(replicas=8)")


def noise_of(value: Any, *, model: Any) -> Noise | None:
    """Which noise variances; only for a model given by name."""
    if value is None:
        return None
    if not isinstance(model, str):
        raise ConfigError("noise goes with a model given by name; set it inside the spec instead")
    check_noise(value)
    return value


def logarithm_of(value: Any) -> tuple[str, ...] | None:
    """Names of columns; one name may stand alone."""
    if value is None:
        return None
    names = (value,) if isinstance(value, str) or not isinstance(value, Iterable) else tuple(value)
    for name in names:
        if not isinstance(name, str):
            raise ConfigError(f"logarithm must be a list of column names, not {value!r}")
    return tuple(map(str, names))


def prior_of(value: Any) -> DagPrior | None:
    """The prior of an edge, from its probability or as it is."""
    given = plain(value)
    if given is None or isinstance(given, DagPrior):
        return given
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise ConfigError(f"prior must be a number between 0 and 1, or a DagPrior, not {value!r}")
    return DagPrior(edge_probability=given)


def preset_of(value: Any) -> Any:
    """``default`` or ``paper``."""
    if not isinstance(value, str) or value not in PRESETS:
        raise ConfigError(f"preset must be {' or '.join(PRESETS)}, not {value!r}")
    return value


def standardise_of(value: Any) -> bool:
    return flag("standardise", value)


def imputations_of(value: Any) -> int:
    return whole_number("imputations", value, least=1)


def streamed_of(value: Any) -> bool | None:
    return None if value is None else flag("streamed", value)


def resume_of(value: Any) -> bool:
    return flag("resume", value)


def progress_of(value: Any) -> ProgressCallback:
    """A function that is called with each `Progress`; None for silence."""
    if value is None:
        return silent
    if not callable(value):
        raise ConfigError(f"progress must be a function that takes a vcuda.Progress, or None, not {value!r}")
    return value


def _named_or_spec(name: str, value: Any, names: tuple[str, ...], specs: tuple[type, ...], *, example: str) -> Any:
    if isinstance(value, str):
        if value not in names:
            raise ConfigError(f"{name} must be one of {', '.join(names)}, not {value!r}")
        return value
    if isinstance(value, type) and issubclass(value, specs):
        raise ConfigError(f"{name} is the class {value.__name__}; make a spec of it: {value.__name__}()")
    if not isinstance(value, specs):
        raise ConfigError(f"{name} must be one of {', '.join(names)}, or a spec such as {example}, not {value!r}")
    return value
