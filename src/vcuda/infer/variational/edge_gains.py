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

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from vcuda.errors import ConfigError
from vcuda.models.protocol import LocalScore
from vcuda.models.regressions import Evidence, Regressions

# Numbers in the largest temporary array; above this, targets are worked off in turns.
WORKING_NUMBERS = 1 << 22


class Toggled(NamedTuple):
    """One target with its parents: the ``score``, what each column ``gains`` (d,) as a parent against not being one,
    and the ``squares`` that the noise is expected to have, weights averaged over."""

    score: jax.Array
    gains: jax.Array
    squares: jax.Array


def regressions_of(score: LocalScore) -> Regressions:
    """What the toggles need of a prepared score; refuse scores that are no regressions."""
    found = score.regressions()
    if found is None:
        raise ConfigError(
            "the variational engine needs the gain of every edge at once, which models linear and additive give and "
            "this one does not; use one of these, or the orders engine"
        )
    return found


def _one_of(parts: jax.Array, part: jax.Array) -> jax.Array:
    # Most tables have one part only, and then nothing need be copied for every target.
    return parts[0] if parts.shape[0] == 1 else parts[part]


def _evidence_in(evidence: Evidence, part: jax.Array) -> Evidence:
    """The evidence in one of the parts."""
    powers = None if evidence.powers is None else _one_of(evidence.powers, part)
    rows = None if evidence.rows is None else _one_of(evidence.rows, part)
    return Evidence(_one_of(evidence.constants, part), powers, evidence.offset, rows)


def _log_evidence(
    evidence: Evidence, residual: jax.Array, log_det: jax.Array, size: jax.Array, variance: jax.Array
) -> jax.Array:
    """Of a target in one part, from its regression on ``size`` parents."""
    if evidence.powers is None:
        fit = 0.5 * residual / variance + 0.5 * evidence.rows * jnp.log(variance)
    else:
        fit = evidence.powers[size] * jnp.log(evidence.offset + residual)
    return evidence.constants[size] - 0.5 * log_det - fit


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
    evidence = partial(_log_evidence, _evidence_in(problem.evidence, part))

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
