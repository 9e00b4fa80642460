"""Which experiment next? What setting one variable from outside is expected to teach about the graph."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.special import entr

from vcuda.arguments import check_draws, position
from vcuda.graphs import compelled_edges, directions_that_follow
from vcuda.posterior.posterior import Posterior
from vcuda.summaries.lags import refuse_lags

_Patterns = dict[tuple[int, ...], dict[tuple[int, ...], float]]


def next_experiment(
    posterior: Posterior, *, already: Sequence[str] | None = None, draws: int = 1000, seed: int = 0
) -> pd.DataFrame:
    """Rank the variables by what an experiment that sets one of them is expected to teach about the graph.

    Setting v shows which neighbours of v are its effects and which its causes; what observation of the same variables
    could show as well does not count. A line for each variable, the best experiment first:

    ``information``
        Bits: the entropy, over the posterior, of which neighbours are causes of v, given for which of them the Markov
        equivalence class of the graph leaves that open. It is what the experiment shows if it has rows enough, and
        zero where the posterior knows the directions already.
    ``edges_oriented``
        The expected number of edges whose direction the experiment settles, at v and by what follows elsewhere, each
        counted by how uncertain the posterior is about its direction (1 for an even chance).

    Parameters
    ----------
    already
        Variables that were set in experiments of their own, one at a time, and are in the table; by default those
        of the fit.
    draws
        Graphs that the expectations are taken over.

    Notes
    -----
    Costs are the caller's business: divide ``information`` by what an experiment costs, and sort again.
    """
    refuse_lags(posterior, "next_experiment")
    check_draws(draws)
    if already is None:
        design = posterior.provenance.get("interventions") or {"rows": {}}
        already = [name for name, count in design["rows"].items() if count["alone"]]
    done = [position(posterior.names, name) for name in already]
    samples = posterior.sample(draws, seed=seed)
    nodes = samples.nodes
    doubt = direction_doubt(posterior.edge_probabilities.to_numpy())
    oriented = np.zeros(nodes)
    # For each variable: weights of the sets of causes, by the neighbours whose direction the class leaves open.
    patterns: list[_Patterns] = [defaultdict(lambda: defaultdict(float)) for _ in range(nodes)]
    gains: dict[bytes, dict[int, float]] = {}
    for k, weight in enumerate(samples.weights):
        sources, targets = samples.edges(k)
        unsettled = ~compelled_edges(sources, targets, nodes, intervened=done)
        for edges in _components(sources[unsettled], targets[unsettled]):
            key = edges.tobytes()
            if key not in gains:
                gains[key] = _orientation_gains(edges, doubt)
            for node, gain in gains[key].items():
                oriented[node] += weight * gain
                causes = edges[edges[:, 1] == node, 0].tolist()
                effects = edges[edges[:, 0] == node, 1].tolist()
                patterns[node][tuple(sorted(causes + effects))][tuple(causes)] += weight
    information = np.array([_conditional_entropy(found) for found in patterns])
    order = np.lexsort((np.arange(nodes), -oriented, -np.round(information, 9)))
    names = np.asarray(posterior.names, dtype=object)
    return pd.DataFrame(
        {"variable": names[order], "information": information[order], "edges_oriented": oriented[order]}
    )


def direction_doubt(probabilities: np.ndarray) -> np.ndarray:
    """The entropy in bits of the direction of each edge ``(d, d)``, given that there is one."""
    adjacent = probabilities + probabilities.T
    share = probabilities / np.where(adjacent > 0, adjacent, 1.0)
    return (entr(share) + entr(share.T)) / np.log(2)


def _components(sources: np.ndarray, targets: np.ndarray) -> list[np.ndarray]:
    """Undirected edges of an essential graph by connected component, each an ``(m, 2)`` array sorted by source.

    What an experiment orients in one component does not depend on the others, nor on the directed edges (Hauser and
    Bühlmann 2012).
    """
    if not sources.size:
        return []
    present, ends = np.unique(np.stack([sources, targets], axis=1), return_inverse=True)
    first, second = ends.reshape(-1, 2).T
    joined = coo_array((np.ones(first.size), (first, second)), shape=(present.size, present.size))
    component = connected_components(joined, directed=False)[1][first]
    order = np.lexsort((targets, sources, component))
    edges = np.stack([sources, targets], axis=1)[order].astype(np.int64)
    return np.split(edges, np.flatnonzero(np.diff(component[order])) + 1)


def _orientation_gains(edges: np.ndarray, doubt: np.ndarray) -> dict[int, float]:
    """What setting each node of a component settles of its directions, each edge counted by its doubt."""
    present, ends = np.unique(edges, return_inverse=True)
    sources, targets = ends.reshape(-1, 2).T
    doubts = doubt[edges[:, 0], edges[:, 1]]
    gains = {}
    for place, node in enumerate(present.tolist()):
        seen = (sources == place) | (targets == place)
        gains[node] = float(doubts[directions_that_follow(sources, targets, present.size, seen)].sum())
    return gains


def _conditional_entropy(patterns: _Patterns) -> float:
    bits = 0.0
    for causes in patterns.values():
        weights = np.array(list(causes.values()))
        bits += float(weights @ np.log2(weights.sum() / weights))
    return bits
