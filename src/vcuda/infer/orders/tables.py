"""Tables of local scores over candidate parents, and what an order draws from them.

For node j with candidates C_j (bit t of a mask is candidate t) and log weights w_j(U) = log p(x_j | x_U) +
the log odds of the edges in U, two tables of 2**|C_j| single-precision numbers are kept: the weights
themselves, to draw parent sets, and the sums H_j(m) = log sum over U in m of exp w_j(U), to weigh orders and
to give edge probabilities. Parents that are *fixed* (required, or so certain that a hub needs no bit for
them) belong to every parent set and must come first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

NEGLIGIBLE = 1e-6
LOG_NEGLIGIBLE = float(np.log(NEGLIGIBLE))


@dataclass(frozen=True, eq=False)
class ParentTables:
    """Score tables of all nodes.

    Attributes
    ----------
    candidates, fixed
        For each node its candidate parents in the order of their bits, and its fixed parents.
    offsets
        (d + 1,): the tables of node j are ``offsets[j]:offsets[j + 1]``.
    weights, sums
        (t,) float32: w_j and H_j of all nodes, less ``shifts[j]``.
    shifts
        (d,): what was subtracted, so that single precision is best where the posterior lies.
    corrections
        For each node (c,): the part of H_j(m + t) - H_j(m) that comes from the prior of the order.
    log_absent
        The log prior probability that no edge is there, as far as no table holds it.
    """

    candidates: tuple[np.ndarray, ...]
    fixed: tuple[np.ndarray, ...]
    offsets: np.ndarray
    weights: np.ndarray
    sums: np.ndarray
    shifts: np.ndarray
    corrections: tuple[np.ndarray, ...]
    log_absent: float

    @property
    def nodes(self) -> int:
        return len(self.candidates)

    @property
    def log_constant(self) -> float:
        """What the log score of an order lacks of its log joint density with the data."""
        return float(self.shifts.sum()) + self.log_absent

    def masks(self, priorities: np.ndarray) -> np.ndarray:
        """Return the masks (s, d) of the candidates that come first, for priorities (s, d)."""
        masks = np.zeros(priorities.shape, dtype=np.int64)
        for node, candidates in enumerate(self.candidates):
            before = priorities[:, candidates] < priorities[:, node, None]
            masks[:, node] = before @ (1 << np.arange(candidates.size))
        return masks

    def dense(self, per_candidate: np.ndarray) -> np.ndarray:
        """Spread values (d, k) of candidates over a matrix (d, d) of edges; fixed parents get a one."""
        edges = np.zeros((self.nodes, self.nodes))
        for node, (chosen, certain) in enumerate(zip(self.candidates, self.fixed, strict=True)):
            edges[chosen, node] = per_candidate[node, : chosen.size]
            edges[certain, node] = 1.0
        return edges

    def draw(self, rng: np.random.Generator, priorities: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Draw one graph for each row of priorities (s, d): which sample, sources and targets of all edges,
        by sample."""
        size = len(priorities)
        masks = self.masks(priorities)
        which, sources, targets = [], [], []
        for node, candidates in enumerate(self.candidates):
            chosen = self._draw_sets(rng, node, masks[:, node])
            for bit, candidate in enumerate(candidates):
                holds = np.flatnonzero(chosen >> bit & 1)
                which.append(holds)
                sources.append(np.full(holds.size, candidate))
                targets.append(np.full(holds.size, node))
            for certain in self.fixed[node]:
                which.append(np.arange(size))
                sources.append(np.full(size, certain))
                targets.append(np.full(size, node))
        if not which:
            return (np.zeros(0, dtype=np.int64),) * 3
        joined = np.concatenate(which)
        by_sample = np.argsort(joined, kind="stable")
        return joined[by_sample], np.concatenate(sources)[by_sample], np.concatenate(targets)[by_sample]

    def best_graphs(self, ranks: np.ndarray) -> list[list[np.ndarray]]:
        """Return for each order, by its ranks (s, d), the best parents of every node among those that come before it.

        Orders that put the same candidates before a node share its array of parents.
        """
        graphs: list[list[np.ndarray]] = [[] for _ in ranks]
        for node, masks in enumerate(self.masks(ranks).T):
            best: dict[int, np.ndarray] = {}
            for graph, mask in zip(graphs, masks.tolist(), strict=True):
                if mask not in best:
                    subsets, weights = self._subsets(node, mask)
                    best[mask] = self.parents_of(node, int(subsets[np.argmax(weights)]))
                graph.append(best[mask])
        return graphs

    def parents_of(self, node: int, mask: int) -> np.ndarray:
        """Return the parents (k,) in a mask of the node's candidates, and its fixed parents."""
        candidates = self.candidates[node]
        return np.concatenate([candidates[mask >> np.arange(candidates.size) & 1 == 1], self.fixed[node]])

    def _subsets(self, node: int, mask: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the subsets of a mask that matter, and their log weights.

        Candidates that are in or out with a probability above 1 - 1e-6 do not vary: few of a hub's 2**18 sets
        remain.
        """
        start, bits = self.offsets[node], 1 << np.arange(self.candidates[node].size)
        inside = np.flatnonzero(mask & bits)
        bits = bits[inside]
        log_absent = self.sums[start + (mask ^ bits)] + self.corrections[node][inside] - self.sums[start + mask]
        varied = bits[(log_absent > LOG_NEGLIGIBLE) & (log_absent < -NEGLIGIBLE)].tolist()
        subsets = np.empty(1 << len(varied), dtype=np.int64)
        subsets[0] = bits[log_absent <= LOG_NEGLIGIBLE].sum()
        for position, bit in enumerate(varied):
            subsets[1 << position : 2 << position] = subsets[: 1 << position] | bit
        return subsets, self.weights[start + subsets].astype(np.float64)

    def _draw_sets(self, rng: np.random.Generator, node: int, masks: np.ndarray) -> np.ndarray:
        """Draw a parent set (s,) inside each mask (s,)."""
        drawn = np.zeros_like(masks)
        distinct, inverse = np.unique(masks, return_inverse=True)
        by_mask = np.split(np.argsort(inverse, kind="stable"), np.cumsum(np.bincount(inverse))[:-1])
        for mask, rows in zip(distinct, by_mask, strict=True):
            subsets, weights = self._subsets(node, int(mask))
            cumulated = np.cumsum(np.exp(weights - weights.max()))
            picks = np.searchsorted(cumulated, rng.random(rows.size) * cumulated[-1], side="right")
            drawn[rows] = subsets[np.minimum(picks, subsets.size - 1)]
        return drawn
