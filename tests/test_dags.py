"""Every distribution over DAGs against the enumeration of all DAGs of three and four nodes."""

from functools import partial
from itertools import permutations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.integrate import cumulative_simpson, quad
from scipy.special import expit

from vcuda.dags import DAG_DISTRIBUTIONS
from vcuda.dags.base import DagPrior, edge_entropy, no_self_loops
from vcuda.dags.bulk import BulkSampler
from vcuda.dags.permutation import SinkhornDags, SinkhornParams, TopKDags, TopKParams
from vcuda.dags.priority import PriorityDags, PriorityParams
from vcuda.graphs import enumerate_dags, is_acyclic_edges

NODES = (3, 4)
SCALES = {"shared": np.float32(-0.2), "per_node": np.array([-0.2, 0.3, -0.5, 0.1], dtype=np.float32)}
MEANS = np.array([0.5, -0.4, 0.1, -0.8], dtype=np.float32)
CASES = ("priority", "priority per node", "topk", "sinkhorn")


def case(name, nodes):
    """Spec and parameters, with unequal ones for the order; Sinkhorn's order law is known only at zero."""
    edge_logits = np.random.default_rng(nodes).uniform(-1.5, 1.5, (nodes, nodes)).astype(np.float32)
    if name == "topk":
        return TopKDags(), TopKParams(edge_logits, 1.5 * MEANS[:nodes])
    if name == "sinkhorn":
        return SinkhornDags(), SinkhornParams(edge_logits, np.zeros((nodes, nodes), dtype=np.float32))
    scale = "per_node" if name.endswith("per node") else "shared"
    log_scale = SCALES[scale] if scale == "shared" else SCALES[scale][:nodes]
    return PriorityDags(scale=scale), PriorityParams(edge_logits, MEANS[:nodes], log_scale)


def order_law(params):
    """All orders of the nodes with the probability of each, by closed form or quadrature."""
    nodes = len(params.edge_logits)
    orders = np.array(list(permutations(range(nodes))))
    if isinstance(params, PriorityParams):
        return orders, np.array([gaussian_order_probability(order, params) for order in orders])
    if isinstance(params, TopKParams):
        weights = np.exp(params.order_logits.astype(np.float64))
        return orders, np.array([plackett_luce_probability(weights[order]) for order in orders])
    return orders, np.full(len(orders), 1.0 / len(orders))


def gaussian_order_probability(order, params):
    """P(p_1 < p_2 < ...) by nested integrals, from the lowest priority upwards."""
    grid = np.linspace(-9.0, 9.0, 4001)
    scales = np.exp(np.broadcast_to(params.log_scale, params.means.shape).astype(np.float64))
    below = np.ones_like(grid)
    for node in order:
        density = stats.norm.pdf(grid, params.means[node], scales[node])
        below = cumulative_simpson(density * below, x=grid, initial=0.0)
    return below[-1]


def plackett_luce_probability(weights):
    """Probability of choosing in this order, each time among those that are left."""
    return np.prod(weights / np.cumsum(weights[::-1])[::-1])


def dag_law(edge_probabilities, orders, order_probabilities):
    """All DAGs with the probability of each: summed over orders, a product over the pairs they admit."""
    dags = enumerate_dags(orders.shape[1])
    total = np.zeros(len(dags))
    for order, probability in zip(orders, order_probabilities, strict=True):
        rank = np.argsort(order)
        admitted = rank[:, None] < rank[None, :]
        possible = ~np.any(dags & ~admitted, axis=(1, 2))
        by_pair = np.where(dags, edge_probabilities, 1.0 - edge_probabilities)
        total += probability * possible * np.prod(np.where(admitted, by_pair, 1.0), axis=(1, 2))
    return dags, total


def codes(graphs):
    """One integer for each graph of at most seven nodes."""
    flat = np.asarray(graphs).astype(bool).reshape(len(graphs), -1)
    return flat @ (1 << np.arange(flat.shape[1]))


def chi_square_p_value(graphs, dags, graph_posterior):
    """Pearson's test that the graphs follow the law; DAGs expected fewer than five times share one cell."""
    by_code = dict(zip(*np.unique(codes(graphs), return_counts=True), strict=True))
    observed = np.array([by_code.pop(code, 0) for code in codes(dags).tolist()])
    assert not by_code, "a sample is not a DAG"
    expected = graph_posterior * len(graphs)
    rare = expected < 5.0
    if rare.any():
        observed = np.append(observed[~rare], observed[rare].sum())
        expected = np.append(expected[~rare], expected[rare].sum())
    return stats.chisquare(observed, expected).pvalue


@partial(jax.jit, static_argnums=0)
def sample_keys(spec, keys, params, allowed):
    return jax.vmap(lambda key: spec.sample(key, params, allowed))(keys)


