"""What is stated where the checks find that the rows break every model here: what small parts of them agree on."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from vcuda.checks.run import ABOUT_ROWS, ORDER
from vcuda.checks.subject import SURE
from vcuda.data.dataset import Dataset
from vcuda.data.messages import listed
from vcuda.fitting.parts import Careful, distance_of_rows
from vcuda.posterior.posterior import Outcome, Posterior
from vcuda.posterior.provenance import Provenance
from vcuda.posterior.sampled import SampledGraphs

if TYPE_CHECKING:
    from vcuda.checks.findings import Checks


def care_for(checks: Checks, table: Dataset) -> Careful | None:
    """How to fit the rows again: None where no check warns of rows that no model here describes."""
    found = {finding.check for finding in checks.warnings}.intersection(ABOUT_ROWS)
    distance = distance_of_rows(table.values) if ORDER in found else 1
    # Neighbours that are hardly alike count as independent.
    return None if not found or (found == {ORDER} and distance == 1) else Careful(distance)


def stated_carefully(posterior: Posterior, again: Outcome, careful: Careful) -> Posterior:
    """The posterior with the probabilities of the careful fit; effects and predictions are of all rows."""
    before = posterior.graph_posterior
    found = again.graph_posterior
    if not isinstance(found, SampledGraphs) or again.status.code in ("interrupted", "failed"):
        return posterior
    predictive = before.predictive if isinstance(before, SampledGraphs) else found.predictive
    sure, left = (np.asarray(one.edge_probabilities()) >= SURE for one in (before, found))
    warned = sorted({finding.check for finding in posterior.checked.warnings if finding.check in ABOUT_ROWS})
    apart = f", each at least {careful.distance} rows from the next" if careful.distance > 1 else ""
    sentence = (
        f"The checks warn ({listed(warned)}), so the answer is the mean over small random parts of the rows{apart}: of "
        f"{sure.sum()} edges that all rows are sure of, {(sure & left).sum()} are still sure. robust=False states what "
        "all rows say."
    )
    made = dict(posterior.provenance)
    choice = made.get("choice") or {"sentences": []}
    made["choice"] = {**choice, "sentences": [sentence, *choice["sentences"]]}
    made["careful"] = {"distance": careful.distance, "sure_before": int(sure.sum()), "sure": int(left.sum())}
    return replace(
        posterior,
        graph_posterior=replace(found, predictive=predictive),
        status=again.status,
        diagnostics=again.diagnostics,
        trace=again.trace,
        provenance=Provenance(made),
    )
