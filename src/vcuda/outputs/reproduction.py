"""How to make a posterior again: the lines of Python and of the shell, from what it says about itself."""

from __future__ import annotations

import shlex
from importlib import import_module
from typing import Any

from vcuda.data.paths import BUNDLED, is_source
from vcuda.errors import VcudaError
from vcuda.fitting.spec import OPTIONS, Option
from vcuda.infer.engines import ENGINES
from vcuda.posterior.posterior import Posterior
from vcuda.posterior.provenance import Provenance
from vcuda.specs import to_json


def python_lines(posterior: Posterior) -> list[str]:
    """A program that fits the same posterior again; a comment says what cannot be written in a line."""
    made, comments, arguments = posterior.provenance, list[str](), list[str]()
    source = made.source
    if not is_readable(source):
        comments.append(f"# table: the data with the fingerprint {made['data']['fingerprint'][:16]}")
    for option, value in _repeated(made):
        if option.name == "engine":
            text = _engine(made, comments)
        elif option.name == "knowledge":
            text = f"vcuda.Knowledge.from_dict({_stated(value)!r})"
        else:
            text = repr(value)
        arguments.append(f"{option.name}={text}")
    if not _has_named_model(made) and made.model_name != "its own":
        comments.append(f"# model: the spec {made.model_name} with {_settings(made['model'])}")
    if _has_mask(made):
        comments.append("# mask: the cells that experiments set, with the shape of the table")
        arguments.append("interventions=mask")
    return [
        "import vcuda",
        *comments,
        "posterior = vcuda.fit(",
        f"    {repr(source) if is_readable(source) else 'table'},",
        *(f"    {argument}," for argument in arguments),
        ")",
    ]


def shell_line(posterior: Posterior) -> str | None:
    """The command that does the same, where its options can say all of it."""
    made, comments = posterior.provenance, list[str]()
    plain = is_readable(made.source) and (_has_named_model(made) or made.model_name == "its own")
    if not plain or made.get("knowledge") or _has_mask(made):
        return None
    if _engine(made, comments) != repr(made.engine_name) or comments:
        return None
    words = ["vcuda", "fit", made.source]
    for option, value in _repeated(made):
        words += option.flag_words(value)
    return shlex.join(words)


def _repeated(made: Provenance) -> list[tuple[Option, Any]]:
    """The options that a fit must be given again, with their values."""
    by_name = _has_named_model(made)
    found = [
        (option, option.stored_in(made)) for option in OPTIONS.values() if by_name or option.stored_at[0] != "model"
    ]
    return [(option, value) for option, value in found if option.is_worth_repeating(value)]


def _has_named_model(made: Provenance) -> bool:
    return made.model_name in OPTIONS["model"].choices


def _has_mask(made: Provenance) -> bool:
    """Whether interventions were given as a mask, which no line can hold."""
    return bool(made.get("interventions")) and made["interventions"]["column"] is None


def is_readable(source: str) -> bool:
    """Whether ``fit`` can be given this text: a file, or a bundled table, and not the name of a table in memory."""
    return source in BUNDLED or is_source(source)


def _engine(made: Provenance, comments: list[str]) -> str:
    """The engine as an argument: its name where that is enough, else its class with what was changed."""
    engine = dict(made["engine"])
    name = engine.pop("name")
    kind = _engine_class(name)
    if kind is None or made["preset"] != "default":
        return repr(name)
    by_gradient = name == "straight-through"
    usual = kind.for_rows(made.rows) if by_gradient else kind()
    if made["standardise"] and by_gradient:
        engine.pop("scaling", None)
    usual_settings = to_json(usual)
    changed = {key: value for key, value in engine.items() if usual_settings.get(key) != value}
    if not changed:
        return repr(name)
    arguments = {key: tuple(value) if isinstance(value, list) else value for key, value in changed.items()}
    try:
        # What has other specs inside, or came from a later version, does not fit into one line.
        again = to_json(kind(**arguments))
    except (VcudaError, TypeError, ValueError, AttributeError):
        again = {}
    if any(again.get(key) != value for key, value in engine.items()):
        comments.append(f"# engine: {kind.__name__} with {_settings(changed)}")
        return repr(name)
    return f"vcuda.{kind.__name__}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"


def _engine_class(name: str) -> Any:
    """The options of an engine, if they are a public name."""
    method = ENGINES.get(name)
    return method.spec if method is not None and method.spec_name in import_module("vcuda").__all__ else None


def _stated(knowledge: dict[str, Any]) -> dict[str, Any]:
    """Only what was said: empty lists are what is there anyway."""
    return {key: value for key, value in knowledge.items() if value not in ([], (), None)}


def _settings(described: dict[str, Any]) -> str:
    return ", ".join(f"{key}={value!r}" for key, value in described.items() if key not in ("name", "score"))
