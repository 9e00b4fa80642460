"""Ancestral graphs: what of a graph with hidden causes can be known from independences.

A graph is given by ``directed`` (i -> j) and ``bidirected`` (i <-> j, symmetric) boolean matrices. Its maximal
ancestral graph (MAG) has an edge where no other columns make two independent, and its partial ancestral graph (PAG) has
the marks that all graphs with the same independences share. Marks are those at the end j of the edge between i and j.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from vcuda.graphs import ancestors

BoolArray = npt.NDArray[np.bool_]
Marks = npt.NDArray[np.int8]
NONE, CIRCLE, ARROW, TAIL = 0, 1, 2, 3
SYMBOLS = {CIRCLE: ("o", "o"), ARROW: ("<", ">"), TAIL: ("-", "-")}


def edge_symbol(marks: Marks, i: int, j: int) -> str:
    """The edge between two nodes as text, such as ``o->``."""
    return f"{SYMBOLS[int(marks[j, i])][0]}-{SYMBOLS[int(marks[i, j])][1]}"


def mag_of(directed: BoolArray, bidirected: BoolArray) -> Marks:
    """The maximal ancestral graph, as marks (d, d)."""
    nodes, above = len(directed), ancestors(directed)
    # Arrowheads at the second: what may be the first or last edge of a path of colliders.
    into = directed | bidirected
    marks = np.zeros((nodes, nodes), dtype=np.int8)
    for i in range(nodes):
        for j in range(i + 1, nodes):
            if into[i, j] or into[j, i] or _inducing(i, j, into, bidirected, above):
                marks[i, j] = TAIL if above[j, i] else ARROW
                marks[j, i] = TAIL if above[i, j] else ARROW
    return marks


def _inducing(i: int, j: int, into: BoolArray, bidirected: BoolArray, above: BoolArray) -> bool:
    """Whether a path of colliders, all ancestors of its ends, joins two nodes."""
    allowed = above[:, i] | above[:, j]
    allowed[[i, j]] = False
    reached = into[i] & allowed
    while True:
        wider = reached | (bidirected[reached].any(axis=0) & allowed)
        if (wider == reached).all():
            return bool((reached & into[j]).any())
        reached = wider


def pag_of(directed: BoolArray, bidirected: BoolArray) -> Marks:
    """The partial ancestral graph, as marks (d, d): the rules of FCI without selection (Zhang, 2008), with the
    independences of the graph itself."""
    truth = mag_of(directed, bidirected)
    marks = np.where(truth == NONE, NONE, CIRCLE).astype(np.int8)
    nodes = range(len(truth))
    for a, b, c in _triples(truth):
        if truth[a, c] == NONE and truth[a, b] == ARROW and truth[c, b] == ARROW:
            marks[a, b] = marks[c, b] = ARROW
    while True:
        before = marks.copy()
        for a, b, c in _triples(marks):
            _rules_of_three(marks, a, b, c)
        for a in nodes:
            for b in nodes:
                if marks[a, b] == CIRCLE and marks[b, a] != NONE:
                    _rule_of_four(marks, a, b)
                    _discriminating(marks, truth, a, b)
                if marks[a, b] == ARROW and marks[b, a] == CIRCLE and _has_only_paths_away(marks, a, b):
                    marks[b, a] = TAIL
        if (marks == before).all():
            return marks


def _triples(marks: Marks) -> Iterator[tuple[int, int, int]]:
    """All a - b - c of different nodes."""
    for b in range(len(marks)):
        near = np.flatnonzero(marks[b])
        for a in near.tolist():
            for c in near.tolist():
                if a != c:
                    yield a, b, c


def _rules_of_three(marks: Marks, a: int, b: int, c: int) -> None:
    apart = marks[a, c] == NONE
    # 1: no new collider at b.
    if apart and marks[a, b] == ARROW and marks[c, b] == CIRCLE:
        marks[b, c], marks[c, b] = ARROW, TAIL
    # 2: no cycle, and no edge between an ancestor and its own.
    first, second = marks[a, b] == ARROW, marks[b, c] == ARROW
    if first and second and marks[a, c] == CIRCLE and TAIL in (marks[b, a], marks[c, b]):
        marks[a, c] = ARROW
    # 8: a is an ancestor of c by way of b.
    through = marks[b, a] == TAIL and marks[a, b] in (ARROW, CIRCLE) and second and marks[c, b] == TAIL
    if through and marks[a, c] == ARROW and marks[c, a] == CIRCLE:
        marks[c, a] = TAIL


def _rule_of_four(marks: Marks, d: int, b: int) -> None:
    """3: an arrowhead at b, where it would otherwise make a collider that is none."""
    near = [a for a in np.flatnonzero(marks[:, b] == ARROW).tolist() if a != d and marks[a, d] == CIRCLE]
    for a in near:
        if any(c != a and marks[a, c] == NONE for c in near):
            marks[d, b] = ARROW
            return


def _discriminating(marks: Marks, truth: Marks, c: int, b: int) -> None:
    """4: where a path decides whether b is a collider between its neighbour a and c, it is what the graph has."""
    for a in np.flatnonzero((marks[b] == ARROW) & (marks[:, c] == ARROW)).tolist():
        if a in (b, c) or marks[c, a] != TAIL:
            continue
        waiting, seen = [a], {a, b, c}
        while waiting:
            node = waiting.pop()
            for other in np.flatnonzero(marks[:, node] == ARROW).tolist():
                if other in seen:
                    continue
                if marks[other, c] == NONE:
                    if truth[a, b] == ARROW and truth[c, b] == ARROW:
                        marks[a, b] = marks[b, a] = marks[c, b] = marks[b, c] = ARROW
                    else:
                        marks[b, c], marks[c, b] = ARROW, TAIL
                    return
                if marks[node, other] == ARROW and marks[other, c] == ARROW and marks[c, other] == TAIL:
                    seen.add(other)
                    waiting.append(other)


def _has_only_paths_away(marks: Marks, a: int, c: int) -> bool:
    """9 and 10: a is an ancestor of c, since a hidden cause would make a new collider on a path that leads away."""
    steps = [b for b in range(len(marks)) if b != c and _may_lead(marks, a, b)]
    if any(marks[b, c] == NONE and _leads(marks, [a, b], c) for b in steps):
        return True
    parents = [b for b in np.flatnonzero((marks[:, c] == ARROW) & (marks[c] == TAIL)).tolist() if b != a]
    starts = {b: [m for m in steps if m == b or _leads(marks, [a, m], b)] for b in parents}
    for b in parents:
        for d in parents:
            if b != d and any(m != w and marks[m, w] == NONE for m in starts[b] for w in starts[d]):
                return True
    return False


def _may_lead(marks: Marks, a: int, b: int) -> bool:
    """Whether a -> b is possible."""
    return bool(marks[a, b] in (ARROW, CIRCLE) and marks[b, a] in (TAIL, CIRCLE))


def _leads(marks: Marks, path: list[int], goal: int) -> bool:
    """Whether an uncovered path that may be directed goes on from here to the goal."""
    for node in range(len(marks)):
        if node in path or not _may_lead(marks, path[-1], node) or marks[path[-2], node] != NONE:
            continue
        if node == goal or _leads(marks, [*path, node], goal):
            return True
    return False
