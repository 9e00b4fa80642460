"""The ways from a request to an outcome: by local scores, by gradient, or by a baseline."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from vcuda.baselines import BASELINES, BaselineSpec
from vcuda.baselines.dibs import Dibs
from vcuda.dags.base import DagPrior, GraphPrior
from vcuda.data.dataset import Dataset
from vcuda.data.scaling import Scaling
from vcuda.data.series import Series
from vcuda.data.streaming import StreamedTable
from vcuda.data.streaming.blocks import OnProgress
from vcuda.errors import ConfigError
from vcuda.fitting.parts import Careful
from vcuda.fitting.spec import FitSpec
from vcuda.fitting.targets import with_reference, with_targets
from vcuda.fitting.upstream import with_more_graphs
from vcuda.infer.checkpoint import NO_CHECKPOINT, Checkpointer, cached, fingerprint
from vcuda.infer.driver import run
from vcuda.infer.edge_prior import EdgePrior
from vcuda.infer.engine import Problem
from vcuda.infer.engines import ENGINES
from vcuda.infer.exact import Exact
from vcuda.infer.method import Method
from vcuda.infer.orders import Orders
from vcuda.infer.progress import Progress, ProgressCallback
from vcuda.infer.scored import ScoredTable, rescaled
from vcuda.infer.selection import density
from vcuda.infer.selection.cost import Cost, check_cost
from vcuda.infer.selection.engines import choose_engine
from vcuda.infer.selection.models import Choice, choose_model
from vcuda.infer.straight_through import StraightThrough
from vcuda.infer.variational import Variational
from vcuda.infer.workers import SERIAL, Workers
from vcuda.memory import memory_available
from vcuda.models import FAMILIES, MODELS
from vcuda.models.functional.base import FunctionalModel
from vcuda.models.protocol import Noise, ScoreSpec
from vcuda.posterior.posterior import Outcome
from vcuda.specs import to_json

# The options of any engine or baseline.
Engine = Exact | Orders | Variational | StraightThrough | BaselineSpec
METHODS: dict[str, Method] = {**ENGINES, **BASELINES}
# A fit that takes less is not announced.
WORTH_TELLING = Cost(10.0, 1.0)
# The part of a time limit after which no further model is compared.
CHOOSING_SHARE = 0.3
# Parts of the rows whose answers are averaged: up to so many columns, and of more.
SUBSAMPLES = {3: 48, 6: 24}
SUBSAMPLES_OF_MORE = 12
# What another method may take that is asked for by name, where no time limit says so.
METHOD_SECONDS = 300.0


def subsamples_of(columns: int) -> int:
    """Parts of the rows whose answers are averaged: more where each takes little time."""
    return next((count for most, count in SUBSAMPLES.items() if columns <= most), SUBSAMPLES_OF_MORE)


class Request(NamedTuple):
    """What was asked for (``spec``), and what changes while a table is fitted: ``edges`` is the prior of every edge,
    ``workers`` is where parts of the work may be done, ``parts`` is the number of subsamples that are averaged,
    ``imputations`` is the number of imputed tables of which this is one, ``careful`` says that the rows break every
    model, and how far apart they must be to count as independent, ``series`` that the rows are windows of a series,
    ``learns_density`` that nobody said how probable edges are, ``odds_times`` how many times the usual odds of an edge
    the table supports, ``scored`` holds what a careful fit of the same table need not score again."""

    table: Dataset | StreamedTable
    spec: FitSpec
    edges: EdgePrior
    logarithm: np.ndarray | None
    standardise: bool
    seed: int
    progress: ProgressCallback
    deadline: float | None
    checkpointer: Checkpointer = NO_CHECKPOINT
    workers: Workers = SERIAL
    parts: int = SUBSAMPLES_OF_MORE
    imputations: int = 1
    careful: Careful | None = None
    series: Series | None = None
    learns_density: bool = False
    odds_times: int = 1
    scored: dict[Any, Any] | None = None

    @property
    def prior(self) -> GraphPrior:
        assert isinstance(self.spec.prior, GraphPrior)
        return self.spec.prior

    def prepared(self, spec: ScoreSpec) -> ScoredTable:
        """The table with a score that was asked for."""
        marked = np.zeros(self.table.d, dtype=bool) if self.logarithm is None else self.logarithm
        if isinstance(self.table, Dataset):
            return ScoredTable.prepare(
                self.table, spec, logarithm=marked, standardise=self.standardise, changes=self.changes
            )
        return ScoredTable.stream(
            self.table,
            spec,
            logarithm=marked,
            standardise=self.standardise,
            changes=self.changes,
            on_progress=reading(self.progress),
            workers=self.workers,
        )

    @property
    def knowledge(self) -> Any:
        """What is known of the causes; None where nothing is."""
        return self.spec.knowledge

    @property
    def changes(self) -> Any:
        """What environments may change."""
        return self.spec.changes

    @property
    def rows_in_memory(self) -> Dataset:
        """The table, or the sample of one that is not in memory."""
        return self.table if isinstance(self.table, Dataset) else self.table.sample_to_fit()

    def by_density(self) -> list[Request]:
        """Requests that expect more and more edges, where nobody said how many there are."""
        if not (self.learns_density and isinstance(self.prior, DagPrior) and self.table.d <= density.MOST_COLUMNS):
            return [self]
        return [
            self.expecting(times)._replace(checkpointer=self.checkpointer.scope(f"{times} times the odds of an edge"))
            for times in density.TIMES
        ]

    def expecting(self, times: int) -> Request:
        """The request under a prior with so many times the odds of every edge."""
        if times == 1:
            return self._replace(learns_density=False)
        assert isinstance(self.prior, DagPrior)
        spec = replace(self.spec, prior=density.denser(self.prior, times))
        return self._replace(edges=self.edges.denser(times), spec=spec, odds_times=times, learns_density=False)

    def seconds_left(self) -> float | None:
        return None if self.deadline is None else self.deadline - time.monotonic()


def reading(progress: ProgressCallback) -> OnProgress:
    """Passes over files, reported as progress."""
    return lambda step: progress(Progress(step.share, 1, f"reading, {step.rows:,} rows so far"))


def fit_scored(
    request: Request, model: Any, noise: Noise | None, engine: str | Engine
) -> tuple[Outcome, dict[str, Any]]:
    chosen, score_spec, info = _score(request, model, noise, engine)
    if engine == "auto":
        choice = choose_engine(chosen.score, over=request.edges.over, seconds=_seconds_for_engine(request))
        engine = choice.engine
        if choice.is_quick:
            request = request._replace(deadline=None)
        info["choice"]["sentences"].append(choice.sentence)
    elif isinstance(engine, str):
        engine = ENGINES[engine].spec()
    engine = with_more_graphs(engine, request.knowledge)
    cost = _foreseen(request, chosen, engine)
    problem = Problem.of_score(chosen, seed=request.seed, edges=request.edges, prior=request.prior)
    outcome = with_targets(_run(request, engine, problem, info), chosen.score)
    outcome = with_reference(outcome, chosen, score_spec)
    note = _varsortability_note(chosen, request.standardise, outcome)
    if note:
        info["choice"]["sentences"].append(note)
    return outcome, {"engine": described(engine), "foreseen": cost and cost._asdict()} | info


def _foreseen(request: Request, chosen: ScoredTable, engine: Any) -> Cost | None:
    """The expected cost of the fit: reported before it begins if it is large, refused if the machine cannot meet it."""
    cost = check_cost(
        engine,
        chosen.score,
        over=request.edges.over,
        available=memory_available(),
        seconds=request.seconds_left(),
    )
    if cost is not None and (cost.seconds > WORTH_TELLING.seconds or cost.gigabytes > WORTH_TELLING.gigabytes):
        request.progress(Progress(0, 1, f"{cost.in_words()} foreseen"))
    return cost


def _seconds_for_engine(request: Request) -> float | None:
    """The seconds that are left for the engine; those that were left before the fit was resumed, since they decided
    which engine it is."""
    left = request.seconds_left()
    if left is None:
        return None
    return float(cached(request.checkpointer, "seconds left", "", lambda: {"seconds": np.array(left)})["seconds"])


def _checkpointer_of(request: Request, engine: Any, info: dict[str, Any]) -> Checkpointer:
    """The part of the checkpoint that belongs to an engine and a model of the table."""
    chosen = fingerprint(engine, sorted(info["model"].items()), info["logarithm"], request.standardise, request.prior)
    return request.checkpointer.scope(f"engine {chosen[:8]}")


def _score(
    request: Request, model: Any, noise: Noise | None, engine: str | Engine
) -> tuple[ScoredTable, ScoreSpec, dict[str, Any]]:
    """The table with its score, chosen or as asked for, the spec of it, and what the run records about it."""
    if isinstance(model, str) and model == "auto":
        choice = _choose(request, noise, engine)
        candidate, scored = choice.candidate, choice.scored
        spec, name, reasons = candidate.spec, {"name": candidate.model, "noise": candidate.noise}, choice.to_dict()
        if isinstance(request.table, StreamedTable):
            rows = f"{request.table.sample.n:,} of {request.table.n:,} rows"
            reasons["sentences"].append(f"Model, noise and logarithms were chosen on {rows}, drawn at random.")
            scored = request._replace(logarithm=scored.units.logarithm).prepared(spec)
    elif isinstance(model, str):
        spec, reasons = named_spec(model, noise), {"sentences": []}
        own = noise or FAMILIES[model].usual_noise
        name = {"name": model} | ({} if own is None else {"noise": own})
        scored = request.prepared(spec)
    else:
        spec, name, reasons = model, {"name": type(model).__name__}, {"sentences": []}
        scored = request.prepared(spec)
    described = name | {"score": type(spec).__name__, **to_json(spec)}
    logarithm = [name for name, taken in zip(request.table.names, scored.units.logarithm, strict=True) if taken]
    return scored, spec, {"model": described, "logarithm": logarithm, "choice": reasons}


def named_spec(model: str, noise: Noise | None) -> ScoreSpec:
    """The score of a model given by name."""
    if model not in FAMILIES:
        raise ConfigError(f"this engine takes model {', '.join(FAMILIES)}, not {model!r}")
    return FAMILIES[model].spec_for(noise)


def _choose(request: Request, noise: Noise | None, engine: str | Engine) -> Choice:
    """The model by its evidence, within its share of the time."""
    named = ENGINES.get(engine) if isinstance(engine, str) else None
    kind = named.spec if named else type(engine)
    models = [name for name in FAMILIES if _takes_slow_models(request, kind, engine) or not _is_slow(name)]
    return choose_among(request, models, noise, engine)


def choose_among(request: Request, models: Sequence[str], noise: Noise | None, engine: str | Engine) -> Choice:
    """One of some models by its evidence, within its share of the time."""
    share = None if request.spec.time_limit is None else time.monotonic() + CHOOSING_SHARE * request.spec.time_limit
    return choose_model(
        request.rows_in_memory,
        request.edges,
        models=models,
        noise=noise,
        logarithm=request.logarithm,
        positive=None if isinstance(request.table, Dataset) else request.table.positive,
        standardise=request.standardise,
        seed=request.seed,
        progress=request.progress,
        deadline=share,
        checkpointer=request.checkpointer.scope("choice"),
    )


def _is_slow(name: str) -> bool:
    return any(candidate.slow for candidate in FAMILIES[name].candidates)


def _takes_slow_models(request: Request, kind: Any, engine: Any) -> bool:
    """Whether a slow model may be chosen: not by engines that have none, nor for a table that stays on disk.

    By gradient "nonlinear" is an MLP, whichever model the evidence has it from.
    """
    return isinstance(request.table, Dataset) and (kind in (Exact, Orders) or engine == "auto")


def fit_by_gradient(
    request: Request, model: Any, noise: Noise | None, engine: str | Engine, preset: str
) -> tuple[Outcome, dict[str, Any]]:
    logarithm, reasons = request.logarithm, _no_reasons()
    if isinstance(model, str):
        model, noise, logarithm, reasons = _named_model(request, model, noise, engine, preset)
    functional = _functional(model, noise, preset)
    chosen = _straight_through(engine, functional, preset, request.table.n)
    if request.standardise:
        chosen = replace(chosen, scaling="columns")
    # The engine standardises by itself, and its spec says so.
    table, units, marked = _rescaled(request._replace(standardise=False), logarithm)
    info = {"model": to_json(functional), "logarithm": marked}
    assert isinstance(request.prior, DagPrior)  # fit refuses others
    problem = Problem(table, request.seed, request.prior, request.edges, units, model=functional)
    outcome = _run(request, chosen, problem, info)
    return outcome, {"engine": described(chosen), **info, "choice": reasons}


def _varsortability_note(scored: ScoredTable, standardise: bool, outcome: Outcome) -> str | None:
    """Said when equal noise was used on raw scales: the columns' units then help to decide directions."""
    if standardise or not scored.score.tells_direction:
        return None
    probabilities = outcome.graph_posterior.edge_probabilities()
    rising = scored.data.scale[:, None] < scored.data.scale
    total = float(probabilities.sum())
    if total < 0.5:
        return None
    share = float(probabilities[rising].sum()) / total
    return (
        f"Equal noise reads directions from the variances of the columns: {share:.0%} of the expected edges go from a "
        "smaller to a larger one. If the units of the columns are arbitrary, use unequal noise instead."
    )


