"""Effects and experiments against a known truth.

Effects: graphs, weights and noise are drawn from the prior of each linear score, tables from them. How often do the
90 % intervals of total effects hold the truth, and how often is an effect zero when its probability says so?

Experiments: on linear tables with unequal noise, how many edges does setting the first variable of `next_experiment`
orient in the essential graph of the truth, beside a variable chosen at random and the best choice there was?
"""

from __future__ import annotations

import argparse
import warnings
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import gammaln, logsumexp

import vcuda
from vcuda.errors import ConvergenceWarning
from vcuda.graphs import ancestors, compelled_edges
from vcuda.models.linear import BGe
from vcuda.models.protocol import Noise

TRUTHS = {
    "unit": "prior with unit noise",
    "equal": "prior with equal noise",
    "unequal": "prior with unequal noise",
    # What no prior of ours has drawn, fitted with unequal noise.
    "simulated": "weights of size 0.5 to 2",
    "spread": "variances over orders of magnitude",
}
EDGE_PROBABILITY = 0.4
RIDGE = BGe().mean_rows * (BGe().excess - 1) / (BGe().mean_rows + 1)
SURE = 0.05


class Truth(NamedTuple):
    """A table with what made it: the graph ``(d, d)`` and the total effects ``(d, d)``."""

    values: np.ndarray
    graph: np.ndarray
    effects: np.ndarray


def draw_truth(rng: np.random.Generator, *, noise: str, nodes: int, rows: int) -> Truth:
    """Everything from the prior: an order, edges, weights and noise variances, then rows.

    Unit and equal noise have weights N(0, 1) and noise of variance one. BGe is a prior of standardised columns, so
    that its graphs and weights are drawn given that every column has variance one; then each gets a unit of its own.
    ``"simulated"`` is what :func:`vcuda.simulate` makes, with as many expected edges; ``"spread"`` is the prior of BGe
    for columns that are not standardised, whose variances then differ much more than the score expects.
    """
    if noise == "simulated":
        edges = round(EDGE_PROBABILITY * nodes * (nodes - 1) / 2)
        made = vcuda.simulate(
            "er", nodes=nodes, edges=edges, noise="unequal", rows=rows, test_rows=5, seed=int(rng.integers(2**31))
        )
        assert made.weights is not None
        total = np.linalg.inv(np.eye(nodes) - made.weights)
        return Truth(made.train.values, made.graph, np.where(ancestors(made.graph), total, 0.0))
    if noise == "unequal":
        graph, weights, variances = _draw_standardised(rng, nodes)
    elif noise == "spread":
        graph = _draw_graphs(rng, 1, nodes)[0]
        variances = 0.5 * RIDGE / rng.gamma(0.5 * (BGe().excess + 1 + graph.sum(axis=0)))
        weights = rng.standard_normal((nodes, nodes)) * graph * np.sqrt(variances / RIDGE)
    else:
        graph = _draw_graphs(rng, 1, nodes)[0]
        weights, variances = rng.standard_normal((nodes, nodes)) * graph, np.ones(nodes)
    total = np.linalg.inv(np.eye(nodes) - weights)
    values = (np.sqrt(variances) * rng.standard_normal((rows, nodes))) @ total
    units = np.exp(rng.standard_normal(nodes)) if noise == "unequal" else np.ones(nodes)
    return Truth(values * units, graph, np.where(ancestors(graph), total * units / units[:, None], 0.0))


def _draw_graphs(rng: np.random.Generator, size: int, nodes: int) -> np.ndarray:
    """Graphs ``(size, d, d)`` of the prior."""
    priority = rng.random((size, nodes))
    allowed = priority[:, :, None] < priority[:, None, :]
    return allowed & (rng.random((size, nodes, nodes)) < EDGE_PROBABILITY)


