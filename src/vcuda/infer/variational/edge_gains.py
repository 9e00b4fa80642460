"""Exact toggles: what every possible edge into a node gains, given the node's other parents, for all edges at once.

With the weights integrated out, a local score depends on a set of parents only through the residual quadratic form of
the target and a log determinant. One factorisation of the parents' Gram matrix M gives both for the set as it is, with
any one column more (a Schur complement) and with any one parent less (a block of the inverse of M):

    add i:   residual - r_i' V_i^-1 r_i,       log det + log |V_i|,    V_i = M_ii - M_iU M^-1 M_Ui,  r_i = S_ij - M_iU z
    drop i:  residual + z_i' B_i^-1 z_i,       log det + log |B_i|,    B_i = (M^-1)_ii,              z = M^-1 S_Uj

A column enters with a block of m features: one in linear models, the basis functions of an additive model otherwise.
Time O(d (km)² m) for a target with k parents.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from vcuda.errors import ConfigError
from vcuda.models.additive import AdditiveBasisScore
from vcuda.models.interventions import InterventionalNoise, InterventionalScore
from vcuda.models.scores import BGeScore, EqualNoiseScore, LocalScore, SharedNoise

# Numbers in the largest temporary array; above this, targets are worked off in turns.
WORKING_NUMBERS = 1 << 22


class Evidence(NamedTuple):
    """How residual q, log determinant l and number of parents k become a log evidence.

    ``constants[k] - l / 2 - powers[k] log(offset + q)`` where each node's noise is integrated out; with one noise
    variance for all nodes (``powers`` is None) ``constants[k] - l / 2 - q / (2 variance) - n log(variance) / 2``.
    Constants, powers and rows have a leading axis of parts, which :meth:`of` takes away.
    """

    constants: Any
    powers: Any
    offset: Any
    rows: Any

    def __call__(self, residual: jax.Array, log_det: jax.Array, size: jax.Array, variance: jax.Array) -> jax.Array:
        if self.powers is None:
            fit = 0.5 * residual / variance + 0.5 * self.rows * jnp.log(variance)
        else:
            fit = self.powers[size] * jnp.log(self.offset + residual)
        return self.constants[size] - 0.5 * log_det - fit

    def of(self, part: jax.Array) -> Evidence:
        """The evidence in one of the parts."""
        powers = None if self.powers is None else _one_of(self.powers, part)
        rows = None if self.rows is None else _one_of(self.rows, part)
        return Evidence(_one_of(self.constants, part), powers, self.offset, rows)


def _one_of(parts: jax.Array, part: jax.Array) -> jax.Array:
    # Most tables have one part only, and then nothing need be copied for every target.
    return parts[0] if parts.shape[0] == 1 else parts[part]


class Regressions(NamedTuple):
    """All that toggles need of a table, for d columns of m features each, under a amplitudes of the functions.

    The rows that a target is judged by are one of p parts, ``part_of`` (d,). ``gram`` (a, p, d m, d m) holds products
    of features, ``own`` (a, p, m, m, d) its diagonal blocks, ``products`` (a, p, d m, d) those of features with
    targets, ``squares`` (p, d) those of targets, with their ridge. ``ridge`` is that of the weights; with a shared
    noise variance it is the variance divided by ``weight_variance`` (else None), and the noise is in so many ``cells``.
    Evidences are averaged over the amplitudes.
    """

    gram: Any
    own: Any
    products: Any
    squares: Any
    ridge: Any
    weight_variance: Any
    evidence: Evidence
    part_of: Any
    cells: Any

    @property
    def nodes(self) -> int:
        return int(self.squares.shape[-1])

    @property
    def block(self) -> int:
        return int(self.gram.shape[-1] // self.nodes)


class Toggled(NamedTuple):
    """One target with its parents: the ``score``, what each column ``gains`` (d,) as a parent against not being one,
    and the ``squares`` that the noise is expected to have, weights averaged over."""

    score: jax.Array
    gains: jax.Array
    squares: jax.Array


def _linear(
    gram: np.ndarray, squares: np.ndarray, ridge: float, weight_variance: float | None, evidence: Evidence, cells: int
) -> Regressions:
    alone, part_of = gram[None, None], np.zeros(len(gram), dtype=np.int32)
    own = np.diag(gram)[None, None, None, None]
    return Regressions(alone, own, alone, squares[None], ridge, weight_variance, evidence, part_of, float(cells))


def _joined(score: InterventionalScore, parts: list[Regressions], cells: int) -> Regressions:
    """Parts as one problem. Targets that were never free get a part of no rows, in which nothing has a score."""
    first, part_of = parts[0], score.part_of.astype(np.int32)
    if not score.free_rows.all():
        part_of = np.where(score.free_rows > 0, part_of, len(parts)).astype(np.int32)
        empty = jax.tree.map(np.zeros_like, first)
        parts = [*parts, empty._replace(squares=empty.squares + (first.evidence.powers is not None))]

    def along(axis: int, pick: Callable[[Regressions], Any]) -> Any:
        return None if pick(first) is None else np.concatenate([pick(part) for part in parts], axis=axis)

    evidence = Evidence(
        along(0, lambda part: part.evidence.constants),
        along(0, lambda part: part.evidence.powers),
        first.evidence.offset,
        along(0, lambda part: part.evidence.rows),
    )
    return Regressions(
        along(1, lambda part: part.gram),
        along(1, lambda part: part.own),
        along(1, lambda part: part.products),
        along(0, lambda part: part.squares),
        first.ridge,
        first.weight_variance,
        evidence,
        part_of,
        float(cells),
    )


def regressions(score: LocalScore | SharedNoise) -> Regressions:
    """Reduce a prepared score to what the toggles need; refuse scores that are no regressions.

    Linear scores keep double precision, since columns of very different variance lose digits; additive ones need no
    more than single precision, as all of their columns are standardised.
    """
    if isinstance(score, InterventionalNoise):
        scores = score.scores
        parts = [SharedNoise(part, score.weight_variance, score.shape, score.scale) for part in scores.parts]
        return _joined(scores, [regressions(part) for part in parts], score.cells)
    if isinstance(score, InterventionalScore):
        return _joined(score, [regressions(part) for part in score.parts], int(score.free_rows.sum()))
    known = score.known if isinstance(score, SharedNoise) else score
    sizes = np.arange(score.nodes + 1)
    if isinstance(known, EqualNoiseScore):
        # Under unit variance, so that the variance can be put in later.
        constant = -0.5 * known.rows * np.log(2 * np.pi) - 0.5 * np.log1p(known.rows)
        evidence = Evidence(np.full((1, sizes.size), constant), None, None, np.array([float(known.rows)]))
        weight_variance = score.weight_variance if isinstance(score, SharedNoise) else None
        cells = known.rows * known.nodes
        return _linear(known.gram, np.diag(known.gram), known.ridge, weight_variance, evidence, cells)
    if isinstance(known, BGeScore):
        nothing, one = np.zeros(sizes.size), np.ones(sizes.size)
        constants = known.local(one, nothing, sizes)
        powers = constants - known.local(math.e * one, nothing, sizes)
        squares = np.diag(known.gram) + known.target_ridge
        evidence = Evidence(constants[None], powers[None], 0.0, None)
        return _linear(known.gram, squares, known.ridge, None, evidence, known.rows * known.nodes)
    if isinstance(known, AdditiveBasisScore):
        single = np.float32
        amplitudes = np.asarray(known.amplitudes)[:, None, None]
        noise = known.noise
        power = noise.shape + 0.5 * noise.rows
        constant = noise.log_evidence(np.asarray(0.0), np.log1p(noise.rows)) + power * np.log(2 * noise.scale)
        evidence = Evidence(
            np.full((1, sizes.size), constant, single),
            np.full((1, sizes.size), power, single),
            single(2 * noise.scale),
            None,
        )
        gram = (amplitudes * known.gram).astype(single)
        blocks = gram.reshape(-1, known.nodes, known.block, known.nodes, known.block)
        return Regressions(
            gram[:, None],
            np.einsum("aipiq->apqi", blocks)[:, None],
            (np.sqrt(amplitudes) * known.products).astype(single)[:, None],
            known.squares.astype(single)[None],
            single(1.0),
            None,
            evidence,
            np.zeros(known.nodes, dtype=np.int32),
            single(noise.rows * known.nodes),
        )
    raise ConfigError(
        f"the variational engine knows linear and additive scores, not {type(score).__name__}; "
        "use the orders engine, or AdditiveBasis in place of GaussianProcess"
    )


def _inverse_factor(matrix: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The inverse of the lower Cholesky factor of a matrix (k, k), and its log determinant.

    Elimination on the matrix beside the identity, all targets of a batch in step. It stands in for Cholesky and
    triangular solves of the library: with those in its loop a fit once stood still on two cores (jaxlib 0.10), for a
    reason that was not found, and with this none has.
    """
    size = matrix.shape[0]
    later = jnp.arange(size)

    def eliminate(p: jax.Array, both: jax.Array) -> jax.Array:
        row = both[p]
        ratios = jnp.where(later > p, both[:, p] / row[p], 0.0)
        return both - ratios[:, None] * row

    both = jax.lax.fori_loop(0, size, eliminate, jnp.concatenate([matrix, jnp.eye(size, dtype=matrix.dtype)], axis=1))
    pivots = jnp.diagonal(both)
    return both[:, size:] / jnp.sqrt(pivots)[:, None], jnp.sum(jnp.log(pivots))