def fit_baseline(
    request: Request, model: Any, engine: str | BaselineSpec, preset: str
) -> tuple[Outcome, dict[str, Any]]:
    """Run another method; given by name, preset ``paper`` is the authors' program and ``default`` the method as its own
    paper means it."""
    chosen, reasons, logarithm = engine, _no_reasons(), request.logarithm
    own: dict[str, Any] = {"name": "its own"}
    if isinstance(chosen, str):
        kind: type[BaselineSpec] = BASELINES[chosen].spec
        changes: dict[str, Any] = {}
        if kind.models:
            model, _, logarithm, reasons = _named_model(request, model, None, chosen, preset)
            changes, own = kind.models[model], {"name": model}
        chosen = kind.reference(**changes) if preset == "paper" else kind.corrected(**changes)
        if preset != "paper" and isinstance(chosen, Dibs):
            chosen = _in_minutes(request, chosen, reasons["sentences"])
    table, units, marked = _rescaled(request, logarithm)
    info = {"model": own, "logarithm": marked}
    outcome = _run(request, chosen, Problem(table, request.seed, units=units), info)
    return outcome, {"engine": described(chosen), **info, "choice": reasons}


def _run(request: Request, engine: Any, problem: Problem, info: dict[str, Any]) -> Outcome:
    """Run an engine or a baseline; ``info`` names the model, for the part of the checkpoint that belongs to both."""
    return run(
        METHODS[_name(engine)],
        engine,
        problem,
        progress=request.progress,
        deadline=request.deadline,
        checkpointer=_checkpointer_of(request, engine, info),
        workers=request.workers,
    )


