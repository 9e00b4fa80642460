"""Linear scores: weights integrated out, from products of the columns alone.

All models share one treatment of the intercept: normal around the column's mean, with the variance of the
noise. It costs ``log(1 + n) / 2`` a node, whatever the parents.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy.special import gammaln

from vcuda.data.messages import shortened
from vcuda.data.moments import Moments
from vcuda.data.scaling import Scaling, units_log_jacobian
from vcuda.data.streaming.statistics import FeatureStatistics
from vcuda.errors import ConfigError, DataError
from vcuda.models.checks import centred_columns, check_max_parents, check_positive
from vcuda.models.linear.prediction import LinearPredictive
from vcuda.models.linear.top_down import likely_noise, noise_by_pivots, top_down_order
from vcuda.models.prediction import Predictive
from vcuda.models.protocol import LocalScore, Nuisance, PowerLaw, RoundingError, ScoreSpec
from vcuda.models.regressions import Evidence, Regressions
from vcuda.models.sets import checked_candidates, schur_tables, set_sizes

if TYPE_CHECKING:
    from vcuda.data.dataset import Dataset
    from vcuda.data.streaming import StreamedTable

LOG_TWO_PI = float(np.log(2 * np.pi))
# Equal noise has one unit for all columns. A column may vary so many units: fourth powers of that, which products of
# the Gram matrix are, stay finite in double precision.
LARGEST_SPREAD = 1e60
# Scores that rounding may change by more nats than this say nothing.
MOST_ROUNDING = 1.0
EQUAL_COSTS: Mapping[str, PowerLaw] = {
    "orders": PowerLaw(2.1, 2.9e-7, 2.18, 0.0032, 0.51, 4.3e-6, 1.49),
    "variational": PowerLaw(8.2, 8.0e-5, 2.35, 0.0, 0.64, 1.0e-4, 1.18),
}
UNEQUAL_COSTS: Mapping[str, PowerLaw] = {
    "orders": PowerLaw(1.4, 0.0, 1.0, 0.0084, 0.58, 1.3e-8, 2.45, rows=0.7),
    "variational": PowerLaw(10.0, 1.0e-3, 2.17, 0.0, 0.63, 8.5e-6, 1.67),
}


@dataclass(frozen=True, eq=False)
class GramScore(LocalScore):
    """A linear score: it needs of the table only its centred Gram matrix.

    Attributes
    ----------
    gram : (d, d)
        Products of the centred columns, in the units of the score.
    rows : int
        Number of rows n.
    ridge, target_ridge : float
        What is added to the diagonal for a parent and for the target.
    log_jacobian, max_parents
        See :class:`LocalScore`.
    """

    gram: np.ndarray
    rows: int
    ridge: float
    target_ridge: float
    log_jacobian: float
    max_parents: int | None

    linear = True
    cheap_tables = True

    @property
    def nodes(self) -> int:
        return int(self.gram.shape[0])

    def table_seconds(self) -> float:
        # The recursion is a small part of the sums over sets.
        return 0.0

    def local(self, residual: np.ndarray, log_det: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        """Turn regressions into scores, elementwise.

        ``residual`` is the quadratic form of the target given the parents (target's ridge included),
        ``log_det`` the log determinant of the parents' regularised Gram matrix divided by that of the ridge
        alone, ``sizes`` the number of parents.
        """
        raise NotImplementedError

    def score(self, target: int, parents: Sequence[int]) -> float:
        chosen = checked_candidates(target, np.asarray(parents), self.nodes)
        factor = np.linalg.cholesky(self.gram[np.ix_(chosen, chosen)] + self.ridge * np.eye(chosen.size))
        projected = np.linalg.solve(factor, self.gram[chosen, target])
        residual = self.gram[target, target] + self.target_ridge - projected @ projected
        log_det = 2 * np.log(np.diag(factor)).sum() - chosen.size * np.log(self.ridge)
        return float(self.local(np.asarray(residual), np.asarray(log_det), np.asarray(chosen.size)))

    def table(self, target: int, candidates: np.ndarray) -> np.ndarray:
        chosen = checked_candidates(target, candidates, self.nodes)
        return self.tables([target], chosen[None], np.zeros((1, 0), dtype=np.int64))[0]

    def tables(self, targets: Sequence[int], free: np.ndarray, fixed: np.ndarray) -> np.ndarray:
        width, certain = free.shape[1], fixed.shape[1]
        columns = np.concatenate([fixed, free, np.asarray(targets)[:, None]], axis=1).astype(np.int64)
        added = np.append(np.full(certain + width, self.ridge), self.target_ridge)
        gram = self.gram[columns[:, :, None], columns[:, None, :]] + np.diag(added)
        log_fixed = 0.0
        if certain:
            inner, cross = gram[:, :certain, :certain], gram[:, :certain, certain:]
            log_fixed = np.linalg.slogdet(inner)[1][:, None] - certain * np.log(self.ridge)
            gram = gram[:, certain:, certain:] - np.swapaxes(cross, 1, 2) @ np.linalg.solve(inner, cross)
        residual, log_det = schur_tables(gram)
        sizes = set_sizes(width)
        scores = self.local(residual, log_det - sizes * np.log(self.ridge) + log_fixed, sizes + certain)
        if self.max_parents is not None:
            scores[:, sizes + certain > max(self.max_parents, certain)] = -np.inf
        return scores

    def gains(self, target: int, parents: Sequence[int]) -> np.ndarray:
        chosen = checked_candidates(target, np.asarray(parents), self.nodes)
        factor = np.linalg.cholesky(self.gram[np.ix_(chosen, chosen)] + self.ridge * np.eye(chosen.size))
        projected = np.linalg.solve(factor, self.gram[chosen])
        residual = self.gram[target, target] + self.target_ridge - projected[:, target] @ projected[:, target]
        covariance = self.gram[:, target] - projected.T @ projected[:, target]
        pivots = np.diag(self.gram) + self.ridge - np.einsum("kd,kd->d", projected, projected)
        log_det = 2 * np.log(np.diag(factor)).sum() - chosen.size * np.log(self.ridge)
        excluded = np.append(chosen, target)
        pivots[excluded], covariance[excluded] = self.ridge, 0.0
        size = np.asarray(chosen.size)
        before = self.local(np.asarray(residual), np.asarray(log_det), size)
        after = self.local(residual - covariance**2 / pivots, log_det + np.log(pivots / self.ridge), size + 1)
        gained = after - before
        gained[excluded] = -np.inf
        return gained

    def losses(self, target: int, parents: np.ndarray) -> np.ndarray:
        inverse = np.linalg.inv(self.gram[np.ix_(parents, parents)] + self.ridge * np.eye(parents.size))
        weights = inverse @ self.gram[parents, target]
        residual = self.gram[target, target] + self.target_ridge - weights @ self.gram[parents, target]
        spread = np.diag(inverse)
        log_det = -np.linalg.slogdet(inverse)[1] - parents.size * np.log(self.ridge) if parents.size else 0.0
        size = np.asarray(parents.size)
        whole = self.local(np.asarray(residual), np.asarray(log_det), size)
        # Without a parent the quadratic form rises by w²/(M^-1), and the determinant loses that pivot.
        without = self.local(residual + weights**2 / spread, log_det + np.log(spread) + np.log(self.ridge), size - 1)
        return np.asarray(whole - without)

    def _regressions(self, squares: np.ndarray, evidence: Evidence) -> Regressions:
        # Double precision: columns of very different variance would lose digits otherwise.
        alone, own = self.gram[None, None], np.diag(self.gram)[None, None, None, None]
        part_of, cells = np.zeros(self.nodes, dtype=np.int32), float(self.rows * self.nodes)
        return Regressions(alone, own, alone, squares[None], self.ridge, None, evidence, part_of, cells)


@dataclass(frozen=True, eq=False)
class EqualNoiseScore(GramScore):
    """Linear score with one known noise variance for all nodes (in the units of ``gram``).

    ``noise_prior`` is shape and scale of the inverse gamma that the variance had before it was set to this value; None
    where it was known.
    """

    variance: float
    noise_prior: tuple[float, float] | None = None

    tells_direction = True
    costs = EQUAL_COSTS

    @property
    def known_variance(self) -> float:
        return self.variance

    def start_order(self, log_odds: np.ndarray, *, go_on: Callable[[], bool] = lambda: True) -> np.ndarray:
        return top_down_order(self, log_odds, go_on=go_on)

    def regressions(self) -> Regressions:
        # Under unit variance, so that the variance can be put in later.
        constant = -0.5 * self.rows * np.log(2 * np.pi) - 0.5 * np.log1p(self.rows)
        constants = np.full((1, self.nodes + 1), constant)
        return self._regressions(np.diag(self.gram), Evidence(constants, None, None, np.array([float(self.rows)])))

    def units(self, data: Dataset | StreamedTable) -> Scaling:
        # The Gram matrix is in a unit common to all columns.
        unit = data.scale[0] * np.sqrt(data.n / self.gram[0, 0])
        return Scaling(data.mean, np.full(data.d, unit))

    def predictive_in(self, units: Scaling) -> LinearPredictive:
        return LinearPredictive(
            self.gram, units, self.rows, self.ridge, variance=self.variance, noise_prior=self.noise_prior
        )

    def local(self, residual: np.ndarray, log_det: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        constant = 0.5 * self.rows * (LOG_TWO_PI + np.log(self.variance)) + 0.5 * np.log1p(self.rows)
        return -0.5 * residual / self.variance - 0.5 * log_det - constant


@dataclass(frozen=True, eq=False)
class BGeScore(GramScore):
    """BGe score on standardised columns; ``excess`` is alpha_w - d, ``mean_rows`` is alpha_mu."""

    excess: float
    mean_rows: float

    score_equivalent = True
    costs = UNEQUAL_COSTS

    def regressions(self) -> Regressions:
        sizes = np.arange(self.nodes + 1)
        nothing, one = np.zeros(sizes.size), np.ones(sizes.size)
        constants = self.local(one, nothing, sizes)
        powers = constants - self.local(math.e * one, nothing, sizes)
        squares = np.diag(self.gram) + self.target_ridge
        return self._regressions(squares, Evidence(constants[None], powers[None], 0.0, None))

    def without_last_digits(self) -> LocalScore:
        return replace(self, gram=np.round(self.gram, 7))

    def predictive_in(self, units: Scaling) -> LinearPredictive:
        return LinearPredictive(self.gram, units, self.rows, self.ridge, excess=self.excess, mean_rows=self.mean_rows)

    def local(self, residual: np.ndarray, log_det: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        prior = 0.5 * (self.excess + sizes + 1)
        posterior = prior + 0.5 * self.rows
        constant = 0.5 * np.log(self.mean_rows / (self.rows + self.mean_rows)) - 0.5 * self.rows * np.log(np.pi)
        return (
            constant
            + gammaln(posterior)
            - gammaln(prior)
            + prior * np.log(self.ridge)
            - posterior * np.log(residual)
            - 0.5 * log_det
        )


@dataclass(frozen=True, eq=False)
class SharedNoise(LocalScore):
    """Linear score whose one noise variance is unknown: no sum over nodes until a variance is given.

    ``at(variance)`` gives the decomposable score, ``log_prior(variance)`` the log density of the
    inverse-gamma prior; an engine averages over variances by evidence.
    Variances are in units of the smallest column variance, which is where a start belongs: some node has no
    parents, and its variance is that of the noise.

    ``known`` is the score of all rows; ``by_parts``, where experiments set some cells, that of the free ones.
    """

    known: EqualNoiseScore
    weight_variance: float
    shape: float
    scale: float
    by_parts: LocalScore | None = None

    linear = True
    cheap_tables = True
    tells_direction = True
    costs = EQUAL_COSTS

    @property
    def nodes(self) -> int:
        return self.known.nodes

    @property
    def rows(self) -> int:
        return self.known.rows

    @property
    def log_jacobian(self) -> float:
        return self._scores.log_jacobian

    @property
    def max_parents(self) -> int | None:
        return self.known.max_parents

    @property
    def nuisance(self) -> Nuisance:
        return self

    @property
    def _scores(self) -> LocalScore:
        return self.known if self.by_parts is None else self.by_parts

    @property
    def cells(self) -> int:
        """How many cells the noise is in."""
        return int(self._scores.free_rows.sum())

    @property
    def prior(self) -> tuple[float, float]:
        return self.shape, self.scale

    def at(self, value: float) -> Any:
        """Return the score under this noise variance (in units of the smallest column variance).

        Raises a RoundingError where the columns vary so much that rounding leaves nothing of it.
        """
        # A value that was clipped there went through a logarithm and back.
        if value < (1 - 1e-9) * self.least():
            raise self.rounded_away()
        return self._at(float(value))

    def _at(self, variance: float) -> Any:
        ridge = variance / self.weight_variance
        return self._scores.mapped(lambda part: replace(part, variance=variance, ridge=ridge, noise_prior=self.prior))

    def log_prior(self, value: float) -> float:
        """Return the log density of the inverse-gamma prior of the variance."""
        normaliser = self.shape * np.log(self.scale) - gammaln(self.shape)
        return float(normaliser - (self.shape + 1) * np.log(value) - self.scale / value)

    def given_nuisance(self) -> LocalScore:
        return self.known

    def over_parts(self, by_parts: LocalScore) -> LocalScore:
        return replace(self, by_parts=by_parts)

    def guess(self) -> float:
        return noise_by_pivots(self.known.gram, self.rows)

    def quick_guess(self) -> float:
        return likely_noise(np.diag(self.known.gram) / self.rows, self.rows)

    def least(self) -> float:
        """Sums of squares in units of the noise are differences of products of columns, and the largest of these is
        rounded by its 2**-52nd part. With columns of like scales that is far below any noise."""
        largest = float(np.max(np.diag(self.known.gram)))
        if not np.isfinite(largest):
            raise self.rounded_away()
        return float(np.finfo(np.float64).eps * largest / MOST_ROUNDING)

    def rounded_away(self) -> RoundingError:
        largest = float(np.max(np.diag(self.known.gram)))
        spread = f"{np.sqrt(largest / self.rows):.0e}" if np.isfinite(largest) else "more than 1e+150"
        return RoundingError(
            f"equal noise cannot be computed for columns of so different scales: the largest varies {spread} times as "
            "much as the smallest; use unequal noise, standardise, or leave out columns that repeat others"
        )

    def start_order(self, log_odds: np.ndarray, *, go_on: Callable[[], bool] = lambda: True) -> np.ndarray | None:
        order: np.ndarray | None = self.at(1.0).start_order(log_odds, go_on=go_on)
        return order

    def regressions(self) -> Regressions | None:
        # Some node has no parents, so that the noise is about the smallest variance, which is the unit.
        if self.least() > 1:
            raise self.rounded_away()
        found = self._scores.regressions()
        return None if found is None else found._replace(weight_variance=self.weight_variance)

    def predictive(
        self, data: Dataset | StreamedTable, *, scaling: Scaling | None = None, value: float | None = None
    ) -> Predictive | None:
        if value is None:
            raise ConfigError("the noise variance is needed to predict with a score whose shared noise is unknown")
        found: Predictive | None = self._at(value).predictive(data, scaling=scaling)
        return found


@dataclass(frozen=True)
class EqualNoise(ScoreSpec):
    """Linear effects, and noise of one and the same variance in every node, on the columns as they are.

    Weights are N(0, ``weight_variance``). All columns are taken to be in one unit, since equal noise means
    nothing otherwise; a weight is then free of units, and the choice of the unit, the same factor for all
    columns, changes nothing. Rescaling single columns changes the model: use :class:`BGe` where units are
    arbitrary.

    Parameters
    ----------
    variance
        The noise variance in the user's units squared, or None when it is unknown; it is then averaged over,
        with an inverse-gamma prior (``noise_shape``, ``noise_scale``) in units of the smallest column
        variance.
    weight_variance
        Prior variance of a weight.
    max_parents
        Largest number of parents, or None.
    """

    variance: float | None = None
    weight_variance: float = 1.0
    noise_shape: float = 1.0
    noise_scale: float = 1.0
    max_parents: int | None = None
    depends_on_scale: ClassVar[bool] = True
    streams: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_positive(weight_variance=self.weight_variance, noise_shape=self.noise_shape, noise_scale=self.noise_scale)
        if self.variance is not None:
            check_positive(variance=self.variance)
        check_max_parents(self.max_parents)

    def out_of_range(self, scale: np.ndarray) -> np.ndarray:
        unit = 1.0 if self.variance is not None else float(scale.min())
        return np.flatnonzero(scale > LARGEST_SPREAD * unit)

    def check_spreads(self, source: str, names: Sequence[str], scale: np.ndarray) -> None:
        if not self.out_of_range(scale).size:
            return
        least, largest = int(np.argmin(scale)), int(np.argmax(scale))
        beside = f", column {shortened(names[least])} by {scale[least]:.3g}" if self.variance is None else ""
        raise DataError(
            f"{source}: column {shortened(names[largest])} varies by {scale[largest]:.3g}{beside}, too much for one "
            "noise variance in all columns: give the columns in one unit, standardise them (standardise=True, "
            "--standardise), or take noise='unequal' (--noise unequal)."
        )

    def prepare(self, values: np.ndarray, *, scale: np.ndarray | None = None) -> EqualNoiseScore | SharedNoise:
        """Reduce a table (n, d) to its Gram matrix; with unknown variance the result needs ``at(variance)``
        first."""
        centred, units = centred_columns(values, scale)
        return self._prepared(centred.T @ centred, len(centred), units)

    def one_unit(self, free_scales: Sequence[float]) -> float:
        # The unit is what the noise is compared with, and how far a column was set says nothing of that.
        return 1.0 if self.variance is not None else float(min(free_scales, default=1.0))

    def from_statistics(
        self, moments: Moments, features: FeatureStatistics | None, functions: Any, *, scale: np.ndarray
    ) -> EqualNoiseScore | SharedNoise:
        return self._prepared(moments.gram, moments.rows, scale)

    def _prepared(self, gram: np.ndarray, rows: int, units: np.ndarray) -> EqualNoiseScore | SharedNoise:
        unit = 1.0 if self.variance is not None else float(units.min())
        variance = self.variance if self.variance is not None else 1.0
        # Of columns that differ by more than the floats span, products are infinite; what needs them refuses them.
        with np.errstate(over="ignore", divide="ignore"):
            in_units = gram / unit**2
        known = EqualNoiseScore(
            gram=in_units,
            rows=rows,
            ridge=variance / self.weight_variance,
            target_ridge=0.0,
            log_jacobian=units_log_jacobian(rows, np.full(len(gram), unit)),
            max_parents=self.max_parents,
            variance=variance,
        )
        if self.variance is not None:
            return known
        return SharedNoise(known, self.weight_variance, self.noise_shape, self.noise_scale)


@dataclass(frozen=True)
class BGe(ScoreSpec):
    """Linear effects and Gaussian noise of unknown, different variances; equal for Markov equivalent graphs,
    free of units.

    The normal-Wishart score of Geiger and Heckerman (corrected by Kuipers, Moffa and Heckerman, 2014) on
    standardised columns.

    Parameters
    ----------
    mean_rows
        alpha_mu: how many rows the prior of the means is worth.
    excess
        alpha_w - d, above 1: how many degrees of freedom the Wishart prior has beyond the number of nodes.
    max_parents
        Largest number of parents, or None.
    """

    mean_rows: float = 1.0
    excess: float = 2.0
    max_parents: int | None = None
    streams: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_positive(mean_rows=self.mean_rows, excess=self.excess)
        if self.excess <= 1:
            raise ConfigError(f"excess must be above 1, so that the prior has a mean; got {self.excess}")
        check_max_parents(self.max_parents)

    def prepare(self, values: np.ndarray, *, scale: np.ndarray | None = None) -> BGeScore:
        """Standardise a table (n, d) and reduce it to its Gram matrix."""
        centred, units = centred_columns(values, scale)
        standardised = centred / units
        return self._prepared(standardised.T @ standardised, len(centred), units)

    def from_statistics(
        self, moments: Moments, features: FeatureStatistics | None, functions: Any, *, scale: np.ndarray
    ) -> BGeScore:
        return self._prepared(moments.gram / np.outer(scale, scale), moments.rows, scale)

    def _prepared(self, gram: np.ndarray, rows: int, units: np.ndarray) -> BGeScore:
        ridge = self.mean_rows * (self.excess - 1) / (self.mean_rows + 1)
        return BGeScore(
            gram=gram,
            rows=rows,
            ridge=ridge,
            target_ridge=ridge,
            log_jacobian=units_log_jacobian(rows, units),
            max_parents=self.max_parents,
            excess=self.excess,
            mean_rows=self.mean_rows,
        )
