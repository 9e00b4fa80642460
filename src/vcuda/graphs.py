"""Pure functions on directed graphs: acyclicity, orders, ancestors, equivalence classes, enumeration.

A graph is a square boolean matrix in which ``graph[i, j]`` true means i -> j. What must run on thousands of
nodes also has a form on edge lists (``sources``, ``targets``), whose cost is that of the edges alone.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from itertools import combinations
from math import comb

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from vcuda.errors import ConfigError

BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.integer]
# Pairs of causes of one node that are compared at the same time.
PAIRS_AT_A_TIME = 1 << 22


def as_graph(graph: npt.ArrayLike) -> BoolArray:
    """A square boolean matrix from anything that is true (non-zero) where there is an edge.

    Examples
    --------
    >>> as_graph([[0, 1], [0, 0]])
    array([[False,  True],
           [False, False]])
    """
    matrix = np.asarray(graph)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ConfigError(f"A graph is a square matrix (nodes, nodes); this one has shape {matrix.shape}.")
    return matrix.astype(bool)


def is_acyclic_edges(sources: npt.ArrayLike, targets: npt.ArrayLike, nodes: int) -> bool:
    """Whether the graph with these edges has no directed cycle, at a cost of O(nodes + edges)."""
    source, target = _edge_arrays(sources, targets, nodes)
    if bool(np.any(source == target)):
        return False
    matrix = coo_array((np.ones(source.size, dtype=np.int8), (source, target)), shape=(nodes, nodes))
    components = connected_components(matrix.tocsr(), directed=True, connection="strong", return_labels=False)
    return int(components) == nodes


def is_dag(graph: npt.ArrayLike) -> bool:
    """Whether the (d, d) matrix has no directed cycle and no self-loop, at a cost of O(d²).

    Examples
    --------
    >>> is_dag([[0, 1], [0, 0]]), is_dag([[0, 1], [1, 0]])
    (True, False)
    """
    matrix = as_graph(graph)
    sources, targets = np.nonzero(matrix)
    return is_acyclic_edges(sources, targets, matrix.shape[0])


def topological_order_edges(sources: npt.ArrayLike, targets: npt.ArrayLike, nodes: int) -> IntArray:
    """The nodes so that every edge points forward; of all such orders the lexicographically smallest.

    Raises ConfigError with one cycle in its message when there is none.
    """
    source, target = _edge_arrays(sources, targets, nodes)
    children = _grouped(source, target, nodes)
    waiting = np.bincount(target, minlength=nodes).tolist()
    ready = [node for node in range(nodes) if waiting[node] == 0]
    order: list[int] = []
    while ready:
        node = heapq.heappop(ready)
        order.append(node)
        for child in children[node]:
            waiting[child] -= 1
            if waiting[child] == 0:
                heapq.heappush(ready, child)
    if len(order) < nodes:
        cycle = " -> ".join(map(str, _cycle_among(_grouped(target, source, nodes), waiting)))
        raise ConfigError(f"The graph must be acyclic, but it has the cycle {cycle} (node indices).")
    return np.array(order, dtype=np.int64)


def topological_order(graph: npt.ArrayLike) -> IntArray:
    """The d nodes of a DAG so that every edge points forward; ties go to the smaller index.

    Examples
    --------
    >>> topological_order([[0, 0, 0], [1, 0, 0], [0, 1, 0]]).tolist()
    [2, 1, 0]
    """
    matrix = as_graph(graph)
    sources, targets = np.nonzero(matrix)
    return topological_order_edges(sources, targets, matrix.shape[0])


def ancestors(graph: npt.ArrayLike) -> BoolArray:
    """Who comes before whom: a (d, d) matrix, true at [i, j] when i is a proper ancestor of j.

    Costs O(d) for each edge of the DAG.
    """
    matrix = as_graph(graph)
    of_node = np.zeros_like(matrix)  # one row for each descendant, so that the unions below are contiguous
    for node in topological_order(matrix):
        parents = np.flatnonzero(matrix[:, node])
        of_node[node] = of_node[parents].any(axis=0)
        of_node[node, parents] = True
    return np.ascontiguousarray(of_node.T)


def compelled_edges(
    sources: npt.ArrayLike, targets: npt.ArrayLike, nodes: int, *, intervened: Iterable[int] = ()
) -> BoolArray:
    """For each edge of a DAG, whether all Markov equivalent DAGs have it in the same direction.

    Chickering (1995), "A transformational characterization of equivalent Bayesian network structures": nodes
    are visited in topological order, and the nearest parent x of y decides about all edges into y.
    Costs O(k) for each node, k the largest number of parents, after an O(edges) sort.

    Each of the ``intervened`` nodes was set in an experiment of its own, which shows the directions of the edges
    at it; what follows from them by Meek's rules is compelled as well (Hauser and Bühlmann 2012).
    """
    source, target = _edge_arrays(sources, targets, nodes)
    order = topological_order_edges(source, target, nodes).tolist()
    rank = dict(zip(order, range(nodes), strict=True))
    parents = [set(group) for group in _grouped(target, source, nodes)]
    compelled: list[set[int]] = [set() for _ in range(nodes)]
    for y in order:
        if not parents[y]:
            continue
        x = max(parents[y], key=rank.__getitem__)
        # Turning x -> y round would make a collider w -> x <- y when x has a fixed parent w that y lacks,
        passes_on = not compelled[x] <= parents[y]
        # or unmake a collider x -> y <- z.
        is_collider = not parents[y] - {x} <= parents[x]
        compelled[y] = parents[y] if passes_on or is_collider else compelled[x]
    fixed = (i in compelled[j] for i, j in zip(source.tolist(), target.tolist(), strict=True))
    known = np.fromiter(fixed, dtype=bool, count=source.size)
    chosen = list(intervened)
    if not chosen:
        return known
    return directions_that_follow(source, target, nodes, known | np.isin(source, chosen) | np.isin(target, chosen))


def directions_that_follow(sources: npt.ArrayLike, targets: npt.ArrayLike, nodes: int, known: BoolArray) -> BoolArray:
    """Which edges of a DAG have a direction that is known or follows from those known, by Meek's four rules (1995).

    ``known`` is a boolean for each edge; the skeleton and the colliders are taken to be known.
    """
    source, target = _edge_arrays(sources, targets, nodes)
    settled = known.copy()
    adjacent: list[set[int]] = [set() for _ in range(nodes)]
    parents: list[set[int]] = [set() for _ in range(nodes)]
    children: list[set[int]] = [set() for _ in range(nodes)]
    for i, j, sure in zip(source.tolist(), target.tolist(), settled.tolist(), strict=True):
        adjacent[i].add(j)
        adjacent[j].add(i)
        if sure:
            parents[j].add(i)
            children[i].add(j)

    def follows(b: int, c: int) -> bool:
        if not parents[b] <= adjacent[c] or children[b] & parents[c]:
            return True  # else c -> b would make a new collider, or a cycle
        unsettled = adjacent[b] - parents[b] - children[b]
        if any(e not in adjacent[a] for a, e in combinations(unsettled & parents[c], 2)):
            return True
        return any(children[a] & parents[c] & adjacent[b] for a in unsettled - adjacent[c] - {c})

    still_open = np.flatnonzero(~settled).tolist()
    changed = True
    while changed:
        changed = False
        for edge in still_open:
            b, c = int(source[edge]), int(target[edge])
            if follows(b, c):
                settled[edge] = changed = True
                parents[c].add(b)
                children[b].add(c)
        still_open = [edge for edge in still_open if not settled[edge]]
    return settled


def cpdag(graph: npt.ArrayLike, *, intervened: Iterable[int] = ()) -> BoolArray:
    """The completed partially directed graph of a DAG's Markov equivalence class, as a (d, d) matrix.

    A compelled edge i -> j stands at [i, j] alone; an edge whose direction the class leaves open stands at
    both [i, j] and [j, i]. Experiments that set one of the ``intervened`` nodes each make the class smaller.

    Examples
    --------
    >>> chain = np.array([[0, 1, 0], [0, 0, 1], [0, 0, 0]], dtype=bool)
    >>> np.array_equal(cpdag(chain), chain | chain.T)
    True
    >>> np.array_equal(cpdag(chain, intervened=[0]), chain)
    True
    """
    matrix = as_graph(graph)
    sources, targets = np.nonzero(matrix)
    compelled = compelled_edges(sources, targets, matrix.shape[0], intervened=intervened)
    matrix[targets[~compelled], sources[~compelled]] = True
    return matrix


def ancestor_sets(sources: npt.ArrayLike, targets: npt.ArrayLike, nodes: int) -> list[int]:
    """The proper ancestors of each node of a DAG as the bits of an integer, at a cost of O(nodes / 64) an edge."""
    source, target = _edge_arrays(sources, targets, nodes)
    parents = _grouped(target, source, nodes)
    found = [0] * nodes
    for node in topological_order_edges(source, target, nodes).tolist():
        for parent in parents[node]:
            found[node] |= found[parent] | 1 << parent
    return found


def y_structures(sources: npt.ArrayLike, targets: npt.ArrayLike, nodes: int) -> BoolArray:
    """Which edges (m,) of a DAG stand in a strict Y-structure: a -> b where a has two causes c and e that are not
    adjacent, neither of them is adjacent to b, and no effect of a is another cause of b.

    Every graph that hidden common causes allow and that has the same conditional independences has this edge as well
    (Mani, Spirtes and Cooper 2006): a hidden cause of a and b, or an effect of b on a, would leave c and b dependent
    given a.

    The last condition is there because the best DAG may lack an independence that the table has. Where a -> s and a
    hidden variable causes s and b, a DAG has s -> b; given s, a and b go together, so it has a -> b as well, although
    a and b are independent. From outside that looks like a -> b beside a -> s -> b, which is then no evidence.
    """
    sources, targets = (np.asarray(ends, dtype=np.int64) for ends in (sources, targets))
    found = np.zeros(len(sources), dtype=bool)
    adjacent = np.sort(np.minimum(sources, targets) * nodes + np.maximum(sources, targets))
    by_target = np.argsort(targets, kind="stable")
    parents, number = sources[by_target], np.bincount(targets, minlength=nodes)
    first = np.cumsum(number) - number

    def are_adjacent(one: np.ndarray, other: np.ndarray) -> np.ndarray:
        pair = np.minimum(one, other) * nodes + np.maximum(one, other)
        place = np.minimum(np.searchsorted(adjacent, pair), len(adjacent) - 1)
        return np.asarray(adjacent[place] == pair)

    possible = np.flatnonzero(number[sources] >= 2)
    cost = np.cumsum(number[sources[possible]] ** 2)
    for start, stop in _spans_of(cost, PAIRS_AT_A_TIME):
        edges = possible[start:stop]
        # Each cause c of a beside its edge a -> b; then each pair of those that are not adjacent to b.
        of_edge, cause = _expanded(first[sources[edges]], number[sources[edges]])
        cause = parents[cause]
        apart = ~are_adjacent(cause, targets[edges][of_edge])
        of_edge, cause = of_edge[apart], cause[apart]
        left = np.cumsum(np.bincount(of_edge, minlength=len(edges)))[of_edge] - np.arange(len(cause)) - 1
        one, other = _expanded(np.arange(len(cause)) + 1, left)
        found[edges[of_edge[one[~are_adjacent(cause[one], cause[other])]]]] = True
    directed = np.sort(sources * nodes + targets)
    standing = np.flatnonzero(found)
    for start, stop in _spans_of(np.cumsum(number[targets[standing]]), PAIRS_AT_A_TIME):
        edges = standing[start:stop]
        # Each cause s of b beside the edge a -> b: is it an effect of a?
        of_edge, between = _expanded(first[targets[edges]], number[targets[edges]])
        pair = sources[edges][of_edge] * nodes + parents[between]
        place = np.minimum(np.searchsorted(directed, pair), len(directed) - 1)
        found[edges[of_edge[directed[place] == pair]]] = False
    return found


def count_dags(nodes: int) -> int:
    """The number of labelled DAGs, by Robinson's recurrence (1973).

    Examples
    --------
    >>> [count_dags(d) for d in range(1, 6)]
    [1, 3, 25, 543, 29281]
    """
    if nodes < 0:
        raise ConfigError(f"A graph has zero or more nodes, not {nodes}.")
    counts = [1]
    for d in range(1, nodes + 1):
        counts.append(sum((-1) ** (k + 1) * comb(d, k) * 2 ** (k * (d - k)) * counts[d - k] for k in range(1, d + 1)))
    return counts[nodes]


def count_orders(graph: npt.ArrayLike) -> int:
    """The number of orders of the nodes of a DAG in which every edge points forward (its linear extensions).

    Sources, or sinks where they are fewer, are taken away one by one, and what falls apart is counted part by part. So
    sparse graphs of 20 nodes take milliseconds; the worst case is exponential in the largest number of nodes without
    paths between them.

    Examples
    --------
    >>> count_orders(np.zeros((3, 3))), count_orders([[0, 1, 1], [0, 0, 0], [0, 0, 0]])
    (6, 2)
    """
    edges = as_graph(graph)
    if not is_dag(edges):
        raise ConfigError("A graph with a cycle has no order; orders are counted for DAGs only.")
    nodes = len(edges)
    parents = [sum(1 << int(i) for i in np.flatnonzero(column)) for column in edges.T]
    children = [sum(1 << int(j) for j in np.flatnonzero(row)) for row in edges]
    known: dict[int, int] = {}

    def members(of: int) -> list[int]:
        found = []
        while of:
            lowest = of & -of
            found.append(lowest.bit_length() - 1)
            of ^= lowest
        return found

    def count(left: int) -> int:
        total, size = 1, 0
        while left:
            part = reached = left & -left
            while reached:
                near = 0
                for node in members(reached):
                    near |= parents[node] | children[node]
                reached = near & left & ~part
                part |= reached
            more = part.bit_count()
            # Orders of separate parts are merged in every way.
            total *= comb(size + more, more) * count_connected(part)
            size += more
            left &= ~part
        return total

    def count_connected(part: int) -> int:
        if part not in known:
            inside = members(part)
            sources = [node for node in inside if not parents[node] & part]
            sinks = [node for node in inside if not children[node] & part]
            ends = sources if len(sources) <= len(sinks) else sinks
            known[part] = 1 if len(inside) == 1 else sum(count(part & ~(1 << node)) for node in ends)
        return known[part]

    return count((1 << nodes) - 1)


def enumerate_dags(nodes: int) -> BoolArray:
    """Every DAG of at most five labelled nodes, as a (count, d, d) array that begins with the empty graph."""
    if not 1 <= nodes <= 5:
        raise ConfigError(f"All DAGs are listed for 1 to 5 nodes, not {nodes}; six nodes have {count_dags(6):,}.")
    low, high = np.triu_indices(nodes, k=1)
    # Each pair of nodes is apart, forward or backward: one digit of a number in base three says which.
    digits = np.arange(3**low.size)[:, None] // 3 ** np.arange(low.size) % 3
    graphs = np.zeros((len(digits), nodes, nodes), dtype=bool)
    graphs[:, low, high] = digits == 1
    graphs[:, high, low] = digits == 2
    walks = graphs.copy()
    for _ in range(nodes - 1):
        walks = walks @ graphs
    return graphs[~walks.any(axis=(1, 2))]  # a walk of as many steps as there are nodes must repeat a node


def _edge_arrays(
    sources: npt.ArrayLike, targets: npt.ArrayLike, nodes: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    source = np.asarray(sources, dtype=np.int64)
    target = np.asarray(targets, dtype=np.int64)
    if source.ndim != 1 or source.shape != target.shape:
        raise ConfigError(
            f"Edges are two lists of the same length; sources have shape {source.shape}, targets {target.shape}."
        )
    if source.size:
        lowest = int(min(source.min(), target.min()))
        highest = int(max(source.max(), target.max()))
        if lowest < 0 or highest >= nodes:
            wrong = lowest if lowest < 0 else highest
            raise ConfigError(f"Edges join nodes 0 to {nodes - 1}; one of them names node {wrong}.")
    return source, target


def _grouped(keys: npt.NDArray[np.int64], members: npt.NDArray[np.int64], groups: int) -> list[list[int]]:
    """The members of each group, in the order of their keys."""
    by_key = np.argsort(keys, kind="stable")
    ends = np.cumsum(np.bincount(keys, minlength=groups)).tolist()
    ordered = members[by_key].tolist()
    return [ordered[begin:end] for begin, end in zip([0, *ends[:-1]], ends, strict=True)]


def _cycle_among(parents: list[list[int]], waiting: list[int]) -> list[int]:
    """One directed cycle, its first node repeated at the end, among the nodes that still wait."""
    # Each of them waits for a parent that waits as well, so that walking backwards must come round.
    node = next(index for index, count in enumerate(waiting) if count > 0)
    walk: list[int] = []
    while node not in walk:
        walk.append(node)
        node = next(parent for parent in parents[node] if waiting[parent] > 0)
    return [node, *reversed(walk[walk.index(node) :])]


def _expanded(starts: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Runs of whole numbers with these starts and lengths, one after the other: the run of each, and the number."""
    run = np.repeat(np.arange(len(counts)), counts)
    return run, np.arange(len(run)) + np.repeat(starts - (np.cumsum(counts) - counts), counts)


def _spans_of(cumulative: np.ndarray, most: int) -> Iterator[tuple[int, int]]:
    """First and last places, the latter not included, whose costs add up to ``most``; at least one place each."""
    start = 0
    while start < len(cumulative):
        before = cumulative[start - 1] if start else 0
        stop = max(int(np.searchsorted(cumulative, before + most, side="right")), start + 1)
        yield start, stop
        start = stop
