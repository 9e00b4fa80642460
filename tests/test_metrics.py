"""Metrics against cases computed by hand and against brute force over dense graphs."""

import tracemalloc
from itertools import combinations

import numpy as np
import pandas as pd
import pytest

from vcuda import metrics
from vcuda.errors import ConfigError
from vcuda.graphs import cpdag, enumerate_dags
from vcuda.posterior import GraphSamples

NAMES = ("a", "b", "c")
CHAIN = np.array([[0, 1, 0], [0, 0, 1], [0, 0, 0]], dtype=bool)  # a -> b -> c
COLLIDER = np.array([[0, 1, 0], [0, 0, 0], [0, 1, 0]], dtype=bool)  # a -> b <- c
EMPTY = np.zeros((3, 3), dtype=bool)
# Ordered pairs of the chain: true are ab .9 and bc .4; not true are ac .4, ba .1, ca 0, cb .6.
SCORES = np.array([[0.7, 0.9, 0.4], [0.1, 0.0, 0.4], [0.0, 0.6, 0.0]])


def samples_of(*graphs, weights=None):
    return GraphSamples.from_dense(NAMES, np.array(graphs), None if weights is None else np.array(weights))


def test_roc_auc_by_hand():
    # ab beats all four; bc beats ba and ca, ties with ac, loses to cb: (4 + 2 + 1/2) / 8.
    assert metrics.roc_auc(SCORES, CHAIN) == pytest.approx(6.5 / 8)
    # The diagonal adds .7, 0, 0: ab beats all seven, bc beats ba, ca and two zeros, and half of ac.
    assert metrics.roc_auc(SCORES, CHAIN, diagonal=True) == pytest.approx((7 + 4 + 0.5) / 14)


def test_average_precision_by_hand():
    # Thresholds .9 (1 of 1, recall 1/2), .6 (1 of 2), .4 (2 of 4, recall 1).
    assert metrics.average_precision(SCORES, CHAIN) == pytest.approx(0.5 * 1 + 0.5 * 2 / 4)
    assert metrics.average_precision(SCORES, CHAIN, diagonal=True) == pytest.approx(0.5 * 1 + 0.5 * 2 / 5)
    assert metrics.average_precision(np.ones((3, 3)), CHAIN) == pytest.approx(2 / 6)


def test_skeleton_average_precision_by_hand():
    # Pairs: ab 1.0 (true), bc 1.0 (true), ac 0.4.
    assert metrics.skeleton_average_precision(SCORES, CHAIN) == 1.0
    # A collider turned round has the same skeleton as the chain.
    assert metrics.skeleton_average_precision(COLLIDER.astype(float), CHAIN) == 1.0
    # ac 1 before the two true pairs at 0: all pairs at the lowest threshold.
    only_wrong = np.array([[0, 0, 1], [0, 0, 0], [0, 0, 0]])
    assert metrics.skeleton_average_precision(only_wrong, CHAIN) == pytest.approx(2 / 3)


def test_brier_by_hand():
    # (.1² + .6²) of the true pairs, .4², .1², 0, .6² of the others.
    assert metrics.brier(SCORES, CHAIN) == pytest.approx((0.01 + 0.36 + 0.16 + 0.01 + 0 + 0.36) / 6)
    assert metrics.base_rate_brier(CHAIN) == pytest.approx(1 / 3 * 2 / 3)
    assert metrics.brier(np.full((3, 3), 1 / 3), CHAIN) == pytest.approx(metrics.base_rate_brier(CHAIN))
    assert metrics.brier(CHAIN, CHAIN) == 0


def test_calibration_by_hand():
    result = metrics.calibration(SCORES, CHAIN, bins=2)
    # Below a half: .4 (true), .4, .1, 0; from a half: .9 (true), .6.
    assert result.pairs.tolist() == [4, 2]
    np.testing.assert_allclose(result.probability, [0.9 / 4, 1.5 / 2])
    np.testing.assert_allclose(result.frequency, [1 / 4, 1 / 2])
    assert result.error == pytest.approx(4 / 6 * abs(0.25 - 0.225) + 2 / 6 * 0.25)
    fine = metrics.calibration(SCORES, CHAIN, bins=10)
    assert fine.pairs.tolist() == [1, 1, 0, 0, 2, 0, 1, 0, 0, 1]
    assert np.isnan(fine.probability[2])
    assert metrics.calibration(CHAIN, CHAIN).error == 0  # a probability of one falls into the last bin
    with pytest.raises(ConfigError, match="bins must be at least 1"):
        metrics.calibration(SCORES, CHAIN, bins=0)


