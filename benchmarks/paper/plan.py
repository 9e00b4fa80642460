"""The grid of the paper's experiments: a TOML file that says plainly what is run, checked as a whole before it is."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.paper.methods import check, engine_names
from benchmarks.paper.runs import Draw, Fit, Run
from benchmarks.sampling import DISTRIBUTIONS
from vcuda.errors import ConfigError

GRID = Path(__file__).with_name("grid.toml")
SACHS_NODES, SACHS_ROWS, ROWS = 11, 853, 1_000
CHOICES: dict[str, tuple[str, ...]] = {
    "graph": ("er", "sf"),
    "mechanism": ("linear", "gp"),
    "columns": ("raw", "standardised"),
    "source": ("paper", "sachs"),
}
# What the cases of a method may depend on.
CONDITIONS = ("source", "graph", "mechanism", "columns", "nodes", "edges_per_node")
METHOD_KEYS = ("title", "engine", "preset", "options", "where")
SIMULATED_KEYS = ("experiment", "graph", "mechanism", "nodes", "edges_per_node", "columns", "sets", "methods")
SACHS_KEYS = ("experiment", "source", "columns", "sets", "methods")
DRAW_KEYS = ("experiment", "nodes", "distributions")


@dataclass(frozen=True)
class Method:
    """A name of the grid: what it is called in tables, and what is run for it."""

    name: str
    title: str
    engine: str
    preset: str
    options: dict[str, Any]
    where: tuple[dict[str, Any], ...]

    def resolved(self, case: Fit) -> Fit:
        """The run with this method's engine, preset and options for its data set; later conditions win."""
        known = {key: getattr(case, key) for key in CONDITIONS if key != "edges_per_node"}
        known["edges_per_node"] = None if case.edges is None else case.edges / case.nodes
        options = self.options
        for condition in self.where:
            if all(known[key] in _listed(condition[key]) for key in CONDITIONS if key in condition):
                options = options | condition["options"]
        return replace(case, method=self.name, engine=self.engine, preset=self.preset, options=options)


@dataclass(frozen=True)
class Plan:
    """All methods, the groups of runs that share a process, and the minutes that one run may take."""

    methods: dict[str, Method]
    groups: list[list[Run]]
    limit_minutes: float
    end_minutes: float | None

    def titles(self) -> dict[str, str]:
        """What every method is called in tables and figures, in their order."""
        return {name: method.title for name, method in self.methods.items()}


def load(path: Path = GRID, *, quick: bool = False) -> Plan:
    """Read and check the grid, or the small one in its part ``quick``.

    Every mistake is a ConfigError with a sentence that says where it is and what was expected.
    """
    try:
        grid = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path.name} is no TOML file: {error}") from None
    _known_keys(path.name, grid, ("limit_minutes", "methods", "runs", "sampling", "quick"))
    methods = {name: _method(name, seen) for name, seen in grid.get("methods", {}).items()}
    part = grid
    if quick:
        part = grid.get("quick", {})
        _known_keys("[quick]", part, ("limit_minutes", "end_minutes", "runs", "sampling"))
    limit = part.get("limit_minutes", 60)
    for name, minutes in (("limit_minutes", limit), ("end_minutes", part.get("end_minutes", 1))):
        if not isinstance(minutes, int | float) or not minutes > 0:
            raise ConfigError(f"{name} of {path.name} must be a positive number, not {minutes!r}")
    fits = [_fits(f"runs {number}", seen, methods) for number, seen in enumerate(part.get("runs", []), start=1)]
    draws = [_draws(f"sampling {number}", seen) for number, seen in enumerate(part.get("sampling", []), start=1)]
    groups = _groups(case for several in fits for case in several)
    groups += [[draw] for several in draws for draw in several]
    for group in groups:
        if isinstance(group[0], Fit):
            _check_run(group[0])
    return Plan(methods, groups, float(limit), part.get("end_minutes"))


