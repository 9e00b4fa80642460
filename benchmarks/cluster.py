"""A local Dask cluster against one process: is the posterior the same, and what do the workers gain?

Four measurements on fresh data sets, of nonlinear functions but for the last. "tables": the score tables of a Gaussian
process for the candidate parents of all columns, in one process and on the workers. "fit": a whole fit by the orders
engine, on the workers first, so that what is compiled counts against them. "killed": the same fit again, and while the
workers are at the middle one of its requests one of them is killed. "restarts": a fit of a linear model by the
variational engine with two restarts, on the workers first. Everything must be equal in every bit. Seconds are those
of the clock; the processor's stand in the lines.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from threading import Timer
from typing import Any

import numpy as np

import vcuda
from benchmarks.problems import Columns, Source, problem
from benchmarks.records import Line, Records, markdown
from vcuda.cluster import DaskWorkers
from vcuda.dags.base import DagPrior
from vcuda.data.simulate import GraphFamily, Mechanism
from vcuda.errors import ConvergenceWarning
from vcuda.infer.blas import one_blas_thread
from vcuda.infer.edge_prior import edge_prior
from vcuda.infer.orders.candidates import first_candidates
from vcuda.infer.orders.lazy_tables import foresee_tables, screen_of, with_lazy_tables
from vcuda.infer.orders.score_tables import build_tables
from vcuda.infer.orders.tables import ParentTables
from vcuda.infer.prefetch import Prefetch
from vcuda.infer.workers import SERIAL, Workers
from vcuda.models.gaussian_process import GaussianProcess

SAMPLED = {"sweeps": 300, "max_sweeps": 300}
TRAINED = vcuda.Variational(steps=300, restarts=2)
# After a request is sent: the workers are in the middle of it.
SECONDS_BEFORE_DEATH = 0.1


@dataclass(frozen=True)
class Case:
    """One measurement, in words and numbers that go into its line."""

    kind: str
    nodes: int
    rows: int
    workers: int
    index: int = 0
    graph: GraphFamily = "er"
    source: Source = "fresh"
    mechanism: Mechanism = "gp"
    columns: Columns = "raw"

    @property
    def edges(self) -> int:
        return self.nodes


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    began = time.perf_counter()
    found = work()
    return found, time.perf_counter() - began


class Processors:
    """What this process and the workers have used of their processors, which a busy machine does not change."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.here, self.there = self._now()

    def used(self, name: str) -> dict[str, Any]:
        """Seconds since the last time: of this process, and of each worker that has not been replaced."""
        here, there = self._now()
        workers = [round(seconds - self.there.get(worker, 0.0), 2) for worker, seconds in there.items()]
        seen = {f"processor_{name}": here - self.here, f"processor_{name}_workers": workers}
        self.here, self.there = here, there
        return seen

    def _now(self) -> tuple[float, dict[str, float]]:
        return time.process_time(), self.client.run(time.process_time)


def first_tables(values: np.ndarray, workers: Workers, started: Callable[[], None]) -> tuple[ParentTables, float]:
    """The tables with which a search begins, and how long they took; the candidates, found before, are not counted."""
    nodes = values.shape[1]
    prior = edge_prior(nodes, DagPrior.for_nodes(nodes).edge_probability)
    with one_blas_thread():
        score = with_lazy_tables(GaussianProcess().prepare(values), prior)
        candidates = first_candidates(screen_of(score), prior, order=None, tolerance=4.0, fill=8, cap=12)
        started()

        def build() -> ParentTables:
            foresee_tables(score, candidates, prior, Prefetch(workers))
            return build_tables(score, prior, candidates.free, fixed=candidates.fixed, workers=workers)

        return timed(build)


def measure_tables(case: Case, client: Any, folder: Path | None) -> dict[str, Any]:
    values = problem(case, folder).data.values
    workers, processors = DaskWorkers(client), Processors(client)

    def started() -> None:
        processors.used("before")

    here, alone = first_tables(values, SERIAL, started)
    used = processors.used("alone")
    there, first = first_tables(values, workers, started)
    # Of the second time workers have imported everything; what is shared is the same, and not sent again.
    _, again = first_tables(values, workers, started)
    same = np.array_equal(here.weights, there.weights) and np.array_equal(here.sums, there.sums)
    entries = int(np.isfinite(here.weights).sum())
    seconds = {"seconds_alone": alone, "seconds_first": first, "seconds": again}
    return {**seconds, "same": same, "entries": entries, **used, **processors.used("together")}


