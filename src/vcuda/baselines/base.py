"""What the baselines share: presets, how their results become an outcome, and small checks.

A baseline is a frozen dataclass with a class-wide ``name`` and two presets, and an engine that follows it;
`vcuda.baselines.BASELINES` holds both under the name. The table is taken as it comes: who wants z-scores standardises
it before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Protocol, Self

import jax
import numpy as np

from vcuda.errors import ConfigError
from vcuda.infer.engine import Problem
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


def found(
    problem: Problem,
    samples: GraphSamples,
    scores: np.ndarray,
    status: Status,
    diagnostics: dict[str, Any],
    trace: dict[str, np.ndarray] | None = None,
    functions: Networks | None = None,
) -> Outcome:
    """What a baseline found, as every engine returns it.

    ``samples`` are DAGs (a point estimate is one); ``scores`` is ``(d, d)``, finite, not negative and zero on the
    diagonal, the higher the surer the edge i -> j, and before any threshold: it ranks edges, and need not be a
    probability (see :func:`ranking`). The edge probabilities are the shares of the sampled graphs, so 0 or 1 for a
    point estimate. ``functions`` is what rows can be predicted with, if the method has it: one set of networks for all
    samples, or one for each.
    """
    graph_posterior = ScoredGraphs(samples, scores, functions, problem.units)
    return Outcome(graph_posterior, status, diagnostics, trace or {})


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


def is_finite(tree: Any) -> bool:
    """Whether all numbers of a tree of arrays are finite."""
    return all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(tree))


def appended(series: np.ndarray, *values: float) -> np.ndarray:
    """A series ``(k, ...)`` with one more row; the given one is not changed."""
    return np.concatenate([series, np.reshape(np.array(values, dtype=series.dtype), (1, *series.shape[1:]))])
