"""Sums over a linear score, or over sums of smooth functions: many sets of parents at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, logsumexp

from vcuda.models.integrated_noise import average_evidences
from vcuda.models.linear.score import GramScore
from vcuda.models.protocol import LocalScore
from vcuda.models.sets import checked_candidates, schur_tables, set_sizes, sets_of
from vcuda.models.summed_out.base import NuisancePosterior, NuisancePrior, SummedOutScore

# All subsets of so many columns are summed; of curves, whose columns have several features each, of fewer.
MOST, MOST_OF_CURVES = 8, 6
# Numbers that are held at a time.
AT_A_TIME = 4_000_000


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
        filled = rows.shape[2]
        space = np.empty((priors, count, filled + steps * block, rows.shape[3]))
        space[:, :, :filled] = rows
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
            if filled:
                rows = space[:, :, :filled]
                there = np.take_along_axis(rows, np.broadcast_to(inside[:, None], (1, count, 1, block)), axis=3)
                new = new - np.swapaxes(there, 2, 3) @ rows
            pivot = np.take_along_axis(new, np.broadcast_to(inside[:, None], (1, count, 1, block)), axis=3)
            factor = np.linalg.cholesky(pivot + ridge * np.eye(block))
            new = new / factor if block == 1 else np.linalg.solve(factor, new)
            log_det = log_det + 2 * np.log(np.einsum("abii->abi", factor)).sum(axis=2) - block * np.log(ridge)
            own, cross, square = products(new)
            matrices, covariance, residual = matrices - own, covariance - cross, residual - square
            # What becomes of those taken before does not matter: their gains are not looked at.
            matrices[:, :, :, every, best] = np.eye(block)[:, :, None, None]
            covariance[:, :, every, best] = 0.0
            filled += block
            space[:, :, filled - block : filled] = new
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