def _fit(values: np.ndarray, client: Any = None, kind: str = "fit") -> vcuda.Posterior:
    if kind == "restarts":
        asked: dict[str, Any] = {"model": "linear", "noise": "equal", "engine": TRAINED}
    else:
        asked = {"model": "gp", "engine": vcuda.Orders(**SAMPLED)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return vcuda.fit(values, **asked, seed=1, client=client)


def _is_same(first: vcuda.Posterior, second: vcuda.Posterior) -> bool:
    one, other = first.graph_posterior.arrays(), second.graph_posterior.arrays()
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


def measure_fit(case: Case, client: Any, folder: Path | None) -> dict[str, Any]:
    values = problem(case, folder).data.values
    processors, workers = Processors(client), Counted(client)
    together, seconds = timed(lambda: _fit(values, workers, case.kind))
    used = processors.used("together")
    alone, seconds_alone = timed(lambda: _fit(values, kind=case.kind))
    used |= processors.used("alone")
    seen = {"seconds_alone": seconds_alone, "seconds": seconds, "requests": workers.requests}
    return {**seen, "same": _is_same(alone, together), **used}


class Counted(DaskWorkers):
    """Workers that count how often they are asked, and of whom one is killed while they work on a certain request."""

    def __init__(self, client: Any, *, killed_at: int | None = None) -> None:
        super().__init__(client)
        self.killed_at, self.requests = killed_at, 0
        self.victim: int | None = None

    def map(self, *arguments: Any, **more: Any) -> list[Any]:
        self.requests += 1
        if self.requests == self.killed_at:
            self.victim = next(iter(self.client.run(os.getpid).values()))
            Timer(SECONDS_BEFORE_DEATH, os.kill, (self.victim, signal.SIGKILL)).start()
        return super().map(*arguments, **more)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def measure_killed(case: Case, client: Any, folder: Path | None) -> dict[str, Any]:
    values = problem(case, folder).data.values
    workers = Counted(client)
    before, undisturbed = timed(lambda: _fit(values, workers))
    doomed = Counted(client, killed_at=max(1, workers.requests // 2))
    after, seconds = timed(lambda: _fit(values, doomed))
    return {
        "seconds_undisturbed": undisturbed,
        "seconds": seconds,
        "requests": workers.requests,
        "killed_at": doomed.killed_at,
        "died": doomed.victim is not None and not _is_alive(doomed.victim),
        "same": _is_same(before, after) and _is_same(before, _fit(values)),
    }


MEASURES = {"tables": measure_tables, "fit": measure_fit, "killed": measure_killed, "restarts": measure_fit}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks cluster", description=__doc__)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--table-nodes", type=int, default=100, help="columns of the tables")
    parser.add_argument("--fit-nodes", type=int, default=50, help="columns of the fits")
    parser.add_argument("--restart-nodes", type=int, default=300, help="columns of the fit with restarts")
    parser.add_argument("--only", choices=MEASURES, help="one of the measurements")
    parser.add_argument("--fresh", action="store_true", help="measure again what is stored already")
    parser.add_argument("--results", type=Path, help="folder of the lines, if not the one of the repository")
    parser.add_argument("--data", type=Path, help="folder in which data sets are kept between commands")
    options = parser.parse_args(arguments)
    if options.data is not None:
        options.data.mkdir(parents=True, exist_ok=True)
    records = Records("cluster", fresh=options.fresh, folder=options.results)
    lines: list[Line] = []
    with vcuda.local_cluster(options.workers) as client:
        for kind, measure in MEASURES.items():
            if options.only not in (None, kind):
                continue
            nodes = {"tables": options.table_nodes, "restarts": options.restart_nodes}.get(kind, options.fit_nodes)
            mechanism: Mechanism = "linear" if kind == "restarts" else "gp"
            case = Case(kind, nodes, options.rows, options.workers, mechanism=mechanism)
            lines.append(records.run(asdict(case), partial(measure, case, client, options.data)))
            print(_told(lines[-1]), file=sys.stderr, flush=True)
    header = ["what", "columns", "workers", "one process", "on the workers", "times as fast", "same posterior"]
    print(markdown(header, [_cells(line) for line in lines]))
    return int(not all(line["same"] and line.get("died", True) for line in lines))


def _compared(line: Line) -> float:
    """What the seconds are compared with: one process, or workers that nobody killed."""
    seconds: float = line["seconds_undisturbed" if line["kind"] == "killed" else "seconds_alone"]
    return seconds


def _told(line: Line) -> str:
    return f"{line['kind']}: {_compared(line):.1f} s and {line['seconds']:.1f} s, same: {line['same']}"


def _cells(line: Line) -> list[str]:
    before = _compared(line)
    names = {
        "killed": "fit, one worker killed (beside the workers undisturbed)",
        "restarts": "restarts, variational, linear",
    }
    kind: str = line["kind"]
    name = names.get(kind, kind)
    cells = [name, str(line["nodes"]), str(line["workers"]), f"{before:.1f} s", f"{line['seconds']:.1f} s"]
    # The fit that is disturbed comes second, and finds its programs compiled: its seconds say nothing about speed.
    faster = "-" if line["kind"] == "killed" else f"{before / line['seconds']:.2f}"
    return [*cells, faster, "yes" if line["same"] else "no"]
