"""One run of the grid: fit, compare with the truth and with fresh rows, and say what it cost."""

from __future__ import annotations

import math
import time
import warnings
from collections import deque
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.metrics import precision_recall_curve

from benchmarks.measures import Compiling, chosen, forget_peak_memory, peak_memory, ranked, stated
from benchmarks.paper.methods import fit
from benchmarks.paper.runs import Draw, Fit
from benchmarks.problems import problem
from benchmarks.sampling import timings_of
from vcuda import metrics
from vcuda.data.dataset import Dataset
from vcuda.errors import ConvergenceWarning
from vcuda.infer.progress import Progress
from vcuda.posterior import Posterior

# Up to so many nodes a line keeps its scores, and its edge probabilities where they are something else.
SCORES_KEPT = 20
SAMPLES, PREDICTING_GRAPHS, BINS = 1_000, 100, 10
RECALLS = np.linspace(0, 1, 21)
# Methods that take a number of steps fixed beforehand are given up after this share of the limit, if at the pace of the
# last stretch they would need this many times the limit. DiBS becomes quicker on its way.
FORESEEN_AFTER, FORESEEN_STRETCH, FORESEEN_TIMES, FIXED_STEPS = 0.25, 0.1, 2.0, ("dibs", "bayesdag")
SAMPLING_SEED, SAMPLING_EFFORT = 0, {"least": 3, "seconds": 3.0}

compiling = Compiling()


def measure_line(what: dict[str, Any], folder: Path) -> dict[str, Any]:
    """For the measuring process: a run by its fields, and the seconds that it may take."""
    limits = Limits(what.pop("processor_limit"), what.pop("clock_limit"))
    if what["kind"] == "sampling":
        return measure_sampling(Draw(**what))
    return measure_fit(Fit(**what), limits=limits, folder=folder)


class Limits(NamedTuple):
    """Seconds that a run may take: of the processor, which counts, and by the clock, in case it waits for others."""

    processor: float
    clock: float


class Watch:
    """Ends a run that is over its limit, or that could not end within it, and remembers why.

    Seconds are those of the processor: on a busy machine the clock would punish whoever runs beside others.
    """

    def __init__(self, engine: str, limit: float, clock: Callable[[], float] = time.process_time) -> None:
        self.foresees, self.limit, self.clock = engine in FIXED_STEPS, limit, clock
        self.begun = clock()
        self.marks: deque[tuple[float, float]] = deque()
        self.over = False
        self.foreseen: float | None = None

    def __call__(self, progress: Progress) -> None:
        now = self.clock()
        if now - self.begun > self.limit:
            self.over = True
            raise KeyboardInterrupt  # ends a fit with what is there
        self.marks.append((now, progress.done))
        while len(self.marks) > 1 and self.marks[1][0] <= now - FORESEEN_STRETCH * self.limit:
            self.marks.popleft()
        since, done = now - self.marks[0][0], progress.done - self.marks[0][1]
        if not self.foresees or now - self.begun < FORESEEN_AFTER * self.limit or done <= 0:
            return
        needed = now - self.begun + since / done * (progress.total - progress.done)
        if needed > FORESEEN_TIMES * self.limit:
            self.over, self.foreseen = True, needed
            raise KeyboardInterrupt

    def foresight(self) -> dict[str, float]:
        """For the line: the seconds that a run which was given up would have needed."""
        return {} if self.foreseen is None else {"foreseen_seconds": self.foreseen}

    def sentence(self, seen: str) -> str:
        """The sentence of a status with who ended the fit: it takes every interrupt for one of the user."""
        if not self.over:
            return seen
        limit = f"the benchmark's limit of {self.limit:.0f} seconds"
        if self.foreseen is not None:
            limit += f", which it would have passed ({self.foreseen:.0f} seconds foreseen),"
        named = seen.replace("by the user", f"by {limit}", 1)
        return named if named != seen else f"Ended by {limit}: {seen}"


UNLIMITED = Limits(math.inf, 1e9)


