"""The verb ``fit``: names become specs, presets are the authors', choices are told, nonsense is refused."""

import time
import warnings

import numpy as np
import pandas as pd
import pytest
from threadpoolctl import threadpool_info

import vcuda
from vcuda.baselines import BASELINES, GranDag, Mcsl, VarianceSort
from vcuda.errors import ConfigError, DataError
from vcuda.fitting import routes as module
from vcuda.models.linear import BGe
from vcuda.specs import to_json


@pytest.fixture(scope="module")
def table():
    return vcuda.simulate("er", nodes=4, edges=4, rows=60, test_rows=10, seed=0).train


def seen_by(monkeypatch, table, options):
    """What ``fit`` would run, without running it."""
    seen = {}

    def record(method, engine, problem, **arguments):
        seen.update(arguments, **problem._asdict(), engine=engine)
        raise StopIteration

    monkeypatch.setattr(module, "run", record)
    with pytest.raises(StopIteration):
        vcuda.fit(table, **options)
    return seen


@pytest.fixture
def trained(monkeypatch, table):
    return lambda **options: seen_by(monkeypatch, table, options)


@pytest.fixture
def scored(monkeypatch, table):
    return lambda **options: seen_by(monkeypatch, table, options)


def test_the_paper_preset_is_the_authors_program(trained):
    linear, nonlinear = trained(preset="paper"), trained(preset="paper", model="mlp")
    assert linear["engine"].batch_size == 64
    assert nonlinear["engine"].batch_size == 256
    for run in (linear, nonlinear):
        assert (run["model"].noise, run["model"].bias) == ("unit", False)
        assert run["prior"] == vcuda.DagPrior(edge_probability=0.1, order_scale=0.1)
        engine = run["engine"]
        assert (engine.epochs, engine.learning_rate, engine.graph_learning_rate) == (500, 5e-3, 1e-2)
        assert (engine.graph_samples, engine.restarts, engine.weight_decay) == (1, 1, 1e-4)
        assert (engine.dags.order_temperature, engine.dags.edge_temperature) == (0.3, 1.0)


def test_the_default_prior_expects_one_parent_a_node(scored):
    """Three others, each before it with probability one half: 3 / 2 * pi = 1; but never above one half."""
    assert scored(model="linear")["edges"].edge_probability == 0.5
    assert vcuda.DagPrior.for_nodes(21).edge_probability * 20 / 2 == pytest.approx(1.0)


def test_options_reach_the_engine(trained, scored):
    by_gradient = {"engine": "straight-through", "model": "linear"}
    assert trained(**by_gradient, standardise=True)["engine"].scaling == "columns"
    assert trained(**by_gradient, noise="equal")["model"] == vcuda.Linear(noise="equal")
    assert trained(model=vcuda.MLP(hidden=(3,)))["model"].hidden == (3,)
    assert trained(engine=vcuda.StraightThrough(epochs=7))["engine"].epochs == 7
    assert scored(prior=0.25)["edges"].edge_probability == 0.25
    assert scored(seed=9)["seed"] == 9
    assert scored(engine=vcuda.Orders(sweeps=7))["engine"].sweeps == 7
    assert scored(model=BGe(max_parents=2))["scored"].score.max_parents == 2
    # An exact fit that takes less than half a second needs no deadline.
    assert scored(time_limit=5.0)["deadline"] is None
    deadline = scored(time_limit=5.0, engine="orders")["deadline"]
    assert 0 < deadline - time.monotonic() <= 5.0


def test_standardised_columns_are_fitted_and_the_way_back_is_kept(scored, table):
    seen = scored(model="linear", noise="equal", standardise=True)["scored"]
    np.testing.assert_allclose(seen.data.scale, 1.0)
    np.testing.assert_allclose(seen.units.undo(seen.data.values), table.values)


