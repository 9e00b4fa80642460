"""One JSON line a run: what was run, on which commit and versions, and what came out."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from vcuda.infer.fit import versions

RESULTS = Path(__file__).parent / "results"


@cache
def environment() -> dict[str, Any]:
    """The commit (marked when the tree has other changes) and the versions of everything that makes numbers."""
    told = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        capture_output=True,
        text=True,
        cwd=RESULTS.parent,
        check=False,
    )
    return {"commit": told.stdout.strip() or "unknown", "versions": versions()}


def write(name: str, lines: Iterable[dict[str, Any]]) -> Path:
    """Replace the stored lines of one benchmark."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.jsonl"
    path.write_text("".join(json.dumps(line | environment()) + "\n" for line in lines), encoding="utf-8")
    return path


def markdown(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table; numbers are given as the caller wrote them."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)
