"""The paper's distribution: gradients against a reference by hand, its options, and its relaxations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit

from vcuda.dags.base import DagPrior, no_self_loops
from vcuda.dags.permutation import SinkhornDags, TopKDags
from vcuda.dags.priority import PriorityDags, PriorityNoise, PriorityParams
from vcuda.dags.relaxation import bernoulli, straight_through
from vcuda.errors import ConfigError


def reference_gradient(spec, params, noise, allowed, upstream):
    """Graph and gradient of both straight-through variants, differentiated by hand, in float64."""
    logits, means = np.float64(params.edge_logits), np.float64(params.means)
    scale = np.exp(np.float64(params.log_scale))
    edges_soft = expit((logits + noise.edges) / spec.edge_temperature)
    edges_hard = np.where(allowed, edges_soft > 0.5, 0.0)
    priorities = means + scale * noise.priorities
    gaps = priorities[None, :] - priorities[:, None]
    order_soft = expit(gaps / spec.order_temperature)
    order_hard = np.where(gaps > 0.0, 1.0, 0.0)
    seen_by_edges = order_soft if spec.straight_through == "product" else order_hard
    to_edges = np.where(allowed, upstream * seen_by_edges, 0.0)
    to_logits = to_edges * edges_soft * (1.0 - edges_soft) / spec.edge_temperature
    to_gaps = upstream * edges_hard * order_soft * (1.0 - order_soft) / spec.order_temperature
    to_priorities = to_gaps.sum(axis=0) - to_gaps.sum(axis=1)
    to_log_scale = to_priorities * scale * noise.priorities
    if np.ndim(params.log_scale) == 0:
        to_log_scale = to_log_scale.sum()
    return edges_hard * order_hard, PriorityParams(to_logits, to_priorities, to_log_scale)


@pytest.mark.parametrize("scale", ["shared", "per_node"])
@pytest.mark.parametrize("variant", ["product", "factors"])
def test_straight_through_gradient_is_the_reference(variant, scale):
    rng = np.random.default_rng(0)
    nodes = 6
    spec = PriorityDags(straight_through=variant, scale=scale, order_temperature=0.4, edge_temperature=0.7)
    allowed = no_self_loops(nodes)
    allowed[1, 4] = allowed[3, 0] = False
    params = PriorityParams(
        jnp.float32(rng.normal(size=(nodes, nodes))),
        jnp.float32(rng.normal(size=nodes)),
        jnp.float32(rng.normal(size=() if scale == "shared" else nodes) * 0.3),
    )
    noise = PriorityNoise(jnp.float32(rng.logistic(size=(nodes, nodes))), jnp.float32(rng.normal(size=nodes)))
    upstream = jnp.float32(rng.normal(size=(nodes, nodes)))
    graph, pullback = jax.vjp(lambda params: spec.graph(params, noise, allowed), params)
    expected_graph, expected_gradient = reference_gradient(spec, params, noise, allowed, upstream)
    np.testing.assert_array_equal(graph, expected_graph)
    assert graph.sum() > 0
    for found, expected in zip(pullback(upstream)[0], expected_gradient, strict=True):
        # Sums of at most 36 float32 numbers of order one.
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def test_only_the_product_variant_teaches_edges_against_the_order():
    noise = PriorityNoise(jnp.zeros((2, 2)), jnp.zeros(2))
    params = PriorityParams(jnp.full((2, 2), 0.5), jnp.array([0.0, 1.0]), jnp.array(0.0))

    def gradient(variant):
        spec = PriorityDags(straight_through=variant)
        return jax.grad(lambda params: spec.graph(params, noise, no_self_loops(2)).sum())(params).edge_logits

    assert gradient("product")[1, 0] > 0.0
    assert gradient("factors")[1, 0] == 0.0
    assert gradient("factors")[0, 1] > 0.0


def test_sampling_uses_the_noise_of_its_key():
    spec, allowed = PriorityDags(), no_self_loops(5)
    params = spec.init(jax.random.key(0), 5)
    key = jax.random.key(1)
    np.testing.assert_array_equal(spec.sample(key, params, allowed), spec.graph(params, spec.noise(key, 5), allowed))


def test_initial_parameters_are_those_of_the_authors():
    params = PriorityDags().init(jax.random.key(0), 200)
    assert params.edge_logits.shape == (200, 200)
    assert 0.0 <= params.edge_logits.min() < 0.001
    assert 0.999 < params.edge_logits.max() <= 1.0
    # Four standard errors of 200 normal draws: 4 / sqrt(200) for the mean, 4 / sqrt(400) for the deviation.
    assert abs(params.means.mean()) < 0.29
    assert abs(params.means.std() - 1.0) < 0.2
    assert params.log_scale.shape == ()
    assert params.log_scale == 0.0


def test_initial_parameters_can_be_chosen():
    spec = PriorityDags(
        scale="per_node",
        initial_logit_low=-3.0,
        initial_logit_high=-2.0,
        initial_mean_scale=0.01,
        initial_scale=0.1,
    )
    params = spec.init(jax.random.key(0), 50)
    assert -3.0 <= params.edge_logits.min() <= params.edge_logits.max() <= -2.0
    assert 0.005 < params.means.std() < 0.02
    np.testing.assert_allclose(params.log_scale, np.full(50, np.log(0.1)), rtol=1e-6)


def test_relaxed_bernoulli_is_the_two_class_gumbel_softmax():
    rng = np.random.default_rng(1)
    logits, first, second = rng.normal(size=(3, 50))
    gumbels = -np.log(-np.log(expit(np.stack([first, second]))))
    classes = (np.stack([np.log(expit(logits)), np.log(expit(-logits))]) + gumbels) / 0.7
    expected = np.exp(classes[0]) / np.exp(classes).sum(axis=0)
    found = bernoulli(jnp.float32(logits), jnp.float32(gumbels[0] - gumbels[1]), temperature=0.7)
    np.testing.assert_allclose(found.soft, expected, rtol=1e-5)
    np.testing.assert_array_equal(found.hard, expected > 0.5)


def test_straight_through_value_is_exact_where_the_soft_form_is_not_finite():
    value, slope = jax.value_and_grad(lambda x: straight_through(jnp.float32(1.0), jnp.log(x)))(jnp.float32(0.0))
    assert value == 1.0
    assert slope == np.inf


def test_prior_expects_one_parent_by_default():
    for nodes in (5, 20, 101):
        prior = DagPrior.for_nodes(nodes)
        # Each of the other nodes comes before with probability one half.
        assert prior.edge_probability / 2 * (nodes - 1) == pytest.approx(1.0)
    assert DagPrior.for_nodes(3).edge_probability == 0.5
    assert DagPrior.for_nodes(1).edge_probability == 0.5
    assert DagPrior.for_nodes(41, expected_parents=2.0, order_scale=0.01) == DagPrior(0.1, 0.01)


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: PriorityDags(order_temperature=0.0), "order_temperature"),
        (lambda: PriorityDags(edge_temperature=float("nan")), "edge_temperature"),
        (lambda: PriorityDags(straight_through="both"), "straight_through"),
        (lambda: PriorityDags(scale="each"), "scale"),
        (lambda: PriorityDags(initial_scale=-1.0), "initial_scale"),
        (lambda: TopKDags(order_temperature=-1.0), "order_temperature"),
        (lambda: SinkhornDags(iterations=0), "iterations"),
        (lambda: SinkhornDags(noise_factor=float("inf")), "noise_factor"),
        (lambda: DagPrior(0.0), "edge_probability"),
        (lambda: DagPrior(1.0), "edge_probability"),
        (lambda: DagPrior(0.1, order_scale=0.0), "order_scale"),
        (lambda: DagPrior.for_nodes(5, expected_parents=0.0), "expected_parents"),
    ],
)
def test_impossible_options_are_refused_by_name(make, named):
    with pytest.raises(ConfigError, match=named):
        make()
