"""Tables with missing values: imputed several times, every imputed table fitted, the posteriors mixed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np

from vcuda.data.dataset import Dataset
from vcuda.data.imputation import lognormal_columns
from vcuda.data.messages import shortened
from vcuda.fitting.imputation_by_kind import imputed_tables
from vcuda.fitting.outcomes import cached_fit, described, restored
from vcuda.fitting.routes import CHOOSING_SHARE, Request
from vcuda.fitting.targets import mean_targets
from vcuda.infer.checkpoint import NO_CHECKPOINT, fingerprint
from vcuda.infer.exact import Exact, TimeLimitError
from vcuda.infer.progress import TIME_LIMIT, USER, Progress, silent
from vcuda.infer.workers import SERIAL
from vcuda.models.linear import BGe
from vcuda.posterior.imputed import ImputedMixture
from vcuda.posterior.point import ScoredGraphs
from vcuda.posterior.posterior import Outcome, Status, as_sentence
from vcuda.posterior.status import STATUS_CODES

Info = dict[str, Any]
# From a request, model, noise and engine to an outcome and what the run records about it.
Route = Callable[[Request, Any, Any, Any], tuple[Outcome, Info]]
# The imputed cells decide an edge whose probability has this standard deviation between imputations (a tenth of them
# are sure of it while the others exclude it) and this range (of few imputations the deviation alone says little). Three
# times the Monte Carlo error of the engine must not explain it.
IMPUTATION_SD = 0.3
IMPUTATION_RANGE = 0.8
MONTE_CARLO_ERRORS = 3.0
EDGES_NAMED = 3


class Asked(NamedTuple):
    """Model, noise and engine: as the user asked for them, later as they were chosen."""

    model: Any
    noise: Any
    engine: Any

    def settled(self, info: Info) -> Asked:
        """What was chosen, by name, where something was left open; the next imputation is fitted with the same."""
        if not isinstance(self.model, str):
            model, noise = self.model, self.noise
        else:
            # Methods with a model of their own are asked for it by "auto".
            own = info["model"]["name"] == "its own"
            model = self.model if own else info["model"]["name"]
            noise = info["model"].get("noise", self.noise)
            if info["model"].get("excess", BGe.excess) != BGe.excess:
                model, noise = BGe(excess=info["model"]["excess"]), None  # as weak effects as were learned
        return Asked(model, noise, info["engine"]["name"] if isinstance(self.engine, str) else self.engine)

    @property
    def has_no_partial_answer(self) -> bool:
        return isinstance(self.engine, Exact) or self.engine == "exact"


class _StopError(Exception):
    """The user or the time limit ends the fit; what is done is kept."""


class _Clock:
    """Where the fit is: it shares the time among imputations, and knows when to stop."""

    def __init__(self, request: Request, count: int) -> None:
        self.request, self.count = request, count
        self.done = 0
        self.interrupted = False

    def deadline(self, asked: Asked, *, choosing: bool) -> float | None:
        """For the current imputation: an equal share of what is left, and before it the share for choosing a model.

        An engine without partial answers gets all that is left: some imputations are better than none.
        """
        left = self.request.seconds_left()
        if left is None or asked.has_no_partial_answer:
            return self.request.deadline
        before = CHOOSING_SHARE * left if choosing else 0.0
        return time.monotonic() + before + (left - before) / (self.count - self.done)

    @property
    def is_late(self) -> bool:
        left = self.request.seconds_left()
        return left is not None and left <= 0

    def report(self, step: Progress) -> None:
        """Progress of the current imputation, as part of the whole."""
        share = min(step.done / step.total, 1.0) if step.total else 0.0
        detail = f"imputation {self.done + 1} of {self.count}: {step.detail}"
        try:
            self.request.progress(Progress(self.done + share, self.count, detail))
        except KeyboardInterrupt:
            self.interrupted = True
            raise

    def before_regression(self) -> None:
        """During imputation; before the first imputed table is fitted, a time limit would leave nothing to return."""
        if self.done and self.is_late:
            raise _StopError
        self.report(Progress(0, 1, "imputing the missing values"))


def fit_imputed(request: Request, route: Route, asked: Asked, *, count: int, by_evidence: bool) -> tuple[Outcome, Info]:
    """Impute the missing values ``count`` times, fit each imputed table, and mix the posteriors with equal weights.

    Model, noise, logarithms and engine are chosen once, on the first imputation; ``by_evidence`` says whether the data
    decide about the first three. Subsamples of the rows are shared out among the imputations; what is left of the cost
    is that every imputed table is scored anew. When the user interrupts or the time is over, the imputations that are
    done count; before the first is done, what the engine has of it.
    """
    if by_evidence and request.logarithm is None:
        marked = lognormal_columns(request.rows_in_memory)
    else:
        marked = np.zeros(request.table.d, dtype=bool) if request.logarithm is None else request.logarithm
    parts = max(1, request.parts // count) if request.parts else 0
    request = request._replace(parts=parts, imputations=count)
    clock = _Clock(request, count)
    outcomes: list[Outcome] = []
    spare: list[Outcome] = []
    info: Info | None = None
    stopped, tried = None, 0
    tables = _drawn(request, marked, clock)
    while len(outcomes) < count:
        if info is not None and request.workers.count > 1:
            done, stopped = _fitted_elsewhere(request, route, asked, clock)
            outcomes = outcomes + done or spare
            break
        choosing = info is None and by_evidence
        try:
            table = next(tables)
            tried += 1
            member = request._replace(
                table=table,
                seed=request.seed + clock.done,
                progress=clock.report,
                deadline=clock.deadline(asked, choosing=choosing),
                checkpointer=request.checkpointer.scope(f"filling {tried}"),
            )
            outcome, found = cached_fit(request.checkpointer, f"filling {tried}, fitted", member, route, asked)
        except (KeyboardInterrupt, TimeLimitError, _StopError) as reason:
            outcomes = outcomes or spare
            if not outcomes:
                raise
            stopped = USER if isinstance(reason, KeyboardInterrupt) else TIME_LIMIT
            break
        if info is None:
            info, asked = found, asked.settled(found)
            taken = np.isin(np.array(request.table.names, dtype=object), np.array(found["logarithm"], dtype=object))
            request = request._replace(logarithm=taken).expecting(found.get("odds_times", 1))
            if not np.array_equal(taken, marked) and outcome.status.code != "interrupted":
                # Cells are drawn on the scale on which the columns are fitted; those of the first imputation were not.
                spare, tables = [outcome], _drawn(request, taken, clock)
                continue
        early = _was_interrupted(outcome, member, clock)
        if early and outcomes:
            stopped = USER
            break
        outcomes.append(outcome)
        clock.done += 1
        if early or (clock.is_late and len(outcomes) < count):
            stopped = USER if early else TIME_LIMIT
            break
    assert info is not None
    finished = [outcome for outcome in outcomes if outcome.status.code != "interrupted"]
    if finished and len(finished) < len(outcomes):
        # What came to nothing in its share of the time would blur what the others found.
        outcomes, stopped = finished, stopped or TIME_LIMIT
    by_parts = request.parts > 0 and "parts" in outcomes[0].diagnostics
    return _mixed(request.rows_in_memory, outcomes, info, count=count, stopped=stopped, by_parts=by_parts)


class _Imputation(NamedTuple):
    """What is needed to fit any imputation of a table."""

    request: Request
    route: Route
    asked: Asked
    seconds: float | None


def _fit_imputation(shared: _Imputation, number: int) -> tuple[Outcome, Info]:
    """Draw one imputation, and fit it."""
    request = shared.request
    drawn = imputed_tables(
        request.rows_in_memory,
        1,
        seed=request.seed,
        logarithm=request.logarithm,
        first=number,
        on_regression=lambda: None,
    )
    deadline = None if shared.seconds is None else time.monotonic() + shared.seconds
    return shared.route(
        request._replace(table=next(drawn), seed=request.seed + number, deadline=deadline), *shared.asked
    )


def _fitted_elsewhere(request: Request, route: Route, asked: Asked, clock: _Clock) -> tuple[list[Outcome], str | None]:
    """Fit the imputations that are left on workers; returns those that came to an end, and what stopped the others."""
    numbers = list(range(clock.done, clock.count))
    turns = -(-len(numbers) // request.workers.count)
    left = request.seconds_left()
    seconds = None if left is None else max(left, 0.0) / (1 if asked.has_no_partial_answer else turns)
    # Callbacks, checkpoints and clocks stay in this process.
    bare = request._replace(progress=silent, checkpointer=NO_CHECKPOINT, workers=SERIAL, deadline=None)
    given = [
        fingerprint(request.rows_in_memory.fingerprint, request.logarithm, request.seed, number, tuple(asked))
        for number in numbers
    ]
    before = {
        place: restored(known)[0]
        for place, number in enumerate(numbers)
        if (known := request.checkpointer.recall(f"filling {number + 1}, elsewhere", given[place])) is not None
    }
    lacking = [place for place in range(len(numbers)) if place not in before]
    kept: dict[int, tuple[Outcome, Info]] = {}
    noted: set[int] = set()

    def report(share: float) -> None:
        for place in set(kept) - noted:
            noted.add(place)
            outcome, info = kept[place]
            if outcome.status.code != "interrupted":
                name = f"filling {numbers[lacking[place]] + 1}, elsewhere"
                request.checkpointer.keep(name, given[lacking[place]], partial(described, outcome, info))
        done = clock.done + len(before) + len(kept)
        request.progress(Progress(done, clock.count, f"{done} of {clock.count} imputations are fitted"))

    stopped = None
    try:
        shared = _Imputation(bare, route, asked, seconds)
        request.workers.map(
            _fit_imputation, [numbers[place] for place in lacking], shared=shared, on_progress=report, kept=kept
        )
    except (KeyboardInterrupt, TimeLimitError) as reason:
        if not (kept or before or clock.done):
            raise
        stopped = USER if isinstance(reason, KeyboardInterrupt) else TIME_LIMIT
    fitted = before | {lacking[place]: outcome for place, (outcome, _) in kept.items()}
    return [fitted[place] for place in sorted(fitted)], stopped


def _drawn(request: Request, marked: np.ndarray, clock: _Clock) -> Any:
    return imputed_tables(
        request.rows_in_memory, clock.count, seed=request.seed, logarithm=marked, on_regression=clock.before_regression
    )


def _was_interrupted(outcome: Outcome, member: Request, clock: _Clock) -> bool:
    """Whether the user, not the imputation's own share of the time, ended it early."""
    if outcome.status.code != "interrupted":
        return False
    return clock.interrupted or member.deadline is None or time.monotonic() < member.deadline


