"""Candidate parents and score tables, against sums over all subsets written out."""

from itertools import combinations

import numpy as np
import pytest
from scipy.special import logsumexp

from vcuda.data.simulate import simulate
from vcuda.graphs import topological_order
from vcuda.infer.edge_prior import edge_prior
from vcuda.infer.orders import candidates as candidate_parents
from vcuda.infer.orders.candidates import Candidates, GainsCache, all_others, closure, settle, widen
from vcuda.infer.orders.greedy_parents import choose_parents, parents_in_order
from vcuda.infer.orders.score_tables import OutOfTimeError, build_tables
from vcuda.infer.orders.sweeps import masks_of, spread
from vcuda.infer.orders.table_layout import network_of
from vcuda.models.categorical import BDeu
from vcuda.models.linear import BGe, EqualNoise, EqualNoiseScore
from vcuda.models.linear.top_down import likely_noise, top_down_order


@pytest.fixture(scope="module")
def six():
    return simulate("er", nodes=6, edges=8, rows=200, test_rows=1, seed=3)


def unit_noise(values) -> EqualNoiseScore:
    score = EqualNoise(variance=1.0).prepare(values)
    assert isinstance(score, EqualNoiseScore)
    return score


def subsets(items):
    return [list(c) for size in range(len(items) + 1) for c in combinations(items, size)]


def sum_by_hand(score, prior, node, before, fixed):
    terms = []
    for chosen in subsets([i for i in before if i not in fixed]):
        parents = [*chosen, *fixed]
        terms.append(score.score(node, parents) + prior.log_odds[parents, node].sum())
    return logsumexp(terms)


@pytest.mark.parametrize("spec", [EqualNoise(variance=1.0), BGe(), BDeu()], ids=["equal", "bge", "bdeu"])
def test_sums_are_those_over_all_subsets(six, spec):
    values = six.train.values
    score = spec.prepare((values > 0).astype(float) if isinstance(spec, BDeu) else values)
    prior = edge_prior(6, 0.2)
    candidates = [np.delete(np.arange(6), j)[: 2 + j % 4] for j in range(6)]
    fixed = [np.array([5]) if j == 0 else np.zeros(0, dtype=int) for j in range(6)]
    order = np.array([5, 2, 0, 4, 1, 3])
    tables = build_tables(score, prior, candidates, fixed=fixed, order=order)
    for node in range(6):
        for mask in range(1 << tables.candidates[node].size):
            before = [int(c) for t, c in enumerate(tables.candidates[node]) if mask >> t & 1]
            expected = sum_by_hand(score, prior, node, before, [int(f) for f in fixed[node]])
            found = float(tables.sums[tables.offsets[node] + mask]) + tables.shifts[node]
            # Single precision keeps 24 bits of a difference to the likely order.
            assert found == pytest.approx(expected, abs=1e-6 * abs(expected - tables.shifts[node]) + 1e-6)


def test_known_tables_are_taken_over(six):
    score, prior = BGe().prepare(six.train.values), edge_prior(6, 0.2)
    narrow = [np.delete(np.arange(6), j)[:3] for j in range(6)]
    wide = [np.delete(np.arange(6), j)[: 3 + j % 2] for j in range(6)]
    fresh = build_tables(score, prior, wide)
    reused = build_tables(score, prior, wide, known=build_tables(score, prior, narrow))
    assert np.array_equal(fresh.sums, reused.sums)
    assert np.array_equal(fresh.weights, reused.weights)
    assert np.array_equal(fresh.shifts, reused.shifts)


def test_max_parents_is_obeyed(six):
    score = BGe(max_parents=1).prepare(six.train.values)
    tables = build_tables(score, edge_prior(6, 0.2), all_others(edge_prior(6, 0.2)).free)
    graphs = tables.draw(np.random.default_rng(0), np.random.default_rng(1).random((50, 6)))
    counts = np.zeros((50, 6), dtype=int)
    np.add.at(counts, (graphs[0], graphs[2]), 1)
    assert counts.max() == 1


