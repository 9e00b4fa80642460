"""Tables that grow: for scores whose sets cost milliseconds each, only sets that may matter are scored.

A Gaussian process over parents takes 2 to 30 ms a set (for all targets at once), so that tables of all
subsets are out of reach. Scored are single candidates, pairs of which one explains something alone, and
extensions of the sets that are best under sampled orders; what is not scored has weight zero. Additive
functions, a hundred times cheaper, say which columns are worth trying next.

The searches are generators that yield the sets which they are about to ask for, so that with workers the sets of all
targets can be scored ahead, side by side (``vcuda.infer.prefetch``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np

from vcuda.infer.edge_prior import EdgePrior
from vcuda.infer.orders.candidates import Candidates
from vcuda.infer.prefetch import Prefetch, Steps, finished
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

# The score of a target with a set of parents.
Asked = Callable[[int, Sequence[int]], float]
NO_PREFETCH = Prefetch()


@dataclass(frozen=True, eq=False)
class LazyTableScore:
    """A local score that answers exactly for sets that were scored, and leaves out the others.

    ``gains`` is exact for no parents and for the columns that the additive ``screen`` finds best, minus
    infinity for the rest; ``table`` is minus infinity for sets that have not been scored.
    """

    exact: GaussianProcessScore
    screen: AdditiveBasisScore
    prior: EdgePrior
    grown: set[tuple[int, bytes, bytes]] = field(default_factory=set)
    hoped: dict[tuple[int, tuple[int, ...]], np.ndarray] = field(default_factory=dict)

    @classmethod
    def over(cls, score: GaussianProcessScore, prior: EdgePrior) -> LazyTableScore:
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
        hopes = self.hoped.pop((target, tuple(parents)), None)
        if hopes is None:
            hopes = self.screen.gains(target, parents)
        before = self.exact.score(target, parents)
        for other in _tried(hopes):
            gained[other] = self.exact.score(target, [*parents, other]) - before
        return gained

    def losses(self, target: int, parents: np.ndarray) -> np.ndarray:
        return losses_by_sets(self, target, parents)

    def table(self, target: int, candidates: np.ndarray) -> np.ndarray:
        chosen = np.asarray(candidates, dtype=np.int64)
        for pair in finished(self.table_steps(self.exact.score, target, chosen)):
            self.exact.scores_of_set(pair)
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
        key = _growth(target, parents, pool)
        if key in self.grown:
            return False
        self.grown.add(key)
        return finished(self.grow_steps(self.exact.score, target, parents, pool))

    def search_hub(self, target: int, parents: np.ndarray, sets: Sequence[Sequence[int]]) -> list[int]:
        """Look for a better set than ``parents``, from ``sets`` of columns that explain the target only together.

        Returns it, or an empty list. Its subsets with one and two members less are scored too.
        """
        return finished(self.hub_steps(self.exact.score, target, parents, sets))

    # Searches, as generators of the sets that they are about to ask for --------------------------------------------

    def gains_steps(self, target: int, parents: Sequence[int]) -> Steps[None]:
        """What `gains` asks for."""
        if len(parents) == 0:
            yield [(), *([other] for other in range(self.nodes) if other != target)]
            return
        hopes = self.screen.gains(target, parents)
        self.hoped[target, tuple(parents)] = hopes
        yield [parents, *([*parents, other] for other in _tried(hopes))]

    def table_steps(self, ask: Asked, target: int, chosen: np.ndarray) -> Steps[list[list[int]]]:
        """Return the pairs that a table holds beside the single candidates."""
        yield [(), *([c] for c in chosen)]
        alone = np.array([ask(target, [c]) for c in chosen]) - ask(target, ())
        useful = alone + self.prior.log_odds[chosen, target] > 0
        positions = combinations(range(chosen.size), 2)
        pairs = [chosen[[first, second]].tolist() for first, second in positions if useful[first] or useful[second]]
        yield pairs
        return pairs

    def grow_steps(self, ask: Asked, target: int, parents: np.ndarray, pool: np.ndarray) -> Steps[bool]:
        """Extend a set as `grow` does."""
        odds = self.prior.log_odds[:, target]
        current = [int(parent) for parent in parents]
        yield [current]
        best = ask(target, current) + odds[current].sum()
        improved = False
        while len(current) < LARGEST_SET:
            others = [int(other) for other in pool if other not in current]
            yield [[*current, other] for other in others]
            weights = [ask(target, [*current, other]) + odds[[*current, other]].sum() for other in others]
            if not weights or max(weights) <= best:
                break
            best = max(weights)
            current.append(others[int(np.argmax(weights))])
            improved = True
        if len(current) > 2:
            subsets = [current[:left_out] + current[left_out + 1 :] for left_out in range(len(current))]
            yield subsets
            for fewer in subsets:
                improved |= bool(ask(target, fewer) + odds[fewer].sum() > best)
        return improved

    def hub_steps(
        self, ask: Asked, target: int, parents: np.ndarray, sets: Sequence[Sequence[int]]
    ) -> Steps[list[int]]:
        """Search as `search_hub` does."""

        def weight(some: Sequence[int]) -> float:
            chosen = list(some)
            return ask(target, chosen) + float(self.prior.log_odds[chosen, target].sum())

        known = [int(parent) for parent in parents]
        yield [known, *sets]
        start = weight(known)
        if not sets:
            return []
        weights = [weight(some) for some in sets]
        current, best = list(sets[int(np.argmax(weights))]), max(weights)
        # What only adds to the known parents, or drops some, is found by growing.
        nested = set(known) <= set(current) or set(known) >= set(current)
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
            yield moves
            tried = [weight(move) for move in moves]
            if max(tried) <= best:
                break
            current, best = moves[int(np.argmax(tried))], max(tried)
        if best <= start:
            return []
        smaller = [[i for i in current if i not in left] for left in combinations(current, min(2, len(current)))]
        yield smaller
        for some in smaller:
            weight(some)
        return current


def _tried(hopes: np.ndarray) -> list[int]:
    """The columns that the screen proposes, best first."""
    return [int(other) for other in np.argsort(-hopes)[:TRIED] if np.isfinite(hopes[other])]


def _growth(target: int, parents: np.ndarray, pool: np.ndarray) -> tuple[int, bytes, bytes]:
    return target, np.sort(parents).tobytes(), np.sort(pool).tobytes()


def growing(score: Any, prior: EdgePrior) -> Any:
    """Make a Gaussian process score, or all parts of one, grow."""
    if isinstance(score, InterventionalScore):
        return score.with_parts([LazyTableScore.over(part, prior) for part in score.parts])
    return LazyTableScore.over(score, prior)


def screen_of(score: Any) -> Any:
    """Return the additive screen of a growing score, or of all its parts."""
    if isinstance(score, InterventionalScore):
        return score.with_parts([part.screen for part in score.parts])
    return score.screen


def foresee_tables(score: Any, candidates: Candidates, prior: EdgePrior, prefetch: Prefetch) -> None:
    """Score ahead what tables of these candidates will ask for."""
    if not prefetch.is_worth_it:
        return
    searches = []
    for target, both in enumerate(zip(candidates.free, candidates.fixed, strict=True)):
        part = score_of(score, target)
        chosen = np.union1d(np.concatenate(both), np.flatnonzero(prior.required[:, target])).astype(np.int64)
        searches.append((part.exact, part.table_steps(part.exact.foreseen, target, chosen)))
    prefetch.in_step(searches)


def foresee_gains(score: Any, graphs: Sequence[Sequence[np.ndarray]], prefetch: Prefetch) -> None:
    """Score ahead what one more parent in sampled graphs will be judged by."""
    if not prefetch.is_worth_it:
        return
    sets = {(target, tuple(parents.tolist())) for graph in graphs for target, parents in enumerate(graph)}
    searches = []
    for target, parents in sorted(sets):
        part = score_of(score, target)
        searches.append((part.exact, part.gains_steps(target, parents)))
    prefetch.in_step(searches)


def forget_unasked(score: Any) -> None:
    """Drop what was foreseen and then not asked for."""
    for part in score.parts if isinstance(score, InterventionalScore) else (score,):
        part.exact.prefetch.clear()
        part.hoped.clear()


def grow_tables(
    score: Any,
    candidates: Sequence[np.ndarray],
    graphs: Sequence[Sequence[np.ndarray]],
    ranks: np.ndarray,
    *,
    prefetch: Prefetch = NO_PREFETCH,
) -> int:
    """Extend the best sets of all nodes under sampled orders; return for how many there is a better one
    now."""
    growths = [
        (target, graph[target], chosen[rank[chosen] < rank[target]])
        for target, chosen in enumerate(candidates)
        for graph, rank in zip(graphs, ranks, strict=True)
    ]
    if prefetch.is_worth_it:
        # What was grown before is not grown again, and chains often agree.
        new = {_growth(*growth): growth for growth in growths}
        new = {key: growth for key, growth in new.items() if key not in score_of(score, growth[0]).grown}
        parts = [(score_of(score, growth[0]), growth) for growth in new.values()]
        prefetch.in_step((part.exact, part.grow_steps(part.exact.foreseen, *growth)) for part, growth in parts)
    improved = np.zeros(len(candidates), dtype=bool)
    for target, parents, pool in growths:
        improved[target] |= score_of(score, target).grow(target, parents, pool)
    return int(improved.sum())
