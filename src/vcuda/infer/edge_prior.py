"""The prior of every edge: one probability, odds of single edges, what is forbidden and what is required."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from vcuda.errors import ConfigError, KnowledgeError
from vcuda.graphs import is_dag


class EdgePrior(NamedTuple):
    """Prior of each edge i -> j given that i comes before j, each (d, d).

    ``log_odds`` of pi_ij, minus infinity where forbidden; ``log_absent``, log(1 - pi_ij); ``required``
    booleans. A certain edge has 0 for both numbers, a forbidden one 0 for the second: what is sure costs
    nothing.
    """

    log_odds: np.ndarray
    log_absent: np.ndarray
    required: np.ndarray


def edge_prior(
    nodes: int,
    edge_probability: float,
    *,
    log_odds: np.ndarray | None = None,
    allowed: np.ndarray | None = None,
    required: np.ndarray | None = None,
) -> EdgePrior:
    """Combine one probability, or log odds (d, d) of single edges, with what is forbidden and required."""
    if not 0 < edge_probability < 1:
        raise ConfigError(f"edge_probability must lie between 0 and 1, got {edge_probability}")
    shape = (nodes, nodes)
    for name, matrix in (("log_odds", log_odds), ("allowed", allowed), ("required", required)):
        if matrix is not None and np.shape(matrix) != shape:
            raise ConfigError(f"{name} must have shape {shape}, got {np.shape(matrix)}")
    constant = np.log(edge_probability) - np.log1p(-edge_probability)
    odds = np.full(shape, constant) if log_odds is None else np.array(log_odds, dtype=np.float64)
    forbidden = np.zeros(shape, dtype=bool) if allowed is None else ~np.asarray(allowed, dtype=bool)
    forbidden |= odds == -np.inf
    must = np.zeros(shape, dtype=bool) if required is None else np.array(required, dtype=bool)
    must |= odds == np.inf
    np.fill_diagonal(forbidden, True)
    if (must & forbidden).any():
        i, j = np.argwhere(must & forbidden)[0]
        raise KnowledgeError(f"the edge {i} -> {j} is both required and forbidden; drop one of the two")
    if not is_dag(must):
        raise KnowledgeError("the required edges form a cycle; drop one of them")
    if np.isnan(odds).any():
        raise ConfigError("log_odds must be numbers, got nan")
    certain = must | forbidden
    odds[certain] = 0.0
    absent = -np.logaddexp(0.0, odds)
    absent[certain] = 0.0
    odds[forbidden] = -np.inf
    return EdgePrior(odds, absent, must)
