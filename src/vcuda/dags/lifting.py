"""Required edges in distributions over DAGs that draw priorities: priorities are lifted until they obey.

With R the required edges, the priorities p become p'_j = max over j and its ancestors i in R of p_i. This is the
identity wherever p obeys R already. Ties go to a topological order of R, so that every required edge points forward in
the order of p'; it is then set in the graph, and all other edges are as before. A graph is still distributed as
independent edges given an order, so that no sample has to be rejected and none fails to obey.
"""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np
from scipy.special import log_ndtr, ndtr, ndtri

from vcuda.dags.bulk import EdgeLists
from vcuda.graphs import ancestors, topological_order

# Points of the integral for each node that a lifted priority depends on: edge probabilities are good to about 1e-4.
POINTS = 400
# Standard deviations beyond which nothing counts.
REACH = 8.0


class Lift(NamedTuple):
    """Required edges, prepared for lifting.

    ``required`` (d, d); ``upwards`` (d, d), true at [i, j] when i is j or an ancestor of j by required edges;
    ``ranks`` (d,), the places of the nodes in a topological order of the required edges.
    """

    required: np.ndarray
    upwards: np.ndarray
    ranks: np.ndarray

    @classmethod
    def of(cls, required: np.ndarray | None) -> Self | None:
        """From a DAG (d, d) of required edges; None when nothing is required."""
        if required is None or not np.any(required):
            return None
        edges = np.array(required, dtype=bool)
        order = topological_order(edges)
        ranks = np.empty(len(order), dtype=np.int32)
        ranks[order] = np.arange(len(order))
        return cls(edges, ancestors(edges) | np.eye(len(edges), dtype=bool), ranks)

    def lifted_ranks(self, priorities: np.ndarray) -> np.ndarray:
        """Lift rows of priorities (s, d) and return the places (s, d) of the nodes in the order that they make."""
        lifted = np.array(priorities, dtype=np.float64)
        for node in np.argsort(self.ranks):
            causes = np.flatnonzero(self.required[:, node])
            if causes.size:
                lifted[:, node] = np.maximum(lifted[:, node], lifted[:, causes].max(axis=1))
        order = np.lexsort((np.broadcast_to(self.ranks, lifted.shape), lifted), axis=-1)
        places = np.empty_like(lifted)
        np.put_along_axis(places, order, np.arange(lifted.shape[1], dtype=np.float64), axis=1)
        return places

    def add_required(self, lists: EdgeLists) -> EdgeLists:
        """Graphs with the required edges beside their own, none of which is required; sorted within each graph."""
        nodes, size = len(self.required), len(lists.counts)
        always = np.flatnonzero(self.required)
        drawn = lists.sources.astype(np.int64) * nodes + lists.targets
        graph = np.concatenate([np.repeat(np.arange(size), lists.counts), np.repeat(np.arange(size), always.size)])
        codes = np.sort(graph * nodes**2 + np.concatenate([drawn, np.tile(always, size)]))
        sources, targets = np.divmod(codes % nodes**2, nodes)
        return EdgeLists(lists.counts + always.size, sources.astype(np.int32), targets.astype(np.int32))

    def normal_precedence(self, means: np.ndarray, scales: np.ndarray) -> np.ndarray:
        """P(i comes before j) (d, d) once independent normal priorities are lifted; the diagonal means nothing.

        With A_i the nodes that p'_i depends on, i comes before j when the largest of all priorities in A_i and A_j
        stands in A_j alone; when it stands in both, the topological order decides. Each case is an integral over the
        value of the largest, of a product of normal distribution functions.
        """
        gaps = means - means[:, None]
        before = ndtr(gaps / np.sqrt(scales**2 + scales[:, None] ** 2))
        raised = np.flatnonzero(self.upwards.sum(axis=0) > 1)
        single = np.setdiff1d(np.arange(len(means)), raised)
        z = np.concatenate([[-REACH], ndtri((np.arange(POINTS) + 0.5) / POINTS), [REACH]])

        def points(members: np.ndarray) -> np.ndarray:
            return np.unique(means[members, None] + scales[members, None] * z)

        def log_largest(members: np.ndarray, at: np.ndarray) -> np.ndarray:
            return log_ndtr((at - means[members, None]) / scales[members, None]).sum(axis=0)

        def smaller(below: np.ndarray, above: np.ndarray) -> float:
            """P(largest of ``below`` < largest of ``above``), two sets without a common member."""
            if not above.size or not below.size:
                return float(above.size > 0)
            at = points(np.concatenate([below, above]))
            low, high = np.exp(log_largest(below, at)), np.exp(log_largest(above, at))
            return float(0.5 * np.diff(high) @ (low[1:] + low[:-1]) + 1.0 - high[-1])

        for i in raised:
            own = np.flatnonzero(self.upwards[:, i])
            at = points(own)
            low = np.exp(log_largest(own, at))
            # Of each other node that is not lifted: where it lies among the points, and beyond the last one.
            others = ndtr((at - means[single, None]) / scales[single, None])
            before[i, single] = 0.5 * np.diff(others, axis=1) @ (low[1:] + low[:-1]) + 1.0 - others[:, -1]
            before[single, i] = 1.0 - before[i, single]
            for j in raised[raised > i]:
                other = np.flatnonzero(self.upwards[:, j])
                only_i, only_j = np.setdiff1d(own, other), np.setdiff1d(other, own)
                both = np.intersect1d(own, other)
                first = smaller(own, only_j)
                if self.ranks[i] < self.ranks[j] and both.size:
                    first += smaller(np.concatenate([only_i, only_j]), both)
                before[i, j], before[j, i] = first, 1.0 - first
        # What required edges decide is certain, and not subject to the error of an integral.
        return np.where(self.upwards, 1.0, np.where(self.upwards.T, 0.0, before))
