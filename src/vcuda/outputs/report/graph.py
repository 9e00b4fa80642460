"""The section with the picture of the graph, and what the script draws it from."""

from __future__ import annotations

from typing import Any

import numpy as np

from vcuda.outputs.labels import shortened
from vcuda.outputs.layout import bends, layered, overhang
from vcuda.outputs.report.assets import asset
from vcuda.outputs.report.edges import ListedEdges
from vcuda.outputs.report.html import LONGEST_NAME, Html
from vcuda.outputs.report.sections import Request, Section
from vcuda.outputs.report.sentences import pairs_in_doubt
from vcuda.summaries.relations import ancestor_probabilities

# Graphs that are searched for paths, and for how many variables; smaller shares are not listed.
UPSTREAM_DRAWS, MOST_VARIABLES_UPSTREAM, SMALLEST_UPSTREAM = 400, 250, 0.05
# Pixels for a unit of the layout, and the box of a node.
UNIT, BOX, MARGIN = (150, 110), (126, 34), (80, 36)


def section(request: Request) -> Section:
    doubted = bool(request.posterior.checks().warnings)
    legend = ' <span class="doubt">Amber arrows are in doubt: see Checks.</span>' if doubted else ""
    body = Html(asset("graph.html").replace("$doubt_legend", legend))
    return Section("graph", "The graph", body, link="Graph", data=_drawn(request))


def _drawn(request: Request) -> dict[str, Any]:
    """What the script draws: names, places, edges, and who is upstream of whom."""
    posterior, edges = request.posterior, ListedEdges.of(request)
    layout = layered(request.consensus.graph)
    bent = bends(layout, edges.source, edges.target)
    left, right = overhang(layout, edges.source, edges.target, bent)
    margin = max(MARGIN[0], UNIT[0] * left + 8)
    names, nodes, doubted = posterior.names, len(posterior.names), pairs_in_doubt(posterior)
    upstream: dict[str, list[Any]] | None = None
    if nodes <= MOST_VARIABLES_UPSTREAM:
        shares = ancestor_probabilities(posterior, draws=UPSTREAM_DRAWS, seed=request.seed).to_numpy()
        first, last = np.nonzero(shares >= SMALLEST_UPSTREAM)
        upstream = {"source": first.tolist(), "target": last.tolist(), "share": _rounded(shares[first, last])}
    return {
        "names": [shortened(name, LONGEST_NAME) for name in names],
        "x": np.round(margin + UNIT[0] * layout.x, 1).tolist(),
        "y": np.round(MARGIN[1] + UNIT[1] * layout.y, 1).tolist(),
        "width": round(margin + UNIT[0] * layout.width + max(MARGIN[0], UNIT[0] * right + 8), 1),
        "height": round(2 * MARGIN[1] + UNIT[1] * layout.height, 1),
        "box": BOX,
        "source": edges.source.tolist(),
        "target": edges.target.tolist(),
        "probability": _rounded(edges.probability),
        "opposite": _rounded(edges.opposite),
        "agreed": edges.agreed.astype(int).tolist(),
        "doubted": [
            int(frozenset((names[i], names[j])) in doubted) for i, j in zip(edges.source, edges.target, strict=True)
        ],
        "bend": np.round(UNIT[0] * bent).astype(int).tolist(),
        "upstream": upstream,
    }


def _rounded(probabilities: np.ndarray) -> list[float]:
    return np.round(probabilities, 3).tolist()
