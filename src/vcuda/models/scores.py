"""Local scores: how well a set of parents explains a column, with the weights integrated out.

A spec (:class:`EqualNoise`, :class:`BGe`, and those of ``gaussian_process``, ``additive`` and ``discrete``) says
which model; ``spec.prepare(values)`` reduces the table once to what all sets of parents share; the prepared score
then answers ``log p(x_target | x_parents)`` for one set, for all subsets of some candidates, or for every possible
extra parent. Summed over the nodes of a graph, plus ``log_jacobian``, the answers give the log marginal likelihood of
the table in the user's units, so that evidences of different models can be compared.

All models share one treatment of the intercept: normal around the column's mean, with the variance of the
noise. It costs ``log(1 + n) / 2`` a node, whatever the parents.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from scipy.special import gammaln

from vcuda.data.moments import Moments, varies
from vcuda.errors import ConfigError, DataError

LOG_TWO_PI = float(np.log(2 * np.pi))
# Equal noise has one unit for all columns. A column may vary so many units: fourth powers of that, which products of
# the Gram matrix are, stay finite in double precision.
LARGEST_SPREAD = 1e60


class LocalScore(Protocol):
    """What every prepared score offers to the engines; it adds up over the nodes of a graph.

    ``nodes`` is d; ``log_jacobian`` turns a sum of scores into the evidence of the table in the user's units;
    sets of more than ``max_parents`` parents (if not None) have the score minus infinity in ``table``.
    """

    @property
    def nodes(self) -> int: ...

    @property
    def log_jacobian(self) -> float: ...

    @property
    def max_parents(self) -> int | None: ...

    def score(self, target: int, parents: Sequence[int]) -> float:
        """Return log p(x_target | x_parents)."""
        ...

    def table(self, target: int, candidates: np.ndarray) -> np.ndarray:
        """Return the scores (2**c,) of all subsets of c candidates; bit t of the index is candidates[t]."""
        ...

    def gains(self, target: int, parents: Sequence[int]) -> np.ndarray:
        """Return what adding each column to the parents gains (d,); -inf for the target and the parents."""
        ...

    def losses(self, target: int, parents: np.ndarray) -> np.ndarray:
        """Return what leaving out each of the parents (k,) loses (k,)."""
        ...


class ScoreSpec(Protocol):
    """A spec of a score: a frozen dataclass that can be prepared for a table.

    ``scale`` (d,) are the units in which the columns are scored, if not those that the table itself gives.
    """

    def prepare(self, values: np.ndarray, *, scale: np.ndarray | None = None) -> LocalScore: ...


def centred_columns(values: np.ndarray, scale: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return the columns less their means (n, d) and their units (d,): those given, or their standard deviations;
    the columns must vary then."""
    table = np.asarray(values, dtype=np.float64)
    if table.ndim != 2 or table.shape[0] < 2 or table.shape[1] < 1:
        raise DataError(f"expected a table of at least 2 rows and 1 column, got an array of shape {table.shape}")
    if not np.isfinite(table).all():
        column = int(np.argmin(np.isfinite(table).all(axis=0)))
        raise DataError(f"column {column} holds missing or infinite values; fill or drop them before the fit")
    centred = table - table.mean(axis=0)
    # The mean is rounded, which matters where it is large beside the spread. What is left of it is small and exact.
    centred -= centred.mean(axis=0)
    if scale is not None:
        return centred, scale
    constant = ~varies(table.min(axis=0), table.max(axis=0))
    if constant.any():
        raise DataError(f"column {int(np.argmax(constant))} is constant; drop it, it can be neither cause nor effect")
    return centred, np.sqrt(np.mean(centred**2, axis=0))


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


def table_by_sets(
    score: LocalScore, target: int, candidates: np.ndarray, *, full: int | None = None, margin: float = np.inf
) -> np.ndarray:
    """Return the table (2**c,) of a score that knows no recursion, set by set.

    All sets of up to ``full`` parents are scored; a larger one only if it adds one parent to a set that is at
    most ``margin`` nats below the best set so far, and has minus infinity otherwise.
    """
    chosen = checked_candidates(target, candidates, score.nodes)
    steps = table_steps(score.score, target, chosen, full=full, margin=margin, most=score.max_parents)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return np.asarray(end.value)


def table_steps(
    ask: Callable[[int, Sequence[int]], float],
    target: int,
    chosen: np.ndarray,
    *,
    full: int | None,
    margin: float,
    most: int | None,
) -> Generator[list[list[int]], None, np.ndarray]:
    """Fill a table as `table_by_sets` does, size by size; yields the sets of a size before it asks for their scores."""
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


def gains_by_sets(score: LocalScore, target: int, parents: Sequence[int]) -> np.ndarray:
    """Return the gains (d,) of a score that knows no update, one set for each column."""
    chosen = checked_candidates(target, np.asarray(parents), score.nodes).tolist()
    before = score.score(target, chosen)
    gained = np.full(score.nodes, -np.inf)
    for other in set(range(score.nodes)) - {target, *chosen}:
        gained[other] = score.score(target, [*chosen, other]) - before
    return gained


def losses_by_sets(score: LocalScore, target: int, parents: np.ndarray) -> np.ndarray:
    """Return the losses (k,) of a score that knows no update, one set for each parent."""
    chosen = parents.tolist()
    together = score.score(target, chosen)
    return np.array([together - score.score(target, chosen[:t] + chosen[t + 1 :]) for t in range(len(chosen))])


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