def test_draws_have_the_probabilities_of_the_order(six):
    score, prior = BGe().prepare(six.train.values[:20]), edge_prior(6, 0.3)
    tables = build_tables(score, prior, all_others(prior).free)
    rank = np.array([3.0, 0.0, 5.0, 1.0, 4.0, 2.0])
    size = 4000
    which, sources, targets = tables.draw(np.random.default_rng(0), np.tile(rank, (size, 1)))
    assert np.all(np.diff(which) >= 0)
    shares = np.zeros((6, 6))
    np.add.at(shares, (sources, targets), 1 / size)
    for node in range(6):
        before = np.flatnonzero(rank < rank[node])
        whole = sum_by_hand(score, prior, node, before, [])
        for other in range(6):
            expected = 0.0
            if other in before:
                expected = 1 - np.exp(sum_by_hand(score, prior, node, before[before != other], []) - whole)
            # 30 pairs: |z| < 4.5 fails by chance once in 5,000 times.
            error = max(np.sqrt(expected * (1 - expected) / size), 1e-9)
            assert abs(shares[other, node] - expected) < 4.5 * error + 1e-6


def test_compiled_masks_are_those_of_the_tables(six):
    prior = edge_prior(6, 0.2)
    tables = build_tables(BGe().prepare(six.train.values), prior, [np.delete(np.arange(6), j)[:3] for j in range(6)])
    network, classes = network_of(tables)
    rng = np.random.default_rng(0)
    priorities = spread(rng, np.array([rng.permutation(6) for _ in range(8)]))
    assert np.array_equal(np.asarray(masks_of(network, priorities))[:-1].T, tables.masks(priorities[:-1].T))
    assert sorted(int(i) for members in classes.members for i in members if i < 6) == list(range(6))


def test_priorities_follow_the_order():
    rng = np.random.default_rng(0)
    orders = np.array([rng.permutation(50) for _ in range(4)])
    priorities = spread(rng, orders)
    assert np.array_equal(np.argsort(priorities[:-1], axis=0).T, orders)
    assert priorities[:-1].min() > 0
    assert priorities[:-1].max() < 1


@pytest.mark.parametrize("spec", [EqualNoise(variance=1.0), BGe()], ids=["equal", "bge"])
def test_losses_of_dropped_parents(six, spec):
    score = spec.prepare(six.train.values)
    parents = np.array([1, 4, 5])
    whole = score.score(0, [1, 4, 5])
    expected = [whole - score.score(0, rest) for rest in ([4, 5], [1, 5], [1, 4])]
    assert np.allclose(score.losses(0, parents), expected, atol=1e-8)


def test_selection_finds_the_parents_among_predecessors():
    truth = simulate("er", nodes=40, edges=60, seed=5)
    score, prior = unit_noise(truth.train.values), edge_prior(40, 0.05)
    rank = np.argsort(topological_order(truth.graph))
    for node in range(40):
        parents, near = choose_parents(score, prior, node, rank < rank[node], tolerance=4.0)
        assert set(np.flatnonzero(truth.graph[:, node])) <= set(parents.tolist())
        assert not set(parents) & set(near)


@pytest.mark.parametrize("family", ["er", "sf"])
def test_top_down_order_points_every_edge_forward(family):
    truth = simulate(family, nodes=100, edges=100, seed=11)
    order = top_down_order(unit_noise(truth.train.values), edge_prior(100, 0.02).log_odds)
    rank = np.argsort(order)
    assert np.array_equal(np.sort(order), np.arange(100))
    assert np.all(rank[truth.sources] < rank[truth.targets])


@pytest.mark.parametrize(("weight", "parents"), [(10.0, 1), (10.0, 3), (30.0, 2)])
def test_top_down_order_of_columns_whose_variances_grow_by_powers_of_ten(weight, parents):
    rng = np.random.default_rng(0)
    values = rng.standard_normal((200, 20))
    for node in range(1, 20):
        chosen = rng.choice(node, size=min(node, parents), replace=False) if parents > 1 else [node - 1]
        values[:, node] += weight * values[:, chosen].sum(axis=1)
    score = EqualNoise().prepare(values).known
    # Products of such columns differ by more than the 16 digits of a double: what parents leave of each is rounding.
    with np.errstate(invalid="raise", divide="raise"):
        order = top_down_order(score, edge_prior(20, 0.1).log_odds)
    assert np.array_equal(np.sort(order), np.arange(20))
    assert order[0] == 0


@pytest.mark.parametrize(("nodes", "edges"), [(5, 4), (50, 200), (1000, 1000)])
def test_noise_is_guessed_from_the_least_variances(nodes, edges):
    truth = simulate("er", nodes=nodes, edges=edges, rows=1000, test_rows=1, seed=1)
    # The variance of one node without parents has the relative error sqrt(2 / n) = .045; the least of 400 alone would
    # be 3 of these too low.
    assert likely_noise(truth.train.values.var(axis=0), 1000) == pytest.approx(1.0, abs=2 * 0.045)


