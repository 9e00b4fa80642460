"""A fresh process for every group of runs, so that memory and compilation are that group's own.

The parent sends one case a line and reads one line back: it can stop between any two runs, and a process that dies
costs the run that killed it, which is written down as failed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Lock, Timer
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from benchmarks.records import Line, Records
from vcuda.infer.workers import SERIAL, Workers

# One thread for BLAS: with more, sums and so the drawn functions depend on the number of cores.
SINGLE_THREADED = {f"{library}_NUM_THREADS": "1" for library in ("OPENBLAS", "OMP", "MKL", "VECLIB_MAXIMUM")}
ROOT = Path(__file__).parents[1]


class Case(Protocol):
    """One run: what goes into its line, and the same in words."""

    def what(self) -> dict[str, Any]: ...

    def words(self) -> str: ...


AnyCase = TypeVar("AnyCase", bound=Case)


def left_to_run(
    groups: Sequence[Sequence[AnyCase]], records: Records, *, fresh: bool, retry: bool
) -> list[list[AnyCase]]:
    """The cases that are not stored; ``fresh`` forgets all lines of these cases first, ``retry`` those that failed."""
    cases = [case for group in groups for case in group]
    if fresh:
        records.forget(case.what() for case in cases)
    if retry:
        records.forget(case.what() for case in cases if "error" in (records.find(case.what()) or {}))
    return [[case for case in group if records.find(case.what()) is None] for group in groups]


def selected(groups: Iterable[Sequence[AnyCase]], only: str | None) -> list[list[AnyCase]]:
    """The cases whose words contain ``only``, still in their groups."""
    kept = [[case for case in group if only is None or only in case.words()] for group in groups]
    return [group for group in kept if group]


def part_of(groups: Sequence[Sequence[AnyCase]], part: tuple[int, int]) -> list[Sequence[AnyCase]]:
    """Part k of n of the groups, k from 1 on: every n-th, so that parts take about as long."""
    return list(groups[part[0] - 1 :: part[1]])


def part_option(text: str) -> tuple[int, int]:
    """``2/3`` of a command line as a pair."""
    part, slash, parts = text.partition("/")
    if not (slash and part.isdigit() and parts.isdigit() and 1 <= int(part) <= int(parts)):
        raise argparse.ArgumentTypeError(f"expected K/N with K from 1 to N, as in 1/2, not {text!r}")
    return int(part), int(parts)


def first_cases(groups: Sequence[Sequence[AnyCase]], limit: int | None) -> list[Sequence[AnyCase]]:
    """The first cases of the groups, no more than the limit."""
    chosen, left = [], sum(map(len, groups)) if limit is None else limit
    for group in groups:
        chosen.append(group[:left])
        left -= len(chosen[-1])
    return [group for group in chosen if group]


class Runner(Generic[AnyCase]):
    """Runs groups of cases in processes of their own, and writes each line as soon as it is there.

    Parameters
    ----------
    module
        Its ``measure_line(what, folder)`` measures a case in the process; data sets can be kept in the folder.
    records
        Where lines are written; what is stored there is not run again.
    sent
        What is sent with every case beside what goes into its line.
    jobs
        So many groups run side by side, each on its own share of the cores; the lines say so.
    deadline
        On the clock of ``time.monotonic``: no run begins after it.
    report
        Called with every case and its line.
    extend
        Told a new line and the stored ones; what it returns is added to the line.
    patience
        Seconds after which a run that does not answer is ended, and written down as failed.
    data
        The folder for data sets; by default one that is deleted at the end.
    """

    def __init__(
        self,
        module: str,
        records: Records,
        *,
        sent: dict[str, Any] | None = None,
        jobs: int,
        deadline: float,
        report: Callable[[AnyCase, Line], None],
        extend: Callable[[Line, list[Line]], dict[str, Any]] = lambda line, lines: {},
        patience: float | None = None,
        data: Path | None = None,
    ) -> None:
        self.module, self.records, self.jobs, self.deadline = module, records, jobs, deadline
        self.sent = sent or {}
        self.report, self.extend, self.patience, self.data = report, extend, patience, data
        self._writing = Lock()
        self._stopped = Event()
        self._children: set[subprocess.Popen[str]] = set()
        self._shares: SimpleQueue[list[int]] = SimpleQueue()
        for share in shares_of_cores(jobs):
            self._shares.put(share)

    def run(self, groups: Sequence[Sequence[AnyCase]], *, workers: Workers = SERIAL) -> bool:
        """Measure what is not stored yet; tell whether all of it was done before the deadline.

        Each of the ``workers`` of a cluster measures a group at a time, in a process that it starts; the lines are
        written here.
        """
        missing = [[case for case in group if self.records.find(case.what()) is None] for group in groups]
        if workers is not SERIAL:
            return self._run_elsewhere([group for group in missing if group], workers)
        with tempfile.TemporaryDirectory() as temporary, ThreadPoolExecutor(self.jobs) as pool:
            folder = self.data or Path(temporary)
            folder.mkdir(parents=True, exist_ok=True)
            futures = [pool.submit(self._run_group, group, folder) for group in missing if group]
            try:
                complete = [future.result() for future in futures]
                return all(complete)
            except BaseException:
                self._stopped.set()
                for child in list(self._children):
                    child.kill()
                raise

    def _run_elsewhere(self, groups: list[list[AnyCase]], workers: Workers) -> bool:
        self.jobs = workers.count
        found: dict[int, list[dict[str, Any]]] = {}
        written: set[int] = set()

        def write(share: float) -> None:
            for place in sorted(set(found) - written):
                written.add(place)
                for case, line in zip(groups[place], found[place], strict=False):
                    self._keep(case, line)

        elsewhere = Elsewhere(self.module, self.sent, self.deadline - time.monotonic(), self.patience, self.data)
        try:
            workers.map(measure_group, groups, shared=elsewhere, on_progress=write, kept=found)
        finally:
            write(1.0)
        return all(len(found[place]) == len(group) for place, group in enumerate(groups))

    def _run_group(self, group: Sequence[AnyCase], data: Path) -> bool:
        remaining = list(group)
        cores = self._shares.get()
        try:
            while remaining:
                if self._over():
                    return False
                with tempfile.TemporaryDirectory() as cache, self._child(data, cache, cores) as child:
                    while remaining and not self._over():
                        answer = self._ask(child, remaining[0])
                        if self._stopped.is_set():
                            return False
                        self._keep(remaining.pop(0), answer)
                        if child.poll() is not None:
                            break
            return True
        finally:
            self._shares.put(cores)

    def _over(self) -> bool:
        return self._stopped.is_set() or time.monotonic() >= self.deadline

    def _keep(self, case: AnyCase, found: dict[str, Any]) -> None:
        with self._writing:
            more = self.extend(case.what() | found, self.records.lines)
            self.report(case, self.records.add(case.what(), found | more | {"jobs": self.jobs}))

    def _ask(self, child: subprocess.Popen[str], case: AnyCase) -> dict[str, Any]:
        """The child's line for a case; one that is dead without an answer, or has to be ended, has an error."""
        if child.stdin is None or child.stdout is None:
            raise RuntimeError("a measuring process needs both pipes")
        too_late = Event()

        def end() -> None:
            too_late.set()
            child.kill()

        watch = Timer(self.patience or 0.0, end)
        if self.patience is not None:
            watch.start()
        try:
            child.stdin.write(json.dumps(case.what() | self.sent) + "\n")
            child.stdin.flush()
            line = child.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            watch.cancel()
        if line.endswith("\n"):
            answer: dict[str, Any] = json.loads(line)
            return answer
        code = child.wait()
        if too_late.is_set():
            return {"error": f"ended from outside after {self.patience:.0f} seconds without an answer"}
        return {"error": f"the measuring process ended with code {code}"}

    @contextmanager
    def _child(self, data: Path, cache: str, cores: Sequence[int]) -> Iterator[subprocess.Popen[str]]:
        child = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.child", self.module, str(data.resolve()), *map(str, cores)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            # An empty cache of compiled programs: the first run of a process tells what compilation costs.
            env=os.environ | SINGLE_THREADED | {"VCUDA_CACHE": cache},
            # An interrupt from the keyboard is the parent's to handle: a run that it cuts short has not failed.
            start_new_session=True,
        )
        self._children.add(child)
        try:
            yield child
        finally:
            self._children.discard(child)
            child.kill()
            child.communicate()