def test_the_straight_through_engine_answers_nonlinear_with_an_mlp(monkeypatch):
    rng = np.random.default_rng(0)
    cause = rng.normal(size=(300, 1))
    data = np.hstack([cause, np.cos(2 * cause) + 0.3 * rng.normal(size=(300, 1))])
    seen = seen_by(monkeypatch, data, {"engine": "straight-through"})
    assert seen["model"] == vcuda.MLP(noise="unequal")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": "forest"}, "auto, linear, additive, gp"),
        ({"model": "gp", "engine": "straight-through"}, "use engine exact"),
        ({"model": "gp", "engine": "variational"}, "linear and additive"),
        ({"model": "mlp", "engine": "exact"}, "linear, additive, gp"),
        ({"model": "gp", "noise": "equal", "engine": "exact"}, "leave noise out"),
        ({"engine": "exact", "preset": "paper"}, "belongs to engine straight-through"),
        ({"engine": "exact", "noise": "loud"}, "unit, equal, unequal"),
        ({"engine": "magic"}, "variational"),
        ({"preset": "best"}, "default or paper"),
        ({"noise": "loud"}, "unit, equal, unequal"),
        ({"noise": "unit"}, "name the model"),
        ({"prior": 1.5}, "between 0 and 1"),
        ({"model": vcuda.Linear(), "noise": "equal"}, "inside the spec"),
        ({"model": vcuda.MLP(), "engine": "exact"}, "trained by gradient"),
        ({"model": BGe(), "engine": "straight-through"}, "Linear.. or MLP"),
        ({"model": BGe(), "preset": "paper"}, "Linear.. or MLP"),
        ({"log": ["X11"]}, "did you mean 'X1'"),
        ({"log": ["X1"]}, "only positive numbers"),
        ({"time_limit": 0}, "positive number of seconds"),
        ({"time_limit": True}, "time_limit must be a number, not True"),
        ({"time_limit": float("nan")}, "not NaN"),
        ({"time_limit": "60"}, "time_limit must be a number, not '60'"),
        ({"seed": -1}, "seed must be a whole number from 0 to 4,294,967,295, not -1"),
        ({"seed": True}, "seed must be a whole number, not True"),
        ({"seed": [1]}, r"seed must be a whole number, not \[1\]"),
        ({"seed": 10**30}, "from 0 to 4,294,967,295"),
        ({"seed": 1.0}, "seed must be a whole number, not 1.0"),
        ({"standardise": 1}, "standardise must be True or False, not 1"),
        ({"standardise": "yes"}, "standardise must be True or False, not 'yes'"),
        ({"streamed": "no"}, "streamed must be True or False"),
        ({"resume": 1}, "resume must be True or False"),
        ({"imputations": True}, "imputations must be a whole number"),
        ({"prior": "0.1"}, "prior must be a number between 0 and 1, 'uniform' or .* not '0.1'"),
        ({"prior": "uniform:often"}, "prior must be a number between 0 and 1, 'uniform' or"),
        ({"prior": "uniform:1"}, "edge_probability is 1.0, but must lie strictly between 0 and 1"),
        ({"prior": "uniform", "engine": "variational"}, "engine variational .* takes no uniform prior over DAGs"),
        ({"prior": "uniform", "model": "mlp"}, "engine straight-through .* takes no uniform prior over DAGs"),
        ({"prior": "uniform", "preset": "paper"}, "takes no uniform prior over DAGs; use engine exact or orders"),
        ({"prior": "uniform", "engine": "dibs"}, "this method has a prior of its own"),
        ({"prior": True}, "prior must be a number"),
        ({"prior": [0.1, 0.2]}, "prior must be a number"),
        ({"engine": None}, "engine must be one of"),
        ({"engine": vcuda.Orders}, r"make a spec of it: Orders\(\)"),
        ({"model": None}, "model must be one of"),
        ({"preset": None}, "default or paper"),
        ({"log": 3}, "list of column names"),
        ({"progress": "bar"}, "progress must be a function"),
        ({"seed": None, "checkpoint": "somewhere", "resume": True}, "goes on with its own seed"),
    ],
)
def test_nonsense_is_refused_before_any_work(table, options, message):
    with pytest.raises((ConfigError, vcuda.DataError), match=message):
        vcuda.fit(table, **options)


