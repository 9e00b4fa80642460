"""Top-k and Sinkhorn: the O(d^2) order mask against matrix products, and the parts of the relaxations."""

from itertools import permutations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import minimize
from scipy.special import expit, log_expit

from vcuda.dags.base import DagPrior, no_self_loops
from vcuda.dags.permutation import (
    SinkhornDags,
    SinkhornParams,
    TopKDags,
    TopKParams,
    best_assignment,
    log_sinkhorn,
    order_mask,
)
from vcuda.dags.relaxation import masked_bernoulli
from vcuda.errors import ConfigError

NODES = 7


def dense_mask(soft, order):
    """P^T U P as it is written, with P straight through."""
    hard = jnp.eye(len(order))[order]
    permutation = hard + soft - jax.lax.stop_gradient(soft)
    upper = jnp.triu(jnp.ones_like(soft), 1)
    return permutation.T @ upper @ permutation


def plain_sinkhorn(values, iterations):
    for _ in range(iterations):
        values = values - jax.nn.logsumexp(values, axis=1, keepdims=True)
        values = values - jax.nn.logsumexp(values, axis=0, keepdims=True)
    return values


@pytest.mark.slow
def test_order_mask_has_the_value_and_gradient_of_the_matrix_product():
    rng = np.random.default_rng(0)
    order = jnp.asarray(rng.permutation(NODES))
    soft = jnp.float32(rng.uniform(size=(NODES, NODES)))
    upstream = jnp.float32(rng.normal(size=(NODES, NODES)))
    found, pullback = jax.vjp(lambda soft: order_mask(soft, order), soft)
    expected, dense_pullback = jax.vjp(lambda soft: dense_mask(soft, order), soft)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    np.testing.assert_allclose(pullback(upstream)[0], dense_pullback(upstream)[0], atol=1e-5)


@pytest.mark.slow
def test_order_mask_is_a_full_order_when_scores_are_tied():
    scores = jnp.zeros(NODES)
    order = jnp.argsort(-scores)
    mask = np.asarray(order_mask(TopKDags().soft_permutation(scores, order), order))
    np.testing.assert_array_equal(mask + mask.T, no_self_loops(NODES))


@pytest.mark.slow
def test_top_k_gradient_is_that_of_the_dense_formula():
    rng = np.random.default_rng(1)
    spec = TopKDags(order_temperature=0.6, edge_temperature=0.8)
    params = TopKParams(jnp.float32(rng.normal(size=(NODES, NODES))), jnp.float32(rng.normal(size=NODES)))
    allowed, key = jnp.asarray(no_self_loops(NODES)), jax.random.key(3)
    upstream = jnp.float32(rng.normal(size=(NODES, NODES)))

    def dense(params):
        edge_key, order_key = jax.random.split(key)
        noise = jax.random.logistic(edge_key, (NODES, NODES))
        edges = masked_bernoulli(params.edge_logits, noise, allowed, temperature=0.8)
        scores = jax.nn.log_softmax(params.order_logits) + jax.random.gumbel(order_key, (NODES,))
        ranked = jnp.sort(scores)[::-1]
        soft = jax.nn.softmax(-jnp.abs(scores[None, :] - ranked[:, None]) / 0.6, axis=1)
        # Scores are distinct here, so that the largest entry of each row is the node of that rank.
        return edges.straight_through() * dense_mask(soft, jnp.argmax(soft, axis=1))

    compare_with_dense(lambda params: spec.sample(key, params, allowed), dense, params, upstream)


@pytest.mark.slow
def test_sinkhorn_gradient_is_that_of_the_dense_formula():
    rng = np.random.default_rng(2)
    spec = SinkhornDags(order_temperature=0.9, noise_factor=1.3, iterations=6)
    params = SinkhornParams(*jnp.float32(rng.normal(size=(2, NODES, NODES))))
    allowed, key = jnp.asarray(no_self_loops(NODES)), jax.random.key(4)
    upstream = jnp.float32(rng.normal(size=(NODES, NODES)))

    def values(params):
        gumbel = jax.random.gumbel(jax.random.split(key)[1], (NODES, NODES))
        return (jax.nn.log_sigmoid(params.order_logits) + 1.3 * gumbel) / 0.9

    orders = np.array(list(permutations(range(NODES))))
    order = jnp.asarray(orders[np.argmax(np.asarray(values(params))[np.arange(NODES), orders].sum(axis=1))])

    def dense(params):
        noise = jax.random.logistic(jax.random.split(key)[0], (NODES, NODES))
        edges = masked_bernoulli(params.edge_logits, noise, allowed, temperature=1.0)
        return edges.straight_through() * dense_mask(jnp.exp(plain_sinkhorn(values(params), 6)), order)

    compare_with_dense(lambda params: spec.sample(key, params, allowed), dense, params, upstream)


def compare_with_dense(sample, dense, params, upstream):
    def value_and_gradient(function):
        def run(params):
            value, pullback = jax.vjp(function, params)
            return value, pullback(upstream)[0]

        return jax.jit(run)(params)

    graph, gradient = value_and_gradient(sample)
    expected_graph, expected_gradient = value_and_gradient(dense)
    np.testing.assert_allclose(graph, expected_graph, atol=1e-6)
    for found, expected in zip(gradient, expected_gradient, strict=True):
        assert np.abs(expected).max() > 0.01
        # Sums of some hundred float32 numbers of order one.
        np.testing.assert_allclose(found, expected, atol=2e-5)


