"""The measuring process: cases come on the standard input, one line each, and lines go back."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from benchmarks.accuracy.cases import Case
from benchmarks.accuracy.measuring import measure


def serve(folder: Path) -> None:
    """Measure the cases that come on the standard input, one line each."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever else is printed does not mix with the answers
    for number, line in enumerate(sys.stdin):
        try:
            found = measure(Case(**json.loads(line)), folder=folder)
        except Exception as error:
            found = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(found | {"first": number == 0}, default=_plain) + "\n")
        answers.flush()


def _plain(value: Any) -> Any:
    """Numbers and arrays of NumPy as JSON has them."""
    return value.tolist() if hasattr(value, "tolist") else str(value)


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
