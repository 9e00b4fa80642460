"""Sets of parents one after the other: what a score does by default that knows no recursion and no update."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from math import inf

import numpy as np

from vcuda.errors import ConfigError

# Two to this power is the largest that a float holds.
LARGEST_POWER = 1023
# The score of a target with a set of parents.
Ask = Callable[[int, Sequence[int]], float]


def sets_of(nodes: int) -> float:
    """Return how many sets so many nodes have, infinite where no float holds it."""
    return 2.0**nodes if nodes <= LARGEST_POWER else inf


def set_sizes(candidates: int) -> np.ndarray:
    """Return how many candidates each of the (2**candidates,) subsets holds."""
    return np.bitwise_count(np.arange(1 << candidates, dtype=np.uint32)).astype(np.int64)


def checked_candidates(target: int, candidates: np.ndarray, nodes: int) -> np.ndarray:
    """Return the candidates as integers (c,); refuse repeated ones, the target, and what is no column."""
    chosen = np.asarray(candidates, dtype=np.int64).reshape(-1)
    if chosen.size and (chosen.min() < 0 or chosen.max() >= nodes):
        raise ConfigError(f"candidate parents must be columns 0 to {nodes - 1}, got {chosen.tolist()}")
    if target in chosen or np.unique(chosen).size != chosen.size:
        raise ConfigError(f"candidate parents of {target} must be distinct and other than it, got {chosen.tolist()}")
    return chosen


def table_steps(
    ask: Ask,
    target: int,
    chosen: np.ndarray,
    *,
    full: int | None,
    margin: float,
    most: int | None,
) -> Generator[list[list[int]], None, np.ndarray]:
    """Fill the table (2**c,) of c candidates, size by size; yields the sets of a size before it asks for their scores.

    All sets of up to ``full`` parents are scored; a larger one only if it adds one parent to a set that is at most
    ``margin`` nats below the best set so far, and has minus infinity otherwise, as all sets of more than ``most`` have.
    """
    largest = chosen.size if most is None else min(most, chosen.size)
    sizes = set_sizes(chosen.size)
    scores = np.full(sizes.size, -np.inf)
    for size in range(largest + 1):
        indices = np.flatnonzero(sizes == size)
        if full is not None and size > full:
            live = np.flatnonzero((sizes == size - 1) & (scores >= scores.max() - margin))
            extended = np.unique(live[:, None] | (1 << np.arange(chosen.size)))
            indices = extended[sizes[extended] == size]
        sets = [
            [int(node) for position, node in enumerate(chosen) if index >> position & 1] for index in indices.tolist()
        ]
        yield sets
        for index, parents in zip(indices.tolist(), sets, strict=True):
            scores[index] = ask(target, parents)
    return scores


def gains_by_sets(ask: Ask, nodes: int, target: int, parents: Sequence[int]) -> np.ndarray:
    """Return what each column gains (d,), one set for each."""
    chosen = checked_candidates(target, np.asarray(parents), nodes).tolist()
    before = ask(target, chosen)
    gained = np.full(nodes, -np.inf)
    for other in set(range(nodes)) - {target, *chosen}:
        gained[other] = ask(target, [*chosen, other]) - before
    return gained


def losses_by_sets(ask: Ask, target: int, parents: np.ndarray) -> np.ndarray:
    """Return what each of the parents (k,) loses, one set for each."""
    chosen = parents.tolist()
    together = ask(target, chosen)
    return np.array([together - ask(target, chosen[:t] + chosen[t + 1 :]) for t in range(len(chosen))])


def schur_tables(gram: np.ndarray, *, block: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Regress a target on every subset of its candidates, by one recursion over the candidates.

    ``gram`` (..., m + 1, m + 1) holds the regularised Gram matrix of the m = c * block features of c
    candidates (``block`` features each) and, last, the target; leading axes are a batch. Returns the residual
    quadratic forms of the target and the log determinants of the chosen features' Gram matrices, both (...,
    2**c). About 12 * 2**c operations per target for ``block`` 1, and memory for a few times 2**c numbers,
    because the matrices shrink as fast as their number grows.
    """
    features = gram.shape[-1] - 1
    # Subsets are many, so they go on the last axis, where operations run over long contiguous rows.
    matrices = np.moveaxis(gram, (-2, -1), (0, 1))[..., None].astype(np.float64)
    log_dets = np.zeros(matrices.shape[2:])
    for _ in range(features // block):
        included, gained = matrices, log_dets
        for _ in range(block):
            pivot, row = included[0, 0], included[0, 1:]
            included = included[1:, 1:] - row[:, None] * (row / pivot)[None]
            gained = gained + np.log(pivot)
        matrices = np.concatenate([matrices[block:, block:], included], axis=-1)
        log_dets = np.concatenate([log_dets, gained], axis=-1)
    return matrices[0, 0], log_dets
