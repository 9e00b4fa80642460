"""What every measured line tells: how good the edges are, how long it took, how much memory it held."""

from __future__ import annotations

import contextlib
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from vcuda import metrics
from vcuda.posterior import Posterior


def chosen(posterior: Posterior) -> dict[str, Any]:
    """What was chosen where nobody said: engine, model, noise, logarithms."""
    model = posterior.provenance["model"]
    return {
        "engine": posterior.provenance["engine"]["name"],
        "model": model["name"],
        "noise": model.get("noise"),
        "logarithm": posterior.provenance.get("logarithm") or [],
    }


def forget_peak_memory() -> None:
    """Begin to count anew where the system allows it, so that making the data is not counted; else nothing is done."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def peak_memory() -> float:
    """The most memory that this process has held since then, in MB."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
        # Unlike the number of getrusage, this one does not begin with the memory of the process that started us.
        return int(status.split("VmHWM:")[1].split()[0]) / 1024
    except (OSError, IndexError):
        kilobytes = 1024 if sys.platform == "darwin" else 1
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / kilobytes / 1024


def ranked(scores: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """How well scores of edges (d, d), which need not be probabilities, rank the true ones."""
    return {
        "ap": metrics.average_precision(scores, truth),
        "auc": metrics.roc_auc(scores, truth),
        "skeleton_ap": metrics.skeleton_average_precision(scores, truth),
        "ap_full": metrics.average_precision(scores, truth, diagonal=True),
        "auc_full": metrics.roc_auc(scores, truth, diagonal=True),
    }


def stated(probabilities: np.ndarray, truth: np.ndarray) -> dict[str, Any]:
    """How far edge probabilities (d, d) are true."""
    return {
        "brier": metrics.brier(probabilities, truth),
        "calibration_error": metrics.calibration(probabilities, truth).error,
        "expected_edges": metrics.expected_edges(probabilities),
        "true_edges": int(truth.sum()),
    }


# An edge with at least this probability is stated as sure.
SURE = 0.9
# Added to the three probabilities of a pair: a probability of zero, which a finite sample may give, costs 6.9 nats.
FLOOR = 1e-3


def sure_edges(probabilities: np.ndarray, truth: np.ndarray) -> dict[str, int]:
    """How many edges of (d, d) are stated as sure, and how many of those are true."""
    sure = probabilities >= SURE
    return {"sure": int(sure.sum()), "sure_true": int((sure & truth).sum())}


def pair_log_loss(probabilities: np.ndarray, truth: np.ndarray) -> float:
    """The mean over pairs of columns of -log of the probability of what is true of it: i -> j, j -> i, or no edge."""
    upper = np.triu_indices(len(truth), 1)
    forward, backward = probabilities[upper], probabilities.T[upper]
    stated = np.stack([forward, backward, np.maximum(0.0, 1 - forward - backward)]) + FLOOR
    stated /= stated.sum(axis=0)
    happened = np.where(truth[upper], 0, np.where(truth.T[upper], 1, 2))
    return float(-np.log(stated[happened, np.arange(happened.size)]).mean())


class Compiling:
    """Seconds that JAX spends on tracing and compiling while it is watched; nested programs count once."""

    def __init__(self) -> None:
        self._spans: list[tuple[float, float]] = []
        self._watching = False
        self._listening = False

    def _listen(self) -> None:
        # Imported here: a process must be told its cores before.
        from jax import monitoring

        def note(event: str, duration_secs: float, **kwargs: str | int) -> None:
            if self._watching and event.startswith("/jax/core/compile/"):
                end = time.perf_counter()
                self._spans.append((end - duration_secs, end))

        monitoring.register_event_duration_secs_listener(note)
        self._listening = True

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Count what is compiled inside, from zero on."""
        if not self._listening:
            self._listen()
        self._spans, self._watching = [], True
        try:
            yield
        finally:
            self._watching = False

    @property
    def seconds(self) -> float:
        """The length of the union of all spans."""
        total, reached = 0.0, -np.inf
        for start, end in sorted(self._spans):
            total += max(0.0, end - max(start, reached))
            reached = max(reached, end)
        return float(total)
