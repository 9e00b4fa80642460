"""The exact engine against enumeration of graphs and of orders, and its draws against its own
probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import chisquare

from vcuda.errors import ConfigError, KnowledgeError
from vcuda.graphs import ancestors, enumerate_dags
from vcuda.infer.exact import NOISE_POINTS, exact_posterior, memory_needed
from vcuda.infer.progress import Progress
from vcuda.models.discrete import BDeu
from vcuda.models.kernels import AdditiveBasis, GaussianProcess
from vcuda.models.scores import BGe, EqualNoise, LocalScore


@dataclass(frozen=True, eq=False)
class GivenScore:
    """Arbitrary scores: ``values`` (d, 2**d), the second index the set of parents as a bit mask over all
    nodes."""

    values: np.ndarray
    log_jacobian: float = 0.0
    max_parents: int | None = None

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
    result = exact_posterior(prepared, edge_probability=0.3, samples=5, rng=np.random.default_rng(0))
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
        log_odds=log_odds,
        allowed=allowed,
        required=required,
        samples=300,
        rng=np.random.default_rng(0),
    )
    check_against(result, *weigh_graphs(score, probability, required))
    drawn = result.samples.dense()
    assert not drawn[:, ~allowed].any()
    assert drawn[:, required].all()
    # Infinite log odds say the same.
    log_odds = np.where(allowed, np.where(required, np.inf, log_odds), -np.inf)
    again = exact_posterior(score, log_odds=log_odds, samples=5, rng=np.random.default_rng(0))
    assert again.log_evidence == pytest.approx(result.log_evidence, abs=1e-9)
    assert np.abs(again.edge_probabilities - result.edge_probabilities).max() < 1e-12


def test_required_parents_are_scored_even_when_they_explain_nothing():
    # Tables of this score leave out larger sets without promise; the required one must be there all the same.
    prepared = GaussianProcess(full_parents=1, margin=0.0).prepare(table_of(5, rows=200))
    required = np.zeros((5, 5), dtype=bool)
    required[[2, 3, 4], 0] = True
    assert prepared.table(0, np.array([1, 2, 3, 4]))[14] == -np.inf
    result = exact_posterior(prepared, required=required, samples=20, rng=np.random.default_rng(0))
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
    result = exact_posterior(prepared, allowed=allowed, samples=20, rng=np.random.default_rng(0))
    allowed_only = GaussianProcess().prepare(table)
    full = exact_posterior(allowed_only, allowed=allowed, samples=20, rng=np.random.default_rng(0))
    assert np.abs(result.edge_probabilities[:, 3] - full.edge_probabilities[:, 3]).max() < 0.01
    assert full.edge_probabilities[:3, 3].sum() > 1


def test_scores_of_a_hundred_thousand_rows():
    # Levels of -1e7 with differences of thousands: exponentials of any of them underflow, and one float32
    # step is 1.
    score = random_score(4, spread=3.0, level=-1e7)
    score.values[:, 3:9] -= 5000.0
    score.values[2, 5] = -np.inf
    result = exact_posterior(score, samples=5, rng=np.random.default_rng(0))
    graphs, log_joint = weigh_graphs(score, np.full((4, 4), 0.1))
    # Numbers of 4e7 are known to 7e-9; the same error in each of about ten scores moves a probability by
    # 1e-7.
    check_against(result, graphs, log_joint, tolerance=1e-7)
    assert 0.01 < result.edge_probabilities.max() < 1


@pytest.mark.parametrize(("rows", "tolerance"), [(30, 5e-4), (5, 1e-2)])
def test_shared_noise_against_a_fine_grid_of_variances(rows, tolerance):
    shared = EqualNoise().prepare(table_of(3, rows=rows))
    result = exact_posterior(shared, edge_probability=0.2, samples=4000, rng=np.random.default_rng(0))
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


def test_all_orders_of_six_nodes():
    nodes, odds = 6, np.log(0.25 / 0.75)
    score = random_score(nodes, spread=2.0, seed=2)
    sets = np.arange(1 << nodes)
    weights = score.values + np.bitwise_count(sets) * odds
    log_orders, edges = [], []
    for order in permutations(range(nodes)):
        total, given_order = 0.0, np.zeros((nodes, nodes))
        for rank, node in enumerate(order):
            before = sum(1 << other for other in order[:rank])
            inside = sets[sets & ~before == 0]
            log_sum = np.logaddexp.reduce(weights[node, inside])
            shares = np.exp(weights[node, inside] - log_sum)
            for other in order[:rank]:
                given_order[other, node] = shares[inside >> other & 1 == 1].sum()
            total += log_sum
        log_orders.append(total)
        edges.append(given_order)
    evidence = logsumexp(log_orders) - np.log(720) + 15 * np.log(0.75)
    expected = np.einsum("o,oij->ij", np.exp(log_orders - logsumexp(log_orders)), edges)
    result = exact_posterior(score, edge_probability=0.25, samples=5, rng=np.random.default_rng(0))
    assert result.log_evidence == pytest.approx(evidence, abs=1e-9)
    assert np.abs(result.edge_probabilities - expected).max() < 1e-9


def test_edge_probabilities_are_ratios_of_evidence():
    # P(i -> j | table) = p(table, i -> j) / p(table); half of the orders put i first, the edge itself has
    # probability .2.
    prepared = BGe().prepare(table_of(9, rows=40))
    full = exact_posterior(prepared, edge_probability=0.2, samples=5, rng=np.random.default_rng(0))
    for i, j in [(0, 1), (1, 0), (8, 2), (3, 7)]:
        required = np.zeros((9, 9), dtype=bool)
        required[i, j] = True
        given = exact_posterior(
            prepared, edge_probability=0.2, required=required, samples=5, rng=np.random.default_rng(0)
        )
        ratio = np.exp(given.log_evidence + np.log(0.5 * 0.2) - full.log_evidence)
        assert full.edge_probabilities[i, j] == pytest.approx(ratio, abs=1e-10)


def test_without_data_edges_have_half_the_prior_and_evidence_is_one():
    result = exact_posterior(
        GivenScore(np.zeros((8, 256))), edge_probability=0.3, samples=5, rng=np.random.default_rng(0)
    )
    off_diagonal = ~np.eye(8, dtype=bool)
    assert np.abs(result.edge_probabilities[off_diagonal] - 0.15).max() < 1e-12
    assert np.abs(np.diag(result.edge_probabilities)).max() == 0
    assert result.log_evidence == pytest.approx(0.0, abs=1e-10)


# --- draws --------------------------------------------------------------------------------------------------


def test_draws_have_the_probabilities_of_graphs_orders_and_paths():
    size = 20_000
    score = random_score(3, spread=1.5, seed=1)
    result = exact_posterior(score, edge_probability=0.4, samples=size, rng=np.random.default_rng(7))
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
    result = exact_posterior(prepared, samples=size, rng=np.random.default_rng(3), names=tuple("abcdefgh"))
    error = np.sqrt(result.edge_probabilities * (1 - result.edge_probabilities) / size)
    scores = (result.samples.edge_probabilities() - result.edge_probabilities) / np.where(error > 0, error, 1.0)
    # 56 edges: one beyond 4.5 standard errors in 2,600 seeds.
    assert np.abs(scores).max() < 4.5
    assert result.samples.names == tuple("abcdefgh")
    assert result.samples.take(np.arange(200)).all_acyclic()


def test_same_seed_same_draws():
    prepared = EqualNoise().prepare(table_of(4))
    first, second = (
        exact_posterior(prepared, samples=50, rng=np.random.default_rng(5)).samples.dense() for _ in range(2)
    )
    assert np.array_equal(first, second)


# --- refusals -----------------------------------------------------------------------------------------------


def test_twenty_nodes_fit_into_four_gigabytes_and_thirty_are_refused():
    assert memory_needed(20, lattices=NOISE_POINTS) < 4e9
    with pytest.raises(ConfigError, match=r"300\.6 GB of memory for 30 columns.*limit of 4 GB.*enough for 24.*orders"):
        exact_posterior(BGe().prepare(table_of(30, rows=50)), samples=5, rng=np.random.default_rng(0))


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
        exact_posterior(prepared, required=must, allowed=may, samples=5, rng=np.random.default_rng(0))


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
    with pytest.raises(ConfigError):
        exact_posterior(BGe().prepare(table_of(4)), **{"samples": 5, "rng": np.random.default_rng(0), **options})


def test_progress_is_told():
    told: list[Progress] = []
    exact_posterior(BGe().prepare(table_of(4)), samples=5, rng=np.random.default_rng(0), progress=told.append)
    assert {step.detail for step in told} == {
        "scoring all parent sets",
        "edge probabilities",
        "drawing graphs",
    }
    assert all(0 < step.done <= step.total for step in told)
