"""The section with what environments changed, for a fit with contexts."""

from __future__ import annotations

from vcuda.outputs.report.sections import Request, Section, TableSection, in_short
from vcuda.posterior.posterior import Posterior

# Changes that a table shows, and how probable they must be; sure ones stand on the first screen.
MOST_ROWS, MOST_NAMED, SHOWN, SURE = 40, 6, 0.1, 0.9


def section(request: Request) -> Section | None:
    found = changes(request.posterior)
    return None if found is None else found.section()


def changes(posterior: Posterior) -> TableSection | None:
    """What each environment changed; None where rows come from one."""
    made = posterior.provenance.get("contexts")
    if not made or "targets" not in posterior.diagnostics:
        return None
    found = posterior.targets(minimum=SHOWN)
    changes = list(zip(found["environment"], found["column"], found["probability"].tolist(), strict=True))
    reference, count = made["reference"], len(made["rows"])
    sentences = [
        f"Rows come from {count} environments. A change is a difference from {reference}, the reference, in how a "
        "column follows its causes, in its noise or in its level; what its causes pass on is no change. The graph and "
        f"the effects are those of {reference}."
    ]
    if len(changes) > MOST_ROWS:
        sentences.append(f"{len(changes) - MOST_ROWS:,} less probable changes are not shown.")
    if not changes:
        sentences.append(f"No change has a probability of {SHOWN} or more.")
    sure = [f"{site} changed {column}" for site, column, likely in changes if likely >= SURE]
    return TableSection(
        id="changes",
        title="What environments changed",
        link="Changes",
        sentences=tuple(sentences),
        head=("environment", "column", "probability"),
        rows=[(site, column, f"{likely:.2f}") for site, column, likely in changes[:MOST_ROWS]],
        numbers=(2,),
        found=in_short("Surely changed by environments", sure, MOST_NAMED),
    )