def test_calibration_error_vanishes_for_honest_probabilities():
    rng = np.random.default_rng(0)
    probabilities = rng.random((400, 400))
    truth = rng.random((400, 400)) < probabilities
    np.fill_diagonal(truth, False)
    # In each of ten bins of 16,000 pairs the frequency has standard deviation sqrt(.25 / 16,000) = .004.
    assert metrics.calibration(probabilities, truth).error < 0.004
    assert metrics.calibration(1 - probabilities, truth).error > 0.4


def test_distances_by_hand():
    graphs = samples_of(CHAIN, COLLIDER, EMPTY, weights=[0.5, 0.25, 0.25])
    # The collider reverses one edge: counted once. The empty graph misses two.
    assert metrics.expected_shd(graphs, CHAIN) == pytest.approx(0.5 * 0 + 0.25 * 1 + 0.25 * 2)
    # One of two edges right in the collider: F1 = 1/2.
    assert metrics.expected_f1(graphs, CHAIN) == pytest.approx(0.5 * 1 + 0.25 * 0.5 + 0.25 * 0)
    # The chain's class leaves both edges open, the collider's fixes both: two pairs differ; empty: two.
    assert metrics.expected_cpdag_shd(graphs, CHAIN) == pytest.approx(0.25 * 2 + 0.25 * 2)
    assert metrics.expected_cpdag_shd(samples_of(CHAIN.T), CHAIN) == 0
    assert metrics.expected_edges(graphs) == pytest.approx(0.75 * 2)
    assert metrics.expected_edges(SCORES) == pytest.approx(2.4)
    assert metrics.expected_f1(samples_of(EMPTY), EMPTY) == 1
    assert metrics.expected_shd(samples_of(CHAIN), EMPTY) == 2


def test_distances_against_brute_force_over_dense_graphs():
    def pairs_that_differ(one, other):
        return sum((one[i, j], one[j, i]) != (other[i, j], other[j, i]) for i, j in combinations(range(len(one)), 2))

    rng = np.random.default_rng(1)
    all_graphs = enumerate_dags(4)
    for _ in range(5):
        chosen = all_graphs[rng.integers(len(all_graphs), size=30)]
        truth = all_graphs[rng.integers(len(all_graphs))]
        weights = rng.dirichlet(np.ones(30))
        graphs = GraphSamples.from_dense("abcd", chosen, weights)
        shd = weights @ [pairs_that_differ(graph, truth) for graph in chosen]
        class_shd = weights @ [pairs_that_differ(cpdag(graph), cpdag(truth)) for graph in chosen]
        assert metrics.expected_shd(graphs, truth) == pytest.approx(shd)
        assert metrics.expected_cpdag_shd(graphs, truth) == pytest.approx(class_shd)


def test_truth_without_anything_to_rank_gives_nan():
    assert np.isnan(metrics.roc_auc(SCORES, EMPTY))
    assert np.isnan(metrics.average_precision(SCORES, EMPTY))
    assert np.isnan(metrics.skeleton_average_precision(SCORES, EMPTY))
    assert np.isnan(metrics.roc_auc(SCORES, ~np.eye(3, dtype=bool)))


class FakePosterior:
    """A posterior as the metrics see it: names, probabilities as a data frame, graphs on demand."""

    names = NAMES

    def __init__(self, graphs):
        self.graphs = graphs
        self.asked = None

    @property
    def edge_probabilities(self):
        return pd.DataFrame(self.graphs.edge_probabilities(), index=self.names, columns=self.names)

    def sample(self, size, *, seed):
        self.asked = (size, seed)
        return self.graphs


