"""The engine by the size of the problem: exact where it is quick enough, else orders, else variational."""

import numpy as np
import pytest

import vcuda
from vcuda.errors import ConfigError
from vcuda.infer.exact import gigabytes_needed, seconds_needed
from vcuda.infer.selection.cost import check_cost
from vcuda.infer.selection.engines import PATIENCE_SECONDS, choose_engine
from vcuda.models.additive import AdditiveBasis
from vcuda.models.gaussian_process import GaussianProcess
from vcuda.models.interventions import prepare
from vcuda.models.linear import BGe, EqualNoise
from vcuda.models.tabulated import TabulatedScore


def prepared(spec, nodes, rows=60):
    return spec.prepare(np.random.default_rng(0).normal(size=(rows, nodes)))


@pytest.mark.parametrize("spec", [BGe(), EqualNoise(), AdditiveBasis(), GaussianProcess()])
def test_few_columns_are_counted_and_more_are_sampled(spec):
    assert isinstance(choose_engine(prepared(spec, 8)).engine, vcuda.Exact)
    assert isinstance(choose_engine(prepared(spec, 30)).engine, vcuda.Orders)


def test_exact_is_chosen_only_within_its_time_and_memory():
    for nodes in range(14, 26):
        score = prepared(BGe(), nodes)
        exact = isinstance(choose_engine(score).engine, vcuda.Exact)
        assert exact == (seconds_needed(score) <= PATIENCE_SECONDS and gigabytes_needed(score) <= 4.0)


def test_scores_that_are_listed_take_no_time_to_compute_again():
    # Twelve parts of the rows in two views, as a table of any kinds is fitted by default.
    for nodes, kind in ((12, vcuda.Exact), (17, vcuda.Exact), (18, vcuda.Orders)):
        score = TabulatedScore(tuple({(): 0.0} for _ in range(nodes)), rows=600, log_jacobian=0.0, max_parents=5)
        assert isinstance(choose_engine(score, searches=24).engine, kind)


def test_a_short_time_limit_prefers_an_engine_that_can_stop():
    score = prepared(BGe(), 18)
    assert isinstance(choose_engine(score).engine, vcuda.Exact)
    assert isinstance(choose_engine(score, seconds=0.5).engine, vcuda.Orders)


@pytest.mark.parametrize("spec", [BGe(), EqualNoise()])
@pytest.mark.parametrize("experiment", [False, True])
def test_thousands_of_columns_are_sampled(spec, experiment):
    """2**d sets of 1,300 columns are more than a float holds."""
    table = np.random.default_rng(0).normal(size=(30, 1300))
    score = prepare(spec, table, np.arange(table.size).reshape(table.shape) == 5 if experiment else None)
    assert isinstance(choose_engine(score).engine, vcuda.Orders)
    assert seconds_needed(score) == gigabytes_needed(score) == np.inf
    assert check_cost(vcuda.Orders(), score, available=16 * 10**9, seconds=None).gigabytes < 4
    with pytest.raises(ConfigError, match=r"more than a million GB .* use engine orders"):
        check_cost(vcuda.Exact(), score, available=16 * 10**9, seconds=None)
    with pytest.raises(ConfigError, match=r"more than a century .* 1300 columns"):
        check_cost(vcuda.Exact(), score, available=16 * 10**9, seconds=60.0)


def test_many_nonlinear_columns_go_to_the_orders_engine():
    choice = choose_engine(prepared(AdditiveBasis(), 200))
    assert isinstance(choice.engine, vcuda.Orders)
    assert "200 columns" in choice.sentence


@pytest.mark.parametrize("model", ["linear", "additive", "gp"])
def test_units_change_no_edge_probability(model):
    """Exact engine and unequal noise: what is left is rounding, and the features of a process, chosen by size."""
    table = vcuda.simulate("er", nodes=5, edges=5, rows=200, test_rows=1, mechanism="gp", seed=2).train
    units = 10.0 ** np.random.default_rng(1).uniform(-3, 3, 5)
    one, two = (
        vcuda.fit(values, model=model, engine="exact").edge_probabilities.to_numpy()
        for values in (table.values, table.values * units + 7 * units)
    )
    np.testing.assert_allclose(one, two, atol=1e-3)


def test_a_table_that_is_counted_at_once_is_counted_even_when_time_is_over():
    choice = choose_engine(prepared(BGe(), 8), seconds=-1.0)
    assert isinstance(choice.engine, vcuda.Exact)
    assert choice.is_quick
    table = np.random.default_rng(0).normal(size=(60, 5))
    assert vcuda.fit(table, model="linear", time_limit=1e-9).status.code == "ok"