def _mixed(
    table: Dataset, outcomes: list[Outcome], info: Info, *, count: int, stopped: str | None, by_parts: bool
) -> tuple[Outcome, Info]:
    """The mean of the outcomes; ``by_parts``: each imputation was fitted to random parts of the rows of its own."""
    graph_posterior = ImputedMixture(tuple(outcome.graph_posterior for outcome in outcomes))
    assert table.missing is not None
    spread, differences = graph_posterior.disagreement()
    apart = ~np.eye(table.d, dtype=bool)
    shares = table.missing.mean(axis=0)
    diagnostics = {
        "imputations": len(outcomes),
        "imputation_sd_mean": float(spread[apart].mean()),
        "imputation_sd_largest": float(spread[apart].max()),
        "missing_cells": int(table.missing.sum()),
        "missing_share": {table.names[k]: float(shares[k]) for k in np.flatnonzero(shares)},
        "fillings": [outcome.diagnostics for outcome in outcomes],
        **mean_targets([outcome.diagnostics for outcome in outcomes]),
    }
    trace = {
        f"filling_{number}_{name}": series
        for number, outcome in enumerate(outcomes, start=1)
        for name, series in outcome.trace.items()
    }
    if "log_evidence" in info["choice"]:
        info["choice"]["sentences"].append(
            "Model, noise and logarithms were chosen on the first imputation of the missing values."
        )
    if len(outcomes) > 1:
        info["choice"]["sentences"].append(
            f"The posterior is the mean over {len(outcomes)} imputations of the missing values, all fitted in this way."
        )
    info |= {"imputations": count, "notes": [_missing_sentence(table, len(outcomes), differences, by_parts=by_parts)]}
    # Other rows may explain what differs between imputations as well as other cells.
    trouble = [] if by_parts else _imputed_edges(table.names, outcomes, np.where(apart, spread, 0.0), differences)
    return Outcome(graph_posterior, _status(outcomes, count, stopped, trouble), diagnostics, trace), info


