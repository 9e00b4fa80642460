"""Tables, and the two ways to run a method on one: ours in this process, a peer's in the interpreter that has it."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

import vcuda
from benchmarks.peers import elsewhere
from vcuda import metrics
from vcuda.baselines import BASELINES
from vcuda.data.dataset import Dataset
from vcuda.data.paper_tables import paper_dataset
from vcuda.data.simulate import GraphFamily, Mechanism
from vcuda.errors import RunError
from vcuda.infer.driver import run
from vcuda.infer.engine import Problem
from vcuda.posterior.point import ScoredGraphs

# So few steps that the rest of a run is compiling.
HARDLY_ANY: dict[str, dict[str, int]] = {
    "dds": {"epochs": 2},
    "dibs": {"steps": 2},
    "grandag": {"iterations": 2},
    "mcsl": {"rounds": 1, "steps": 2},
}


class Table(NamedTuple):
    """Where the rows are stored, the rows to learn from, and the graph ``(d, d)``."""

    path: Path
    data: Dataset
    graph: np.ndarray


def tables(folder: Path, setting: tuple[GraphFamily, Mechanism], index: int) -> Table:
    """A data set of the paper; made once, as the nonlinear ones take a while, and kept in a folder."""
    path = folder / f"paper-{setting[0]}-{setting[1]}-{index}.npz"
    if not path.exists():
        made = paper_dataset(setting[0], mechanism=setting[1], index=index)
        folder.mkdir(parents=True, exist_ok=True)
        beside = folder / f"{os.getpid()}-{path.name}"
        np.savez(beside, values=made.train.values, graph=made.graph)
        os.replace(beside, path)
    with np.load(path) as stored:
        return Table(path, vcuda.as_dataset(stored["values"]), stored["graph"])


def quality(scores: np.ndarray, graph: np.ndarray) -> dict[str, float]:
    """How well scores rank the edges, with the diagonal as published, and without."""
    return {
        "auc_full": metrics.roc_auc(scores, graph, diagonal=True),
        "ap_full": metrics.average_precision(scores, graph, diagonal=True),
        "auc": metrics.roc_auc(scores, graph),
        "ap": metrics.average_precision(scores, graph),
    }


def ours(method: str, options: dict[str, Any], table_of: Callable[[], Table], *, seed: int) -> dict[str, Any]:
    """Our version with preset `reference`; it has been compiled by a run of a step or two before the clock starts."""
    baseline, table = BASELINES[method], table_of()
    problem, preset = Problem(table.data, seed), baseline.spec.reference
    before = time.perf_counter()
    run(baseline, preset(**(options | HARDLY_ANY[method])), problem)
    begun, begun_cpu = time.perf_counter(), time.process_time()
    found = run(baseline, preset(**options), problem)
    graphs = found.graph_posterior
    assert isinstance(graphs, ScoredGraphs)
    return {
        **quality(graphs.scores, table.graph),
        "edges": float(graphs.graphs.edge_counts().mean()),
        "seconds": time.perf_counter() - begun,
        "seconds_cpu": time.process_time() - begun_cpu,
        "seconds_compilation": begun - before,
        "status": found.status.code,
        "steps": int(found.diagnostics.get("steps") or found.diagnostics["iterations"]),
    }


class Peers(AbstractContextManager["Peers"]):
    """The peers' process, which is started when first needed and serves one job after the other."""

    def __init__(self, python: str) -> None:
        self._command = [python, str(Path(elsewhere.__file__))]
        self._process: subprocess.Popen[str] | None = None
        self._complaints: IO[str] = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115

    def run(self, program: str, options: dict[str, Any], table: Table, *, seed: int) -> dict[str, Any]:
        """Scores against the truth, and the seconds without what the peer compiles."""
        seen = self.ask(program, options, table, seed=seed)
        return {**quality(np.array(seen.pop("scores")), table.graph), **seen}

    def ask(self, program: str, options: dict[str, Any], table: Table, *, seed: int) -> dict[str, Any]:
        """The answer as the peer gave it."""
        process = self._process = self._process or self._start()
        if process.stdin is None or process.stdout is None:
            raise RunError("the peers' process has no pipes")
        job = {"program": program, "options": options, "table": str(table.path), "seed": seed}
        try:
            process.stdin.write(json.dumps(job) + "\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            self._complaints.seek(0)
            raise RunError(
                f"{program} did not answer; install the extra `peers` here, or name with --python an interpreter that "
                f"has it. Its last words:\n{self._complaints.read()[-2000:]}"
            )
        return json.loads(answer)

    def _start(self) -> subprocess.Popen[str]:
        # One thread, so that its seconds of the processor are those that the work needs.
        flags = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
        alone = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "XLA_FLAGS": flags}
        pipe = subprocess.PIPE
        return subprocess.Popen(self._command, stdin=pipe, stdout=pipe, stderr=self._complaints, text=True, env=alone)

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            if self._process.stdin is not None:
                self._process.stdin.close()
            self._process.wait(timeout=60)
        self._complaints.close()
