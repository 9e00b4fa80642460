"""The paper's distribution: gradients against a reference by hand, its options, and its relaxations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.special import expit, logit

from vcuda.dags import priority
from vcuda.dags.base import DagPrior, no_self_loops
from vcuda.dags.permutation import SinkhornDags, TopKDags
from vcuda.dags.priority import PriorityDags, PriorityNoise, PriorityParams
from vcuda.dags.relaxation import LARGE, bernoulli, sigmoid_slope, straight_through, uniform_noise
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_only_the_product_variant_teaches_edges_against_the_order():
    noise = PriorityNoise(jnp.zeros((2, 2)), jnp.zeros(2))
    params = PriorityParams(jnp.full((2, 2), 0.5), jnp.array([0.0, 1.0]), jnp.array(0.0))

    def gradient(variant):
        spec = PriorityDags(straight_through=variant)
        return jax.grad(lambda params: spec.graph(params, noise, no_self_loops(2)).sum())(params).edge_logits

    assert gradient("product")[1, 0] > 0.0
    assert gradient("factors")[1, 0] == 0.0
    assert gradient("factors")[0, 1] > 0.0


@pytest.mark.slow
def test_sampling_uses_the_noise_of_its_key():
    spec, allowed = PriorityDags(), no_self_loops(5)
    params = spec.init(jax.random.key(0), 5)
    key = jax.random.key(1)
    np.testing.assert_array_equal(spec.sample(key, params, allowed), spec.graph(params, spec.noise(key, 5), allowed))


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(5, 6), (300, 257)])
def test_uniform_noise_is_that_of_jax(shape):
    key = jax.random.key(3)
    with jax.threefry_partitionable(True):
        expected = jax.random.uniform(key, shape, minval=jnp.finfo(jnp.float32).tiny)
        np.testing.assert_array_equal(jax.jit(uniform_noise, static_argnums=1)(key, shape), expected)


@pytest.mark.slow
@pytest.mark.parametrize(("nodes", "tolerance"), [(40, 0.0), (255, 0.0), (256, 3e-7)])
def test_edge_noise_is_the_logistic_noise_of_jax(nodes, tolerance):
    key = jax.random.key(4)
    with jax.threefry_partitionable(True):
        expected = jax.random.logistic(key, (nodes + 1, nodes))[:nodes]
        found = PriorityDags().noise(key, nodes).edges
    # Many numbers are drawn with one logarithm in place of two: an error of float32, of numbers up to 16.
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.slow
def test_a_large_graph_needs_no_particular_generator():
    spec, allowed = PriorityDags(), no_self_loops(256)
    params = spec.init(jax.random.key(0), 256)
    first, again, other = (spec.sample(jax.random.key(seed, impl="rbg"), params, allowed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.slow
def test_a_large_graph_depends_on_its_key_alone():
    spec, allowed = PriorityDags(), no_self_loops(256)
    params = spec.init(jax.random.key(0), 256)
    keys = jax.random.split(jax.random.key(1), 3)
    together = jax.jit(jax.vmap(lambda key: spec.sample(key, params, allowed)))(keys)
    for key, graph in zip(keys, together, strict=True):
        np.testing.assert_array_equal(graph, spec.sample(key, params, allowed))
        np.testing.assert_array_equal(graph, spec.graph(params, spec.noise(key, 256), allowed))
    assert not np.array_equal(together[0], together[1])


@pytest.mark.slow
@pytest.mark.parametrize("scale", ["shared", "per_node"])
@pytest.mark.parametrize("variant", ["product", "factors"])
def test_large_graphs_and_their_gradient_are_those_of_small_ones(variant, scale, monkeypatch):
    rng = np.random.default_rng(6)
    nodes = 260
    spec = PriorityDags(straight_through=variant, scale=scale, order_temperature=0.4, edge_temperature=0.7)
    allowed = no_self_loops(nodes) & (rng.random((nodes, nodes)) < 0.9)
    logits = rng.normal(size=(nodes, nodes))
    logits[~allowed] = np.inf
    params = PriorityParams(
        jnp.float32(logits),
        jnp.float32(rng.normal(size=nodes)).at[3].set(0.5).at[4].set(0.5),
        jnp.float32(rng.normal(size=() if scale == "shared" else nodes) * 0.3),
    )
    noise = spec.noise(jax.random.key(7), nodes)
    # A tie, which admits neither edge, whatever the scales are.
    noise = noise._replace(priorities=noise.priorities.at[3].set(0.0).at[4].set(0.0))
    upstream = jnp.float32(rng.normal(size=(nodes, nodes)))

    def graph_and_gradient():
        graph, pullback = jax.vjp(lambda params, noise: spec.graph(params, noise, allowed), params, noise)
        return graph, *jax.tree.leaves(pullback(upstream))

    # Stripes of 70 rows, the last one of 50.
    monkeypatch.setattr(priority, "STRIPE_ENTRIES", 70 * nodes)
    large = graph_and_gradient()
    monkeypatch.setattr(priority, "LARGE", nodes**2 + 1)
    small = graph_and_gradient()
    np.testing.assert_array_equal(large[0], small[0])
    assert large[0][3, 4] == large[0][4, 3] == 0.0
    for found, expected in zip(large[1:], small[1:], strict=True):
        # Sums of at most 67,600 float32 numbers of order one, most of them of 520.
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=2e-4 if expected.ndim < 2 else 1e-6)
    expected_graph, expected_gradient = reference_gradient(
        spec, params._replace(edge_logits=jnp.where(allowed, params.edge_logits, 0.0)), noise, allowed, upstream
    )
    np.testing.assert_array_equal(large[0], expected_graph)
    for found, expected in zip(large[1:4], expected_gradient, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=2e-4 if expected.ndim < 2 else 1e-6)


@pytest.mark.slow
def test_edges_of_large_graphs_have_their_probabilities():
    nodes, graphs = 512, 100
    levels = np.array([1e-5, 1e-4, 1e-3, 0.02, 0.3, 0.5, 0.9, 0.999, 0.9999, 0.99999])
    assert nodes**2 >= LARGE
    by_pair = np.arange(nodes**2).reshape(nodes, nodes) % len(levels)
    # Priorities that leave no doubt of the order: the pairs above the diagonal are drawn, each by itself.
    spec, scale = PriorityDags(), jnp.float32(np.log(1e-3))
    params = PriorityParams(jnp.float32(logit(levels)[by_pair]), jnp.arange(nodes, dtype=jnp.float32), scale)

    def add_graph(total, key):
        return total + spec.sample(key, params, no_self_loops(nodes)), None

    keys = jax.random.split(jax.random.key(8), graphs)
    total = np.asarray(jax.jit(lambda: jax.lax.scan(add_graph, jnp.zeros((nodes, nodes)), keys)[0])())
    admitted = np.triu(np.ones((nodes, nodes), dtype=bool), 1)
    assert not np.any(total[~admitted])
    trials = graphs * np.bincount(by_pair[admitted])
    drawn = np.bincount(by_pair[admitted], weights=total[admitted])
    # Uniform numbers are multiples of 2^-23, so that a probability is right to 1.2e-7: 0.05 standard errors at 1e-5.
    p_values = [
        stats.binomtest(int(found), int(many), level).pvalue
        for found, many, level in zip(drawn, trials, levels, strict=True)
    ]
    # At a fixed seed; a right sampler fails one seed in a hundred.
    assert min(p_values) > 1e-3
    scores = (drawn - trials * levels) / np.sqrt(trials * levels * (1.0 - levels))
    assert stats.chi2.sf(np.sum(scores**2), len(levels)) > 1e-3
    # The pairs of one level differ from each other no more than binomial counts do.
    for level in (4, 5, 6):
        counts = total[admitted & (by_pair == level)]
        spread = np.sum((counts - graphs * levels[level]) ** 2) / (graphs * levels[level] * (1.0 - levels[level]))
        # Chi-square with about 13,000 degrees of freedom, nearly normal with variance twice that; four deviations.
        assert abs(spread - len(counts)) < 4.0 * np.sqrt(2.0 * len(counts))


def test_slope_of_the_sigmoid_is_exact_on_both_sides():
    values = np.array([-80.0, -20.0, -3.0, 0.0, 0.5, 20.0, 80.0])
    expected = expit(values) * expit(-values)
    np.testing.assert_allclose(sigmoid_slope(jnp.float32(values)), expected, rtol=1e-5)


@pytest.mark.slow
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


@pytest.mark.slow
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
