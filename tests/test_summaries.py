"""Questions about graphs: every answer against brute force over enumerated graphs, and for every engine's law."""

from collections import Counter, defaultdict
from itertools import pairwise, permutations

import numpy as np
import pandas as pd
import pytest

import vcuda
from vcuda.arguments import position
from vcuda.data.dataset import Dataset
from vcuda.errors import ConfigError
from vcuda.graphs import ancestors, compelled_edges, cpdag, enumerate_dags, is_dag
from vcuda.models.linear import BGe
from vcuda.models.mixed.prediction import MixedPredictive
from vcuda.posterior.point import ScoredGraphs
from vcuda.posterior.posterior import Posterior, Status
from vcuda.posterior.sampled import SampledGraphs
from vcuda.posterior.samples import GraphSamples
from vcuda.summaries import structures
from vcuda.summaries.experiments import direction_doubt
from vcuda.summaries.structures import log_orders

NAMES = ("a", "b", "c", "d", "e")


def posterior_over(graphs, weights=None, names=NAMES):
    """A posterior that holds just these graphs."""
    cube = np.asarray(graphs, dtype=bool)
    cube = cube[None] if cube.ndim == 2 else cube
    samples = GraphSamples.from_dense(names[: cube.shape[1]], cube, weights)
    graph_posterior = ScoredGraphs(samples, samples.edge_probabilities())
    return Posterior(samples.names, graph_posterior, Status("ok", "Made by hand."), {}, {}, {})


def graph_of(nodes, *edges):
    graph = np.zeros((nodes, nodes), dtype=bool)
    for i, j in edges:
        graph[i, j] = True
    return graph


def random_posterior(seed, nodes=4, size=40):
    """Distinct graphs of equal weights, so that as many draws are those graphs exactly once."""
    rng = np.random.default_rng(seed)
    graphs = enumerate_dags(nodes)
    chosen = graphs[rng.choice(len(graphs), size, replace=False)]
    return chosen, posterior_over(chosen)


def shd(first, second):
    """Pairs of nodes that differ: an edge turned round counts once."""
    return int(np.triu((first != second) | (first.T != second.T), k=1).sum())


@pytest.mark.parametrize("seed", range(8))
def test_the_consensus_has_the_smallest_expected_distance_of_all_dags(seed):
    rng = np.random.default_rng(seed)
    graphs = enumerate_dags(4)
    chosen = graphs[rng.choice(len(graphs), 6, replace=False)]
    weights = rng.dirichlet(np.ones(6))
    answer = posterior_over(chosen, weights).consensus()
    distances = np.array([weights @ [shd(graph, other) for other in chosen] for graph in graphs])
    assert is_dag(answer.graph)
    assert answer.expected_shd == pytest.approx(weights @ [shd(answer.graph, other) for other in chosen])
    assert "no DAG" in answer.rule
    assert answer.expected_shd == pytest.approx(distances.min())


def test_a_threshold_makes_a_cycle_here_and_the_consensus_does_not():
    turning = [graph_of(3, (0, 1), (1, 2)), graph_of(3, (1, 2), (2, 0)), graph_of(3, (2, 0), (0, 1))]
    posterior = posterior_over(turning)
    assert not is_dag(posterior.edge_probabilities.to_numpy() > 0.5)
    answer = posterior.consensus()
    assert is_dag(answer.graph)
    assert answer.graph.sum() == 2
    assert "1 edges were left out because of cycles" in answer.rule


def test_the_consensus_keeps_an_edge_whose_direction_is_open_and_says_so():
    answer = posterior_over([graph_of(2, (0, 1)), graph_of(2, (1, 0))]).consensus()
    edges = answer.edges()
    assert len(edges) == 1
    assert edges.probability[0] == edges.opposite[0] == 0.5
    assert "a -> b  0.50 (opposite 0.50)" in repr(answer)
    assert answer.cpdag().to_numpy().tolist() == [[0, 1], [1, 0]]


def test_orders_are_counted_and_the_formula_for_many_nodes_is_a_lower_bound(monkeypatch):
    rng = np.random.default_rng(0)
    for graph in enumerate_dags(4)[rng.choice(543, 40, replace=False)]:
        edges = np.argwhere(graph).tolist()
        count = sum(all(order.index(i) < order.index(j) for i, j in edges) for order in permutations(range(4)))
        assert log_orders(graph) == pytest.approx(np.log(count))
        with monkeypatch.context() as changed:
            changed.setattr("vcuda.summaries.structures.COUNTED_NODES", 0)
            bound = log_orders(graph)
        assert bound <= np.log(count) + 1e-9
        if graph.sum(axis=0).max() <= 1 or graph.sum(axis=1).max() <= 1:
            assert bound == pytest.approx(np.log(count))