def _in_minutes(request: Request, full: Dibs, sentences: list[str]) -> Dibs:
    """The spec, smaller where it would take hours that nobody asked for."""
    seconds = METHOD_SECONDS if request.spec.time_limit is None else request.spec.time_limit
    chosen = full.within(seconds, rows=request.rows_in_memory.n, columns=request.table.d)
    if chosen != full:
        sentences.append(
            f"DiBS has {chosen.particles} particles, {chosen.samples} sampled graphs and {chosen.steps:,} steps, so "
            f"that this fit ends in minutes; a longer time limit allows up to {full.particles}, {full.samples} and "
            f"{full.steps:,}."
        )
    return chosen


def _named_model(
    request: Request, model: str, noise: Noise | None, engine: Any, preset: str
) -> tuple[str, Noise | None, np.ndarray | None, dict[str, Any]]:
    """``linear`` or ``mlp``, with its noise, the columns taken by their logarithm, and the reasons: as asked for, or as
    the evidence has it."""
    if model != "auto":
        return model, noise, request.logarithm, _no_reasons()
    if preset == "paper":
        return "linear", noise, request.logarithm, _no_reasons()
    choice = _choose(request, noise, engine)
    if choice.candidate.model == "linear":
        return "linear", choice.candidate.noise, choice.scored.units.logarithm, choice.to_dict()
    return "mlp", noise, choice.scored.units.logarithm, choice.to_dict()


