"""How to make a posterior again: the lines of Python and of the shell, from what it says about itself."""

from __future__ import annotations

import shlex
from importlib import import_module
from pathlib import Path
from typing import Any

from vcuda.data.columns import line_of
from vcuda.data.library import BUNDLED
from vcuda.errors import VcudaError
from vcuda.infer.engines import ENGINES
from vcuda.posterior.posterior import Posterior
from vcuda.specs import to_json

TABLE_ENDINGS = (".csv", ".tsv", ".txt", ".parquet", ".feather", ".arrow", ".csv.gz", ".tsv.gz")
NAMED_MODELS = ("linear", "mlp", "gp", "additive", "discrete")


def python_lines(posterior: Posterior) -> list[str]:
    """A program that fits the same posterior again; what cannot be written in a line is told in a comment."""
    made = posterior.provenance
    source = made["data"]["source"]
    comments, arguments = [], []
    if not is_readable(source):
        comments.append(f"# table: the data with the fingerprint {made['data']['fingerprint'][:16]}")
    model = made["model"]
    if model["name"] in NAMED_MODELS:
        arguments.append(f"model={model['name']!r}")
        if model.get("noise"):
            arguments.append(f"noise={model['noise']!r}")
    elif model["name"] != "its own":
        comments.append(f"# model: the spec {model['name']} with {_settings(model)}")
    if made.get("logarithm"):
        arguments.append(f"logarithm={made['logarithm']!r}")
    arguments.append(f"engine={_engine(made, comments)}")
    if made.get("prior"):
        arguments.append(f"prior={made['prior']['edge_probability']!r}")
    if made.get("knowledge"):
        arguments.append(f"knowledge=vcuda.Knowledge.from_dict({_said(made['knowledge'])!r})")
    if made.get("interventions"):
        column = made["interventions"]["column"]
        if column is None:
            comments.append("# mask: the cells that experiments set, with the shape of the table")
        arguments.append(f"interventions={'mask' if column is None else repr(column)}")
    arguments += [f"{option}={names!r}" for option, names in _choice(made).items()]
    if made.get("imputations"):
        arguments.append(f"imputations={made['imputations']}")
    if made["preset"] != "default":
        arguments.append(f"preset={made['preset']!r}")
    if made["standardise"]:
        arguments.append("standardise=True")
    if made.get("time_limit") is not None:
        arguments.append(f"time_limit={made['time_limit']!r}")
    arguments.append(f"seed={made['seed']!r}")
    table = repr(source) if is_readable(source) else "table"
    return [
        "import vcuda",
        *comments,
        "posterior = vcuda.fit(",
        f"    {table},",
        *(f"    {argument}," for argument in arguments),
        ")",
    ]


def shell_line(posterior: Posterior) -> str | None:
    """The command that does the same, where its options can say all of it."""
    made = posterior.provenance
    model, source = made["model"], made["data"]["source"]
    plain = model["name"] in (*NAMED_MODELS, "its own") and not made.get("knowledge") and is_readable(source)
    design = made.get("interventions")
    plain &= design is None or design["column"] is not None
    comments: list[str] = []
    engine = _engine(made, comments)
    if not plain or comments or engine != repr(made["engine"]["name"]):
        return None
    words = ["vcuda", "fit", source]
    if model["name"] in NAMED_MODELS:
        words += ["--model", model["name"]]
        words += ["--noise", model["noise"]] if model.get("noise") else []
    for name in made.get("logarithm", ()):
        words += ["--log", name]
    words += ["--engine", made["engine"]["name"]]
    words += ["--edge-prior", repr(made["prior"]["edge_probability"])] if made.get("prior") else []
    words += ["--interventions", design["column"]] if design else []
    for option, names in _choice(made).items():
        words += [f"--{option}", line_of(names)]
    words += ["--imputations", str(made["imputations"])] if made.get("imputations") else []
    words += ["--preset", made["preset"]] if made["preset"] != "default" else []
    words += ["--standardise"] if made["standardise"] else []
    words += ["--time-limit", repr(made["time_limit"])] if made.get("time_limit") is not None else []
    return shlex.join([*words, "--seed", str(made["seed"])])


def _choice(made: dict[str, Any]) -> dict[str, list[str]]:
    """Which columns were taken of the table, or left out, by the option that says so."""
    options = {"columns": "chosen", "without": "without"}
    return {option: made["data"][key] for option, key in options.items() if made["data"].get(key)}


def is_readable(source: str) -> bool:
    """Whether ``fit`` can be given this text: a file, or a bundled table, and not the name of a table in memory."""
    return source in BUNDLED or "".join(Path(source).suffixes[-2:]).lower().endswith(TABLE_ENDINGS)


def _engine(made: dict[str, Any], comments: list[str]) -> str:
    """The engine as an argument: its name where that is enough, else its class with what was changed."""
    engine = dict(made["engine"])
    name = engine.pop("name")
    kind = _engine_class(name)
    if kind is None or made["preset"] != "default":
        return repr(name)
    by_gradient = name == "straight-through"
    usual = kind.for_rows(made["data"]["rows"]) if by_gradient else kind()
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


def _said(knowledge: dict[str, Any]) -> dict[str, Any]:
    """Only what was said: empty lists are what is there anyway."""
    return {key: value for key, value in knowledge.items() if value not in ([], (), None)}


def _settings(described: dict[str, Any]) -> str:
    return ", ".join(f"{key}={value!r}" for key, value in described.items() if key not in ("name", "score"))
