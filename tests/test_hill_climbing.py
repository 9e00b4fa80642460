"""Greedy climbs end at DAGs that no single change improves, and their orders agree with them."""

import numpy as np
import pytest

from vcuda.data.simulate import simulate
from vcuda.graphs import enumerate_dags, is_dag
from vcuda.infer.edge_prior import edge_prior
from vcuda.infer.hill_climbing import _equivalent, climb, climb_on, climb_orders
from vcuda.models.linear import BGe

NODES = 5


def total(score, prior, graph: np.ndarray) -> float:
    parents = [np.flatnonzero(graph[:, j]).tolist() for j in range(NODES)]
    return sum(score.score(j, chosen) for j, chosen in enumerate(parents)) + float(prior.log_odds[graph].sum())


def neighbours(graph: np.ndarray):
    """Every DAG that one added, dropped or turned edge leads to."""
    for i, j in zip(*np.nonzero(~np.eye(NODES, dtype=bool)), strict=True):
        other = graph.copy()
        other[i, j] = ~other[i, j]
        if is_dag(other):
            yield other
        if graph[i, j]:
            turned = graph.copy()
            turned[i, j], turned[j, i] = False, True
            if is_dag(turned):
                yield turned


def test_a_climb_ends_where_no_change_gains():
    values = simulate("er", nodes=NODES, edges=6, rows=200, test_rows=1, seed=0).train.values
    score, prior = BGe().prepare(values), edge_prior(NODES, 0.2)
    for seed in range(5):
        reached, graph = climb(score, prior, np.random.default_rng(seed), max_parents=NODES - 1)
        assert is_dag(graph)
        assert abs(reached - total(score, prior, graph)) < 1e-8
        # Gains of less than a millionth of a nat do not count.
        assert max(total(score, prior, other) for other in neighbours(graph)) < reached + 1e-5


def test_orders_are_permutations_and_obey_what_is_forbidden():
    values = simulate("er", nodes=NODES, edges=6, rows=200, test_rows=1, seed=1).train.values
    allowed = np.triu(np.ones((NODES, NODES), dtype=bool), 1)
    prior = edge_prior(NODES, 0.2, allowed=allowed)
    score = BGe().prepare(values)
    _, graph = climb(score, prior, np.random.default_rng(0), max_parents=2)
    assert not (graph & ~allowed).any()
    assert graph.sum(axis=0).max() <= 2
    orders = climb_orders(score, prior, np.random.default_rng(0), count=3, climbs=5, max_parents=2)
    assert [sorted(order.tolist()) for order in orders] == [list(range(NODES))] * 3


@pytest.mark.slow
def test_climbing_on_finds_the_best_of_all_graphs():
    nodes = 4
    for seed in range(6):
        values = simulate("er", nodes=nodes, edges=5, rows=300, test_rows=1, seed=seed).train.values
        score, prior = BGe().prepare(values), edge_prior(nodes, 0.2)
        best = max(
            sum(score.score(j, np.flatnonzero(graph[:, j]).tolist()) for j in range(nodes))
            + prior.log_odds[graph].sum()
            for graph in enumerate_dags(nodes)
        )
        start = np.zeros((nodes, nodes), dtype=bool)
        rng = np.random.default_rng(seed)
        reached, graph = climb_on(
            score, prior, rng, start, max_parents=3, patience=30, most_moves=10_000, go_on=lambda: True
        )
        assert is_dag(graph)
        assert not start.any()
        assert abs(reached - best) < 1e-6


def test_required_edges_stay_through_every_climb():
    values = simulate("er", nodes=NODES, edges=6, rows=200, test_rows=1, seed=2).train.values
    required = np.zeros((NODES, NODES), dtype=bool)
    required[3, 0] = required[0, 1] = True
    score, prior = BGe().prepare(values), edge_prior(NODES, 0.2, required=required)
    rng = np.random.default_rng(0)
    _, graph = climb(score, prior, rng, max_parents=NODES - 1)
    assert graph[required].all()
    _, graph = climb_on(
        score, prior, rng, graph, max_parents=NODES - 1, patience=10, most_moves=10_000, go_on=lambda: True
    )
    assert graph[required].all()
    assert is_dag(graph)


def test_equivalent_graphs_score_the_same():
    values = simulate("er", nodes=NODES, edges=6, rows=200, test_rows=1, seed=3).train.values
    score, prior = BGe().prepare(values), edge_prior(NODES, 0.2)
    rng = np.random.default_rng(0)
    reached, graph = climb(score, prior, rng, max_parents=NODES - 1)
    others = [_equivalent(graph, prior, rng) for _ in range(5)]
    assert all(is_dag(other) for other in others)
    assert any((other != graph).any() for other in others)
    assert max(abs(total(score, prior, other) - reached) for other in others) < 1e-8


def test_a_climb_ends_on_its_way_when_time_is_short():
    values = simulate("er", nodes=NODES, edges=6, rows=200, test_rows=1, seed=0).train.values
    score, prior = BGe().prepare(values), edge_prior(NODES, 0.2)
    left = iter([True, True])
    _, graph = climb(score, prior, np.random.default_rng(0), max_parents=3, go_on=lambda: next(left, False))
    assert graph.sum() == 2
    orders = climb_orders(
        score, prior, np.random.default_rng(0), count=4, climbs=8, max_parents=3, go_on=lambda: next(left, False)
    )
    assert len(orders) == 1
