"""The section with pairs of columns that may share a hidden cause, for a fit with hidden=True."""

from __future__ import annotations

from vcuda.outputs.report.html import joined, name, paragraphs, table
from vcuda.outputs.report.sections import Request, Section
from vcuda.posterior.mixed_graphs import HiddenCausesPosterior

# Pairs that the table shows, and how probable it must be that they are joined; sure ones stand on the first screen.
MOST_ROWS, MOST_NAMED, SHOWN, SURE = 60, 6, 0.1, 0.8
ABOUT = (
    "This fit allows for hidden variables that cause two columns. Each pair of columns is joined by a direct effect in "
    "one direction or the other, by a hidden cause, or not at all. The picture and the list of edges have direct "
    "effects only."
)


def section(request: Request) -> Section | None:
    posterior = request.posterior
    if not isinstance(posterior, HiddenCausesPosterior):
        return None
    found = posterior.pairs(minimum=SHOWN)
    rows = [
        (name(row[0]), name(row[1]), *(f"{share:.2f}" for share in row[2:]))
        for row in found.head(MOST_ROWS).itertuples(index=False, name=None)
    ]
    head = ("a", "b", "a causes b", "b causes a", "hidden cause", "not joined")
    shown = [table(head, rows, right=(2, 3, 4, 5))] if rows else []
    sure = found[found.bidirected >= SURE]
    named = [f"{first} and {second}" for first, second in zip(sure.source, sure.target, strict=True)]
    more = " and more" if len(named) > MOST_NAMED else ""
    said = (f"Probably joined by a hidden cause: {'; '.join(named[:MOST_NAMED])}{more}.",) if named else ()
    return Section(
        "hidden-causes", "Hidden causes", joined((paragraphs([ABOUT]), *shown)), link="Hidden causes", found=said
    )
