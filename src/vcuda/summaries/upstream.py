"""What a variable hangs on: all variables above it in one causal model, with mechanisms drawn."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from vcuda.posterior.mechanisms import CausalModel

# Rows that one model is simulated with, in pairs of opposite noise, the same for every x: what is left of the noise in
# a curve is what its bends make of it.
SIMULATED_ROWS = 128


class Upstream(NamedTuple):
    """What a node hangs on: all nodes above it, itself last, each after its parents, with mechanisms drawn."""

    order: list[int]
    parents: dict[int, np.ndarray]
    mechanisms: dict[int, Any]

    @classmethod
    def of(cls, model: CausalModel, node: int, *, cut: int | None = None) -> Upstream:
        """The node ``cut`` is set from outside: it has no parents and no mechanism."""
        order: list[int] = []
        parents: dict[int, np.ndarray] = {}
        waiting = [(node, False)]
        while waiting:
            current, parents_done = waiting.pop()
            if parents_done:
                order.append(current)
            elif current not in parents:
                parents[current] = model.parents(current) if current != cut else np.empty(0, dtype=np.int64)
                waiting.append((current, True))
                waiting += [(int(parent), False) for parent in parents[current]]
        return cls(order, parents, {node: model.mechanism(node, parents[node]) for node in order if node != cut})

    @property
    def linear(self) -> bool:
        return all(mechanism.slopes is not None for mechanism in self.mechanisms.values())

    def line(self, cut: int | None) -> tuple[float, float, float]:
        """Intercept, slope in the cut node, and variance of the last node where all is linear."""
        reach = self.reach(cut)
        intercept = variance = 0.0
        for node in reversed(self.order):
            if node != cut:
                mechanism = self.mechanisms[node]
                intercept += reach[node] * mechanism.intercept
                variance += (reach[node] * mechanism.noise) ** 2
        return intercept, 0.0 if cut is None else reach.get(cut, 0.0), variance

    def reach(self, cut: int | None) -> dict[int, float]:
        """What one unit of each node adds to the last one where all is linear: one pass backwards."""
        found = dict.fromkeys(self.order, 0.0)
        found[self.order[-1]] = 1.0
        for node in reversed(self.order):
            if node == cut:
                continue
            for parent, slope in zip(self.parents[node].tolist(), self.mechanisms[node].slopes.tolist(), strict=True):
                found[parent] += found[node] * slope
        return found

    def simulate(self, rng: np.random.Generator, cut: int | None, values: np.ndarray) -> np.ndarray:
        """The last node without its own noise, ``(g, m)``, when the cut node has each of the values ``(g,)``.

        ``(1, m)`` if they do not matter. The same noise for every value, and each of its draws with its opposite.
        """
        half = rng.standard_normal((len(self.order), SIMULATED_ROWS // 2))
        noise = np.concatenate([half, -half], axis=1)
        found: dict[int, np.ndarray] = {}
        for node, own in zip(self.order, noise, strict=True):
            if node == cut:
                found[node] = np.broadcast_to(values[:, None], (len(values), SIMULATED_ROWS))
                continue
            inputs = np.broadcast_arrays(*(found[parent] for parent in self.parents[node].tolist()), own[None])[:-1]
            shape = inputs[0].shape if inputs else (1, SIMULATED_ROWS)
            flat = np.stack([array.reshape(-1) for array in inputs], axis=1) if inputs else np.empty((shape[1], 0))
            mechanism = self.mechanisms[node]
            found[node] = mechanism.function(flat).reshape(shape)
            if node != self.order[-1]:
                found[node] = found[node] + mechanism.noise * own
        return found[self.order[-1]]

    @property
    def own_variance(self) -> float:
        """Of the last node's noise."""
        return self.mechanisms[self.order[-1]].noise ** 2

    def rows(self, cut: int | None, values: np.ndarray, chances: np.ndarray) -> np.ndarray:
        """The parents ``(h, m, k)`` of the last node when the cut node has each of the values ``(g,)``, by simulation.

        ``chances`` ``(nodes, m)`` are the quantiles of each node, the same for every value. h is g, or one where the
        values do not matter.
        """
        found: dict[int, np.ndarray] = {}
        for node, own in zip(self.order, chances, strict=True):
            if node == cut:
                found[node] = np.broadcast_to(values[:, None], (len(values), own.size))
                continue
            inputs = np.broadcast_arrays(*(found[parent] for parent in self.parents[node].tolist()), own[None])[:-1]
            rows = np.stack(inputs, axis=-1) if inputs else np.empty((1, own.size, 0))
            if node == self.order[-1]:
                return rows
            flat = rows.reshape(rows.shape[0] * rows.shape[1], rows.shape[2])
            drawn = self.mechanisms[node].simulate(flat, np.tile(own, len(rows)))
            found[node] = drawn.reshape(rows.shape[:2])
        raise AssertionError("the last node comes last")
