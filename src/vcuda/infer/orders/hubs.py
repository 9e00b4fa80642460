"""The search for hubs: nodes whose parents show only together, found by matched filters for lazy tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from vcuda.graphs import ancestors
from vcuda.infer.orders.candidates import Candidates
from vcuda.infer.orders.interaction_filter import InteractionFilter, seconds_of_searches
from vcuda.infer.orders.lazy_tables import NO_PREFETCH, LazyTableScore
from vcuda.infer.prefetch import Prefetch
from vcuda.infer.workers import SERIAL
from vcuda.models.protocol import LocalScore

# Matched filters are searched here if all searches take less: every worker would first make a filter of its own.
WORTH_SECONDS = 4.0


class _Filter:
    """A matched filter that is made where it is used, from columns that are a hundred times smaller."""

    def __init__(self, columns: np.ndarray) -> None:
        self.columns = columns

    @cached_property
    def matched(self) -> InteractionFilter:
        return InteractionFilter.of(self.columns)


def _promising(shared: _Filter, asked: tuple[int, np.ndarray]) -> list[tuple[int, ...]]:
    """The sets that a matched filter finds for a target in a pool."""
    return shared.matched.search(*asked)


def search_hubs(
    score: LocalScore,
    candidates: Candidates,
    graph: Sequence[np.ndarray],
    *,
    cap: int,
    go_on: Callable[[int], bool] = lambda node: True,
    prefetch: Prefetch = NO_PREFETCH,
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
    for number in np.unique(score.part_of):
        members = np.flatnonzero(score.part_of == number).tolist()
        lazy: Any = score.of(members[0])
        part: LazyTableScore = lazy
        if part.columns is None:
            continue

        def pool(target: int, part: LazyTableScore = part) -> np.ndarray:
            odds = part.prior.log_odds[:, target]
            return np.flatnonzero(np.isfinite(odds) & ~descends[target])

        shared = _Filter(part.columns)
        promising: dict[int, list[tuple[int, ...]]] = {}
        if prefetch.is_worth_it and go_on(members[0]):
            asked = [(target, pool(target)) for target in members]
            elsewhere = seconds_of_searches(part.columns, len(members)) > WORTH_SECONDS
            search = (prefetch.workers if elsewhere else SERIAL).map
            found = search(_promising, asked, shared=shared, on_progress=lambda share: prefetch.on_progress())
            promising = dict(zip(members, found, strict=True))
            prefetch.in_step(
                (part.exact, target, part.hub_steps(part.exact.foreseen, target, graph[target], promising[target]))
                for target in members
            )
        for target in members:
            if not go_on(target):
                return Candidates(tuple(free), candidates.fixed), improved
            sets = promising[target] if target in promising else _promising(shared, (target, pool(target)))
            hub = part.search_hub(target, graph[target], sets)
            if hub:
                improved += 1
                others = free[target][~np.isin(free[target], hub)]
                free[target] = np.union1d(hub, others[: max(cap - len(hub), 0)]).astype(np.int64)
    return Candidates(tuple(free), candidates.fixed), improved