def _method(name: str, seen: dict[str, Any]) -> Method:
    place = f"method {name!r}"
    _known_keys(place, seen, METHOD_KEYS)
    for key in ("title", "engine"):
        if not isinstance(seen.get(key), str):
            raise ConfigError(f"{place} needs a {key}, in quotation marks")
    _one_of(place, "engine", seen["engine"], engine_names())
    for condition in seen.get("where", []):
        _known_keys(f"a condition of {place}", condition, (*CONDITIONS, "options"))
        if "options" not in condition:
            raise ConfigError(f"a condition of {place} needs options")
        for key in CHOICES:
            for value in _listed(condition.get(key, [])):
                _one_of(f"a condition of {place}", key, value, CHOICES[key])
    return Method(
        name,
        seen["title"],
        seen["engine"],
        seen.get("preset", "default"),
        seen.get("options", {}),
        tuple(seen.get("where", [])),
    )


def _fits(place: str, seen: dict[str, Any], methods: dict[str, Method]) -> Iterator[Fit]:
    """The runs of one block, the sets of a setting one after the other."""
    sachs = seen.get("source") == "sachs"
    keys = SACHS_KEYS if sachs else SIMULATED_KEYS
    _known_keys(place, seen, keys)
    for key in keys:
        if key not in seen:
            raise ConfigError(f"{place} of the grid needs {key}")
    for key in ("graph", "mechanism", "columns"):
        for value in seen.get(key, []):
            _one_of(place, key, value, CHOICES[key])
    for key in ("sets", "nodes", "edges_per_node"):
        for value in _listed(seen.get(key, [])):
            if not isinstance(value, int) or value < 1:
                raise ConfigError(f"{key} in {place} must be whole numbers of at least 1, not {value!r}")
    for name in seen["methods"]:
        _one_of(place, "methods", name, tuple(methods))
    data: Iterable[Fit]
    if sachs:
        data = [_data("sachs", None, None, SACHS_NODES, None, SACHS_ROWS, columns) for columns in seen["columns"]]
    else:
        settings = product(seen["nodes"], seen["edges_per_node"], seen["mechanism"], seen["graph"], seen["columns"])
        data = [
            _data("paper", graph, mechanism, nodes, nodes * density, ROWS, columns)
            for nodes, density, mechanism, graph, columns in settings
        ]
    for case, name in product(data, seen["methods"]):
        for index in range(seen["sets"]):
            yield methods[name].resolved(replace(case, index=index))


def _data(source: Any, graph: Any, mechanism: Any, nodes: int, edges: int | None, rows: int, columns: Any) -> Fit:
    return Fit(source, graph, mechanism, nodes, edges, rows, columns, method="", engine="", preset="")


def _draws(place: str, seen: dict[str, Any]) -> Iterator[Draw]:
    _known_keys(place, seen, DRAW_KEYS)
    for key in ("nodes", "distributions"):
        if not isinstance(seen.get(key), list):
            raise ConfigError(f"{place} of the grid needs a list of {key}")
    for name in seen["distributions"]:
        _one_of(place, "distributions", name, DISTRIBUTIONS)
    for nodes, name in product(seen["nodes"], seen["distributions"]):
        yield Draw(nodes, name)


def _groups(cases: Iterable[Fit]) -> list[list[Run]]:
    """Sets of the same setting and method together; a run that several experiments have in common comes once."""
    groups: dict[str, dict[int, Fit]] = {}
    for case in cases:
        setting = json.dumps(case.what() | {"index": None}, sort_keys=True)
        groups.setdefault(setting, {})[case.index] = case
    return [list(by_index.values()) for by_index in groups.values()]


def _check_run(case: Fit) -> None:
    try:
        check(case.engine, case.preset, case.options)
    except ConfigError as error:
        raise ConfigError(f"method {case.method!r} cannot be run on {case.words()}: {error}") from None


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _known_keys(place: str, seen: dict[str, Any], known: tuple[str, ...]) -> None:
    for key in seen:
        if key not in known:
            raise ConfigError(f"{place} has a key {key!r}{_meant(key, known)}")


def _one_of(place: str, key: str, value: Any, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ConfigError(f"{key} in {place} names {value!r}{_meant(str(value), known)}")


def _meant(word: str, known: tuple[str, ...]) -> str:
    near = get_close_matches(word, known, n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(known)}"
