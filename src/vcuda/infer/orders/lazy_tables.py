"""Tables that grow: for scores whose sets cost milliseconds each, only sets that may matter are scored.

A Gaussian process over parents takes 2 to 30 ms a set (for all targets at once), so that tables of all
subsets are out of reach. Scored are single candidates, pairs of which one explains something alone, and
extensions of the sets that are best under sampled orders; what is not scored has weight zero. The score's own
``screen``, a hundred times cheaper, says which columns are worth trying next.

The searches are generators that yield the sets which they are about to ask for, so that with workers the sets of all
targets can be scored ahead, side by side (``vcuda.infer.prefetch``).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np

from vcuda.infer.edge_prior import EdgePrior
from vcuda.infer.orders.candidates import Candidates
from vcuda.infer.prefetch import Prefetch, Steps, finished
from vcuda.models.caching import CachedScore, cached
from vcuda.models.protocol import LocalScore, WrappedScore
from vcuda.models.sets import Ask

# How many of the columns that the screen proposes are tried with the real score.
TRIED = 3
LARGEST_SET = 9
# A set of many parents that is this many nats worse than the best known one may be close to a better one.
HOPEFUL = 15.0
POOLED = 10
SWAPPED = 5

NO_PREFETCH = Prefetch()


class LazyTableScore(WrappedScore):
    """A local score that answers exactly for sets that were scored, and leaves out the others.

    ``gains`` is exact for no parents and for the columns that the ``screen`` finds best, minus infinity for the rest;
    ``table`` is minus infinity for sets that nobody has asked the ``exact`` score for. Which those are is the state of
    the search, and its cache holds them; ``grown`` are the sets that were extended, ``hoped`` what the screen said.
    """

    max_parents = LARGEST_SET

    def __init__(self, exact: CachedScore, prior: EdgePrior) -> None:
        self.inner = self.exact = exact
        self.prior = prior
        screen = exact.screen()
        assert screen is not None, "a score with slow sets must have a screen"
        self.cheap = screen
        self.grown: set[tuple[int, bytes, bytes]] = set()
        self.hoped: dict[tuple[int, tuple[int, ...]], np.ndarray] = {}

    def screen(self) -> LocalScore:
        return self.cheap

    def score(self, target: int, parents: Sequence[int]) -> float:
        return self.exact.score(target, parents)

    def gains(self, target: int, parents: Sequence[int]) -> np.ndarray:
        if len(parents) == 0:
            return self.exact.gains(target, ())
        gained = np.full(self.nodes, -np.inf)
        hopes = self.hoped.pop((target, tuple(parents)), None)
        if hopes is None:
            hopes = self.cheap.gains(target, parents)
        before = self.exact.score(target, parents)
        for other in _tried(hopes):
            gained[other] = self.exact.score(target, [*parents, other]) - before
        return gained

    def table(self, target: int, candidates: np.ndarray) -> np.ndarray:
        chosen = np.asarray(candidates, dtype=np.int64)
        for pair in finished(self.pair_steps(self.exact.score, target, chosen)):
            self.exact.score(target, pair)
        bit = {int(candidate): 1 << position for position, candidate in enumerate(chosen)}
        scores = np.full(1 << chosen.size, -np.inf)
        for parents, known in self.exact.asked(target):
            if all(parent in bit for parent in parents):
                scores[sum(bit[parent] for parent in parents)] = known
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
        hopes = self.cheap.gains(target, parents)
        self.hoped[target, tuple(parents)] = hopes
        yield [parents, *([*parents, other] for other in _tried(hopes))]

    def pair_steps(self, ask: Ask, target: int, chosen: np.ndarray) -> Steps[list[list[int]]]:
        """Return the pairs that a table holds beside the single candidates."""
        yield [(), *([c] for c in chosen)]
        alone = np.array([ask(target, [c]) for c in chosen]) - ask(target, ())
        useful = alone + self.prior.log_odds[chosen, target] > 0
        positions = combinations(range(chosen.size), 2)
        pairs = [chosen[[first, second]].tolist() for first, second in positions if useful[first] or useful[second]]
        yield pairs
        return pairs

    def grow_steps(self, ask: Ask, target: int, parents: np.ndarray, pool: np.ndarray) -> Steps[bool]:
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

    def hub_steps(self, ask: Ask, target: int, parents: np.ndarray, sets: Sequence[Sequence[int]]) -> Steps[list[int]]:
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


def growing(score: LocalScore, prior: EdgePrior) -> LocalScore:
    """Make the tables of a score with slow sets, or of all its parts, lazy."""
    grown: LocalScore = cached(score).mapped(lambda part: LazyTableScore(part, prior))
    return grown


def screen_of(score: LocalScore) -> LocalScore:
    """Return the screen of lazy tables, or of all their parts."""
    return score.mapped(lambda part: part.screen())


def foresee_tables(score: LocalScore, candidates: Candidates, prior: EdgePrior, prefetch: Prefetch) -> None:
    """Score ahead what tables of these candidates will ask for."""
    if not prefetch.is_worth_it:
        return
    searches = []
    for target, both in enumerate(zip(candidates.free, candidates.fixed, strict=True)):
        part = _lazy(score, target)
        chosen = np.union1d(np.concatenate(both), np.flatnonzero(prior.required[:, target])).astype(np.int64)
        searches.append((part.exact, target, part.pair_steps(part.exact.foreseen, target, chosen)))
    prefetch.in_step(searches)


def foresee_gains(score: LocalScore, graphs: Sequence[Sequence[np.ndarray]], prefetch: Prefetch) -> None:
    """Score ahead what one more parent in sampled graphs will be judged by."""
    if not prefetch.is_worth_it:
        return
    sets = {(target, tuple(parents.tolist())) for graph in graphs for target, parents in enumerate(graph)}
    searches = []
    for target, parents in sorted(sets):
        part = _lazy(score, target)
        searches.append((part.exact, target, part.gains_steps(target, parents)))
    prefetch.in_step(searches)


def forget_unasked(score: LocalScore) -> None:
    """Drop what was foreseen and then not asked for."""
    for part in score.parts:
        lazy: Any = part
        lazy.exact.cache.ahead.clear()
        lazy.hoped.clear()


def _lazy(score: LocalScore, target: int) -> LazyTableScore:
    """The lazy tables that a target is judged by; all parts of a growing score are such."""
    part: Any = score.of(target)
    lazy: LazyTableScore = part
    return lazy


def grow_tables(
    score: LocalScore,
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
        new = {key: growth for key, growth in new.items() if key not in _lazy(score, growth[0]).grown}
        parts = [(_lazy(score, growth[0]), growth) for growth in new.values()]
        prefetch.in_step(
            (part.exact, growth[0], part.grow_steps(part.exact.foreseen, *growth)) for part, growth in parts
        )
    improved = np.zeros(len(candidates), dtype=bool)
    for target, parents, pool in growths:
        improved[target] |= _lazy(score, target).grow(target, parents, pool)
    return int(improved.sum())
