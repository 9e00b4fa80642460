"""Candidate parents: which few columns may cause a column at all.

They decide everything: a true parent that is not a candidate is lost, and no agreement between chains shows
it. So they are found generously, closed under reversal (arrows must be able to turn), and widened after each
short run of the sampler by what explains a node beyond its best parents among those that came before it,
until nothing new comes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import expit

from vcuda.graphs import cpdag
from vcuda.infer.edge_prior import EdgePrior
from vcuda.infer.orders.greedy_parents import choose_parents
from vcuda.models.protocol import LocalScore

# A parent this many nats better than without it, and than the turned arrow, may be fixed where a hub needs
# its bit.
CERTAIN_NATS = 30.0
# What explains nothing gains about log(pi) - log(n) / 2; candidates above this may be worth their bit.
NULL_NATS = -4.0
# Entries of all tables together, whatever the number of columns and however many candidates chance makes where rows are
# few: 1.6 GB with the tables of the round before, and with what the compiled sweeps take.
TABLE_ENTRIES = 1 << 26
# Of these, what tables beyond the usual size may have, for hubs.
HUB_ENTRIES = 1 << 23
# What all tables may have together after improbable edges were added: a second to compute.
COMPLETED_ENTRIES = 1 << 22
# What columns gain beside sets of parents is kept up to this size, since each round asks for many of the same sets.
GAINS_BYTES = 64e6
# Most candidates of a node that matter only together with others, before anything is sampled.
HIDDEN = 4
# Most columns that join a node's parents as candidates because they are nearly as good, before anything is
# sampled.
NEAR = 8


@dataclass(frozen=True, eq=False)
class Candidates:
    """For each node its candidate parents, and the fixed ones, which take no bit."""

    free: tuple[np.ndarray, ...]
    fixed: tuple[np.ndarray, ...]

    def pairs(self) -> set[tuple[int, int]]:
        """Return all (parent, node) that are possible."""
        both = zip(self.free, self.fixed, strict=True)
        return {(int(i), node) for node, (free, fixed) in enumerate(both) for i in np.concatenate([free, fixed])}


def all_others(prior: EdgePrior) -> Candidates:
    """Return every allowed edge as a candidate."""
    nodes = len(prior.required)
    allowed = np.isfinite(prior.log_odds) & ~prior.required
    none = np.zeros(0, dtype=np.int64)
    return Candidates(tuple(np.flatnonzero(allowed[:, j]) for j in range(nodes)), (none,) * nodes)


def first_candidates(
    score: LocalScore,
    prior: EdgePrior,
    *,
    order: np.ndarray | None,
    tolerance: float,
    fill: int,
    cap: int,
    go_on: Callable[[int], bool] = lambda node: True,
) -> Candidates:
    """Find candidates before anything is sampled, from the predecessors in an order, or from all columns
    without one.

    Without an order children and their other parents are found as well as parents. Of the other parents,
    independent of the node by themselves, only the strongest are kept: a hub's parents would otherwise all be
    candidates of each other. (Some must be, since a parent's direct and indirect effects can cancel.) Where
    ``go_on`` says no (time is short), a node gets only the columns that explain it best alone.
    """
    nodes = score.nodes
    place = None if order is None else np.argsort(order)
    likely: list[np.ndarray] = []
    found: list[np.ndarray] = []
    fillers: list[np.ndarray] = []
    lonely: list[np.ndarray] = []
    strength = np.full((nodes, nodes), -np.inf, dtype=np.float32)
    for target in range(nodes):
        alone = score.gains(target, ())
        usable = np.isfinite(prior.log_odds[:, target])
        pool = usable if place is None else usable & (place < place[target])
        parents, near = np.zeros((2, 0), dtype=np.int64)
        if go_on(target):
            parents, near = choose_parents(score, prior, target, pool, tolerance=tolerance)
        losses = score.losses(target, parents)
        if place is None:
            hidden = np.flatnonzero(alone[parents] <= -tolerance)
            surplus = hidden[np.argsort(-losses[hidden], kind="stable")][HIDDEN:]
            parents, losses = np.delete(parents, surplus), np.delete(losses, surplus)
            near = near[alone[near] > -tolerance]
        strength[parents, target] = losses
        strength[near, target] = 0.0
        if place is None:
            lonely.append(np.where(usable, alone, -np.inf).astype(np.float32))
        likely.append(parents)
        found.append(np.concatenate([parents, near[:NEAR]]))
        if fill:
            best_alone = np.argsort(np.where(usable, -alone, np.inf), kind="stable")
            fillers.append(best_alone[: min(fill, int(usable.sum()))])
    if place is None:
        direct = _unexplained_pairs(np.array(lonely).T)
        found = [np.union1d(f, np.flatnonzero(direct[:, j])) for j, f in enumerate(found)]
        dependent = np.array(lonely).T > 0
    wanted = closure(found, prior)
    if fill:
        wanted = [
            np.concatenate([w, np.setdiff1d(f, w, assume_unique=True)[: max(fill - w.size, 0)]])
            for w, f in zip(wanted, fillers, strict=True)
        ]
    graphs = [likely] if order is not None else []
    # An edge and its reverse matter alike: what the better one of the two regressions loses without it.
    strength = np.maximum(strength, strength.T)
    if place is None:
        # Parents of a hub are independent of each other, its children are not, and those can do without a bit
        # of the hub as long as the hub has one of theirs.
        for target, chosen in enumerate(wanted):
            ties = dependent[np.ix_(chosen, chosen)].sum(axis=0)
            strength[chosen, target] = -ties + 1e-6 * np.maximum(strength[chosen, target], -1.0)
    return settle(score, prior, wanted, graphs=graphs, strength=strength, cap=cap)


def _unexplained_pairs(alone: np.ndarray) -> np.ndarray:
    """Return the pairs (d, d) that depend on each other and are not the weakest of any triangle.

    ``alone`` (d, d) is what column i gains as the only parent of j. Dependence fades along a path, so the
    weakest pair of a triangle can be explained by the two others. This finds the parents of a hub, of which
    greedy selection sees none: its children know the hub so well that a single parent adds nothing.
    """
    tie = np.maximum(alone, alone.T)
    np.fill_diagonal(tie, -np.inf)
    direct = tie > 0
    for node in range(len(tie)):
        around = np.flatnonzero(direct[:, node])
        # For each neighbour the best way round: over a third column that both ends know better than each
        # other.
        detour = np.minimum(tie[around], tie[node]).max(axis=1, initial=-np.inf)
        # A near copy of the other end ties with it up to sampling noise, about the square root of the gain.
        own = tie[around, node]
        direct[around, node] = detour <= own + np.sqrt(own) + 2.0
    return direct


def closure(candidates: Sequence[np.ndarray], prior: EdgePrior) -> list[np.ndarray]:
    """Let every arrow turn: add j to the candidates of i wherever i is a candidate of j and j -> i is
    allowed."""
    nodes = len(candidates)
    sources = np.concatenate(candidates).astype(np.int64)
    targets = np.repeat(np.arange(nodes), [len(c) for c in candidates])
    keys = np.unique(np.concatenate([targets * nodes + sources, sources * nodes + targets]))
    node, other = keys // nodes, keys % nodes
    allowed = np.isfinite(prior.log_odds[other, node])
    return np.split(other[allowed], np.searchsorted(node[allowed], np.arange(1, nodes)))


class GainsCache:
    """What columns gain beside sets of parents, computed once for each set while there is room."""

    def __init__(self, score: LocalScore) -> None:
        self.score = score
        self._known: dict[tuple[int, bytes], np.ndarray] = {}

    def gains(self, target: int, parents: np.ndarray) -> np.ndarray:
        """Return what each column would gain (d,) as one more parent of the target."""
        key = target, np.sort(parents).tobytes()
        if key in self._known:
            return self._known[key]
        found = self.score.gains(target, parents.tolist())
        # A score with a state keeps what it is asked for, and lazy tables hold what it was asked for.
        if self.score.is_stateless and 8 * self.score.nodes * len(self._known) < GAINS_BYTES:
            self._known[key] = found
        return found


def widen(
    known: GainsCache,
    prior: EdgePrior,
    candidates: Candidates,
    graphs: Sequence[Sequence[np.ndarray]],
    ranks: np.ndarray,
    *,
    tolerance: float,
    cap: int,
    go_on: Callable[[int], bool] = lambda node: True,
) -> Candidates:
    """Add what explains a node beyond its best parents under sampled orders.

    ``graphs[k][j]`` are the best parents of node j under the order with the ranks ``ranks[k]`` (d,).
    """
    score = known.score
    nodes = score.nodes
    wanted = [np.concatenate(both) for both in zip(candidates.free, candidates.fixed, strict=True)]
    added: list[list[int]] = [[] for _ in range(nodes)]
    for target, parents, _, pools, gains in _beyond(known, prior, candidates, graphs, ranks, go_on):
        for pool in pools:
            gained = np.where(pool, gains, -np.inf)
            best = int(np.argmax(gained))
            if gained[best] <= -tolerance:
                continue
            added[target].append(best)
            if gained[best] > 0:
                # Several at once where a hub lacks several; what one of them makes superfluous is pruned again.
                grown, _ = choose_parents(
                    score, prior, target, pool | np.isin(np.arange(nodes), parents), tolerance=0.0, start=parents
                )
                added[target] += [int(i) for i in grown if pool[i]]
    for graph in graphs:
        # Every arrow that is seen must be able to turn, even if its reverse was left out before.
        for target, parents in enumerate(graph):
            for parent in parents:
                if target not in candidates.free[parent] and parent not in candidates.fixed[target]:
                    added[parent].append(target)
    if not any(added):
        return candidates
    widened = [
        w if not a else np.union1d(w, [i for i in a if np.isfinite(prior.log_odds[i, j])]).astype(np.int64)
        for j, (w, a) in enumerate(zip(wanted, added, strict=True))
    ]
    return settle(score, prior, closure(widened, prior), graphs=graphs, cap=cap)


class LeftOut(NamedTuple):
    """Edges (d, d) that are no candidates: about how probable each is, and whether it would improve a best graph."""

    probability: np.ndarray
    improves: np.ndarray


def left_out(
    known: GainsCache,
    prior: EdgePrior,
    candidates: Candidates,
    graphs: Sequence[Sequence[np.ndarray]],
    ranks: np.ndarray,
    *,
    best: int | None = None,
    go_on: Callable[[int], bool] = lambda node: True,
) -> LeftOut:
    """Estimate what the choice of candidates leaves out.

    ``graphs`` and ``ranks`` are as in :func:`widen`, of orders drawn from the posterior. Given an order, an edge beside
    the best parents of a node has the odds that it gains; the probability is the mean over the orders. Whether an edge
    improves a graph is asked of the first ``best`` of them; of all unless given.
    """
    nodes = known.score.nodes
    probability = np.zeros((nodes, nodes), dtype=np.float32)
    improves = np.zeros((nodes, nodes), dtype=bool)
    asked = np.arange(len(graphs)) < (len(graphs) if best is None else best)
    for target, _, which, pools, gains in _beyond(known, prior, candidates, graphs, ranks, go_on):
        probability[:, target] += pools.sum(axis=0) * expit(gains) / len(graphs)
        improves[:, target] |= pools[asked[which]].any(axis=0) & (gains > 0)
    return LeftOut(probability, improves)


def completed(
    prior: EdgePrior, candidates: Candidates, probability: np.ndarray, *, least: float, cap: int
) -> Candidates:
    """Add edges that were left out (d, d), the most probable first down to ``least``, with their reverse.

    Nothing that is a candidate gives way: both ends must have room, within ``cap`` and a size of all tables that costs
    little.
    """
    nodes = len(probability)
    room = min(cap, int(np.log2(COMPLETED_ENTRIES / nodes)))
    free = [set(chosen.tolist()) for chosen in candidates.free]
    fixed = [set(chosen.tolist()) for chosen in candidates.fixed]
    sources, targets = np.nonzero(probability >= least)
    for edge in np.argsort(-probability[sources, targets], kind="stable"):
        source, target = int(sources[edge]), int(targets[edge])
        wanted = [
            (parent, child)
            for parent, child in ((source, target), (target, source))
            if parent not in free[child] | fixed[child] and np.isfinite(prior.log_odds[parent, child])
        ]
        if target not in fixed[source] and all(len(free[child]) < room for _, child in wanted):
            for parent, child in wanted:
                free[child].add(parent)
    return Candidates(tuple(np.array(sorted(chosen), dtype=np.int64) for chosen in free), candidates.fixed)


class _Beyond(NamedTuple):
    """A target, best parents of it, which k graphs have them, for each the pool (k, d) of predecessors that are no
    candidates, and what each column would gain (d,)."""

    target: int
    parents: np.ndarray
    which: np.ndarray
    pools: np.ndarray
    gains: np.ndarray


def _beyond(
    known: GainsCache,
    prior: EdgePrior,
    candidates: Candidates,
    graphs: Sequence[Sequence[np.ndarray]],
    ranks: np.ndarray,
    go_on: Callable[[int], bool],
) -> Iterator[_Beyond]:
    """Look beyond the best parents of each target, one set of them after the other."""
    for target in range(known.score.nodes):
        if not go_on(target):
            return
        pools = ranks < ranks[:, target, None]
        pools[:, candidates.free[target]] = False
        pools[:, candidates.fixed[target]] = False
        same: dict[bytes, list[int]] = {}
        for which, graph in enumerate(graphs):
            same.setdefault(np.sort(graph[target]).tobytes(), []).append(which)
        for members in same.values():
            parents = graphs[members[0]][target]
            gains = known.gains(target, parents) + prior.log_odds[:, target]
            yield _Beyond(target, parents, np.array(members), pools[members], gains)


def settle(
    score: LocalScore,
    prior: EdgePrior,
    candidates: Sequence[np.ndarray],
    *,
    graphs: Sequence[Sequence[np.ndarray]],
    cap: int,
    strength: np.ndarray | None = None,
) -> Candidates:
    """Bring every node down to ``cap`` candidates: leave out the least likely, and if the others are still
    too many, fix
    parents that are beyond doubt.

    ``graphs[k][j]`` are likely parents of node j, the best graph first. An edge is judged by what dropping it
    loses and by what turning it would gain in the best graph; without graphs, by its ``strength`` (d, d).
    """
    nodes = len(candidates)
    free = [np.setdiff1d(c, np.flatnonzero(prior.required[:, j])) for j, c in enumerate(candidates)]
    fixed = [np.zeros(0, dtype=np.int64) for _ in range(nodes)]
    sizes = np.array([f.size for f in free])
    caps = _caps(sizes, cap)
    compelled = [_compelled(score, graph) for graph in graphs] if (sizes > caps.min()).any() else []
    for node in range(nodes):
        cap = int(caps[node])
        if free[node].size <= cap:
            continue
        if graphs:
            worth, important, certain = _judge(score, prior, node, free[node], graphs, compelled)
        else:
            assert strength is not None
            worth, important = strength[free[node], node], 0
            certain = np.zeros(free[node].size, dtype=bool)
        if important > cap:
            strongest = np.argsort(np.where(certain, -worth, np.inf), kind="stable")
            # Some room beyond the surplus, for candidates that come in later rounds.
            chosen = strongest[: min(int(certain.sum()), important - cap + cap // 4)]
            fixed[node] = np.sort(free[node][chosen])
            worth[chosen] = -np.inf
        ranked = np.argsort(-worth, kind="stable")[: min(cap, free[node].size - fixed[node].size)]
        free[node] = np.sort(free[node][ranked])
    for node in range(nodes):
        # A fixed parent comes first in every order, so that the turned arrow needs no bit.
        for parent in fixed[node]:
            free[parent] = free[parent][free[parent] != node]
    return Candidates(tuple(free), tuple(fixed))


def _caps(sizes: np.ndarray, cap: int) -> np.ndarray:
    """Return how many candidates each node may have (d,): ``cap``, or fewer where all tables would be too large
    together; hubs get up to four more while their tables stay few."""
    while cap > 1 and np.sum(2.0 ** np.minimum(sizes, cap)) > TABLE_ENTRIES - HUB_ENTRIES:
        cap -= 1
    caps = np.full(sizes.size, cap)
    budget = HUB_ENTRIES
    for node in np.argsort(-sizes, kind="stable"):
        wished = min(int(sizes[node]), cap + 4)
        while wished > cap and 1 << wished > budget:
            wished -= 1
        if wished <= cap:
            break
        caps[node] = wished
        budget -= 1 << wished
    return caps


def _compelled(score: LocalScore, graph: Sequence[np.ndarray]) -> np.ndarray:
    """Return the edges (d, d) of a graph whose direction the score identifies."""
    dense = np.zeros((len(graph), len(graph)), dtype=bool)
    for node, parents in enumerate(graph):
        dense[parents, node] = True
    if score.tells_direction:
        return dense
    pattern = cpdag(dense)
    return pattern & ~pattern.T


def _judge(
    score: LocalScore,
    prior: EdgePrior,
    node: int,
    candidates: np.ndarray,
    graphs: Sequence[Sequence[np.ndarray]],
    compelled: Sequence[np.ndarray],
) -> tuple[np.ndarray, int, np.ndarray]:
    """Return how much the candidates (c,) of a node matter, in nats, how many are needed, and which are
    parents beyond
    doubt."""
    graph = graphs[0]
    parents = graph[node]
    gains = score.gains(node, parents.tolist()) + prior.log_odds[:, node]
    losses = np.zeros(score.nodes)
    losses[parents] = score.losses(node, parents) + prior.log_odds[parents, node]
    worth = gains[candidates]
    needed = worth > NULL_NATS
    certain = np.zeros(candidates.size, dtype=bool)
    for position, other in enumerate(candidates):
        if other in parents:
            turned = score.gains(int(other), graph[other].tolist())[node] if node not in graph[other] else -np.inf
            worth[position] = CERTAIN_NATS + losses[other]
            needed[position] = True
            sure = score.cheap_tables and all(edges[other, node] for edges in compelled)
            certain[position] = sure and min(losses[other], losses[other] - turned) > CERTAIN_NATS
        elif node in graph[other]:
            others_parents = graph[other]
            loss = score.losses(int(other), others_parents)[np.flatnonzero(others_parents == node)[0]]
            turned = gains[other] - loss
            # A turn that costs much by itself may come with others for free, so it goes before what explains
            # nothing.
            worth[position] = max(turned, NULL_NATS + 1e-3 * turned)
            needed[position] = turned > -CERTAIN_NATS or not compelled[0][node, other]
            if not compelled[0][node, other]:
                worth[position] = max(worth[position], 0.0)
    return worth, int(needed.sum()), certain
