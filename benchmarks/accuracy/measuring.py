"""One run: fit, compare with the truth, and say how long and how much memory it took."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import vcuda
from benchmarks.accuracy.calibration import measure_block
from benchmarks.accuracy.cases import Case, in_random_units
from benchmarks.accuracy.oracle import known_order_posterior
from benchmarks.accuracy.suites import CALIBRATION_SETS
from benchmarks.measures import chosen, forget_peak_memory, peak_memory, ranked, stated
from benchmarks.problems import problem
from vcuda import metrics
from vcuda.data.dataset import Dataset
from vcuda.errors import ConvergenceWarning
from vcuda.posterior import Posterior

# Up to so many nodes a line keeps its edge probabilities, so that it can be set beside the exact ones at any time.
EDGES_KEPT = 20
DECIMALS = 5
# Distances between graphs are measured on samples, up to so many nodes.
SAMPLED_NODES = 100
# The authors' scale of the priorities' prior in their runs on Sachs.
SACHS_ORDER_SCALE = 0.01


def measure_line(what: dict[str, Any], folder: Path) -> dict[str, Any]:
    """For the measuring process: a case by its fields."""
    return measure(Case(**what), folder=folder)


def measure(case: Case, *, folder: Path | None = None) -> dict[str, Any]:
    """Everything that the line of a case holds beside what was run."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the line has the status
        if case.kind == "calibration":
            started = time.perf_counter()
            found = measure_block(case, CALIBRATION_SETS)
            return found | _cost(started)
        return {"fit": _fit_line, "oracle": _oracle_line, "rescaling": _rescaling_line}[case.kind](case, folder)


def fit(case: Case, data: Dataset) -> Posterior:
    """Call `vcuda.fit` as the case says."""
    seen: dict[str, Any] = {"model": case.model, "seed": case.index}
    if case.noise is not None:
        seen["noise"] = case.noise
    if case.engine == "straight-through":
        seen["preset"] = "paper"
    else:
        seen["engine"] = case.engine
    if case.prior is not None:
        seen["prior"] = case.prior
        if case.source == "sachs":
            seen["prior"] = vcuda.DagPrior(case.prior, order_scale=SACHS_ORDER_SCALE)
    return vcuda.fit(data, **seen)


def against_truth(edges: np.ndarray, truth: np.ndarray) -> dict[str, Any]:
    """How well edge probabilities (d, d) rank and state the true edges."""
    found: dict[str, Any] = ranked(edges, truth) | stated(edges, truth)
    if len(truth) <= EDGES_KEPT:
        found["edge_probabilities"] = np.round(edges, DECIMALS).tolist()
    return found


def _cost(started: float) -> dict[str, float]:
    return {"seconds": time.perf_counter() - started, "peak_mb": peak_memory()}


def _fit_line(case: Case, folder: Path | None) -> dict[str, Any]:
    data, truth, log_jacobian, _ = problem(case, folder)
    forget_peak_memory()
    started = time.perf_counter()
    posterior = fit(case, data)
    edges = posterior.edge_probabilities.to_numpy()
    cost = _cost(started)
    found = against_truth(edges, truth) | {
        "status": posterior.status.code,
        "log_evidence": posterior.diagnostics.get("log_evidence"),
        **cost,
    }
    if found["log_evidence"] is not None:
        found["log_evidence_of_cells"] = found["log_evidence"] + log_jacobian
    if posterior.status.code != "ok":
        found["status_sentence"] = posterior.status.sentence
    if case.nodes <= SAMPLED_NODES:
        found["expected_shd"] = metrics.expected_shd(posterior.sample(1_000, seed=case.index), truth)
    if "auto" in (case.engine, case.model):
        found["chosen"] = chosen(posterior)
        found["choice"] = posterior.provenance.get("choice")
    return found


def _oracle_line(case: Case, folder: Path | None) -> dict[str, Any]:
    data, truth, *_ = problem(case, folder)
    forget_peak_memory()
    started = time.perf_counter()
    edges = known_order_posterior(data.values, truth)
    cost = _cost(started)
    return against_truth(edges, truth) | {"status": "ok", "log_evidence": None, **cost}


def _rescaling_line(case: Case, folder: Path | None) -> dict[str, Any]:
    data = problem(case, folder).data
    rescaled = Dataset(names=data.names, values=in_random_units(data.values, case.index), source="benchmark")
    started = time.perf_counter()
    one, other = (fit(case, table) for table in (data, rescaled))
    difference = np.abs(one.edge_probabilities.to_numpy() - other.edge_probabilities.to_numpy())
    worse = max(one.status.code, other.status.code, key=["ok", "warning", "interrupted", "failed"].index)
    return {"largest_change": float(difference.max()), "status": worse, **_cost(started)}
