"""One column given one set of parents: what each description says of new rows, and mechanisms drawn from them.

The descriptions are averaged by their evidence. Where the posterior has a closed form (normal noise of constant spread)
it is exact: new rows are Student-t, and weights and variance are drawn from their distribution. The others are averaged
over draws from the normal distribution around the best weights, of which the evidence speaks too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import NamedTuple, Protocol, Self

import numpy as np
from scipy.special import betainc, logsumexp, ndtr, ndtri, pdtr, pdtrc

from vcuda.data.scaling import Scaling
from vcuda.models.gaussian_process import GaussianProcess, GaussianProcessPredictive
from vcuda.models.glm.laplace import Fitted
from vcuda.models.glm.likelihoods import Bernoulli, Likelihood, NegativeBinomial, Number, Ordered, Poisson, Softmax
from vcuda.models.integrated_noise import FeatureNode
from vcuda.models.mixed.columns import Column
from vcuda.models.mixed.evidence import (
    SMOOTH_BETA,
    STRAIGHT_BETA,
    ColumnEvidence,
    Description,
    Rows,
    Set,
    descriptions_of,
    prior_precision,
    shares_of,
)
from vcuda.models.mixed.mechanisms import (
    QUANTILES,
    Bounds,
    CodedMechanism,
    CountMechanism,
    LocationAndScale,
    MixedMechanism,
    Noise,
    NormalScoreMechanism,
    NumberMechanism,
)
from vcuda.models.prediction import Predicted, Tails, log_student, student_tails

# Draws of the weights that predictions are averaged over, each with its opposite.
DRAWS = 64
# Descriptions that are less probable than this given the table are left out.
LEAST_WEIGHT = 1e-4
# New rows at a time: draws times components times these are numbers.
BLOCK_ROWS = 1000
# Of weights of which the table says nothing: less than their prior.
LEAST_PRECISION = 0.25
# How far the log posterior may be, in the middle, from that of the normal approximation at its own draws.
TOLERATED = 1.0
# How far along a direction the posterior is looked at, in units of a normal draw.
RADII = np.array([0.003, 0.01, 0.02, 0.04, 0.07, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.4, 1.7])
LEAST_CHANCE = 1e-300
LOG_ROOT = 0.5 * np.log(2 * np.pi)
# Draws, levels and rows that are evaluated at once.
CHUNK = 4_000_000


class Inputs:
    """New parents (n, k) in the units of the score, as the features that a description takes."""

    def __init__(self, columns: Sequence[Column], values: np.ndarray) -> None:
        self.values, self._columns = values, columns
        self._expanded = [column.expand(values[:, place]) for place, column in enumerate(columns)]

    def design(self, smooth: bool, *, ranks: bool = False) -> np.ndarray:
        """Features (1 + p, n), a row of ones first; what is straight is so on the scale of ``ranks`` if asked."""
        ones = np.ones((1, len(self.values)))
        if ranks and not smooth:
            parts = [column.straight_by_ranks(self.values[:, k]) for k, column in enumerate(self._columns)]
        else:
            parts = [one.smooth if smooth else one.straight for one in self._expanded]
        return np.concatenate([ones, *parts])

    def predictors(self, smooth: bool, weights: np.ndarray) -> np.ndarray:
        """The predictors (B, q, n) of weights (B, q, w); those behind the features belong to zeros."""
        design = self.design(smooth)
        return np.matmul(weights[:, :, : len(design)], design)


class _Posterior(Protocol):
    """One description of a column, given the table."""

    def predict(self, inputs: Inputs, y: np.ndarray) -> Predicted:
        """Mean and log density of new rows (n,), in the units of the likelihood."""
        ...

    def tails(self, inputs: Inputs, y: np.ndarray) -> Tails:
        """Where new rows (n,) lie in their distribution, in the units of the likelihood."""
        ...

    def draw(self, rng: np.random.Generator, node: MixedNode) -> MixedMechanism: ...


@dataclass(frozen=True, eq=False)
class _Closed:
    """A number, or its normal scores, with normal noise of constant spread: weights normal around ``mean`` with
    covariance v (L L')^-1, v inverse gamma (``alpha``, ``beta``)."""

    how: Description
    factor: np.ndarray
    mean: np.ndarray
    alpha: float
    beta: float

    @classmethod
    def of(cls, how: Description, evidence: ColumnEvidence, own: Set) -> _Closed:
        features = evidence.rows.features(how.smooth, ranks=how.ranks)
        design = np.concatenate([np.ones((1, evidence.rows.count)), *(features[parent] for parent in own)])
        y = evidence.own.normal_scores.of_values(evidence.rows.values[:, evidence.target]) if how.ranks else evidence.y
        factor = np.linalg.cholesky(design @ design.T + np.eye(len(design)))
        half = np.linalg.solve(factor, design @ y)
        left = max(float(y @ y - half @ half), 1e-12)
        beta = (SMOOTH_BETA if how.smooth else STRAIGHT_BETA) + 0.5 * left
        alpha = float(evidence.alpha(how.smooth, [own])[0]) + 0.5 * evidence.rows.count
        return cls(how, factor, np.linalg.solve(factor.T, half), alpha, beta)

    def mean_and_spread(self, inputs: Inputs) -> tuple[np.ndarray, np.ndarray]:
        """The mean of new rows (n,), and their squared scale."""
        design = inputs.design(self.how.smooth, ranks=self.how.ranks)
        spread = 1.0 + (np.linalg.solve(self.factor, design) ** 2).sum(axis=0)
        return self.mean @ design, self.beta / self.alpha * spread

    def predict(self, inputs: Inputs, y: np.ndarray) -> Predicted:
        mean, spread = self.mean_and_spread(inputs)
        return Predicted(mean, log_student((y - mean) ** 2, spread, 2 * self.alpha))

    def tails(self, inputs: Inputs, y: np.ndarray) -> Tails:
        mean, spread = self.mean_and_spread(inputs)
        return student_tails(y - mean, spread, 2 * self.alpha)

    def location_and_scale(self, rng: np.random.Generator, node: MixedNode) -> LocationAndScale:
        """One draw."""
        noise = float(np.sqrt(self.beta / rng.gamma(self.alpha)))
        weights = self.mean + noise * np.linalg.solve(self.factor.T, rng.standard_normal(self.mean.size))

        def drawn(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            location = weights @ node.inputs(values).design(self.how.smooth, ranks=self.how.ranks)
            return location, np.full_like(location, noise)

        return drawn

    def draw(self, rng: np.random.Generator, node: MixedNode) -> MixedMechanism:
        return node.number(self.location_and_scale(rng, node), Noise())


@dataclass(frozen=True, eq=False)
class _Ranked:
    """A number whose normal scores are ``closed``; without causes it is as ``alone`` has it."""

    closed: _Closed
    column: Column
    alone: MixedNode

    def _scores(self, y: np.ndarray) -> np.ndarray:
        assert self.column.line is not None
        return self.column.normal_scores.of_values(self.column.line.undo(y))

    def predict(self, inputs: Inputs, y: np.ndarray) -> Predicted:
        assert self.column.line is not None
        scores, without = self._scores(y), np.zeros((y.size, 0))
        density = self.alone.predict(without, self.column.line.undo(y)).log_density - self.column.log_jacobian(1)
        density += self.closed.predict(inputs, scores).log_density + 0.5 * scores**2 + LOG_ROOT
        mean, spread = self.closed.mean_and_spread(inputs)
        points = self.column.normal_scores.to_values(mean + np.sqrt(spread) * ndtri(QUANTILES)[:, None])
        return Predicted(self.column.line.apply(points).mean(axis=0), density)

    def tails(self, inputs: Inputs, y: np.ndarray) -> Tails:
        return self.closed.tails(inputs, self._scores(y))

    def draw(self, rng: np.random.Generator, node: MixedNode) -> MixedMechanism:
        drawn = self.closed.location_and_scale(rng, node)
        return NormalScoreMechanism(drawn, self.column.normal_scores, node.bounds, node.logarithm)


@dataclass(frozen=True, eq=False)
class _Together:
    """A number as one function of all parents: a Gaussian process of their points, less ``shift``."""

    columns: tuple[Column, ...]
    shift: np.ndarray
    process: GaussianProcessPredictive

    def _scaled(self, values: np.ndarray) -> np.ndarray:
        """Parents (n, k) in the units of the process."""
        points = [column.points(values[:, place]) for place, column in enumerate(self.columns)]
        return np.concatenate(points, axis=1) - self.shift[1:]

    def _rows(self, inputs: Inputs, y: np.ndarray) -> np.ndarray:
        return np.concatenate([(y - self.shift[0])[:, None], self._scaled(inputs.values)], axis=1)

    def predict(self, inputs: Inputs, y: np.ndarray) -> Predicted:
        rows = self._rows(inputs, y)
        mean, log_density = self.process.column(0, np.arange(1, rows.shape[1]), rows)
        return Predicted(mean + self.shift[0], log_density)

    def tails(self, inputs: Inputs, y: np.ndarray) -> Tails:
        rows = self._rows(inputs, y)
        return self.process.tails(0, np.arange(1, rows.shape[1]), rows)

    @cached_property
    def _features(self) -> FeatureNode:
        """All draws share the factorised kernel, which costs far more than a draw."""
        return self.process.node(0, np.arange(1, self.shift.size))

    def draw(self, rng: np.random.Generator, node: MixedNode) -> MixedMechanism:
        drawn = self._features.draw(rng, None)

        def location_and_scale(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            location = drawn.function(self._scaled(values)) + self.shift[0]
            return location, np.full_like(location, drawn.noise)

        return node.number(location_and_scale, Noise())


class _Weights(NamedTuple):
    """Drawn weights (B, q, 1 + p) and shared numbers (B, m)."""

    weights: np.ndarray
    shared: np.ndarray


@dataclass(frozen=True, eq=False)
class _Laplace:
    """A number or a count: weights and shared numbers are normal around the best, or nearly so.

    Where a label has no yes, or hardly any row, the table says that the odds are low but not how low. The normal
    distribution around the best would allow high odds as well. Then its draws keep their directions, and how far they
    go is drawn from the posterior along each.

    Parameters
    ----------
    best
        (P,) the best weights of those that the likelihood has, and the shared numbers.
    free
        Which weights, of all (q, 1 + p) in a row, these are.
    root
        (P, P) turns standard normal numbers into distances from the best.
    pool
        Draws that were corrected; None where the normal ones will do.
    """

    smooth: bool
    likelihood: Likelihood
    best: np.ndarray
    free: np.ndarray
    root: np.ndarray
    shape: tuple[int, int]
    seed: tuple[int, ...]
    pool: _Weights | None = None

    @classmethod
    def of(
        cls,
        how: Description,
        evidence: ColumnEvidence,
        own: Set,
        likelihood: Likelihood,
        fitted: Fitted,
        seed: tuple[int, ...],
    ) -> Self:
        weights = fitted.weights[0]
        precision = prior_precision(how, likelihood, weights.shape[1]).reshape(-1)
        free = np.flatnonzero(np.isfinite(precision))
        best = np.concatenate([weights.reshape(-1)[free], fitted.shared[0]])
        sizes, vectors = np.linalg.eigh(fitted.precision[0])
        # Where the steps ended before a maximum, the curvature may be that of no hill.
        root = vectors / np.sqrt(np.maximum(sizes, LEAST_PRECISION))
        normal = cls(how.smooth, likelihood, best, free, root, (weights.shape[0], weights.shape[1]), seed)
        if isinstance(likelihood, Number):
            # Log densities of new rows change by .02 nats at 60 rows, and thousands of rows take seconds.
            return normal
        features = evidence.rows.features(how.smooth)
        design = np.concatenate([np.ones((1, evidence.rows.count)), *(features[parent] for parent in own)])

        def heights(numbers: np.ndarray) -> np.ndarray:
            """The log posterior density (B,), up to a constant, at standard normal numbers (B, P)."""
            weights, shared = normal.draws(numbers)
            prior = -0.5 * (weights.reshape(len(weights), -1)[:, free] ** 2) @ precision[free]
            return (
                normal.log_density(evidence.y, design, weights, shared).sum(axis=1)
                + prior
                + _log_prior(likelihood, shared)
            )

        numbers = normal.normal_numbers()
        lost = heights(np.zeros((1, best.size)))[0] - heights(numbers)
        if np.median(np.abs(lost - 0.5 * (numbers**2).sum(axis=1))) < TOLERATED:
            return normal
        return replace(normal, pool=normal.draws(_radial(numbers, heights, np.random.default_rng(seed))))

    def normal_numbers(self) -> np.ndarray:
        half = np.random.default_rng(self.seed).standard_normal((DRAWS // 2, self.best.size))
        return np.concatenate([half, -half])

    def draws(self, normal: np.ndarray) -> _Weights:
        """From standard normal numbers (B, P)."""
        theta = self.best + normal @ self.root.T
        weights = np.zeros((len(theta), self.shape[0] * self.shape[1]))
        weights[:, self.free] = theta[:, : self.free.size]
        return _Weights(weights.reshape(-1, *self.shape), theta[:, self.free.size :])

    def _many(self) -> _Weights:
        return self.draws(self.normal_numbers()) if self.pool is None else self.pool

    def log_density(self, y: np.ndarray, design: np.ndarray, weights: np.ndarray, shared: np.ndarray) -> np.ndarray:
        """Of rows (B, n) with features (1 + p, n), for B drawn weights; those behind the features belong to zeros."""
        found = np.empty((len(weights), y.size))
        levels = self.likelihood.predictors + self.likelihood.shared + 1
        most = max(1, CHUNK // (y.size * levels))
        for start in range(0, len(weights), most):
            part = slice(start, start + most)
            eta = np.matmul(weights[part, :, : len(design)], design)
            found[part] = self._log_density(y, eta, shared[part])
        return found

    def _log_density(self, y: np.ndarray, eta: np.ndarray, shared: np.ndarray) -> np.ndarray:
        """Of rows (B, n) with predictors (B, q, n)."""
        return self.likelihood.rows(y, eta, shared).value

    def predict(self, inputs: Inputs, y: np.ndarray) -> Predicted:
        weights, shared = self._many()
        every = self.log_density(y, inputs.design(self.smooth), weights, shared)
        eta = inputs.predictors(self.smooth, weights)
        return Predicted(self._means(eta, shared), logsumexp(every, axis=0) - np.log(len(every)))

    def tails(self, inputs: Inputs, y: np.ndarray) -> Tails:
        weights, shared = self._many()
        eta = inputs.predictors(self.smooth, weights)
        if isinstance(self.likelihood, Number):
            location, scale = self.likelihood.location_and_scale(eta, shared)
            away = (y - location) / scale
            if not self.likelihood.shape:
                return Tails(ndtr(away).mean(axis=0), ndtr(-away).mean(axis=0))
            every = [Noise(logits).tails(own) for logits, own in zip(shared[:, 1:], away, strict=True)]
            return Tails(*(np.mean(part, axis=0) for part in zip(*every, strict=True)))
        if isinstance(self.likelihood, Poisson):
            rate = self.likelihood.mean(eta)
            return Tails(np.where(y > 0, pdtr(y - 1, rate), 0.0).mean(axis=0), pdtrc(y, rate).mean(axis=0))
        assert isinstance(self.likelihood, NegativeBinomial)
        size = self.likelihood.size(shared)[:, None]
        chance = size / (size + self.likelihood.mean(eta))
        below = np.where(y > 0, betainc(size, np.maximum(y, 1.0), chance), 0.0)
        return Tails(below.mean(axis=0), betainc(y + 1.0, size, 1.0 - chance).mean(axis=0))

    def _means(self, eta: np.ndarray, shared: np.ndarray) -> np.ndarray:
        if isinstance(self.likelihood, Number):
            location, scale = self.likelihood.location_and_scale(eta, shared)
            mean = np.array([Noise(own).mean for own in shared[:, 1:]]) if self.likelihood.shape else np.zeros(len(eta))
            return (location + scale * mean[:, None]).mean(axis=0)
        assert isinstance(self.likelihood, Poisson | NegativeBinomial)
        return self.likelihood.mean(eta).mean(axis=0)

    def _one(self, rng: np.random.Generator) -> _Weights:
        """One draw."""
        if self.pool is None:
            return self.draws(rng.standard_normal((1, self.best.size)))
        chosen = int(rng.integers(len(self.pool.weights)))
        return _Weights(*(part[chosen : chosen + 1] for part in self.pool))

    def draw(self, rng: np.random.Generator, node: MixedNode) -> MixedMechanism:
        weights, shared = self._one(rng)
        likelihood = self.likelihood

        def eta(values: np.ndarray) -> np.ndarray:
            return node.inputs(values).predictors(self.smooth, weights)

        if isinstance(likelihood, Number):

            def location_and_scale(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
                location, scale = likelihood.location_and_scale(eta(values), shared)
                return location[0], scale[0]

            return node.number(location_and_scale, Noise(shared[0, 1:] if likelihood.shape else None))
        assert isinstance(likelihood, Poisson | NegativeBinomial)
        size = float(likelihood.size(shared)[0]) if isinstance(likelihood, NegativeBinomial) else None
        return CountMechanism(lambda values: likelihood.mean(eta(values))[0], size, node.bounds)


@dataclass(frozen=True, eq=False)
class _CodedLaplace(_Laplace):
    """Yes/no, ordered or a label: as a number or a count, and with probabilities of its levels."""

    likelihood: Bernoulli | Softmax | Ordered

    def _log_density(self, y: np.ndarray, eta: np.ndarray, shared: np.ndarray) -> np.ndarray:
        chances = self.likelihood.probabilities(eta, shared)
        return np.log(np.maximum(chances[:, y.astype(np.int64), np.arange(y.size)], LEAST_CHANCE))

    def predict(self, inputs: Inputs, y: np.ndarray) -> Predicted:
        """The expected place of the level as mean, and the log probability of the one that came."""
        shares = self.probabilities(inputs)
        came = shares[np.arange(y.size), y.astype(np.int64)]
        return Predicted(shares @ np.arange(shares.shape[1]), np.log(np.maximum(came, LEAST_CHANCE)))

    def tails(self, inputs: Inputs, y: np.ndarray) -> Tails:
        return Tails.of_shares(self.probabilities(inputs), y)

    def probabilities(self, inputs: Inputs) -> np.ndarray:
        """Of the levels (n, L)."""
        weights, shared = self._many()
        return self.likelihood.probabilities(inputs.predictors(self.smooth, weights), shared).mean(axis=0).T

    def draw(self, rng: np.random.Generator, node: MixedNode) -> MixedMechanism:
        weights, shared = self._one(rng)

        def shares(values: np.ndarray) -> np.ndarray:
            eta = node.inputs(values).predictors(self.smooth, weights)
            return self.likelihood.probabilities(eta, shared)[0].T

        return CodedMechanism(shares, node.own.levels)


def _log_prior(likelihood: Likelihood, shared: np.ndarray) -> np.ndarray:
    """The log density (B,) of drawn shared numbers of one set."""
    return likelihood.take(np.zeros(len(shared), dtype=np.int64)).log_prior(shared)[0]


def _radial(numbers: np.ndarray, heights: Callable[[np.ndarray], np.ndarray], rng: np.random.Generator) -> np.ndarray:
    """Standard normal numbers (B, P) in the same directions, each as far from the best as a draw from the posterior.

    Along a direction the density is that of the posterior times the radius to the power P - 1.
    """
    count, width = numbers.shape
    at = heights((RADII[:, None, None] * numbers).reshape(-1, width)).reshape(RADII.size, count)
    fine = np.linspace(RADII[0], RADII[-1], 400)
    drawn = np.empty(count)
    for k in range(count):
        log_density = np.interp(fine, RADII, at[:, k]) + (width - 1) * np.log(fine)
        drawn[k] = rng.choice(fine, p=np.exp(log_density - logsumexp(log_density)))
    return numbers * drawn[:, None]


@dataclass(frozen=True, eq=False)
class MixedNode:
    """What the table says of a column given its parents.

    Parameters
    ----------
    own, parents
        The columns.
    bounds
        Where the column may be simulated.
    weights
        (c,) how probable each of the ``posteriors`` is given the table.
    logarithm
        Whether the column is the logarithm of the user's.
    """

    own: Column
    parents: tuple[Column, ...]
    bounds: Bounds
    weights: np.ndarray
    names: tuple[str, ...]
    posteriors: tuple[_Posterior, ...]
    logarithm: bool

    @classmethod
    def of(
        cls, columns: Sequence[Column], values: np.ndarray, *, free: np.ndarray, logarithm: bool, seed: tuple[int, ...]
    ) -> MixedNode:
        """From a table whose first column is explained by all others, in the units of the score; ``free`` (n,) are the
        rows in which no experiment set it."""
        evidence = ColumnEvidence(0, Rows(columns, values[free]))
        own = tuple(range(1, len(columns)))
        found: list[tuple[float, str, Callable[[], _Posterior]]] = []

        def ranked(how: Description) -> _Posterior:
            alone = cls.of(columns[:1], values[:, :1], free=free, logarithm=logarithm, seed=seed)
            return _Ranked(_Closed.of(how, evidence, own), columns[0], alone)

        # What is predicted and drawn is a distribution of values, which odds of groups are not.
        kind = columns[0].kind
        every = tuple(how for how in descriptions_of(kind) if not how.odds and (own or not how.ranks))
        for how in every:
            if how.ranks:
                height = evidence.alone + float(evidence.gain_by_ranks(how, [own])[0])
                found.append((height, how.name, partial(ranked, how)))
            elif how.together:
                found += _together(how, columns, evidence)
            elif columns[0].is_number and how.is_closed:
                closed = partial(_Closed.of, how, evidence, own)
                found.append((float(evidence.density(how, [own])[0]), how.name, closed))
            else:
                likelihood, fitted = evidence.fitted(how, [own])
                log_evidence = float(fitted.log_evidence[0])
                laplace = _Laplace if columns[0].is_number or kind == "count" else _CodedLaplace
                posterior = partial(laplace.of, how, evidence, own, likelihood, fitted, seed)
                found.append((log_evidence if columns[0].is_number else min(log_evidence, 0.0), how.name, posterior))
        shares = dict(zip((how.name for how in every), shares_of(every, 0.0), strict=True))
        heights = np.array([height + np.log(shares[name]) for height, name, _ in found])
        weights = np.exp(heights - logsumexp(heights))
        kept = np.flatnonzero(weights >= LEAST_WEIGHT)
        return cls(
            columns[0],
            tuple(columns[1:]),
            Bounds.of(values[:, 0]),
            weights[kept] / weights[kept].sum(),
            tuple(found[k][1] for k in kept),
            tuple(found[k][2]() for k in kept),
            logarithm,
        )

    def inputs(self, values: np.ndarray) -> Inputs:
        return Inputs(self.parents, values)

    def number(self, location_and_scale: LocationAndScale, noise: Noise) -> NumberMechanism:
        """A mechanism of the column from one in the units of its likelihood."""
        assert self.own.line is not None
        centre, unit = self.own.line.centre, self.own.line.scale

        def in_units(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            location, scale = location_and_scale(values)
            return centre + unit * location, unit * scale

        return NumberMechanism(in_units, noise, self.bounds, self.logarithm)

    def predict(self, values: np.ndarray, targets: np.ndarray) -> Predicted:
        """The column (n,) of new rows from their parents (n, k), in the units of the score."""
        parts = [
            self._block(self.inputs(values[start : start + BLOCK_ROWS]), targets[start : start + BLOCK_ROWS])
            for start in range(0, max(len(values), 1), BLOCK_ROWS)
        ]
        return Predicted(*(np.concatenate(part) for part in zip(*parts, strict=True)))

    def tails(self, values: np.ndarray, targets: np.ndarray) -> Tails:
        """Where the column (n,) of new rows lies in its distribution given their parents (n, k)."""
        parts = []
        for start in range(0, max(len(values), 1), BLOCK_ROWS):
            inputs, y = self.inputs(values[start : start + BLOCK_ROWS]), targets[start : start + BLOCK_ROWS]
            every = [posterior.tails(inputs, self.own.scaled(y)) for posterior in self.posteriors]
            parts.append([self.weights @ np.stack(part) for part in zip(*every, strict=True)])
        return Tails(*(np.concatenate(part) for part in zip(*parts, strict=True)))

    def _block(self, inputs: Inputs, targets: np.ndarray) -> Predicted:
        every = [posterior.predict(inputs, self.own.scaled(targets)) for posterior in self.posteriors]
        log_density = logsumexp([one.log_density for one in every], axis=0, b=self.weights[:, None])
        log_density = log_density + self.own.log_jacobian(1)
        if self.own.levels.size:
            return Predicted(self.own.levels[self._shares(inputs).argmax(axis=1)], log_density)
        mean = self.weights @ np.stack([one.mean for one in every])
        if self.own.line is not None:
            mean = self.own.line.centre + self.own.line.scale * mean
        return Predicted(mean, log_density)

    def probabilities(self, values: np.ndarray) -> np.ndarray:
        """Of the levels of a coded column (n, L), given the parents (n, k) of new rows."""
        starts = range(0, max(len(values), 1), BLOCK_ROWS)
        return np.concatenate([self._shares(self.inputs(values[start : start + BLOCK_ROWS])) for start in starts])

    def _shares(self, inputs: Inputs) -> np.ndarray:
        coded = [one.probabilities(inputs) for one in self.posteriors if isinstance(one, _CodedLaplace)]
        return np.tensordot(self.weights, np.stack(coded), axes=1)

    def draw(self, rng: np.random.Generator, shared: float | None) -> MixedMechanism:
        chosen = self.posteriors[int(rng.choice(self.weights.size, p=self.weights))]
        return chosen.draw(rng, self)


def _together(
    how: Description, columns: Sequence[Column], evidence: ColumnEvidence
) -> list[tuple[float, str, Callable[[], _Posterior]]]:
    """The Gaussian process of two parents or more; nothing for fewer."""
    if len(columns) < 3:
        return []

    def posterior() -> _Posterior:
        own, rows = evidence.rows.scaled[0], evidence.rows.values
        points = [column.points(rows[:, place]) for place, column in enumerate(columns[1:], start=1)]
        values = np.concatenate([own[:, None], *points], axis=1)
        width = values.shape[1]
        score = GaussianProcess().prepare(values, scale=np.ones(width))
        process = score.predictive_in(Scaling(np.zeros(width), np.ones(width)))
        return _Together(tuple(columns[1:]), values.mean(axis=0), process)

    return [(float(evidence.density(how, [tuple(range(1, len(columns)))])[0]), how.name, posterior)]