def test_a_uniform_prior_is_refused_beyond_twenty_columns_before_any_work():
    wide = pd.DataFrame(np.random.default_rng(0).normal(size=(50, 21)))
    with pytest.raises(ConfigError, match="at most 20 columns, not 21; choose fewer columns, or use the prior over"):
        vcuda.fit(wide.rename(columns=str), prior="uniform", model="linear")


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({"seed": np.int64(3)}, {"seed": 3}),
        ({"seed": np.array(3)}, {"seed": 3}),
        ({"standardise": np.True_}, {"standardise": True}),
        ({"prior": np.array(0.3)}, {"prior": {"name": "orders", "edge_probability": 0.3, "order_scale": 0.1}}),
        (
            {"prior": vcuda.DagPrior(np.array(0.3))},
            {"prior": {"name": "orders", "edge_probability": 0.3, "order_scale": 0.1}},
        ),
        ({"prior": vcuda.UniformDags()}, {"prior": {"name": "uniform", "edge_probability": 0.5}}),
        ({"prior": "uniform:0.2"}, {"prior": {"name": "uniform", "edge_probability": 0.2}}),
        ({"time_limit": np.float32(60)}, {"time_limit": 60.0}),
        ({"time_limit": float("inf")}, {"time_limit": None}),
        ({"imputations": np.int64(3), "progress": None}, {}),
    ],
)
def test_what_a_fit_accepts_can_be_saved_and_loaded(table, options, kept, tmp_path):
    posterior = vcuda.fit(table, engine="exact", model="linear", **options)
    posterior.save(tmp_path / "run")
    loaded = vcuda.Posterior.load(tmp_path / "run").provenance
    assert {name: loaded[name] for name in kept} == kept
    assert {name: type(loaded[name]) for name in kept} == {name: type(value) for name, value in kept.items()}


@pytest.mark.parametrize("path", ["a" * 300 + ".csv", "a/" * 3000], ids=["long", "deep"])
def test_names_that_no_file_can_have_are_refused(path, table, tmp_path):
    with pytest.raises(vcuda.DataError, match="no file can be found there"):
        vcuda.fit(path)
    posterior = vcuda.fit(table, engine="empty")
    with pytest.raises(vcuda.RunError, match="no run can be written into"):
        posterior.save(tmp_path / path)


def test_no_seed_draws_one_and_says_which(table, tmp_path):
    fits = [vcuda.fit(table, engine="exact", model="linear", seed=None) for _ in range(2)]
    seeds = [each.provenance["seed"] for each in fits]
    assert all(type(seed) is int and 0 <= seed < 2**32 for seed in seeds)
    assert seeds[0] != seeds[1]  # by chance once in four billion runs
    fits[0].save(tmp_path / "run")
    assert vcuda.Posterior.load(tmp_path / "run").summary()["seed"] == seeds[0]
    again = vcuda.fit(table, engine="exact", model="linear", seed=seeds[0])
    assert np.array_equal(again.sample(5).sources, fits[0].sample(5).sources)


def test_the_callers_array_is_neither_changed_nor_kept():
    values = np.random.default_rng(0).normal(size=(50, 3))
    before = values.copy()
    posterior = vcuda.fit(values)
    np.testing.assert_array_equal(values, before)
    values[:] = 0
    assert posterior.names == ("X1", "X2", "X3")


def test_equal_noise_on_raw_scales_is_told(table):
    reports = vcuda.fit(table, model="linear", noise="equal").summary()["choice"]
    assert any("smaller to a larger" in sentence for sentence in reports)
    for options in ({"noise": "unequal"}, {"noise": "equal", "standardise": True}):
        reports = vcuda.fit(table, model="linear", **options).summary()["choice"]
        assert not any("smaller to a larger" in sentence for sentence in reports)


def offset_table():
    """A clock around 1e12 with a spread of one, and what it causes; five digits of the clock are left."""
    rng = np.random.default_rng(0)
    clock = rng.normal(size=60)
    return np.column_stack([1e12 + clock, clock + rng.normal(size=60)])


