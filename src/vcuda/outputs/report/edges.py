"""The surest edges in words, and the section with all of them as a table that can be sorted and searched."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from vcuda.outputs.report import sentences
from vcuda.outputs.report.assets import asset
from vcuda.outputs.report.html import Html, name, table_rows, tag, text
from vcuda.outputs.report.sections import Request, Section
from vcuda.posterior.status import in_percent

# Edges that a report holds: every pair at 200 variables. Those that are less probable than what it shows are left out.
MOST_EDGES, SMALLEST_PROBABILITY = 40_000, 0.001
ROWS_WITHOUT_SCRIPT = 25


class ListedEdges(NamedTuple):
    """The edges of the report ``(m,)``, the surest first; ``agreed`` marks those of the consensus."""

    source: np.ndarray
    target: np.ndarray
    probability: np.ndarray
    opposite: np.ndarray
    agreed: np.ndarray

    @classmethod
    def of(cls, request: Request) -> ListedEdges:
        probabilities, agreed = request.posterior.edge_probabilities.to_numpy(), request.consensus.graph
        kept = (probabilities >= SMALLEST_PROBABILITY) | agreed
        sources, targets = np.nonzero(kept & ~np.eye(len(probabilities), dtype=bool))
        order = np.argsort(-probabilities[sources, targets], kind="stable")[:MOST_EDGES]
        sources, targets = sources[order], targets[order]
        forth, back = probabilities[sources, targets], probabilities[targets, sources]
        return cls(sources, targets, forth, back, agreed[sources, targets])


def section(request: Request) -> Section:
    edges, names = ListedEdges.of(request), request.posterior.names
    # For a reader whose program runs no script; the script replaces them.
    rows = (
        (names[i], names[j], f"{p:.3f}", f"{q:.3f}", f"{max(1 - p - q, 0.0):.3f}", "yes" if agreed else "")
        for i, j, p, q, agreed in zip(*(column[:ROWS_WITHOUT_SCRIPT] for column in edges), strict=True)
    )
    body = asset("edges.html").replace("$edge_sentence", text(_sentences(edges, len(names))))
    return Section(
        "edges", "Edges", Html(body.replace("$first_edges", table_rows(rows, right=(2, 3, 4)))), link="Edges"
    )


def first_edges(request: Request) -> Html:
    """The surest edges in words: which drives which, how probable that is, and what is open about it."""
    items = []
    for edge in sentences.first_edges(request.posterior, request.consensus):
        if edge.is_open:
            said = [name(edge.source), " and ", name(edge.target), " are connected, direction open"]
        else:
            said = [name(edge.source), " drives ", name(edge.target)]
        said.append(f", {edge.note}: " if edge.note else ": ")
        doubt = tag("span", " in doubt", class_="doubt") if edge.in_doubt else Html()
        items.append(tag("li", *said, tag("strong", in_percent(edge.probability), class_="share"), doubt))
    return tag("ul", *items) if items else Html()


def _sentences(edges: ListedEdges, nodes: int) -> str:
    shown = len(edges.source)
    left_out = nodes * (nodes - 1) - shown
    if not shown:
        return f"No pair has a probability of {SMALLEST_PROBABILITY} or more."
    least = edges.probability[-1] if shown == MOST_EDGES else SMALLEST_PROBABILITY
    return f"{shown:,} ordered pairs." + (
        f" {left_out:,} others, with probabilities below {least:.3g}, are left out." if left_out else ""
    )
