"""Stored lines: which belong together, and how far one is from the exact posterior of the same data and model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from benchmarks.records import Line

SETTING = (
    "kind",
    "source",
    "graph",
    "mechanism",
    "nodes",
    "edges",
    "rows",
    "columns",
    "engine",
    "model",
    "noise",
    "prior",
)


def difference_to_exact(line: Line, lines: Iterable[Line]) -> float | None:
    """The sum over all edges of |difference| to the exact posterior of the same model and data set, if it was run."""
    if line["engine"] == "exact" or "edge_probabilities" not in line:
        return None
    same = [key for key in (*SETTING, "index") if key != "engine"]
    for other in lines:
        if other["engine"] == "exact" and "edge_probabilities" in other and all(other[k] == line[k] for k in same):
            return float(np.abs(np.subtract(line["edge_probabilities"], other["edge_probabilities"])).sum())
    return None


def told_difference(line: Line, lines: Iterable[Line]) -> dict[str, Any]:
    """What a new line is extended by: the difference, if there is one."""
    difference = difference_to_exact(line, lines)
    return {} if difference is None else {"difference_to_exact": difference}
