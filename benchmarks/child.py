"""The measuring process: cases come on the standard input, one line each, and lines go back."""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any


def serve(module: str, folder: Path, cores: set[int]) -> None:
    """Let ``measure_line`` of a module measure the cases that come on the standard input, on these cores."""
    if cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)  # before JAX is imported, which counts them
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever else is printed does not mix with the answers
    measure_line = import_module(module).measure_line
    for number, line in enumerate(sys.stdin):
        try:
            found = measure_line(json.loads(line), folder)
        except Exception as error:
            found = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(found | {"first": number == 0}, default=_plain) + "\n")
        answers.flush()


def _plain(value: Any) -> Any:
    """Numbers and arrays of NumPy as JSON has them."""
    return value.tolist() if hasattr(value, "tolist") else str(value)


if __name__ == "__main__":
    serve(sys.argv[1], Path(sys.argv[2]), {int(core) for core in sys.argv[3:]})
