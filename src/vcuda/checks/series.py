"""Checks of time series alone: columns that wander, and causes that may act later than the fit looks back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vcuda.checks.findings import Finding
from vcuda.checks.subject import SURE
from vcuda.data.messages import listed
from vcuda.data.series import lagged_name

if TYPE_CHECKING:
    from vcuda.checks.subject import Subject
    from vcuda.posterior.posterior import Posterior

UNIT_ROOT, LONGEST_LAG = "unit root", "longest lag"
# Dickey and Fuller's 5 % bound of the t-statistic, with a constant; and the sum of a column's own weights above which
# it counts as wandering.
DICKEY_FULLER, NEAR_ONE = -2.86, 0.95


def series_findings(posterior: Posterior, subject: Subject) -> list[Finding]:
    """What only a series can show, each as a note."""
    return [*_wandering(posterior, subject), *_late(posterior)]


def _wandering(posterior: Posterior, subject: Subject) -> list[Finding]:
    """Columns that do not return to a level: by a regression of their changes on where they were."""
    lagged = posterior.lagged
    assert lagged is not None
    values, found, worst = subject.table.values, [], -np.inf
    for k in range(lagged.nodes):
        if subject.table.kinds[k] != "number":
            continue
        steps = values[:, [k + lag * lagged.nodes for lag in range(lagged.lags + 1)]]
        steps = steps[~np.isnan(steps).any(axis=1)]
        design = np.column_stack([np.ones(len(steps)), steps[:, 1], steps[:, 1:-1] - steps[:, 2:]])
        if len(steps) < 4 * design.shape[1]:
            continue
        change = steps[:, 0] - steps[:, 1]
        inverse = np.linalg.pinv(design.T @ design)
        weights = inverse @ design.T @ change
        left = float(np.sum((change - design @ weights) ** 2)) / (len(steps) - design.shape[1])
        t = float(weights[1] / np.sqrt(max(left * inverse[1, 1], 1e-300)))
        if t > DICKEY_FULLER and 1 + weights[1] > NEAR_ONE:
            found.append(lagged.names[k])
            worst = max(worst, t)
    if not found:
        return []
    which = "moves" if len(found) == 1 else "move"
    edges = [
        (lagged_name(source, lag), target)
        for source, target, lag in _sure(posterior)
        if source != target and {source, target} <= set(found)
    ]
    return [
        Finding(
            check=UNIT_ROOT,
            severity="warning" if edges else "note",
            columns=tuple(found),
            edges=tuple(edges),
            sentence=(
                f"{listed(found)} {which} like a random walk: nothing shows that a level is returned to (Dickey-Fuller "
                f"t = {worst:.1f}, below {DICKEY_FULLER} it would)."
            ),
            changes=(
                "Edges between columns that wander may be no more than two that wander side by side."
                if edges
                else "No sure edge joins two of them."
            ),
            remedy="Fit the changes from step to step instead (table.diff() in pandas), or a trend (trend='linear').",
            statistic=worst,
        )
    ]


def _sure(posterior: Posterior) -> list[tuple[str, str, int]]:
    """Source, target and lag of the edges that the posterior is sure of."""
    sure = posterior.edges(minimum=SURE)
    return list(zip(sure["source"].tolist(), sure["target"].tolist(), sure["lag"].tolist(), strict=True))


def _late(posterior: Posterior) -> list[Finding]:
    """Sure edges at the longest lag: later ones may be missing."""
    lagged = posterior.lagged
    assert lagged is not None
    if posterior.provenance.get("lags") == "auto":
        return []
    edges = tuple((lagged_name(source, lag), target) for source, target, lag in _sure(posterior) if lag == lagged.lags)
    if not edges:
        return []
    shown = ", ".join(f"{source} -> {target}" for source, target in edges[:5])
    return [
        Finding(
            check=LONGEST_LAG,
            severity="note",
            columns=tuple(dict.fromkeys(target for _, target in edges)),
            edges=edges,
            sentence=f"Causes act {lagged.step_in_words(lagged.lags)} later, the longest lag of the fit: {shown}.",
            changes="Where causes act later still, edges at shorter lags may stand for them.",
            remedy=f"Fit with lags={lagged.lags + 1} or lags='auto', and see whether these edges stay.",
            statistic=float(len(edges)),
        )
    ]
