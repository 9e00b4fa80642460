"""Where the nodes of a graph stand on paper: layers from causes to effects, and arrows that go round the boxes.

One layout for the figures and for the report. A unit is the distance of two neighbours in a row, and of two rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import isotonic_regression

from vcuda.graphs import topological_order

SWEEPS = 12
# Half of a box, in units, with a little air around it.
HALF_BOX = np.array([0.44, 0.2])
# How far the middle of an arrow is moved to the side, the first of these that crosses no box, or least of them.
BENDS = np.array([0.0, 0.25, -0.25, 0.5, -0.5, 0.75, -0.75, 1.0, -1.0])
BESIDE = 0.1
# Arrows that are bent at most, the surest; each is tried against the boxes around it.
MOST_BENT = 600


@dataclass(frozen=True, eq=False)
class Layout:
    """``x`` and ``y`` are ``(d,)``, both from 0; y grows downwards, from causes to effects."""

    x: np.ndarray
    y: np.ndarray

    @property
    def width(self) -> float:
        return float(self.x.max(initial=0.0))

    @property
    def height(self) -> float:
        return float(self.y.max(initial=0.0))


def layered(graph: np.ndarray) -> Layout:
    """Place the nodes of a DAG ``(d, d)`` so that every edge points down.

    Nodes stand as high as their causes allow, and causes just above their first effect; wide layers take several rows.
    Within a row the order follows the neighbours (barycentres), and x is the nearest to them that keeps the distance.
    Nodes without edges come last. Cost: d^2.
    """
    nodes = len(graph)
    joined = graph.any(axis=0) | graph.any(axis=1)
    layer = _layers(graph)
    most = max(4, int(np.ceil(1.2 * np.sqrt(nodes))))
    layers = [np.flatnonzero(joined & (layer == k)) for k in range(int(layer.max(initial=0)) + 1)]
    layers = _ordered([members for members in layers if members.size], graph)
    rows = [part for members in layers for part in np.array_split(members, -(-members.size // most))]
    x, y = np.zeros(nodes), np.zeros(nodes)
    for number, row in enumerate(rows):
        x[row], y[row] = np.arange(row.size) - (row.size - 1) / 2, number
    neighbours = (graph | graph.T).astype(float)
    degree = neighbours.sum(axis=1)
    for sweep in range(SWEEPS):
        for row in rows if sweep % 2 == 0 else rows[::-1]:
            wanted = (neighbours[row] @ x) / degree[row]
            places = np.arange(row.size)
            x[row] = isotonic_regression(wanted - places).x + places
    alone = np.flatnonzero(~joined)
    if alone.size:
        columns = min(most, alone.size)
        middle = (x[joined].min() + x[joined].max()) / 2 if joined.any() else 0.0
        x[alone] = middle + np.arange(alone.size) % columns - (columns - 1) / 2
        y[alone] = len(rows) + np.arange(alone.size) // columns
    return Layout(x - x.min(), y)


def bends(layout: Layout, sources: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """How far the middle of each arrow ``(m,)`` leaves the straight line, to its left.

    The one of few that runs least through boxes, and does not go above the first row or below the last one; cost: d for
    each arrow.
    """
    chosen = np.zeros(len(sources))
    places = np.stack([layout.x, layout.y], axis=1)
    steps = np.linspace(0.05, 0.95, 31)
    everyone = np.arange(len(places))
    opposite: dict[tuple[int, int], float] = {}
    for k, (source, target) in enumerate(zip(sources[:MOST_BENT].tolist(), targets[:MOST_BENT].tolist(), strict=True)):
        ends = places[[source, target]]
        near = np.all((places > ends.min(axis=0) - 1.5) & (places < ends.max(axis=0) + 1.5), axis=1)
        others = places[near & (everyone != source) & (everyone != target)]
        points = curve(places[source], places[target], BENDS, steps)
        crossed = np.all(np.abs(points[:, :, None] - others) < HALF_BOX, axis=-1).sum(axis=(1, 2))
        x, y = points[..., 0], points[..., 1]
        outside = np.any((y < -HALF_BOX[1]) | (y > layout.height + HALF_BOX[1]), axis=1)
        beside = np.any((x < -HALF_BOX[0]) | (x > layout.width + HALF_BOX[0]), axis=1)
        chosen[k] = BENDS[int(np.argmin(crossed + 0.5 * beside + steps.size * len(places) * outside))]
        # The two directions of a pair often find the same way round; the second one goes beside the first.
        if chosen[k] and opposite.get((target, source)) == -chosen[k]:
            chosen[k] += BESIDE
        opposite[source, target] = chosen[k]
    return chosen


def overhang(layout: Layout, sources: np.ndarray, targets: np.ndarray, bent: np.ndarray) -> tuple[float, float]:
    """How far bent arrows reach to the left of the first node and to the right of the last one."""
    start, end = layout.x[sources], layout.x[targets]
    rise, length = layout.y[targets] - layout.y[sources], np.hypot(end - start, layout.y[targets] - layout.y[sources])
    middle = (start + end) / 2 + bent * rise / np.maximum(length, 1e-9)
    return max(float(-middle.min(initial=0.0)), 0.0), max(float(middle.max(initial=0.0)) - layout.width, 0.0)


def curve(start: np.ndarray, end: np.ndarray, bend: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Points ``(b, s, 2)`` of the arcs from start to end whose middles stand ``bend`` ``(b,)`` beside the line."""
    middle = control(start, end, bend)[:, None]
    steps = steps[:, None]
    return (1 - steps) ** 2 * start + 2 * steps * (1 - steps) * middle + steps**2 * end


def control(start: np.ndarray, end: np.ndarray, bend: np.ndarray) -> np.ndarray:
    """The control points ``(b, 2)`` of those quadratic arcs: twice as far from the line as their middles."""
    along = end - start
    left = np.array([along[1], -along[0]]) / max(float(np.hypot(*along)), 1e-9)
    return (start + end) / 2 + 2 * bend[:, None] * left


def _layers(graph: np.ndarray) -> np.ndarray:
    """The longest path to each node; a node without causes goes down to just above its first effect."""
    layer = np.zeros(len(graph), dtype=np.int64)
    for node in topological_order(graph):
        causes = np.flatnonzero(graph[:, node])
        layer[node] = layer[causes].max() + 1 if causes.size else 0
    for node in np.flatnonzero(~graph.any(axis=0) & graph.any(axis=1)):
        layer[node] = layer[graph[node]].min() - 1
    return layer


def _ordered(layers: list[np.ndarray], graph: np.ndarray) -> list[np.ndarray]:
    """Members of each layer by the mean place of their neighbours above, then below, and so on."""
    place = np.zeros(len(graph))
    for members in layers:
        place[members] = (np.arange(members.size) + 0.5) / members.size
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        towards = (graph.T if down else graph).astype(float)
        for number in range(len(layers)) if down else range(len(layers) - 1, -1, -1):
            members = layers[number]
            degree = towards[members].sum(axis=1)
            wanted = np.where(degree > 0, (towards[members] @ place) / np.maximum(degree, 1), place[members])
            layers[number] = members = members[np.argsort(wanted, kind="stable")]
            place[members] = (np.arange(members.size) + 0.5) / members.size
    return layers
