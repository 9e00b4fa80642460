"""Sums over scores that are known set by set: tabulated before a search, or asked for one by one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from scipy.special import logsumexp

from vcuda.models.protocol import LocalScore
from vcuda.models.sets import checked_candidates, sets_of
from vcuda.models.summed_out.base import NuisancePosterior, NuisancePrior, SummedOutScore
from vcuda.models.tabulated import Set, TabulatedScore

# All subsets of so many columns are summed; of fewer where a set takes long.
MOST, MOST_OF_SLOW = 8, 4


@dataclass(frozen=True, eq=False)
class SummedTables(TabulatedScore):
    """Over scores that were computed before the search: ``groups`` has for each node and each of its sets of parents
    the nuisance sets that were tried, with their log weights."""

    groups: tuple[Mapping[Set, tuple[list[Set], np.ndarray]], ...] = field(default=())
    extra: int = 0

    @classmethod
    def summing(cls, inner: TabulatedScore, prior: NuisancePrior) -> SummedTables:
        nodes = inner.nodes
        groups, scores = [], []
        for target in range(nodes):
            constant, odds = prior.constant(target), prior.log_odds[:, target]
            members: dict[Set, list[tuple[Set, float]]] = {}
            for every, score in inner.scores[target].items():
                parents = tuple(k for k in every if k < nodes)
                lagged = tuple(k - nodes for k in every if k >= nodes)
                weight = score + constant + float(odds[list(lagged)].sum())
                members.setdefault(parents, []).append((lagged, weight))
            own = {
                parents: ([lagged for lagged, _ in some], np.array([weight for _, weight in some]))
                for parents, some in members.items()
            }
            groups.append(own)
            scores.append({parents: float(logsumexp(weights)) for parents, (_, weights) in own.items()})
        most = max(len(own) for one in scores for own in one)
        return cls(
            tuple(scores),
            inner.rows,
            inner.log_jacobian,
            max_parents=most,
            groups=tuple(groups),
            extra=len(prior.log_odds),
        )

    def nuisance_posteriors(self, target: int, sets: Sequence[Sequence[int]]) -> Iterator[NuisancePosterior]:
        for parents in sets:
            lagged, log_weights = self.groups[target][tuple(sorted(int(parent) for parent in parents))]
            members = np.zeros((len(lagged), self.extra), dtype=bool)
            for place, own in enumerate(lagged):
                members[place, list(own)] = True
            probabilities = np.exp(log_weights - logsumexp(log_weights))
            yield NuisancePosterior(members, probabilities / probabilities.sum(), np.zeros(self.extra))


@dataclass(frozen=True, eq=False)
class SummedSets(SummedOutScore):
    """Over any other score: for each node the most promising nuisance columns, the same for all sets of parents."""

    inner: LocalScore
    prior: NuisancePrior
    jacobian: float

    @cached_property
    def _promising(self) -> dict[int, np.ndarray]:
        return {}

    def _columns(self, target: int) -> np.ndarray:
        """The nuisance columns that are tried, counted from 0."""
        if target not in self._promising:
            self._promising[target] = self._choose(target)
        return self._promising[target]

    def _choose(self, target: int) -> np.ndarray:
        free, nodes = self.prior.free(target), self.nodes
        most = MOST_OF_SLOW if self.inner.slow_sets else MOST
        if free.size <= most:
            return free
        odds = self.prior.log_odds[free, target]
        certain = (nodes + self.prior.certain(target)).tolist()
        alone = self.inner.gains(target, certain)[nodes + free] + odds
        found: list[int] = []
        # Beside each other, then beside the nodes that explain the target best.
        for others in (np.zeros(0, dtype=np.int64), np.setdiff1d(np.arange(nodes), [target])):
            now = list(certain)
            while len(found) < most and len(now) < 2 * most:
                gains = np.array(self.inner.gains(target, now))
                every = np.concatenate([nodes + free, others])
                ranked = gains[every] + np.concatenate([odds, np.full(others.size, odds.max())])
                best = int(every[np.argmax(ranked)])
                if not ranked.max() > 0:
                    break
                now.append(best)
                if best >= nodes and best - nodes not in found:
                    found.append(best - nodes)
        ranked_alone = free[np.argsort(-alone, kind="stable")].tolist()
        found += [k for k in ranked_alone if k not in found][: most - len(found)]
        return np.sort(np.array(found, dtype=np.int64))

    def table_seconds(self) -> float:
        if self.nodes < 2:
            return 0.0
        extra = max((self._columns(target).size for target in range(self.nodes)), default=0)
        return self.inner.table_seconds() / sets_of(self.inner.nodes - self.nodes - extra)

    def score(self, target: int, parents: Sequence[int]) -> float:
        chosen = checked_candidates(target, np.asarray(parents), self.nodes)
        return float(logsumexp(self._weights(target, chosen)) + self.prior.constant(target))

    def _weights(self, target: int, parents: np.ndarray) -> np.ndarray:
        """The log weights (2**k,) of all subsets of the nuisance columns, beside some parents."""
        columns = self._columns(target)
        given = np.concatenate([parents, self.nodes + self.prior.certain(target)])
        scores = self.inner.tables([target], (self.nodes + columns)[None], given[None])[0]
        return scores + _subset_sums(self.prior.log_odds[columns, target])

    def table(self, target: int, candidates: np.ndarray) -> np.ndarray:
        chosen = checked_candidates(target, candidates, self.nodes)
        columns, certain = self._columns(target), self.nodes + self.prior.certain(target)
        free = np.concatenate([chosen, self.nodes + columns])
        scores = self.inner.tables([target], free[None], certain[None])[0].reshape(1 << columns.size, 1 << chosen.size)
        weights = scores + _subset_sums(self.prior.log_odds[columns, target])[:, None]
        return np.asarray(logsumexp(weights, axis=0) + self.prior.constant(target))

    def nuisance_posteriors(self, target: int, sets: Sequence[Sequence[int]]) -> Iterator[NuisancePosterior]:
        columns, certain, extra = self._columns(target), self.prior.certain(target), len(self.prior.log_odds)
        members = np.zeros((1 << columns.size, extra), dtype=bool)
        members[:, certain] = self._is_free(target)
        members[:, columns] = (np.arange(len(members))[:, None] >> np.arange(columns.size)) & 1
        for parents in sets:
            weights = self._weights(target, np.array(parents, dtype=np.int64))
            probabilities = np.exp(weights - logsumexp(weights))
            yield NuisancePosterior(members, probabilities / probabilities.sum(), np.zeros(extra))


def _subset_sums(terms: np.ndarray) -> np.ndarray:
    """The sum of the terms (k,) of every subset (2**k,)."""
    sums = np.zeros(1)
    for term in terms:
        sums = np.concatenate([sums, sums + term])
    return sums
