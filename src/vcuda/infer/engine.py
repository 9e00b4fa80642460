"""What an engine is: a problem goes in, a state is advanced step by step, and an outcome comes out.

An :class:`Engine` holds what does not change during a fit: options, problem, compiled programs. Everything that changes
is in its state, a tree of arrays and numbers (a NamedTuple), and ``advance`` is a pure function of it. So
:mod:`vcuda.infer.driver` can do the rest once for all engines and baselines: progress, time limits, interrupts,
checkpoints, workers.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from vcuda.dags.base import DagPrior
from vcuda.data.dataset import Dataset
from vcuda.data.scaling import Scaling
from vcuda.data.streaming import StreamedTable
from vcuda.infer.checkpoint import NO_CHECKPOINT, Checkpointer, fingerprint, remembering
from vcuda.infer.edge_prior import EdgePrior, edge_prior
from vcuda.infer.progress import Clock
from vcuda.infer.scored import ScoredTable
from vcuda.infer.workers import SERIAL, OnProgress, Workers, no_progress
from vcuda.models.functional.base import FunctionalModel
from vcuda.posterior.posterior import Outcome, Status

State = TypeVar("State")
PAPER_PRIOR = DagPrior(edge_probability=0.1)


class Problem(NamedTuple):
    """What an engine is asked to solve.

    ``table`` is in the units in which it is fitted; ``units`` leads there from the user's, and is None where they are
    the same. Engines on local scores take ``scored``, the table with its score; those that train functions take a
    ``model``; baselines have models and priors of their own.
    """

    table: Dataset | StreamedTable
    seed: int
    prior: DagPrior = PAPER_PRIOR
    edges: EdgePrior | None = None
    units: Scaling | None = None
    scored: ScoredTable | None = None
    model: FunctionalModel | None = None

    @classmethod
    def of_score(cls, scored: ScoredTable, *, seed: int, edges: EdgePrior, prior: DagPrior = PAPER_PRIOR) -> Problem:
        """A table with a score; engines on scores read ``edges`` alone, which follow from the ``prior`` in a fit."""
        return cls(scored.data, seed, prior, edges, scored.units, scored)

    @property
    def rows(self) -> Dataset:
        """The table, for engines that need its rows."""
        assert isinstance(self.table, Dataset)
        return self.table

    def edge_prior(self) -> EdgePrior:
        """The prior of every edge: that of ``edges``, or the one probability of ``prior`` for all."""
        return edge_prior(self.table.d, self.prior.edge_probability) if self.edges is None else self.edges

    def fingerprint(self) -> str:
        """Equal for equal problems; scores and units follow from the table and the options of the fit."""
        return fingerprint(self.table.fingerprint, self.seed, self.prior, self.edges, self.model)


class Resources(NamedTuple):
    """What an engine may use beside its state: the clock, stored results of expensive steps, and workers."""

    clock: Clock
    checkpointer: Checkpointer = NO_CHECKPOINT
    workers: Workers = SERIAL


class Plan(NamedTuple):
    """What the driver asks of one call of ``advance``: at most so many steps, which take about a second.

    ``workers`` other than this process are given only to engines whose :class:`Info` offers restarts to run apart;
    ``on_progress`` is then called while their results are awaited.
    """

    steps: int = 1
    workers: Workers = SERIAL
    on_progress: OnProgress = no_progress


class Info(NamedTuple):
    """What one call of ``advance`` did.

    ``steps`` were taken, 0 for host work that says nothing about the pace. ``done`` of ``total`` and ``detail`` are
    what the user sees (a detail that takes time to write is a function of nothing); ``report`` asks to show them now
    rather than once a second. Where more than one restart can go
    on by itself, ``apart`` is their number, and ``left`` the most steps that are left.
    """

    steps: int
    done: float
    total: float
    detail: str | Callable[[], str]
    report: bool = False
    apart: int = 1
    left: int = 0


class Engine(Generic[State]):
    """A method on one problem; a new engine implements ``init``, ``advance``, ``is_done`` and ``finish``."""

    # Whether the driver stores the state; an engine without arrays for a state stores its own steps, or none.
    stores_state: ClassVar[bool] = True

    def __init__(self, spec: Any, problem: Problem, resources: Resources) -> None:
        self.spec, self.problem, self.resources = spec, problem, resources

    @staticmethod
    def precision() -> AbstractContextManager[Any]:
        """Everything runs inside this: ``single_precision()`` or ``double_precision()`` where JAX is used."""
        return nullcontext()

    def init(self) -> State:
        """The state before the first step."""
        raise NotImplementedError

    def advance(self, state: State, plan: Plan) -> tuple[State, Info]:
        """A later state, about a second away at most; the given one is not changed."""
        raise NotImplementedError

    def is_done(self, state: State) -> bool:
        """Whether there is nothing left to do."""
        raise NotImplementedError

    def has_result(self, state: State) -> bool:
        """Whether an interrupted fit can be finished from here; if not, the interrupt is passed on."""
        return True

    def finish(self, state: State, stopped: str | None) -> Outcome:
        """The outcome; ``stopped`` says what ended the fit early, as in "the time limit"."""
        raise NotImplementedError


class ScoredEngine(Engine[State]):
    """An engine on a local score; ``table`` is the problem's, with the scores that a resumed fit knows from before."""

    def __init__(self, spec: Any, problem: Problem, resources: Resources) -> None:
        super().__init__(spec, problem, resources)
        assert problem.scored is not None
        score = remembering(problem.scored.score, resources.checkpointer)
        self.table = problem.scored._replace(score=score)


def interrupted(stopped: str | None, after: str) -> Status | None:
    """The status of a fit that was stopped after so much work; None if it was not."""
    return None if stopped is None else Status("interrupted", f"Stopped by {stopped} after {after}: not finished.")
