"""The one loop around all engines: when it stops, what it reports, what it stores and what it hands to workers."""

import time
from typing import NamedTuple

import numpy as np
import pytest

import vcuda
from vcuda.baselines import BASELINES
from vcuda.data.scaling import Scaling
from vcuda.infer import restarts
from vcuda.infer.checkpoint import generator_of, generator_state
from vcuda.infer.checkpoint_files import Checkpoint, CheckpointFiles
from vcuda.infer.driver import run
from vcuda.infer.engine import Engine, Info, Plan, Problem, interrupted
from vcuda.infer.engines import ENGINES
from vcuda.infer.progress import Clock, Pace, Progress, Remaining
from vcuda.infer.workers import Serial
from vcuda.posterior.point import ScoredGraphs
from vcuda.posterior.posterior import Outcome, Status
from vcuda.posterior.samples import GraphSamples


class Walk(NamedTuple):
    """How far it went, after so many steps, by this generator."""

    place: float
    taken: int
    generator: np.ndarray


class Walking(Engine[Walk]):
    """A random walk of ``spec["steps"]`` steps, each of ``spec["seconds"]``; it stands for any method."""

    plans: list[Plan]
    sleep = staticmethod(time.sleep)

    def init(self):
        Walking.plans = []
        return Walk(0.0, 0, generator_state(np.random.default_rng(self.problem.seed)))

    def is_done(self, state):
        return state.taken >= self.spec["steps"]

    def has_result(self, state):
        return state.taken >= self.spec.get("needs", 0)

    def advance(self, state, plan):
        Walking.plans.append(plan)
        steps = min(plan.steps, self.spec["steps"] - state.taken)
        self.sleep(steps * self.spec["seconds"])
        rng = generator_of(state.generator)
        later = Walk(state.place + float(sum(rng.normal(size=steps))), state.taken + steps, generator_state(rng))
        return later, Info(steps, later.taken, self.spec["steps"], "walking", apart=3, left=1_000_000)

    def finish(self, state, stopped):
        table = self.problem.table
        nothing = np.zeros((table.d, table.d))
        graphs = ScoredGraphs(GraphSamples.from_dense(table.names, nothing > 0), nothing)
        status = interrupted(stopped, f"{state.taken} steps") or Status("ok", "It arrived.")
        return Outcome(graphs, status, {"place": state.place, "taken": state.taken}, {})


def problem(seed=0):
    return Problem(vcuda.as_dataset(np.random.default_rng(0).normal(size=(20, 3))), seed)


class Walks(NamedTuple):
    """In place of an entry of ENGINES."""

    engine: type = Walking


def walk(*, steps=20, seconds=0.0, needs=0, seed=0, **options):
    return run(Walks(), {"steps": steps, "seconds": seconds, "needs": needs}, problem(seed), **options)


class PretendedTime:
    """A clock that only ``sleep`` moves, so that tests of time do not depend on how busy the machine is."""

    def __init__(self):
        self.now = 1000.0

    def sleep(self, seconds):
        self.now += seconds

    def monotonic(self):
        return self.now

    perf_counter = monotonic


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    pretended = PretendedTime()
    for module in ("driver", "progress", "restarts"):
        monkeypatch.setattr(f"vcuda.infer.{module}.time", pretended)
    monkeypatch.setattr(Walking, "sleep", staticmethod(pretended.sleep))
    return pretended


@pytest.fixture
def every_step(monkeypatch):
    """Every step is a chunk of its own, and every chunk is reported."""
    monkeypatch.setattr("vcuda.infer.progress.SECONDS_A_CHUNK", 0.0)


def test_chunks_grow_until_they_fill_a_second():
    outcome = walk(steps=5000)
    assert outcome.status.code == "ok"
    lengths = [plan.steps for plan in Walking.plans]
    assert lengths[:3] == [1, 1, 8]
    assert outcome.diagnostics["seconds_training"] >= 0
    assert walk(steps=5000).diagnostics["place"] == outcome.diagnostics["place"]


def test_a_time_limit_is_kept_to_a_step(clock):
    """Chunks of 33 steps fill a second; the last is cut short, so the limit is missed by one step and not by 33."""
    begun = clock.now
    outcome = walk(steps=10_000, seconds=0.03, deadline=begun + 2.5)
    assert "the time limit" in outcome.status.sentence
    assert 2.5 < clock.now - begun <= 2.5 + 0.03
    assert max(plan.steps for plan in Walking.plans) == 33


def test_a_limit_that_has_passed_leaves_one_step(clock):
    assert walk(steps=5, deadline=clock.now - 1).diagnostics["taken"] == 1


def test_what_is_done_by_the_deadline_is_not_interrupted(clock):
    assert walk(steps=1, deadline=clock.now - 1).status.code == "ok"


@pytest.mark.usefixtures("every_step")
def test_an_interrupt_keeps_what_is_done():
    def stop(progress):
        if progress.done == 7:
            raise KeyboardInterrupt

    outcome = walk(progress=stop)
    assert outcome.status == Status("interrupted", "Stopped by the user after 7 steps: not finished.")
    assert outcome.diagnostics["place"] == walk(steps=7).diagnostics["place"]
    with pytest.raises(KeyboardInterrupt):
        walk(progress=stop, needs=8)


