"""What environments changed, after a fit: the probability of each change, and the mechanisms of the reference.

Predictions, effects and model checks are about the mechanisms of the reference environment. A cell whose mechanism its
environment has probably changed says as little about those as a cell that an experiment set: it counts for what it
causes, not for what causes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from vcuda.data.contexts import Contexts
from vcuda.data.dataset import Dataset
from vcuda.data.moments import Moments, merge
from vcuda.data.streaming import StreamedTable
from vcuda.data.streaming.statistics import Regime, Statistics
from vcuda.infer.scored import ScoredTable
from vcuda.models import interventions
from vcuda.models.prediction import Predictive
from vcuda.models.protocol import LocalScore, ScoreSpec
from vcuda.posterior.posterior import Outcome
from vcuda.posterior.predictions import parent_sets
from vcuda.posterior.sampled import SampledGraphs
from vcuda.posterior.samples import GraphSamples

# An environment that changed a column with this probability does not show the mechanism of the reference.
CHANGED = 0.5
# Sets of parents of a column are looked at until they have this share of the drawn graphs, and no more than so many.
ENOUGH_GRAPHS, MOST_SETS = 0.995, 60
# Where diagnostics keep the probabilities, (e - 1, d).
KEY = "targets"


def change_probabilities(score: LocalScore, pool: GraphSamples) -> np.ndarray | None:
    """The probability (e - 1, d) that each environment but the reference changed each column, averaged over graphs."""
    by_target: dict[int, list[tuple[float, np.ndarray]]] = {}
    for target, parents, members in parent_sets(pool):
        by_target.setdefault(target, []).append((float(pool.weights[members].sum()), parents))
    found = []
    for target in range(pool.nodes):
        total, seen = None, 0.0
        for weight, parents in sorted(by_target[target], key=lambda one: -one[0])[:MOST_SETS]:
            own = score.changes(target, parents.tolist())
            if own is None:
                return None
            total = weight * own if total is None else total + weight * own
            seen += weight
            if seen >= ENOUGH_GRAPHS:
                break
        assert total is not None
        found.append(total / seen)
    return np.array(found).T[1:]


def with_targets(outcome: Outcome, score: LocalScore) -> Outcome:
    """The outcome with what environments changed, if the rows come from several."""
    found = outcome.graph_posterior
    if not isinstance(found, SampledGraphs):
        return outcome
    changed = change_probabilities(score, found.pool)
    if changed is None:
        return outcome
    return outcome._replace(diagnostics=outcome.diagnostics | {KEY: changed.tolist()})


def with_reference(outcome: Outcome, scored: ScoredTable, spec: ScoreSpec) -> Outcome:
    """The outcome with the mechanisms of the reference environment to predict by."""
    found = outcome.graph_posterior
    if KEY not in outcome.diagnostics or not isinstance(found, SampledGraphs):
        return outcome
    predictive = reference_predictive(scored, spec, np.array(outcome.diagnostics[KEY]))
    return outcome._replace(graph_posterior=replace(found, predictive=predictive))


def reference_predictive(scored: ScoredTable, spec: ScoreSpec, targets: np.ndarray) -> Predictive | None:
    """What a score says of new rows of the reference environment, given what the others changed (e - 1, d)."""
    data: Any = scored.data
    if isinstance(data, StreamedTable):
        data = replace(data, statistics=_reference_statistics(data.statistics, targets))
        score = interventions.prepare_streamed(spec, data.statistics, None, None)
    else:
        data = reference_table(data, targets)
        score = interventions.prepare(spec, data.values, data.interventions)
    return score.predictive(data, scaling=scored.units)


def reference_table(table: Dataset, targets: np.ndarray | None) -> Dataset:
    """The table with the cells whose mechanism was changed as if an experiment had set them."""
    if targets is None or table.environment is None:
        return table.without_contexts()
    changed = np.vstack([np.zeros(table.d, dtype=bool), targets >= CHANGED])[table.environment]
    held = changed if table.interventions is None else changed | table.interventions
    return replace(table.without_contexts(), interventions=held if held.any() else None)


def _reference_statistics(statistics: Statistics, targets: np.ndarray) -> Statistics:
    assert statistics.strata is not None
    assert statistics.environments is not None
    cells = statistics.environments[1]
    changed = np.vstack([np.zeros(len(statistics.names), dtype=bool), targets >= CHANGED])
    regimes: dict[Regime, Moments] = {}
    for (held, own), moments in statistics.strata.items():
        also = changed[cells.index(own)]
        key = tuple(name for name, set_here in zip(statistics.names, also, strict=True) if set_here or name in held)
        regimes[key] = merge(regimes[key], moments) if key in regimes else moments
    return replace(statistics, regimes=regimes, strata=None)


def mean_targets(diagnostics: Sequence[dict[str, Any]], shares: Sequence[float] | None = None) -> dict[str, Any]:
    """The mean of what several fits of a table found, as an entry of diagnostics; nothing where they found nothing."""
    found = [one[KEY] for one in diagnostics if KEY in one]
    if not found or len(found) < len(diagnostics):
        return {}
    return {KEY: np.average(np.array(found), axis=0, weights=shares).tolist()}


def contexts_to_dict(contexts: Contexts | None) -> dict[str, Any] | None:
    """What the run's config keeps of the environments."""
    if contexts is None:
        return None
    rows = dict(zip(contexts.names, contexts.rows, strict=True))
    return {"columns": list(contexts.columns), "reference": contexts.reference, "rows": rows}