def _draw_standardised(
    rng: np.random.Generator, nodes: int, proposals: int = 4000
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A graph, weights and noise variances of the BGe prior given that all columns have variance one.

    With u = w / sigma ~ N(0, 1 / ridge) and q = 1 + Var(u x) the column has variance one for sigma² = 1 / q; the
    inverse-gamma density there, over q for the change of variables, is the weight of a proposal, and one is picked.
    """
    spec, ridge = BGe(), RIDGE
    graphs = _draw_graphs(rng, proposals, nodes)
    ratios = rng.standard_normal(graphs.shape) * graphs / np.sqrt(ridge)
    log_weights, weights, variances = np.zeros(proposals), np.zeros(graphs.shape), np.ones((proposals, nodes))
    covariance = np.zeros(graphs.shape)
    ranks = np.argsort(ancestor_counts(graphs), axis=1)  # ancestors have fewer ancestors
    every = np.arange(proposals)
    for node in ranks.T:
        own = ratios[every, :, node]
        with_others = np.einsum("sij,sj->si", covariance, own)
        q = 1 + np.einsum("si,si->s", own, with_others)
        shape = 0.5 * (spec.excess + 1 + graphs[every, :, node].sum(axis=1))
        log_weights += shape * np.log(0.5 * ridge * q) - gammaln(shape) - 0.5 * ridge * q
        variances[every, node] = 1 / q
        weights[every, :, node] = own / np.sqrt(q)[:, None]
        shared = with_others / np.sqrt(q)[:, None]
        covariance[every, node] = covariance[every, :, node] = shared
        covariance[every, node, node] = 1.0
    picked = rng.choice(proposals, p=np.exp(log_weights - logsumexp(log_weights)))
    return graphs[picked], weights[picked], variances[picked]


def ancestor_counts(graphs: np.ndarray) -> np.ndarray:
    """The number of ancestors of each node ``(s, d)`` of graphs ``(s, d, d)``."""
    reach = graphs.astype(np.int64)
    for _ in range(graphs.shape[1].bit_length()):
        reach = np.minimum(reach + reach @ reach, 1)
    return reach.sum(axis=1)


def effect_lines(noise: str, *, tables: int, nodes: int, rows: int, draws: int, seed: int) -> pd.DataFrame:
    """A line for every ordered pair of every table: the truth, the interval, and whether it holds the truth."""
    found = []
    rng = np.random.default_rng([seed, list(TRUTHS).index(noise)])
    fitted: Noise = "unequal" if noise in ("simulated", "spread") else noise  # type: ignore[assignment]
    for number in range(tables):
        truth = draw_truth(rng, noise=noise, nodes=nodes, rows=rows)
        names = [f"X{k}" for k in range(1, nodes + 1)]
        data = vcuda.as_dataset(truth.values, names=names)
        posterior = vcuda.fit(data, model="linear", noise=fitted, prior=EDGE_PROBABILITY, engine="exact", seed=number)
        table = posterior.effects(draws=draws, seed=number)
        first, last = (table[side].map(names.index).to_numpy() for side in ("cause", "outcome"))
        table["table"], table["truth"] = number, truth.effects[first, last]
        table["path"] = ancestors(truth.graph)[first, last]
        found.append(table)
    lines = pd.concat(found, ignore_index=True)
    # An interval that ends at zero holds zero; rounding must not say otherwise.
    slack = 1e-12
    lines["covered"] = (lines.low - slack <= lines.truth) & (lines.truth <= lines.high + slack)
    return lines


def share_and_error(lines: pd.DataFrame, column: str) -> tuple[float, float]:
    """The mean of a column with its standard error; the pairs of one table are not independent of each other."""
    share = float(lines[column].mean())
    by_table = (lines[column] - share).groupby(lines["table"]).sum()
    return share, float(np.sqrt((by_table**2).sum()) / len(lines))


def orientation_gains(graph: np.ndarray) -> np.ndarray:
    """How many edges of a graph setting each variable orients ``(d,)``, beyond what its equivalence class shows."""
    sources, targets = np.nonzero(graph)
    nodes = len(graph)
    before = compelled_edges(sources, targets, nodes).sum()
    return np.array([compelled_edges(sources, targets, nodes, intervened=[v]).sum() - before for v in range(nodes)])


def experiment_lines(*, tables: int, nodes: int, rows: int, seed: int) -> pd.DataFrame:
    """A line for every table: edges oriented by the first choice, by a random one (its expectation), by the best."""
    found = []
    for number in range(tables):
        simulation = vcuda.simulate(
            "er", nodes=nodes, edges=nodes, noise="unequal", rows=rows, test_rows=5, seed=seed + number
        )
        posterior = vcuda.fit(simulation.train, model="linear", engine="exact", seed=number)
        gains = orientation_gains(simulation.graph)
        ranking = posterior.next_experiment(seed=number)
        by_edges = ranking.sort_values("edges_oriented", ascending=False, kind="stable")
        first, also = (posterior.names.index(table.variable.iloc[0]) for table in (ranking, by_edges))
        found.append(
            {
                "table": number,
                "next_experiment": gains[first],
                "by_edges_oriented": gains[also],
                "random": gains.mean(),
                "best": gains.max(),
            }
        )
    return pd.DataFrame(found)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks effects", description=__doc__)
    parser.add_argument("--tables", type=int, default=100, help="tables for each kind of noise")
    parser.add_argument("--nodes", type=int, default=5)
    parser.add_argument("--rows", type=int, default=100)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--experiments", type=int, default=20, help="tables for next_experiment")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore", ConvergenceWarning)
    settings = {name: getattr(options, name) for name in ("tables", "nodes", "rows", "draws", "seed")}
    for noise in TRUTHS:
        _tell_effects(noise, effect_lines(noise, **settings))
    _tell_experiments(experiment_lines(tables=options.experiments, nodes=10, rows=500, seed=options.seed))
    return 0


def _tell_effects(noise: str, lines: pd.DataFrame) -> None:
    print(f"\n{TRUTHS[noise]}, {lines['table'].nunique()} tables: 90 % intervals hold the true total effect in")
    groups = {
        "all pairs": lines,
        f"pairs with P(zero) < {SURE}": lines[lines.probability_zero < SURE],
        "pairs with a directed path": lines[lines.path],
        "pairs without": lines[~lines.path],
    }
    for name, some in groups.items():
        share, error = share_and_error(some, "covered")
        print(f"  {share:6.1%} +- {error:.1%} of {len(some):5d} {name}")
    print("  effects that are zero, by the probability they were given")
    lines = lines.assign(zero=~lines.path)
    for low, high in ((0.0, 0.05), (0.05, 0.3), (0.3, 0.5), (0.5, 0.7), (0.7, 0.95), (0.95, 1.001)):
        some = lines[(lines.probability_zero >= low) & (lines.probability_zero < high)]
        if len(some):
            share, error = share_and_error(some, "zero")
            seen = some.probability_zero.mean()
            print(f"  told {seen:5.1%}, happened {share:5.1%} +- {error:.1%} ({len(some)} pairs)")


def _tell_experiments(lines: pd.DataFrame) -> None:
    print(f"\nnext_experiment on {len(lines)} tables of 10 variables: edges of the truth oriented by one experiment")
    for name in ("next_experiment", "by_edges_oriented", "random", "best"):
        print(f"  {name:<18} {lines[name].mean():.2f}")
    gain = lines.next_experiment - lines.random
    error = gain.std() / np.sqrt(len(gain))
    print(
        f"  next_experiment less random {gain.mean():.2f} +- {error:.2f}; better in {(gain > 0).sum()}, as good in "
        f"{(gain == 0).sum()}, worse in {(gain < 0).sum()}"
    )
    print(
        "  by table (next_experiment / random / best): "
        + ", ".join(f"{row.next_experiment}/{row.random:.1f}/{row.best}" for row in lines.itertuples())
    )