def _imputed_edges(
    names: Sequence[str], outcomes: list[Outcome], spread: np.ndarray, differences: np.ndarray
) -> list[str]:
    """Which edges the imputed cells decide, in words: the standard deviation (d, d) of their probability between
    imputations is large, and larger than Monte Carlo error explains."""
    if any(isinstance(outcome.graph_posterior, ScoredGraphs) for outcome in outcomes):
        return []  # their scores need not be probabilities
    error = max(float(outcome.diagnostics.get("standard_error") or 0.0) for outcome in outcomes)
    wide = (spread > IMPUTATION_SD) & (differences > IMPUTATION_RANGE)
    found = np.argwhere(wide & (spread > MONTE_CARLO_ERRORS * error))
    if not found.size:
        return []
    found = found[np.argsort(-spread[tuple(found.T)], kind="stable")]
    edges = [f"{shortened(names[i])} -> {shortened(names[j])}" for i, j in found[:EDGES_NAMED]]
    more = f" and {len(found) - EDGES_NAMED:,} more" if len(found) > EDGES_NAMED else ""
    largest = differences[tuple(found.T)].max()
    which, what = ("edge", "its probability differs") if len(found) == 1 else ("edges", "their probabilities differ")
    return [
        f"the imputed cells decide the {which} {', '.join(edges)}{more}: {what} between imputations by up to "
        f"{largest:.2f}; take such an edge as open, or obtain the missing values"
    ]


