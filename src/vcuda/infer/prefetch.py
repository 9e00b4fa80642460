"""Sets of parents of Gaussian processes, scored ahead on workers, many at once.

A search asks for one set after the other, and what it asks for next depends on the answers. But it goes through many
targets that do not depend on each other: written as generators that yield the sets which they are about to ask for,
their searches are first gone through in step, a batch of sets of all targets at a time, and then once more, one by one
and with nothing left to compute. Which sets are scored ahead changes no number: a set that was not foreseen is scored
when it is asked for, one that was foreseen in vain is forgotten.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from vcuda.infer.edge_prior import EdgePrior
from vcuda.infer.workers import SERIAL, Workers, chunked
from vcuda.models.gaussian_process import GaussianProcessScore
from vcuda.models.interventions import kind_of, score_of

Sets = Iterable[Sequence[int]]
Result = TypeVar("Result")
Steps = Generator[Sets, None, Result]
# Sets that take less than this altogether are scored here: sending them there and back takes about as long.
WORTH_SECONDS = 0.1
# A worker gets its sets in several parts, because some take ten times as long as others, but none shorter than this.
PARTS_A_WORKER, SECONDS_A_PART = 4, 0.03


def evaluated(score: GaussianProcessScore, sets: Sequence[tuple[int, ...]]) -> np.ndarray:
    """The scores (k, d) of k sets of parents."""
    return np.stack([score.evaluate(parents) for parents in sets])


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

    ``go_on`` is asked between batches; ``told`` hears now and then that sets are being scored.
    """

    def __init__(
        self,
        workers: Workers = SERIAL,
        *,
        go_on: Callable[[], bool] = lambda: True,
        on_progress: Callable[[], None] = lambda: None,
    ) -> None:
        self.workers, self.go_on, self.on_progress = workers, go_on, on_progress
        # The scores as they are sent: without what they remember, and always the same objects, which are sent once.
        self._bare: dict[int, tuple[GaussianProcessScore, GaussianProcessScore]] = {}
        # What a set of so many parents takes here; it decides where sets are scored, and no number.
        self._seconds: dict[tuple[int, int], float] = {}

    @property
    def is_worth_it(self) -> bool:
        """Whether anybody works on the sets beside this process."""
        return self.workers.count > 1

    def in_step(self, searches: Iterable[tuple[GaussianProcessScore, Steps[Any]]]) -> None:
        """Go through searches side by side, and score all sets that they are about to ask for together.

        The searches must look scores up by `GaussianProcessScore.foreseen`, which remembers nothing.
        """
        under_way = list(searches)
        while under_way and self.go_on():
            asked = [(score, steps, next(steps, None)) for score, steps in under_way]
            self.score([(score, sets) for score, _, sets in asked if sets is not None])
            under_way = [(score, steps) for score, steps, sets in asked if sets is not None]

    def score(self, wanted: Iterable[tuple[GaussianProcessScore, Sets]]) -> None:
        """Score sets that are not known yet, of one or several scores."""
        new: dict[int, dict[tuple[int, ...], None]] = {}
        scores: dict[int, GaussianProcessScore] = {}
        for score, sets in wanted:
            scores[id(score)] = score
            for members in sets:
                parents = tuple(sorted(int(parent) for parent in members))
                if score.peek(parents) is None:
                    new.setdefault(id(score), {})[parents] = None
        for number, some in new.items():
            self._score_new(scores[number], list(some))

    def full_tables(self, score: Any, prior: EdgePrior) -> None:
        """Score ahead what the tables of all allowed parents of every node will ask for."""
        if not self.is_worth_it or not isinstance(kind_of(score), GaussianProcessScore):
            return
        searches = []
        for target in range(score.nodes):
            part: GaussianProcessScore = score_of(score, target)
            allowed = np.setdiff1d(np.flatnonzero(prior.log_odds[:, target] > -np.inf), [target])
            searches.append((part, part.table_steps(part.foreseen, target, allowed)))
        self.in_step(searches)

    def _score_new(self, score: GaussianProcessScore, sets: list[tuple[int, ...]]) -> None:
        sets = sorted(sets, key=len, reverse=True)
        seconds = 0.0
        for parents in sets:
            key = (id(score), len(parents))
            if key not in self._seconds:
                began = time.perf_counter()
                score.prefetch[parents] = score.evaluate(parents)
                self._seconds[key] = time.perf_counter() - began
            seconds += self._seconds[key]
        sets = [parents for parents in sets if parents not in score.prefetch]
        if not self.is_worth_it or not sets or seconds < WORTH_SECONDS:
            for parents in sets:
                score.prefetch[parents] = score.evaluate(parents)
            return
        # Large sets take longest, and come first: what is left at the end is small.
        parts = chunked(sets, min(PARTS_A_WORKER * self.workers.count, int(seconds / SECONDS_A_PART)))
        found = self.workers.map(
            evaluated, parts, shared=self._sent(score), on_progress=lambda share: self.on_progress()
        )
        for part, rows in zip(parts, found, strict=True):
            for parents, row in zip(part, rows, strict=True):
                score.prefetch[parents] = row.copy()

    def _sent(self, score: GaussianProcessScore) -> GaussianProcessScore:
        if id(score) not in self._bare:
            self._bare[id(score)] = (score, replace(score, known={}, prefetch={}, memory=None))
        return self._bare[id(score)][1]
