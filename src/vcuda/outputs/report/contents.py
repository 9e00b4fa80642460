"""The sections below the first screen, in their order; a maker returns None where it has nothing to say."""

from __future__ import annotations

from vcuda.outputs.report import contexts, details, drivers, edges, effects, hidden, time
from vcuda.outputs.report.sections import Maker

CONTENTS: tuple[Maker, ...] = (
    drivers.section,
    effects.section,
    contexts.section,
    time.section,
    hidden.section,
    edges.section,
    details.checks,
    details.trust,
    details.asked,
    details.notes,
    details.again,
    # Statistics come last: what stands above is for every reader.
    details.statistics,
)
