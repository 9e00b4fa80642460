"""One run: make the table, fit it, and compare edges, effects and what the status says with the truth."""

from __future__ import annotations

import math
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import vcuda
from benchmarks.honesty.cases import Case
from benchmarks.honesty.departures import Made, make
from benchmarks.measures import chosen, forget_peak_memory, pair_log_loss, peak_memory, ranked, stated, sure_edges
from vcuda.posterior import Posterior
from vcuda.summaries.effects import Effect
from vcuda.summaries.simulated_effects import POINTS, SimulatedEffect

# Ordered pairs of columns of each table whose effects are asked for.
PAIRS = 5
# A cause that is a number or a count is set to these quantiles of the table.
LOW, HIGH = 0.05, 0.95
# An interval that ends at the truth holds it; rounding must not say otherwise.
SLACK = 1e-12
DECIMALS = 5
# The parts that a status may have.
PARTS = ("arithmetic", "description", "unseen")


def measure_line(what: dict[str, Any], folder: Path) -> dict[str, Any]:
    """For the measuring process: a case by its fields."""
    return measure(Case(**what))


def measure(case: Case) -> dict[str, Any]:
    """Everything that the line of a case holds beside what was run."""
    made = make(case.departure, nodes=case.nodes, rows=case.rows, seed=case.index)
    options: dict[str, Any] = {"robust": False} if case.method == "unrobust" else {}
    forget_peak_memory()
    started, started_cpu = time.perf_counter(), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the line has the status
        posterior = vcuda.fit(made.table, seed=case.index, **options)
    found: dict[str, Any] = {
        "seconds": time.perf_counter() - started,
        "seconds_cpu": time.process_time() - started_cpu,
        "peak_mb": peak_memory(),
    }
    if posterior.names != tuple(made.table.columns):
        left_out = [str(name) for name in made.table.columns if name not in posterior.names]
        raise ValueError(f"the fit left out columns {', '.join(left_out)}")
    edges = posterior.edge_probabilities.to_numpy()
    found |= ranked(edges, made.truth) | stated(edges, made.truth) | sure_edges(edges, made.truth)
    found |= {"sure_wrong": found["sure"] - found["sure_true"], "pair_log_loss": pair_log_loss(edges, made.truth)}
    found |= said(posterior)
    started_cpu = time.process_time()
    found["effects"] = effects(posterior, made, case.index)
    found["seconds_cpu_effects"] = time.process_time() - started_cpu
    found["edge_probabilities"] = np.round(edges, DECIMALS).tolist()
    found["truth"] = made.truth.astype(int).tolist()
    # A graph without edges has no average precision, and JSON has no NaN.
    return {key: None if isinstance(value, float) and math.isnan(value) else value for key, value in found.items()}


def said(posterior: Posterior) -> dict[str, Any]:
    """What the posterior says of itself: status and its parts, findings of the checks, and the model."""
    status = posterior.status
    found: dict[str, Any] = {
        "status": status.code,
        "flagged": status.code != "ok",
        "status_sentence": status.sentence,
        "chosen": chosen(posterior),
        "sentences": posterior.summary()["choice"],
    }
    parts = {name: getattr(status, name) for name in PARTS if getattr(status, name, None) is not None}
    if parts:
        found["status_parts"] = {name: str(getattr(part, "code", part)) for name, part in parts.items()}
    check = getattr(posterior, "checks", None)
    if check is not None:
        checks = check()
        found["checks"] = [
            {
                "check": one.check,
                "severity": one.severity,
                "columns": list(one.columns),
                "edges": [list(edge) for edge in one.edges],
            }
            for one in checks
        ]
        found["seconds_checks"] = checks.seconds
    return found


# Effects ------------------------------------------------------------------------------------------------------


def effects(posterior: Posterior, made: Made, seed: int) -> list[dict[str, Any]]:
    """The total effects of random ordered pairs beside the truth, in standard deviations of the outcome."""
    nodes = len(made.truth)
    rng = np.random.default_rng([seed, 90])
    pairs = np.argwhere(~np.eye(nodes, dtype=bool))
    found = []
    for cause, outcome in rng.choice(pairs, min(PAIRS, len(pairs)), replace=False).tolist():
        low, high, at = settings(posterior, made, cause)
        names = posterior.names[cause], posterior.names[outcome]
        effect = posterior.effect(*names, at=at, seed=seed)
        draws = changes(effect, high - low)
        scale = float(made.table.iloc[:, outcome].std())
        truth = made.change(cause, outcome, low, high) / scale
        first, last = (float(end) for end in np.quantile(draws / scale, [0.05, 0.95]))
        covered = first - SLACK <= truth <= last + SLACK
        ends = {"truth": truth, "low": first, "high": last, "covered": covered}
        found.append({"cause": cause, "outcome": outcome, "probability_zero": effect.probability_zero, **ends})
    return found


def settings(posterior: Posterior, made: Made, cause: int) -> tuple[float, float, list[float] | None]:
    """Two values of the cause to compare; and the same as `Posterior.effect` takes them, None where it takes all."""
    own = made.table.iloc[:, cause]
    if posterior.kinds is not None and posterior.kinds[cause] not in ("number", "count"):
        return float(own.min()), float(own.max()), None
    low, high = (float(value) for value in own.quantile([LOW, HIGH], interpolation="nearest"))
    return low, high, [low, high]


def changes(effect: Any, range_of_cause: float) -> np.ndarray:
    """In every draw, by how much the expected outcome changes over the range of the cause (0/1: its probability)."""
    if isinstance(effect, Effect):
        return effect.draws * range_of_cause
    if isinstance(effect, SimulatedEffect):
        # The first measure is the expected value, the mean level, or the probability of the second of two values.
        own = effect.responses[:, -1, 0] - effect.responses[:, 0, 0]
        return np.asarray(own / 100 if effect.measures[0].unit == POINTS else own)
    raise TypeError(f"effects of type {type(effect).__name__} are not compared with a truth here")
