"""GraphSamples: sparse storage says the same as dense graphs."""

import numpy as np
import pandas as pd
import pytest

from vcuda.data.spreadsheets import from_cell
from vcuda.errors import ConfigError, RunError
from vcuda.graphs import is_dag
from vcuda.posterior import GraphSamples

NAMES = ("a", "b", "c")


def random_dags(size, nodes, rng):
    upper = np.triu(rng.random((size, nodes, nodes)) < 0.4, 1)
    return np.stack(
        [
            graph[np.ix_(order, order)]
            for graph, order in zip(upper, rng.permuted(np.tile(np.arange(nodes), (size, 1)), axis=1), strict=True)
        ]
    )


def test_dense_round_trip_and_weighted_probabilities():
    graphs = random_dags(7, 3, np.random.default_rng(0))
    weights = np.arange(1.0, 8.0) / 28
    samples = GraphSamples.from_dense(NAMES, graphs, weights)
    np.testing.assert_array_equal(samples.dense(), graphs)
    np.testing.assert_allclose(samples.edge_probabilities(), np.tensordot(weights, graphs, axes=1))
    np.testing.assert_array_equal(samples.edge_counts(), graphs.sum(axis=(1, 2)))
    assert all(is_dag(graph) for graph in samples)
    assert samples.all_acyclic()


def test_take_picks_samples_in_the_order_asked():
    graphs = random_dags(5, 3, np.random.default_rng(1))
    graphs[2] = False
    picked = GraphSamples.from_dense(NAMES, graphs).take(np.array([2, 4, 2, 0]))
    np.testing.assert_array_equal(picked.dense(), graphs[[2, 4, 2, 0]])


def test_a_cycle_is_seen():
    samples = GraphSamples.from_dense(NAMES, [[0, 1, 0], [0, 0, 1], [1, 0, 0]])
    assert not samples.all_acyclic()


def test_a_thousand_graphs_of_a_thousand_nodes_take_megabytes():
    nodes, size = 1000, 1000
    rng = np.random.default_rng(0)
    ends = np.sort(rng.integers(0, nodes, (2, nodes * size)), axis=0)
    samples = GraphSamples.from_counts([str(k) for k in range(nodes)], np.full(size, nodes), *ends)
    stored = samples.offsets.nbytes + samples.sources.nbytes + samples.targets.nbytes + samples.weights.nbytes
    assert stored < 10e6


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"offsets": np.array([0, 2])}, "sources of shape"),
        ({"offsets": np.array([1, 1])}, "rise from 0"),
        ({"sources": np.array([3])}, "outside 0..2"),
        ({"targets": np.array([-1])}, "outside 0..2"),
        ({"weights": np.array([0.5])}, "sum to one"),
        ({"weights": np.array([np.nan])}, "sum to one"),
    ],
)
def test_what_cannot_be_graphs_is_refused(change, message):
    good = {
        "names": NAMES,
        "offsets": np.array([0, 1]),
        "sources": np.array([0]),
        "targets": np.array([1]),
        "weights": np.array([1.0]),
    }
    with pytest.raises(ConfigError, match=message):
        GraphSamples(**good | change)


def test_saved_graphs_come_back(tmp_path):
    graphs = random_dags(6, 3, np.random.default_rng(2))
    graphs[1] = False
    names = ("a", "=cmd", 'ö, "b"')
    samples = GraphSamples.from_dense(names, graphs, np.arange(1, 7) / 21)
    samples.save(tmp_path / "graphs.npz")
    again = GraphSamples.load(tmp_path / "graphs.npz")
    assert again.names == names
    np.testing.assert_array_equal(again.dense(), graphs)
    np.testing.assert_array_equal(again.weights, samples.weights)
    samples.save(tmp_path / "graphs.csv")
    table = pd.read_csv(tmp_path / "graphs.csv")
    for k, graph in enumerate(graphs):
        listed = {
            (names.index(from_cell(s)), names.index(from_cell(t)))
            for s, t in table.loc[table["sample"] == k, ["source", "target"]].to_numpy()
        }
        assert listed == set(zip(*np.nonzero(graph), strict=True))


def test_files_that_are_no_graph_samples_are_refused(tmp_path):
    samples = GraphSamples.from_dense(NAMES, np.zeros((3, 3)))
    with pytest.raises(ConfigError, match=r"\.csv or \.npz"):
        samples.save(tmp_path / "graphs.txt")
    np.savez(tmp_path / "other.npz", offsets=np.array([0, 1]))
    (tmp_path / "broken.npz").write_bytes(b"PK")
    for name in ("other.npz", "broken.npz", "absent.npz"):
        with pytest.raises(RunError, match=name):
            GraphSamples.load(tmp_path / name)
