"""Functional models: all nodes at once gives what one network a node would give."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vcuda.errors import ConfigError
from vcuda.models import MLP, Linear
from vcuda.models.functional.base import log_density

NODES, ROWS = 5, 7
MODELS = [Linear(), Linear(bias=False), MLP(hidden=(6,)), MLP(hidden=(6, 4)), MLP(hidden=(6,), bias=False)]


@pytest.fixture
def rows():
    return jax.random.normal(jax.random.key(1), (ROWS, NODES))


@pytest.fixture
def graph():
    return np.triu(np.random.default_rng(0).random((NODES, NODES)) < 0.6, 1).astype(np.float32)


def one_network_a_node(model, params, rows, graph):
    """Each node by itself, from inputs masked by its column of the graph, as the paper writes it."""
    functions = jax.tree.map(np.asarray, params.functions)
    predicted = np.zeros(rows.shape)
    for node in range(NODES):
        units = np.asarray(rows) * graph[:, node]
        if isinstance(model, Linear):
            predicted[:, node] = units @ functions.weights[:, node] + (functions.bias[node] if model.bias else 0)
            continue
        for layer, weights in enumerate(functions.weights):
            units = units @ (weights[:, node] if layer == 0 else weights[node])
            units = units + functions.biases[layer][node] if model.bias else units
            units = np.maximum(units, 0) if layer < len(functions.weights) - 1 else units
        predicted[:, node] = units[:, 0]
    return predicted


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS, ids=str)
def test_prediction_equals_one_network_a_node(model, rows, graph):
    params = model.init(jax.random.key(0), NODES)
    if isinstance(model, Linear) and model.bias:
        params = params._replace(functions=params.functions._replace(bias=jnp.arange(NODES, dtype=jnp.float32)))
    np.testing.assert_allclose(
        model.predict(params, rows, graph), one_network_a_node(model, params, rows, graph), atol=1e-5
    )


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS, ids=str)
def test_no_array_of_rows_by_nodes_by_nodes_is_made(model, rows, graph):
    params = model.init(jax.random.key(0), NODES)
    program = jax.make_jaxpr(jax.grad(lambda p: model.predict(p, rows, graph).sum()))(params)
    shapes = [tuple(out.aval.shape) for equation in program.eqns for out in equation.outvars]
    assert not any(ROWS in shape and shape.count(NODES) >= 2 for shape in shapes)


@pytest.mark.slow
def test_without_biases_a_network_of_one_parent_is_two_rays_through_the_origin(graph):
    model = MLP(hidden=(8,), bias=False)
    params = model.init(jax.random.key(0), NODES)
    rows = jax.random.normal(jax.random.key(2), (ROWS, NODES))
    np.testing.assert_allclose(
        model.predict(params, 3 * rows, graph), 3 * model.predict(params, rows, graph), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("noise", ["unit", "equal", "unequal"])
def test_log_density_is_gaussian_with_the_stated_variances(noise, rows, graph):
    model = Linear(noise=noise)
    params = model.init(jax.random.key(0), NODES)
    log_variance = jnp.full(params.log_variance.shape, 0.3) + 0.1 * jnp.arange(params.log_variance.size).reshape(
        params.log_variance.shape
    )
    params = params._replace(log_variance=log_variance)
    variance = np.ones(NODES) if noise == "unit" else np.broadcast_to(np.exp(log_variance), NODES)
    residual = np.asarray(rows - model.predict(params, rows, graph))
    expected = -0.5 * (residual**2 / variance + np.log(2 * np.pi * variance))
    np.testing.assert_allclose(log_density(model, params, rows, graph), expected, rtol=1e-4)


@pytest.mark.slow
def test_initial_weights_lie_within_the_authors_bounds():
    params = MLP(hidden=(16,)).init(jax.random.key(0), 9)
    first, last = params.functions.weights
    assert np.abs(first).max() <= 1 / 3
    assert np.abs(first).max() > 0.9 / 3
    assert 0.9 / 4 < np.abs(last).max() <= 1 / 4


@pytest.mark.parametrize(
    "make", [lambda: Linear(noise="none"), lambda: MLP(hidden=()), lambda: MLP(hidden=(0,)), lambda: MLP(noise=1)]
)
def test_impossible_specs_are_refused(make):
    with pytest.raises(ConfigError):
        make()
