"""One run: make the table, fit it as the method does, and compare with the truth."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import vcuda
from benchmarks.kinds.cases import DATA, Case
from benchmarks.measures import chosen, forget_peak_memory, pair_log_loss, peak_memory, ranked, stated, sure_edges
from vcuda.data import library
from vcuda.data.dataset import Dataset
from vcuda.data.simulate import simulate
from vcuda.errors import ConvergenceWarning

# Up to so many columns a line keeps its edge probabilities.
EDGES_KEPT = 20
DECIMALS = 5


class Problem(NamedTuple):
    """The table as a person has it, the same as numbers (labels by their codes), and the graph (d, d)."""

    table: pd.DataFrame | Dataset
    codes: Dataset
    truth: np.ndarray
    kinds: tuple[str, ...]


def measure_line(what: dict[str, Any], folder: Path) -> dict[str, Any]:
    """For the measuring process: a case by its fields, and the interpreter that has the peers."""
    python = what.pop("python", None)
    return measure(Case(**what), folder=folder, python=python)


def measure(case: Case, *, folder: Path | None = None, python: str | None = None) -> dict[str, Any]:
    """Everything that the line of a case holds beside what was run."""
    made = problem(case)
    if case.method == "lingam":
        if folder is None or python is None:
            raise ValueError("DirectLiNGAM needs a folder and an interpreter")
        return _lingam(case, made, folder, python)
    forget_peak_memory()
    started, started_cpu = time.perf_counter(), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the line has the status
        edges, names, said = _edges(case, made)
    cost = {
        "seconds": time.perf_counter() - started,
        "seconds_cpu": time.process_time() - started_cpu,
        "peak_mb": peak_memory(),
    }
    truth = aligned(made.truth, made.codes.names, names)
    found = ranked(edges, truth) | stated(edges, truth) | sure_edges(edges, truth)
    found |= {"pair_log_loss": pair_log_loss(edges, truth), **said, **cost}
    if len(truth) <= EDGES_KEPT:
        found["edge_probabilities"] = np.round(edges, DECIMALS).tolist()
    return found


def _edges(case: Case, made: Problem) -> tuple[np.ndarray, tuple[str, ...], dict[str, Any]]:
    """The edge probabilities (d, d) of a method, the columns that it fitted, and what it says of itself."""
    if case.method == "degenerate":
        from benchmarks.kinds.degenerate import edge_probabilities

        edges, status = edge_probabilities(made.codes.values, made.kinds, seed=case.index)
        return edges, made.codes.names, {"status": status}
    if case.method == "bge":
        posterior = vcuda.fit(made.codes, model="linear", noise="unequal", seed=case.index)
    else:
        posterior = vcuda.fit(made.table, seed=case.index)
    said: dict[str, Any] = {"status": posterior.status.code}
    if posterior.status.code != "ok":
        said["status_sentence"] = posterior.status.sentence
    if case.method == "default":
        said |= {"chosen": chosen(posterior), "sentences": posterior.summary()["choice"]}
    return posterior.edge_probabilities.to_numpy(), posterior.names, said


def problem(case: Case) -> Problem:
    """Make the table of a case."""
    if case.suite == "bundled":
        bundled = library.load(case.data)
        return Problem(bundled.dataset, bundled.dataset, bundled.truth, bundled.dataset.kinds)
    options = {key: value(case.nodes) if callable(value) else value for key, value in DATA[case.data].items()}
    assert case.mechanism is not None
    made = simulate(
        "er",
        nodes=case.nodes,
        edges=case.nodes,
        mechanism=case.mechanism,
        noise="unequal",
        rows=case.rows,
        test_rows=1,
        seed=case.index,
        **options,
    )
    frame = made.train.to_frame()
    for name, kind in zip(made.train.names, made.kinds, strict=True):
        if kind != "number":
            # As a file has them: whole numbers without a point, labels as text.
            frame[name] = frame[name].astype(str if kind == "label" else np.int64)
    codes = Dataset(made.train.names, made.train.values, source="codes")
    return Problem(frame, codes, made.graph, made.kinds)


def aligned(truth: np.ndarray, names: tuple[str, ...], fitted: tuple[str, ...]) -> np.ndarray:
    """The graph of the columns that were fitted; a fit may leave out columns, which is an error here."""
    if tuple(fitted) != tuple(names):
        left_out = sorted(set(names) - set(fitted))
        raise ValueError(f"the fit left out columns {', '.join(left_out)}")
    return truth


def _lingam(case: Case, made: Problem, folder: Path, python: str) -> dict[str, Any]:
    from benchmarks.peers.programs import Peers, Table

    path = folder / f"kinds-{case.data.replace('/', '-')}-{case.mechanism}-{case.nodes}-{case.rows}-{case.index}.npz"
    np.savez(path, values=made.codes.values)
    with Peers(python) as peers:
        answer = peers.ask("lingam DirectLiNGAM", {}, Table(path, made.codes, made.truth), seed=case.index)
    scores = np.array(answer["scores"])
    # An edge of its graph counts as stated with certainty; it states no probabilities.
    return {
        **ranked(scores, made.truth),
        **sure_edges((scores > 0).astype(float), made.truth),
        "true_edges": int(made.truth.sum()),
        "status": "ok",
        **{key: answer[key] for key in ("seconds", "seconds_cpu")},
        "peers": answer["versions"],
    }
