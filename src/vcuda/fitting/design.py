"""What experiments in the table mean for a fit: which edges they rule out, and what a run keeps of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from vcuda.data.dataset import Dataset
from vcuda.data.knowledge import EdgeRules
from vcuda.errors import KnowledgeError


def rules_of_design(table: Dataset, rules: EdgeRules | None) -> EdgeRules | None:
    """What is known of the edges, with no causes for a column that was set in every row."""
    if table.interventions is None or not table.interventions.all(axis=0).any():
        return rules
    always = table.interventions.all(axis=0)
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


def told_design(table: Dataset) -> dict[str, Any] | None:
    """What the run's config keeps of the interventions: the column that named them, and in how many rows each column
    was set, and set alone."""
    if table.interventions is None:
        return None
    alone = table.interventions & (table.interventions.sum(axis=1) == 1)[:, None]
    counts = zip(table.names, table.interventions.sum(axis=0).tolist(), alone.sum(axis=0).tolist(), strict=True)
    return {
        "column": table.target_column,
        "rows": {name: {"set": every, "alone": single} for name, every, single in counts if every},
    }
