"""The seam of the baselines: a spec and a table in, graphs and scores out.

A baseline is a frozen dataclass with a class-wide ``name`` and two presets, and a function ``run(spec, data, *, seed,
progress, deadline) -> BaselineResult``; `vcuda.baselines.BASELINES` holds both under the name.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np

from vcuda.data.dataset import Dataset
from vcuda.data.scaling import Scaling
from vcuda.errors import ConfigError
from vcuda.infer.progress import Pace, Progress, ProgressCallback
from vcuda.posterior.point import Networks, ScoredGraphs
from vcuda.posterior.posterior import Outcome, Status
from vcuda.posterior.samples import GraphSamples


class BaselineSpec(Protocol):
    """The options of a method. Presets take changes by name, as in ``GranDag.corrected(hidden=())``."""

    name: ClassVar[str]
    # The models that it knows by the names that `vcuda.fit` uses, with what they change; empty if it has no choice.
    models: ClassVar[dict[str, dict[str, Any]]]

    @classmethod
    def reference(cls, **changes: Any) -> Self:
        """The authors' program as it was run for the paper's figures; its mistakes are options of their own."""
        ...

    @classmethod
    def corrected(cls, **changes: Any) -> Self:
        """The method as the paper that proposed it means it."""
        ...


class BaselineResult(NamedTuple):
    """What a baseline found.

    ``samples`` are DAGs (a point estimate is one); ``scores`` is ``(d, d)``, finite, not negative and zero on the
    diagonal, the higher the surer the edge i -> j, and before any threshold: it ranks edges, and need not be a
    probability (see :func:`ranking`). ``functions`` is what rows can be predicted with, if the method has it: one set
    of networks for all samples, or one for each.
    """

    samples: GraphSamples
    scores: np.ndarray
    status: Status
    diagnostics: dict[str, Any]
    trace: dict[str, np.ndarray]
    functions: Networks | None = None


class Baseline(Protocol):
    """The function of a method. The table is taken as it comes: who wants z-scores standardises it before.

    ``deadline`` is on the clock of ``time.monotonic``. When it passes, or the user interrupts, what is there comes
    back with status ``interrupted``.
    """

    def __call__(
        self, spec: Any, data: Dataset, *, seed: int, progress: ProgressCallback = ..., deadline: float | None = None
    ) -> BaselineResult: ...


def as_outcome(result: BaselineResult, units: Scaling | None = None) -> Outcome:
    """A baseline's result as an engine would return it; ``units`` lead from the user's to those of the fitted table.

    The law's edge probabilities are the shares of the sampled graphs, so 0 or 1 for a point estimate; the score matrix
    stays beside them as ``law.scores``.
    """
    graph_posterior = ScoredGraphs(result.samples, result.scores, result.functions, units)
    return Outcome(graph_posterior, result.status, result.diagnostics, result.trace)


def ranking(scores: np.ndarray) -> np.ndarray:
    """A ``(d, d)`` matrix as one of scores: in double precision, not negative, zero on the diagonal.

    Where there are negative entries all edges are raised by the same amount, lest the diagonal rank above them; what is
    not finite becomes the lowest score.

    Examples
    --------
    >>> ranking(np.array([[9.0, -2.0], [1.0, 9.0]])).tolist()
    [[0.0, 0.0], [3.0, 0.0]]
    """
    matrix = np.array(scores, dtype=np.float64)
    edges = ~np.eye(len(matrix), dtype=bool)
    finite = edges & np.isfinite(matrix)
    lowest = matrix[finite].min(initial=0.0)
    return np.where(finite, matrix - lowest, 0.0)


def check_options(spec: Any, *, at_least: dict[str, float], choices: dict[str, Sequence[str]] | None = None) -> None:
    """Refuse options below their least value, or that are none of their choices; None is left to the spec."""
    for name, least in at_least.items():
        value = getattr(spec, name)
        if value is not None and not value >= least:
            raise ConfigError(f"{name} of {spec.name} must be at least {least:g}, not {value}")
    for name, known in (choices or {}).items():
        if getattr(spec, name) not in known:
            raise ConfigError(f"{name} of {spec.name} must be one of {', '.join(known)}, not {getattr(spec, name)!r}")


class _OutOfTimeError(Exception):
    """The deadline has passed; it does not leave :meth:`Course.underway`."""


class Course:
    """The course of a long run: how many steps fill a second, who is told of them, and what ended it early.

    Examples
    --------
    >>> course = Course(lambda progress: None, deadline=0.0)
    >>> with course.underway():
    ...     for step in range(10):
    ...         course.tell(step + 1, 10, "steps")
    >>> step, course.stopped_by
    (0, 'the time limit')
    """

    def __init__(self, progress: ProgressCallback, deadline: float | None) -> None:
        self.pace = Pace()
        self.stopped_by: str | None = None
        self._progress = progress
        self._deadline = deadline
        self._begun = time.perf_counter()

    @contextmanager
    def underway(self) -> Iterator[None]:
        """Leave the block when the deadline passes or the user interrupts; ``stopped_by`` then says which it was."""
        try:
            yield
        except _OutOfTimeError:
            self.stopped_by = "the time limit"
        except KeyboardInterrupt:
            self.stopped_by = "the user"

    def tell(self, done: float, total: float, detail: str) -> None:
        """Between two chunks, with the state of the last one already kept: this may end the block."""
        if self._deadline is not None and time.monotonic() > self._deadline:
            raise _OutOfTimeError
        if self.pace.is_due() or done >= total:
            self._progress(Progress(done, total, detail))

    def interrupted(self, after: str) -> Status | None:
        """The status of a run that was stopped after so much work; None if it was not."""
        if self.stopped_by is None:
            return None
        return Status("interrupted", f"Stopped by {self.stopped_by} after {after}: not finished.")

    def seconds(self) -> dict[str, float]:
        """For the diagnostics: in compiled chunks, and everything else."""
        total = time.perf_counter() - self._begun
        return {"seconds_training": self.pace.seconds, "seconds_compilation": total - self.pace.seconds}
