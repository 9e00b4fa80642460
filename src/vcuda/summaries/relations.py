"""Who stands upstream of whom: ancestors, directed paths and Markov blankets, over graphs drawn from the posterior."""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import dataclass

import numpy as np
import pandas as pd

from vcuda.arguments import check_draws, position, two_positions
from vcuda.errors import ConfigError
from vcuda.graphs import ancestor_sets
from vcuda.posterior.posterior import Posterior
from vcuda.posterior.samples import GraphSamples

# Beginnings of paths that are looked at. Where this is not enough nothing is probable, and fewer paths are returned.
MOST_BEGINNINGS = 50_000


def ancestor_probabilities(posterior: Posterior, *, draws: int = 1000, seed: int = 0) -> pd.DataFrame:
    """The probability that each variable is upstream of each other one: rows are ancestors, columns descendants.

    A share of ``draws`` graphs: its standard error is at most 1 / (2 sqrt(draws)), .016 for 1,000.
    """
    check_draws(draws)
    samples = posterior.sample(draws, seed=seed)
    shares = ancestor_shares(samples)
    return pd.DataFrame(
        shares,
        index=pd.Index(posterior.names, name="ancestor"),
        columns=pd.Index(posterior.names, name="descendant"),
    )


def ancestor_shares(samples: GraphSamples) -> np.ndarray:
    """The weighted share of samples with a directed path from i to j, ``(d, d)``."""
    nodes = samples.nodes
    shares = np.zeros((nodes, nodes))
    width = -(-nodes // 8)
    for k, weight in enumerate(samples.weights):
        sets = ancestor_sets(*samples.edges(k), nodes)
        packed = np.frombuffer(b"".join(bits.to_bytes(width, "little") for bits in sets), dtype=np.uint8)
        # One row for each descendant.
        shares += weight * np.unpackbits(packed.reshape(nodes, width), axis=1, count=nodes, bitorder="little").T
    return np.minimum(shares, 1.0)


@dataclass(frozen=True, eq=False)
class Paths:
    """Whether one variable is upstream of another, and by which ways.

    ``probability`` is that of any directed path from ``source`` to ``target``; ``table`` has the most probable paths,
    each with the share of the posterior in which all its edges are there together. Several can be there at once, so
    that these shares need not add up to ``probability``.
    """

    source: str
    target: str
    probability: float
    table: pd.DataFrame

    def __repr__(self) -> str:
        lines = [f"  {row.probability:.2f}  {row.path}" for row in self.table.itertuples()]
        title = f"<{self.source} is upstream of {self.target} with probability {self.probability:.2f}"
        return "\n".join([title, *lines]) + ">"


def paths(posterior: Posterior, source: str, target: str, *, most: int = 10, draws: int = 1000, seed: int = 0) -> Paths:
    """The probability that ``source`` is upstream of ``target``, and the ``most`` probable directed paths.

    No path outside the table is more probable than one in it: paths are grown from the source, always the one that is
    there in most graphs together with a way on to the target.
    """
    check_draws(draws)
    if most < 1:
        raise ConfigError(f"most must be at least 1, got {most}")
    start, goal = two_positions(posterior.names, source, target)
    samples = posterior.sample(draws, seed=seed)
    leads = leads_to(samples, goal)
    present = _presence(samples)
    found: list[tuple[tuple[int, ...], float]] = []
    # Heap entries: minus the share of samples, length (shorter paths first among equals), nodes.
    waiting: list[tuple[float, int, tuple[int, ...]]] = [(-float(samples.weights @ leads[start]), 1, (start,))]
    inside: dict[tuple[int, ...], np.ndarray] = {(start,): leads[start]}
    seen = 0
    while waiting and len(found) < most and seen < MOST_BEGINNINGS:
        seen += 1
        share, length, nodes = heapq.heappop(waiting)
        members = inside.pop(nodes)
        if nodes[-1] == goal:
            found.append((nodes, -share))
            continue
        for child, having in present.get(nodes[-1], {}).items():
            extended = members & having & leads[child]
            if extended.any():
                longer = (*nodes, child)
                inside[longer] = extended
                heapq.heappush(waiting, (-float(samples.weights @ extended), length + 1, longer))
    table = pd.DataFrame(
        {
            "path": [" -> ".join(posterior.names[node] for node in nodes) for nodes, _ in found],
            "probability": [share for _, share in found],
            "length": [len(nodes) - 1 for nodes, _ in found],
        }
    )
    return Paths(source, target, float(samples.weights @ leads[start]), table)


def _presence(samples: GraphSamples) -> dict[int, dict[int, np.ndarray]]:
    """For each source and target that some sample joins, which samples ``(s,)`` do."""
    which = np.repeat(np.arange(len(samples)), samples.edge_counts())
    flat = samples.sources.astype(np.int64) * samples.nodes + samples.targets
    order = np.argsort(flat, kind="stable")
    edges, starts = np.unique(flat[order], return_index=True)
    present: dict[int, dict[int, np.ndarray]] = {}
    for edge, members in zip(edges.tolist(), np.split(which[order], starts[1:]), strict=True):
        having = np.zeros(len(samples), dtype=bool)
        having[members] = True
        present.setdefault(edge // samples.nodes, {})[edge % samples.nodes] = having
    return present


def leads_to(samples: GraphSamples, goal: int) -> np.ndarray:
    """Whether node i is the goal or upstream of it in each sample, ``(d, s)``."""
    leads = np.zeros((samples.nodes, len(samples)), dtype=bool)
    for k in range(len(samples)):
        sources, targets = samples.edges(k)
        reached, new = {goal}, [goal]
        while new:
            new = list(set(sources[np.isin(targets, new)].tolist()) - reached)
            reached.update(new)
        leads[list(reached), k] = True
    return leads


@dataclass(frozen=True, eq=False)
class Blanket:
    """The Markov blanket of a variable: what must be known so that nothing else says more about it.

    ``members`` has the probability of each other variable to be in it, and as what: parent, child, or spouse (another
    parent of a child, and neither of the first two). ``sets`` has the most probable blankets as wholes.
    """

    variable: str
    members: pd.DataFrame
    sets: pd.DataFrame

    def __repr__(self) -> str:
        lines = [
            f"  {row.probability:.2f}  {row.variable}  (parent {row.parent:.2f}, child {row.child:.2f}, "
            f"spouse {row.spouse:.2f})"
            for row in self.members[self.members.probability >= 0.05].itertuples()
        ]
        return "\n".join([f"<Markov blanket of {self.variable}; members above 0.05:", *lines]) + ">"


def blanket(posterior: Posterior, variable: str, *, most: int = 10, draws: int = 1000, seed: int = 0) -> Blanket:
    """Who is in the Markov blanket of a variable, with which probability, and the ``most`` probable blankets."""
    check_draws(draws)
    node = position(posterior.names, variable)
    samples = posterior.sample(draws, seed=seed)
    roles = np.zeros((3, samples.nodes))
    whole: Counter[tuple[int, ...]] = Counter()
    for k, weight in enumerate(samples.weights):
        sources, targets = samples.edges(k)
        parents = set(sources[targets == node].tolist())
        children = set(targets[sources == node].tolist())
        spouses = set(sources[np.isin(targets, list(children))].tolist()) - parents - children - {node}
        for role, group in enumerate((parents, children, spouses)):
            roles[role, list(group)] += weight
        whole[tuple(sorted(parents | children | spouses))] += weight
    names = np.asarray(posterior.names, dtype=object)
    others = np.delete(np.arange(samples.nodes), node)
    total = roles.sum(axis=0)
    order = others[np.argsort(-total[others], kind="stable")]
    members = pd.DataFrame(
        {
            "variable": names[order],
            "probability": np.minimum(total[order], 1.0),
            "parent": roles[0, order],
            "child": roles[1, order],
            "spouse": roles[2, order],
        }
    )
    likely = sorted(whole.items(), key=lambda item: (-round(item[1], 12), item[0]))[:most]
    sets = pd.DataFrame(
        {
            "blanket": [", ".join(names[list(found)]) for found, _ in likely],
            "size": [len(found) for found, _ in likely],
            "probability": [share for _, share in likely],
        }
    )
    return Blanket(variable, members, sets)
