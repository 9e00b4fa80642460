"""Local scores that sum out a nuisance set of each node.

Some columns may be parents and are no nodes of the graph that is searched: in a time series the columns of earlier
steps. The score of a node given parents U among the nodes is then a sum over all sets N of such columns,

    score(j, U) = log sum_N exp(inner(j, U and N) + log p(N)),

where ``inner`` is any score of the wide table. Engines take it as it is, on d nodes. Given U the sets N have a
posterior of their own, from which the whole graph is drawn afterwards (:class:`NuisancePosterior`).

The sum is exact where a node has up to ``MOST`` such columns. Of more, the best ones are taken by forward selection
given U, all of their subsets are summed, and each of the others counts by its odds beside them, as if the others were
independent of each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, logsumexp

from vcuda.data.scaling import Scaling
from vcuda.models.additive.score import AdditiveBasisScore
from vcuda.models.integrated_noise import average_evidences
from vcuda.models.linear.score import GramScore
from vcuda.models.prediction import Predictive
from vcuda.models.protocol import LocalScore, WrappedScore
from vcuda.models.sets import checked_candidates, schur_tables, set_sizes, sets_of
from vcuda.models.tabulated import Set, TabulatedScore

# All subsets of so many columns are summed.
MOST = 8
# Of sums of smooth functions, whose columns have several features each, and where a set takes long.
MOST_OF_CURVES = 6
MOST_OF_SLOW = 4
# Numbers that are held at a time.
AT_A_TIME = 4_000_000


class NuisancePrior(NamedTuple):
    """What is known of the nuisance columns (m of them, behind the d nodes) as parents of the nodes, each (m, d).

    ``log_odds`` of each edge, minus infinity where it cannot be; ``log_absent``, what its absence adds; ``required``.
    What is required has 0 for both numbers.
    """

    log_odds: np.ndarray
    log_absent: np.ndarray
    required: np.ndarray

    def free(self, target: int) -> np.ndarray:
        """The columns, counted from 0, that may be parents or not."""
        return np.flatnonzero(np.isfinite(self.log_odds[:, target]) & ~self.required[:, target])

    def certain(self, target: int) -> np.ndarray:
        return np.flatnonzero(self.required[:, target])

    def constant(self, target: int) -> float:
        """What the absence of all edges adds."""
        return float(self.log_absent[self.free(target), target].sum())


class NuisancePosterior(NamedTuple):
    """The nuisance columns (m) of one node given its parents among the nodes.

    Sets as rows of booleans (s, m) with their probabilities (s,), and probabilities (m,) of the columns that are in
    none of them and stand each by itself.
    """

    sets: np.ndarray
    probabilities: np.ndarray
    apart: np.ndarray

    def marginals(self) -> np.ndarray:
        """The probability (m,) of each column."""
        return self.probabilities @ self.sets + self.apart

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """One set, as the columns in it."""
        chosen = self.sets[rng.choice(self.probabilities.size, p=self.probabilities)]
        return np.flatnonzero(chosen | (rng.random(self.apart.size) < self.apart))


class SummedOutScore(WrappedScore):
    """What the ways to sum have in common: ``inner`` is a score of d nodes and m more columns behind them."""

    inner: LocalScore
    prior: NuisancePrior
    jacobian: float

    # Which lags there are tells the order of columns.
    score_equivalent = False
    cheap_tables = False
    makes_all_tables = False
    slow_sets = False
    shares_sets = False
    columns = None
    costs = MappingProxyType[str, Any]({})

    @property
    def nodes(self) -> int:
        return int(self.prior.log_odds.shape[1])

    @property
    def log_jacobian(self) -> float:
        """Of the nodes alone."""
        return self.jacobian

    def nuisance_posteriors(self, target: int, sets: Sequence[Sequence[int]]) -> Iterator[NuisancePosterior]:
        """The nuisance columns of a node given each of some sets of parents."""
        raise NotImplementedError

    def screen(self) -> None:
        return None

    def start_order(self, *given: Any, **more: Any) -> None:
        return None

    def regressions(self) -> None:
        return None

    def predictive_in(self, units: Scaling) -> Predictive | None:
        # That of the wide table predicts.
        return None

    def _is_free(self, target: int) -> bool:
        """Whether a node was left free by experiments in any row."""
        return bool(self.inner.free_rows[target])


def summed_out(inner: LocalScore, prior: NuisancePrior, log_jacobian: float) -> LocalScore:
    """The score of the first d columns, with the others summed out; ``log_jacobian`` is that of the d columns."""
    if isinstance(inner, TabulatedScore):
        return SummedTables.summing(inner, prior)
    if isinstance(inner.parts[0], GramScore | AdditiveBasisScore):
        return SummedRegressions(inner, prior, log_jacobian)
    return SummedSets(inner, prior, log_jacobian)


# Regressions, many sets at a time ------------------------------------------------------------------------------


class _Design(NamedTuple):
    """The regressions of one target: products ``gram`` (a, f, f) of the features of all columns, ``block`` of them for
    each, products ``cross`` (a, f) with the target and its ``square``, what is added to the diagonals, and how
    residuals and log determinants (a, ...), and the number of parents, become scores (...). There are ``a`` priors of
    the weights, over which scores are averaged."""

    gram: np.ndarray
    cross: np.ndarray
    square: float
    block: int
    ridge: float
    local: Callable[[np.ndarray, np.ndarray, Any], np.ndarray]

    @classmethod
    def of(cls, part: Any, target: int) -> _Design:
        if isinstance(part, GramScore):
            return cls(
                part.gram[None],
                part.gram[None, :, target],
                float(part.gram[target, target] + part.target_ridge),
                1,
                part.ridge,
                lambda residual, log_det, size: part.local(residual[0], log_det[0], np.asarray(size)),
            )
        amplitudes = np.asarray(part.amplitudes)
        more = np.log1p(part.noise.rows)
        return cls(
            amplitudes[:, None, None] * part.gram,
            np.sqrt(amplitudes)[:, None] * part.products[:, target],
            float(part.squares[target]),
            part.block,
            1.0,
            lambda residual, log_det, size: average_evidences(part.noise.log_evidence(residual, log_det + more)),
        )

    def features(self, columns: np.ndarray) -> np.ndarray:
        """Where the features of columns (..., k) stand (..., k * block)."""
        places = columns[..., None] * self.block + np.arange(self.block)
        return places.reshape(*columns.shape[:-1], columns.shape[-1] * self.block)


class _Given(NamedTuple):
    """Regressions on sets of parents (b, k): ``rows`` (a, b, k * block, m * block + 1) of their factors, for the
    features of the others and last the target, and the log determinants (a, b)."""

    rows: np.ndarray
    log_det: np.ndarray
    size: int


class _Chosen(NamedTuple):
    """Sets of parents (b) with the nuisance columns (b, k) that were chosen for each: the log weights (b, 2**k) of the
    subsets of those, and the log odds (b, m) of all others, minus infinity for the chosen ones. All with a common
    constant."""

    columns: np.ndarray
    log_weights: np.ndarray
    apart: np.ndarray

    def total(self) -> np.ndarray:
        return np.asarray(logsumexp(self.log_weights, axis=1) + np.logaddexp(0.0, self.apart).sum(axis=1))


@dataclass(frozen=True, eq=False)
class SummedRegressions(SummedOutScore):
    """Over a linear score, or sums of smooth functions: by forward selection and one recursion over subsets, for many
    sets of parents at a time."""

    inner: LocalScore
    prior: NuisancePrior
    jacobian: float

    @property
    def _block(self) -> int:
        return int(getattr(self.inner.parts[0], "block", 1))

    @property
    def _most(self) -> int:
        return MOST if self._block == 1 else MOST_OF_CURVES

    def table_seconds(self) -> float:
        extra = len(self.prior.log_odds)
        subsets = 2 ** min(self._most, extra)
        each = 2e-7 * subsets + 3e-7 * extra if self._block == 1 else 2.5e-5 * subsets + 4e-5 * extra
        return each * self.nodes * sets_of(self.nodes - 1)

    def score(self, target: int, parents: Sequence[int]) -> float:
        chosen = checked_candidates(target, np.asarray(parents), self.nodes)
        return float(self._totals(target, chosen[None])[0])

    def table(self, target: int, candidates: np.ndarray) -> np.ndarray:
        chosen = checked_candidates(target, candidates, self.nodes)
        return self.tables([target], chosen[None], np.zeros((1, 0), dtype=np.int64))[0]

    def tables(self, targets: Sequence[int], free: np.ndarray, fixed: np.ndarray) -> np.ndarray:
        width = free.shape[1]
        sizes, found = set_sizes(width), np.empty((len(targets), 1 << width))
        for place, target in enumerate(targets):
            for size in range(width + 1):
                which = np.flatnonzero(sizes == size)
                bits = (which[:, None] >> np.arange(width)) & 1
                own = free[place][np.nonzero(bits)[1].reshape(which.size, size)]
                sets = np.concatenate([own, np.broadcast_to(fixed[place], (which.size, fixed.shape[1]))], axis=1)
                found[place, which] = self._totals(target, sets.astype(np.int64))
        return found

    def gains(self, target: int, parents: Sequence[int]) -> np.ndarray:
        chosen = checked_candidates(target, np.asarray(parents), self.nodes)
        others = np.setdiff1d(np.arange(self.nodes), [target, *chosen])
        with_one = np.concatenate([np.broadcast_to(chosen, (others.size, chosen.size)), others[:, None]], axis=1)
        found = np.full(self.nodes, -np.inf)
        found[others] = self._totals(target, with_one) - self._totals(target, chosen[None])
        return found

    def losses(self, target: int, parents: np.ndarray) -> np.ndarray:
        if not parents.size:
            return np.zeros(0)
        without = np.stack([np.delete(parents, place) for place in range(parents.size)]).astype(np.int64)
        return np.asarray(self._totals(target, parents[None]) - self._totals(target, without))

    def nuisance_posteriors(self, target: int, sets: Sequence[Sequence[int]]) -> Iterator[NuisancePosterior]:
        extra, free, certain = len(self.prior.log_odds), self.prior.free(target), self.prior.certain(target)
        if not self._is_free(target):
            # It was set in every row: nothing causes it.
            for _ in sets:
                yield NuisancePosterior(np.zeros((1, extra), dtype=bool), np.ones(1), np.zeros(extra))
            return
        for _, several in groupby(sets, key=len):
            alike = np.array(list(several), dtype=np.int64)
            for start in range(0, len(alike), self._step(target, alike.shape[1])):
                found = self._chosen(target, alike[start : start + self._step(target, alike.shape[1])])
                for columns, log_weights, odds in zip(found.columns, found.log_weights, found.apart, strict=True):
                    members = np.zeros((log_weights.size, extra), dtype=bool)
                    members[:, certain] = True
                    members[:, free[columns]] = (np.arange(log_weights.size)[:, None] >> np.arange(columns.size)) & 1
                    apart = np.zeros(extra)
                    apart[free] = expit(odds)
                    probabilities = np.exp(log_weights - logsumexp(log_weights))
                    yield NuisancePosterior(members, probabilities / probabilities.sum(), apart)

    def _totals(self, target: int, sets: np.ndarray) -> np.ndarray:
        """The scores (b,) of sets (b, k) of as many parents each."""
        if not self._is_free(target):
            return np.zeros(len(sets))
        step = self._step(target, sets.shape[1])
        found = [self._chosen(target, sets[start : start + step]).total() for start in range(0, len(sets), step)]
        return np.concatenate([np.zeros(0), *found]) + self.prior.constant(target)

    def _step(self, target: int, size: int) -> int:
        """How many sets are regressed at a time."""
        extra, block = self.prior.free(target).size, self._block
        chosen = min(self._most, extra)
        width = (4 << chosen) * block**2 + (size + chosen + 2 * block) * (extra + 1) * block**2
        return max(1, AT_A_TIME // width)

    def _chosen(self, target: int, sets: np.ndarray) -> _Chosen:
        design = _Design.of(self.inner.of(target), target)
        free = self.prior.free(target)
        odds = self.prior.log_odds[free, target]
        certain = self.nodes + self.prior.certain(target)
        given = np.concatenate([sets, np.broadcast_to(certain, (len(sets), certain.size))], axis=1)
        own, others = design.features(given), design.features(self.nodes + free)
        right = np.concatenate([design.gram[:, own[:, :, None], others], design.cross[:, own][..., None]], axis=-1)
        inner = design.gram[:, own[:, :, None], own[:, None, :]] + design.ridge * np.eye(own.shape[1])
        factor = np.linalg.cholesky(inner)
        log_det = 2 * np.log(np.einsum("abii->abi", factor)).sum(axis=2) - own.shape[1] * np.log(design.ridge)
        before = _Given(np.linalg.solve(factor, right), log_det, given.shape[1])
        columns, apart = self._forward(design, before, self.nodes + free, odds)
        # What is left of the chosen columns and the target beside the parents.
        within = design.features(columns)
        ends = np.concatenate([within, np.full((len(sets), 1), others.size)], axis=1)
        taken = np.take_along_axis(before.rows, ends[None, :, None, :], axis=3)
        left = -np.swapaxes(taken, 2, 3) @ taken
        names = others[within]
        left[..., :-1, :-1] += design.gram[:, names[:, :, None], names[:, None, :]]
        left[..., :-1, -1] += design.cross[:, names]
        left[..., -1, :-1] += design.cross[:, names]
        left[..., -1, -1] += design.square
        left += np.diag(np.append(np.full(within.shape[1], design.ridge), 0.0))
        residual, more = schur_tables(left, block=design.block)
        sizes = set_sizes(columns.shape[1])
        more -= sizes * design.block * np.log(design.ridge)
        scores = design.local(residual, log_det[..., None] + more, before.size + sizes)
        for place in range(columns.shape[1]):
            scores[:, (np.arange(sizes.size) >> place) & 1 == 1] += odds[columns[:, place]][:, None]
        return _Chosen(columns, scores, apart)

    def _forward(
        self, design: _Design, given: _Given, others: np.ndarray, odds: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Choose columns (b, k) one by one, each set of parents its own, and return the log odds (b, m) of all others
        beside them."""
        block, ridge, width = design.block, design.ridge, others.size
        places = design.features(others)
        rows, log_det, size = given
        priors, count = rows.shape[:2]
        every, steps = np.arange(count), min(self._most, width)

        def products(some: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            """Of rows of factors: of the features of each column with each other, with the target, and its square."""
            parted = some[..., :-1].reshape(priors, count, some.shape[2], width, block)
            own = np.einsum("abrmp,abrmq->pqabm", parted, parted)
            return own, np.einsum("abrmp,abr->pabm", parted, some[..., -1]), (some[..., -1] ** 2).sum(axis=2)

        by_column = places.reshape(width, block)
        own, cross, square = products(rows)
        within = design.gram[:, by_column[:, :, None], by_column[:, None, :]] + ridge * np.eye(block)
        matrices = within.transpose(2, 3, 0, 1)[:, :, :, None, :] - own
        covariance = design.cross[:, by_column].transpose(2, 0, 1)[:, :, None, :] - cross
        residual = design.square - square
        columns, taken = np.zeros((count, steps), dtype=np.int64), np.zeros((count, width), dtype=bool)
        for step in range(steps + 1):
            explained, gained = _eliminated(matrices, covariance)
            after = design.local(
                np.maximum(residual[..., None] - explained, 1e-9),
                log_det[..., None] + gained - block * np.log(ridge),
                size + step + 1,
            )
            gains = after - design.local(residual, log_det, size + step)[:, None] + odds
            gains[taken] = -np.inf
            if step == steps:
                break
            best = gains.argmax(axis=1)
            columns[:, step], taken[every, best] = best, True
            mine = by_column[best]
            inside = best[:, None] * block + np.arange(block)
            new = np.concatenate([design.gram[:, mine[:, :, None], places], design.cross[:, mine][..., None]], axis=-1)
            if rows.shape[2]:
                there = np.take_along_axis(rows, np.broadcast_to(inside[:, None], (1, count, 1, block)), axis=3)
                new = new - np.swapaxes(there, 2, 3) @ rows
            pivot = np.take_along_axis(new, np.broadcast_to(inside[:, None], (1, count, 1, block)), axis=3)
            factor = np.linalg.cholesky(pivot + ridge * np.eye(block))
            new = np.linalg.solve(factor, new)
            log_det = log_det + 2 * np.log(np.einsum("abii->abi", factor)).sum(axis=2) - block * np.log(ridge)
            own, cross, square = products(new)
            matrices, covariance, residual = matrices - own, covariance - cross, residual - square
            matrices[..., taken] = np.eye(block)[:, :, None, None]
            covariance[..., taken] = 0.0
            rows = np.concatenate([rows, new], axis=2)
        return columns, gains


def _eliminated(matrices: np.ndarray, covariance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What regressions on blocks of features explain, and the log determinants (...): of matrices (p, p, ...) and their
    products (p, ...) with the target."""
    explained, log_det = np.zeros(covariance.shape[1:]), np.zeros(covariance.shape[1:])
    while len(covariance):
        pivot = np.maximum(matrices[0, 0], 1e-12)
        explained += covariance[0] ** 2 / pivot
        log_det += np.log(pivot)
        if len(covariance) == 1:
            break
        share = matrices[0, 1:] / pivot
        covariance = covariance[1:] - share * covariance[0]
        matrices = matrices[1:, 1:] - share[:, None] * matrices[0, 1:][None]
    return explained, log_det


# Scores that are known set by set ------------------------------------------------------------------------------


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