def _explained(matrices: jax.Array, vectors: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Quadratic forms r' V^-1 r (c,) and log determinants of many small V (m, m, c), with r (m, c), by elimination."""
    later = jnp.arange(vectors.shape[0])[:, None]

    def eliminate(p: jax.Array, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        left, right = carry
        ratios = jnp.where(later > p, left[:, p] / left[p, p], 0.0)
        return left - ratios[:, None] * left[p], right - ratios * right[p]

    matrices, vectors = jax.lax.fori_loop(0, vectors.shape[0], eliminate, (matrices, vectors))
    pivots = jnp.diagonal(matrices).T
    return jnp.sum(vectors**2 / pivots, axis=0), jnp.sum(jnp.log(pivots), axis=0)


def toggles_of(
    problem: Regressions, target: jax.Array, parents: jax.Array, real: jax.Array, variance: jax.Array
) -> Toggled:
    """Toggle every edge into one target.

    ``parents`` (k,) are distinct columns, of which only those marked in ``real`` (k,) count; ``variance`` is the noise
    variance where all nodes share one. What stands for the target itself means nothing.
    """
    nodes, block = problem.nodes, problem.block
    ridge = problem.ridge if problem.weight_variance is None else variance / problem.weight_variance
    features = (parents[:, None] * block + jnp.arange(block)).reshape(-1)
    counts = jnp.repeat(real, block).astype(problem.gram.dtype)
    size = jnp.sum(real)
    part = problem.part_of[target]
    evidence = problem.evidence.of(part)

    def fit(grams: jax.Array, every: jax.Array, owns: jax.Array) -> tuple[jax.Array, ...]:
        several = grams.shape[0] > 1
        products = every[part, :, target] if several else every[0, :, target]
        rows = (grams[part, features] if several else grams[0][features]) * counts[:, None]
        matrix = rows[:, features] * counts + ridge * jnp.eye(features.size, dtype=grams.dtype)
        inverse, log_det = _inverse_factor(matrix)
        column = inverse @ (products[features] * counts)
        residual = _one_of(problem.squares, part)[target] - column @ column
        log_det = log_det - features.size * jnp.log(ridge)

        projected = inverse @ rows
        covariance = (products - column @ projected).reshape(nodes, block)
        projected = projected.reshape(-1, nodes, block)
        pivots = _one_of(owns, part) - jnp.einsum("kdp,kdq->pqd", projected, projected)
        added, added_det = _explained(pivots + ridge * jnp.eye(block, dtype=grams.dtype)[:, :, None], covariance.T)

        weights = (column @ inverse).reshape(-1, block)
        spread = inverse.reshape(features.size, -1, block)
        dropped, dropped_det = _explained(jnp.einsum("kup,kuq->pqu", spread, spread), weights.T)
        log_ridge = block * jnp.log(ridge)
        before = evidence(residual, log_det, size, variance)
        # Rounding may not take more from a residual than there is.
        left = jnp.maximum(residual - added, 1e-6 * residual)
        more = evidence(left, log_det + added_det - log_ridge, size + 1, variance)
        less = evidence(residual + dropped, log_det + dropped_det + log_ridge, size - 1, variance)
        shrunk = jnp.sum(counts) - ridge * jnp.sum(inverse**2 * counts)
        squares = residual - ridge * jnp.sum(weights**2) + variance * shrunk
        return before, more, less, squares

    before, more, less, squares = jax.vmap(fit)(problem.gram, problem.products, problem.own)
    log_number = np.log(problem.gram.shape[0])

    def average(evidences: jax.Array) -> jax.Array:
        return jax.nn.logsumexp(evidences, axis=0) - log_number

    score = average(before)
    gains = average(more) - score
    kept = score - average(less)
    gains = gains.at[parents].set(jnp.where(real, kept, gains[parents]))
    return Toggled(score, gains, squares[0])


class Tiers(NamedTuple):
    """How many parents can be held: ``wide`` by the ``targets`` that have most of them, ``narrow`` by the others.

    A few hubs would otherwise make all targets as expensive as themselves.
    """

    narrow: int
    wide: int
    targets: int


def toggle_graphs(
    problem: Regressions, graphs: jax.Array, importance: jax.Array, variances: jax.Array, tiers: Tiers
) -> tuple[Toggled, jax.Array]:
    """Toggle every edge of some graphs.

    ``graphs`` (g, d, d) booleans, ``importance`` (g, d, d) between 0 and 1 says which parents to keep where there are
    more than the tier holds, ``variances`` (g,). Returns scores (g, d), gains (g, d, d) with [i, j] for i -> j, squares
    (g, d), and how many parents were left out (g, d).
    """
    nodes = graphs.shape[1]
    # Single precision and positive: what the fast path of top_k on processors takes.
    keys = jnp.where(graphs, 1.0 + importance, 0.0).astype(jnp.float32)
    keys = jnp.swapaxes(keys, 1, 2)
    sizes = jnp.sum(graphs, axis=1)
    ranked = jax.lax.top_k(sizes, nodes)[1]
    parts = []
    for targets, width in ((ranked[:, : tiers.targets], tiers.wide), (ranked[:, tiers.targets :], tiers.narrow)):
        if targets.shape[1]:
            parts.append(_toggle_tier(problem, keys, targets, variances, width))
    places = jax.vmap(lambda row: jnp.zeros_like(row).at[row].set(jnp.arange(nodes, dtype=row.dtype)))(ranked)
    joined = jax.tree.map(lambda *leaves: jnp.concatenate(leaves, axis=1), *parts)
    toggled, held = jax.tree.map(lambda leaf: jax.vmap(lambda rows, place: rows[place])(leaf, places), joined)
    return toggled._replace(gains=jnp.swapaxes(toggled.gains, 1, 2)), sizes - held


def _toggle_tier(
    problem: Regressions, keys: jax.Array, targets: jax.Array, variances: jax.Array, width: int
) -> tuple[Toggled, jax.Array]:
    """Toggle edges into ``targets`` (g, t), with up to ``width`` parents each."""
    count, number = targets.shape
    values, parents = jax.lax.top_k(jnp.take_along_axis(keys, targets[:, :, None], axis=1), width)
    real = values > 0
    flat = (
        targets.reshape(-1),
        parents.reshape(-1, width),
        real.reshape(-1, width),
        jnp.repeat(variances, number),
    )
    together = max(1, WORKING_NUMBERS // (problem.gram.shape[0] * width * problem.block * problem.gram.shape[-1]))

    def one(arguments: tuple[jax.Array, ...]) -> Toggled:
        return toggles_of(problem, *arguments)

    in_turns = together < count * number
    toggled = jax.lax.map(one, flat, batch_size=together) if in_turns else jax.vmap(one)(flat)
    shaped = jax.tree.map(lambda leaf: leaf.reshape(count, number, *leaf.shape[1:]), toggled)
    return shaped, jnp.sum(real, axis=-1)
