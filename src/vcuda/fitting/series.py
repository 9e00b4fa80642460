"""Fits of tables whose rows are steps in time: from options to windows of steps, and the ways to a posterior."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from vcuda.dags.base import GraphPrior
from vcuda.data.dataset import Dataset
from vcuda.data.messages import listed
from vcuda.data.series import Series, SeriesOptions, series_of
from vcuda.data.series.clock import clock_of
from vcuda.data.series.knowledge import rules_of_lags
from vcuda.data.series.levels import lognormal_columns
from vcuda.errors import ConfigError
from vcuda.fitting.kinds import takes_sets
from vcuda.fitting.mixed import MOST_COLUMNS, choosing_deadline, fit_mixed, some_rows
from vcuda.fitting.routes import METHODS, Request, described, named_spec
from vcuda.fitting.spec import FitSpec
from vcuda.fitting.summing import searched_edges, searched_table, summed, with_all_columns
from vcuda.infer.driver import run
from vcuda.infer.edge_prior import EdgePrior, edge_prior
from vcuda.infer.engine import Problem
from vcuda.infer.engines import ENGINES
from vcuda.infer.hill_climbing import climb
from vcuda.infer.orders import Orders
from vcuda.infer.progress import Progress, in_time
from vcuda.infer.scored import ScoredTable
from vcuda.infer.selection.engines import choose_engine
from vcuda.models import FAMILIES
from vcuda.models.additive.score import AdditiveBasis
from vcuda.models.interventions import prepare as prepare_score
from vcuda.models.linear import BGe
from vcuda.models.mixed.spec import Mixed
from vcuda.models.mixed.tables import MAX_PARENTS
from vcuda.models.protocol import ScoreSpec
from vcuda.models.summed_out import NuisancePrior, summed_out
from vcuda.posterior.posterior import Outcome
from vcuda.posterior.sampled import SampledGraphs
from vcuda.specs import to_json

Info = dict[str, Any]

# Steps back that are tried where the data decide, and how many rows each must leave.
MOST_AUTO_LAGS, ROWS_A_LAG = 6, 5
# Causes that a column is expected to have among all earlier steps, its own among them.
EXPECTED_PAST = 2.0
# Columns of which all may cause each within a step, and how many may where there are more, for curves.
FULL_CURVES, MOST_CANDIDATES_OF_CURVES = 10, 8


def open_series(table: Any, spec: FitSpec) -> Series:
    """The windows of a table, as the options ask for them."""
    _check(spec, table)
    options = SeriesOptions(
        lags=1 if spec.lags == "auto" else int(spec.lags or 1),
        time=spec.time,
        unit=spec.unit,
        season=spec.season,
        trend=spec.trend,
        resample=spec.resample,
        log=_logarithms(table, spec),
    )
    if spec.lags != "auto":
        return series_of(table, options)
    chosen, sentence = _lags_by_evidence(table, options)
    found = series_of(table, replace(options, lags=chosen))
    return replace(found, sentences=(*found.sentences, sentence))


def _check(spec: FitSpec, table: Any) -> None:
    if not isinstance(table, Dataset):
        raise ConfigError("lags need the rows in their order: read the table at once (streamed=False, --in-memory)")
    if spec.preset == "paper" or not takes_sets(spec.engine):
        name = spec.engine if isinstance(spec.engine, str) else type(spec.engine).__name__
        setting = "preset paper" if spec.preset == "paper" else f"engine {name}"
        raise ConfigError(f"{setting} takes rows as independent: use engine exact or orders with lags")
    if table.contexts is not None:
        raise ConfigError("contexts= is for independent rows; leave it out with lags, or name the column as unit=")
    if spec.target is not None:
        raise ConfigError(
            "target= asks what drives a column of independent rows; of a series ask effect() after the fit"
        )
    if spec.robust:
        raise ConfigError("robust=True takes random rows as independent; leave it out with lags")
    if spec.noise in ("equal", "unit"):
        raise ConfigError(f"noise {spec.noise} is for independent rows; with lags use noise='unequal' or leave it out")
    if isinstance(spec.model, str) and spec.model == "mlp":
        raise ConfigError("model mlp is trained by gradient and takes rows as independent; use another with lags")


def _logarithms(table: Dataset, spec: FitSpec) -> tuple[str, ...]:
    """Columns by their logarithm: as asked for, or where the steps are better described by it."""
    if spec.log is not None:
        return tuple(spec.log)
    if spec.model != "auto" or spec.resample is not None:
        return ()
    numbers = np.array([kind == "number" for kind in table.kinds])
    clock = clock_of(table, spec.time, spec.unit)
    season = spec.season if isinstance(spec.season, int) and spec.season > 1 else clock.season
    marked = lognormal_columns(table.values, numbers, clock, season)
    return tuple(name for name, own in zip(table.names, marked, strict=True) if own)


def _lags_by_evidence(table: Dataset, options: SeriesOptions) -> tuple[int, str]:
    """How many steps back the data support, by linear regressions on the same rows for every number."""
    clock = clock_of(table, options.time, options.unit) if options.resample is None else None
    shortest = table.n if clock is None else int(np.bincount(clock.units).min())
    most = max(1, min(MOST_AUTO_LAGS, (shortest - 2) // ROWS_A_LAG))
    wide = series_of(table, replace(options, lags=most))
    values = wide.table.values[~np.isnan(wide.table.values).any(axis=1)]
    d = wide.nodes
    if len(values) < ROWS_A_LAG * most or most == 1 or np.any(np.ptp(values, axis=0) == 0):
        return 1, "One step back was taken, as the rows are few."
    evidence = []
    for lags in range(1, most + 1):
        chance = lag_probability(d, lags)
        shape = (d * lags, d)
        odds, absent = np.full(shape, np.log(chance / (1 - chance))), np.full(shape, np.log1p(-chance))
        prior = NuisancePrior(odds, absent, np.zeros(shape, dtype=bool))
        score = summed_out(BGe().prepare(values[:, : d * (lags + 1)]), prior, 0.0)
        evidence.append(sum(score.score(node, ()) for node in range(d)))
    best = int(np.argmax(evidence)) + 1
    others = [value for place, value in enumerate(evidence, start=1) if place != best]
    lead = max(evidence) - max(others)
    return best, f"lags={best}: of 1 to {most} steps back it has the most evidence, by {lead:,.1f} nats."


def lag_probability(columns: int, lags: int) -> float:
    """The prior probability of an edge from an earlier step, where nobody gives one."""
    return min(0.5, EXPECTED_PAST / (columns * lags))


def edges_of_series(series: Series, spec: FitSpec, prior: GraphPrior, left_out: Any) -> EdgePrior:
    """The prior of all edges among the columns of windows: none into earlier steps."""
    d, wide = series.nodes, series.table.d
    chance = lag_probability(d, series.lags) if spec.prior is None else prior.edge_probability
    odds = np.full((wide, wide), np.log(chance / (1 - chance)))
    odds[:d, :d] = np.log(prior.edge_probability / (1 - prior.edge_probability))
    known: Any = spec.knowledge
    rules = rules_of_lags(
        known or None,
        series.names,
        series.lags,
        log_odds=odds,
        contemporaneous=spec.contemporaneous,
        left_out=left_out,
    )
    table = series.table
    if table.design is not None:
        always = table.design.always
        if (rules.required & always).any():
            source, target = (table.names[int(own)] for own in np.argwhere(rules.required & always)[0])
            raise ConfigError(f"the edge {source} -> {target} is required, but {target!r} was set in every row")
        rules = rules._replace(allowed=rules.allowed & ~always)
    edge_prior(d, prior.edge_probability, over=prior.over)  # refuses too many columns for a prior over graphs
    found = edge_prior(wide, prior.edge_probability, **rules._asdict())
    if prior.over == "graphs":
        absent = found.log_absent.copy()
        absent[:d, :d] = 0.0
        found = found._replace(log_absent=absent, over="graphs")
    return found


# Fits ------------------------------------------------------------------------------------------------------------


def fit_series(request: Request, model: Any, noise: Any, engine: Any) -> tuple[Outcome, Info]:
    """Fit windows of steps: a model that was asked for, or what kinds of columns and evidence say."""
    series = request.series
    assert series is not None
    table = series.consistent(request.rows_in_memory)
    request = request._replace(table=table, logarithm=np.zeros(table.d, dtype=bool))
    if model == "mixed" or isinstance(model, Mixed):
        outcome, info = fit_mixed(request, model, noise, engine)
    elif model == "auto" and noise is None and not request.standardise:
        outcome, info = _by_evidence(request, engine)
    else:
        outcome, info = _fit_scored(request, "linear" if model == "auto" else model, noise, engine)
    info["logarithm"] = list(series.logarithms)
    if series.logarithms:
        info["choice"]["sentences"].append(
            f"The logarithm of {listed(series.logarithms)} was taken, and effects are those on the logarithm: 0.01 is "
            "about one per cent."
        )
    return outcome, info


def _fit_scored(
    request: Request, model: Any, noise: Any, engine: Any, sentences: tuple[str, ...] = ()
) -> tuple[Outcome, Info]:
    """One fit to all windows, by a score that needs no search over descriptions."""
    if isinstance(model, str):
        spec = named_spec(model, noise)
        own = noise or FAMILIES[model].usual_noise
        name = {"name": model} | ({} if own is None else {"noise": own})
    else:
        spec, name = model, {"name": type(model).__name__}
    table = request.rows_in_memory
    scored = ScoredTable.prepare(table, spec, logarithm=np.zeros(table.d, dtype=bool), standardise=request.standardise)
    if scored.score.nuisance is not None:
        raise ConfigError("one noise variance of all columns is for independent rows; use noise='unequal' with lags")
    assert isinstance(scored.data, Dataset)
    score, said = summed(request, scored.score, scored.data), list(sentences)
    deadline = request.deadline
    if engine == "auto":
        choice = choose_engine(score, over=request.edges.over, seconds=request.seconds_left())
        engine, deadline = choice.engine, None if choice.is_quick else deadline
        if not score.linear and isinstance(engine, Orders):
            # Tables of curves take longer: the most promising causes within a step have to do.
            engine = Orders(full=FULL_CURVES, max_candidates=MOST_CANDIDATES_OF_CURVES)
        said.append(choice.sentence)
    elif isinstance(engine, str):
        engine = ENGINES[engine].spec()
    problem = Problem.of_score(
        searched_table(request, scored._replace(score=score)),
        seed=request.seed,
        edges=searched_edges(request),
        prior=request.prior,
    )
    outcome = run(
        METHODS[described(engine)["name"]],
        engine,
        problem,
        progress=request.progress,
        deadline=deadline,
        checkpointer=request.checkpointer.scope("series"),
        workers=request.workers,
    )
    outcome = with_all_columns(request, outcome, score)
    found = outcome.graph_posterior
    assert isinstance(found, SampledGraphs)
    outcome = outcome._replace(graph_posterior=replace(found, predictive=scored.predictive(None)))
    info: Info = {
        "engine": described(engine),
        "foreseen": None,
        "model": name | {"score": type(spec).__name__, **to_json(spec)},
        "logarithm": [],
        "choice": {"sentences": said},
    }
    return outcome, info


def _by_evidence(request: Request, engine: Any) -> tuple[Outcome, Info]:
    """Numbers: linear functions, or sums of smooth ones, by their evidence; the noise is normal in both."""
    within = request._replace(deadline=choosing_deadline(request))
    table = some_rows(request)
    if table.d > MOST_COLUMNS:
        said = (
            f"There are more than {MOST_COLUMNS} columns with all lags: functions are taken as linear, noise as normal."
        )
        return _fit_scored(request, "linear", None, engine, (said,))
    request.progress(Progress(0, 1, "comparing models"))
    linear = _searched(within, BGe(), table)
    lead = _lead_of_curves(request, table, linear)
    if lead > 0:
        left = within.seconds_left()
        if left is not None and left < 0:
            said = "The time limit left no time to compare curves: functions are taken as linear."
            return _fit_scored(request, "linear", None, engine, (said,))
        curved = _searched(within, AdditiveBasis(), table)
        lead = curved.log_evidence - linear.log_evidence
    name, spec_name = ("additive", "curves") if lead > 0 else ("linear", "linear functions")
    other = "linear functions" if lead > 0 else "curves"
    said = f"The data favour {spec_name} over {other}, by {abs(lead):,.1f} nats; noise is taken as normal."
    outcome, info = _fit_scored(request, name, None, engine, (said,))
    info["choice"]["log_evidence"] = {"linear": linear.log_evidence, "curves": linear.log_evidence + lead}
    return outcome, info


class _Searched(NamedTuple):
    """The best graph (d, d) that a greedy search finds, its score, and how probable the windows are by it, in the
    user's units."""

    graph: np.ndarray
    score: Any
    log_evidence: float


def _searched(request: Request, spec: ScoreSpec, table: Dataset) -> _Searched:
    score = summed(request, prepare_score(spec, table.values, table.interventions), table)
    rng = np.random.default_rng(request.seed)
    go_on = in_time(request.deadline)
    total, graph = climb(score, searched_edges(request), rng, max_parents=MAX_PARENTS, go_on=go_on)
    return _Searched(graph, score, total + score.log_jacobian)


def _lead_of_curves(request: Request, table: Dataset, linear: _Searched) -> float:
    """What curves gain where each column has its causes in the best linear graph; where that is nothing, no other
    graphs need be tried."""
    curved = prepare_score(AdditiveBasis(), table.values, table.interventions)
    straight = prepare_score(BGe(), table.values, table.interventions)
    lead, nodes = 0.0, linear.score.nodes
    for node in range(nodes):
        parents = np.flatnonzero(linear.graph[:, node]).tolist()
        likely = next(iter(linear.score.nuisance_posteriors(node, [parents]))).marginals() > 0.5
        every = [*parents, *(nodes + np.flatnonzero(likely)).tolist()]
        lead += curved.score(node, every) - straight.score(node, every)
    return lead