@dataclass(frozen=True, eq=False)
class GramScore:
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

    @property
    def nodes(self) -> int:
        return int(self.gram.shape[0])

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
        return self.tables(np.array([target]), chosen[None])[0]

    def tables(self, targets: np.ndarray, candidates: np.ndarray) -> np.ndarray:
        """Return the tables (t, 2**c) of t targets with c candidates each, ``candidates`` (t, c)."""
        columns = np.concatenate([candidates, np.asarray(targets)[:, None]], axis=1)
        width = candidates.shape[1]
        added = np.append(np.full(width, self.ridge), self.target_ridge)
        residual, log_det = schur_tables(self.gram[columns[:, :, None], columns[:, None, :]] + np.diag(added))
        sizes = set_sizes(width)
        scores = self.local(residual, log_det - sizes * np.log(self.ridge), sizes)
        if self.max_parents is not None:
            scores[:, sizes > self.max_parents] = -np.inf
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


@dataclass(frozen=True, eq=False)
class EqualNoiseScore(GramScore):
    """Linear score with one known noise variance for all nodes (in the units of ``gram``)."""

    variance: float

    def local(self, residual: np.ndarray, log_det: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        constant = 0.5 * self.rows * (LOG_TWO_PI + np.log(self.variance)) + 0.5 * np.log1p(self.rows)
        return -0.5 * residual / self.variance - 0.5 * log_det - constant


@dataclass(frozen=True, eq=False)
class BGeScore(GramScore):
    """BGe score on standardised columns; ``excess`` is alpha_w - d, ``mean_rows`` is alpha_mu."""

    excess: float
    mean_rows: float

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
class SharedNoise:
    """Linear score whose one noise variance is unknown: no sum over nodes until a variance is given.

    ``at(variance)`` gives the decomposable score, ``log_prior(variance)`` the log density of the
    inverse-gamma prior; an engine averages over variances by evidence.
    Variances are in units of the smallest column variance, which is where a start belongs: some node has no
    parents, and its variance is that of the noise.
    """

    known: EqualNoiseScore
    weight_variance: float
    shape: float
    scale: float

    @property
    def nodes(self) -> int:
        return self.known.nodes

    @property
    def rows(self) -> int:
        return self.known.rows

    @property
    def cells(self) -> int:
        """How many cells the noise is in."""
        return self.known.rows * self.known.nodes

    @property
    def log_jacobian(self) -> float:
        return self.known.log_jacobian

    @property
    def max_parents(self) -> int | None:
        return self.known.max_parents

    def at(self, variance: float) -> EqualNoiseScore:
        """Return the score under this noise variance (in units of the smallest column variance)."""
        return replace(self.known, variance=float(variance), ridge=float(variance) / self.weight_variance)

    def log_prior(self, variance: float) -> float:
        """Return the log density of the inverse-gamma prior of the variance."""
        normaliser = self.shape * np.log(self.scale) - gammaln(self.shape)
        return float(normaliser - (self.shape + 1) * np.log(variance) - self.scale / variance)


def check_max_parents(max_parents: int | None) -> None:
    """Refuse a largest number of parents below one."""
    if max_parents is not None and max_parents < 1:
        raise ConfigError(f"max_parents must be at least 1, or None for no limit; got {max_parents}")


def check_positive(**settings: float) -> None:
    """Refuse settings that are not positive numbers, by name."""
    for name, value in settings.items():
        if not (np.isfinite(value) and value > 0):
            raise ConfigError(f"{name} must be a positive number, got {value}")


@dataclass(frozen=True)
class EqualNoise:
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

    def __post_init__(self) -> None:
        check_positive(weight_variance=self.weight_variance, noise_shape=self.noise_shape, noise_scale=self.noise_scale)
        if self.variance is not None:
            check_positive(variance=self.variance)
        check_max_parents(self.max_parents)

    def out_of_range(self, scale: np.ndarray) -> np.ndarray:
        """Return the columns (k,) that vary too much to be scored in one unit with the others, given the standard
        deviations (d,) of all."""
        unit = 1.0 if self.variance is not None else float(scale.min())
        return np.flatnonzero(scale > LARGEST_SPREAD * unit)

    def prepare(self, values: np.ndarray, *, scale: np.ndarray | None = None) -> EqualNoiseScore | SharedNoise:
        """Reduce a table (n, d) to its Gram matrix; with unknown variance the result needs ``at(variance)``
        first."""
        centred, units = centred_columns(values, scale)
        return self._prepared(centred.T @ centred, len(centred), units)

    def from_moments(self, moments: Moments, *, scale: np.ndarray | None = None) -> EqualNoiseScore | SharedNoise:
        """The same from the moments of a table that need not be in memory."""
        return self._prepared(moments.gram, moments.rows, moments.scale if scale is None else scale)

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
            log_jacobian=-rows * len(gram) * float(np.log(unit)),
            max_parents=self.max_parents,
            variance=variance,
        )
        if self.variance is not None:
            return known
        return SharedNoise(known, self.weight_variance, self.noise_shape, self.noise_scale)


@dataclass(frozen=True)
class BGe:
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

    def from_moments(self, moments: Moments, *, scale: np.ndarray | None = None) -> BGeScore:
        """The same from the moments of a table that need not be in memory."""
        units = moments.scale if scale is None else scale
        return self._prepared(moments.gram / np.outer(units, units), moments.rows, units)

    def _prepared(self, gram: np.ndarray, rows: int, units: np.ndarray) -> BGeScore:
        ridge = self.mean_rows * (self.excess - 1) / (self.mean_rows + 1)
        return BGeScore(
            gram=gram,
            rows=rows,
            ridge=ridge,
            target_ridge=ridge,
            log_jacobian=-rows * float(np.log(units).sum()),
            max_parents=self.max_parents,
            excess=self.excess,
            mean_rows=self.mean_rows,
        )
