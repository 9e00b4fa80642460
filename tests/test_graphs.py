"""Graph functions against enumeration and brute force at few nodes, and their speed at many."""

from collections import defaultdict
from itertools import combinations, pairwise, permutations
from math import comb, factorial

import numpy as np
import pytest

from vcuda.errors import ConfigError
from vcuda.graphs import (
    ancestor_sets,
    ancestors,
    as_graph,
    compelled_edges,
    count_dags,
    count_orders,
    cpdag,
    directions_that_follow,
    enumerate_dags,
    is_acyclic_edges,
    is_dag,
    topological_order,
    topological_order_edges,
)


def graph_of(nodes, *edges):
    graph = np.zeros((nodes, nodes), dtype=bool)
    for i, j in edges:
        graph[i, j] = True
    return graph


def random_dag(rng, nodes, probability):
    order = rng.permutation(nodes)
    upper = np.triu(rng.random((nodes, nodes)) < probability, k=1)
    graph = np.zeros_like(upper)
    graph[np.ix_(order, order)] = upper
    return graph


def v_structures(graph):
    """All (i, j, k) with i -> j <- k, i < k, and no edge between i and k (Verma and Pearl 1990)."""
    return frozenset(
        (i, j, k)
        for j in range(len(graph))
        for i, k in combinations(np.flatnonzero(graph[:, j]).tolist(), 2)
        if not graph[i, k] and not graph[k, i]
    )


@pytest.mark.parametrize(("nodes", "count"), [(1, 1), (2, 3), (3, 25), (4, 543), (5, 29281)])
def test_enumeration_is_complete_unique_and_acyclic(nodes, count):
    graphs = enumerate_dags(nodes)
    assert graphs.shape == (count, nodes, nodes)
    assert count_dags(nodes) == count
    assert len(np.unique(graphs.reshape(count, -1), axis=0)) == count
    assert not graphs[0].any()
    assert all(is_dag(graph) for graph in graphs[:600])


def test_is_dag_agrees_with_enumeration_over_all_graphs_of_three_nodes():
    bits = np.arange(2**9)[:, None] >> np.arange(9) & 1
    graphs = bits.reshape(-1, 3, 3).astype(bool)
    listed = {graph.tobytes() for graph in enumerate_dags(3)}
    assert [is_dag(graph) for graph in graphs] == [graph.tobytes() in listed for graph in graphs]


def test_orders_of_graphs_are_counted():
    rng = np.random.default_rng(0)
    orders = np.array(list(permutations(range(4))))
    rank = np.argsort(orders, axis=1)
    forward = rank[:, :, None] < rank[:, None, :]
    for graph in enumerate_dags(4):
        assert count_orders(graph) == (~(graph & ~forward).any(axis=(1, 2))).sum()
    assert count_orders(np.zeros((20, 20))) == factorial(20)
    # Forests have the hook-length formula; the chains of a sum are merged in every way.
    chains = np.zeros((20, 20), dtype=bool)
    chains[np.arange(9), np.arange(1, 10)] = chains[np.arange(10, 19), np.arange(11, 20)] = True
    shuffled = rng.permutation(20)
    assert count_orders(chains[np.ix_(shuffled, shuffled)]) == comb(20, 10)
    with pytest.raises(ConfigError, match="cycle"):
        count_orders([[0, 1], [1, 0]])


def test_count_dags_knows_the_published_sequence():
    # OEIS A003024.
    assert count_dags(0) == 1
    assert count_dags(6) == 3_781_503
    assert count_dags(10) == 4_175_098_976_430_598_143


def test_refusals_say_what_came():
    with pytest.raises(ConfigError, match=r"shape \(2, 3\)"):
        is_dag(np.zeros((2, 3)))
    with pytest.raises(ConfigError, match="1 to 5 nodes, not 6"):
        enumerate_dags(6)
    with pytest.raises(ConfigError, match="names node 3"):
        is_acyclic_edges([0], [3], 3)
    with pytest.raises(ConfigError, match="names node -1"):
        is_acyclic_edges([-1], [2], 3)
    with pytest.raises(ConfigError, match="same length"):
        is_acyclic_edges([0, 1], [2], 3)
    with pytest.raises(ConfigError, match="zero or more"):
        count_dags(-1)


def test_a_cycle_is_named():
    graph = graph_of(5, (0, 1), (1, 2), (2, 3), (3, 1), (3, 4))
    with pytest.raises(ConfigError) as caught:
        topological_order(graph)
    named = [int(node) for node in str(caught.value).split("cycle ")[1].split(" (")[0].split(" -> ")]
    assert named[0] == named[-1]
    assert set(named) == {1, 2, 3}
    assert all(graph[i, j] for i, j in pairwise(named))
    with pytest.raises(ConfigError, match="cycle 0 -> 0"):
        ancestors([[1]])


def test_self_loops_and_empty_graphs():
    assert not is_acyclic_edges([1], [1], 2)
    assert is_acyclic_edges([], [], 4)
    assert topological_order(np.zeros((3, 3))).tolist() == [0, 1, 2]
    assert compelled_edges([], [], 2).shape == (0,)


def test_topological_order_is_the_smallest_of_all_valid_ones():
    rng = np.random.default_rng(0)
    for _ in range(20):
        graph = random_dag(rng, 5, 0.4)
        valid = [
            order
            for order in permutations(range(5))
            if all(order.index(i) < order.index(j) for i, j in np.argwhere(graph).tolist())
        ]
        assert tuple(topological_order(graph).tolist()) == min(valid)


