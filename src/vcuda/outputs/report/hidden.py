"""The section with pairs of columns that may share a hidden cause, for a fit with hidden=True."""

from __future__ import annotations

from vcuda.outputs.report.html import paragraphs
from vcuda.outputs.report.sections import Request, Section, TableSection, in_short
from vcuda.posterior.mixed_graphs import HiddenCausesPosterior
from vcuda.posterior.posterior import Posterior

# Pairs that the table shows, and how probable it must be that they are joined; sure ones stand on the first screen.
MOST_ROWS, MOST_NAMED, SHOWN, SURE = 60, 6, 0.1, 0.8
ABOUT = (
    "This fit allows for hidden variables that cause two columns. Each pair of columns is joined by a direct effect in "
    "one direction or the other, by a hidden cause, or not at all."
)


def section(request: Request) -> Section | None:
    found = hidden_causes(request.posterior)
    only_direct = paragraphs(["The picture and the list of edges have direct effects only."])
    return None if found is None else found.section(only_direct)


def hidden_causes(posterior: Posterior) -> TableSection | None:
    """How each pair is joined; None where the fit knows no hidden causes."""
    if not isinstance(posterior, HiddenCausesPosterior):
        return None
    found = posterior.pairs(minimum=SHOWN)
    sure = found[found.bidirected >= SURE]
    named = [f"{first} and {second}" for first, second in zip(sure.source, sure.target, strict=True)]
    return TableSection(
        id="hidden-causes",
        title="Hidden causes",
        link="Hidden causes",
        sentences=(ABOUT,),
        head=("a", "b", "a causes b", "b causes a", "hidden cause", "not joined"),
        rows=[
            (str(first), str(second), *(f"{share:.2f}" for share in shares))
            for first, second, *shares in found.head(MOST_ROWS).itertuples(index=False, name=None)
        ],
        numbers=(2, 3, 4, 5),
        found=in_short("Probably joined by a hidden cause", named, MOST_NAMED),
    )
