"""Fits of rows that come from several environments: which model they have, and what the run says of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from vcuda.data.contexts import Contexts, listed_plain
from vcuda.data.dataset import Dataset
from vcuda.data.moments import varies
from vcuda.data.streaming import StreamedTable
from vcuda.errors import ConfigError
from vcuda.fitting.mixed import fit_mixed
from vcuda.fitting.numbers import NO_TIME_TO_COMPARE, after_comparing, choose_for_numbers
from vcuda.fitting.parts import carefully
from vcuda.fitting.routes import Request, choose_among, fit_scored
from vcuda.fitting.spec import FitSpec
from vcuda.infer.exact import TimeLimitError
from vcuda.models.contexts import pieces_of_rows, sums_all
from vcuda.models.mixed.spec import Mixed
from vcuda.posterior.posterior import Outcome

Info = dict[str, Any]

# Parts of the rows whose answers are averaged where kinds differ: each is scored once for every piece of its rows, and
# so many pieces are scored in all; no fewer parts than two, whatever their pieces.
PIECES, FEWEST_PARTS = 12, 2


def check_contexts(spec: FitSpec, contexts: Contexts | None, *, by_scores: bool) -> None:
    """Refuse options that do not go with environments, or that mean nothing without them."""
    if contexts is None:
        if spec.changes != "mechanisms":
            raise ConfigError("changes says what environments change: give contexts, the column that names them")
        return
    if not by_scores:
        raise ConfigError(
            "contexts are summed over by engine exact and engine orders, with a model such as linear or mixed: use one "
            "of these, or leave contexts out"
        )


def fit_contexts(request: Request, model: Any, noise: Any, engine: Any) -> tuple[Outcome, Info]:
    """Fit a table with environments: each may have changed the mechanism of any column."""
    contexts = request.table.contexts
    assert contexts is not None
    if model == "mixed" or isinstance(model, Mixed):
        outcome, info = _fit_kinds(request, model, noise, engine)
    elif isinstance(model, str) and model == "auto":
        outcome, info = _fit_numbers(request, noise, engine)
    else:
        outcome, info = carefully(request, lambda one: fit_scored(one, model, noise, engine))
    by_moments = info["model"].get("score") == "BGe"
    info["choice"]["sentences"] += _in_words(contexts, request.spec.changes, by_moments=by_moments)
    return outcome, info


def _fit_numbers(request: Request, noise: Any, engine: Any) -> tuple[Outcome, Info]:
    """Linear functions with normal noise, or noise of any shape where the largest environment shows it.

    All environments together would look like noise of another shape wherever a mechanism changed.
    """
    table, said = request.table, ""
    if isinstance(table, StreamedTable):
        said = "The table is fitted from its moments in each environment: functions are linear, noise is normal."
    elif noise is None and not request.standardise and request.spec.changes == "mechanisms":
        alone = request._replace(table=_largest(table))
        try:
            choice = choose_for_numbers(alone, "unequal", engine)
            said = choice.said.replace("The data favour", "The rows of the largest environment favour")
            if choice.prepared is not None:
                outcome, info = _fit_kinds(after_comparing(request), "mixed", noise, engine)
                info["choice"]["sentences"].insert(0, said)
                return outcome, info
        except TimeLimitError:
            said = NO_TIME_TO_COMPARE

    def linear(one: Request) -> tuple[Outcome, Info]:
        if one.logarithm is None and isinstance(one.table, Dataset):
            marked = choose_among(one._replace(table=_largest(one.table)), ["linear"], "unequal", engine)
            positive = np.fmin.reduce(one.table.values, axis=0) > 0
            one = one._replace(logarithm=marked.scored.units.logarithm & positive)
        return fit_scored(one, "linear", noise or "unequal", engine)

    outcome, info = carefully(request, linear)
    info["choice"]["sentences"][:0] = [said] if said else []
    return outcome, info


def _fit_kinds(request: Request, model: Any, noise: Any, engine: Any) -> tuple[Outcome, Info]:
    if request.spec.changes != "mechanisms":
        raise ConfigError("changes='shifts' (--changes shifts) is for linear models: use model linear, or leave it out")
    parts = request.parts
    if request.spec.subsamples is None and request.table.contexts is not None:
        pieces = pieces_of_rows(len(request.table.contexts.names))
        parts = min(parts, max(FEWEST_PARTS, PIECES // pieces))
    return fit_mixed(request._replace(parts=parts), model, noise, engine)


def _largest(table: Dataset) -> Dataset:
    """The rows of the largest environment in which all columns vary; all rows if there is none."""
    assert table.environment is not None
    counts = np.bincount(table.environment)
    for own in np.argsort(-counts, kind="stable"):
        rows = table.values[table.environment == own]
        if varies(rows.min(axis=0), rows.max(axis=0)).all():
            return table.select(table.environment == own).without_contexts()
    return table.without_contexts()


def _in_words(contexts: Contexts, changes: str, *, by_moments: bool) -> list[str]:
    count = len(contexts.names)
    what = "the mechanism of a column" if changes == "mechanisms" else "the level of a column, not its effects"
    if sums_all(count, by_moments=by_moments):
        summed = f"Each may have changed {what}: all {1 << (count - 1):,} combinations are summed."
    else:
        summed = (
            f"Each may have changed {what}: {count} environments have too many combinations to sum all, so the likely "
            "ones were searched for, column by column, and summed."
        )
    return [
        contexts.in_words(),
        f"{summed} Effects and predictions are those of {contexts.reference}.",
    ]


def changes_in_words(contexts: Contexts, names: tuple[str, ...], targets: np.ndarray, sure: float = 0.9) -> str:
    """What the environments surely changed, in a sentence."""
    found = []
    for name, own in zip(contexts.names[1:], targets, strict=True):
        columns = [names[k] for k in np.flatnonzero(own >= sure)]
        if columns:
            found.append(f"{name} changed {listed_plain(columns)}")
    return f"Surely changed: {'; '.join(found)}." if found else "No environment surely changed a mechanism."
