"""The exact engine against enumeration of graphs and of orders, and its draws against its own
probabilities."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, permutations

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import chisquare

from vcuda.errors import ConfigError, KnowledgeError
from vcuda.graphs import ancestors, count_dags, enumerate_dags
from vcuda.infer.edge_prior import EdgePrior, edge_prior
from vcuda.infer.exact import RoundingError, exact_posterior, limits, memory_needed, seconds_needed
from vcuda.infer.exact.noise_grid import NOISE_POINTS
from vcuda.infer.exact.partitions import log_dag_weight
from vcuda.infer.progress import Progress
from vcuda.models.additive import AdditiveBasis
from vcuda.models.caching import cached
from vcuda.models.categorical import BDeu
from vcuda.models.gaussian_process import GaussianProcess
from vcuda.models.linear import BGe, EqualNoise
from vcuda.models.protocol import LocalScore


@dataclass(frozen=True, eq=False)
class GivenScore(LocalScore):
    """Arbitrary scores: ``values`` (d, 2**d), the second index the set of parents as a bit mask over all
    nodes."""

    values: np.ndarray
    log_jacobian: float = 0.0
    max_parents: int | None = None
    rows: int = 1

    @property
    def nodes(self) -> int:
        return len(self.values)

    def score(self, target: int, parents: Sequence[int]) -> float:
        return float(self.values[target, sum(1 << int(parent) for parent in parents)])

    def table(self, target: int, candidates: np.ndarray) -> np.ndarray:
        sets = np.zeros(1, dtype=np.int64)
        for candidate in candidates:
            sets = np.concatenate([sets, sets + (1 << int(candidate))])
        return self.values[target, sets].astype(np.float64)

    def gains(self, target: int, parents: Sequence[int]) -> np.ndarray:
        raise NotImplementedError


def random_score(nodes: int, *, spread: float, level: float = 0.0, seed: int = 0) -> GivenScore:
    return GivenScore(level + spread * np.random.default_rng(seed).normal(size=(nodes, 1 << nodes)))


def table_of(nodes: int, rows: int = 25, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    table = rng.normal(size=(rows, nodes))
    for node in range(1, nodes):
        table[:, node] += 0.5 * table[:, node - 1]
    return table


def graph_scores(score: LocalScore, graphs: np.ndarray) -> np.ndarray:
    """The sums of the scores of all families of each graph, every family scored once."""
    families: dict[tuple[int, bytes], float] = {}
    totals = np.zeros(len(graphs))
    for k, graph in enumerate(graphs):
        for node in range(score.nodes):
            family = (node, graph[:, node].tobytes())
            if family not in families:
                families[family] = score.score(node, np.flatnonzero(graph[:, node]).tolist())
            totals[k] += families[family]
    return totals


def weigh_graphs(score: LocalScore, probability: np.ndarray, required: np.ndarray | None = None):
    """All DAGs (g, d, d) and log p(table, graph) by the definition: a sum over orders, no dynamic
    programming."""
    nodes = score.nodes
    graphs = enumerate_dags(nodes)
    scores = graph_scores(score, graphs)
    must = np.zeros((nodes, nodes), dtype=bool) if required is None else required
    prior = np.zeros(len(graphs))
    orders = 0
    for order in permutations(range(nodes)):
        rank = np.argsort(order)
        before = rank[:, None] < rank[None, :]
        if (must & ~before).any():
            continue
        orders += 1
        factors = np.where(graphs, probability, 1 - probability)
        fits = ~(graphs & ~before).any(axis=(1, 2))
        prior += fits * np.prod(factors, axis=(1, 2), where=before[None])
    prior /= orders
    assert prior.sum() == pytest.approx(1.0)
    with np.errstate(divide="ignore"):
        return graphs, np.log(prior) + scores + score.log_jacobian


def check_against(result, graphs: np.ndarray, log_joint: np.ndarray, tolerance: float = 1e-9) -> np.ndarray:
    """Compare edge probabilities and evidence; return the probabilities of the graphs."""
    evidence = logsumexp(log_joint)
    weights = np.exp(log_joint - evidence)
    assert np.abs(result.edge_probabilities - np.einsum("g,gij->ij", weights, graphs)).max() < tolerance
    assert result.log_evidence == pytest.approx(evidence, abs=tolerance * max(1.0, abs(evidence)))
    return weights


# --- against enumeration ------------------------------------------------------------------------------------

SCORES = {
    "equal known": EqualNoise(variance=1.2),
    "bge": BGe(),
    "bge two parents": BGe(max_parents=2),
    "gp": GaussianProcess(),
    "additive": AdditiveBasis(features=3),
    "bdeu": BDeu(),
}


@pytest.mark.parametrize("nodes", [1, 2, 3, 4])
@pytest.mark.parametrize("spec", SCORES.values(), ids=SCORES)
def test_all_graphs_of_up_to_four_nodes(spec, nodes):
    table = table_of(nodes) * 2.0
    prepared = spec.prepare(np.round(table) if isinstance(spec, BDeu) else table)
    result = exact_posterior(prepared, edge_prior(prepared.nodes, 0.3), samples=5, rng=np.random.default_rng(0))
    graphs, log_joint = weigh_graphs(prepared, np.full((nodes, nodes), 0.3))
    if prepared.max_parents is not None:
        log_joint[graphs.sum(axis=1).max(axis=1) > prepared.max_parents] = -np.inf
    check_against(result, graphs, log_joint)
    assert result.noise_variance is None


def test_probabilities_of_single_edges_with_forbidden_and_required_ones():
    rng = np.random.default_rng(4)
    log_odds = rng.normal(size=(4, 4))
    allowed, required = np.ones((4, 4), dtype=bool), np.zeros((4, 4), dtype=bool)
    allowed[0, 1] = allowed[3, 2] = False
    required[1, 2] = required[2, 0] = True
    probability = np.where(allowed, 1 / (1 + np.exp(-log_odds)), 0.0)
    probability[required] = 1.0
    score = random_score(4, spread=2.0)
    result = exact_posterior(
        score,
        edge_prior(score.nodes, 0.1, log_odds=log_odds, allowed=allowed, required=required),
        samples=300,
        rng=np.random.default_rng(0),
    )
    check_against(result, *weigh_graphs(score, probability, required))
    drawn = result.samples.dense()
    assert not drawn[:, ~allowed].any()
    assert drawn[:, required].all()
    # Infinite log odds say the same.
    log_odds = np.where(allowed, np.where(required, np.inf, log_odds), -np.inf)
    again = exact_posterior(
        score, edge_prior(score.nodes, 0.1, log_odds=log_odds), samples=5, rng=np.random.default_rng(0)
    )
    assert again.log_evidence == pytest.approx(result.log_evidence, abs=1e-9)
    assert np.abs(again.edge_probabilities - result.edge_probabilities).max() < 1e-12


def test_required_parents_are_scored_even_when_they_explain_nothing():
    # Tables of this score leave out larger sets without promise; the required one must be there all the same.
    prepared = GaussianProcess(full_parents=1, margin=0.0).prepare(table_of(5, rows=200))
    required = np.zeros((5, 5), dtype=bool)
    required[[2, 3, 4], 0] = True
    assert prepared.table(0, np.array([1, 2, 3, 4]))[14] == -np.inf
    result = exact_posterior(
        prepared, edge_prior(prepared.nodes, 0.1, required=required), samples=20, rng=np.random.default_rng(0)
    )
    assert result.samples.dense()[:, required].all()
    assert np.abs(result.edge_probabilities[required] - 1).max() < 1e-12
    assert 0 < result.edge_probabilities[1, 0] < 1


def test_forbidden_parents_do_not_hide_others():
    # Column 3 is the sum of 0, 1 and 2, and 4 is nearly a copy of it: beside 4, sets without it have no
    # promise.
    rng = np.random.default_rng(0)
    table = rng.normal(size=(300, 5))
    table[:, 3] = table[:, :3].sum(axis=1) + 0.3 * table[:, 3]
    table[:, 4] = table[:, 3] + 0.01 * table[:, 4]
    allowed = np.ones((5, 5), dtype=bool)
    allowed[4, 3] = False
    prepared = GaussianProcess(full_parents=1, margin=10.0).prepare(table)
    result = exact_posterior(
        prepared, edge_prior(prepared.nodes, 0.1, allowed=allowed), samples=20, rng=np.random.default_rng(0)
    )
    allowed_only = GaussianProcess().prepare(table)
    full = exact_posterior(
        allowed_only, edge_prior(allowed_only.nodes, 0.1, allowed=allowed), samples=20, rng=np.random.default_rng(0)
    )
    assert np.abs(result.edge_probabilities[:, 3] - full.edge_probabilities[:, 3]).max() < 0.01
    assert full.edge_probabilities[:3, 3].sum() > 1


def test_scores_of_a_hundred_thousand_rows():
    # Levels of -1e7 with differences of thousands: exponentials of any of them underflow, and one float32
    # step is 1.
    score = random_score(4, spread=3.0, level=-1e7)
    score.values[:, 3:9] -= 5000.0
    score.values[2, 5] = -np.inf
    result = exact_posterior(score, edge_prior(score.nodes, 0.1), samples=5, rng=np.random.default_rng(0))
    graphs, log_joint = weigh_graphs(score, np.full((4, 4), 0.1))
    # Numbers of 4e7 are known to 7e-9; the same error in each of about ten scores moves a probability by
    # 1e-7.
    check_against(result, graphs, log_joint, tolerance=1e-7)
    assert 0.01 < result.edge_probabilities.max() < 1


@pytest.mark.parametrize(("rows", "tolerance"), [(30, 5e-4), (5, 1e-2)])
def test_shared_noise_against_a_fine_grid_of_variances(rows, tolerance):
    shared = EqualNoise().prepare(table_of(3, rows=rows))
    result = exact_posterior(shared, edge_prior(shared.nodes, 0.2), samples=4000, rng=np.random.default_rng(0))
    log_variances = np.linspace(-5, 7, 241)
    joint = []
    for value in log_variances:
        graphs, log_joint = weigh_graphs(shared.at(np.exp(value)), np.full((3, 3), 0.2))
        joint.append(log_joint + shared.log_prior(np.exp(value)) + value + np.log(log_variances[1] - log_variances[0]))
    log_joint = logsumexp(joint, axis=0)
    # The rule's own error is 3e-4, its ends leave out 2e-4 of a Gaussian. With 5 rows the posterior of the
    # variance is neither Gaussian nor as narrow as that of one graph.
    evidence = logsumexp(log_joint)
    assert result.log_evidence == pytest.approx(evidence, abs=4 * tolerance)
    weights = np.exp(log_joint - evidence)
    expected = np.einsum("g,gij->ij", weights, graphs)
    assert np.abs(result.edge_probabilities - expected).max() < tolerance
    mean_variance = np.exp(logsumexp(joint, axis=1) - evidence) @ np.exp(log_variances)
    assert result.noise_variance == pytest.approx(mean_variance, rel=10 * tolerance)
    # Draws come from all variances together: five standard errors, sqrt(.25 / 4000) = .0079 each at most.
    assert np.abs(result.samples.edge_probabilities() - expected).max() < 5 * 0.0079


@pytest.mark.slow
@pytest.mark.parametrize(
    "score",
    [
        random_score(6, spread=2.0, seed=2),
        BGe().prepare(table_of(6, rows=30)),
        BGe(max_parents=2).prepare(table_of(6, rows=30)),
        AdditiveBasis(features=2, max_parents=3).prepare(table_of(6, rows=30)),
        BDeu(max_parents=1).prepare(np.round(table_of(6, rows=30))),
    ],
    ids=["arbitrary", "bge", "bge two parents", "additive three parents", "bdeu one parent"],
)
def test_all_orders_of_six_nodes(score):
    # The posterior as a sum over 720 orders, each a product over nodes of sums over sets of predecessors.
    probability = 0.25
    most = 5 if score.max_parents is None else score.max_parents
    families: dict[tuple[int, frozenset[int]], float] = {}
    for node in range(6):
        for size in range(most + 1):
            for parents in combinations(sorted(set(range(6)) - {node}), size):
                families[node, frozenset(parents)] = score.score(node, parents)
    log_orders, edges_by_order = [], []
    for order in permutations(range(6)):
        log_order, edges = 0.0, np.zeros((6, 6))
        for rank, node in enumerate(order):
            before = order[:rank]
            sets = [set(chosen) for size in range(min(rank, most) + 1) for chosen in combinations(before, size)]
            log_weights = np.array(
                [
                    families[node, frozenset(parents)]
                    + len(parents) * np.log(probability)
                    + (rank - len(parents)) * np.log(1 - probability)
                    for parents in sets
                ]
            )
            log_sum = logsumexp(log_weights)
            for parents, share in zip(sets, np.exp(log_weights - log_sum), strict=True):
                edges[list(parents), node] += share
            log_order += log_sum
        log_orders.append(log_order)
        edges_by_order.append(edges)
    evidence = logsumexp(log_orders) - np.log(720) + score.log_jacobian
    expected = np.einsum("o,oij->ij", np.exp(log_orders - logsumexp(log_orders)), edges_by_order)
    result = exact_posterior(score, edge_prior(score.nodes, probability), samples=500, rng=np.random.default_rng(0))
    assert result.log_evidence == pytest.approx(evidence, abs=1e-9)
    assert np.abs(result.edge_probabilities - expected).max() < 1e-9
    assert result.samples.dense().sum(axis=1).max() <= most


def test_edge_probabilities_are_ratios_of_evidence():
    # P(i -> j | table) = p(table, i -> j) / p(table); half of the orders put i first, the edge itself has
    # probability .2.
    prepared = BGe().prepare(table_of(9, rows=40))
    full = exact_posterior(prepared, edge_prior(prepared.nodes, 0.2), samples=5, rng=np.random.default_rng(0))
    for i, j in [(0, 1), (1, 0), (8, 2), (3, 7)]:
        required = np.zeros((9, 9), dtype=bool)
        required[i, j] = True
        given = exact_posterior(
            prepared, edge_prior(prepared.nodes, 0.2, required=required), samples=5, rng=np.random.default_rng(0)
        )
        ratio = np.exp(given.log_evidence + np.log(0.5 * 0.2) - full.log_evidence)
        assert full.edge_probabilities[i, j] == pytest.approx(ratio, abs=1e-10)


def test_without_data_edges_have_half_the_prior_and_evidence_is_one():
    result = exact_posterior(
        GivenScore(np.zeros((8, 256))), edge_prior(8, 0.3), samples=5, rng=np.random.default_rng(0)
    )
    off_diagonal = ~np.eye(8, dtype=bool)
    assert np.abs(result.edge_probabilities[off_diagonal] - 0.15).max() < 1e-12
    assert np.abs(np.diag(result.edge_probabilities)).max() == 0
    assert result.log_evidence == pytest.approx(0.0, abs=1e-10)


# --- a prior over graphs ------------------------------------------------------------------------------------


def weigh_graphs_once(score: LocalScore, prior: EdgePrior) -> tuple[np.ndarray, np.ndarray]:
    """The DAGs that obey (g, d, d) and log p(table, graph) by the definition: the product of the odds of the edges,
    over its sum."""
    graphs = enumerate_dags(score.nodes)
    possible = np.isfinite(prior.log_odds)
    graphs = graphs[~(graphs & ~possible).any(axis=(1, 2)) & ~(prior.required & ~graphs).any(axis=(1, 2))]
    log_odds = (graphs * np.where(possible, prior.log_odds, 0.0)).sum(axis=(1, 2))
    return graphs, log_odds - logsumexp(log_odds) + graph_scores(score, graphs) + score.log_jacobian


def prior_over_graphs(nodes: int, knowledge: str) -> EdgePrior:
    rng = np.random.default_rng(nodes)
    allowed = rng.random((nodes, nodes)) < 0.8
    required = np.zeros((nodes, nodes), dtype=bool)
    required[nodes - 1, 0] = allowed[nodes - 1, 0] = True
    known: dict[str, dict[str, np.ndarray]] = {
        "none": {},
        "forbidden": {"allowed": allowed},
        "required": {"required": required},
        "all": {"allowed": allowed, "required": required, "log_odds": rng.normal(size=(nodes, nodes))},
    }
    return edge_prior(nodes, 0.3, over="graphs", **known[knowledge])


@pytest.mark.parametrize("knowledge", ["none", "forbidden", "required", "all"])
@pytest.mark.parametrize(("nodes", "spread"), [(2, 1.0), (3, 1.0), (3, 300.0), (4, 1.0), (4, 20.0), (4, 3000.0)])
def test_a_prior_over_graphs_counts_each_dag_once(nodes, spread, knowledge):
    size = 20_000
    score, prior = random_score(nodes, spread=spread, level=-40.0, seed=nodes), prior_over_graphs(nodes, knowledge)
    result = exact_posterior(score, prior, samples=size, rng=np.random.default_rng(3))
    graphs, log_joint = weigh_graphs_once(score, prior)
    weights = check_against(result, graphs, log_joint)
    bits = 1 << np.arange(nodes**2)
    drawn = result.samples.dense()
    codes = graphs.reshape(len(graphs), -1) @ bits
    counts = np.array([(drawn.reshape(size, -1) @ bits == code).sum() for code in codes])
    assert counts.sum() == size
    # Graphs that are expected fewer than five times count together; a correct sampler fails once in 10,000 seeds.
    rare = weights * size < 5
    observed = np.append(counts[~rare], counts[rare].sum())
    expected = np.append(weights[~rare], weights[rare].sum()) * size
    met = expected > 0
    if met.sum() > 1:
        assert chisquare(observed[met], expected[met]).pvalue > 1e-4
    rank = np.argsort(result.orders, axis=1)
    assert not (drawn & (rank[:, :, None] >= rank[:, None, :])).any()


def test_a_prior_over_graphs_without_data_is_that_of_all_dags():
    """Of the 543 DAGs of four nodes equally many have each edge; odds make graphs with more edges rarer."""
    graphs = enumerate_dags(4)
    for probability in (0.5, 0.1):
        result = exact_posterior(
            GivenScore(np.zeros((4, 16))),
            edge_prior(4, probability, over="graphs"),
            samples=5,
            rng=np.random.default_rng(0),
        )
        weights = (probability / (1 - probability)) ** graphs.sum(axis=(1, 2))
        share = (weights @ graphs[:, 0, 1]) / weights.sum()
        assert np.abs(result.edge_probabilities[~np.eye(4, dtype=bool)] - share).max() < 1e-12
        assert result.log_evidence == pytest.approx(0.0, abs=1e-10)
    assert log_dag_weight(edge_prior(20, 0.5, over="graphs")) == pytest.approx(np.log(float(count_dags(20))), rel=1e-12)


def test_draws_and_edge_probabilities_of_larger_graphs_agree_with_a_prior_over_graphs():
    size = 5000
    for spec in (BGe(), EqualNoise()):
        prepared = spec.prepare(table_of(8, rows=30))
        prior = edge_prior(8, 0.2, over="graphs")
        result = exact_posterior(prepared, prior, samples=size, rng=np.random.default_rng(3))
        error = np.sqrt(result.edge_probabilities * (1 - result.edge_probabilities) / size)
        scores = (result.samples.edge_probabilities() - result.edge_probabilities) / np.where(error > 0, error, 1.0)
        # 56 edges: one beyond 4.5 standard errors in 2,600 seeds.
        assert np.abs(scores).max() < 4.5


def test_with_a_prior_over_graphs_score_equivalence_makes_equivalent_graphs_equally_likely():
    """BGe cannot tell a -> b from b -> a. With a third column the prior over orders prefers some members of a class,
    since they agree with more orders; the prior over graphs has no such preference."""
    score = BGe().prepare(table_of(3, rows=200))
    chain = np.zeros((3, 3), dtype=bool)
    chain[0, 1] = chain[1, 2] = True
    fork = np.zeros((3, 3), dtype=bool)
    fork[1, 0] = fork[1, 2] = True
    shares = {}
    for over in ("orders", "graphs"):
        prior = edge_prior(3, 0.3, over=over)
        drawn = exact_posterior(score, prior, samples=20_000, rng=np.random.default_rng(0)).samples.dense()
        shares[over] = (drawn == fork).all(axis=(1, 2)).sum() / (drawn == chain).all(axis=(1, 2)).sum()
    # A fork of three nodes agrees with two orders, a chain with one. 5,000 draws of each: 4.5 errors of the ratio.
    assert shares["orders"] == pytest.approx(2.0, rel=4.5 * np.sqrt(2 / 5000))
    assert shares["graphs"] == pytest.approx(1.0, rel=4.5 * np.sqrt(2 / 5000))


# --- tables and lattices ----------------------------------------------------------------------------------


@pytest.mark.parametrize("side_by_side", [1, 3, 12])
@pytest.mark.parametrize("max_parents", [None, 2])
def test_additive_tables_made_at_once_are_the_single_ones(monkeypatch, side_by_side, max_parents):
    monkeypatch.setattr("vcuda.models.additive.score.SIDE_BY_SIDE", side_by_side)
    prepared = AdditiveBasis(features=3, max_parents=max_parents).prepare(table_of(6))
    seen: list[float] = []
    tables = prepared.all_tables(np.arange(6), [np.arange(0)] * 6, threads=2, on_progress=seen.append)
    for node in range(6):
        single = prepared.table(node, np.delete(np.arange(6), node))
        assert np.array_equal(np.isfinite(tables[node]), np.isfinite(single))
        finite = np.isfinite(single)
        assert np.abs(tables[node][finite] - single[finite]).max() < 1e-9
    assert seen[-1] == 1.0
    assert seen == sorted(seen)


def test_sets_that_are_remembered_are_all_that_small_tables_hold():
    prepared = cached(GaussianProcess(full_parents=2, max_parents=2).prepare(table_of(5)))
    shares: list[float] = []
    candidates = [np.array([1, 2, 3]), np.array([0, 3])]
    assert prepared.all_tables(np.array([0, 4]), candidates, threads=1, on_progress=shares.append) is None
    # Subsets of up to two of {1, 2, 3} and of {0, 3}: the empty one, four single ones, four pairs.
    assert len(prepared.cache.asked) == len(shares) == 9
    assert shares[-1] == 0.5
    prepared.table(0, np.array([1, 2, 3]))
    assert len(prepared.cache.asked) == 9


def test_scores_computed_again_give_the_same_draws():
    prepared = BGe().prepare(table_of(7))
    least = memory_needed(7, keep=False) / 1e9
    assert least < memory_needed(7) / 1e9
    kept, again = (
        exact_posterior(
            prepared, edge_prior(prepared.nodes, 0.1), samples=50, rng=np.random.default_rng(0), memory_gb=limit
        )
        for limit in (1.0, least)
    )
    assert np.array_equal(kept.samples.dense(), again.samples.dense())
    assert np.array_equal(kept.edge_probabilities, again.edge_probabilities)
    with pytest.raises(ConfigError, match="memory"):
        exact_posterior(
            prepared, edge_prior(prepared.nodes, 0.1), samples=50, rng=np.random.default_rng(0), memory_gb=0.99 * least
        )


@pytest.mark.parametrize("standardised", [False, True])
def test_the_grid_of_noise_variances_is_found_with_few_lattices(standardised):
    table = table_of(7, rows=500) * 3.0
    if standardised:
        table /= table.std(axis=0)
    seen: list[Progress] = []
    exact_posterior(
        EqualNoise().prepare(table),
        edge_prior(table.shape[1], 0.1),
        samples=5,
        rng=np.random.default_rng(0),
        progress=seen.append,
    )
    scored = [step for step in seen if step.detail == "scoring all parent sets" and step.done == step.total]
    assert len(scored) <= NOISE_POINTS


# --- draws --------------------------------------------------------------------------------------------------


def test_draws_have_the_probabilities_of_graphs_orders_and_paths():
    size = 20_000
    score = random_score(3, spread=1.5, seed=1)
    result = exact_posterior(score, edge_prior(score.nodes, 0.4), samples=size, rng=np.random.default_rng(7))
    graphs, log_joint = weigh_graphs(score, np.full((3, 3), 0.4))
    weights = check_against(result, graphs, log_joint)
    codes = graphs.reshape(len(graphs), -1) @ (1 << np.arange(9))
    drawn = result.samples.dense()
    counts = np.array([(drawn.reshape(size, -1) @ (1 << np.arange(9)) == code).sum() for code in codes])
    assert counts.sum() == size
    # 25 graphs, those expected fewer than five times together; a correct sampler fails once in 10,000 seeds.
    rare = weights * size < 5
    observed = np.append(counts[~rare], counts[rare].sum())
    expected = np.append(weights[~rare], weights[rare].sum()) * size
    assert chisquare(observed[expected > 0], expected[expected > 0]).pvalue > 1e-4
    # Every graph points forward in its own order.
    rank = np.argsort(result.orders, axis=1)
    assert not (drawn & (rank[:, :, None] >= rank[:, None, :])).any()
    paths = np.einsum("g,gij->ij", weights, np.array([ancestors(graph) for graph in graphs]))
    error = np.sqrt(paths * (1 - paths) / size)
    assert (np.abs(result.ancestor_probabilities - paths) <= 4.5 * error + 1e-12).all()


def test_draws_have_the_edge_probabilities_of_larger_graphs():
    size = 20_000
    prepared = BGe().prepare(table_of(8, rows=60))
    result = exact_posterior(
        prepared, edge_prior(prepared.nodes, 0.1), samples=size, rng=np.random.default_rng(3), names=tuple("abcdefgh")
    )
    error = np.sqrt(result.edge_probabilities * (1 - result.edge_probabilities) / size)
    scores = (result.samples.edge_probabilities() - result.edge_probabilities) / np.where(error > 0, error, 1.0)
    # 56 edges: one beyond 4.5 standard errors in 2,600 seeds.
    assert np.abs(scores).max() < 4.5
    assert result.samples.names == tuple("abcdefgh")
    assert result.samples.take(np.arange(200)).all_acyclic()


def test_same_seed_same_draws():
    prepared = EqualNoise().prepare(table_of(4))
    first, second = (
        exact_posterior(
            prepared, edge_prior(prepared.nodes, 0.1), samples=50, rng=np.random.default_rng(5)
        ).samples.dense()
        for _ in range(2)
    )
    assert np.array_equal(first, second)


# --- refusals -----------------------------------------------------------------------------------------------


def test_twenty_nodes_fit_into_four_gigabytes_and_thirty_are_refused():
    assert memory_needed(20, lattices=NOISE_POINTS) < 4e9
    with pytest.raises(ConfigError, match=r"300\.6 GB of memory for 30 columns.*limit of 4 GB.*enough for 24.*orders"):
        exact_posterior(
            BGe().prepare(table_of(30, rows=50)), edge_prior(30, 0.1), samples=5, rng=np.random.default_rng(0)
        )


@pytest.mark.slow
@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("spec", [BGe(), EqualNoise()], ids=["bge", "shared"])
def test_no_more_memory_is_taken_than_was_said(spec, keep):
    prepared = spec.prepare(table_of(14, rows=100))
    said = memory_needed(14, lattices=NOISE_POINTS if isinstance(spec, EqualNoise) else 1, keep=keep)
    tracemalloc.start()
    try:
        exact_posterior(
            prepared, edge_prior(prepared.nodes, 0.1), samples=5, rng=np.random.default_rng(0), memory_gb=said / 1e9
        )
        taken = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert 0.4 * said < taken < said


@pytest.mark.parametrize(
    ("required", "allowed", "message"),
    [
        ([(0, 1), (1, 2), (2, 0)], None, "cycle"),
        ([(0, 1)], [(0, 1)], "0 -> 1 is both required and forbidden"),
        ([(0, 3), (1, 3), (2, 3)], None, "largest number of parents"),
    ],
)
def test_contradictions_are_refused(required, allowed, message):
    must, may = np.zeros((4, 4), dtype=bool), np.ones((4, 4), dtype=bool)
    for edge in required:
        must[edge] = True
    for edge in allowed or []:
        may[edge] = False
    prepared = BGe(max_parents=2).prepare(table_of(4))
    with pytest.raises(KnowledgeError, match=message):
        exact_posterior(
            prepared,
            edge_prior(prepared.nodes, 0.1, allowed=may, required=must),
            samples=5,
            rng=np.random.default_rng(0),
        )


@pytest.mark.parametrize(
    "options",
    [
        {"edge_probability": 0.0},
        {"edge_probability": 1.0},
        {"samples": 0},
        {"allowed": np.ones((3, 3), dtype=bool)},
        {"log_odds": np.full((4, 4), np.nan)},
    ],
)
def test_settings_that_cannot_be_are_refused(options):
    score, rng = BGe().prepare(table_of(4)), np.random.default_rng(0)
    known = {key: value for key, value in options.items() if key != "samples"}
    with pytest.raises(ConfigError):
        exact_posterior(
            score, edge_prior(4, **{"edge_probability": 0.1, **known}), samples=options.get("samples", 5), rng=rng
        )


def test_progress_is_told():
    seen: list[Progress] = []
    exact_posterior(
        BGe().prepare(table_of(4)),
        edge_prior(4, 0.1),
        samples=5,
        rng=np.random.default_rng(0),
        progress=seen.append,
    )
    assert {step.detail for step in seen} == {
        "scoring all parent sets",
        "edge probabilities",
        "drawing graphs",
    }
    assert all(0 < step.done <= step.total for step in seen)


# --- time -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spec", [BGe(), EqualNoise(), AdditiveBasis(features=2), GaussianProcess()], ids=["bge", "shared", "additive", "gp"]
)
def test_a_deadline_that_has_passed_refuses(spec):
    seen: list[Progress] = []
    with pytest.raises(ConfigError, match=r"scoring all parent sets.*no partial answer.*orders engine.*more time"):
        exact_posterior(
            spec.prepare(table_of(4)),
            edge_prior(4, 0.1),
            samples=5,
            rng=np.random.default_rng(0),
            progress=seen.append,
            deadline=time.monotonic() - 1.0,
        )
    assert not seen


def test_a_deadline_stops_at_the_next_step(monkeypatch):
    ticks = iter(range(1000))
    monkeypatch.setattr(limits.time, "monotonic", lambda: float(next(ticks)))
    seen: list[Progress] = []
    # Four nodes are scored at 0, 1, 2, 3, the edges of the first at 4; the second would come at 5.
    with pytest.raises(ConfigError, match=r"edge probabilities.*no partial answer"):
        exact_posterior(
            BGe().prepare(table_of(4)),
            edge_prior(4, 0.1),
            samples=5,
            rng=np.random.default_rng(0),
            progress=seen.append,
            deadline=4.5,
        )
    assert len(seen) == 5


def test_a_deadline_that_is_kept_changes_nothing():
    prepared = BGe().prepare(table_of(4))
    free, timed = (
        exact_posterior(
            prepared, edge_prior(prepared.nodes, 0.1), samples=50, rng=np.random.default_rng(0), deadline=deadline
        )
        for deadline in (None, time.monotonic() + 600.0)
    )
    assert np.array_equal(free.samples.dense(), timed.samples.dense())
    assert free.log_evidence == timed.log_evidence


def test_seconds_are_foreseen_by_score_columns_and_rows():
    assert seconds_needed(BGe().prepare(table_of(8))) < 0.1
    twenty = table_of(20, rows=1000)
    # What is asked of the engine: two minutes at twenty columns, whatever the score.
    needed = [seconds_needed(spec.prepare(twenty)) for spec in (BGe(), EqualNoise(), AdditiveBasis())]
    assert needed[0] < min(needed[1:])
    assert max(needed) < 120
    assert seconds_needed(BGe().prepare(table_of(24, rows=50))) > 16 * needed[0]
    few, many = (seconds_needed(GaussianProcess().prepare(table_of(6, rows=rows))) for rows in (100, 1000))
    assert few < many
    assert seconds_needed(BDeu().prepare(np.round(table_of(10)))) > seconds_needed(BGe().prepare(table_of(10)))


def copies_of_one_column(largest: float) -> np.ndarray:
    """Five rows of a column, two copies of it, one of them in another unit, and one that bends it."""
    column = np.random.default_rng(1).normal(size=5)
    return np.column_stack([column, column**2, largest * column, 5 - column, column])


@pytest.mark.parametrize("largest", [1e-10, 1e-8, 1.0, 1e8])
def test_equal_noise_of_copies_in_other_units_has_an_evidence(largest):
    """Rounding used to make pivots negative, and a grid of variances without an end."""
    told = []
    table = copies_of_one_column(largest)
    found = exact_posterior(
        EqualNoise().prepare(table), edge_prior(table.shape[1], 0.1), rng=np.random.default_rng(0), progress=told.append
    )
    assert np.isfinite(found.log_evidence)
    assert np.isfinite(found.edge_probabilities).all()
    # Five steps for each variance: at most 40 in the search, some in the grid, and the draws of at most seven.
    assert len(told) < 80 * 5


def test_equal_noise_beyond_the_floats_is_refused_in_words():
    with pytest.raises(RoundingError, match=r"more than 1e\+150 times as much .* use unequal noise"):
        exact_posterior(
            EqualNoise().prepare(table_of(3) * [1e-120, 1.0, 1e120]), edge_prior(3, 0.1), rng=np.random.default_rng(0)
        )
