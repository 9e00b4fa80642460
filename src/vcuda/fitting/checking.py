"""Model checks at the end of a fit, and of a stored run whose table is at hand."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from vcuda.checks.findings import Checks
from vcuda.checks.run import INFLUENCE, check
from vcuda.checks.subject import Subject, no_residuals, subject_of
from vcuda.data.dataset import Dataset
from vcuda.data.knowledge import Knowledge
from vcuda.data.messages import listed
from vcuda.data.series.knowledge import rules_of_lags
from vcuda.data.streaming import StreamedTable
from vcuda.errors import ConfigError, DataError
from vcuda.fitting.design import rules_of_design
from vcuda.fitting.kinds import resolve_kinds
from vcuda.fitting.series import open_series
from vcuda.fitting.spec import FitCall
from vcuda.fitting.targets import CHANGED, KEY, reference_table
from vcuda.infer.blas import one_blas_thread
from vcuda.infer.edge_prior import EdgePrior, prior_of_rules

if TYPE_CHECKING:
    from vcuda.posterior.posterior import Posterior


def checks_of_fit(posterior: Posterior, table: Dataset | StreamedTable, edges: EdgePrior) -> Checks:
    """The checks of a posterior that was just made."""
    made = posterior.provenance
    # The sample of a streamed table is drawn at random.
    ordered = isinstance(table, Dataset)
    with one_blas_thread():
        rows = _rows(posterior, table)
        found = check(posterior, rows, edges, seed=made.seed, fit_seconds=made.seconds, ordered=ordered)
    return _with_other_environments(found, posterior)


def _with_other_environments(found: Checks, posterior: Posterior) -> Checks:
    """The findings without those that few rows of the reference carry an edge, where another environment shows it."""
    targets = posterior.diagnostics.get(KEY)
    if targets is None:
        return found
    changed = np.flatnonzero(np.max(targets, axis=0) >= CHANGED)
    names = {posterior.names[k] for k in changed}
    kept = [one for one in found.findings if one.check != INFLUENCE or any(end not in names for _, end in one.edges)]
    return replace(found, findings=tuple(kept))


def checks_of_table(posterior: Posterior, data: Any) -> Checks:
    """The checks of a posterior, made anew from the table that was fitted."""
    table = _opened(posterior, data)
    return checks_of_fit(posterior, table, _prior(posterior, table))


def residuals_of_table(posterior: Posterior, data: Any) -> Subject:
    """The rows that the checks look at, with their residuals, from the table that was fitted."""
    why = no_residuals(posterior)
    if why:
        raise ConfigError(f"{why}; fit model linear, additive, gp or mixed for those")
    table = _opened(posterior, data)
    edges, seed = _prior(posterior, table), posterior.provenance.seed
    with one_blas_thread():
        return subject_of(posterior, _rows(posterior, table), edges, ordered=True, seed=seed, deadline=float("inf"))


def _rows(posterior: Posterior, table: Dataset | StreamedTable) -> Dataset:
    """Rows in memory; a cell whose mechanism its environment changed is not checked."""
    rows = table.sample if isinstance(table, StreamedTable) else table
    targets = posterior.diagnostics.get(KEY)
    return reference_table(rows, None if targets is None else np.array(targets))


def _opened(posterior: Posterior, data: Any) -> Dataset | StreamedTable:
    """The table as the fit opened it; refused where its columns are others."""
    options = posterior.provenance.options
    passed = ("kinds", "interventions", "contexts", "reference", "columns", "exclude", "missing_values", "header")
    # Labels that are numbers become codes only where all columns are labels.
    labels = posterior.kinds is None and posterior.categories is not None
    given = {name: options[name] for name in passed if options[name] is not None}
    call = FitCall(**given, **_of_series(posterior), model="categorical" if labels else "auto")
    table = call.open(data)
    if posterior.lagged is not None:
        table = open_series(table, call).table
    if labels:
        table, _, _ = resolve_kinds(table, call)
    if table.names != posterior.names:
        raise DataError(
            f"the posterior is about the columns {listed(posterior.names)}, the table has {listed(table.names)}: give "
            "the table that was fitted"
        )
    return table


def _of_series(posterior: Posterior) -> dict[str, Any]:
    """The options that make the windows of a time series again, with what the fit found to be in it."""
    made, lagged = posterior.provenance, posterior.lagged
    if lagged is None:
        return {}
    options, found = made.options, made["series"]
    return {
        "lags": lagged.lags,
        "time": options["time"],
        "unit": options["unit"],
        "resample": options["resample"],
        "season": found["season"] or 0,
        "trend": "linear" if found["trend"] else "none",
        "log": found["logarithms"],
    }


def _prior(posterior: Posterior, table: Dataset | StreamedTable) -> EdgePrior:
    """The prior of the fit, or one that is open about every edge for methods with a prior of their own."""
    made = posterior.provenance
    known, probability = made.get("knowledge"), made.edge_probability or 0.5
    if posterior.lagged is not None:
        by_lag = rules_of_lags(
            Knowledge.from_dict(known) if known else None,
            posterior.lagged.names,
            posterior.lagged.lags,
            log_odds=np.full((table.d, table.d), np.log(probability / (1 - probability))),
            contemporaneous=made.options["contemporaneous"],
        )
        return prior_of_rules(table.d, probability, by_lag)
    rules = Knowledge.from_dict(known).for_columns(table.names, edge_probability=probability) if known else None
    return prior_of_rules(table.d, probability, rules_of_design(table, rules))
