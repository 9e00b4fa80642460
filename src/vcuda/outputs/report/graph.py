"""The picture of the graph on the first screen: a still one, and what the script makes one to explore from."""

from __future__ import annotations

from typing import Any

import numpy as np

from vcuda.outputs.labels import shortened
from vcuda.outputs.report.edges import ListedEdges
from vcuda.outputs.report.html import LONGEST_NAME, Html, joined, tag
from vcuda.outputs.report.picture import picture
from vcuda.outputs.report.sections import Request, Section
from vcuda.outputs.report.sentences import pairs_in_doubt
from vcuda.summaries.relations import ancestor_probabilities

# Graphs that are searched for paths, and for how many variables; smaller shares are not listed.
UPSTREAM_DRAWS, MOST_VARIABLES_UPSTREAM, SMALLEST_UPSTREAM = 400, 250, 0.05


def section(request: Request) -> Section:
    """The still picture is what a reader without script and paper show; the script puts its own in the place."""
    target = request.posterior.provenance.target
    drawn = picture(request.posterior, request.consensus, target=target)
    legend = "Solid: sure, at 90 % or more. Dashed: likely. Without a head: connected, direction open."
    if request.posterior.checks().warnings:
        legend += " Amber: in doubt, see Checks."
    body = joined(
        (
            tag(
                "figure",
                drawn.svg,
                tag("figcaption", f"{drawn.caption} {legend} No arrow says how strong an effect is."),
                id="still",
                class_="still",
            ),
            Html('<div id="explore" class="explore" hidden></div>'),
            Html(
                '<div id="focus" class="focus" hidden><h3 id="focus-name"></h3><div class="sides">'
                '<div><h4>Causes</h4><div id="focus-causes"></div></div>'
                '<div><h4>Effects</h4><div id="focus-effects"></div></div></div></div>'
            ),
        )
    )
    return Section("graph", "The graph", body, data=_drawn(request))


def _drawn(request: Request) -> dict[str, Any]:
    """What the script draws: names, edges, and who is upstream of whom."""
    posterior, edges = request.posterior, ListedEdges.of(request)
    names, nodes, doubted = posterior.names, len(posterior.names), pairs_in_doubt(posterior)
    upstream: dict[str, list[Any]] | None = None
    if nodes <= MOST_VARIABLES_UPSTREAM:
        shares = ancestor_probabilities(posterior, draws=UPSTREAM_DRAWS, seed=request.seed).to_numpy()
        first, last = np.nonzero(shares >= SMALLEST_UPSTREAM)
        upstream = {"source": first.tolist(), "target": last.tolist(), "share": _rounded(shares[first, last])}
    target, known = posterior.provenance.target, _known(posterior.provenance.get("knowledge") or {})
    pairs = [(names[i], names[j]) for i, j in zip(edges.source, edges.target, strict=True)]
    return {
        "names": [shortened(name, LONGEST_NAME) for name in names],
        "variable": None if target is None else names.index(target),
        "source": edges.source.tolist(),
        "target": edges.target.tolist(),
        "probability": _rounded(edges.probability),
        "opposite": _rounded(edges.opposite),
        "agreed": edges.agreed.astype(int).tolist(),
        "doubted": [k for k, pair in enumerate(pairs) if frozenset(pair) in doubted],
        "known": [k for k, pair in enumerate(pairs) if pair in known],
        "upstream": upstream,
    }


def _known(knowledge: dict[str, Any]) -> set[tuple[str, str]]:
    """Edges that somebody said are there."""
    return {(source, target) for source, target in knowledge.get("required", [])}


def _rounded(probabilities: np.ndarray) -> list[float]:
    return np.round(probabilities, 3).tolist()
