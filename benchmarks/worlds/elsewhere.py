"""Run by the interpreter that has the peers installed: one JSON line a job on standard input, one a result on output.

It imports nothing of this repository, so that the peers may need other versions than we do.
"""

from __future__ import annotations

import json
import sys
import time
from importlib import import_module
from importlib.metadata import version
from typing import Any

import numpy as np


def cdnod(values: Any, context: Any) -> dict[str, Any]:
    """CD-NOD of causal-learn with the environment as its context; an edge it leaves open counts half each way."""
    run = import_module("causallearn.search.ConstraintBased.CDNOD").cdnod
    begun = time.process_time()
    graph = run(np.array(values), np.array(context, dtype=float)[:, None], 0.05, "fisherz", show_progress=False)
    seconds = time.process_time() - begun
    # Its matrix has -1 at [i, j] and 1 at [j, i] for i -> j, and -1 in both for an edge that is open.
    marks = np.array(graph.G.graph)
    d = len(values[0])
    directed = (marks == -1) & (marks.T == 1)
    both = (marks == -1) & (marks.T == -1)
    return {
        "edges": (directed + 0.5 * both)[:d, :d].astype(float).tolist(),
        "seconds": seconds,
        "package": "causal-learn",
    }


PROGRAMS = {"cdnod": cdnod}


def main() -> None:
    answers, sys.stdout = sys.stdout, sys.stderr  # the peers may print
    for line in sys.stdin:
        job = json.loads(line)
        found = PROGRAMS[job.pop("program")](**job)
        found["version"] = version(found.pop("package"))
        print(json.dumps(found), file=answers, flush=True)


if __name__ == "__main__":
    main()