def measure_fit(case: Fit, *, limits: Limits = UNLIMITED, folder: Path | None = None) -> dict[str, Any]:
    """Everything that the line of a fit holds beside what was run."""
    data, truth, _, fresh = problem(case, folder)
    watch = Watch(case.engine, limits.processor)
    forget_peak_memory()
    started, processor = time.perf_counter(), time.process_time()
    with warnings.catch_warnings(), compiling.watched():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the line has the status
        try:
            posterior = fit(
                case.engine,
                case.preset,
                case.options,
                data,
                seed=case.index,
                time_limit=limits.clock,
                progress=watch,
            )
        except KeyboardInterrupt:
            if not watch.over:
                raise
            return _ended_with_nothing(watch, seconds=time.perf_counter() - started)
        probabilities = posterior.edge_probabilities.to_numpy()
    cost = {
        "seconds": time.perf_counter() - started,
        "seconds_compilation": compiling.seconds,
        "processor_seconds": time.process_time() - processor,
        "peak_mb": peak_memory(),
    }
    scores = np.asarray(getattr(posterior.graph_posterior, "scores", probabilities), dtype=np.float64)
    found = ranked(scores, truth) | stated(probabilities, truth)
    found |= _curves(scores, probabilities, truth) | _predicted(posterior, fresh) | cost
    samples = posterior.sample(SAMPLES, seed=case.index)
    found |= {
        "expected_shd": metrics.expected_shd(samples, truth),
        "base_rate_brier": metrics.base_rate_brier(truth),
        "status": posterior.status.code,
        "status_sentence": watch.sentence(posterior.status.sentence),
        "limit_seconds": limits.processor,
        "over_limit": watch.over or cost["seconds"] >= limits.clock,
        "diagnostics": _plain_numbers(posterior.diagnostics),
    }
    found |= watch.foresight()
    if case.nodes <= SCORES_KEPT:
        found["scores"] = _four_digits(scores)
        if not np.array_equal(scores, probabilities):
            found["edge_probabilities"] = _four_digits(probabilities)
    if case.engine == "auto":
        found["chosen"] = chosen(posterior)
    return found


def _ended_with_nothing(watch: Watch, *, seconds: float) -> dict[str, Any]:
    """The line of a fit that the limit ended before it had anything to show."""
    return {
        "seconds": seconds,
        "peak_mb": peak_memory(),
        "status": "interrupted",
        "status_sentence": watch.sentence("There is no result."),
        "limit_seconds": watch.limit,
        "over_limit": True,
        **watch.foresight(),
    }


def measure_sampling(case: Draw) -> dict[str, Any]:
    """Medians for one graph, as `benchmarks.sampling` measures them."""
    started = time.perf_counter()
    found = [asdict(each) for each in timings_of(case.distribution, case.nodes, SAMPLING_SEED, **SAMPLING_EFFORT)]
    return {"timings": found, "status": "ok", "seconds": time.perf_counter() - started, "peak_mb": peak_memory()}


def _predicted(posterior: Posterior, fresh: Dataset | None) -> dict[str, float]:
    """Errors on fresh rows, in the units in which the columns were given; nothing for methods without functions."""
    if fresh is None or getattr(posterior.graph_posterior, "networks", True) is None:
        return {}
    started = time.perf_counter()
    seen = posterior.held_out(fresh, graphs=PREDICTING_GRAPHS)
    return {
        "mse": seen["mse"],
        "nll": seen["nll"],
        "variance": float(fresh.values.var(axis=0).mean()),
        "seconds_predicting": time.perf_counter() - started,
    }


def _curves(scores: np.ndarray, probabilities: np.ndarray, truth: np.ndarray) -> dict[str, Any]:
    """What figures need: precision by recall, and stated probabilities beside what is true."""
    apart = ~np.eye(len(truth), dtype=bool)
    precision, recall, _ = precision_recall_curve(truth[apart], scores[apart])
    # The best precision at this recall or a higher one, as the steps of the average precision have it.
    best = [float(precision[:-1][recall[:-1] >= wanted - 1e-12].max(initial=0.0)) for wanted in RECALLS]
    curve = metrics.calibration(probabilities, truth, bins=BINS)
    seen, true = (np.nan_to_num(curve.pairs * each) for each in (curve.probability, curve.frequency))
    return {
        "precision_at_recall": [round(each, 4) for each in best],
        "bin_pairs": curve.pairs.tolist(),
        "bin_stated": [round(each, 4) for each in seen.tolist()],
        "bin_true": [round(each) for each in true.tolist()],
    }


def _four_digits(matrix: np.ndarray) -> list[list[float]]:
    return [[float(f"{value:.4g}") for value in row] for row in matrix.tolist()]


def _plain_numbers(diagnostics: dict[str, Any]) -> dict[str, Any]:
    """The diagnostics that are single numbers or words."""
    plain = {}
    for name, value in diagnostics.items():
        single = value.item() if isinstance(value, np.generic) else value
        if isinstance(single, str | bool | int) or (isinstance(single, float) and math.isfinite(single)):
            plain[name] = single
    return plain
