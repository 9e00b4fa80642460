"""Weights that turn graphs drawn with their orders into graphs of a prior that knows no orders.

A sampler of pairs (order, graph) meets a graph as often as it has orders. Weights of one over the number of orders undo
that. They are importance weights: the more they differ, the fewer graphs they are worth.
"""

from __future__ import annotations

from math import log
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from vcuda.graphs import count_orders
from vcuda.posterior.samples import GraphSamples


class GraphWeights(NamedTuple):
    """Weighted graphs, the number of unweighted ones that they are worth, and the log mean of one over the number of
    orders."""

    samples: GraphSamples
    effective: float
    log_mean: float


def weigh_by_orders(drawn: GraphSamples) -> GraphWeights:
    """Weight graphs by one over the number of their orders."""
    known: dict[bytes, float] = {}
    log_weights = np.empty(len(drawn))
    for k, graph in enumerate(drawn):
        key = np.packbits(graph).tobytes()
        if key not in known:
            known[key] = -log(count_orders(graph))
        log_weights[k] = known[key]
    weights = np.exp(log_weights - logsumexp(log_weights))
    samples = GraphSamples(drawn.names, drawn.offsets, drawn.sources, drawn.targets, weights)
    return GraphWeights(samples, float(1 / (weights**2).sum()), float(logsumexp(log_weights) - log(len(drawn))))
