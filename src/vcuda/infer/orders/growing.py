"""Tables that grow: for scores whose sets cost milliseconds each, only sets that may matter are scored.

A Gaussian process over parents takes 2 to 30 ms a set (for all targets at once), so that tables of all
subsets are out of reach. Scored are single candidates, pairs of which one explains something alone, and
extensions of the sets that are best under sampled orders; what is not scored has weight zero. Additive
functions, a hundred times cheaper, say which columns are worth trying next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np

from vcuda.graphs import ancestors
from vcuda.infer.edge_prior import EdgePrior
from vcuda.infer.orders.candidates import Candidates
from vcuda.infer.orders.matched import MatchedFilter
from vcuda.models.additive import AdditiveBasis, AdditiveBasisScore
from vcuda.models.gaussian_process import GaussianProcessScore
from vcuda.models.interventions import InterventionalScore, score_of
from vcuda.models.scores import losses_by_sets

# How many of the columns that additive functions propose are tried with the real score.
TRIED = 3
LARGEST_SET = 9
# A set of many parents that is this many nats worse than the best known one may be close to a better one.
HOPEFUL = 15.0
POOLED = 10
SWAPPED = 5


@dataclass(frozen=True, eq=False)
class GrowingScore:
    """A local score that answers exactly for sets that were scored, and leaves out the others.

    ``gains`` is exact for no parents and for the columns that the additive ``screen`` finds best, minus
    infinity for the rest; ``table`` is minus infinity for sets that have not been scored.
    """

    exact: GaussianProcessScore
    screen: AdditiveBasisScore
    prior: EdgePrior
    grown: set[tuple[int, bytes, bytes]] = field(default_factory=set)

    @classmethod
    def over(cls, score: GaussianProcessScore, prior: EdgePrior) -> GrowingScore:
        """Prepare the additive screen from the columns of the score."""
        return cls(score, AdditiveBasis().prepare(score.columns), prior)

    @property
    def nodes(self) -> int:
        return self.exact.nodes

    @property
    def log_jacobian(self) -> float:
        return self.exact.log_jacobian

    @property
    def max_parents(self) -> int | None:
        return LARGEST_SET

    def score(self, target: int, parents: Sequence[int]) -> float:
        return self.exact.score(target, parents)

    def gains(self, target: int, parents: Sequence[int]) -> np.ndarray:
        if len(parents) == 0:
            return self.exact.gains(target, ())
        gained = np.full(self.nodes, -np.inf)
        hopes = self.screen.gains(target, parents)
        before = self.exact.score(target, parents)
        for other in np.argsort(-hopes)[:TRIED]:
            if np.isfinite(hopes[other]):
                gained[other] = self.exact.score(target, [*parents, int(other)]) - before
        return gained

    def losses(self, target: int, parents: np.ndarray) -> np.ndarray:
        return losses_by_sets(self, target, parents)

    def table(self, target: int, candidates: np.ndarray) -> np.ndarray:
        chosen = np.asarray(candidates, dtype=np.int64)
        alone = np.array([self.exact.score(target, [c]) for c in chosen]) - self.exact.score(target, ())
        useful = alone + self.prior.log_odds[chosen, target] > 0
        for first, second in combinations(range(chosen.size), 2):
            if useful[first] or useful[second]:
                self.exact.scores_of_set(chosen[[first, second]])
        bit = {int(candidate): 1 << position for position, candidate in enumerate(chosen)}
        scores = np.full(1 << chosen.size, -np.inf)
        for parents, known in self.exact.known.items():
            if all(parent in bit for parent in parents):
                scores[sum(bit[parent] for parent in parents)] = known[target]
        return scores

    def grow(self, target: int, parents: np.ndarray, pool: np.ndarray) -> bool:
        """Extend the best set by members of the pool while that improves it; true if it did.

        All extensions tried stay in the tables, and so do the subsets of the last set with one member less.
        """
        key = (target, np.sort(parents).tobytes(), np.sort(pool).tobytes())
        if key in self.grown:
            return False
        self.grown.add(key)
        odds = self.prior.log_odds[:, target]
        current = [int(parent) for parent in parents]
        best = self.exact.score(target, current) + odds[current].sum()
        improved = False
        while len(current) < LARGEST_SET:
            others = [int(other) for other in pool if other not in current]
            weights = [self.exact.score(target, [*current, other]) + odds[[*current, other]].sum() for other in others]
            if not weights or max(weights) <= best:
                break
            best = max(weights)
            current.append(others[int(np.argmax(weights))])
            improved = True
        if len(current) > 2:
            for left_out in range(len(current)):
                fewer = current[:left_out] + current[left_out + 1 :]
                improved |= bool(self.exact.score(target, fewer) + odds[fewer].sum() > best)
        return improved

    def search_hub(self, matched: MatchedFilter, target: int, parents: np.ndarray, pool: np.ndarray) -> list[int]:
        """Look for a better set than ``parents`` among columns that explain the target only together.

        Returns it, or an empty list. Its subsets with one and two members less are scored too.
        """
        start = self._weight(target, [int(parent) for parent in parents])
        sets = [list(some) for some in matched.search(target, pool)]
        if not sets:
            return []
        weights = [self._weight(target, some) for some in sets]
        current, best = sets[int(np.argmax(weights))], max(weights)
        known = {int(parent) for parent in parents}
        # What only adds to the known parents, or drops some, is found by growing.
        nested = known <= set(current) or known >= set(current)
        if best < start - HOPEFUL or (nested and best <= start):
            return []
        counts = np.bincount(np.concatenate([np.array(some) for some in sets]), minlength=self.nodes)
        near = [int(i) for i in np.argsort(-counts, kind="stable")[:POOLED] if counts[i]]
        for _ in range(LARGEST_SET):
            moves = [[*current, other] for other in near if other not in current and len(current) < LARGEST_SET]
            moves += [[i for i in current if i != left] for left in current]
            if len(current) >= SWAPPED:
                moves += [[*(i for i in current if i != left), other] for left in current for other in near]
            moves = [move for move in moves if len(set(move)) == len(move)]
            tried = [self._weight(target, move) for move in moves]
            if max(tried) <= best:
                break
            current, best = moves[int(np.argmax(tried))], max(tried)
        if best <= start:
            return []
        for left in combinations(current, min(2, len(current))):
            self._weight(target, [i for i in current if i not in left])
        return current

    def _weight(self, target: int, parents: Sequence[int]) -> float:
        chosen = list(parents)
        return self.exact.score(target, chosen) + float(self.prior.log_odds[chosen, target].sum())


def growing(score: Any, prior: EdgePrior) -> Any:
    """Make a Gaussian process score, or all parts of one, grow."""
    if isinstance(score, InterventionalScore):
        return score.with_parts([GrowingScore.over(part, prior) for part in score.parts])
    return GrowingScore.over(score, prior)


def screen_of(score: Any) -> Any:
    """Return the additive screen of a growing score, or of all its parts."""
    if isinstance(score, InterventionalScore):
        return score.with_parts([part.screen for part in score.parts])
    return score.screen


def search_hubs(
    score: Any,
    candidates: Candidates,
    graph: Sequence[np.ndarray],
    *,
    cap: int,
    go_on: Callable[[int], bool] = lambda node: True,
) -> tuple[Candidates, int]:
    """Search all nodes for parents that show only together, among what does not descend from them in the best
    graph.

    Returns the candidates with those parents, and for how many nodes something was found.
    """
    nodes = score.nodes
    dense = np.zeros((nodes, nodes), dtype=bool)
    for node, parents in enumerate(graph):
        dense[parents, node] = True
    descends = ancestors(dense)
    free = list(candidates.free)
    improved = 0
    parts = score.part_of if isinstance(score, InterventionalScore) else np.zeros(nodes, dtype=np.int64)
    matched, of_part = None, -1
    for target in np.argsort(parts, kind="stable").tolist():
        if not go_on(target):
            break
        part = score_of(score, target)
        if matched is None or parts[target] != of_part:
            matched, of_part = MatchedFilter.of(part.exact.columns), int(parts[target])
        allowed = np.isfinite(part.prior.log_odds[:, target]) & ~descends[target]
        found = part.search_hub(matched, target, graph[target], np.flatnonzero(allowed))
        if found:
            improved += 1
            others = free[target][~np.isin(free[target], found)]
            free[target] = np.union1d(found, others[: max(cap - len(found), 0)]).astype(np.int64)
    return Candidates(tuple(free), candidates.fixed), improved


def grow_tables(
    score: Any,
    candidates: Sequence[np.ndarray],
    graphs: Sequence[Sequence[np.ndarray]],
    ranks: np.ndarray,
) -> int:
    """Extend the best sets of all nodes under sampled orders; return for how many there is a better one
    now."""
    improved = 0
    for target, chosen in enumerate(candidates):
        better = False
        for graph, rank in zip(graphs, ranks, strict=True):
            pool = chosen[rank[chosen] < rank[target]]
            better |= score_of(score, target).grow(target, graph[target], pool)
        improved += better
    return improved
