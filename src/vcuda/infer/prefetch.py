"""Sets of parents that take milliseconds each, scored ahead on workers, many at once.

A search asks for one set after the other, and what it asks for next depends on the answers. But it goes through many
targets that do not depend on each other: written as generators that yield the sets which they are about to ask for,
their searches are first gone through in step, a batch of sets of all targets at a time, and then once more, one by one
and with nothing left to compute. Which sets are scored ahead changes no number: a set that was not foreseen is scored
when it is asked for, one that was foreseen in vain is forgotten.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np

from vcuda.infer.edge_prior import EdgePrior
from vcuda.infer.workers import SERIAL, Workers, chunked
from vcuda.models.caching import CachedScore
from vcuda.models.protocol import LocalScore, SetKey

# Sets of parents of a target that a search is about to ask for.
Sets = Iterable[Sequence[int]]
Result = TypeVar("Result")
Steps = Generator[Sets, None, Result]
# Sets that take less than this altogether are scored here: sending them there and back takes about as long.
WORTH_SECONDS = 0.1
# A worker gets its sets in several parts, because some take ten times as long as others, but none shorter than this.
PARTS_A_WORKER, SECONDS_A_PART = 4, 0.03


def evaluated(score: LocalScore, keys: Sequence[SetKey]) -> np.ndarray:
    """The scores of k sets of parents, (k, d) of all targets or (k, 1) of one."""
    return np.stack([score.evaluate(key) for key in keys])


def finished(steps: Steps[Result]) -> Result:
    """Go through a search to its end, and return what it returns."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: Result = end.value
            return result


class Prefetch:
    """Scores sets before they are asked for, where there are workers for it.

    ``go_on`` is asked between batches; ``on_progress`` hears now and then that sets are being scored.
    """

    def __init__(
        self,
        workers: Workers = SERIAL,
        *,
        go_on: Callable[[], bool] = lambda: True,
        on_progress: Callable[[], None] = lambda: None,
    ) -> None:
        self.workers, self.go_on, self.on_progress = workers, go_on, on_progress
        # What a set of so many parents takes here; it decides where sets are scored, and no number.
        self._seconds: dict[tuple[int, int], float] = {}

    @property
    def is_worth_it(self) -> bool:
        """Whether anybody works on the sets beside this process."""
        return self.workers.count > 1

    def in_step(self, searches: Iterable[tuple[CachedScore, int, Steps[Any]]]) -> None:
        """Go through searches side by side, each for the parents of a target, and score all sets that they are about to
        ask for together.

        The searches must look scores up by `CachedScore.foreseen`, which does not count as asking.
        """
        under_way = list(searches)
        while under_way and self.go_on():
            asked = [(search, next(search[2], None)) for search in under_way]
            self.score([(search[0], search[1], sets) for search, sets in asked if sets is not None])
            under_way = [search for search, sets in asked if sets is not None]

    def score(self, wanted: Iterable[tuple[CachedScore, int, Sets]]) -> None:
        """Score sets of targets that are not known yet, of one or several scores."""
        new: dict[int, dict[SetKey, None]] = {}
        scores: dict[int, CachedScore] = {}
        for score, target, sets in wanted:
            scores[id(score)] = score
            for members in sets:
                key = score.inner.set_key(target, members)
                if score.cache.peek(key) is None:
                    new.setdefault(id(score), {})[key] = None
        for number, some in new.items():
            self._score_new(scores[number], list(some))

    def full_tables(self, score: LocalScore, prior: EdgePrior) -> None:
        """Score ahead what the tables of all allowed parents of every node will ask for."""
        if not self.is_worth_it or not score.slow_sets:
            return
        searches = []
        for target in range(score.nodes):
            part: Any = score.of(target)
            steps = part.table_steps(part.foreseen, target, prior.allowed_parents(target))
            searches.append((part, target, steps))
        self.in_step(searches)

    def _score_new(self, score: CachedScore, keys: list[SetKey]) -> None:
        keys = sorted(keys, key=len, reverse=True)
        ahead, evaluate, seconds = score.cache.ahead, score.inner.evaluate, 0.0
        for one in keys:
            size = (id(score), len(one))
            if size not in self._seconds:
                began = time.perf_counter()
                ahead[one] = evaluate(one)
                self._seconds[size] = time.perf_counter() - began
            seconds += self._seconds[size]
        keys = [one for one in keys if one not in ahead]
        if not self.is_worth_it or not keys or seconds < WORTH_SECONDS:
            for one in keys:
                ahead[one] = evaluate(one)
            return
        # Large sets take longest, and come first: what is left at the end is small.
        parts = chunked(keys, min(PARTS_A_WORKER * self.workers.count, int(seconds / SECONDS_A_PART)))
        found = self.workers.map(evaluated, parts, shared=score.inner, on_progress=lambda share: self.on_progress())
        for part, rows in zip(parts, found, strict=True):
            for one, row in zip(part, rows, strict=True):
                ahead[one] = row.copy()
