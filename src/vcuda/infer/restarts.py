"""Restarts in parts, each on a worker of its own, for many steps at a time.

The engines compile one program that runs whichever restarts it is told, one after the other. Workers compile the same
program and run their own restarts with it. So it changes no bit who runs which, and where it is done may hang on the
clock (``tests/test_cluster.py`` holds that).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np
from jax.sharding import Mesh

from vcuda.infer.progress import Pace
from vcuda.infer.workers import SECONDS_A_STRETCH, WORTH_SECONDS, OnProgress, Workers

Tree = TypeVar("Tree")


class Members(NamedTuple):
    """Which restarts go on: the first ``size`` of ``places`` (r,), which are ordinary arguments of a program."""

    places: Any
    size: Any

    @classmethod
    def of(cls, places: np.ndarray, restarts: int) -> Members:
        """These of so many restarts."""
        padded = np.zeros(restarts, dtype=np.int32)
        padded[: places.size] = places
        return cls(padded, int(places.size))


def can_be_apart(restarts: int, mesh: Mesh | None) -> bool:
    """Whether restarts may be taken one after the other: not where devices share them, nor on accelerators, which are
    the faster the more is done at once."""
    return restarts > 1 and mesh is None and jax.default_backend() == "cpu"


def picked(tree: Tree, axes: Any, places: np.ndarray) -> Tree:
    """Some restarts of a tree of arrays, of which ``axes`` tells the axis of restarts; a copy."""
    return jax.tree.map(lambda array, axis: np.take(np.asarray(array), places, axis), tree, axes)


def widened(part: Tree, axes: Any, places: np.ndarray, restarts: int) -> Tree:
    """What :func:`picked` took, at its places among so many restarts; nothing is known of the others."""

    def wide(array: np.ndarray, axis: int) -> np.ndarray:
        full = np.zeros((*array.shape[:axis], restarts, *array.shape[axis + 1 :]), array.dtype)
        np.moveaxis(full, axis, 0)[places] = np.moveaxis(array, axis, 0)
        return full

    return jax.tree.map(wide, part, axes)


def run_in_parts(
    workers: Workers,
    function: Callable[[Any, Any], Tree],
    tree: Tree,
    axes: Any,
    *,
    places: np.ndarray,
    part: Callable[[np.ndarray], Any],
    shared: Any,
    on_progress: OnProgress,
) -> Tree:
    """The tree after some of its restarts were run on workers, each of which is given a ``part``, made from places."""
    groups = np.array_split(places, min(workers.count, places.size))
    found = workers.map(function, [part(group) for group in groups], shared=shared, on_progress=on_progress)

    def joined(array: Any, axis: int, *parts: np.ndarray) -> np.ndarray:
        whole = np.array(array)
        for group, own in zip(groups, parts, strict=True):
            np.moveaxis(whole, axis, 0)[group] = np.moveaxis(own, axis, 0)
        return whole

    return jax.tree.map(joined, tree, axes, *found)


class Elsewhere:
    """How many steps workers are given next, if that is worth it: known from the pace here, and then from theirs."""

    def __init__(self, workers: Workers, here: Pace, deadline: float | None) -> None:
        self.workers, self.here, self.deadline = workers, here, deadline
        self.there: Pace | None = None
        self._useful = workers.count > 1

    def steps(self, left: int, *, restarts: int) -> int:
        """Of ``left`` steps of so many restarts; 0 where they are better taken here."""
        if not self._useful or restarts == 1 or self.here.seconds_a_step is None:
            return 0
        if self.there is None:
            seconds = self.here.seconds_a_step * left
            if self.deadline is not None:
                seconds = min(seconds, self.deadline - time.monotonic())
            if seconds < WORTH_SECONDS:
                return 0
            self.there = Pace(SECONDS_A_STRETCH, steps=self.here.steps)
        elif self.there.seconds_a_step is not None and self.there.seconds_a_step > self.here.seconds_a_step:
            self._useful = False
            return 0
        return min(self.there.steps, left)

    @property
    def seconds(self) -> float:
        """How long the steps took that were taken elsewhere, without compilation."""
        return 0.0 if self.there is None else self.there.seconds
