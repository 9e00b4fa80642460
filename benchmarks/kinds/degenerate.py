"""The degenerate Gaussian: BGe on a table in which each label has a column of its own.

A label of k levels becomes a block of k - 1 columns of 0 and 1. The score of a node is log p(block | columns of the
parents), so that graphs of one Markov equivalence class have the same score, as with BGe.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vcuda.dags.base import DagPrior
from vcuda.infer.edge_prior import edge_prior
from vcuda.infer.exact import exact_posterior
from vcuda.infer.orders import Orders, run_orders
from vcuda.models.linear import BGe, BGeScore
from vcuda.models.protocol import LocalScore

# Up to so many columns all graphs are counted.
EXACT_NODES = 12
# Every set takes a tenth of a millisecond; with more parents a table of 20 columns needs twice as many sets.
MOST_PARENTS = 5


@dataclass(frozen=True, eq=False)
class DegenerateGaussianScore(LocalScore):
    """BGe of blocks of columns; ``blocks`` has the columns of each node."""

    bge: BGeScore
    blocks: tuple[tuple[int, ...], ...]
    rows: int
    log_jacobian: float = 0.0
    max_parents: int | None = MOST_PARENTS

    score_equivalent = True

    @property
    def nodes(self) -> int:
        return len(self.blocks)

    def score(self, target: int, parents: Sequence[int]) -> float:
        given = [column for parent in parents for column in self.blocks[parent]]
        own = self.blocks[target]
        # The chain rule inside the block, one column after the other.
        return sum(self.bge.score(column, [*given, *own[:place]]) for place, column in enumerate(own))


def degenerate_gaussian(values: np.ndarray, kinds: Sequence[str]) -> DegenerateGaussianScore:
    """The score of a table (n, d) in which labels are codes."""
    columns: list[np.ndarray] = []
    blocks = []
    for own, kind in zip(values.T, kinds, strict=True):
        block = [own == level for level in np.unique(own)[:-1]] if kind == "label" else [own]
        blocks.append(tuple(range(len(columns), len(columns) + len(block))))
        columns += block
    return DegenerateGaussianScore(BGe().prepare(np.column_stack(columns).astype(float)), tuple(blocks), len(values))


def edge_probabilities(score: DegenerateGaussianScore, *, seed: int) -> tuple[np.ndarray, str]:
    """Those of every edge (d, d) under the usual prior, and the status: exact where that is quick, or by orders."""
    prior = edge_prior(score.nodes, DagPrior.for_nodes(score.nodes).edge_probability)
    if score.nodes <= EXACT_NODES:
        found = exact_posterior(score, prior, samples=1, rng=np.random.default_rng(seed))
        return found.edge_probabilities, "ok"
    sampled = run_orders(Orders(), score, prior, samples=1, seed=seed)
    return sampled.edge_probabilities, sampled.status.code