def _no_reasons() -> dict[str, Any]:
    return {"sentences": []}


def _rescaled(request: Request, logarithm: np.ndarray | None) -> tuple[Dataset, Scaling, list[str]]:
    """The table that is fitted, the way to it, and the names of the columns taken by their logarithm."""
    marked = np.zeros(request.table.d, dtype=bool) if logarithm is None else logarithm
    table, units = rescaled(request.rows_in_memory, logarithm=marked, standardise=request.standardise)
    return table, units, [name for name, taken in zip(request.table.names, marked, strict=True) if taken]


def described(engine: Any) -> dict[str, Any]:
    return {"name": _name(engine), **to_json(engine)}


def _name(engine: Any) -> str:
    return next(name for name, method in METHODS.items() if isinstance(engine, method.spec))


def _functional(model: str | FunctionalModel, noise: Noise | None, preset: str) -> FunctionalModel:
    if not isinstance(model, str):
        return model
    if model not in MODELS:
        raise ConfigError(
            f"engine straight-through takes model {' or '.join(MODELS)}, not {model!r}; use engine exact or orders"
        )
    if preset == "paper":
        return MODELS[model](noise=noise or "unit", bias=False)
    return MODELS[model](noise=noise or "unequal")


def _straight_through(engine: str | Engine, model: FunctionalModel, preset: str, rows: int) -> StraightThrough:
    if isinstance(engine, StraightThrough):
        return engine
    if preset == "paper":
        return StraightThrough.paper(batch_size=64 if model.name == "linear" else 256)
    return StraightThrough.for_rows(rows)
