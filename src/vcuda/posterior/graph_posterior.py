"""GraphPosterior: what an engine has learned, from which graphs and predictions can be drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from vcuda.models.prediction import Prediction
from vcuda.posterior.samples import GraphSamples

if TYPE_CHECKING:
    from vcuda.posterior.mechanisms import CausalModel


class GraphPosterior(Protocol):
    """A distribution over DAGs as learned by an engine; saved as a JSON-able ``config`` and named ``arrays``."""

    kind: ClassVar[str]

    def edge_probabilities(self) -> np.ndarray: ...

    def sample(self, rng: np.random.Generator, names: Sequence[str], size: int) -> GraphSamples: ...

    def predict(
        self, rng: np.random.Generator, values: np.ndarray, graphs: int, *, names: Sequence[str] | None = None
    ) -> Prediction: ...

    def models(self, rng: np.random.Generator, names: Sequence[str], size: int) -> Iterator[CausalModel]:
        """Graphs with functions for their nodes, drawn together; a ConfigError where there are no functions."""
        ...

    def config(self) -> dict[str, Any]: ...

    def arrays(self) -> dict[str, np.ndarray]: ...

    @classmethod
    def restore(cls, config: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> GraphPosterior: ...


def mixture_shares(rng: np.random.Generator, weights: np.ndarray, size: int) -> list[tuple[int, int]]:
    """How many of ``size`` draws fall to each member of a mixture, for those that get any."""
    return [(k, int(n)) for k, n in enumerate(rng.multinomial(size, weights)) if n]


def sample_mixture(
    rng: np.random.Generator,
    names: Sequence[str],
    weights: np.ndarray,
    size: int,
    draw: Callable[[np.random.Generator, int, int, Sequence[str]], GraphSamples],
) -> GraphSamples:
    """Graphs of a mixture in random order; ``draw(rng, member, size, names)`` gives those of one member."""
    parts = [draw(rng, k, n, names) for k, n in mixture_shares(rng, weights, size)]
    joined = GraphSamples.from_counts(
        names,
        np.concatenate([part.edge_counts() for part in parts]),
        np.concatenate([part.sources for part in parts]),
        np.concatenate([part.targets for part in parts]),
    )
    return joined.take(rng.permutation(size)) if len(parts) > 1 else joined


class GraphPosteriorKinds(Mapping[str, "type[GraphPosterior]"]):
    """Kinds of graph posteriors by their names in stored runs; each is imported when it is asked for: one needs JAX."""

    def __init__(self, homes: Mapping[str, tuple[str, str]]) -> None:
        self.homes = homes

    def __getitem__(self, kind: str) -> type[GraphPosterior]:
        module, name = self.homes[kind]
        found: type[GraphPosterior] = getattr(import_module(module), name)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self.homes)

    def __len__(self) -> int:
        return len(self.homes)
