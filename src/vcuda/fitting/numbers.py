"""Tables of numbers: linear functions with normal noise, or regressions whose noise may have any shape, by evidence.

How many edges there are, and how weak effects may be, is learned here too where functions are linear.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from vcuda.data.dataset import Dataset
from vcuda.fitting.independences import PRIOR_ROWS
from vcuda.fitting.mixed import (
    Info,
    Prepared,
    choosing_deadline,
    fit_prepared,
    in_time_for,
    prepare,
    some_rows,
    units_of,
)
from vcuda.fitting.parts import carefully
from vcuda.fitting.routes import Request, choose_among, fit_scored
from vcuda.fitting.summing import searched_edges, summed
from vcuda.infer.exact import TimeLimitError, exact_posterior
from vcuda.infer.hill_climbing import climb
from vcuda.infer.progress import Progress, in_time
from vcuda.infer.scored import column_log_jacobians
from vcuda.infer.selection.models import EXACT_COLUMNS, Choice
from vcuda.models.interventions import prepare as prepare_score
from vcuda.models.linear import BGe
from vcuda.models.mixed.columns import columns_of
from vcuda.models.mixed.evidence import NUMBER
from vcuda.models.mixed.spec import Mixed
from vcuda.models.mixed.tables import MAX_PARENTS, MixedTable
from vcuda.models.protocol import LocalScore
from vcuda.posterior.posterior import Outcome

# The usual number of edges and strength of effects stay where no others make the table twenty times as probable: where
# both describe it, the usual ones are sure of more true edges.
CLEARLY = np.log(20)
WEAK_EFFECTS = "Effects are expected to be weaker than usual, as the table shows."
COMPARING_SHAPES = "comparing models: noise of any shape"
# What the comparison takes, measured in parts of the rows: it tries more sets of causes than each of them.
COMPARING = 10
NO_TIME_TO_COMPARE = "The time limit left no time to compare models: noise is taken as normal."


class _Linear(NamedTuple):
    """The best linear model: a name or a spec, its noise, how high its evidence is, the choice that it came from, and
    the request with as many edges as make the table most probable under it."""

    model: Any
    noise: Any
    height: float
    choice: Choice
    request: Request


def _best_linear(request: Request, noise: Any, engine: Any) -> _Linear:
    """The best linear model; where nobody said how many edges there are, effects may be weaker than usual as well."""
    deadline, found = choosing_deadline(request), list[_Linear]()
    every = request.by_density()
    for one in every:
        if not found or deadline is None or time.monotonic() < deadline:
            choice = choose_among(one, ["linear"], noise, engine)
            found.append(_Linear("linear", choice.candidate.noise, _height(choice, one), choice, one))
    usual, best = found[0], max(found, key=lambda linear: linear.height)
    if len(found) == len(every) > 1 and noise != "equal" and isinstance(request.table, Dataset):
        best = _with_weaker_effects(best, every)
    if best.height < usual.height + CLEARLY:
        best = usual._replace(height=best.height)
    return best._replace(request=best.request._replace(checkpointer=request.checkpointer))


def _with_weaker_effects(best: _Linear, every: Sequence[Request]) -> _Linear:
    """The best model, or one with unequal noise that expects weaker effects and has a higher evidence."""
    unequal = [height for words, height in best.choice.log_evidence.items() if "unequal" in words]
    if not unequal:
        return best

    def height(one: Request, rows: float) -> float:
        marked = one._replace(logarithm=best.choice.scored.units.logarithm)
        return _score_height(marked.prepared(BGe(excess=rows + 1)).score, one)

    heights = {(place, rows): height(one, rows) for place, one in enumerate(every) for rows in PRIOR_ROWS}
    place, rows = max(heights, key=lambda key: heights[key])
    usual = next(k for k, one in enumerate(every) if one.edges is best.request.edges), PRIOR_ROWS[0]
    gained = max(unequal) - max(best.choice.log_evidence.values()) + heights[place, rows] - heights[usual]
    if gained <= 0 or rows == PRIOR_ROWS[0]:
        return best
    return _Linear(BGe(excess=rows + 1), "unequal", best.height + gained, best.choice, every[place])


def _score_height(score: LocalScore, request: Request) -> float:
    """The log evidence of a score: exact for few columns, else with the best graph that is found."""
    rng = np.random.default_rng(request.seed)
    if score.nodes <= EXACT_COLUMNS:
        return exact_posterior(score, request.edges, samples=1, rng=rng).log_evidence
    total, _ = climb(score, request.edges, rng, max_parents=MAX_PARENTS)
    return total + request.edges.log_no_edges


def _height(choice: Choice, request: Request) -> float:
    """The log evidence of the model that was chosen, or the joint log probability of the table and the best graph."""
    return max(choice.log_evidence.values()) + (0.0 if choice.method == "exact" else request.edges.log_no_edges)


def log_evidence(prepared: Prepared, request: Request) -> float:
    """How probable the table is, in the user's units: exact for few columns, else with the best graph that is found."""
    score, edges = summed(request, prepared.score, prepared.first), searched_edges(request)
    jacobian = float(column_log_jacobians(prepared.first, units_of(prepared))[: score.nodes].sum())
    rng = np.random.default_rng(request.seed)
    if score.nodes <= EXACT_COLUMNS:
        return exact_posterior(score, edges, samples=1, rng=rng).log_evidence + jacobian
    total, _ = climb(score, edges, rng, max_parents=MAX_PARENTS)
    return total + edges.log_no_edges + score.log_jacobian + jacobian