@pytest.mark.parametrize("prior", [0.3, vcuda.UniformDags(0.3)])
def test_the_best_graph_is_that_of_the_enumerated_posterior(prior):
    rng = np.random.default_rng(0)
    values = rng.normal(size=(60, 4))
    values[:, 1] += values[:, 0]
    values[:, 3] += 0.5 * values[:, 1] - 0.7 * values[:, 2]
    posterior = vcuda.fit(values, model="linear", engine="exact", prior=prior, seed=0)
    score = BGe().prepare(values)
    graphs = enumerate_dags(4)
    log_joint = np.array(
        [
            sum(score.score(j, np.flatnonzero(graph[:, j]).tolist()) for j in range(4))
            + graph.sum() * np.log(0.3 / 0.7)
            + (log_orders(graph) if prior == 0.3 else 0.0)
            for graph in graphs
        ]
    )
    answer = posterior.map(draws=1000)
    place = int(np.flatnonzero((graphs == answer.graph).all(axis=(1, 2)))[0])
    assert log_joint[place] == pytest.approx(log_joint.max())
    assert "Highest posterior probability" in answer.rule


def test_without_a_score_the_best_graph_is_the_most_frequent_and_then_the_most_probable():
    chain, fork, other = graph_of(3, (0, 1), (1, 2)), graph_of(3, (0, 1), (0, 2)), graph_of(3, (0, 1), (1, 2), (0, 2))
    often = posterior_over([chain, fork, other], [0.2, 0.7, 0.1]).map()
    assert np.array_equal(often.graph, fork)
    assert "Drawn most often" in often.rule
    tied = posterior_over([fork, chain, other]).map(draws=3)
    assert np.array_equal(tied.graph, other)  # each edge of it has probability 2/3 or 1


def test_the_best_graph_of_several_kinds_has_the_highest_evidence(monkeypatch):
    """The draws prefer another one; where regressions take long, only the most frequent are compared."""
    rng = np.random.default_rng(0)
    cause = rng.integers(0, 2, 200).astype(float)
    values = np.stack([cause, rng.poisson(np.exp(1 + cause)), rng.normal(size=200)], axis=1)
    data = Dataset(("smoker", "visits", "height"), values, kinds=("yes/no", "count", "number"))
    predictive = MixedPredictive.of(data, np.zeros(3, dtype=bool))
    none, right, wrong = graph_of(3), graph_of(3, (0, 1)), graph_of(3, (0, 1), (2, 1))
    samples = GraphSamples.from_dense(data.names, np.stack([none, wrong, right]), [0.4, 0.35, 0.25])
    drawn = SampledGraphs(samples, samples.edge_probabilities(), predictive)
    prior = {"prior": {"name": "orders", "edge_probability": 0.3}}
    posterior = Posterior(data.names, drawn, Status("ok", "Made by hand."), {}, {}, prior)
    best = posterior.map(draws=200)
    assert np.array_equal(best.graph, right)
    assert best.rule == "Highest posterior probability among 3 different graphs of 200 drawn."
    score = predictive.local_score()
    assert score.score(1, [0]) > score.score(1, []) + 20
    assert score.score(1, [0]) > score.score(1, [2, 0])
    monkeypatch.setattr(structures, "SLOW_CELLS", 4 * 200)
    few = posterior.map(draws=200)
    assert few.rule.startswith("Highest posterior probability among the 2 graphs drawn most often, of 3 different")
    assert np.array_equal(few.graph, wrong)


@pytest.mark.parametrize("seed", range(3))
def test_edge_types_are_shares_of_the_classes_of_the_graphs(seed):
    graphs, posterior = random_posterior(seed)
    table = posterior.cpdag(draws=len(graphs))
    assert len(table) == 6
    np.testing.assert_allclose(table[["directed", "reversed", "undirected", "none"]].sum(axis=1), 1.0)
    classes = [cpdag(graph) for graph in graphs]
    for row in table.itertuples():
        i, j = NAMES.index(row.source), NAMES.index(row.target)
        forward, back = np.array([(c[i, j], c[j, i]) for c in classes]).T
        assert row.directed == pytest.approx(np.mean(forward & ~back))
        assert row.reversed == pytest.approx(np.mean(back & ~forward))
        assert row.undirected == pytest.approx(np.mean(forward & back))
        assert row.directed >= row.reversed
    assert (posterior.cpdag(minimum=0.6, draws=40).none <= 0.4 + 1e-9).all()


