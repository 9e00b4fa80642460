"""Predictions of scores: restored from stored runs, and averaged over graphs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from vcuda.errors import ConfigError
from vcuda.models import FAMILIES
from vcuda.models.interventions import InterventionalPredictive
from vcuda.models.prediction import Prediction, Predictive
from vcuda.posterior.samples import GraphSamples

# The kind of the first runs, which did not name it.
FIRST_KIND = "linear"


def restore_predictive(config: Mapping[str, Any], arrays: Mapping[str, np.ndarray], *, nodes: int) -> Predictive | None:
    """What a posterior of ``nodes`` columns had stored under ``predictive``."""
    if "predictive" not in config:
        return None
    stored = config["predictive"]
    kinds: dict[str, type[Predictive]] = {
        **FAMILIES.predictives(),
        InterventionalPredictive.kind: InterventionalPredictive,
    }
    predictive = kinds[stored.get("kind", FIRST_KIND)].restore(stored, arrays)
    if predictive.scaling.centre.shape != (nodes,):
        raise ConfigError(f"the predictions are for {predictive.scaling.centre.size} columns, the graphs for {nodes}")
    return predictive


def predictive_of(graph_posterior: Any) -> Predictive | None:
    """What a posterior over graphs predicts by; of imputed tables the first, since all have the same columns."""
    members = getattr(graph_posterior, "members", (graph_posterior,))
    return getattr(members[0], "predictive", None)


def predict_rows(
    predictive: Predictive | None, drawn: GraphSamples, values: np.ndarray, names: Sequence[str] | None
) -> Prediction:
    """Rows ``(n, d)`` in the user's units, or codes of categories, averaged over graphs of equal weight.

    Column by column, each set of parents once, however many graphs share it.
    """
    if predictive is None:
        raise ConfigError(
            "this model gives edge probabilities and graphs, but no predictions; fit model linear, gp or additive "
            "for those"
        )
    return predictive.predict(parent_sets(drawn), len(drawn), values, names)


def parent_sets(drawn: GraphSamples) -> Iterator[tuple[int, np.ndarray, list[int]]]:
    """Node by node each set of parents that it has in some graph, and the graphs in which it has them."""
    size = len(drawn)
    graph = np.repeat(np.arange(size), drawn.edge_counts())
    order = np.lexsort((drawn.sources, graph, drawn.targets))
    sources, graph = drawn.sources[order].astype(np.int64), graph[order]
    spans = np.searchsorted(drawn.targets[order], np.arange(drawn.nodes + 1))
    for target in range(drawn.nodes):
        span = slice(spans[target], spans[target + 1])
        sets = np.split(sources[span], np.searchsorted(graph[span], np.arange(1, size)))
        shared: dict[bytes, list[int]] = {}
        for k, parents in enumerate(sets):
            shared.setdefault(parents.tobytes(), []).append(k)
        for members in shared.values():
            yield target, sets[members[0]], members