class NumberChoice(NamedTuple):
    """How a table of numbers is described: ``prepared`` where curves or noise of other shapes do better than linear
    functions with normal noise, ``said`` why, and the evidence that was compared, if any was."""

    prepared: Prepared | None
    said: str
    log_evidence: dict[str, float] | None


def choose_for_numbers(request: Request, noise: Any, engine: Any) -> NumberChoice:
    """Choose by the evidence; a TimeLimitError where there is no time to compare."""
    within = request._replace(deadline=choosing_deadline(request))
    if not _gains_by_shapes(within):
        return NumberChoice(None, "Curves and noise of other shapes gain nothing.", None)
    prepared = prepare(within, Mixed(), in_time_for(within, COMPARING_SHAPES, COMPARING))
    linear = _best_linear(request._replace(table=prepared.first), noise, engine)
    lead = max(log_evidence(prepared, one) for one in request.by_density()) - linear.height
    known = linear.choice.log_evidence
    compared = {**known, "noise of any shape": max(known.values()) + lead}
    if lead <= 0:
        said = f"The data favour linear functions with normal noise by {-lead:,.1f} nats over noise of other shapes."
        return NumberChoice(None, said, compared)
    said = (
        f"The data favour curves or noise of other shapes by {lead:,.0f} nats over linear functions with normal noise."
    )
    return NumberChoice(prepared, said, compared)


def after_comparing(request: Request) -> Request:
    """The request, whose progress goes on where the comparison of models ended."""

    def report(progress: Progress) -> None:
        before = COMPARING - 1  # a fit itself counts what it prepares as one
        request.progress(progress._replace(done=progress.done + before, total=progress.total + before))

    return request._replace(progress=report)


def fit_numbers(request: Request, model: Any, noise: Any, engine: Any) -> tuple[Outcome, Info]:
    """Fit a table of numbers: by linear functions with normal noise if the data support them best, else by regressions
    whose noise may have any shape."""
    try:
        choice = choose_for_numbers(request, noise, engine)
    except TimeLimitError:
        outcome, info = fit_scored(request, "linear", "unequal", engine)
        info["choice"]["sentences"].append(NO_TIME_TO_COMPARE)
        return outcome, info
    if choice.prepared is None:
        outcome, info = carefully(request, partial(_fit_linear, noise=noise, engine=engine, said=choice.said))
    else:
        outcome, info = fit_prepared(after_comparing(request), choice.prepared, Mixed(), engine)
        info["choice"]["sentences"].insert(0, choice.said)
    if choice.log_evidence is not None:
        info["choice"]["log_evidence"] = choice.log_evidence
    return outcome, info


def _fit_linear(request: Request, *, noise: Any, engine: Any, said: str) -> tuple[Outcome, Info]:
    """Fit linear functions with normal noise, of equal or unequal variances, to all rows; ``said`` is why."""
    linear = _best_linear(request, noise, engine)
    choice, is_spec = linear.choice, linear.model != "linear"
    chosen = linear.request._replace(logarithm=choice.scored.units.logarithm)
    outcome, info = fit_scored(chosen, linear.model, None if is_spec else linear.noise, engine)
    info["model"] |= {"name": "linear", "noise": linear.noise}
    if is_spec:
        info["choice"]["sentences"].append(WEAK_EFFECTS)
    info["odds_times"] = chosen.odds_times
    info["choice"]["sentences"][:0] = [said, *choice.sentences]
    info["choice"]["log_evidence"] = choice.log_evidence
    return outcome, info


def _gains_by_shapes(request: Request) -> bool:
    """Whether curves or noise of another shape describe the columns better, each with its parents in the best linear
    graph; where they do not, no more sets need be tried."""
    given = some_rows(request)
    request.progress(Progress(0, COMPARING + request.parts, COMPARING_SHAPES))
    columns = columns_of(given.kinds, given.values)
    linear = prepare_score(BGe(), given.values, given.interventions)
    _, graph = climb(
        linear,
        request.edges,
        np.random.default_rng(request.seed),
        max_parents=MAX_PARENTS,
        go_on=in_time(request.deadline),
    )
    lead = 0.0
    for node, evidence in enumerate(MixedTable(columns, given.values, given.interventions).evidences()):
        sets = [tuple(np.flatnonzero(graph[:, node]).tolist())]
        lead += float((evidence.average(sets) - evidence.evidence(NUMBER[0], sets))[0])
    return lead > 0
