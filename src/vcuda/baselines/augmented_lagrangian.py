"""What methods of continuous optimisation share: the trace-exponential constraint, and the schedules that enforce it.

Both minimise f + λ h + (μ/2) h² with h(A) = tr exp(A) - d, which is zero exactly when the non-negative A has no cycle.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from vcuda.graphs import is_dag

# Beyond the largest value that was tried; the original programs have the same small margin.
MARGIN = 1e-8
NOTHING = np.zeros(0)


@jax.custom_vjp
def acyclicity(matrix: jax.Array) -> jax.Array:
    """h(A) = tr exp(A) - d of a ``(d, d)`` matrix without negative entries; O(d³).

    F = exp(A) - I is built without ever adding the identity, by F -> 2F + F² from a Taylor polynomial of A/2^k: with no
    negative entries nothing cancels, and h is right to the last digits even at 1e-15, where tr exp(A) - d is noise.
    """
    return jnp.trace(_exponential_less_identity(matrix))


def _forward(matrix: jax.Array) -> tuple[jax.Array, jax.Array]:
    less_identity = _exponential_less_identity(matrix)
    return jnp.trace(less_identity), less_identity


def _backward(less_identity: jax.Array, cotangent: jax.Array) -> tuple[jax.Array]:
    """The gradient of tr exp(A) is exp(A) transposed."""
    return (cotangent * (less_identity.T + jnp.eye(len(less_identity), dtype=less_identity.dtype)),)


acyclicity.defvjp(_forward, _backward)


def _exponential_less_identity(matrix: jax.Array) -> jax.Array:
    size = jnp.max(jnp.sum(jnp.abs(matrix), axis=0))
    # A column sum of at most 1/4 leaves an error of (1/4)^12 / 13! ~ 1e-17 of the polynomial of degree 12.
    halvings = jnp.clip(jnp.ceil(jnp.log2(jnp.maximum(size, 1e-300))) + 2, 0, 1000).astype(jnp.int32)
    small = matrix / 2.0 ** halvings.astype(matrix.dtype)
    squared = small @ small
    cubed = squared @ small
    fourth = squared @ squared

    def four_terms(first: int) -> jax.Array:
        """Four terms of the series from power ``first`` on, as powers one to four."""
        one, two, three, four = (1 / math.factorial(first + k) for k in range(4))
        return one * small + two * squared + three * cubed + four * fourth

    # B/1! + ... + B^12/12! in groups of four: (B/1! + .. + B⁴/4!) + B⁴ ((B/5! + .. + B⁴/8!) + B⁴ (B/9! + .. + B⁴/12!)).
    series = four_terms(1) + fourth @ (four_terms(5) + fourth @ four_terms(9))
    return jax.lax.fori_loop(0, halvings, lambda _, less: 2 * less + less @ less, series)


def penalty(constraint: jax.Array, multiplier: jax.Array | float, weight: jax.Array | float) -> jax.Array:
    """λ h + (μ/2) h²; multiplied in this order h² itself, which can overflow, does not appear."""
    return (multiplier + 0.5 * weight * constraint) * constraint


class StationarySchedule(NamedTuple):
    """GraN-DAG's: watch held-out values, and tighten the constraint when they have come to rest.

    ``multiplier`` is λ and ``weight`` μ. A value is recorded every ``window`` iterations. At every second one the last
    three are compared: if they fall or rise one way, and over the window by less than ``at_rest`` or upwards, λ grows
    by μ h, and μ tenfold when h has not fallen below ``progress`` times what it was at the last such time.
    """

    window: int = 100
    at_rest: float = 1e-4
    progress: float = 0.9
    multiplier: float = 0.0
    weight: float = 1e-3
    values: np.ndarray = NOTHING
    constraints: np.ndarray = NOTHING

    def record(self, loss: float, constraint: float) -> StationarySchedule:
        """What follows from the held-out loss and h at the end of a window; λ and μ change with ``constraints``."""
        now = self._penalty(constraint)
        seen = self._replace(values=np.append(self.values, loss + now))
        count = len(seen.values)
        if count < 3 or count % 2 == 0:
            return seen
        before, halfway, last = seen.values[-3:].tolist()
        if not min(before, last) < halfway < max(before, last):
            return seen
        slope = (last - before) / self.window
        if not (abs(slope) < self.at_rest or slope > 0):
            return seen
        stuck = len(self.constraints) > 0 and constraint > self.progress * self.constraints[-1]
        changed = seen._replace(
            multiplier=self.multiplier + self.weight * constraint,
            weight=self.weight * 10 if stuck else self.weight,
            constraints=np.append(self.constraints, constraint),
        )
        # So that the next comparison does not take the heavier penalty for a rise.
        raised = last + (changed._penalty(constraint) - now)
        return changed._replace(values=np.append(seen.values[:-1], raised))

    def _penalty(self, constraint: float) -> float:
        return (self.multiplier + 0.5 * self.weight * constraint) * constraint


class SubproblemSchedule(NamedTuple):
    """MCSL's: solve subproblems of so many steps each, with μ growing tenfold until h has fallen to a quarter.

    ``multiplier`` is λ and ``weight`` μ. After each subproblem, :meth:`record` takes its h; at most ``rounds`` times h
    has fallen enough, or μ has reached ``largest_weight``.
    """

    rounds: int = 25
    progress: float = 0.25
    tolerance: float = 1e-10
    largest_weight: float = 1e14
    multiplier: float = 0.0
    weight: float = 1e-5
    round: int = 1
    finished: bool = False
    met: bool = False
    before: float = math.inf

    def record(self, constraint: float) -> SubproblemSchedule:
        """The schedule after a subproblem that ended with this constraint: what the next one is like, if any."""
        weight = self.weight
        if constraint > self.progress * self.before:
            weight *= 10
            if weight < self.largest_weight:
                return self._replace(weight=weight)
        if constraint <= self.tolerance and self.round > 2:
            return self._replace(weight=weight, finished=True, met=True)
        following = self.round + 1
        return self._replace(
            weight=weight,
            before=constraint,
            multiplier=self.multiplier + weight * constraint,
            round=following,
            finished=following > self.rounds or weight >= self.largest_weight,
        )


def acyclic_part(graph: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, float]:
    """The edges of a ``(d, d)`` graph above the lowest threshold on their scores that leaves no cycle.

    Thresholds are the scores of edges themselves, so that the graph comes back whole, with minus infinity, if it has no
    cycle; O(log d) tests of a graph, since what is acyclic stays so when edges are taken away.
    """
    if is_dag(graph):
        return graph.copy(), -math.inf
    candidates = np.unique(scores[graph])

    def above(threshold: float) -> np.ndarray:
        return graph & (scores > threshold + MARGIN)

    low, high = 0, len(candidates) - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if is_dag(above(candidates[middle])) else (middle + 1, high)
    return above(candidates[low]), float(candidates[low])