def test_closure_lets_arrows_turn_but_not_into_what_is_forbidden():
    allowed = np.ones((3, 3), dtype=bool)
    allowed[2, 0] = False
    closed = closure([np.array([1]), np.zeros(0, dtype=int), np.array([0])], edge_prior(3, 0.1, allowed=allowed))
    assert [c.tolist() for c in closed] == [[1], [0], [0]]


def test_hub_beyond_the_cap_fixes_its_certain_parents():
    rng = np.random.default_rng(0)
    values = rng.standard_normal((500, 13))
    values[:, 12] += values[:, :10].sum(axis=1)
    score, prior = unit_noise(values), edge_prior(13, 0.1)
    none = np.zeros(0, dtype=int)
    graph = [none] * 12 + [np.arange(10)]
    chosen = settle(score, prior, all_others(prior).free, graphs=[graph], cap=4)
    hub = set(chosen.free[12]) | set(chosen.fixed[12])
    assert set(range(10)) <= hub
    assert chosen.fixed[12].size >= 2
    assert all(12 not in chosen.free[parent] for parent in chosen.fixed[12])
    assert all(free.size <= 8 for free in chosen.free)


def test_rounds_add_the_missing_parent():
    truth = simulate("er", nodes=20, edges=25, seed=2)
    score, prior = unit_noise(truth.train.values), edge_prior(20, 0.1)
    source, target = int(truth.sources[0]), int(truth.targets[0])
    parents = [np.flatnonzero(truth.graph[:, j]) for j in range(20)]
    parents[target] = parents[target][parents[target] != source]
    candidates = Candidates(tuple(parents), (np.zeros(0, dtype=int),) * 20)
    ranks = np.argsort(topological_order(truth.graph))[None]
    widened = widen(GainsCache(score), prior, candidates, [parents], ranks, tolerance=2.0, cap=10)
    assert widened.pairs() > candidates.pairs()
    assert source in widened.free[target]


def answers(count: int):
    """Yes so many times, and no from then on."""
    left = iter([True] * count)
    return lambda: next(left, False)


def test_tables_that_there_is_no_time_for_are_not_made(six):
    score, prior = BGe().prepare(six.train.values), edge_prior(6, 0.2)
    with pytest.raises(OutOfTimeError):
        build_tables(score, prior, all_others(prior).free, go_on=answers(0))
    build_tables(score, prior, all_others(prior).free, go_on=answers(1))


def test_an_order_that_there_is_no_time_for_ends_by_variance(six):
    score, prior = unit_noise(six.train.values), edge_prior(6, 0.2)
    by_variance = np.argsort(six.train.values.var(axis=0))
    assert np.array_equal(top_down_order(score, prior.log_odds, go_on=answers(0)), by_variance)
    begun = top_down_order(score, prior.log_odds, go_on=answers(2))
    assert np.array_equal(np.sort(begun), np.arange(6))
    assert np.array_equal(begun[:1], top_down_order(score, prior.log_odds)[:1])
    parents = parents_in_order(score, prior, np.arange(6), go_on=answers(3))
    assert all(chosen.size == 0 for chosen in parents[3:])


def test_tables_of_all_nodes_have_a_bound(six, monkeypatch):
    monkeypatch.setattr(candidate_parents, "TABLE_ENTRIES", 100)
    monkeypatch.setattr(candidate_parents, "HUB_ENTRIES", 10)
    score, prior = BGe().prepare(six.train.values), edge_prior(6, 0.2)
    graph = [np.zeros(0, dtype=np.int64)] * 6
    found = settle(score, prior, all_others(prior).free, graphs=[graph], cap=18)
    # Six tables of 2**3 entries are below 90, of 2**4 not.
    assert [free.size for free in found.free] == [3] * 6


def test_scores_beyond_single_precision_stay_numbers(six):
    values = six.train.values * 10.0 ** np.array([0, 0, 0, 0, 24, 24])
    tables = build_tables(unit_noise(values), edge_prior(6, 0.2), all_others(edge_prior(6, 0.2)).free)
    assert np.isfinite(tables.sums).all()
    assert np.isfinite(tables.weights).all()