@pytest.mark.parametrize("seed", range(3))
def test_ancestors_and_paths_against_every_path_of_every_graph(seed):
    graphs, posterior = random_posterior(seed, nodes=5, size=60)
    matrix = posterior.ancestors(draws=60)
    np.testing.assert_allclose(matrix.to_numpy(), np.mean([ancestors(graph) for graph in graphs], axis=0))
    shares = Counter()
    for middle in (order for size in range(4) for order in permutations(("b", "c", "d"), size)):
        way = ("a", *middle, "e")
        steps = [(NAMES.index(i), NAMES.index(j)) for i, j in pairwise(way)]
        shares[" -> ".join(way)] = np.mean([all(graph[step] for step in steps) for graph in graphs])
    answer = posterior.paths("a", "e", most=100, draws=60)
    seen = dict(zip(answer.table.path, answer.table.probability, strict=True))
    assert seen == pytest.approx({way: share for way, share in shares.items() if share})
    assert answer.table.probability.is_monotonic_decreasing
    assert answer.probability == pytest.approx(matrix.loc["a", "e"])
    few = posterior.paths("a", "e", most=3, draws=60).table
    pd.testing.assert_frame_equal(few, answer.table.head(3))
    assert "a is upstream of e" in repr(answer)


@pytest.mark.parametrize("seed", range(3))
def test_a_blanket_is_what_the_moral_graph_joins(seed):
    graphs, posterior = random_posterior(seed)
    answer = posterior.blanket("b", draws=len(graphs))
    counted = Counter()
    members = defaultdict(float)
    for graph in graphs:
        moral = graph | graph.T
        for child in range(4):
            parents = np.flatnonzero(graph[:, child])
            moral[np.ix_(parents, parents)] = True
        found = [NAMES[k] for k in np.flatnonzero(moral[1]) if k != 1]
        counted[", ".join(found)] += 1
        for name in found:
            members[name] += 1 / len(graphs)
    for row in answer.members.itertuples():
        assert row.probability == pytest.approx(members[row.variable])
        assert row.parent + row.child + row.spouse == pytest.approx(row.probability)
        assert row.parent == pytest.approx(np.mean(graphs[:, NAMES.index(row.variable), 1]))
    top = counted.most_common(1)[0][1]
    assert answer.sets.probability[0] == pytest.approx(top / len(graphs))
    assert {row.blanket: row.probability for row in answer.sets.itertuples()}.items() <= {
        name: pytest.approx(count / len(graphs)) for name, count in counted.items()
    }.items()


def test_a_comparison_is_by_name_and_counts_pairs():
    first = posterior_over([graph_of(3, (0, 1)), graph_of(3, (1, 2))])
    turned = [2, 0, 1]
    same = [graph_of(3, (0, 1))[np.ix_(turned, turned)], graph_of(3, (1, 2))[np.ix_(turned, turned)]]
    again = posterior_over(same, names=("c", "a", "b"))
    assert first.compare(again).sum_of_differences == 0
    other = posterior_over([graph_of(4, (1, 0), (3, 0))], names=("a", "b", "c", "x"))
    answer = first.compare(other)
    # The pair a, b: (.5, 0, .5) against (0, 1, 0) for a -> b, b -> a, apart; b, c: (.5, 0, .5) against apart.
    assert answer.pairs_that_differ == pytest.approx(1.0 + 0.5)
    assert answer.sum_of_differences == pytest.approx(0.5 + 1.0 + 0.5)
    assert (answer.edges.source[0], answer.edges.target[0], answer.edges.difference[0]) == ("b", "a", 1.0)
    assert (answer.only_here, answer.only_there) == ((), ("x",))
    assert "b -> a  0.00 -> 1.00 (+1.00)" in repr(answer)
    with pytest.raises(ConfigError, match="share 0"):
        first.compare(posterior_over([graph_of(2)], names=("y", "z")))


def entropy(keys):
    shares = np.array(list(Counter(keys).values())) / len(keys)
    return float(-(shares * np.log2(shares)).sum())


