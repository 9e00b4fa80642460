"""The graph as a still picture in SVG: for a report without script, on paper, and in a notebook.

It inherits the colour of the text around it, and holds neither style nor script.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from vcuda.outputs.labels import shortened
from vcuda.outputs.layout import bends, control, layered, overhang
from vcuda.outputs.report.html import Html, joined, tag
from vcuda.outputs.report.sentences import OPEN_DIRECTION, SURE, pairs_in_doubt
from vcuda.posterior.posterior import Posterior
from vcuda.posterior.status import in_percent
from vcuda.summaries.structures import NamedGraph

# More columns than these are not read in a still picture: it shows the surest edges, or what is around the target.
MOST_NODES, MOST_EDGES, MOST_ALONE, MOST_LABELLED = 40, 60, 12, 40
LETTERS, LETTER, LINE, ROW, MARGIN = 16, 7.6, 30.0, 84.0, 14.0
DOUBTED = "#b26a00"


class Picture(NamedTuple):
    """The picture, and a sentence that says what it shows."""

    svg: Html
    caption: str


def picture(posterior: Posterior, agreed: NamedGraph, *, target: str | None = None) -> Picture:
    """The likely edges of the consensus graph, causes above effects; of many columns a part."""
    shown, caption = _shown(agreed, target)
    names = [agreed.names[k] for k in shown]
    graph = agreed.graph[np.ix_(shown, shown)]
    probabilities = posterior.edge_probabilities.to_numpy()[np.ix_(shown, shown)]
    layout = layered(graph)
    labels = [shortened(name, LETTERS) for name in names]
    box = np.array([18 + LETTER * max(map(len, labels), default=1), LINE])
    unit = np.array([box[0] + 26, ROW])
    sources, targets = np.nonzero(graph)
    bent = bends(layout, sources, targets)
    left, right = overhang(layout, sources, targets, bent)
    places = np.stack([layout.x, layout.y], axis=1)
    start = np.array([box[0] / 2 + MARGIN + unit[0] * left, box[1] / 2 + MARGIN])
    size = start + unit * [layout.width, layout.height] + box / 2 + MARGIN + [unit[0] * right, 0.0]
    doubted = pairs_in_doubt(posterior)
    lines, texts = [], _Labels([(start + unit * place, box / 2) for place in places])
    for i, j, bend in zip(sources.tolist(), targets.tolist(), bent.tolist(), strict=True):
        ends = start + unit * places[[i, j]]
        middle = start + unit * control(places[i], places[j], np.array([bend]))[0]
        sure = _Sure.of(probabilities[i, j], probabilities[j, i], frozenset((names[i], names[j])) in doubted)
        line, place = _arrow(ends[0], middle, ends[1], box, sure)
        title = tag("title", f"{names[i]} {'—' if sure.is_open else '→'} {names[j]}: {in_percent(sure.probability)}")
        lines.append(tag("g", title, line))
        if len(sources) <= MOST_LABELLED:
            texts.add(place, in_percent(sure.probability))
    boxes = [
        tag(
            "g",
            tag("title", name),
            _box(start + unit * place, box, marked=name == target),
            _text(start + unit * place, label, size=13),
        )
        for name, label, place in zip(names, labels, places, strict=True)
    ]
    content = joined((*lines, *boxes, *texts.drawn))
    svg = tag(
        "svg",
        content,
        viewBox=f"0 0 {size[0]:.0f} {size[1]:.0f}",
        width=f"{size[0]:.0f}",
        height=f"{size[1]:.0f}",
        role="img",
        aria_label=f"Graph of causes and effects. {caption}",
        fill="currentColor",
        font_family="system-ui, sans-serif",
    )
    return Picture(svg, caption)


def _shown(agreed: NamedGraph, target: str | None) -> tuple[np.ndarray, str]:
    """Which columns are drawn, and a sentence about it."""
    graph, nodes = agreed.graph, len(agreed.names)
    joined_by = graph.any(axis=0) | graph.any(axis=1)
    if nodes <= MOST_NODES and graph.sum() <= MOST_EDGES:
        alone = int((~joined_by).sum())
        if alone <= MOST_ALONE or not joined_by.any():
            return np.arange(nodes)[:MOST_NODES], "The likely direct causes, above their effects."
        return np.flatnonzero(joined_by), f"{alone:,} columns without a likely edge are not drawn."
    if target is not None:
        near = np.zeros(nodes, dtype=bool)
        near[agreed.names.index(target)] = True
        for _ in range(2):
            wider = near | graph[:, near].any(axis=1) | graph[near].any(axis=0)
            if wider.sum() > MOST_NODES:
                break
            near = wider
        return np.flatnonzero(near), f"What is around {target}, of {nodes:,} columns."
    edges = agreed.edges().sort_values("probability", ascending=False, kind="stable").head(MOST_EDGES // 2)
    ends = dict.fromkeys(name for pair in zip(edges.source, edges.target, strict=True) for name in pair)
    first = list(ends)[:MOST_NODES]
    return np.array(sorted(map(agreed.names.index, first))), f"The surest edges, of {nodes:,} columns."


class _Sure(NamedTuple):
    """How an edge is drawn: solid where it is sure, dashed where it is only likely, without a head where it is open."""

    probability: float
    is_open: bool
    doubted: bool

    @classmethod
    def of(cls, forth: float, back: float, doubted: bool) -> _Sure:
        is_open = back >= OPEN_DIRECTION
        return cls(forth + back if is_open else forth, is_open, doubted)


def _arrow(
    start: np.ndarray, middle: np.ndarray, end: np.ndarray, box: np.ndarray, sure: _Sure
) -> tuple[Html, np.ndarray]:
    """A quadratic arc between two boxes, cut where it meets them, and the place of its label."""
    steps = np.linspace(0, 1, 201)[:, None]
    points = (1 - steps) ** 2 * start + 2 * steps * (1 - steps) * middle + steps**2 * end
    outside = [np.any(np.abs(points - place) > box / 2 + 2, axis=1) for place in (start, end)]
    free = np.flatnonzero(outside[0] & outside[1])
    kept = points[free[0] : free[-1] + 1] if free.size > 2 else points
    colour = DOUBTED if sure.doubted else "currentColor"
    tip, before = kept[-1], kept[-min(8, len(kept))]
    along = (tip - before) / max(float(np.hypot(*(tip - before))), 1e-9)
    across = np.array([-along[1], along[0]])
    stop = tip if sure.is_open else tip - 7 * along
    inner = kept[np.linspace(0, len(kept) - 1, 9).astype(int)][:-1]
    way = " ".join(f"{x:.1f},{y:.1f}" for x, y in [*inner, stop])
    line = tag(
        "polyline",
        points=way,
        fill="none",
        stroke=colour,
        stroke_width="1.8",
        stroke_opacity="0.85",
        stroke_dasharray=None if sure.probability >= SURE and not sure.is_open else "6 4",
    )
    corners = (tip, tip - 9 * along + 4.5 * across, tip - 9 * along - 4.5 * across)
    head = tag("polygon", points=" ".join(f"{x:.1f},{y:.1f}" for x, y in corners), fill=colour)
    middle_of = kept[int(0.42 * (len(kept) - 1))]
    # To the side that is right of it, so that the number does not lie on the line.
    aside = across if across[0] >= 0 else -across
    return (line if sure.is_open else joined((line, head))), middle_of + aside * [20.0, 10.0]


def _box(place: np.ndarray, box: np.ndarray, *, marked: bool) -> Html:
    x, y = place - box / 2
    return tag(
        "rect",
        x=f"{x:.1f}",
        y=f"{y:.1f}",
        width=f"{box[0]:.1f}",
        height=f"{box[1]:.1f}",
        rx=7,
        fill="none",
        stroke="currentColor",
        stroke_width=3 if marked else 1,
    )


def _text(place: np.ndarray, words: str, *, size: int) -> Html:
    return tag(
        "text",
        words,
        x=f"{place[0]:.1f}",
        y=f"{place[1]:.1f}",
        text_anchor="middle",
        dominant_baseline="central",
        font_size=size,
    )


class _Labels:
    """Numbers beside arrows; one that would lie on a box or on another number is left out."""

    def __init__(self, taken: list[tuple[np.ndarray, np.ndarray]]) -> None:
        self.drawn: list[Html] = []
        self._taken = taken

    def add(self, place: np.ndarray, words: str) -> None:
        half = np.array([3.2 * len(words) + 2, 8.0])
        if any(np.all(np.abs(place - other) < half + own) for other, own in self._taken):
            return
        self._taken.append((place, half))
        self.drawn.append(_text(place, words, size=11))
