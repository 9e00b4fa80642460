"""A sum of smooth functions of single parents: evidence from products of basis functions alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from vcuda.data.moments import Moments
from vcuda.data.scaling import Scaling, units_log_jacobian
from vcuda.data.streaming.statistics import FeatureStatistics
from vcuda.errors import ConfigError
from vcuda.models.additive.basis import ColumnBasis
from vcuda.models.additive.prediction import AdditivePredictive
from vcuda.models.checks import centred_columns, check_max_parents, check_positive
from vcuda.models.integrated_noise import NoiseIntegrated, average_evidences, check_amplitudes
from vcuda.models.protocol import LocalScore, PowerLaw, ScoreSpec
from vcuda.models.regressions import Evidence, Regressions
from vcuda.models.sets import checked_candidates, schur_tables, set_sizes, sets_of

COSTS: Mapping[str, PowerLaw] = {
    "orders": PowerLaw(4.4, 0.022, 1.0, 3.2e-4, 0.54, 1.8e-4, 1.0),
    "variational": PowerLaw(12.0, 2.8e-5, 3.0, 0.0, 0.68, 8.5e-4, 1.0),
}
# Candidates whose subsets are eliminated side by side when all tables are made at once: 2**12 matrices stay
# in the cache, and rows of that length keep NumPy busy. With 9 it took 1.7 times as long.
SIDE_BY_SIDE = 12


@dataclass(frozen=True, eq=False)
class AdditiveBasisScore(LocalScore):
    """Evidence of sums of smooth functions of the parents; it needs of the table only products of features.

    Attributes
    ----------
    gram : (d * m, d * m)
        Products of the centred features, m for each column.
    products : (d * m, d)
        Products of the features with the standardised columns.
    squares : (d,)
        Sums of squares of the standardised columns.
    block : int
        m, features for each column.
    bases : ColumnBasis
        The functions behind the features, for rows to come.
    """

    gram: np.ndarray
    products: np.ndarray
    squares: np.ndarray
    block: int
    bases: ColumnBasis
    noise: NoiseIntegrated
    amplitudes: tuple[float, ...]
    log_jacobian: float
    max_parents: int | None

    makes_all_tables = True
    costs = COSTS

    @property
    def nodes(self) -> int:
        return int(self.squares.size)

    @property
    def rows(self) -> int:
        return self.noise.rows

    def table_seconds(self) -> float:
        work = self.block**2 * self.nodes + 6 * self.block**3
        return 2.8e-9 * len(self.amplitudes) * work * sets_of(self.nodes)

    def predictive_in(self, units: Scaling) -> AdditivePredictive:
        return AdditivePredictive(
            self.gram, self.products, self.squares, self.bases, units, self.noise, self.amplitudes
        )

    def regressions(self) -> Regressions:
        # Single precision is enough, as all columns are standardised.
        single, sizes = np.float32, self.nodes + 1
        amplitudes, noise = np.asarray(self.amplitudes)[:, None, None], self.noise
        power = noise.shape + 0.5 * noise.rows
        constant = noise.log_evidence(np.asarray(0.0), np.log1p(noise.rows)) + power * np.log(2 * noise.scale)
        gram = (amplitudes * self.gram).astype(single)
        blocks = gram.reshape(-1, self.nodes, self.block, self.nodes, self.block)
        return Regressions(
            gram[:, None],
            np.einsum("aipiq->apqi", blocks)[:, None],
            (np.sqrt(amplitudes) * self.products).astype(single)[:, None],
            self.squares.astype(single)[None],
            single(1.0),
            None,
            Evidence(
                np.full((1, sizes), constant, single),
                np.full((1, sizes), power, single),
                single(2 * noise.scale),
                None,
            ),
            np.zeros(self.nodes, dtype=np.int32),
            single(noise.rows * self.nodes),
        )

    def _feature_indices(self, parents: np.ndarray) -> np.ndarray:
        return (parents[:, None] * self.block + np.arange(self.block)).reshape(-1)

    def score(self, target: int, parents: Sequence[int]) -> float:
        chosen = checked_candidates(target, np.asarray(parents), self.nodes)
        where = self._feature_indices(chosen)
        amplitudes = np.asarray(self.amplitudes)[:, None, None]
        factor = np.linalg.cholesky(amplitudes * self.gram[np.ix_(where, where)] + np.eye(where.size))
        solved = np.linalg.solve(factor, np.sqrt(amplitudes) * self.products[where, target, None])[..., 0]
        residuals = self.squares[target] - (solved**2).sum(axis=1)
        return float(average_evidences(self.noise.log_evidence(residuals, self._log_dets(factor))))

    def _log_dets(self, factors: np.ndarray) -> np.ndarray:
        """Return the log determinants (a,) of fitted values from the factors (a, m, m) of their features."""
        return 2 * np.log(np.einsum("amm->am", factors)).sum(axis=1) + np.log1p(self.noise.rows)

    def table(self, target: int, candidates: np.ndarray) -> np.ndarray:
        chosen = checked_candidates(target, candidates, self.nodes)
        where = self._feature_indices(chosen)
        joint = np.empty((where.size + 1, where.size + 1))
        evidences = []
        for amplitude in self.amplitudes:
            joint[:-1, :-1] = amplitude * self.gram[np.ix_(where, where)] + np.eye(where.size)
            joint[-1, :-1] = joint[:-1, -1] = np.sqrt(amplitude) * self.products[where, target]
            joint[-1, -1] = self.squares[target]
            residual, log_det = schur_tables(joint, block=self.block)
            evidences.append(self.noise.log_evidence(residual, log_det + np.log1p(self.noise.rows)))
        scores = average_evidences(evidences)
        if self.max_parents is not None:
            scores[set_sizes(chosen.size) > self.max_parents] = -np.inf
        return scores

    def all_tables(
        self,
        targets: np.ndarray,
        candidates: Sequence[np.ndarray],
        *,
        threads: int,
        on_progress: Callable[[float], None],
    ) -> np.ndarray:
        """Return the tables (d, 2**(d - 1)) of all targets, each with all other columns as candidates.

        No set is left out. One elimination serves all targets: about 4,000 operations for each of the 2**d
        sets and each amplitude, with 6 features a column and 20 columns, a fifth of the work of d single
        tables. For every subset of the columns with the highest bits there remains a problem of 2**12 sets
        whose matrices fit into the cache. ``on_progress`` hears the share that is
        done.
        """
        tables = np.empty((self.nodes, 1 << (self.nodes - 1)))
        low = min(self.nodes, SIDE_BY_SIDE)

        def fill(high: int) -> None:
            start = high << low
            taken = np.flatnonzero(start >> np.arange(self.nodes) & 1)
            evidences = []
            for amplitude in self.amplitudes:
                residual, log_det = self._regress_on_subsets(amplitude, taken, low)
                evidences.append(self.noise.log_evidence(residual, log_det + np.log1p(self.noise.rows)))
            scores = average_evidences(evidences)
            if self.max_parents is not None:
                scores[:, np.bitwise_count(start + np.arange(1 << low)) > self.max_parents] = -np.inf
            for node, values in enumerate(scores):
                if node < low:
                    half = 1 << (low - 1)
                    place = high * half
                    tables[node, place : place + half] = values.reshape(-1, 2, 1 << node)[:, 0].reshape(-1)
                elif not start >> node & 1:
                    place = (start & ((1 << node) - 1)) | (start >> (node + 1) << node)
                    tables[node, place : place + values.size] = values

        count = 1 << (self.nodes - low)
        with ThreadPoolExecutor(threads) as pool:
            try:
                for done, _ in enumerate(pool.map(fill, range(count)), start=1):
                    on_progress(done / count)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        return tables

    def _regress_on_subsets(self, amplitude: float, taken: np.ndarray, low: int) -> tuple[np.ndarray, np.ndarray]:
        """Regress every column on the columns ``taken`` together with every subset of the first ``low`` ones.

        Returns residuals (d, 2**low) and log determinants (2**low,); residuals of columns inside their own
        set mean nothing.
        """
        own, free = self._feature_indices(taken), np.arange(low * self.block)
        scaled, right = amplitude * self.gram, np.sqrt(amplitude) * self.products
        factor = np.linalg.cholesky(scaled[np.ix_(own, own)] + np.eye(own.size))
        solved = np.linalg.solve(factor, np.concatenate([scaled[np.ix_(own, free)], right[own]], axis=1))
        inner, outer = solved[:, : free.size], solved[:, free.size :]
        # Subsets go on the last axis, as in ``schur_tables``.
        matrices = (scaled[np.ix_(free, free)] + np.eye(free.size) - inner.T @ inner)[..., None]
        products = (right[free] - inner.T @ outer)[..., None]
        residuals = (self.squares - np.einsum("kd,kd->d", outer, outer))[:, None]
        log_dets = np.array([2 * np.log(np.diag(factor)).sum()])
        for _ in range(low):
            gram, cross, left, gained = matrices, products, residuals, log_dets
            for _ in range(self.block):
                pivot, row, target = gram[0, 0], gram[0, 1:], cross[0]
                share = target / pivot
                left = left - target * share
                cross = cross[1:] - row[:, None] * share[None]
                gram = gram[1:, 1:] - row[:, None] * (row / pivot)[None]
                gained = gained + np.log(pivot)
            matrices = np.concatenate([matrices[self.block :, self.block :], gram], axis=-1)
            products = np.concatenate([products[self.block :], cross], axis=-1)
            residuals = np.concatenate([residuals, left], axis=-1)
            log_dets = np.concatenate([log_dets, gained])
        return residuals, log_dets

    def gains(self, target: int, parents: Sequence[int]) -> np.ndarray:
        chosen = checked_candidates(target, np.asarray(parents), self.nodes)
        where, nodes, block = self._feature_indices(chosen), self.nodes, self.block
        amplitudes = np.asarray(self.amplitudes)[:, None, None]
        factor = np.linalg.cholesky(amplitudes * self.gram[np.ix_(where, where)] + np.eye(where.size))
        rows = np.linalg.solve(factor, amplitudes * self.gram[where])
        column = np.linalg.solve(factor, np.sqrt(amplitudes) * self.products[where, target, None])
        residuals = self.squares[target] - (column**2).sum(axis=(1, 2))
        log_dets = self._log_dets(factor)
        # What is left of each column's features beside the parents, and of their products with the target.
        parts = rows.reshape(len(amplitudes), where.size, nodes, block).transpose(0, 2, 1, 3)
        pivots = amplitudes[..., None] * np.einsum("ipiq->ipq", self.gram.reshape(nodes, block, nodes, block))
        pivots += np.eye(block) - parts.swapaxes(2, 3) @ parts
        covariance = np.sqrt(amplitudes) * self.products[:, target, None] - rows.swapaxes(1, 2) @ column
        factors = np.linalg.cholesky(pivots)
        explained = (np.linalg.solve(factors, covariance.reshape(-1, nodes, block, 1)) ** 2).sum(axis=(2, 3))
        wider = log_dets[:, None] + 2 * np.log(np.einsum("aipp->aip", factors)).sum(axis=2)
        excluded = np.append(chosen, target)
        explained[:, excluded], wider[:, excluded] = 0.0, log_dets[:, None]
        after = self.noise.log_evidence(residuals[:, None] - explained, wider)
        gained = average_evidences(after) - average_evidences(self.noise.log_evidence(residuals, log_dets))
        gained[excluded] = -np.inf
        return gained


@dataclass(frozen=True)
class AdditiveBasis(ScoreSpec):
    """A sum of smooth functions of single parents, and noise of unknown variance in each node; free of units
    and cheap.

    Each parent has the ``features`` leading functions of a squared exponential kernel at ``points`` quantiles
    of its column; their weights are N(0, a sigma2).

    Parameters
    ----------
    features
        m, functions for each parent.
    points
        Quantiles at which the kernel is taken.
    amplitudes
        Weight variances in units of the noise variance, over which the evidence is averaged.
    noise_shape, noise_scale
        Inverse-gamma prior of the noise variance of a standardised column.
    max_parents
        Largest number of parents, or None.
    """

    features: int = 6
    points: int = 32
    amplitudes: tuple[float, ...] = (0.5, 2.0)
    noise_shape: float = 1.0
    noise_scale: float = 1.0
    max_parents: int | None = None
    streams: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_amplitudes(self.amplitudes)
        check_positive(noise_shape=self.noise_shape, noise_scale=self.noise_scale)
        check_max_parents(self.max_parents)
        if not 1 <= self.features <= self.points:
            raise ConfigError(f"features must lie between 1 and points ({self.points}), got {self.features}")

    def prepare(
        self, values: np.ndarray, *, scale: np.ndarray | None = None, bases: ColumnBasis | None = None
    ) -> AdditiveBasisScore:
        """Standardise a table (n, d), expand each column in its basis, and reduce both to products.

        ``bases`` are those of all columns, if they are already chosen.
        """
        centred, units = centred_columns(values, scale)
        columns = centred / units
        expanded = [
            self.expand(column, None if bases is None else bases.of(node)) for node, column in enumerate(columns.T)
        ]
        design = np.concatenate([features for _, features in expanded], axis=1)
        return AdditiveBasisScore(
            gram=design.T @ design,
            products=design.T @ columns,
            squares=np.einsum("nd,nd->d", columns, columns),
            block=self.features,
            bases=ColumnBasis(*(np.stack(parts) for parts in zip(*(basis for basis, _ in expanded), strict=True))),
            noise=NoiseIntegrated(len(columns), self.noise_shape, self.noise_scale),
            amplitudes=self.amplitudes,
            log_jacobian=units_log_jacobian(len(columns), units),
            max_parents=self.max_parents,
        )

    def basis(self, column: np.ndarray) -> np.ndarray:
        """Return the centred basis functions (n, m) at the values of a standardised column (n,)."""
        return self.expand(column)[1]

    def expand(self, column: np.ndarray, bare: ColumnBasis | None = None) -> tuple[ColumnBasis, np.ndarray]:
        """Centre the basis of a standardised column (n,), chosen unless given, and return it with its values there
        (n, m)."""
        bare = self.choose(column) if bare is None else bare
        expanded = bare.at(column)
        means = expanded.mean(axis=0)
        return bare._replace(means=means), expanded - means

    def choose(self, column: np.ndarray) -> ColumnBasis:
        """Choose the functions of a standardised column (n,), or of a sample of it; they are not centred yet."""
        anchors = np.quantile(column, (np.arange(self.points) + 0.5) / self.points)
        values, vectors = np.linalg.eigh(np.exp(-0.5 * (anchors[:, None] - anchors) ** 2))
        leading, functions = values[::-1][: self.features], vectors[:, ::-1][:, : self.features]
        # A column of few distinct values has fewer functions than asked for; what rounding leaves of the
        # others is dropped.
        real = leading > 1e-8 * leading[0]
        weights = np.where(real, 1.0 / np.sqrt(np.where(real, leading, 1.0)), 0.0)
        return ColumnBasis(anchors, functions * weights, np.zeros(self.features))

    def prepare_parts(
        self, values: np.ndarray, rows: Sequence[np.ndarray], *, scale: np.ndarray, shifts: np.ndarray
    ) -> tuple[LocalScore, list[LocalScore]]:
        # The same functions of a cause for all that it may cause, wherever they were chosen.
        pooled = self.prepare(values, scale=scale)
        bare = pooled.bases._replace(means=np.zeros_like(pooled.bases.means))
        return pooled, [
            self.prepare(values[some], scale=scale, bases=bare.shifted(shift))
            for some, shift in zip(rows, shifts, strict=True)
        ]

    def features_of(self, sample: np.ndarray, *, zero: np.ndarray) -> ColumnBasis:
        chosen = [self.choose(column) for column in sample.T]
        return ColumnBasis(*(np.stack(parts) for parts in zip(*chosen, strict=True)))

    def from_statistics(
        self, moments: Moments, features: FeatureStatistics | None, functions: Any, *, scale: np.ndarray
    ) -> AdditiveBasisScore:
        """The score from products of features; ``functions`` are those of all d columns, not centred."""
        assert features is not None
        nodes = len(functions.anchors)
        return AdditiveBasisScore(
            gram=features.gram,
            products=features.products,
            squares=features.squares,
            block=self.features,
            bases=functions._replace(means=features.means.reshape(nodes, self.features)),
            noise=NoiseIntegrated(features.rows, self.noise_shape, self.noise_scale),
            amplitudes=self.amplitudes,
            log_jacobian=units_log_jacobian(features.rows, scale),
            max_parents=self.max_parents,
        )