def _missing_sentence(table: Dataset, made: int, differences: np.ndarray, *, by_parts: bool) -> str:
    """How much was missing, and how far the imputations differ (d, d) about an edge."""
    assert table.missing is not None
    cells, total = int(table.missing.sum()), table.missing.size
    share = 100 * cells / total
    words = f"{share:.2g}" if share < 99.5 else f"{share:.3g}"
    times = "once" if made == 1 else f"{made} times"
    sentence = f"{cells:,} of {total:,} cells ({words} %) were missing and imputed {times}"
    if made == 1:
        return f"{sentence}: a single imputation does not show how far this moves the probabilities of edges."
    source, target = np.unravel_index(int(np.argmax(differences)), differences.shape)
    if differences[source, target] < 0.005:
        return f"{sentence}; the probabilities of all edges are nearly the same in all imputations."
    edge = f"{shortened(table.names[source])} -> {shortened(table.names[target])}"
    rows = ", each of which was fitted to random rows of its own," if by_parts else ""
    return (
        f"{sentence}; the probability of an edge differs between imputations{rows} by up to "
        f"{differences[source, target]:.2f} (for {edge})."
    )


def _status(outcomes: list[Outcome], count: int, stopped: str | None, trouble: list[str]) -> Status:
    """The worst of the members, whether all imputations were fitted, and the trouble that they have together."""
    worst = max(outcomes, key=lambda outcome: STATUS_CODES.index(outcome.status.code)).status
    if worst.code == "ok" and stopped is None:
        return Status("warning", as_sentence(trouble)) if trouble else worst
    said = worst.sentence[:1].lower() + worst.sentence[1:].removesuffix(".")
    if len(outcomes) > 1:
        bad = sum(outcome.status.code == worst.code for outcome in outcomes)
        said = f"in {bad} of {len(outcomes)} imputations of the missing values: {said}"
    if stopped is None or count == 1:
        return Status(worst.code, as_sentence([said, *trouble]))
    if worst.code == "interrupted" and len(outcomes) == 1:
        said = f"in the first of {count} imputations of the missing values: {said}"
        return Status("interrupted", as_sentence([said]))
    early = f"stopped by {stopped} after {len(outcomes)} of {count} imputations of the missing values"
    code: Literal["interrupted", "failed"] = "failed" if worst.code == "failed" else "interrupted"
    return Status(code, as_sentence([early, *([] if worst.code == "ok" else [said]), *trouble]))
