"""Causal models drawn from a posterior: a DAG, and for each of its nodes a function of its parents and noise."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vcuda.data.scaling import Scaling
from vcuda.errors import ConfigError
from vcuda.models.prediction import NodePosterior, Predictive
from vcuda.posterior.samples import GraphSamples


@dataclass(frozen=True, eq=False)
class CausalModel:
    """One draw of everything: a DAG as edge lists, and a mechanism for each node that is asked for.

    ``mechanism(node, parents)`` draws anew at every call; ask once for each node. It is a `Mechanism`, or a
    `SimulatedMechanism` in tables of several kinds. ``scaling`` leads from the user's units to those of the mechanisms.
    """

    sources: np.ndarray
    targets: np.ndarray
    scaling: Scaling
    mechanism: Callable[[int, np.ndarray], Any]

    def parents(self, node: int) -> np.ndarray:
        return _parents(self.sources, self.targets, node)


def _parents(sources: np.ndarray, targets: np.ndarray, node: int) -> np.ndarray:
    return np.sort(sources[targets == node]).astype(np.int64)


def draw_models(predictive: Predictive | None, graphs: GraphSamples, rng: np.random.Generator) -> Iterator[CausalModel]:
    """A model for each of the graphs; sets of parents that come again are regressed once."""
    if predictive is None:
        raise ConfigError(
            "this model gives edge probabilities and graphs, but no functions, and so no effects; fit model linear, gp "
            "or additive for those"
        )
    known: dict[tuple[int, bytes], NodePosterior] = {}

    def posterior_of(node: int, parents: np.ndarray) -> NodePosterior:
        key = (node, parents.tobytes())
        if key not in known:
            known[key] = predictive.node(node, parents)
        return known[key]

    shared = predictive.shared_parameter()
    for k in range(len(graphs)):
        sources, targets = graphs.edges(k)

        def nodes(sources: np.ndarray = sources, targets: np.ndarray = targets) -> Sequence[NodePosterior]:
            return [posterior_of(node, _parents(sources, targets, node)) for node in range(graphs.nodes)]

        value = None if shared is None else shared.draw(rng, nodes)

        def mechanism(node: int, parents: np.ndarray, value: float | None = value) -> Any:
            return posterior_of(node, parents).draw(rng, value)

        yield CausalModel(sources, targets, predictive.scaling, mechanism)