def sample_compiled(spec, params, allowed, size, seed):
    return np.asarray(sample_keys(spec, jax.random.split(jax.random.key(seed), size), params, allowed))


def sample_bulk_sparse(spec, params, allowed, size, seed):
    rng = np.random.default_rng(seed)
    sampler = BulkSampler.from_probabilities(expit(params.edge_logits) * allowed)
    lists = sampler.sample_many(rng, spec.priorities(rng, params, size))
    graphs = np.zeros((size, *allowed.shape), dtype=bool)
    graphs[np.repeat(np.arange(size), lists.counts), lists.sources, lists.targets] = True
    return graphs


def sample_bulk_dense(spec, params, allowed, size, seed):
    rng = np.random.default_rng(seed)
    sampler = BulkSampler.from_probabilities(expit(params.edge_logits) * allowed)
    return np.stack([sampler.sample_dense(rng, p) for p in spec.priorities(rng, params, size)])


@pytest.mark.parametrize("nodes", NODES)
@pytest.mark.parametrize("name", CASES)
def test_every_dag_is_reachable_and_probabilities_sum_to_one(name, nodes):
    spec, params = case(name, nodes)
    dags, graph_posterior = dag_law(expit(params.edge_logits.astype(np.float64)), *order_law(params))
    assert len(dags) == {3: 25, 4: 543}[nodes]
    assert np.all(graph_posterior > 0.0)
    # Simpson's rule with steps of 0.0045 leaves an error far below 1e-8.
    assert graph_posterior.sum() == pytest.approx(1.0, abs=1e-8)
    if spec.exact_marginals:
        marginals = spec.edge_probabilities(params, no_self_loops(nodes))
        # float32: relative errors of a few 1e-7, on probabilities below one.
        np.testing.assert_allclose(marginals, np.tensordot(graph_posterior, dags, axes=1), atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sampler", "nodes", "size"),
    [
        (sample_compiled, 4, 40_000),
        (sample_bulk_sparse, 3, 20_000),
        (sample_bulk_sparse, 4, 40_000),
        (sample_bulk_dense, 3, 3_000),
    ],
)
@pytest.mark.parametrize("name", CASES)
def test_sampled_frequencies_follow_the_law(name, sampler, nodes, size):
    spec, params = case(name, nodes)
    edges = expit(params.edge_logits.astype(np.float64))
    orders, order_probabilities = order_law(params)
    graphs = sampler(spec, params, no_self_loops(nodes), size, seed=nodes)
    # At a fixed seed; a right sampler fails one seed in a thousand, and 16 cases share this line.
    assert chi_square_p_value(graphs, *dag_law(edges, orders, order_probabilities)) > 1e-3
    if name != "sinkhorn" and size > 10_000:
        # The test has the power to tell the order's law from the uniform one.
        uniform = np.full(len(orders), 1.0 / len(orders))
        assert chi_square_p_value(graphs, *dag_law(edges, orders, uniform)) < 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("sampler", [sample_compiled, sample_bulk_sparse])
@pytest.mark.parametrize("name", CASES)
def test_forbidden_edges_leave_the_law_of_the_others(name, sampler):
    spec, params = case(name, 4)
    allowed = no_self_loops(4)
    allowed[0, 1] = allowed[2, 0] = allowed[3, 2] = False
    graphs = sampler(spec, params, allowed, 40_000, seed=5)
    assert not np.any(graphs.astype(bool) & ~allowed)
    dags, graph_posterior = dag_law(expit(params.edge_logits.astype(np.float64)) * allowed, *order_law(params))
    possible = graph_posterior > 0.0
    assert chi_square_p_value(graphs, dags[possible], graph_posterior[possible]) > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_divergence_of_edges_is_that_of_all_indicator_matrices(name):
    spec, params = case(name, 3)
    allowed = no_self_loops(3)
    allowed[1, 2] = False
    prior = DagPrior(edge_probability=0.2, order_scale=0.7)
    q = expit(params.edge_logits.astype(np.float64))[allowed]
    indicators = np.array(np.meshgrid(*[[0, 1]] * 5)).reshape(5, -1).T
    posterior = np.prod(np.where(indicators, q, 1.0 - q), axis=1)
    before = np.prod(np.where(indicators, 0.2, 0.8), axis=1)
    expected = np.sum(posterior * np.log(posterior / before))
    assert float(spec.kl(params, prior, allowed).edges) == pytest.approx(expected, rel=1e-5)
    assert float(edge_entropy(params.edge_logits, allowed)) == pytest.approx(
        -np.sum(posterior * np.log(posterior)), rel=1e-5
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["priority", "priority per node"])
def test_divergence_and_entropy_of_priorities_are_the_integrals(name):
    spec, params = case(name, 4)
    scales = np.exp(np.broadcast_to(params.log_scale, params.means.shape).astype(np.float64))
    kl = entropy = 0.0
    for mean, scale in zip(params.means, scales, strict=True):
        q, before = stats.norm(mean, scale), stats.norm(0.0, 0.7)
        kl += quad(lambda x, q=q, before=before: q.pdf(x) * (q.logpdf(x) - before.logpdf(x)), -9.0, 9.0)[0]
        entropy -= quad(lambda x, q=q: q.pdf(x) * q.logpdf(x), -9.0, 9.0)[0]
    allowed = no_self_loops(4)
    prior = DagPrior(edge_probability=0.2, order_scale=0.7)
    assert float(spec.kl(params, prior, allowed).order) == pytest.approx(kl, rel=1e-5)
    assert float(spec.entropy(params, allowed).order) == pytest.approx(entropy, rel=1e-5)


