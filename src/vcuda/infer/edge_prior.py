"""The prior of every edge: one probability, odds of single edges, what is forbidden and what is required."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from scipy.special import expit, logit

from vcuda.data.knowledge import EdgeRules
from vcuda.errors import ConfigError, KnowledgeError
from vcuda.graphs import is_dag

Over = Literal["orders", "graphs"]
# Beyond this the orders of a graph take too long to count, and neither engine has another way to a prior over graphs.
MOST_NODES_OVER_GRAPHS = 20


class EdgePrior(NamedTuple):
    """The prior that engines take: of each edge i -> j given that i comes before j, each (d, d).

    ``log_odds`` of pi_ij, minus infinity where forbidden; ``log_absent``, log(1 - pi_ij); ``required``
    booleans. A certain edge has 0 for both numbers, a forbidden one 0 for the second: what is sure costs
    nothing. ``edge_probability`` is the pi that all edges share, apart from what is sure; None where single edges have
    their own.

    ``over`` says what is uniform apart from the edges. With ``"orders"`` all orders of the nodes are equally likely,
    so a graph counts once for every order that it agrees with. With ``"graphs"`` the probability of a DAG is
    proportional to the product of the odds of its edges, whatever its orders; ``log_absent`` is 0 there.
    """

    log_odds: np.ndarray
    log_absent: np.ndarray
    required: np.ndarray
    edge_probability: float | None = None
    over: Over = "orders"

    @property
    def nodes(self) -> int:
        return len(self.required)

    @property
    def free(self) -> np.ndarray:
        """The edges (d, d) that may be or not."""
        return np.isfinite(self.log_odds) & ~self.required

    @property
    def treats_edges_alike(self) -> bool:
        """Whether every edge may be or not, all with the same odds."""
        return self.edge_probability is not None and int(self.free.sum()) == self.nodes * (self.nodes - 1)

    def allowed_parents(self, node: int) -> np.ndarray:
        """The columns (k,) that may be parents of a node, those among them that must be."""
        return np.setdiff1d(np.flatnonzero(self.log_odds[:, node] > -np.inf), [node])

    def required_parents(self) -> list[np.ndarray]:
        """For each node the parents that it must have."""
        return [np.flatnonzero(column) for column in self.required.T]

    def log_odds_of(self, graph: np.ndarray) -> float:
        """What the edges of a graph (d, d) add to its log probability."""
        return float(self.log_odds[graph].sum())

    def raised(self, nats: np.ndarray) -> EdgePrior:
        """The prior with edges more probable by so many nats (d, d), which must be alike for both edges of a pair: then
        no order of the columns is preferred by it."""
        log_odds = np.where(self.required, self.log_odds, self.log_odds + nats)
        return self._replace(log_odds=log_odds, edge_probability=None)

    @property
    def log_no_edges(self) -> float:
        """The log probability that an order, which allows one edge of each pair, has none of those that may be."""
        return float(self.log_absent.sum()) / 2

    def denser(self, times: float) -> EdgePrior:
        """The prior with so many times the odds of every edge that may be or not."""
        log_odds = np.where(self.free, self.log_odds + np.log(times), self.log_odds)
        absent = np.where(self.free, -np.logaddexp(0.0, log_odds), 0.0) if self.over == "orders" else self.log_absent
        shared = None if self.edge_probability is None else float(expit(logit(self.edge_probability) + np.log(times)))
        return self._replace(log_odds=log_odds, log_absent=absent, edge_probability=shared)

    def among(self, columns: np.ndarray) -> EdgePrior:
        """The prior of the edges between some columns (k,), in their order."""
        both = np.ix_(columns, columns)
        return self._replace(
            log_odds=self.log_odds[both], log_absent=self.log_absent[both], required=self.required[both]
        )

    def hold(self, probabilities: np.ndarray) -> np.ndarray:
        """Edge probabilities (d, d) without the rounding of what is certain: 1 if required, 0 if forbidden."""
        return np.where(self.required, 1.0, np.where(np.isfinite(self.log_odds), probabilities, 0.0))


def edge_prior(
    nodes: int,
    edge_probability: float,
    *,
    log_odds: np.ndarray | None = None,
    allowed: np.ndarray | None = None,
    required: np.ndarray | None = None,
    over: Over = "orders",
) -> EdgePrior:
    """Combine one probability, or log odds (d, d) of single edges, with what is forbidden and required."""
    if over == "graphs" and nodes > MOST_NODES_OVER_GRAPHS:
        raise ConfigError(
            f"a uniform prior over DAGs takes at most {MOST_NODES_OVER_GRAPHS} columns, not {nodes:,}; choose fewer "
            "columns, or use the prior over orders: prior=0.1 or vcuda.DagPrior(0.1), --prior 0.1"
        )
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
    absent[certain | (over == "graphs")] = 0.0
    odds[forbidden] = -np.inf
    return EdgePrior(odds, absent, must, edge_probability if log_odds is None else None, over)


def prior_of_rules(nodes: int, edge_probability: float, rules: EdgeRules | None, over: Over = "orders") -> EdgePrior:
    """Combine one probability with what is known of the edges, if anything."""
    return edge_prior(nodes, edge_probability, over=over, **({} if rules is None else rules._asdict()))
