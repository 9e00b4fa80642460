"""Scores of sets that were asked for, kept: for scores whose sets take milliseconds.

The state is explicit. A :class:`SetCache` belongs to the search that made it, and which sets were asked for is part of
it, because lazy tables hold just those (``vcuda.infer.orders.lazy_tables``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, Protocol

import numpy as np

from vcuda.models.protocol import LocalScore, SetKey, WrappedScore
from vcuda.models.sets import checked_candidates

CACHE_BYTES = 128e6


class SetMemory(Protocol):
    """Scores of sets of parents from before the fit was resumed, and for the next time."""

    def recall(self, parents: SetKey) -> np.ndarray | None: ...

    def keep(self, parents: SetKey, scores: np.ndarray) -> None: ...


@dataclass(eq=False)
class SetCache:
    """What is known of sets: ``asked`` holds those that somebody asked for, the oldest first, ``ahead`` those that were
    computed before anybody did, and ``memory`` those that outlive the process."""

    memory: SetMemory | None = None
    asked: dict[SetKey, np.ndarray] = field(default_factory=dict)
    ahead: dict[SetKey, np.ndarray] = field(default_factory=dict)

    def look_up(self, key: SetKey, evaluate: Callable[[SetKey], np.ndarray]) -> np.ndarray:
        """Return the scores of a set that is asked for, computed if nothing else helps."""
        scores = self.asked.get(key)
        if scores is None:
            scores = self._found(key, evaluate)
            if len(self.asked) * 8 * scores.size > CACHE_BYTES:
                self.asked.pop(next(iter(self.asked)), None)
            self.asked[key] = scores
        return scores

    def _found(self, key: SetKey, evaluate: Callable[[SetKey], np.ndarray]) -> np.ndarray:
        known = None if self.memory is None else self.memory.recall(key)
        if known is not None:
            return known
        scores = self.ahead.pop(key, None)
        scores = evaluate(key) if scores is None else scores
        if self.memory is not None:
            self.memory.keep(key, scores)
        return scores

    def peek(self, key: SetKey) -> np.ndarray | None:
        """Return the scores of a set if nothing need be computed for them, as if nobody had asked."""
        scores = self.asked.get(key)
        if scores is None:
            scores = self.ahead.get(key)
        return self.memory.recall(key) if scores is None and self.memory is not None else scores


class CachedScore(WrappedScore):
    """A score that computes each set once, and keeps what it found in a :class:`SetCache`."""

    def __init__(self, inner: LocalScore, cache: SetCache) -> None:
        self.inner, self.cache = inner, cache

    is_stateless = False

    def score(self, target: int, parents: Sequence[int]) -> float:
        chosen = checked_candidates(target, np.asarray(parents), self.nodes)
        key = self.inner.set_key(target, chosen.tolist())
        return self._own(self.cache.look_up(key, self.inner.evaluate), target)

    def foreseen(self, target: int, parents: Sequence[int]) -> float:
        """Return the score of a set that is known or was computed ahead, as if nobody had asked for it."""
        scores = self.cache.peek(self.inner.set_key(target, parents))
        assert scores is not None, "a search must yield the sets that it is about to ask for"
        return self._own(scores, target)

    def asked(self, target: int) -> Iterator[tuple[SetKey, float]]:
        """The sets of parents that were asked for, with the scores of a target."""
        for key, scores in self.cache.asked.items():
            if self.inner.shares_sets:
                yield key, scores[target]
            elif key[0] == target:
                yield key[1:], scores[0]

    def all_tables(
        self,
        targets: np.ndarray,
        candidates: Sequence[np.ndarray],
        *,
        threads: int,
        on_progress: Callable[[float], None],
    ) -> None:
        """Score all sets that tables of these candidates hold in any case: this takes most of their time, and who
        calls may want to tell of it."""
        most = self.nodes if self.max_parents is None else self.max_parents
        most = most if self.full_parents is None else min(most, self.full_parents)
        keys = {
            self.inner.set_key(int(target), parents)
            for target, some in zip(targets, candidates, strict=True)
            for size in range(most + 1)
            for parents in combinations(sorted(some.tolist()), size)
        }
        for done, key in enumerate(sorted(keys, key=len), start=1):
            self.cache.look_up(key, self.inner.evaluate)
            # Making the tables of what is known takes about as long again where sets are few.
            on_progress(0.5 * done / len(keys))

    def _own(self, scores: np.ndarray, target: int) -> float:
        return float(scores[target if self.inner.shares_sets else 0])


def cached(score: LocalScore, memory: Callable[[tuple[Any, ...]], SetMemory | None] = lambda content: None) -> Any:
    """Return a score with a cache for each part whose sets are slow, and the others as they are.

    ``memory`` gives what is known of sets by the content that decides them. A score that has a cache keeps it.
    """

    def change(part: LocalScore) -> LocalScore:
        if not part.slow_sets:
            return part
        known = memory(part.content)
        if not isinstance(part, CachedScore):
            return CachedScore(part, SetCache(known))
        old = part.cache
        return part if known is None else CachedScore(part.inner, SetCache(known, old.asked, old.ahead))

    return score.mapped(change)