@pytest.mark.parametrize("nodes", NODES)
@pytest.mark.parametrize("name", CASES)
def test_divergence_bounds_that_of_orders_and_of_graphs(name, nodes):
    spec, params = case(name, nodes)
    prior = DagPrior(edge_probability=0.3, order_scale=0.8)
    kl = spec.kl(params, prior, no_self_loops(nodes))
    orders, probabilities = order_law(params)
    uniform = np.full(len(orders), 1.0 / len(orders))
    of_orders = np.sum(probabilities * np.log(probabilities / uniform))
    assert of_orders <= float(kl.order) + 1e-6
    _, graph_posterior = dag_law(expit(params.edge_logits.astype(np.float64)), orders, probabilities)
    _, prior_law = dag_law(np.full((nodes, nodes), 0.3), orders, uniform)
    of_graphs = np.sum(graph_posterior * np.log(graph_posterior / prior_law))
    assert 0.0 < of_graphs <= float(kl.edges) + of_orders


@pytest.mark.slow
@pytest.mark.parametrize("name", DAG_DISTRIBUTIONS)
def test_ten_thousand_graphs_are_all_acyclic_and_depend_on_the_key_alone(name):
    nodes, size = 15, 10_000
    spec = DAG_DISTRIBUTIONS[name]()
    params = spec.init(jax.random.key(2), nodes)
    graphs = sample_compiled(spec, params, no_self_loops(nodes), size, seed=3)
    assert graphs.dtype == np.float32
    assert set(np.unique(graphs)) == {0.0, 1.0}
    which, sources, targets = np.nonzero(graphs)
    # The graphs side by side are one graph, which has a cycle when one of them has.
    assert is_acyclic_edges(which * nodes + sources, which * nodes + targets, nodes * size)
    again = sample_compiled(DAG_DISTRIBUTIONS[name](), params, no_self_loops(nodes), size, seed=3)
    np.testing.assert_array_equal(graphs, again)
    other = sample_compiled(spec, params, no_self_loops(nodes), size, seed=4)
    assert not np.any(np.all(graphs == other, axis=(1, 2)))


@pytest.mark.parametrize("name", DAG_DISTRIBUTIONS)
def test_priorities_depend_on_the_generator_alone(name):
    spec = DAG_DISTRIBUTIONS[name]()
    params = jax.device_get(spec.init(jax.random.key(0), 6))
    drawn = [spec.priorities(np.random.default_rng(seed), params, 5) for seed in (7, 7, 8)]
    np.testing.assert_array_equal(drawn[0], drawn[1])
    assert not np.array_equal(drawn[0], drawn[2])
    assert drawn[0].shape == (5, 6)


@pytest.mark.slow
@pytest.mark.parametrize("name", DAG_DISTRIBUTIONS)
def test_forbidden_edges_have_no_gradient_whatever_their_logit(name):
    spec = DAG_DISTRIBUTIONS[name]()
    allowed = no_self_loops(5)
    allowed[0, 3] = allowed[2, 1] = False
    params = spec.init(jax.random.key(0), 5)
    params = params._replace(edge_logits=jnp.where(allowed, params.edge_logits, jnp.inf))
    prior = DagPrior.for_nodes(5)

    def objective(params):
        weights = jnp.arange(25.0).reshape(5, 5)
        return jnp.sum(weights * spec.sample(jax.random.key(1), params, allowed)) + sum(spec.kl(params, prior, allowed))

    value, gradient = jax.jit(jax.value_and_grad(objective))(params)
    assert np.isfinite(value)
    assert all(np.all(np.isfinite(leaf)) for leaf in gradient)
    np.testing.assert_array_equal(np.asarray(gradient.edge_logits)[~allowed], 0.0)
    assert np.all(np.asarray(gradient.edge_logits)[allowed] != 0.0)
