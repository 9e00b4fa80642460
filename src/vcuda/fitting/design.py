"""Interventions in a fit: which edges they rule out, and what a run records of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from vcuda.data.dataset import Dataset
from vcuda.data.knowledge import EdgeRules
from vcuda.data.streaming import StreamedTable
from vcuda.errors import KnowledgeError


def rules_of_design(table: Dataset | StreamedTable, rules: EdgeRules | None) -> EdgeRules | None:
    """What is known of the edges, with no causes for a column that was set in every row."""
    if table.design is None or not table.design.always.any():
        return rules
    always = table.design.always
    if rules is None:
        nothing = np.zeros((table.d, table.d), dtype=bool)
        return EdgeRules(~nothing & ~always & ~np.eye(table.d, dtype=bool), nothing, None)
    sources, targets = np.nonzero(rules.required & always)
    if sources.size:
        cause, effect = table.names[sources[0]], table.names[targets[0]]
        raise KnowledgeError(
            f"the edge {cause} -> {effect} is required, but {effect!r} was set in every row of the table, whatever its "
            "causes; leave the edge out, or mark only the rows in which it was set"
        )
    return rules._replace(allowed=rules.allowed & ~always)


def design_to_dict(table: Dataset | StreamedTable) -> dict[str, Any] | None:
    """What the run's config keeps of the interventions: the column that named them, and in how many rows each column
    was set, and set alone."""
    if table.design is None:
        return None
    counts = zip(table.names, table.design.held.tolist(), table.design.alone.tolist(), strict=True)
    return {
        "column": table.target_column,
        "rows": {name: {"set": every, "alone": single} for name, every, single in counts if every},
    }