class Elsewhere(NamedTuple):
    """What a worker needs to measure groups, beside the groups; ``seconds`` are left when they are sent."""

    module: str
    sent: dict[str, Any]
    seconds: float
    patience: float | None
    data: Path | None


class _Collected(Records):
    """Lines that are on their way to the process that stores them."""

    def __init__(self) -> None:
        super().__init__("elsewhere", keep=False)

    def add(self, what: dict[str, Any], found: dict[str, Any]) -> Line:
        self.lines.append(found)
        return found


def measure_group(elsewhere: Elsewhere, group: Sequence[AnyCase]) -> list[dict[str, Any]]:
    """Measure a group of cases on a worker, in a process of its own as anywhere."""
    collected = _Collected()
    runner = Runner[AnyCase](
        elsewhere.module,
        collected,
        sent=elsewhere.sent,
        jobs=1,
        deadline=time.monotonic() + elsewhere.seconds,
        report=lambda case, line: None,
        patience=elsewhere.patience,
        data=elsewhere.data,
    )
    runner.run([group])
    return collected.lines


def shares_of_cores(jobs: int) -> list[list[int]]:
    """The cores of each job: all of them for one, where they can be told apart, and else none in particular."""
    if jobs == 1 or not hasattr(os, "sched_getaffinity"):
        return [[] for _ in range(jobs)]
    cores = sorted(os.sched_getaffinity(0))
    if jobs > len(cores):
        return [[] for _ in range(jobs)]
    return [cores[job::jobs] for job in range(jobs)]