def test_top_k_multiplies_no_matrices():
    params = TopKDags().init(jax.random.key(0), NODES)

    def objective(params):
        return TopKDags().sample(jax.random.key(1), params, no_self_loops(NODES)).sum()

    assert "dot_general" not in str(jax.make_jaxpr(jax.grad(objective))(params))


@pytest.mark.slow
def test_log_sinkhorn_is_the_plain_iteration():
    values = jnp.float32(np.random.default_rng(3).normal(size=(NODES, NODES)) * 2.0)
    found = log_sinkhorn(values, iterations=20)
    np.testing.assert_allclose(found, plain_sinkhorn(values, 20), atol=1e-5)
    np.testing.assert_allclose(jnp.exp(found).sum(axis=0), 1.0, atol=1e-5)
    # Twenty iterations bring the rows within a few parts in a thousand at this spread.
    np.testing.assert_allclose(jnp.exp(found).sum(axis=1), 1.0, atol=0.01)


def test_assignment_is_the_best_of_all_for_each_of_a_batch():
    values = np.random.default_rng(4).normal(size=(2, 3, 4, 4)).astype(np.float32)
    found = np.asarray(jax.jit(jax.vmap(jax.vmap(best_assignment)))(values))
    orders = np.array(list(permutations(range(4))))
    for batch in np.ndindex(2, 3):
        totals = values[batch][np.arange(4), orders].sum(axis=1)
        np.testing.assert_array_equal(found[batch], orders[np.argmax(totals)])


def test_host_order_of_sinkhorn_follows_its_logits():
    logits = np.zeros((3, 3), dtype=np.float32)
    # A rank (row) prefers its node (column) by about 20 nats; Gumbel noise of ten nats has probability 5e-5.
    logits[[0, 1, 2], [2, 0, 1]] = 20.0
    params = SinkhornParams(np.zeros((3, 3), dtype=np.float32), logits - 10.0)
    ranks = SinkhornDags().priorities(np.random.default_rng(0), params, 50)
    np.testing.assert_array_equal(ranks, np.tile([1.0, 2.0, 0.0], (50, 1)))


def test_sinkhorn_says_that_it_has_no_exact_marginals():
    params = SinkhornDags().init(jax.random.key(0), 3)
    assert not SinkhornDags.exact_marginals
    with pytest.raises(ConfigError, match="mean over sampled graphs"):
        SinkhornDags().edge_probabilities(params, no_self_loops(3))


def gumbel_divergence(locations, common):
    """KL between unit Gumbel variables with these locations, entry by entry, by quadrature."""

    def integrand(x, gap):
        log_q = -(x - gap) - np.exp(-(x - gap))
        return np.exp(log_q) * (log_q + x + np.exp(-x))

    gaps = (np.asarray(locations, dtype=np.float64) - common).ravel()
    return sum(quad(integrand, gap - 5.0, gap + 40.0, args=(gap,))[0] for gap in gaps)


@pytest.mark.slow
def test_top_k_order_divergence_is_the_smallest_between_scores():
    logits = np.array([1.2, -0.5, 0.3, 0.9], dtype=np.float32)
    params = TopKParams(np.zeros((4, 4), dtype=np.float32), logits)
    prior, allowed = DagPrior(0.3), no_self_loops(4)
    smallest = minimize(lambda shift: gumbel_divergence(logits, shift[0]), x0=[0.0], method="BFGS").fun
    found = float(TopKDags().kl(params, prior, allowed).order)
    assert found == pytest.approx(smallest, abs=1e-5)
    shifted = params._replace(order_logits=logits + 3.0)
    assert float(TopKDags().kl(shifted, prior, allowed).order) == pytest.approx(found, abs=1e-5)


def test_sinkhorn_order_divergence_is_the_smallest_between_scores():
    logits = np.random.default_rng(5).normal(size=(3, 3)).astype(np.float32)
    params = SinkhornParams(np.zeros((3, 3), dtype=np.float32), logits)
    spec = SinkhornDags(noise_factor=0.8)
    locations = log_expit(np.float64(logits)) / 0.8

    def divergence(effects):
        # Closed form of gumbel_divergence, which the test above holds against quadrature.
        gaps = locations - effects[:3, None] - effects[3:]
        return np.sum(gaps + np.exp(-gaps) - 1.0)

    smallest = minimize(divergence, x0=np.zeros(6), method="BFGS").fun
    found = float(spec.kl(params, DagPrior(0.3), no_self_loops(3)).order)
    assert found == pytest.approx(smallest, abs=1e-4)


@pytest.mark.slow
def test_sinkhorn_order_divergence_bounds_that_of_two_nodes():
    logits = np.array([[1.0, -2.0], [0.5, 1.5]], dtype=np.float32)
    params = SinkhornParams(np.zeros((2, 2), dtype=np.float32), logits)
    gap = np.trace(log_expit(logits)) - np.trace(log_expit(logits)[::-1])
    # The identity wins when a sum of two logistic variables (Gumbel differences) exceeds minus the gap.
    identity = quad(lambda x: expit(x) * expit(-x) * expit(x + gap), -40.0, 40.0)[0]
    exact = identity * np.log(2.0 * identity) + (1.0 - identity) * np.log(2.0 * (1.0 - identity))
    bound = float(SinkhornDags().kl(params, DagPrior(0.3), no_self_loops(2)).order)
    assert 0.05 < exact <= bound
    drawn = SinkhornDags().priorities(np.random.default_rng(1), params, 20_000)
    share = np.mean(drawn[:, 0] == 0.0)
    # Standard error sqrt(p (1 - p) / 20,000), at most 0.0036; four of them.
    assert abs(share - identity) < 4.0 * np.sqrt(identity * (1.0 - identity) / 20_000)