def test_ancestors_equal_the_sum_of_matrix_powers():
    rng = np.random.default_rng(1)
    for _ in range(20):
        graph = random_dag(rng, 8, 0.3)
        before = graph.copy()
        paths = np.linalg.inv(np.eye(8) - graph) - np.eye(8)  # counts directed paths: I + A + A² + ...
        assert np.array_equal(ancestors(graph), paths > 0.5)
        bits = ancestor_sets(*np.nonzero(graph), 8)
        assert [[bool(bits[j] >> i & 1) for j in range(8)] for i in range(8)] == (paths > 0.5).tolist()
        assert np.array_equal(graph, before)


@pytest.mark.parametrize("nodes", [3, 4])
def test_cpdag_against_every_markov_equivalence_class(nodes):
    graphs = enumerate_dags(nodes)
    classes = defaultdict(list)
    for graph in graphs:
        classes[(graph | graph.T).tobytes(), v_structures(graph)].append(graph)
    # Gillispie and Perlman (2001): 11 classes of three nodes, 185 of four.
    assert len(classes) == {3: 11, 4: 185}[nodes]
    seen = set()
    for members in classes.values():
        # An edge is compelled when the whole class has it in one direction: the union shows it.
        expected = np.any(members, axis=0)
        for graph in members:
            assert np.array_equal(cpdag(graph), expected)
        seen.add(expected.tobytes())
    assert len(seen) == len(classes)


@pytest.mark.parametrize("nodes", [3, 4])
def test_experiments_leave_the_graphs_of_the_class_that_agree_about_the_causes_of_what_was_set(nodes):
    """Hauser and Bühlmann (2012), Theorem 10: same skeleton, same colliders, same parents of each node that was set."""
    graphs = enumerate_dags(nodes)
    for intervened in [(0,), (2,), (0, 1), tuple(range(nodes))]:
        classes = defaultdict(list)
        for graph in graphs:
            known = graph[:, list(intervened)].tobytes()
            classes[(graph | graph.T).tobytes(), v_structures(graph), known].append(graph)
        for members in classes.values():
            expected = np.any(members, axis=0)
            for graph in members:
                assert np.array_equal(cpdag(graph, intervened=intervened), expected)


def test_known_directions_spread_to_all_that_follow_from_them():
    """At any set of known edges: what all DAGs of the class that agree with them have in common (Meek 1995)."""
    rng = np.random.default_rng(5)
    graphs = enumerate_dags(5)
    codes = defaultdict(list)
    for graph in graphs:
        codes[(graph | graph.T).tobytes()].append(graph)
    followed = 0
    for number in range(200):
        graph = random_dag(rng, 5, (0.4, 0.7, 0.9)[number % 3])
        sources, targets = np.nonzero(graph)
        same = [other for other in codes[(graph | graph.T).tobytes()] if v_structures(other) == v_structures(graph)]
        known = compelled_edges(sources, targets, 5) | (rng.random(sources.size) < 0.35)
        agreeing = [other for other in same if other[sources[known], targets[known]].all()]
        expected = np.all([other[sources, targets] for other in agreeing], axis=0)
        assert np.array_equal(directions_that_follow(sources, targets, 5, known), expected)
        followed += int((expected & ~known).sum())
    assert followed > 50  # else little was tested


def test_cpdag_of_larger_graphs_against_meek_rules():
    rng = np.random.default_rng(2)
    for probability in (0.15, 0.3, 0.6):
        for _ in range(15):
            graph = random_dag(rng, 9, probability)
            before = graph.copy()
            assert np.array_equal(cpdag(graph), meek_closure(graph))
            assert np.array_equal(graph, before)


def meek_closure(graph):
    """The CPDAG by v-structures and Meek's first three rules, run until nothing changes."""
    nodes = range(len(graph))
    adjacent = graph | graph.T
    directed = np.zeros_like(graph)
    for i, j, k in v_structures(graph):
        directed[i, j] = directed[k, j] = True
    changed = True
    while changed:
        changed = False
        for b, c in np.argwhere(adjacent & ~directed & ~directed.T).tolist():
            undirected = adjacent & ~directed & ~directed.T
            if directed[b, c] or directed[c, b]:
                continue
            rule1 = any(directed[a, b] and not adjacent[a, c] and a != c for a in nodes)
            rule2 = any(directed[b, a] and directed[a, c] for a in nodes)
            rule3 = any(
                undirected[b, a] and directed[a, c] and undirected[b, e] and directed[e, c] and not adjacent[a, e]
                for a, e in combinations(nodes, 2)
            )
            if rule1 or rule2 or rule3:
                directed[b, c] = changed = True
    return directed | (adjacent & ~directed & ~directed.T)


@pytest.mark.slow
def test_large_graphs_take_a_moment():
    rng = np.random.default_rng(3)
    nodes, edges = 100_000, 150_000
    ends = np.sort(rng.integers(nodes, size=(edges, 2)), axis=1)
    ends = np.unique(ends[ends[:, 0] != ends[:, 1]], axis=0)
    label = rng.permutation(nodes)
    sources, targets = label[ends[:, 0]], label[ends[:, 1]]
    assert is_acyclic_edges(sources, targets, nodes)
    position = np.empty(nodes, dtype=int)
    position[topological_order_edges(sources, targets, nodes)] = np.arange(nodes)
    assert np.all(position[sources] < position[targets])
    assert not is_acyclic_edges(np.append(sources, targets[0]), np.append(targets, sources[0]), nodes)


def test_as_graph_copies_and_accepts_weights():
    weights = np.array([[0.0, -1.5], [0.0, 0.0]])
    graph = as_graph(weights)
    assert graph.dtype == bool
    assert graph.tolist() == [[False, True], [False, False]]
    own = graph_of(2, (0, 1))
    as_graph(own)[0, 1] = False
    assert own[0, 1]