@pytest.mark.usefixtures("every_step")
def test_an_interrupt_within_a_step_falls_back_to_the_state_before_it(monkeypatch):
    advance = Walking.advance

    def pressed(self, state, plan):
        found = advance(self, state, plan)
        if state.taken == 4:
            raise KeyboardInterrupt
        return found

    monkeypatch.setattr(Walking, "advance", pressed)
    assert walk().diagnostics["taken"] == 4


@pytest.mark.usefixtures("every_step")
def test_the_seconds_left_are_reported():
    seen = []
    walk(steps=10, seconds=0.02, progress=seen.append)
    assert [step.done for step in seen] == list(range(1, 11))
    assert seen[0].seconds_left is None, "nothing is known of the pace yet"
    assert seen[1].seconds_left == pytest.approx(8 * 0.02)
    assert seen[-1].seconds_left == 0


def test_the_time_left_is_of_the_whole_work_and_not_of_its_last_part(clock):
    """Twelve parts of a second each, whose steps begin anew within the part; before them ten seconds in two steps."""
    remaining, total = Remaining(), 22.0
    assert remaining.seconds(Progress(0, total, "comparing")) is None
    clock.sleep(0.5)
    assert remaining.seconds(Progress(0.1, total, "comparing")) is None, "too early to tell: the first step is slow"
    clock.sleep(9.5)
    assert remaining.seconds(Progress(10, total, "comparing")) == pytest.approx(12)
    for part in range(12):
        for step in ("scoring", "drawing"):
            assert remaining.seconds(Progress(10 + part, total, step)) == pytest.approx(12 - part, abs=1.6)
            clock.sleep(0.5)
            assert remaining.seconds(Progress(10 + part + 1, total, step)) == pytest.approx(11 - part, abs=1.6)
    assert remaining.seconds(Progress(22, total, "done")) == 0
    assert remaining.seconds(Progress(0, 1, "other work")) is None
    clock.sleep(100)
    assert remaining.seconds(Progress(0.01, 1, "other work")) == pytest.approx(9900), "said late rather than never"


def test_the_seconds_left_end_at_the_deadline(clock):
    seen = []
    limited = Clock(seen.append, clock.now + 2.0)
    limited.report(1, 1e9, "")
    clock.sleep(0.5)
    limited.report(2, 1e9, "")
    assert seen[1].seconds_left == 1.5


@pytest.mark.usefixtures("every_step")
def test_a_resumed_walk_goes_on_where_it_was(tmp_path, monkeypatch):
    monkeypatch.setattr("vcuda.infer.checkpoint_files.PATIENCE", 0.0)
    request = {"arguments": {}, "versions": {}}

    def die(progress):
        if progress.done == 12:
            raise SystemExit

    with pytest.raises(SystemExit):
        walk(progress=die, checkpointer=CheckpointFiles(Checkpoint(tmp_path), request))
    resumed = walk(checkpointer=CheckpointFiles(Checkpoint(tmp_path, resume=True), request))
    # The last chunk before the end may not have been written, as writing takes a small share of the time.
    assert len(Walking.plans) < 20
    assert resumed.diagnostics["place"] == walk().diagnostics["place"]
    other = walk(seed=1, checkpointer=CheckpointFiles(Checkpoint(tmp_path, resume=True), request))
    assert other.diagnostics["place"] == walk(seed=1).diagnostics["place"], "another problem's state was taken up"


def test_restarts_go_to_workers_once_it_is_worth_it(monkeypatch):
    monkeypatch.setattr(restarts, "WORTH_SECONDS", 0.0)
    several = type("Several", (Serial,), {"count": 2})()
    walk(steps=200, seconds=1e-3, workers=several)
    places = [plan.workers is several for plan in Walking.plans]
    assert places[:2] == [False, False], "the pace here is known after the second chunk only"
    assert any(places)


def test_no_steps_say_nothing_of_the_pace():
    pace = Pace()
    pace.note(0, 5.0)
    pace.note(1, 30.0)  # compiled
    assert (pace.steps, pace.seconds, pace.seconds_a_step) == (1, 0.0, None)
    pace.note(2, 0.5)
    assert (pace.steps, pace.seconds, pace.seconds_a_step) == (4, 0.5, 0.25)


@pytest.mark.parametrize("name", [*ENGINES, *BASELINES])
def test_every_engine_is_one(name):
    method = (ENGINES | BASELINES)[name]
    assert issubclass(method.engine, Engine)
    assert method.engine.__doc__
    for part in ("init", "is_done", "finish"):
        assert getattr(method.engine, part) is not getattr(Engine, part)


def test_units_go_through_a_problem():
    units = Scaling(np.zeros(3), np.ones(3))
    outcome = run(BASELINES["empty"], BASELINES["empty"].spec(), problem()._replace(units=units))
    assert outcome.graph_posterior.units is units