def wide_table():
    """Columns in units of 1e-80 and of 1e80."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=(60, 2))
    values[:, 1] += values[:, 0]
    return values * [1e-80, 1e80]


@pytest.mark.parametrize("make", [offset_table, wide_table])
def test_what_the_checks_pass_is_fitted_as_in_other_units(make):
    """Neither a large offset nor units far apart change what is learned, beyond the digits that are lost."""
    values = make()
    ordinary = (values - values.mean(axis=0)) / values.std(axis=0)
    data, plain = vcuda.as_dataset(values, names=["clock", "b"]), vcuda.as_dataset(ordinary, names=["clock", "b"])
    for options in ({"model": "linear", "noise": "unequal"}, {"model": "additive"}):
        found, expected = (vcuda.fit(table, **options).edge_probabilities.to_numpy() for table in (data, plain))
        assert found == pytest.approx(expected, abs=1e-3)
    assert vcuda.fit(data).edge_probabilities.to_numpy().sum() > 0.9


def test_equal_noise_of_units_too_far_apart_is_refused_with_a_remedy():
    with pytest.raises(DataError, match=r"column 'X2' varies by .*column 'X1' by .*--standardise"):
        vcuda.fit(wide_table(), model="linear", noise="equal")
    assert vcuda.fit(wide_table(), model="linear", noise="equal", standardise=True).status.code == "ok"


def test_a_column_made_constant_by_a_selection_of_rows_is_named():
    values = np.random.default_rng(0).normal(size=(40, 2))
    values[:20, 1] = 3.0
    with pytest.raises(DataError, match="column 'X2' does not vary"):
        vcuda.fit(vcuda.as_dataset(values).select(slice(20)))


def test_logarithms_are_told_and_undone():
    """A table whose logarithms are linear: predictions are in the user's units and positive."""
    logs = vcuda.simulate("er", nodes=3, edges=3, rows=400, test_rows=50, seed=1)
    posterior = vcuda.fit(np.exp(logs.train.values))
    assert posterior.summary()["logarithm"] == ["X1", "X2", "X3"]
    assert posterior.provenance["model"]["name"] == "linear"
    # The evidence is that of the cells as they came, whoever took the logarithms: p(x) = p(log x) / x.
    reports = vcuda.fit(logs.train, engine="exact", log=()).diagnostics["log_evidence"]
    assert posterior.diagnostics["log_evidence"] == pytest.approx(reports - logs.train.values.sum())
    new = np.exp(logs.test.values)
    assert (posterior.predict(new).to_numpy() > 0).all()
    raw = vcuda.fit(np.exp(logs.train.values), log=())
    assert raw.summary()["logarithm"] == []
    assert posterior.held_out(new)["log_likelihood"] > raw.held_out(new)["log_likelihood"] + 0.5


@pytest.mark.slow
def test_a_time_limit_ends_the_fit_with_a_status():
    data = vcuda.simulate("er", nodes=8, edges=8, rows=200, test_rows=10, seed=0).train
    long = {
        "orders": vcuda.Orders(sweeps=100_000),
        "variational": vcuda.Variational(steps=100_000),
        "straight-through": vcuda.StraightThrough(epochs=100_000, patience=10**9),
    }
    for name, engine in long.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", vcuda.ConvergenceWarning)
            posterior = vcuda.fit(data, model="linear", noise="equal", engine=engine, time_limit=1.0)
        assert posterior.status.code == "interrupted", name
        assert "time limit" in posterior.status.sentence
        assert posterior.sample(10).all_acyclic()


def walks() -> pd.DataFrame:
    """Columns that have nothing to do with each other, but each with its own past."""
    return pd.DataFrame(np.random.default_rng(0).normal(size=(300, 3)).cumsum(axis=0), columns=["a", "b", "c"])


