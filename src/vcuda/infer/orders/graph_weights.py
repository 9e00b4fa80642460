"""Weights that turn graphs drawn with their orders into graphs of a prior that knows no orders.

A sampler of pairs (order, graph) meets a graph as often as it has orders. Weights of one over the number of orders undo
that. They are importance weights: the more they differ, the fewer graphs they are worth.
"""

from __future__ import annotations

from collections.abc import Callable
from math import log
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from vcuda.graphs import count_orders
from vcuda.posterior.samples import GraphSamples

# Weighted even after the deadline: about a second with 20 columns.
FEWEST = 200


class GraphWeights(NamedTuple):
    """Weighted graphs, the number of unweighted ones that they are worth, and the log mean of one over the number of
    orders."""

    samples: GraphSamples
    effective: float
    log_mean: float


def weigh_by_orders(drawn: GraphSamples, *, go_on: Callable[[], bool]) -> GraphWeights:
    """Weight graphs by one over the number of their orders; only the first ones where there is no time for more."""
    known: dict[bytes, float] = {}
    log_weights = np.empty(len(drawn))
    for k, graph in enumerate(drawn):
        if k >= FEWEST and not go_on():
            log_weights, drawn = log_weights[:k], drawn.take(np.arange(k))
            break
        key = np.packbits(graph).tobytes()
        if key not in known:
            known[key] = -log(count_orders(graph))
        log_weights[k] = known[key]
    weights = np.exp(log_weights - logsumexp(log_weights))
    samples = GraphSamples(drawn.names, drawn.offsets, drawn.sources, drawn.targets, weights)
    return GraphWeights(samples, float(1 / (weights**2).sum()), float(logsumexp(log_weights) - log(len(drawn))))
