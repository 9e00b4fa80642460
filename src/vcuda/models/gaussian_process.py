"""A smooth function of all parents together: the evidence of a Gaussian process, from features of its columns."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Protocol

import numpy as np
from scipy.linalg import cholesky, solve_triangular

from vcuda.errors import ConfigError
from vcuda.models.integrated_noise import NoiseIntegrated, average_evidences, check_amplitudes
from vcuda.models.scores import (
    centred_columns,
    check_max_parents,
    check_positive,
    checked_candidates,
    gains_by_sets,
    losses_by_sets,
    table_by_sets,
    table_steps,
)

# Trace of a column's kernel that its features may miss; what matters comes later, by the budgets of sets.
COLUMN_BUDGET = 1e-6
# Trace of a set's kernel that may be treated as independent noise. At n = 1,000 the scores of one, two and
# three parents were then within .03, .02 and .08 nats of the full kernel, with about 10, 90 and 350 features,
# for normal, correlated and heavy-tailed columns.
SET_BUDGET = (0.0, 0.02, 0.02)
LARGE_SET_BUDGET = 0.5
# Up to this many rows a set that needs more than n / 2 features is scored with its full kernel.
DENSE_ROWS = 4000
MAX_FEATURES = 1000
CACHE_BYTES = 128e6


def _kernel_features(column: np.ndarray, length_scale: float) -> np.ndarray:
    """Return orthogonal features (n, r), largest first, whose products are the kernel of a column.

    Pivoted Cholesky of exp(-(x - x')² / (2 length_scale²)): about 15 features for normal columns, one for
    each value of a discrete one, and one more for each distant outlier.
    """
    scaled = column / length_scale
    missing = np.ones(scaled.size)
    factor = np.empty((scaled.size, 16))
    rank = 0
    while missing.sum() > COLUMN_BUDGET * scaled.size and rank < scaled.size:
        pivot = int(np.argmax(missing))
        kernel = np.exp(-0.5 * (scaled - scaled[pivot]) ** 2)
        if rank == factor.shape[1]:
            factor = np.concatenate([factor, np.empty_like(factor)], axis=1)
        new = (kernel - factor[:, :rank] @ factor[pivot, :rank]) / np.sqrt(missing[pivot])
        factor[:, rank] = new
        missing = np.maximum(missing - new**2, 0.0)
        missing[pivot] = 0.0
        rank += 1
    factor = factor[:, :rank]
    _, rotation = np.linalg.eigh(factor.T @ factor)
    return factor @ rotation[:, ::-1]


def _largest(sizes: np.ndarray, budget: float) -> np.ndarray:
    """Return indices by falling size, without the smallest, whose sum stays below the budget."""
    order = np.argsort(sizes)
    dropped = int(np.searchsorted(np.cumsum(sizes[order]), budget))
    return order[dropped:][::-1]


class SetMemory(Protocol):
    """Scores (d,) of sets of parents from before the fit was resumed, and for the next time."""

    def recall(self, parents: tuple[int, ...]) -> np.ndarray | None: ...

    def keep(self, parents: tuple[int, ...], scores: np.ndarray) -> None: ...


@dataclass(frozen=True, eq=False)
class GaussianProcessScore:
    """Gaussian process evidence of sets of parents; one factorisation of a set serves all targets.

    The kernel of a set is the product of its columns' kernels, so products of their features are features of
    the set; the smallest are dropped, and the diagonal that they leave is added as independent noise (as in
    the fully independent training conditional). At n = 1,000 and three parents 50 random frequencies are 8 to
    22 nats too low, these features at most .08. Time O(n r²) a set for r features, r about 10, 80, 350 for 1,
    2, 3 parents; larger sets use the full kernel, n³ / 3 operations per amplitude, up to 4,000 rows, and
    beyond that their 1,000 largest features. Scores of sets are remembered. Those in ``ahead`` were computed before
    anybody asked for them, and count as known only from then on.
    """

    columns: np.ndarray
    features: tuple[np.ndarray, ...]
    noise: NoiseIntegrated
    amplitudes: tuple[float, ...]
    length_scale: float
    log_jacobian: float
    full_parents: int
    max_parents: int
    margin: float
    known: dict[tuple[int, ...], np.ndarray] = field(default_factory=dict)
    memory: SetMemory | None = None
    prefetch: dict[tuple[int, ...], np.ndarray] = field(default_factory=dict)

    @property
    def nodes(self) -> int:
        return int(self.columns.shape[1])

    def score(self, target: int, parents: Sequence[int]) -> float:
        chosen = checked_candidates(target, np.asarray(parents), self.nodes)
        return float(self.scores_of_set(chosen)[target])

    def scores_of_set(self, parents: Sequence[int] | np.ndarray) -> np.ndarray:
        """Return the scores (d,) of all targets with these parents; what stands at the parents themselves
        means nothing."""
        key = tuple(sorted(int(parent) for parent in parents))
        scores = self.known.get(key)
        if scores is None:
            scores = self._recalled(key)
            if len(self.known) * 8 * self.nodes > CACHE_BYTES:
                self.known.pop(next(iter(self.known)), None)
            self.known[key] = scores
        return scores

    def table(self, target: int, candidates: np.ndarray) -> np.ndarray:
        return table_by_sets(self, target, candidates, full=self.full_parents, margin=self.margin)

    def table_steps(
        self, ask: Callable[[int, Sequence[int]], float], target: int, chosen: np.ndarray
    ) -> Generator[list[list[int]], None, np.ndarray]:
        """Fill a table by scores that are asked for; yields the sets before it asks."""
        return table_steps(ask, target, chosen, full=self.full_parents, margin=self.margin, most=self.max_parents)

    def remember(self, candidates: Sequence[np.ndarray]) -> Iterator[float]:
        """Score all sets that tables of these candidates (one array for each table) hold in any case.

        Yields the share that is done after every set: this takes most of the time of the tables, and who
        calls may want to tell of it.
        """
        most = min(self.full_parents, self.max_parents)
        sets = {
            parents
            for some in candidates
            for size in range(most + 1)
            for parents in combinations(sorted(some.tolist()), size)
        }
        for done, parents in enumerate(sorted(sets, key=len), start=1):
            self.scores_of_set(parents)
            yield done / len(sets)

    def gains(self, target: int, parents: Sequence[int]) -> np.ndarray:
        return gains_by_sets(self, target, parents)

    def losses(self, target: int, parents: np.ndarray) -> np.ndarray:
        return losses_by_sets(self, target, parents)

    def _recalled(self, parents: tuple[int, ...]) -> np.ndarray:
        """Read the scores of a set from the memory, or evaluate them and keep them there."""
        if self.memory is None:
            return self._computed(parents)
        scores = self.memory.recall(parents)
        if scores is None:
            scores = self._computed(parents)
            self.memory.keep(parents, scores)
        return scores

    def _computed(self, parents: tuple[int, ...]) -> np.ndarray:
        scores = self.prefetch.pop(parents, None)
        return self.evaluate(parents) if scores is None else scores

    def foreseen(self, target: int, parents: Sequence[int]) -> float:
        """Return the score of a set that is known or was computed ahead, without remembering that it was asked for."""
        scores = self.peek(tuple(sorted(int(parent) for parent in parents)))
        assert scores is not None, "a search must yield the sets that it is about to ask for"
        return float(scores[target])

    def peek(self, parents: tuple[int, ...]) -> np.ndarray | None:
        """Return the scores (d,) of a set, in ascending order, if nothing need be computed for them."""
        scores = self.known.get(parents)
        if scores is None:
            scores = self.prefetch.get(parents)
        return self.memory.recall(parents) if scores is None and self.memory is not None else scores

    def evaluate(self, parents: tuple[int, ...]) -> np.ndarray:
        """Compute the scores (d,) of all targets with these parents, in ascending order, and remember nothing."""
        if not parents:
            squares = np.einsum("nd,nd->d", self.columns, self.columns)
            return self.noise.log_evidence(squares, np.log1p(float(self.noise.rows)) * np.ones(self.nodes))
        features = self._set_features(parents)
        if features is not None:
            return average_evidences([self._feature_evidence(features, amplitude) for amplitude in self.amplitudes])
        kernel = self._kernel(parents)
        return average_evidences([self._dense_evidence(kernel, amplitude) for amplitude in self.amplitudes])

    def _set_features(self, parents: tuple[int, ...]) -> np.ndarray | None:
        """Return the features (n, r) of a set, or None when the full kernel costs less."""
        rows = self.noise.rows
        budget = SET_BUDGET[len(parents)] if len(parents) < len(SET_BUDGET) else LARGE_SET_BUDGET
        product = self.features[parents[0]]
        product = product[:, _largest(np.einsum("nr,nr->r", product, product), budget / len(parents))]
        for parent in parents[1:]:
            other = self.features[parent]
            sizes = np.square(product).T @ np.square(other)
            kept = _largest(sizes.reshape(-1), budget / len(parents))
            if kept.size > rows // 2 and rows <= DENSE_ROWS:
                return None
            first, second = np.divmod(kept[:MAX_FEATURES], other.shape[1])
            product = product[:, first] * other[:, second]
        return product

    def _feature_evidence(self, features: np.ndarray, amplitude: float) -> np.ndarray:
        lacking = np.maximum(1.0 - np.einsum("nr,nr->n", features, features), 0.0)
        diagonal = 1.0 + amplitude * lacking
        weights = np.sqrt(1.0 / diagonal)[:, None]
        design = np.concatenate([np.sqrt(amplitude) * features, np.ones((len(features), 1))], axis=1) * weights
        targets = self.columns * weights
        gram = design.T @ design
        gram[np.diag_indices_from(gram)] += 1.0
        factor = cholesky(gram, lower=True, overwrite_a=True, check_finite=False)
        projected = solve_triangular(factor, design.T @ targets, lower=True, check_finite=False)
        residual = np.einsum("nd,nd->d", targets, targets) - np.einsum("rd,rd->d", projected, projected)
        log_det = 2 * np.log(np.diag(factor)).sum() + np.log(diagonal).sum()
        return self.noise.log_evidence(residual, log_det)

    def _kernel(self, parents: tuple[int, ...]) -> np.ndarray:
        """Return the full kernel (n, n) of a set in single precision, which costs the scores about .001
        nats."""
        # Products of small factors take a fifth of the time of exponentials.
        kernel = np.ones((self.noise.rows, self.noise.rows), dtype=np.float32)
        for parent in parents:
            factor = self.features[parent].astype(np.float32)
            kernel *= factor @ factor.T
        return kernel

    def _dense_evidence(self, kernel: np.ndarray, amplitude: float) -> np.ndarray:
        covariance = np.float32(amplitude) * kernel + np.float32(1.0)
        covariance[np.diag_indices_from(covariance)] = amplitude + 2.0
        # Symmetric, so that its transpose is the same matrix in the order that LAPACK overwrites without a
        # copy.
        factor = cholesky(covariance.T, lower=True, overwrite_a=True, check_finite=False)
        targets = self.columns.astype(np.float32)
        whitened = solve_triangular(factor, targets, lower=True, check_finite=False).astype(np.float64)
        log_det = 2 * np.log(np.diag(factor).astype(np.float64)).sum()
        return self.noise.log_evidence(np.einsum("nd,nd->d", whitened, whitened), log_det)


@dataclass(frozen=True)
class GaussianProcess:
    """A smooth function of all parents together, a Gaussian process, and noise of unknown variance in each
    node; free of units.

    Parameters
    ----------
    amplitudes
        Variances of the function in units of the noise variance, over which the evidence is averaged.
    length_scale
        Of the squared exponential kernel, in standard deviations of a parent.
    noise_shape, noise_scale
        Inverse-gamma prior of the noise variance of a standardised column.
    full_parents, max_parents, margin
        Tables hold all sets of up to ``full_parents`` parents, and larger ones up to ``max_parents`` if they
        add one parent to a set that is at most ``margin`` nats below the best; single sets of any size can be
        scored.
    """

    amplitudes: tuple[float, ...] = (0.5, 2.0)
    length_scale: float = 1.0
    noise_shape: float = 1.0
    noise_scale: float = 1.0
    full_parents: int = 3
    max_parents: int = 6
    margin: float = 10.0

    def __post_init__(self) -> None:
        check_amplitudes(self.amplitudes)
        check_positive(length_scale=self.length_scale, noise_shape=self.noise_shape, noise_scale=self.noise_scale)
        check_max_parents(self.max_parents)
        if self.full_parents < 1 or not self.margin >= 0:
            raise ConfigError(
                f"full_parents must be at least 1 and margin at least 0, got {self.full_parents} and {self.margin}"
            )

    def prepare(self, values: np.ndarray, *, scale: np.ndarray | None = None) -> GaussianProcessScore:
        """Standardise a table (n, d) and find the features of each column's kernel."""
        centred, units = centred_columns(values, scale)
        columns = centred / units
        return GaussianProcessScore(
            columns=columns,
            features=tuple(_kernel_features(column, self.length_scale) for column in columns.T),
            noise=NoiseIntegrated(len(columns), self.noise_shape, self.noise_scale),
            amplitudes=self.amplitudes,
            length_scale=self.length_scale,
            log_jacobian=-len(columns) * float(np.log(units).sum()),
            full_parents=self.full_parents,
            max_parents=self.max_parents,
            margin=self.margin,
        )