def test_sure_edges_of_random_walks_are_a_warning():
    with pytest.warns(vcuda.ModelCheckWarning, match="sure edge.* in doubt: The rows depend on those before them"):
        posterior = vcuda.fit(walks(), model="linear", noise="unequal", engine="exact", robust=False)
    status = posterior.status
    assert (status.code, status.arithmetic.code, status.description.code) == ("warning", "ok", "warning")
    assert status.sentence.startswith(status.description.sentence)
    assert posterior.summary()["edges_in_doubt"]
    without = vcuda.fit(walks(), model="linear", noise="unequal", engine="exact", checks=False)
    assert (without.status.code, without.status.description.code) == ("ok", "not checked")


def test_an_interrupt_of_the_checks_keeps_the_fit():
    def stop(progress):
        if progress.detail == "checking the model":
            raise KeyboardInterrupt

    posterior = vcuda.fit(walks(), model="linear", noise="unequal", engine="exact", progress=stop)
    assert posterior.status.arithmetic.code == "ok"
    assert "they were interrupted" in posterior.status.description.sentence


def test_a_fit_uses_one_thread_of_blas(table):
    """So that the same seed gives the same digits on any number of cores."""
    seen = set()

    def look(progress):
        seen.update(library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas")

    vcuda.fit(table, progress=look)
    assert seen == {1}


class TestOtherMethods:
    """Baselines through the same door."""

    @pytest.mark.slow
    @pytest.mark.filterwarnings("ignore::vcuda.ConvergenceWarning")
    def test_every_one_is_an_engine_by_name(self, table):
        for name in BASELINES:
            posterior = vcuda.fit(table, engine=name, time_limit=0.1, seed=1)
            assert posterior.provenance["engine"]["name"] == name
            assert posterior.provenance["prior"] is None
            assert posterior.graph_posterior.scores.shape == (4, 4)

    @pytest.mark.slow
    @pytest.mark.filterwarnings("ignore::vcuda.ConvergenceWarning")
    def test_presets_are_those_of_the_method(self, table):
        default, paper = (
            vcuda.fit(table, engine="grandag", model="linear", preset=preset, time_limit=0.1)
            for preset in ("default", "paper")
        )
        assert default.provenance["engine"] == {"name": "grandag", **to_json(GranDag.corrected(hidden=()))}
        assert paper.provenance["engine"] == {"name": "grandag", **to_json(GranDag.reference(hidden=()))}

    def test_a_spec_is_taken_as_it_is(self, table):
        posterior = vcuda.fit(table, engine=VarianceSort())
        assert posterior.provenance["engine"]["name"] == "variance-sort"

    @pytest.mark.slow
    @pytest.mark.filterwarnings("ignore::vcuda.ConvergenceWarning")
    def test_predictions_are_in_the_units_of_the_table(self, table):
        units = np.array([1.0, 100.0, 0.01, 5.0])
        scaled = vcuda.as_dataset(table.values * units + 7)
        method = Mcsl.corrected(hidden=(), rounds=2, steps=50)
        one, other = (vcuda.fit(data, engine=method, standardise=True) for data in (table, scaled))
        # Networks are in single precision; the z-scores of the two tables differ by rounding.
        np.testing.assert_allclose(other.predict(scaled), one.predict(table) * units + 7, rtol=1e-3, atol=1e-2)
        gained = one.held_out(table)["log_likelihood"] - other.held_out(scaled)["log_likelihood"]
        assert gained == pytest.approx(np.log(units).sum(), abs=1e-2)

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ({"engine": "dibs", "noise": "equal"}, "noise of its own"),
            ({"engine": "dibs", "prior": 0.1}, "prior of its own"),
            ({"engine": "dds", "model": "gp"}, "takes model auto, linear, mlp"),
            ({"engine": "empty", "model": "linear"}, "takes model auto, not 'linear'"),
            ({"engine": VarianceSort(), "model": "linear"}, "variance-sort takes model auto"),
        ],
    )
    def test_what_it_cannot_do_is_refused(self, table, options, said):
        with pytest.raises(ConfigError, match=said):
            vcuda.fit(table, **options)
