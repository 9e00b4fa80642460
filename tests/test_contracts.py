"""One list of promises, and everything that must keep them."""

import json
import warnings

import jax
import numpy as np
import pytest

import vcuda
from vcuda.dags import DAG_DISTRIBUTIONS
from vcuda.dags.base import no_self_loops
from vcuda.graphs import is_dag
from vcuda.models import MODELS
from vcuda.specs import from_json, to_json

NODES = 5
SPECS = [(spec(), DAG_DISTRIBUTIONS) for spec in DAG_DISTRIBUTIONS.values()] + [
    (spec(), MODELS) for spec in MODELS.values()
]


@pytest.mark.parametrize(("spec", "known"), SPECS, ids=lambda value: getattr(value, "name", ""))
def test_a_spec_survives_json_and_is_hashable(spec, known):
    again = from_json(json.loads(json.dumps(to_json(spec))), known)
    assert again == spec
    assert hash(again) == hash(spec)


@pytest.mark.parametrize("family", [spec() for spec in DAG_DISTRIBUTIONS.values()], ids=lambda family: family.name)
class TestDagDistributions:
    def test_every_sample_is_an_allowed_dag(self, family):
        params = family.init(jax.random.key(0), NODES)
        allowed = no_self_loops(NODES)
        allowed[0, 1] = allowed[3, 2] = False
        graphs = jax.vmap(lambda key: family.sample(key, params, allowed))(jax.random.split(jax.random.key(1), 200))
        assert set(np.unique(graphs)) <= {0.0, 1.0}
        assert all(is_dag(np.asarray(graph) > 0) for graph in graphs)
        assert not np.asarray(graphs)[:, ~allowed].any()

    def test_compiled_equals_eager(self, family):
        params = family.init(jax.random.key(0), NODES)
        allowed = no_self_loops(NODES)
        eager = family.sample(jax.random.key(2), params, allowed)
        np.testing.assert_array_equal(jax.jit(family.sample)(jax.random.key(2), params, allowed), eager)

    def test_the_gradient_is_finite_and_not_nothing(self, family):
        params = family.init(jax.random.key(0), NODES)
        target = np.random.default_rng(0).normal(size=(NODES, NODES)).astype(np.float32)
        slope = jax.grad(lambda p: (family.sample(jax.random.key(3), p, no_self_loops(NODES)) * target).sum())(params)
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(slope))
        assert all(np.abs(leaf).max() > 0 for leaf in jax.tree.leaves(slope))


@pytest.mark.parametrize("model", [spec() for spec in MODELS.values()], ids=lambda model: model.name)
class TestModels:
    def test_only_parents_matter(self, model):
        graph = np.zeros((NODES, NODES), np.float32)
        graph[0, 1] = graph[1, 2] = 1
        params = model.init(jax.random.key(0), NODES)
        rows = np.random.default_rng(0).normal(size=(4, NODES)).astype(np.float32)
        before = model.predict(params, rows, graph)
        rows[:, 3] += 10  # a parent of nobody
        rows[:, 0] += 1  # a parent of node 1 alone
        changed = np.abs(np.asarray(model.predict(params, rows, graph) - before)).max(axis=0) > 1e-6
        assert changed.tolist() == [False, True, False, False, False]

    def test_compiled_equals_eager(self, model):
        params = model.init(jax.random.key(0), NODES)
        rows = np.random.default_rng(0).normal(size=(4, NODES)).astype(np.float32)
        graph = np.triu(np.ones((NODES, NODES), np.float32), 1)
        np.testing.assert_allclose(
            jax.jit(model.predict)(params, rows, graph), model.predict(params, rows, graph), rtol=1e-5, atol=1e-6
        )


FITS = {
    "straight-through linear": {
        "model": "linear",
        "engine": vcuda.StraightThrough(epochs=10, restarts=2, graph_samples=1),
    },
    "straight-through mlp": {"model": "mlp", "engine": vcuda.StraightThrough(epochs=10, restarts=2, graph_samples=1)},
    "paper linear": {"model": "linear", "engine": vcuda.StraightThrough.paper(epochs=10, batch_size=32)},
    "exact linear equal": {"model": "linear", "noise": "equal", "engine": "exact"},
    "exact linear unequal": {"model": "linear", "engine": vcuda.Exact(samples=200)},
    "orders linear equal": {"model": "linear", "noise": "equal", "engine": "orders"},
    "orders linear unequal": {"model": "linear", "engine": vcuda.Orders(sweeps=50, max_sweeps=100)},
    "variational linear equal": {"model": "linear", "noise": "equal", "engine": vcuda.Variational(steps=40)},
    "variational linear unequal": {"model": "linear", "engine": vcuda.Variational(steps=40, restarts=4)},
    "variational additive": {"model": "additive", "engine": vcuda.Variational(steps=40)},
    "auto": {},
    "exact gp": {"model": "gp", "engine": "exact"},
    "exact additive": {"model": "additive", "engine": "exact"},
}


@pytest.mark.parametrize("options", FITS.values(), ids=FITS)
def test_every_engine_keeps_the_promises(options, tmp_path):
    table = vcuda.simulate("sf", nodes=NODES, edges=NODES, rows=80, test_rows=10, seed=5).train
    before = table.values.copy()

    def fitted(seed):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", vcuda.ConvergenceWarning)
            return vcuda.fit(table, seed=seed, **options)

    posterior = fitted(1)
    assert posterior.names == table.names
    graphs = posterior.sample(100, seed=0)
    assert graphs.all_acyclic()
    np.testing.assert_array_equal(posterior.edge_probabilities, fitted(1).edge_probabilities)
    assert not np.array_equal(graphs.dense(), fitted(2).sample(100, seed=0).dense())
    np.testing.assert_array_equal(table.values, before)
    assert json.loads(json.dumps(posterior.provenance)) == posterior.provenance
    posterior.save(tmp_path / "run")
    again = vcuda.Posterior.load(tmp_path / "run")
    np.testing.assert_array_equal(again.edge_probabilities, posterior.edge_probabilities)
    np.testing.assert_array_equal(again.sample(100, seed=0).dense(), graphs.dense())
