"""Hostile files of knowledge: TOML and CSV that say almost what they should."""

from __future__ import annotations

import json
import random
from typing import Any

from fuzzing.bending import CELLS, ENCODINGS, NAMES, SCALARS, bent, quoted
from fuzzing.files import Files

KNOWN = ("a", "b", "c", "d", "naïve", "x y")
KEYS = ("required", "forbidden", "tiers", "within_tiers", "roots", "sinks", "probabilities", "proba", "", "a.b")


def _toml_value(rng: random.Random, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=rng.random() < 0.5)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml_value(rng, item) for item in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {_toml_value(rng, item)}" for key, item in value.items()) + "}"
    return (
        rng.choice(("1", "nan", "inf", "1e400", "0x1F", "2024-01-31", "12:30:00", "9" * 5000))
        if value is None
        else repr(value)
    )


def knowledge(case: Files) -> None:
    rng = case.rng

    def name() -> str:
        return rng.choice(NAMES) if rng.random() < 0.08 else rng.choice(KNOWN)

    def edge() -> Any:
        way = rng.random()
        if way < 0.5:
            return [name(), name()]
        return f"{name()} -> {name()}" if way < 0.95 else rng.choice(SCALARS)

    def of(key: str) -> Any:
        if rng.random() < 0.08:
            return rng.choice(SCALARS)
        some = range(rng.randrange(4))
        if key in ("required", "forbidden"):
            return [edge() for _ in some]
        if key == "tiers":
            return [[name() for _ in range(rng.randrange(3))] for _ in some]
        if key == "within_tiers":
            return rng.random() < 0.5
        if key == "probabilities":
            return {f"{name()} -> {name()}": rng.choice((0.3, 0.9, 0, 1, -1, None, "x")) for _ in some}
        return [name() for _ in some]

    if rng.random() < 0.6:
        case.entry = "known.toml"
        if rng.random() < 0.04:
            depth = rng.choice((50, 500, 5_000, 100_000))
            text = rng.choice(("required = " + "[" * depth, "a" + ".a" * depth + " = 1", "x = " + "{a=" * depth))
        else:
            keys = [key for key in KEYS if rng.random() < (0.4 if key in KEYS[:7] else 0.02)]
            text = "\n".join(
                f"{json.dumps(key) if key not in KEYS[:7] else key} = {_toml_value(rng, of(key))}" for key in keys
            )
    else:
        case.entry = rng.choice(("known.csv", "known.tsv"))
        mark = "\t" if case.entry.endswith("tsv") else rng.choice(",,,;")
        header = ["source", "target", "kind", "probability"][: rng.choice((4, 4, 4, 3, 2))]
        lines = [header] if rng.random() < 0.95 else []
        for _ in range(rng.randrange(6)):
            kind = rng.choice(("required", "forbidden", "probability", "probability", rng.choice(NAMES)))
            given = rng.choice(("0.3", "0.7", "nan", "2", "1e-400", *CELLS[:12])) if kind == "probability" else ""
            lines.append([name(), name(), kind, given][: len(header)])
        text = "\n".join(mark.join(quoted(cell, mark) for cell in line) for line in lines)
    content = text.encode(rng.choice(ENCODINGS) if rng.random() < 0.1 else "utf-8", errors="replace")
    case.files[case.entry] = bent(rng, content) if rng.random() < 0.25 else content
