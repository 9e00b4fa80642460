"""Specs, the frozen dataclasses that say what to do, to and from JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from vcuda.errors import ConfigError


def to_json(spec: Any) -> Any:
    """A spec as a JSON-able dict of its fields, with its ``name`` first; nested specs likewise."""
    if is_dataclass(spec) and not isinstance(spec, type):
        named = {"name": spec.name} if hasattr(spec, "name") else {}
        return named | {field.name: to_json(getattr(spec, field.name)) for field in fields(spec)}
    if isinstance(spec, tuple | list):
        return [to_json(item) for item in spec]
    return spec


def from_json(described: Mapping[str, Any], known: Mapping[str, type]) -> Any:
    """The spec that :func:`to_json` described; ``known`` says which names may become which class."""
    arguments = dict(described)
    name = arguments.pop("name", None)
    if name not in known:
        raise ConfigError(f"expected one of {', '.join(known)}, found {name!r}")
    kind = known[name]
    unknown = set(arguments) - {field.name for field in fields(kind)}
    if unknown:
        raise ConfigError(f"{name} has no option {', '.join(sorted(unknown))}")
    return kind(**{key: tuple(value) if isinstance(value, list) else value for key, value in arguments.items()})
