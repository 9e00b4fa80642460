"""Two posteriors side by side: which edges became surer, and by how much."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from vcuda.errors import ConfigError
from vcuda.posterior.posterior import Posterior


@dataclass(frozen=True, eq=False)
class Comparison:
    """What changed between two posteriors, over the variables that both have.

    ``edges`` has every ordered pair with both probabilities and their difference (other less this), what changed most
    first. ``sum_of_differences`` adds up the absolute differences of all edges. ``pairs_that_differ`` is the least
    expected number of pairs of variables (joined one way, the other way, or apart) about which a graph of the one and
    a graph of the other disagree, however they are drawn together: the total variation distance of each pair, summed.
    ``only_here`` and ``only_there`` name the variables that only one of the two has.
    """

    edges: pd.DataFrame
    sum_of_differences: float
    pairs_that_differ: float
    only_here: tuple[str, ...]
    only_there: tuple[str, ...]

    def __repr__(self) -> str:
        lines = [
            f"  {row.source} -> {row.target}  {row.probability:.2f} -> {row.other:.2f} ({row.difference:+.2f})"
            for row in self.edges[self.edges.difference.abs() >= 0.005].head(10).itertuples()
        ]
        title = (
            f"<Comparison: at least {self.pairs_that_differ:.1f} pairs expected to differ, "
            f"absolute differences of edges sum to {self.sum_of_differences:.1f}"
        )
        return "\n".join([title, *lines]) + ">"


def compare(posterior: Posterior, other: Posterior) -> Comparison:
    """Edge by edge, what another posterior says of the same variables; they are matched by name."""
    common = [name for name in posterior.names if name in set(other.names)]
    if len(common) < 2:
        raise ConfigError(
            f"two posteriors can be compared when they share at least two variables; these share {len(common)}"
        )
    first = posterior.edge_probabilities.loc[common, common].to_numpy()
    there = other.edge_probabilities.loc[common, common].to_numpy()
    difference = there - first
    sources, targets = np.nonzero(~np.eye(len(common), dtype=bool))
    order = np.argsort(-np.abs(difference[sources, targets]), kind="stable")
    sources, targets = sources[order], targets[order]
    names = np.asarray(common, dtype=object)
    edges = pd.DataFrame(
        {
            "source": names[sources],
            "target": names[targets],
            "probability": first[sources, targets],
            "other": there[sources, targets],
            "difference": difference[sources, targets],
        }
    )
    # Of a pair that is i -> j, j -> i or apart, the last changes by minus the sum of the others.
    by_pair = 0.5 * (np.abs(difference) + np.abs(difference.T) + np.abs(difference + difference.T))
    return Comparison(
        edges=edges,
        sum_of_differences=float(np.abs(difference).sum()),
        pairs_that_differ=float(np.triu(by_pair, k=1).sum()),
        only_here=tuple(name for name in posterior.names if name not in set(common)),
        only_there=tuple(name for name in other.names if name not in set(common)),
    )
