"""The sections of the report, in their order; each maker returns None where it has nothing to say."""

from __future__ import annotations

from vcuda.outputs.report import contexts, details, edges, effects, graph
from vcuda.outputs.report.sections import Maker

CONTENTS: tuple[Maker, ...] = (
    graph.section,
    effects.section,
    edges.section,
    contexts.section,
    details.checks,
    details.trust,
    details.supported,
    details.asked,
    details.notes,
    details.again,
)