def test_evaluate_collects_what_fits():
    graphs = samples_of(CHAIN, COLLIDER)
    ranking = {"auroc", "average_precision", "auroc_full", "average_precision_full"}
    ranking |= {"skeleton_average_precision", "true_edges"}
    probabilistic = {"brier", "base_rate_brier", "calibration_error", "expected_edges"}
    distances = {"expected_shd", "expected_f1", "expected_cpdag_shd"}
    of_samples = metrics.evaluate(graphs, CHAIN)
    assert set(of_samples) == ranking | probabilistic | distances
    assert of_samples["expected_shd"] == 0.5
    assert of_samples["true_edges"] == 2
    assert all(type(value) is float for value in of_samples.values())
    posterior = FakePosterior(graphs)
    assert metrics.evaluate(posterior, CHAIN, samples=7, seed=3) == of_samples
    assert posterior.asked == (7, 3)
    assert set(metrics.evaluate(SCORES, CHAIN)) == ranking | probabilistic
    # A data frame has a method `sample` of its own.
    assert set(metrics.evaluate(posterior.edge_probabilities, CHAIN)) == ranking | probabilistic
    assert set(metrics.evaluate(SCORES - 5, CHAIN)) == ranking


def test_a_named_truth_is_brought_into_the_order_of_the_result():
    graphs = samples_of(CHAIN)
    truth = pd.DataFrame(CHAIN, index=NAMES, columns=NAMES)
    shuffled = truth.loc[["c", "a", "b"], ["b", "c", "a"]]
    for result in (graphs, FakePosterior(graphs), FakePosterior(graphs).edge_probabilities):
        assert metrics.roc_auc(result, shuffled) == 1
        assert metrics.evaluate(result, shuffled)["brier"] == 0
    assert metrics.expected_shd(graphs, shuffled) == 0
    assert metrics.expected_shd(graphs, pd.DataFrame(CHAIN)) == 0  # numbered columns say nothing about order
    with pytest.raises(ConfigError, match="'Z' is a name of the truth or of the result"):
        metrics.roc_auc(graphs, truth.rename(columns={"c": "Z"}, index={"c": "Z"}))


def test_refusals():
    with pytest.raises(ConfigError, match="result has 3 nodes, but the true graph has 2"):
        metrics.roc_auc(SCORES, [[0, 1], [0, 0]])
    with pytest.raises(ConfigError, match="result has 3 nodes, but the true graph has 2"):
        metrics.expected_shd(samples_of(CHAIN), [[0, 1], [0, 0]])
    with pytest.raises(ConfigError, match=r"square matrix .* shape \(3,\)"):
        metrics.brier([0.1, 0.2, 0.3], CHAIN)
    with pytest.raises(ConfigError, match="NaN or infinite"):
        metrics.average_precision(np.where(CHAIN, np.nan, SCORES), CHAIN)
    with pytest.raises(ConfigError, match="between 0 and 1, but these reach from -1"):
        metrics.brier(SCORES - 1, CHAIN)
    with pytest.raises(ConfigError, match="self-loop at node 1"):
        metrics.roc_auc(SCORES, CHAIN | np.diag([False, True, False]))
    with pytest.raises(ConfigError, match="directed cycle"):
        metrics.expected_f1(samples_of(CHAIN), CHAIN | CHAIN.T)
    with pytest.raises(ConfigError, match="needs sampled graphs"):
        metrics.expected_shd(SCORES, CHAIN)
    with pytest.raises(ConfigError, match="fewer than two nodes"):
        metrics.base_rate_brier([[0]])


@pytest.mark.slow
def test_thousand_samples_of_a_thousand_nodes_stay_sparse():
    rng = np.random.default_rng(2)
    nodes, size, edges = 1000, 1000, 1000
    ends = np.sort(rng.integers(nodes, size=(2, size * edges)), axis=0)
    sample = np.repeat(np.arange(size), edges)
    # The few pairs that a sample draws twice fall together when they are numbered.
    numbers = np.unique((sample * nodes + ends[0]) * nodes + ends[1])
    which, pair = np.divmod(numbers, nodes**2)
    sources, targets = np.divmod(pair, nodes)
    proper = sources < targets
    names = [f"g{k}" for k in range(nodes)]
    graphs = GraphSamples.from_counts(names, np.bincount(which[proper]), sources[proper], targets[proper])
    truth = graphs.graph(0)
    tracemalloc.start()
    shd = metrics.expected_shd(graphs, truth)
    f1 = metrics.expected_f1(graphs, truth)
    # Two random sets of m of 499,500 pairs share m²/499,500, about two.
    assert 1985 < shd < 2000
    assert 0.001 < f1 < 0.006
    some = graphs.take(np.arange(10))
    assert 0 < metrics.expected_cpdag_shd(some, truth) < 2000
    assert tracemalloc.get_traced_memory()[1] < 200e6  # a dense cube would take a gigabyte
    tracemalloc.stop()
