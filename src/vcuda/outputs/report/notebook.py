"""A posterior in a notebook: what was found, how sure it is, what could be wrong, and the graph as a still picture.

Every text is escaped, and there is neither script nor style sheet, so that it also shows in a notebook that is not
trusted.
"""

from __future__ import annotations

from vcuda.outputs.report import sentences
from vcuda.outputs.report.drivers import first_drivers
from vcuda.outputs.report.edges import first_edges
from vcuda.outputs.report.html import joined, paragraphs, tag
from vcuda.outputs.report.picture import picture
from vcuda.outputs.report.sections import Request
from vcuda.posterior.posterior import Posterior


def posterior_html(posterior: Posterior) -> str:
    """What ``Posterior._repr_html_`` shows."""
    request = Request(posterior)
    target = posterior.provenance.target
    drawn = picture(posterior, request.consensus, target=target)
    found = first_edges(request) if target is None else first_drivers(request.drivers)
    title = "What was found" if target is None else f"What drives {target}"
    lead = [sentences.found_in_short(posterior, request.consensus)] if target is None else []
    words = tag(
        "div",
        tag("h4", title),
        paragraphs(lead),
        found,
        tag("h4", "How sure it is"),
        paragraphs(sentences.how_sure(posterior)),
        tag("h4", "What could be wrong"),
        tag("p", tag("strong", f"{sentences.verdict(posterior)}.")),
        paragraphs(sentences.could_be_wrong(posterior)),
        style="flex: 1 1 22em; min-width: 16em; max-width: 44em;",
    )
    made = posterior.provenance
    about = f"Learned from {made.rows:,} rows and {made.columns:,} columns. Status: {posterior.status.code}."
    still = tag(
        "div",
        drawn.svg,
        tag("p", drawn.caption),
        style="flex: 1 1 24em; max-width: 100%; overflow: auto;",
    )
    row = tag("div", still, words, style="display: flex; flex-wrap: wrap; gap: 1.5em; align-items: flex-start;")
    more = (
        "posterior.report('report.html') writes all of it to a page; posterior.drivers('column') says what drives one."
    )
    return joined((tag("p", about), row, tag("p", tag("small", more))))