def test_an_experiment_teaches_the_entropy_of_what_it_splits():
    """Over one equivalence class: the entropy of the classes that remain, less that of none."""
    for start in (graph_of(4, (0, 1), (0, 2), (0, 3)), graph_of(4, (0, 1), (1, 2), (2, 3)), ~np.tri(4, dtype=bool)):
        graphs = [graph for graph in enumerate_dags(4) if np.array_equal(cpdag(graph), cpdag(start))]
        seen = posterior_over(graphs).next_experiment(draws=len(graphs)).set_index("variable")
        for node in range(4):
            remaining = [cpdag(graph, intervened=[node]).tobytes() for graph in graphs]
            assert seen.information[NAMES[node]] == pytest.approx(entropy(remaining))
    # A star of three: its middle is the root or one of the leaves is.
    star = [
        graph for graph in enumerate_dags(4) if np.array_equal(cpdag(graph), cpdag(graph_of(4, (0, 1), (0, 2), (0, 3))))
    ]
    table = posterior_over(star).next_experiment(draws=4)
    assert table.variable[0] == "a"
    assert table.information[0] == pytest.approx(2.0)


def test_expected_orientations_count_what_follows_elsewhere_and_doubtful_edges_only():
    chain = [graph for graph in enumerate_dags(3) if np.array_equal(cpdag(graph), cpdag(graph_of(3, (0, 1), (1, 2))))]
    probabilities = np.mean(chain, axis=0)
    seen = posterior_over(chain).next_experiment(draws=3).set_index("variable").edges_oriented
    share = probabilities[0, 1] / (probabilities[0, 1] + probabilities[1, 0])
    doubt = -(share * np.log2(share) + (1 - share) * np.log2(1 - share))
    for node in range(3):
        oriented = [compelled_edges(*np.nonzero(graph), 3, intervened=[node]).sum() for graph in chain]
        assert seen[NAMES[node]] == pytest.approx(doubt * np.mean(oriented))
    sure = posterior_over([graph_of(3, (0, 1), (1, 2))]).next_experiment(draws=1)
    assert (sure.information == 0).all()
    assert (sure.edges_oriented == 0).all()


@pytest.mark.parametrize("already", [(), ("c",)])
def test_expected_orientations_are_those_of_whole_essential_graphs(already):
    """Components are looked at one by one; here all edges of every graph at once."""
    rng = np.random.default_rng(4)
    everything = enumerate_dags(5)
    graphs = everything[rng.choice(len(everything), 30, replace=False)]
    done = [NAMES.index(name) for name in already]
    probabilities = np.mean(graphs, axis=0)
    doubt = direction_doubt(probabilities)
    expected = np.zeros(5)
    for graph in graphs:
        sources, targets = np.nonzero(graph)
        before = compelled_edges(sources, targets, 5, intervened=done)
        for node in range(5):
            new = compelled_edges(sources, targets, 5, intervened=[*done, node]) & ~before
            expected[node] += doubt[sources[new], targets[new]].sum() / 30
    assert expected.max() > 0.05
    seen = posterior_over(graphs).next_experiment(already=already, draws=30).set_index("variable").edges_oriented
    np.testing.assert_allclose(seen[list(NAMES)], expected, atol=1e-12)


def test_an_experiment_that_was_done_teaches_nothing_more():
    star = [
        graph for graph in enumerate_dags(4) if np.array_equal(cpdag(graph), cpdag(graph_of(4, (0, 1), (0, 2), (0, 3))))
    ]
    seen = posterior_over(star).next_experiment(already=["a"], draws=4)
    assert (seen.information == 0).all()
    with pytest.raises(ConfigError, match="no variable 'q'"):
        posterior_over(star).next_experiment(already=["q"])


def test_unknown_names_are_refused_with_the_nearest():
    posterior = posterior_over(graph_of(3, (0, 1)), names=("Raf", "Mek", "Erk"))
    for ask in (
        lambda: posterior.paths("Raf", "Mk"),
        lambda: posterior.blanket("Mk"),
        lambda: posterior.effect("Mk", "Erk"),
    ):
        with pytest.raises(ConfigError, match="no variable 'Mk'; did you mean 'Mek'"):
            ask()
    with pytest.raises(ConfigError, match="did you mean 'Raf'"):
        posterior.blanket("RAF")
    with pytest.raises(ConfigError, match="there are 'Raf', 'Mek', 'Erk'"):
        posterior.blanket("temperature")
    with pytest.raises(ConfigError, match="two different variables"):
        posterior.paths("Raf", "Raf")
    with pytest.raises(ConfigError, match="draws must be a whole number at least 1"):
        posterior.ancestors(draws=0)
    assert position(NAMES, "e") == 4
