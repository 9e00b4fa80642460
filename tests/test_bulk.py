"""The host sampler: exact to the last bit of its probabilities, in all its modes and sizes."""

import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

from vcuda.dags.bulk import STRIPE_ENTRIES, BulkSampler, successes
from vcuda.errors import ConfigError
from vcuda.graphs import is_acyclic_edges

# Around the grid of 1/256 on which the first random byte decides, and far below it.
PROBABILITIES = (0.0, 1e-4, 1 / 512, 1 / 256, 0.3, 128 / 256, 200.75 / 256, 255.5 / 256, 1 - 1e-4, 1.0)


def assert_binomial(successes_found, trials, probability):
    """Within four standard deviations, and exactly none or all at probability zero or one."""
    deviation = np.sqrt(trials * probability * (1.0 - probability))
    assert abs(successes_found - trials * probability) <= 4.0 * deviation


@pytest.mark.parametrize("probability", PROBABILITIES)
def test_dense_edges_have_exactly_their_probability(probability):
    nodes, repeats = 700, 4
    sampler = BulkSampler.from_probabilities(np.full((nodes, nodes), probability))
    rng = np.random.default_rng(1)
    edges = sum(int(sampler.sample_dense(rng, np.arange(nodes)).sum()) for _ in range(repeats))
    # About a million pairs: four deviations are 0.0002 near zero and one, where bits beyond the first eight
    # count.
    assert_binomial(edges, repeats * nodes * (nodes - 1) // 2, probability)


@pytest.mark.parametrize("probability", PROBABILITIES)
def test_sparse_edges_have_exactly_their_probability(probability):
    nodes, repeats = 100, 200
    sampler = BulkSampler.from_probabilities(np.full((nodes, nodes), probability))
    lists = sampler.sample_many(np.random.default_rng(2), np.tile(np.arange(nodes), (repeats, 1)))
    assert_binomial(lists.counts.sum(), repeats * nodes * (nodes - 1) // 2, probability)


@pytest.mark.parametrize("mode", ["dense", "sparse", "many"])
def test_unequal_probabilities_stay_with_their_pairs(mode):
    nodes, repeats = 12, 3_000
    rng = np.random.default_rng(3)
    probabilities = 0.5 ** rng.uniform(0.0, 8.0, (nodes, nodes))
    priorities = rng.permutation(nodes)
    sampler = BulkSampler.from_probabilities(probabilities)
    counts = np.zeros((nodes, nodes))
    if mode == "many":
        lists = sampler.sample_many(rng, np.tile(priorities, (repeats, 1)))
        np.add.at(counts, (lists.sources, lists.targets), 1)
    for _ in range(repeats if mode != "many" else 0):
        if mode == "dense":
            counts += sampler.sample_dense(rng, priorities)
        else:
            counts[sampler.sample_sparse(rng, priorities)] += 1
    admitted = priorities[:, None] < priorities[None, :]
    assert not counts[~admitted].any()
    p = probabilities[admitted]
    z = (counts[admitted] - repeats * p) / np.sqrt(repeats * p * (1.0 - p))
    # The sum of 66 squares of nearly standard normal z, against chi-square.
    assert stats.chi2.sf(np.sum(z**2), len(z)) > 1e-3
    assert stats.chi2.sf(np.sum(z**2), len(z)) < 1.0 - 1e-3


def test_successes_are_independent_with_one_probability():
    trials, block = 5 * 40_000, 5
    found = np.zeros(trials, dtype=bool)
    found[successes(np.random.default_rng(4), trials, 0.3)] = True
    patterns = found.reshape(-1, block)
    observed = np.bincount(patterns @ (1 << np.arange(block)), minlength=1 << block)
    ones = np.array([bin(code).count("1") for code in range(1 << block)])
    expected = len(patterns) * 0.3**ones * 0.7 ** (block - ones)
    assert stats.chisquare(observed, expected).pvalue > 1e-3


@pytest.mark.parametrize("trials", [0, 1, 7, 10**15])
def test_successes_at_the_ends(trials):
    rng = np.random.default_rng(5)
    assert len(successes(rng, trials, 0.0)) == 0
    assert len(successes(rng, trials, 1e-300)) == 0
    if trials < 10:
        np.testing.assert_array_equal(successes(rng, trials, 1.0), np.arange(trials))
    rare = successes(rng, trials, 1e-12)
    assert np.all(np.diff(rare) > 0)
    assert np.all((rare >= 0) & (rare < trials))
    # Poisson with mean 1,000 or nearly 0; five standard deviations.
    assert abs(len(rare) - trials * 1e-12) <= 5.0 * np.sqrt(trials * 1e-12 + 1e-3)


def test_listed_pairs_replace_the_background():
    nodes, repeats = 40, 500
    rng = np.random.default_rng(6)
    sources, targets = np.nonzero(rng.random((nodes, nodes)) < 0.1)
    probabilities = rng.choice([0.0, 0.01, 0.4, 1.0], size=len(sources))
    sampler = BulkSampler.from_sparse(
        nodes, background=0.05, sources=sources, targets=targets, probabilities=probabilities
    )
    dense = np.full((nodes, nodes), 0.05)
    dense[sources, targets] = probabilities
    lists = sampler.sample_many(rng, np.tile(np.arange(nodes), (repeats, 1)))
    counts = np.zeros((nodes, nodes))
    np.add.at(counts, (lists.sources, lists.targets), 1)
    upper = np.triu(np.ones((nodes, nodes), dtype=bool), 1)
    assert not counts[~upper].any()
    for probability in (0.0, 0.01, 0.05, 0.4, 1.0):
        pairs = upper & (dense == probability)
        assert_binomial(counts[pairs].sum(), repeats * pairs.sum(), probability)
    assert counts.max() <= repeats
    matrix = sampler.sample_dense(np.random.default_rng(7), np.arange(nodes))
    np.testing.assert_array_equal(np.nonzero(matrix), sampler.sample_sparse(np.random.default_rng(7), np.arange(nodes)))


def test_large_dense_graph_is_filled_stripe_by_stripe_from_the_seed_alone():
    nodes = 2_000
    assert nodes**2 > STRIPE_ENTRIES
    rng = np.random.default_rng(8)
    probabilities = rng.random((nodes, nodes), dtype=np.float32)
    before = probabilities.copy()
    priorities = rng.normal(size=nodes)
    sampler = BulkSampler.from_probabilities(probabilities)
    graphs = [sampler.sample_dense(np.random.default_rng(seed), priorities) for seed in (9, 9, 10)]
    np.testing.assert_array_equal(graphs[0], graphs[1])
    assert not np.array_equal(graphs[0], graphs[2])
    np.testing.assert_array_equal(probabilities, before)
    admitted = priorities[:, None] < priorities[None, :]
    assert not np.any(graphs[0] & ~admitted)
    # About a million admitted pairs in each half: the share's standard deviation is 0.0005, four are 0.002.
    for rows in np.array_split(np.arange(nodes), 2):
        share = graphs[0][rows][admitted[rows]].mean()
        assert abs(share - 0.5) < 0.002


def test_a_hundred_thousand_nodes():
    nodes = 100_000
    sampler = BulkSampler.from_sparse(
        nodes,
        background=2.0 / (nodes - 1),
        sources=[5, 99_999],
        targets=[99_999, 5],
        probabilities=[1.0, 1.0],
    )
    priorities = np.random.default_rng(11).normal(size=nodes)
    sources, targets = sampler.sample_sparse(np.random.default_rng(12), priorities)
    again = sampler.sample_sparse(np.random.default_rng(12), priorities)
    np.testing.assert_array_equal((sources, targets), again)
    assert sources.dtype == targets.dtype == np.int32
    # One expected edge a node: Poisson with mean 100,000; four standard deviations.
    assert abs(len(sources) - nodes) < 4.0 * np.sqrt(nodes)
    assert is_acyclic_edges(sources, targets, nodes)
    certain = {(5, 99_999), (99_999, 5)} & set(zip(sources.tolist(), targets.tolist(), strict=True))
    assert certain == {(5, 99_999) if priorities[5] < priorities[99_999] else (99_999, 5)}


def test_many_graphs_come_one_after_the_other_sorted_and_acyclic():
    nodes, size = 20, 500
    rng = np.random.default_rng(13)
    sampler = BulkSampler.from_probabilities(rng.random((nodes, nodes)))
    lists = sampler.sample_many(rng, rng.normal(size=(size, nodes)))
    assert lists.counts.shape == (size,)
    assert lists.counts.sum() == len(lists.sources) == len(lists.targets)
    which = np.repeat(np.arange(size), lists.counts)
    code = (which * nodes + lists.sources) * nodes + lists.targets
    assert np.all(np.diff(code) > 0)
    assert is_acyclic_edges(which * nodes + lists.sources, which * nodes + lists.targets, nodes * size)


def test_equal_priorities_admit_neither_direction():
    sampler = BulkSampler.from_probabilities(np.ones((3, 3)))
    rng = np.random.default_rng(14)
    expected = np.array([[False, False, True], [False, False, True], [False, False, False]])
    np.testing.assert_array_equal(sampler.sample_dense(rng, [1.0, 1.0, 2.0]), expected)
    np.testing.assert_array_equal(sampler.sample_sparse(rng, [1.0, 1.0, 2.0]), [[0, 1], [2, 2]])


def test_no_edges_at_all():
    rng = np.random.default_rng(15)
    for sampler in (
        BulkSampler.from_probabilities(np.zeros((4, 4))),
        BulkSampler.from_sparse(4, background=0.0),
    ):
        assert not sampler.sample_dense(rng, np.arange(4)).any()
        lists = sampler.sample_many(rng, np.tile(np.arange(4), (3, 1)))
        np.testing.assert_array_equal(lists.counts, [0, 0, 0])
        assert len(lists.sources) == 0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: BulkSampler.from_probabilities(np.ones((2, 3))), "square"),
        (lambda: BulkSampler.from_probabilities([[0.0, 1.1], [0.0, 0.0]]), "between 0 and 1"),
        (lambda: BulkSampler.from_probabilities([[0.0, np.nan], [0.0, 0.0]]), "between 0 and 1"),
        (lambda: BulkSampler.from_sparse(3, background=-0.1), "background"),
        (lambda: BulkSampler.from_sparse(3, background=0.1, sources=[0], targets=[1, 2]), "one length"),
        (
            lambda: BulkSampler.from_sparse(3, background=0.1, sources=[0], targets=[3], probabilities=[0.5]),
            "outside 0..2",
        ),
        (
            lambda: BulkSampler.from_sparse(
                3, background=0.1, sources=[0, 0], targets=[1, 1], probabilities=[0.5, 0.4]
            ),
            "listed twice",
        ),
        (
            lambda: BulkSampler.from_probabilities(np.ones((3, 3))).sample_dense(np.random.default_rng(0), [0, 1]),
            "3 priorities",
        ),
        (
            lambda: BulkSampler.from_probabilities(np.ones((2, 2))).sample_sparse(
                np.random.default_rng(0), [0.0, np.nan]
            ),
            "not a number",
        ),
    ],
)
def test_impossible_input_is_refused(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


def test_needs_no_jax():
    check = "import sys, vcuda.dags.bulk; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
