"""Tables of any mix of kinds: the scores of all sets first, then one search for each of several random parts of the
rows, and the mean of what they find.

No model is true of a table that people have. A fit to all rows is then too sure: what a wrong model reads from
thousands of rows is beyond doubt to it. A direction that only some parts of the rows support, or that hangs on what is
assumed of the noise, is not beyond doubt, and the mean says so. Where a model is true the parts agree, and little is
lost.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from vcuda.checks.subject import SURE
from vcuda.data.dataset import Dataset
from vcuda.data.messages import listed
from vcuda.data.moments import varies
from vcuda.data.scaling import Scaling
from vcuda.fitting.independences import PRIOR_ROWS, independences_of, joined_by, likely_prior_rows
from vcuda.fitting.outcomes import described, restored
from vcuda.fitting.parts import ALTERNATION, averaged, parts_of, rows_apart
from vcuda.fitting.routes import CHOOSING_SHARE, METHODS, Request, fit_scored
from vcuda.fitting.summing import nodes_of, searched_edges, searched_table, summed, with_all_columns
from vcuda.fitting.targets import mean_targets, reference_table, with_targets
from vcuda.fitting.upstream import with_more_graphs
from vcuda.infer.checkpoint import fingerprint
from vcuda.infer.driver import run
from vcuda.infer.engine import Problem
from vcuda.infer.engines import ENGINES
from vcuda.infer.exact import Exact, TimeLimitError
from vcuda.infer.orders import Orders
from vcuda.infer.progress import TIME_LIMIT, USER, Progress
from vcuda.infer.scored import ScoredTable
from vcuda.infer.selection.engines import choose_engine
from vcuda.models.contexts import prepare_rows
from vcuda.models.mixed.columns import columns_of
from vcuda.models.mixed.evidence import ANY_SPREAD, CONSTANT_SPREAD, EVERY, SHAPES, View
from vcuda.models.mixed.prediction import MixedPredictive
from vcuda.models.mixed.scales import choose_logarithms
from vcuda.models.mixed.screen import DegenerateGaussian
from vcuda.models.mixed.spec import Mixed
from vcuda.models.mixed.tables import ColumnSets, MixedTable, Tabulation
from vcuda.models.protocol import LocalScore
from vcuda.models.tabulated import TabulatedScore
from vcuda.posterior.posterior import Outcome
from vcuda.specs import to_json

Info = dict[str, Any]

# What is assumed of the columns, and its share of the answer. Directions that are read from the shapes of noise and
# effects are right about three times of four on real tables, so that a quarter of the answer reads them from
# independences alone: without these no direction is sure. In most of the rest all descriptions of the columns compete
# by evidence, which prefers few assumptions to be wrong over many; in some noise has any shape, and columns with steps
# go by the odds of their values.
INDEPENDENCES = "independences"
Look = View | str
SHARES: dict[Look, float] = {
    SHAPES: 0.48,
    ANY_SPREAD: 0.18,
    CONSTANT_SPREAD: 0.09,
    EVERY: 0.75,
    INDEPENDENCES: 0.25,
}
OTHER_VIEWS = (ANY_SPREAD, CONSTANT_SPREAD, ANY_SPREAD)
VIEWS = (SHAPES, ANY_SPREAD, SHAPES, SHAPES, CONSTANT_SPREAD, SHAPES, ANY_SPREAD, SHAPES)
# Where each part is searched by sampling, so many of them have one that is looked at for independences too.
PARTS_FOR_INDEPENDENCES = 3
# A direction leans one way from here on.
LEANING = 0.7
# Rows that decide which sets of causes count; the parts of the rows begin from them.
FIRST_ROWS = 600
# Of more columns too many sets would have to be fitted.
MOST_COLUMNS = 150
THREADS = min(os.cpu_count() or 1, 8)


class Prepared(NamedTuple):
    """A table whose sets of parents have scores, those of ``first`` rows."""

    table: Dataset
    first: Dataset
    logarithm: np.ndarray
    tabulation: Tabulation
    notes: list[str]

    @property
    def score(self) -> TabulatedScore:
        return self.tabulation.score


def prepare(request: Request, spec: Mixed, progress: Callable[[float], None]) -> Prepared:
    """Score all sets of parents that may count; once for a table and the careful fit that may follow."""
    if request.scored is None or request.imputations > 1:
        return _scored(request, spec, progress)
    key = request.table.fingerprint, request.parts, spec
    if key not in request.scored:
        request.scored[key] = _scored(request, spec, progress)
    return request.scored[key]


def _scored(request: Request, spec: Mixed, progress: Callable[[float], None]) -> Prepared:
    """Choose rows and logarithms, and score the sets."""
    given = request.rows_in_memory
    notes = []
    if given.n > spec.most_rows:
        rows = np.sort(np.random.default_rng([request.seed, 7]).choice(given.n, spec.most_rows, replace=False))
        given = given.select(rows)
        notes.append(f"Causes were learned from {spec.most_rows:,} rows, drawn at random.")
    marked = request.logarithm
    if marked is None:
        free = np.ones(given.values.shape, dtype=bool) if given.interventions is None else ~given.interventions
        marked = choose_logarithms(given.kinds, given.values, free, request.seed)
    edges, nodes = request.edges, nodes_of(request)
    rows = first_rows(given, request.seed) if request.parts else np.arange(given.n)
    table = given.with_logarithms(marked)
    targets = None if nodes == given.d else nodes
    tabulation = Tabulation(
        MixedTable(columns_of(table.kinds, table.values, marked), table.values, table.interventions, targets),
        [edges.allowed_parents(node).tolist() for node in range(nodes)],
        [own.tolist() for own in edges.required_parents()[:nodes]],
        rows=rows,
        threads=THREADS,
        on_progress=progress,
    )
    return Prepared(given, given.select(rows), marked, tabulation, notes)


def first_rows(table: Dataset, seed: int) -> np.ndarray:
    """The rows that decide which sets count, where parts of the rows follow."""
    if table.n <= FIRST_ROWS:
        return np.arange(table.n)
    return np.sort(np.random.default_rng([seed, 9]).choice(table.n, FIRST_ROWS, replace=False))


def units_of(prepared: Prepared) -> Scaling:
    return Scaling(np.zeros(prepared.table.d), np.ones(prepared.table.d), prepared.logarithm)


def some_rows(request: Request) -> Dataset:
    """Rows that show whether more models are worth comparing."""
    given = request.rows_in_memory
    if given.n <= FIRST_ROWS:
        return given
    return given.select(np.random.default_rng([request.seed, 9]).choice(given.n, FIRST_ROWS, replace=False))


def choosing_deadline(request: Request) -> float | None:
    left = request.seconds_left()
    return None if left is None else time.monotonic() + CHOOSING_SHARE * left


def in_time_for(request: Request, words: str, work: int = 1) -> Callable[[float], None]:
    """Progress of a step that has no partial answer, and takes the time of so many parts of the rows; a TimeLimitError
    when the time is over."""

    def report(share: float) -> None:
        request.progress(Progress(work * share, work + request.parts, words))
        left = request.seconds_left()
        if left is not None and left < 0:
            raise TimeLimitError("the time limit came while sets of causes were scored; allow more time")

    return report


def fit_mixed(request: Request, model: Any, noise: Any, engine: Any) -> tuple[Outcome, Info]:
    """Fit a table of any mix of kinds; one of very many columns by a score that needs products of columns alone."""
    if request.table.d > MOST_COLUMNS:
        return _jointly_normal(request, noise, engine, f"There are more than {MOST_COLUMNS} columns")
    spec = model if isinstance(model, Mixed) else Mixed()
    within = request._replace(deadline=choosing_deadline(request))
    try:
        prepared = prepare(request, spec, in_time_for(within, "scoring sets of causes"))
    except TimeLimitError:
        return _jointly_normal(request, noise, engine, "The time limit is too short for regressions")
    return fit_prepared(request, prepared, spec, engine)


def _jointly_normal(request: Request, noise: Any, engine: Any, why: str) -> tuple[Outcome, Info]:
    """Fit a score that needs products of columns alone."""
    outcome, info = fit_scored(request, DegenerateGaussian(kinds=tuple(request.table.kinds)), noise, engine)
    info["choice"]["sentences"].append(
        f"{why}: all kinds are taken as jointly normal, labels by a number for each. Directions are read from "
        "independences alone, and no rows are predicted."
    )
    return outcome, info


def fit_prepared(request: Request, prepared: Prepared, spec: Mixed, engine: Any) -> tuple[Outcome, Info]:
    """Search on several parts of the rows, and average."""
    sentences = list(prepared.notes)
    if engine == "auto":
        choice = choose_engine(
            summed(request, prepared.score, prepared.first),
            over=request.edges.over,
            seconds=request.seconds_left(),
            searches=max(2 * request.parts, 1) * request.imputations,
        )
        engine = choice.engine
        sentences.append(choice.sentence)
    elif isinstance(engine, str):
        engine = ENGINES[engine].spec()
    engine = with_more_graphs(engine, request.knowledge)
    rows = parts_of(prepared.table, request.parts, request.seed, request.careful)
    searched = _searched(request, prepared, engine, rows)
    members, shares = searched.outcomes, searched.shares
    targets = mean_targets([member.diagnostics for member in members], shares).get("targets")
    known = reference_table(prepared.table, None if targets is None else np.array(targets))
    predictive = MixedPredictive.of(known, prepared.logarithm)
    outcome = averaged(members, shares, predictive, parts=len(rows), stopped=searched.stopped)
    names = np.array(prepared.table.names, dtype=object)[prepared.logarithm].tolist()
    if names:
        sentences.append(f"The logarithm of {listed(names)} was taken: the rows are described better by it.")
    sentences += _noise_sentences(prepared, np.asarray(outcome.graph_posterior.edge_probabilities()))
    if request.parts == 1:
        sentences.append(f"Causes were learned from a random part of {len(rows[0]):,} rows.")
    elif request.parts:
        sentences.append(
            f"The answer is the mean over {len(rows)} random parts of {len(rows[0]):,} rows each: what only some of "
            "them support is not stated as sure."
        )
    apart = int(rows_apart(prepared.table).sum())
    if apart and request.careful is None and len(rows) > ALTERNATION:
        sentences.append(
            f"{apart:,} rows have a number far from all others of its column, perhaps a wrong entry: half of the parts "
            "leave them out, and what hangs on them is not stated as sure."
        )
    by_shape: list[list[str]] = []
    independences = searched.of_independences()
    if len(rows) > 1 and request.imputations == 1 and independences is not None:
        # One of several imputations cannot say what is likely of all of them.
        by_shape = _by_shape(prepared.table.names, outcome, independences)
    if by_shape:
        edges = listed([f"{source} -> {target}" for source, target in by_shape])
        sentences.append(
            f"Directions read from the shapes of noise and effects alone, which are right about three times of four: "
            f"{edges}."
        )
    info: Info = {
        "engine": {"name": type(engine).__name__.lower(), **to_json(engine)},
        "foreseen": None,
        "model": {"name": "mixed", "score": "Mixed", **to_json(spec)},
        "logarithm": names,
        "choice": {"sentences": sentences, "by_shape": by_shape},
    }
    return outcome, info


def view_of(seed: int, number: int) -> View:
    """The descriptions that compete in a part of the rows that has one view; the first has number 1."""
    return VIEWS[(seed + number) % len(VIEWS)]


def looks_of(table: Dataset, engine: Exact | Orders, seed: int, number: int) -> tuple[Look, ...]:
    """How a part of the rows is looked at, independences last.

    With the exact engine there are two views, which share most of their fits, and independences. Sampling takes longer
    than that is worth. Where all columns are labels all views are the same.
    """
    is_exact = isinstance(engine, Exact)
    if set(table.kinds) <= {"yes/no", "label"}:
        views: tuple[Look, ...] = (EVERY,)
    elif is_exact:
        views = SHAPES, OTHER_VIEWS[(seed + number) % len(OTHER_VIEWS)]
    else:
        views = (view_of(seed, number),)
    return (*views, INDEPENDENCES) if is_exact or number % PARTS_FOR_INDEPENDENCES == 1 else views


class _Searched(NamedTuple):
    """What searches of parts of the rows found, what each counts, and what ended them early."""

    outcomes: list[Outcome]
    shares: list[float]
    looks: list[Look]
    stopped: str | None

    def of_independences(self) -> np.ndarray | None:
        """The mean edge probabilities (d, d) that are read from independences alone."""
        found = [one for one, look in zip(self.outcomes, self.looks, strict=True) if look == INDEPENDENCES]
        if not found:
            return None
        return np.mean([np.asarray(one.graph_posterior.edge_probabilities()) for one in found], axis=0)


def _searched(request: Request, prepared: Prepared, engine: Exact | Orders, rows: Sequence[np.ndarray]) -> _Searched:
    """Search each part of the rows, in each of its looks."""
    found: list[tuple[Look, Outcome]] = []
    count, sets = len(rows), _sets_of_parts(request, prepared)
    prior_rows = PRIOR_ROWS[0]
    if request.parts and request.series is None:
        prior_rows = likely_prior_rows(prepared.table, searched_edges(request), request.seed)

    def done(parts: int, stopped: str | None = None) -> _Searched:
        looks = [look for look, _ in found]
        shares = np.array([SHARES[look] / looks.count(look) for look in looks])
        why = None if stopped is None else f"{stopped} after {parts} of {count} parts of the rows"
        return _Searched([outcome for _, outcome in found], (shares / shares.sum()).tolist(), looks, why)

    for number, some in enumerate(rows, start=1):

        def report(share: float, number: int = number, detail: str = "scoring sets of causes") -> None:
            request.progress(Progress(number + share, 1 + count, f"part {number} of {count}: {detail}"))

        looks = looks_of(prepared.table, engine, request.seed, number) if request.parts else (EVERY,)
        given = fingerprint(
            prepared.table.fingerprint, prepared.logarithm, some, engine, request.edges, request.seed, len(looks)
        )
        names = [f"part {number}, look {place} of {len(looks)}, fitted" for place in range(1, len(looks) + 1)]
        known = [request.checkpointer.recall(name, given) for name in names]
        recalled = [restored(one)[0] for one in known if one is not None]
        if len(recalled) == len(looks):
            found += zip(looks, recalled, strict=True)
            continue
        try:
            report(0.0)
            deadline = _deadline(request, count - number + 1)
            views = [look for look in looks if isinstance(look, View)]
            scores = _scores_of_part(request, prepared, some, views, sets, report)
            outcomes = [_search(request, prepared, engine, score, number, report, deadline) for score in scores]
            if INDEPENDENCES in looks:
                outcomes.append(
                    _independences(request, prepared, engine, some, prior_rows, outcomes, number, report, deadline)
                )
        except KeyboardInterrupt:
            if not found:
                raise
            return done(number - 1, USER)
        finished = all(outcome.status.code != "interrupted" for outcome in outcomes)
        if finished or not found:
            found += zip(looks, outcomes, strict=True)
        if finished:
            for name, outcome in zip(names, outcomes, strict=True):
                request.checkpointer.keep(name, given, partial(described, outcome, {}))
        left = request.seconds_left()
        if number < count and left is not None and left <= 0:
            return done(number if finished else max(number - 1, 1), TIME_LIMIT)
    return done(count)


def _search(
    request: Request,
    prepared: Prepared,
    engine: Exact | Orders,
    score: LocalScore,
    number: int,
    report: Callable[..., None],
    deadline: float | None,
    joined: np.ndarray | None = None,
) -> Outcome:
    """Search for graphs of one part of the rows; pairs are more probable by what is known to be ``joined`` (d, d), in
    nats."""
    score = summed(request, score, prepared.table)
    outcome = run(
        METHODS[type(engine).__name__.lower()],
        _shorter(engine, request.parts * request.imputations),
        _problem(request, prepared, score, number, joined),
        progress=partial(_forward, report),
        deadline=deadline,
    )
    return with_all_columns(request, with_targets(outcome, score), score, number=number)


def _sets_of_parts(request: Request, prepared: Prepared) -> Sequence[ColumnSets]:
    """The sets of causes that are fitted to parts of the rows: those that can matter.

    Other sets matter to the small parts of a careful fit, and where earlier steps or environments are summed out.
    """
    plain = request.careful is None and request.series is None and prepared.table.environment is None
    tabulation = prepared.tabulation
    return tabulation.relevant_sets(tuple(dict.fromkeys(VIEWS))) if plain and request.parts else tabulation.sets


def _scores_of_part(
    request: Request,
    prepared: Prepared,
    rows: np.ndarray,
    views: Sequence[View],
    sets: Sequence[ColumnSets],
    report: Callable[..., None],
) -> Sequence[LocalScore]:
    """The scores of a part of the rows, one for each view; they sum over what environments changed."""
    table, tabulation = prepared.table, prepared.tabulation
    if table.environment is None:
        return tabulation.of_part(rows, views, sets=sets, on_progress=report) if request.parts else [prepared.score]
    # One set of rows of the environments serves all views.
    by_rows: dict[bytes, Sequence[LocalScore]] = {}

    def scored(chosen: Sequence[np.ndarray], place: int) -> list[LocalScore]:
        made: list[LocalScore] = []
        for k, some in enumerate(chosen):
            report(0.9 * k / len(chosen))
            key = some.tobytes()
            if key not in by_rows:
                by_rows[key] = tabulation.of_part(rows[some], views)
            made.append(by_rows[key][place])
        return made

    own = table.select(rows)
    return [prepare_rows(own, partial(scored, place=place), table.scale) for place in range(len(views))]


def _forward(report: Callable[..., None], step: Progress) -> None:
    """Progress of a search, which is the last tenth of a part."""
    report(0.9 + 0.1 * min(step.done / max(step.total, 1e-9), 1.0), detail=step.detail)


def _deadline(request: Request, left: int) -> float | None:
    """An equal share of the time for each part that is left."""
    seconds = request.seconds_left()
    return None if seconds is None else time.monotonic() + max(seconds, 0.0) / left


def _shorter(engine: Exact | Orders, searches: int) -> Exact | Orders:
    """Each of several chains may be shorter: what one of them misses is a small share of the mean."""
    if not isinstance(engine, Orders) or engine != Orders() or searches < 4:
        return engine
    return Orders(replicas=2, precision=0.02, max_sweeps=2000)


def _problem(
    request: Request, prepared: Prepared, score: LocalScore, number: int, joined: np.ndarray | None = None
) -> Problem:
    scored = searched_table(request, ScoredTable(prepared.table, score, units_of(prepared), 0.0))
    edges = searched_edges(request)
    if joined is not None:
        edges = edges.raised(joined)
    return Problem.of_score(scored, seed=request.seed + number, edges=edges, prior=request.prior)


def _independences(
    request: Request,
    prepared: Prepared,
    engine: Exact | Orders,
    rows: np.ndarray,
    prior_rows: float,
    views: Sequence[Outcome],
    number: int,
    report: Callable[..., None],
    deadline: float | None,
) -> Outcome:
    """A search of a part of the rows that reads no direction from shapes: all columns jointly normal, on the scale of
    their ranks. Curves that this scale does not show join columns as they do in the ``views`` of the same rows."""
    table = prepared.table.select(rows)
    if not all(varies(column.min(), column.max()) for column in table.values.T):
        table = prepared.table
    score = independences_of(table, prior_rows, in_time=request.series is not None)
    nodes = nodes_of(request)
    likely = np.mean([np.asarray(one.graph_posterior.edge_probabilities())[:nodes, :nodes] for one in views], axis=0)
    return _search(request, prepared, engine, score, number, report, deadline, joined_by(likely))


def _by_shape(names: Sequence[str], outcome: Outcome, independences: np.ndarray) -> list[list[str]]:
    """Edges of pairs that are surely joined, and whose direction is read from the shapes of noise and effects alone."""
    found = np.asarray(outcome.graph_posterior.edge_probabilities())
    joined, plain = found + found.T >= SURE, independences + independences.T
    is_open = independences < LEANING * np.maximum(plain, 1e-9)
    return [[names[i], names[j]] for i, j in np.argwhere(joined & is_open & (found >= LEANING * (found + found.T)))]


def _noise_sentences(prepared: Prepared, likely: np.ndarray) -> list[str]:
    """Which columns have which noise, given the causes that are more likely (d, d) than not."""
    by_noise: dict[str, list[str]] = {}
    by_odds, by_ranks = list[str](), list[str]()
    for target, evidence in enumerate(prepared.tabulation.evidences):
        if not evidence.own.is_number:
            continue
        name, scores = prepared.table.names[target], prepared.score.scores[target]
        causes = set(np.flatnonzero(likely[:, target] >= 0.5).tolist())
        fitted = prepared.tabulation.sets[target].fitted
        among = [own for own in fitted if causes.issuperset(own)] or [min(fitted, key=len)]
        how = evidence.likeliest(max(among, key=scores.__getitem__))
        if not how.has_distribution:
            (by_odds if how.odds else by_ranks).append(name)
            continue
        words = "of another shape than normal" if how.shape else "normal"
        if how.spread:
            words += ", its spread depends on the causes"
        by_noise.setdefault(words, []).append(name)
    sentences = []
    if by_noise:
        sentences.append(
            "Noise: " + "; ".join(f"{words} in {listed(names)}" for words, names in by_noise.items()) + "."
        )
    if by_odds:
        sentences.append(
            f"Best described by the odds of values, with nothing assumed of noise: {listed(by_odds)}. Many rows "
            "share a value of the column or of a cause."
        )
    if by_ranks:
        sentences.append(
            f"Best described on the scale of ranks: {listed(by_ranks)}. What causes and noise add up to looks as if it "
            "was bent by an increasing function, as by a scale with a ceiling."
        )
    return sentences
