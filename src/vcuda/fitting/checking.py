"""Model checks at the end of a fit, and of a stored run whose table is at hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vcuda.checks.findings import Checks
from vcuda.checks.run import check
from vcuda.data.dataset import Dataset
from vcuda.data.knowledge import Knowledge
from vcuda.data.streaming import StreamedTable
from vcuda.errors import DataError
from vcuda.fitting.design import rules_of_design
from vcuda.fitting.spec import FitCall
from vcuda.infer.blas import one_blas_thread
from vcuda.infer.edge_prior import EdgePrior, prior_of_rules

if TYPE_CHECKING:
    from vcuda.posterior.posterior import Posterior


def checks_of_fit(posterior: Posterior, table: Dataset | StreamedTable, edges: EdgePrior) -> Checks:
    """The checks of a posterior that was just made."""
    made = posterior.provenance
    streamed = isinstance(table, StreamedTable)
    rows = table.sample if isinstance(table, StreamedTable) else table
    with one_blas_thread():
        return check(posterior, rows, edges, seed=made.seed, fit_seconds=made.seconds, ordered=not streamed)


def checks_of_table(posterior: Posterior, data: Any) -> Checks:
    """The checks of a posterior, made anew from the table that was fitted."""
    made = posterior.provenance
    passed = {name: made.options[name] for name in ("kinds", "interventions", "columns", "exclude", "missing_values")}
    table = FitCall(**{name: value for name, value in passed.items() if value}).open(data)
    rows = table.sample if isinstance(table, StreamedTable) else table
    if rows.names != posterior.names:
        raise DataError(
            f"the posterior is about {len(posterior.names)} columns, the table has {len(rows.names)} others: give the "
            "table that was fitted"
        )
    known = made.get("knowledge")
    probability = made.edge_probability or 0.5
    rules = Knowledge.from_dict(known).for_columns(rows.names, edge_probability=probability) if known else None
    edges = prior_of_rules(rows.d, probability, rules_of_design(rows, rules))
    return checks_of_fit(posterior, table, edges)
