"""The trivial methods: what they say when the answer is known, and that they say no more."""

import numpy as np
import pytest
from problems import run_baseline
from sklearn.linear_model import LinearRegression

import vcuda
from vcuda.baselines.floors import (
    BaseRate,
    EmptyGraph,
    R2Sort,
    RandomSort,
    VarianceSort,
    _adaptive_lasso,
    _explained_share,
)


def chain(rows=500, seed=0):
    """c -> a -> b, each with more variance than the one before, and d apart from all with the most."""
    rng = np.random.default_rng(seed)
    c = rng.normal(size=rows)
    a = 2 * c + rng.normal(size=rows)
    b = -1.5 * a + rng.normal(size=rows)
    return vcuda.as_dataset(np.column_stack([a, b, c, 9 * rng.normal(size=rows)]), names=["a", "b", "c", "d"])


def test_the_empty_graph_is_empty():
    result = run_baseline(EmptyGraph(), chain(), seed=0)
    assert len(result.graph_posterior.graphs) == 1
    assert not result.graph_posterior.graphs.graph(0).any()
    assert not result.graph_posterior.scores.any()


class TestBaseRate:
    def test_samples_have_the_stated_probabilities(self):
        result = run_baseline(BaseRate(parents=0.75, samples=4000), chain(), seed=3)
        assert result.graph_posterior.graphs.all_acyclic()
        edges = ~np.eye(4, dtype=bool)
        # 0.75 expected parents of a node are 3 edges on 12 ordered pairs.
        np.testing.assert_allclose(result.graph_posterior.scores[edges], 0.25)
        # 12 shares of 4,000 draws with a standard error of sqrt(.25 * .75 / 4000) = 0.0068; 4 of those for all.
        assert np.abs(result.graph_posterior.graphs.edge_probabilities()[edges] - 0.25).max() < 4 * 0.0068

    def test_more_parents_than_there_are_nodes_is_a_full_order(self):
        result = run_baseline(BaseRate(parents=50, samples=5), chain(), seed=0)
        assert result.graph_posterior.graphs.edge_counts().tolist() == [6] * 5
        assert result.graph_posterior.scores[0, 1] == 0.5


class TestSorting:
    def test_rising_variances_give_the_chain(self):
        result = run_baseline(VarianceSort(), chain(), seed=0)
        assert result.diagnostics["order"] == ["c", "a", "b", "d"]
        expected = np.zeros((4, 4))
        expected[2, 0], expected[0, 1] = 2, 1.5
        # Standard errors are 1 / sqrt(500) = 0.045 and less; the lasso shrinks by about as much.
        np.testing.assert_allclose(result.graph_posterior.scores, expected, atol=0.2)
        np.testing.assert_array_equal(result.graph_posterior.graphs.graph(0), expected > 0)

    def test_variance_sorting_reads_units(self):
        data = chain()
        turned = vcuda.as_dataset(data.values * [1.0, 1e-3, 1e3, 1.0], names=data.names)
        assert run_baseline(VarianceSort(), turned, seed=0).diagnostics["order"] == ["b", "a", "d", "c"]

    def test_equal_variances_are_sorted_at_random(self):
        data = vcuda.as_dataset(chain().standardised(), names=chain().names)
        firsts = {run_baseline(VarianceSort(), data, seed=seed).diagnostics["order"][0] for seed in range(30)}
        assert firsts == {
            "a",
            "b",
            "c",
            "d",
        }  # that one is missing after 30 draws has a probability of 4 * 0.75^30 < 1e-3

    def test_r2_sorting_does_not_read_units(self):
        data = chain()
        turned = vcuda.as_dataset(data.values * [1.0, 1e-3, 1e3, 1.0], names=data.names)
        orders = [run_baseline(R2Sort(), table, seed=0).diagnostics["order"] for table in (data, turned)]
        assert orders[0] == orders[1]

    def test_the_explained_share_is_that_of_a_regression(self):
        data = chain()
        by_hand = []
        for node in range(4):
            others = np.delete(data.values, node, axis=1)
            by_hand.append(LinearRegression().fit(others, data.values[:, node]).score(others, data.values[:, node]))
        np.testing.assert_allclose(_explained_share(data, np.random.default_rng(0)), by_hand, atol=1e-10)

    def test_random_orders_are_those_of_the_seed(self):
        orders = {tuple(run_baseline(RandomSort(), chain(), seed=seed).diagnostics["order"]) for seed in range(12)}
        # 12 draws of 24 orders: fewer than 6 different ones would have a probability below 1e-4.
        assert len(orders) >= 6

    @pytest.mark.parametrize("spec", [VarianceSort(), R2Sort(), RandomSort()], ids=lambda spec: spec.name)
    def test_fewer_rows_than_columns_and_copied_columns(self, spec):
        rng = np.random.default_rng(1)
        values = rng.normal(size=(8, 12))
        values[:, 3] = values[:, 2]
        result = run_baseline(spec, vcuda.as_dataset(values), seed=0)
        assert np.isfinite(result.graph_posterior.scores).all()
        assert result.graph_posterior.graphs.all_acyclic()

    def test_a_deadline_leaves_later_columns_without_parents(self):
        result = run_baseline(VarianceSort(), chain(), seed=0, deadline=0.0)
        assert result.status.code == "interrupted"
        assert "2 of 4 columns" in result.status.sentence
        assert set(np.nonzero(result.graph_posterior.scores)[1]) <= {0}


def test_the_lasso_leaves_out_what_does_not_matter():
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(400, 6))
    target = 3 * inputs[:, 1] - inputs[:, 4] + rng.normal(size=400)
    weights = _adaptive_lasso(inputs, target)
    # The strong weight is hardly shrunk (least squares has a standard error of 0.05), the idle ones mostly exactly 0.
    assert abs(weights[1] - 3) < 0.15
    assert abs(weights[4] + 1) < 0.2
    assert np.count_nonzero(weights) <= 4
