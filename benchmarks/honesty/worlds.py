"""Causal models whose functions stay at hand, so that the same model gives a table and the truth about its effects."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np

from vcuda.data.random_models import (
    LARGEST_LOG_RATE,
    LOG_ODDS_SD,
    LOG_RATE_SD,
    RATES,
    Edges,
    NoiseFamily,
    standard_noise,
)
from vcuda.data.simulate import random_weights
from vcuda.graphs import ancestors, topological_order_edges

# Rows that stand for all rows that could be drawn: of the expectations under do(), and of the scaling of causes.
MANY_ROWS, SCALING_ROWS = 50_000, 10_000
# Random Fourier features of a smooth function: enough for any shape, and cheap to draw again under do().
FEATURES = 100
# How far a squashed effect reaches into both ends of tanh, in standard deviations of what is squashed.
SQUASH = 1.5

# The values (rows,) of a node, given those of its parents (k, rows).
Mechanism = Callable[[np.ndarray, np.random.Generator], np.ndarray]
# Makes the mechanism of a node: its number, its parents, their values (k, rows) in many rows, and a generator.
Maker = Callable[[int, list[int], np.ndarray, np.random.Generator], Mechanism]


class World:
    """A DAG with a mechanism for each node.

    Parameters
    ----------
    dag, nodes
        The graph.
    make
        Makes each mechanism, causes before effects.
    seed
        The same seed gives the same world and the same rows.
    """

    def __init__(self, dag: Edges, nodes: int, make: Maker, seed: int) -> None:
        self.nodes, self.seed = nodes, seed
        self.order = topological_order_edges(dag.sources, dag.targets, nodes).tolist()
        self.parents = [dag.sources[dag.into(node)].tolist() for node in range(nodes)]
        self.graph = np.zeros((nodes, nodes), dtype=bool)
        self.graph[dag.sources, dag.targets] = True
        self.above = ancestors(self.graph)
        self._mechanisms: dict[int, Mechanism] = {}
        many = np.empty((nodes, SCALING_ROWS))
        for node in self.order:
            inputs = many[self.parents[node]]
            self._mechanisms[node] = make(node, self.parents[node], inputs, self._generator(0, node))
            many[node] = self._mechanisms[node](inputs, self._generator(1, node))

    def _generator(self, stream: int, node: int) -> np.random.Generator:
        """A generator of each node: under do() every node that is drawn again has the noise that it had before."""
        return np.random.default_rng([self.seed, stream, node])

    def rows(self, rows: int) -> np.ndarray:
        """A table (rows, d)."""
        values = np.empty((self.nodes, rows))
        self._draw(values, self.order, stream=2)
        return values.T.copy()

    def _draw(self, values: np.ndarray, nodes: list[int], *, stream: int) -> None:
        for node in nodes:
            values[node] = self._mechanisms[node](values[self.parents[node]], self._generator(stream, node))

    @cached_property
    def _many(self) -> np.ndarray:
        values = np.empty((self.nodes, MANY_ROWS))
        self._draw(values, self.order, stream=3)
        return values

    def change(self, cause: int, outcome: int, low: float, high: float) -> float:
        """By how much the expected outcome changes when the cause is set to ``high`` and not to ``low``."""
        if not self.above[cause, outcome]:
            return 0.0
        between = [
            node for node in self.order if self.above[cause, node] and (node == outcome or self.above[node, outcome])
        ]
        means = []
        for value in (low, high):
            values = self._many.copy()
            values[cause] = value
            self._draw(values, between, stream=3)
            means.append(float(values[outcome].mean()))
        return means[1] - means[0]


# Mechanisms ---------------------------------------------------------------------------------------------------


def curves(scales: np.ndarray, noise: NoiseFamily) -> Maker:
    """Smooth functions of all parents together, drawn from a Gaussian process as those of `simulate`, plus noise."""

    def make(node: int, parents: list[int], inputs: np.ndarray, rng: np.random.Generator) -> Mechanism:
        frequencies = rng.standard_normal((FEATURES, len(inputs)))
        phases = rng.uniform(0, 2 * np.pi, (FEATURES, 1))
        amplitudes = rng.standard_normal(FEATURES) * np.sqrt(2 / FEATURES)

        def draw(own: np.ndarray, rng: np.random.Generator) -> np.ndarray:
            values = scales[node] * standard_noise(rng, noise, own.shape[1])
            return values + amplitudes @ np.cos(frequencies @ own + phases) if len(own) else values

        return draw

    return make


def distorted(scales: np.ndarray, distortion: Callable[[np.ndarray], np.ndarray], *, once: bool = False) -> Maker:
    """Effects are distorted sums: standardised causes and Gaussian noise are added up, then distorted.

    ``once``: an effect of what is distorted is not distorted again; a cube of cubes has no tails that any table has.
    """
    below: set[int] = set()

    def make(node: int, parents: list[int], inputs: np.ndarray, rng: np.random.Generator) -> Mechanism:
        combined = _linear(inputs, rng)
        spread = float(np.hypot(combined(inputs).std(), scales[node]))
        plain = not parents or (once and not below.isdisjoint(parents))
        if parents:
            below.add(node)

        def draw(own: np.ndarray, rng: np.random.Generator) -> np.ndarray:
            added = combined(own) + scales[node] * rng.standard_normal(own.shape[1])
            return added if plain else distortion(added / spread)

        return draw

    return make


def cubed(values: np.ndarray) -> np.ndarray:
    return values**3


def squashed(values: np.ndarray) -> np.ndarray:
    return np.tanh(SQUASH * values)


def of_kinds(scales: np.ndarray, kinds: list[str]) -> Maker:
    """Numbers by linear regressions, 0/1 columns by logistic ones, counts by Poisson ones, on standardised causes."""

    def make(node: int, parents: list[int], inputs: np.ndarray, rng: np.random.Generator) -> Mechanism:
        combined, kind = _linear(inputs, rng), kinds[node]
        spread = float(combined(inputs).std()) or 1.0
        log_odds = rng.uniform(-1, 1)
        log_rate = rng.uniform(*np.log(RATES))

        def draw(own: np.ndarray, rng: np.random.Generator) -> np.ndarray:
            added = combined(own)
            if kind == "number":
                return added + scales[node] * rng.standard_normal(own.shape[1])
            if kind == "yes/no":
                # The log odds less logistic noise: under do() a row has the noise that it had before.
                return (log_odds + LOG_ODDS_SD * added / spread > rng.logistic(size=own.shape[1])).astype(np.float64)
            rate = np.exp(np.minimum(log_rate + LOG_RATE_SD * added / spread, LARGEST_LOG_RATE))
            return rng.poisson(rate).astype(np.float64)

        return draw

    return make


def _linear(inputs: np.ndarray, rng: np.random.Generator) -> Callable[[np.ndarray], np.ndarray]:
    """A weighted sum of causes, each standardised as it is in many rows."""
    weights = random_weights(rng, len(inputs)) / inputs.std(axis=1)
    centres = inputs.mean(axis=1, keepdims=True)
    return lambda own: weights @ (own - centres)
