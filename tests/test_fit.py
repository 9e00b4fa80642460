"""The verb ``fit``: names become specs, presets are the authors', nonsense is refused."""

import warnings

import numpy as np
import pytest

import vcuda
from vcuda.errors import ConfigError


@pytest.fixture(scope="module")
def table():
    return vcuda.simulate("er", nodes=4, edges=4, rows=60, test_rows=10, seed=0).train


@pytest.fixture
def fitted(monkeypatch, table):
    """What ``fit`` would run, without running it."""
    from vcuda.infer import fit as module

    def run(**options):
        seen = {}

        def record(engine, data, **arguments):
            seen.update(arguments, engine=engine)
            raise StopIteration

        monkeypatch.setattr(module, "run_variational", record)
        with pytest.raises(StopIteration):
            vcuda.fit(table, **options)
        return seen

    return run


def test_the_paper_preset_is_the_authors_program(fitted):
    linear, nonlinear = fitted(preset="paper"), fitted(preset="paper", model="mlp")
    assert linear["engine"].batch_size == 64
    assert nonlinear["engine"].batch_size == 256
    for run in (linear, nonlinear):
        assert (run["model"].noise, run["model"].bias) == ("unit", False)
        assert run["prior"] == vcuda.DagPrior(edge_probability=0.1, order_scale=0.1)
        engine = run["engine"]
        assert (engine.epochs, engine.learning_rate, engine.graph_learning_rate) == (500, 5e-3, 1e-2)
        assert (engine.graph_samples, engine.restarts, engine.weight_decay) == (1, 1, 1e-4)
        assert (engine.dags.order_temperature, engine.dags.edge_temperature) == (0.3, 1.0)


def test_the_default_prior_expects_one_parent_a_node(fitted):
    """Three others, each before it with probability one half: 3 / 2 * pi = 1; but never above one half."""
    assert fitted()["prior"].edge_probability == 0.5
    assert vcuda.DagPrior.for_nodes(21).edge_probability * 20 / 2 == pytest.approx(1.0)


def test_options_reach_the_engine(fitted):
    assert fitted(standardise=True)["engine"].scaling == "columns"
    assert fitted(noise="equal")["model"] == vcuda.Linear(noise="equal")
    assert fitted(prior=0.25)["prior"].edge_probability == 0.25
    assert fitted(model=vcuda.MLP(hidden=(3,)))["model"].hidden == (3,)
    assert fitted(engine=vcuda.Variational(epochs=7))["engine"].epochs == 7
    assert fitted(seed=9)["seed"] == 9


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": "forest"}, "linear, mlp, gp"),
        ({"model": "gp"}, "use engine exact"),
        ({"model": "mlp", "engine": "exact"}, "linear, gp or additive"),
        ({"model": "gp", "noise": "equal", "engine": "exact"}, "leave noise out"),
        ({"engine": "exact", "preset": "paper"}, "belong to engine variational"),
        ({"engine": "exact", "noise": "loud"}, "unit, equal, unequal"),
        ({"engine": "magic"}, "variational"),
        ({"preset": "best"}, "default or paper"),
        ({"noise": "loud"}, "unit, equal, unequal"),
        ({"prior": 1.5}, "between 0 and 1"),
        ({"model": vcuda.Linear(), "noise": "equal"}, "inside the spec"),
    ],
)
def test_nonsense_is_refused_before_any_work(table, options, message):
    with pytest.raises(ConfigError, match=message):
        vcuda.fit(table, **options)


def test_the_callers_array_is_neither_changed_nor_kept():
    values = np.random.default_rng(0).normal(size=(50, 3))
    before = values.copy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", vcuda.ConvergenceWarning)
        posterior = vcuda.fit(values, engine=vcuda.Variational(epochs=10, restarts=1, graph_samples=1))
    np.testing.assert_array_equal(values, before)
    values[:] = 0
    assert posterior.names == ("X1", "X2", "X3")
