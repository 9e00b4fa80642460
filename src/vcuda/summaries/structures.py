"""One graph for a posterior: the consensus, the best one, and what is sure of the directions."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

import numpy as np
import pandas as pd

from vcuda.arguments import check_draws
from vcuda.graphs import ancestor_sets, compelled_edges, cpdag
from vcuda.infer.exact.lattice import log_order_count
from vcuda.posterior.posterior import Posterior
from vcuda.posterior.samples import GraphSamples
from vcuda.summaries.lags import refuse_lags

# Up to this many variables the orders that a graph allows are counted exactly, by sums over sets of variables.
COUNTED_NODES = 12
# Where sets of parents are slow, so many of them times rows are scored: some ten seconds for mixed tables.
SLOW_CELLS = 150_000


@dataclass(frozen=True, eq=False)
class NamedGraph:
    """One DAG that stands for a posterior, with the probabilities of its edges and the rule that chose it.

    ``graph`` is ``(d, d)``, true at [i, j] for i -> j; ``probabilities`` ``(d, d)`` are those of all edges under the
    posterior; ``rule`` is a sentence.
    """

    names: tuple[str, ...]
    graph: np.ndarray
    probabilities: np.ndarray
    rule: str

    def edges(self) -> pd.DataFrame:
        """The edges, the surest first: source, target, probability, and that of the opposite direction."""
        sources, targets = np.nonzero(self.graph)
        probability, opposite = self.probabilities[sources, targets], self.probabilities[targets, sources]
        order = np.lexsort((-probability, -(probability + opposite)))
        names = np.asarray(self.names, dtype=object)
        table = {
            "source": names[sources],
            "target": names[targets],
            "probability": probability,
            "opposite": opposite,
        }
        return pd.DataFrame(table).iloc[order].reset_index(drop=True)

    @property
    def expected_shd(self) -> float:
        """Pairs of variables about which a graph drawn from the posterior is expected to differ from this one."""
        absent = 1 - self.probabilities - self.probabilities.T
        agreed = np.where(self.graph, self.probabilities, np.where(self.graph.T, 0.0, 0.5 * absent))
        np.fill_diagonal(agreed, 0.0)
        pairs = len(self.names) * (len(self.names) - 1) / 2
        return float(pairs - agreed.sum())

    def cpdag(self) -> pd.DataFrame:
        """The Markov equivalence class: 1 at [i, j] for i -> j, and at [j, i] too where the class leaves it open."""
        names = list(self.names)
        return pd.DataFrame(cpdag(self.graph).astype(int), index=names, columns=names)

    def __repr__(self) -> str:
        edges = self.edges()
        lines = [
            f"  {row.source} -> {row.target}  {row.probability:.2f} (opposite {row.opposite:.2f})"
            for row in edges.head(20).itertuples()
        ]
        if len(edges) > 20:
            lines.append(f"  ... and {len(edges) - 20} more")
        title = f"<DAG of {len(self.names)} variables with {len(edges)} edges. {self.rule}"
        return "\n".join([title, *lines]) + ">"


def consensus(posterior: Posterior) -> NamedGraph:
    """The DAG that is expected to agree with the posterior about most pairs of variables.

    A pair can be i -> j, j -> i or apart. Edges are taken in the order of what they gain over leaving the pair apart,
    P(i -> j) - P(apart), as long as that is positive; one that would close a cycle is left out. When none is left out
    no DAG has a smaller expected structural Hamming distance. Where the posterior leaves a direction open, the edge is
    there in one of the two, and the column ``opposite`` of its edges says so.
    """
    probabilities = posterior.edge_probabilities.to_numpy()
    gain = 2 * probabilities + probabilities.T - 1
    np.fill_diagonal(gain, 0.0)
    sources, targets = np.nonzero(gain > 0)
    # Of the two directions of a pair the more probable comes first; what rounding makes of equals must not decide.
    order = np.lexsort((targets, sources, -np.round(gain[sources, targets], 9)))
    graph = np.zeros_like(gain, dtype=bool)
    children: list[set[int]] = [set() for _ in range(len(gain))]
    refused = 0
    for i, j in zip(sources[order].tolist(), targets[order].tolist(), strict=True):
        if graph[j, i]:
            continue
        if _reaches(children, j, i):
            refused += 1
            continue
        graph[i, j] = True
        children[i].add(j)
    rule = (
        "Consensus: edges in the order of P(edge) - P(pair apart) while that is positive, none that closes a cycle; "
        + (
            "no DAG has a smaller expected distance."
            if not refused
            else f"{refused} edges were left out because of cycles."
        )
    )
    return NamedGraph(posterior.names, graph, probabilities, rule)


def _reaches(children: list[set[int]], start: int, goal: int) -> bool:
    waiting, seen = [start], {start}
    while waiting:
        node = waiting.pop()
        if node == goal:
            return True
        new = children[node] - seen
        seen |= new
        waiting += new
    return False


def best_graph(posterior: Posterior, *, draws: int = 1000, seed: int = 0) -> NamedGraph:
    """The best of the graphs drawn from the posterior (the mode, as far as the draws have met it).

    With linear, additive, categorical and mixed scores it is the one of the highest posterior probability: that of the
    table given the graph, times the prior of its edges, times the number of orders that it allows (counted up to 12
    variables, beyond that by the hook-length formula, which is exact for trees). A mixed score takes a regression for
    each column and set of causes, so that only the graphs drawn most often are compared, by all rows. With other models
    it is the graph that was drawn most often, and among equals the one whose edges are most probable.
    """
    check_draws(draws)
    samples = posterior.sample(draws, seed=seed)
    distinct, counts = _distinct(samples)
    probabilities = posterior.edge_probabilities.to_numpy()
    with np.errstate(divide="ignore"):
        edge_gain = np.log(probabilities) - np.log1p(-np.minimum(probabilities, 1 - 1e-12))
    ties = np.array([edge_gain[samples.edges(k)].sum() for k in distinct])
    often = np.lexsort((ties, counts))[::-1]
    scores = _log_posterior(posterior, samples, [distinct[place] for place in often])
    if scores is None:
        rule = f"Drawn most often: {counts.max()} times in {draws}."
        return NamedGraph(posterior.names, samples.graph(distinct[often[0]]), probabilities, rule)
    among = f"{len(distinct)} different graphs"
    if len(scores) < len(distinct):
        among = f"the {len(scores)} graphs drawn most often, of {among}"
    rule = f"Highest posterior probability among {among} of {draws} drawn."
    return NamedGraph(posterior.names, samples.graph(distinct[often[int(np.argmax(scores))]]), probabilities, rule)


def _distinct(samples: GraphSamples) -> tuple[list[int], np.ndarray]:
    """One sample for each graph that occurs, and how often it does."""
    found: dict[bytes, list[int]] = {}
    for k in range(len(samples)):
        sources, targets = samples.edges(k)
        code = np.sort(sources.astype(np.int64) * samples.nodes + targets)
        found.setdefault(code.tobytes(), []).append(k)
    return [members[0] for members in found.values()], np.array([len(members) for members in found.values()])


def _log_posterior(posterior: Posterior, samples: GraphSamples, chosen: list[int]) -> np.ndarray | None:
    """Of some samples, up to a constant, or where sets of parents take long only of the first of them; None when there
    is no score."""
    predictive = getattr(posterior.graph_posterior, "predictive", None)
    score = None if predictive is None else predictive.local_score()
    if score is None:
        return None
    prior = (posterior.provenance.get("prior") or {}).get("edge_probability")
    if prior is None or posterior.provenance.get("knowledge"):
        return None
    log_odds = np.log(prior) - np.log1p(-prior)
    counts_orders = posterior.provenance.prior_name == "orders"
    known: dict[tuple[int, bytes], float] = {}
    totals: list[float] = []
    most = max(SLOW_CELLS // max(score.rows, 1), samples.nodes) if score.slow_sets else None
    for k in chosen:
        graph = samples.graph(k)
        if most is not None and totals and len(known) + _unknown(graph, known) > most:
            break
        total = log_odds * graph.sum() + (log_orders(graph) if counts_orders else 0.0)
        for node in range(samples.nodes):
            parents = np.flatnonzero(graph[:, node])
            key = (node, parents.tobytes())
            if key not in known:
                known[key] = score.score(node, parents.tolist())
            total += known[key]
        totals.append(total)
    return np.array(totals)


def _unknown(graph: np.ndarray, known: Container[tuple[int, bytes]]) -> int:
    """How many sets of parents of a graph have no score yet."""
    return sum((node, np.flatnonzero(own).tobytes()) not in known for node, own in enumerate(graph.T))


def log_orders(graph: np.ndarray) -> float:
    """The log number of orders of the d nodes in which every edge points forward.

    Beyond 12 nodes the larger of two lower bounds: d! over the product of the numbers of ancestors, or of
    descendants, each node counted with its own.
    """
    nodes = len(graph)
    if nodes <= COUNTED_NODES:
        return log_order_count(graph)
    sources, targets = np.nonzero(graph)
    upwards = [bits.bit_count() for bits in ancestor_sets(sources, targets, nodes)]
    downwards = [bits.bit_count() for bits in ancestor_sets(targets, sources, nodes)]
    fewest = min(np.log1p(upwards).sum(), np.log1p(downwards).sum())
    return float(np.log(np.arange(1, nodes + 1)).sum() - fewest)


def edge_types(posterior: Posterior, *, minimum: float = 0.0, draws: int = 1000, seed: int = 0) -> pd.DataFrame:
    """How each pair of variables stands in the CPDAG of a graph drawn from the posterior.

    A line for each pair, with the probabilities that its edge is ``directed`` (source -> target in every graph of the
    Markov equivalence class), ``reversed``, ``undirected`` (in the class the direction is open) or that there is
    ``none``; they sum to one. Pairs whose edge is less probable than ``minimum`` are left out; the surest come first.
    """
    refuse_lags(posterior, "cpdag")
    check_draws(draws)
    samples = posterior.sample(draws, seed=seed)
    directed, undirected = class_shares(samples)
    first, second = np.triu_indices(samples.nodes, k=1)
    adjacent = directed + directed.T + undirected
    kept = np.flatnonzero(adjacent[first, second] >= minimum)
    first, second = first[kept], second[kept]
    turned = directed[second, first] > directed[first, second]
    source, target = np.where(turned, second, first), np.where(turned, first, second)
    order = np.argsort(-adjacent[source, target], kind="stable")
    source, target = source[order], target[order]
    names = np.asarray(posterior.names, dtype=object)
    return pd.DataFrame(
        {
            "source": names[source],
            "target": names[target],
            "directed": directed[source, target],
            "reversed": directed[target, source],
            "undirected": undirected[source, target],
            "none": np.clip(1 - adjacent[source, target], 0.0, 1.0),
        }
    )


def class_shares(samples: GraphSamples) -> tuple[np.ndarray, np.ndarray]:
    """Shares of samples in whose CPDAG an edge is directed i -> j, and in which it is undirected; both ``(d, d)``."""
    directed, undirected = np.zeros((2, samples.nodes, samples.nodes))
    for k, weight in enumerate(samples.weights):
        sources, targets = samples.edges(k)
        fixed = compelled_edges(sources, targets, samples.nodes)
        directed[sources[fixed], targets[fixed]] += weight
        undirected[sources[~fixed], targets[~fixed]] += weight
    return directed, undirected + undirected.T
