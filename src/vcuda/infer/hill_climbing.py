"""Greedy search over DAGs: for orders to start from, and as a second opinion on what was sampled."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from vcuda.graphs import ancestors, topological_order
from vcuda.infer.edge_prior import EdgePrior
from vcuda.infer.progress import always
from vcuda.models.protocol import LocalScore

# Gains below this are rounding, or the two directions of an edge that the score cannot tell apart.
LEAST_GAIN = 1e-6
# In place of minus infinity, so that differences stay numbers.
FORBIDDEN = -1e12
# How many neighbouring nodes may lose all their edges at once: with one, hubs whose children were taken for their
# parents stay so; with six they were turned within 60 tries at 50 columns.
LOOSENED = 6


def climb_orders(
    score: LocalScore,
    prior: EdgePrior,
    rng: np.random.Generator,
    *,
    count: int,
    climbs: int,
    max_parents: int,
    go_on: Callable[[], bool] = always,
) -> list[np.ndarray]:
    """Return orders (d,) of the ``count`` best DAGs that ``climbs`` greedy climbs end at, the best first.

    There are fewer where ``go_on`` says no (time is short).
    """
    found = [climb(score, prior, rng, max_parents=max_parents, go_on=go_on)]
    while len(found) < climbs and go_on():
        found.append(climb(score, prior, rng, max_parents=max_parents, go_on=go_on))
    found.sort(key=lambda end: -end[0])
    orders = []
    for _, graph in found[:count]:
        # Of the orders that a DAG leaves open, any.
        shuffled = rng.permutation(score.nodes)
        orders.append(shuffled[np.asarray(topological_order(graph[np.ix_(shuffled, shuffled)]))])
    return orders


def climb(
    score: LocalScore,
    prior: EdgePrior,
    rng: np.random.Generator,
    *,
    max_parents: int,
    go_on: Callable[[], bool] = always,
) -> tuple[float, np.ndarray]:
    """Climb from the required edges alone to a DAG (d, d) that no single change improves; return its total and it.

    Every gain is multiplied by a random factor between 1/2 and 1 that belongs to the ordered pair, so that repeated
    climbs take different ways. Where ``go_on`` says no (time is short), it ends on its way.
    """
    path = _Path(score, prior, max_parents, prior.required)
    path.climb(rng.uniform(0.5, 1.0, size=path.graph.shape), go_on=go_on)
    return path.total(), path.graph


def climb_on(
    score: LocalScore,
    prior: EdgePrior,
    rng: np.random.Generator,
    graph: np.ndarray,
    *,
    max_parents: int,
    patience: int,
    most_moves: int,
    go_on: Callable[[], bool],
) -> tuple[float, np.ndarray]:
    """Take the edges of a few neighbouring nodes away and climb again, from the best DAG (d, d) so far, as long as it
    pays; return the best total and its DAG.

    It ends after ``patience`` tries without a gain, or ``most_moves`` moves. Between two tries the DAG is exchanged for
    another of its Markov equivalence class where the score does not see the difference: another one may be better
    connected to the graphs around.
    """
    best = _Path(score, prior, max_parents, graph)
    height, moves, idle = best.total(), 0, 0
    while idle < patience and moves < most_moves and go_on():
        other = best.copy()
        if score.score_equivalent:
            other.set(_equivalent(other.graph, prior, rng))
        other.set(_loosened(other.graph, prior, rng))
        moves += other.climb(rng.uniform(0.5, 1.0, size=graph.shape), go_on=go_on) + other.climb(go_on=go_on)
        reached = other.total()
        idle = idle + 1 if reached <= height + LEAST_GAIN else 0
        if reached > height - LEAST_GAIN:
            best, height = other, reached
    return height, best.graph


class _Path:
    """A DAG (d, d) on its way up, with what every pair gains (d, d) as an edge against not being one.

    Only nodes whose parents changed are scored again: O(d k²) a move for k parents, beside the check for cycles.
    """

    def __init__(
        self,
        score: LocalScore,
        prior: EdgePrior,
        max_parents: int,
        graph: np.ndarray,
        gains: np.ndarray | None = None,
    ) -> None:
        self._of = score, prior, max_parents
        self.graph = np.array(graph, dtype=bool)
        self._above = ancestors(self.graph)
        if gains is None:
            gains = np.stack([self._toggles(node) for node in range(score.nodes)], axis=1)
        self._gains = gains.copy()

    def copy(self) -> _Path:
        return _Path(*self._of, self.graph, self._gains)

    def total(self) -> float:
        score, prior, _ = self._of
        fits = (score.score(node, np.flatnonzero(parents).tolist()) for node, parents in enumerate(self.graph.T))
        return float(sum(fits) + prior.log_odds_of(self.graph))

    def set(self, graph: np.ndarray) -> None:
        """Go to another DAG."""
        changed = np.flatnonzero((self.graph != graph).any(axis=0))
        self.graph = graph
        self._above = ancestors(graph)
        for node in changed.tolist():
            self._gains[:, node] = self._toggles(node)

    def _add(self, i: int, j: int) -> None:
        self.graph[i, j] = True
        upper, lower = self._above[:, i].copy(), self._above[j].copy()
        upper[i] = lower[j] = True
        self._above |= upper[:, None] & lower
        self._gains[:, j] = self._toggles(j)

    def climb(self, favour: np.ndarray | float = 1.0, *, go_on: Callable[[], bool] = always) -> int:
        """Add, drop or turn the edge that gains most, its gain taken times its favour, until none does; return the
        number of moves."""
        nodes = len(self.graph)
        # A climb visits no graph twice, but a table can be such that it takes long to end.
        for made in range(20 * nodes):
            if not go_on():
                return made
            best = self._moves() * favour
            kind, i, j = (int(part) for part in np.unravel_index(np.argmax(best), best.shape))
            if best[kind, i, j] <= LEAST_GAIN:
                return made
            if kind == 0:
                self._add(i, j)
                continue
            graph = self.graph.copy()
            graph[i, j], graph[j, i] = False, kind == 2
            self.set(graph)
        return 20 * nodes

    def _toggles(self, node: int) -> np.ndarray:
        """What each column gains (d,) as a parent of the node against not being one, prior odds included."""
        score, prior, _ = self._of
        chosen = np.flatnonzero(self.graph[:, node])
        gained = np.array(score.gains(node, chosen.tolist()))
        gained[chosen] = score.losses(node, chosen)
        return np.maximum(gained + prior.log_odds[:, node], FORBIDDEN)

    def _moves(self) -> np.ndarray:
        """Gains (3, d, d) of adding, dropping and turning each edge, ``FORBIDDEN`` where that cannot be done."""
        _, prior, max_parents = self._of
        graph, gains, above = self.graph, self._gains, self._above
        room = graph.sum(axis=0) < max_parents
        free = ~graph & ~above.T & room
        np.fill_diagonal(free, False)
        loose = graph & ~prior.required
        # i -> j can be turned unless another way leads from i to j, over a parent of j that descends from i.
        other_way = (above.astype(np.float32) @ graph.astype(np.float32)) > 0
        turnable = loose & ~other_way & room[:, None]
        possible = np.stack([free, loose, turnable])
        return np.where(possible, np.stack([gains, -gains, gains.T - gains]), FORBIDDEN)


def _loosened(graph: np.ndarray, prior: EdgePrior, rng: np.random.Generator) -> np.ndarray:
    """The DAG without the edges of up to six nodes: one drawn by its number of edges, and neighbours of it."""
    degree = graph.sum(axis=0) + graph.sum(axis=1) + 0.1
    first = rng.choice(len(graph), p=degree / degree.sum())
    around = np.flatnonzero(graph[first] | graph[:, first])
    others = rng.permutation(around)[: rng.integers(LOOSENED)]
    cut = graph.copy()
    for node in (first, *others):
        cut[:, node] = prior.required[:, node]
        cut[node] = prior.required[node]
    return cut


def _equivalent(graph: np.ndarray, prior: EdgePrior, rng: np.random.Generator) -> np.ndarray:
    """Another DAG of the same Markov equivalence class: a walk over covered edges, whose ends have the same other
    parents, and which can be turned (Chickering 1995)."""
    turned = graph.copy()
    for _ in range(2 * int(graph.sum())):
        edges = np.argwhere(turned)
        i, j = edges[rng.integers(len(edges))]
        parents = turned[:, j].copy()
        parents[i] = False
        if np.array_equal(parents, turned[:, i]) and np.isfinite(prior.log_odds[j, i]) and not prior.required[i, j]:
            turned[i, j], turned[j, i] = False, True
    return turned
