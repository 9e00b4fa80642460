"""A fresh process for every group of runs, so that memory and compilation are that group's own.

The parent sends one case a line and reads one line back: it can stop between any two runs, and a process that dies
costs the run that killed it, which is written down as failed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Lock
from typing import Any

from benchmarks.accuracy.cases import Case
from benchmarks.accuracy.lines import difference_to_exact
from benchmarks.records import Records

# One thread for BLAS: with more, sums and so the drawn functions depend on the number of cores.
SINGLE_THREADED = {f"{library}_NUM_THREADS": "1" for library in ("OPENBLAS", "OMP", "MKL", "VECLIB_MAXIMUM")}
ROOT = Path(__file__).parents[2]

Report = Callable[[Case, dict[str, Any]], None]


class Runner:
    """Runs groups of cases in processes of their own, and writes each line as soon as it is there.

    Parameters
    ----------
    records
        Where lines are written; what is stored there is not run again.
    jobs
        With two jobs two groups run side by side, which is good for accuracy but not for seconds; the lines say so.
    deadline
        On the clock of ``time.monotonic``: no run begins after it.
    report
        Called with every case and its line.
    """

    def __init__(self, records: Records, *, jobs: int, deadline: float, report: Report) -> None:
        self.records, self.jobs, self.deadline, self.report = records, jobs, deadline, report
        self._writing = Lock()
        self._stopped = Event()
        self._children: set[subprocess.Popen[str]] = set()

    def run(self, groups: Sequence[Sequence[Case]]) -> bool:
        """Measure what is not stored yet; tell whether all of it was done before the deadline."""
        missing = [[case for case in group if self.records.find(case.what()) is None] for group in groups]
        with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(self.jobs) as pool:
            futures = [pool.submit(self._run_group, group, Path(folder)) for group in missing if group]
            try:
                complete = [future.result() for future in futures]
                return all(complete)
            except BaseException:
                self._stopped.set()
                for child in list(self._children):
                    child.kill()
                raise

    def _run_group(self, group: Sequence[Case], data: Path) -> bool:
        remaining = list(group)
        while remaining:
            if self._over():
                return False
            with tempfile.TemporaryDirectory() as cache, self._child(data, cache) as child:
                while remaining and not self._over():
                    answer = _ask(child, remaining[0])
                    if self._stopped.is_set():
                        return False
                    self._keep(remaining.pop(0), answer if answer is not None else {"error": _last_words(child)})
                    if answer is None:
                        break
        return True

    def _over(self) -> bool:
        return self._stopped.is_set() or time.monotonic() >= self.deadline

    def _keep(self, case: Case, found: dict[str, Any]) -> None:
        with self._writing:
            difference = difference_to_exact(case.what() | found, self.records.lines)
            found = found | ({} if difference is None else {"difference_to_exact": difference}) | {"jobs": self.jobs}
            self.report(case, self.records.add(case.what(), found))

    @contextmanager
    def _child(self, data: Path, cache: str) -> Iterator[subprocess.Popen[str]]:
        child = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.accuracy.child", str(data)],
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


def _ask(child: subprocess.Popen[str], case: Case) -> dict[str, Any] | None:
    """The child's line for a case, or None when it ended without one."""
    if child.stdin is None or child.stdout is None:
        raise RuntimeError("a measuring process needs both pipes")
    try:
        child.stdin.write(json.dumps(case.what()) + "\n")
        child.stdin.flush()
    except BrokenPipeError:
        return None
    line = child.stdout.readline()
    return json.loads(line) if line.endswith("\n") else None


def _last_words(child: subprocess.Popen[str]) -> str:
    return f"the measuring process ended with code {child.wait()}"
