"""The posterior of a table with missing values: the mixture of the posteriors of its imputations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.special import logsumexp

from vcuda.errors import ConfigError
from vcuda.models.prediction import Prediction
from vcuda.posterior.graph_posterior import GraphPosterior, GraphPosteriorKinds, mixture_shares, sample_mixture
from vcuda.posterior.mechanisms import CausalModel
from vcuda.posterior.samples import GraphSamples

# What can be learned from a complete table.
MEMBER_KINDS = GraphPosteriorKinds(
    {
        "trained mixture": ("vcuda.posterior.trained", "TrainedMixture"),
        "sampled graphs": ("vcuda.posterior.sampled", "SampledGraphs"),
        "order mixture": ("vcuda.posterior.mixture", "OrderMixture"),
        "scored graphs": ("vcuda.posterior.point", "ScoredGraphs"),
    }
)


@dataclass(frozen=True, eq=False)
class ImputedMixture:
    """The posteriors of m imputed tables with equal weights: what differs between them is due to the missing values.

    p(G | observed) is the mean of p(G | completed table) over draws of the missing cells, so that every question is
    answered by the mean over members, and every draw is one of a member that is drawn first.
    """

    members: tuple[GraphPosterior, ...]
    kind: ClassVar[str] = "imputed mixture"

    def __post_init__(self) -> None:
        if not self.members:
            raise ConfigError("a mixture over imputations needs at least one member")

    @property
    def weights(self) -> np.ndarray:
        """``(m,)``, all equal."""
        return np.full(len(self.members), 1 / len(self.members))

    def member_probabilities(self) -> np.ndarray:
        """Edge probabilities of each completed table, ``(m, d, d)``."""
        return np.stack([np.asarray(member.edge_probabilities(), dtype=np.float64) for member in self.members])

    def edge_probabilities(self) -> np.ndarray:
        # One after the other: all members at once would be m d² numbers, gigabytes of thousands of columns.
        total = np.zeros((), dtype=np.float64)
        for member in self.members:
            total = total + member.edge_probabilities()
        return total / len(self.members)

    def disagreement(self) -> tuple[np.ndarray, np.ndarray]:
        """Of the probability of every edge between members: standard deviation and range, both ``(d, d)``."""
        mean = self.edge_probabilities()
        squares = np.zeros_like(mean)
        low, high = np.full_like(mean, np.inf), np.full_like(mean, -np.inf)
        for member in self.members:
            own = np.asarray(member.edge_probabilities(), dtype=np.float64)
            squares += (own - mean) ** 2
            np.minimum(low, own, out=low)
            np.maximum(high, own, out=high)
        return np.sqrt(squares / max(len(self.members) - 1, 1)), high - low

    def sample(self, rng: np.random.Generator, names: Sequence[str], size: int) -> GraphSamples:
        def draw(rng: np.random.Generator, member: int, size: int, names: Sequence[str]) -> GraphSamples:
            return self.members[member].sample(rng, names, size)

        return sample_mixture(rng, names, self.weights, size, draw)

    def predict(
        self, rng: np.random.Generator, values: np.ndarray, graphs: int, *, names: Sequence[str] | None = None
    ) -> Prediction:
        """Means, probabilities and errors averaged over members, densities as those of a mixture."""
        shares = mixture_shares(rng, self.weights, graphs)
        member_info = [self.members[member].predict(rng, values, size, names=names) for member, size in shares]
        weights = np.array([size / graphs for _, size in shares])
        joined = Prediction(
            np.tensordot(weights, np.stack([one.mean for one in member_info]), axes=1),
            float(weights @ [one.mse for one in member_info]),
            logsumexp(np.stack([one.log_density for one in member_info]), axis=0, b=weights[:, None]),
        )
        return _with_levels(joined, member_info, weights).with_likely_levels(values)

    def models(self, rng: np.random.Generator, names: Sequence[str], size: int) -> Iterator[CausalModel]:
        shares = mixture_shares(rng, self.weights, size)
        drawn = {member: self.members[member].models(rng, names, count) for member, count in shares}
        # Mixed, so that the first few are as good as any.
        order = rng.permutation(np.repeat([member for member, _ in shares], [count for _, count in shares]))
        return (next(drawn[member]) for member in order.tolist())

    def config(self) -> dict[str, Any]:
        return {"members": [{"kind": member.kind, **member.config()} for member in self.members]}

    def arrays(self) -> dict[str, np.ndarray]:
        return {
            f"{number}.{name}": array
            for number, member in enumerate(self.members)
            for name, array in member.arrays().items()
        }

    @classmethod
    def restore(cls, config: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> ImputedMixture:
        members = []
        for number, member_info in enumerate(config["members"]):
            prefix = f"{number}."
            own = {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
            members.append(MEMBER_KINDS[member_info["kind"]].restore(member_info, own))
        return cls(tuple(members))


def _with_levels(joined: Prediction, members: Sequence[Prediction], weights: np.ndarray) -> Prediction:
    """The probabilities of levels, averaged over members; an imputation may lack a level that another has."""
    if members[0].levels is None:
        return joined
    every = tuple(np.unique(np.concatenate(own)) for own in zip(*(one.levels or () for one in members), strict=True))
    shares = [np.zeros((len(joined.mean), levels.size)) if levels.size else None for levels in every]
    for weight, one in zip(weights.tolist(), members, strict=True):
        for total, levels, own, known in zip(shares, every, one.shares or (), one.levels or (), strict=True):
            if total is not None and own is not None:
                total[:, np.searchsorted(levels, known)] += weight * own
    return joined._replace(shares=tuple(shares), levels=every)
