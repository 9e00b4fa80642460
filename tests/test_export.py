"""Exports: a posterior goes into each format and comes back with the same edges, whatever its names are."""

import io
import itertools
import json
import sys
import warnings
import xml.etree.ElementTree
from dataclasses import replace
from types import ModuleType

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import vcuda
from vcuda.data.library import read_graph
from vcuda.data.spreadsheets import from_cell
from vcuda.errors import ConfigError, DataError, MissingExtraError
from vcuda.graphs import cpdag, is_dag
from vcuda.outputs import exports
from vcuda.outputs.exports import libraries
from vcuda.posterior import GraphSamples

AWKWARD = ('a "quoted" \\ name\\', "line\nbreak\r\n, comma;", "<b>&amp;'ü→🦉", "-> [x=1] // {}", "subgraph")


@pytest.fixture(scope="module")
def posterior():
    rng = np.random.default_rng(5)
    values = rng.normal(size=(60, 5))
    for k in range(1, 5):
        values[:, k] += 0.6 * values[:, k - 1]
    return vcuda.fit(pd.DataFrame(values, columns=list(AWKWARD)), model="linear", engine="exact", seed=1)


def same(table: pd.DataFrame, expected: pd.DataFrame) -> bool:
    return list(table.index) == list(expected.index) == list(table.columns) and np.array_equal(table, expected)


# Every format, there and back ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", exports.FORMATS)
def test_a_posterior_comes_back_from_every_file_with_the_same_edges(posterior, name, tmp_path):
    path = tmp_path / f"graph{exports.FORMATS[name].endings[0]}"
    exports.write_edges(posterior, path)
    assert same(exports.read_edges(path, names=posterior.names), posterior.edge_probabilities)
    exports.write_edges(posterior, tmp_path / "strong", file_format=name, minimum=0.5)
    back = exports.read_edges(tmp_path / "strong", file_format=name, names=posterior.names)
    strong = posterior.edge_probabilities
    assert 0 < (back > 0).to_numpy().sum() < (strong > 0).to_numpy().sum()
    assert same(back, strong.where(strong >= 0.5, 0.0))


@pytest.mark.parametrize("name", exports.FORMATS)
def test_one_graph_comes_back_from_every_format(posterior, name):
    consensus = posterior.consensus()
    text = exports.FORMATS[name].to_text(consensus)
    back = exports.FORMATS[name].from_text(text, names=posterior.names)
    np.testing.assert_array_equal(back > 0, consensus.graph)
    np.testing.assert_array_equal(back.to_numpy()[consensus.graph], consensus.probabilities[consensus.graph])


@st.composite
def tables(draw):
    characters = st.characters(exclude_categories=["Cs"])
    names = draw(st.lists(st.text(characters, min_size=1, max_size=8), min_size=2, max_size=4, unique=True))
    pairs = [(i, j) for i in range(len(names)) for j in range(len(names)) if i != j]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True))
    matrix = np.zeros((len(names), len(names)))
    for pair in chosen:
        matrix[pair] = draw(st.floats(0, 1, exclude_min=True))
    return pd.DataFrame(matrix, index=names, columns=names)


def table(names, *edges):
    matrix = pd.DataFrame(0.0, index=list(names), columns=list(names))
    for source, target in edges:
        matrix.loc[source, target] = 0.25
    return matrix


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(tables())
@example(table(AWKWARD, AWKWARD[:2], AWKWARD[3:], AWKWARD[::4]))
@example(table(("[]", "()", "0", "id"), ("[]", "()"), ("0", "id")))
@example(table(("\x00", "\\u0000", "\\u0000_", "\x1f\x85\u2028"), ("\x00", "\\u0000"), ("\\u0000_", "\x1f\x85\u2028")))
@example(table(("NaN", "null", "True", "1.0"), ("NaN", "null"), ("True", "1.0")))
@example(table(("\ufeff", " b ", "\\\n", "\\"), ("\ufeff", " b "), ("\\\n", "\\")))
def test_names_of_any_characters_survive_every_format(original):
    for name, known in exports.FORMATS.items():
        text = known.to_text(original)
        text.encode("utf-8")
        assert same(known.from_text(text, names=original.index), original), name
        if name != "csv":  # which has no line for a variable without edges
            assert same(known.from_text(text), original), name
    assert same(exports.from_networkx(exports.to_networkx(original)), original)
    assert same(exports.from_lingam(exports.to_lingam(original)), original)


# One graph without probabilities -----------------------------------------------------------------------------------


PLAIN = ("age", "dose.mg", "pain_2", "sleep")


@pytest.mark.parametrize("name", exports.STRUCTURES)
def test_one_dag_comes_back_from_the_formats_of_structures(name, tmp_path):
    dag = table(PLAIN, ("age", "dose.mg"), ("dose.mg", "pain_2"), ("age", "pain_2")) * 4
    for ending in exports.STRUCTURES[name].endings:
        exports.write_edges(dag, tmp_path / f"graph{ending}")
        assert same(exports.read_edges(tmp_path / f"graph{ending}"), dag)
        assert same(
            exports.read_edges(tmp_path / f"graph{ending}", names=PLAIN[::-1]), dag.loc[PLAIN[::-1], PLAIN[::-1]]
        )
        truth = read_graph(tmp_path / f"graph{ending}", PLAIN)
        np.testing.assert_array_equal(truth, dag.to_numpy() > 0)
        known = vcuda.Knowledge.read(tmp_path / f"graph{ending}")
        assert set(known.required) == {("age", "dose.mg"), ("dose.mg", "pain_2"), ("age", "pain_2")}
    # A knowledge file of edges that are all required is such a graph.
    known.write(tmp_path / "known.dagitty")
    assert vcuda.Knowledge.read(tmp_path / "known.dagitty") == known


def test_a_posterior_gives_its_consensus_to_the_formats_of_structures(posterior, tmp_path):
    consensus = posterior.consensus()
    exports.write_edges(posterior, tmp_path / "graph.dagitty")
    np.testing.assert_array_equal(exports.read_edges(tmp_path / "graph.dagitty"), consensus.graph)
    for ending, words in (
        (".tetrad", "files of Tetrad cannot hold the name"),
        (".bif", "BIF file cannot hold the name"),
    ):
        with pytest.raises(ConfigError, match=words):
            exports.write_edges(posterior, tmp_path / f"graph{ending}")
    with pytest.raises(ConfigError, match="takes one graph"):
        exports.to_dagitty(table("ab", "ab"))
    with pytest.raises(ConfigError, match="has a cycle"):
        exports.to_bif(table("ab", "ab", "ba") * 4)
    strong = exports.from_dagitty(exports.to_dagitty(posterior, minimum=0.9))
    np.testing.assert_array_equal(strong, consensus.graph & (consensus.probabilities >= 0.9))


def test_a_cpdag_keeps_its_edges_without_direction():
    pattern = table("abc", "ab", "ba", "bc") * 4
    for name in ("dagitty", "tetrad"):
        known = exports.STRUCTURES[name]
        assert same(known.from_text(known.to_text(pattern)), pattern)


def test_structures_as_other_programs_write_them(tmp_path):
    dagitty = """dag {
bb="-2.5,-2.3,2.4,2.1"
"birth weight" [outcome,pos="1.2,-0.4"]
U [latent,pos="0,1"]
age [exposure,pos="-1.1,0.4"]  // who is asked
age -> {dose smoking} -> "birth weight"
U <- age
}"""
    found = exports.from_dagitty(dagitty)
    assert list(found.index) == ["birth weight", "U", "age", "dose", "smoking"]
    assert found.loc["age"].tolist() == [0, 1, 0, 1, 1]
    assert found.loc["smoking", "birth weight"] == 1
    tetrad = """Graph Nodes:
X1;X2;X3

Graph Edges:
1. X1 --> X2 dd nl
2. X2 --- X3

Graph Attributes:
BIC: -1234.5
"""
    (tmp_path / "graph.txt").write_text(tetrad)
    found = exports.read_edges(tmp_path / "graph.txt")
    assert found.to_numpy().tolist() == [[0, 1, 0], [0, 0, 1], [0, 1, 0]]
    with pytest.raises(DataError, match="the edge between 'X2' and 'X3' has no direction"):
        read_graph(tmp_path / "graph.txt", ["X1", "X2", "X3"])
    bif = """network "asia" { } // of Lauritzen
variable "visit to Asia" { type discrete [ 2 ] { yes, no }; property "x = ( 1, 2 )"; }
variable tub { type discrete[2] { yes, no }; }
variable either { type discrete [ 2 ] { yes, no }; }
/* probability ( tub | nobody ) */
probability ( "visit to Asia" ) { table 0.01, 0.99; }
probability ( tub | "visit to Asia" ) { (yes) 0.05, 0.95; (no) 0.01, 0.99; }
probability ( either | tub, "visit to Asia" ) { table 0.5, 0.5; }
"""
    found = exports.from_bif(bif)
    assert list(found.index) == ["visit to Asia", "tub", "either"]
    assert found.to_numpy().tolist() == [[0, 1, 1], [0, 0, 1], [0, 0, 0]]


# As the other side reads it ----------------------------------------------------------------------------------------


def test_networkx_has_the_probabilities(posterior):
    graph = exports.to_networkx(posterior)
    assert list(graph) == list(AWKWARD)
    for source, target, probability in graph.edges(data="probability"):
        assert posterior.edge_probabilities.loc[source, target] == probability
    assert nx.is_directed_acyclic_graph(exports.to_networkx(posterior.consensus()))


def test_networkx_reads_the_files_by_name(posterior):
    expected = exports.to_networkx(posterior)
    node_link = nx.node_link_graph(json.loads(exports.to_json(posterior)), edges="edges")
    graphml = nx.read_graphml(io.BytesIO(exports.to_graphml(posterior).encode()))
    gml = nx.parse_gml(exports.to_gml(posterior))
    for read in (node_link, graphml, gml):
        assert nx.utils.graphs_equal(nx.DiGraph(read.edges(data=True)), nx.DiGraph(expected.edges(data=True)))


def test_pandas_reads_the_csv(posterior):
    # As text first: how pandas is asked for the last digit of a number differs between its versions.
    frame = pd.read_csv(io.StringIO(exports.to_csv(posterior), newline=""), keep_default_na=False, dtype=str)
    frame["probability"] = frame["probability"].map(float)
    frame = frame.assign(source=frame["source"].map(from_cell), target=frame["target"].map(from_cell))
    expected = posterior.edges(minimum=1e-300)[["source", "target", "probability"]]
    pd.testing.assert_frame_equal(frame, expected, check_exact=True)


def test_a_name_without_backslash_is_its_own_dot_id():
    text = exports.to_dot(table(("a b", 'c"d'), ("a b", 'c"d')))
    assert '"a b" -> "c\\"d" [probability="0.25", label="0.25", penwidth=1.12];' in text


def test_dot_of_other_programs():
    text = """
    /* made by hand */ strict digraph "G one" {
      graph [rankdir=LR]; node [shape=box] ; rankdir = "TB"
      a -> b -> "c" + " d" [color=red; weight=2, probability=.5] // a chain
      b:n -> 3.5 [label="x -> y"]
    # a remark
      alone [label=\"\"]; a -> 3.5;
    }"""
    expected = table(("a", "b", "c d", "3.5", "alone"))
    expected.loc["a", "b"] = expected.loc["b", "c d"] = 0.5
    expected.loc["b", "3.5"] = expected.loc["a", "3.5"] = 1.0
    assert same(exports.from_dot(text), expected)


def test_older_node_link_data_and_plain_edges_are_read():
    links = {"nodes": [{"id": 1}, {"id": 2}], "links": [{"source": 2, "target": 1}]}
    assert exports.from_json(json.dumps(links)).loc["2", "1"] == 1.0
    assert exports.from_csv("target,source,note\nb,a,x\n\n").loc["a", "b"] == 1.0
    assert exports.from_csv("\ufeffSource, Target\na,b").loc["a", "b"] == 1.0


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("dot", "graph { a -- b }", "without directions"),
        ("dot", "digraph { a -- b }", "line 1: expected -> between two names, found '--'"),
        ("dot", "digraph {\n a -> <b> }", "line 2: cannot read a label in HTML"),
        ("dot", "digraph {\n subgraph x { a } }", "line 2: subgraphs are not read"),
        ("dot", "digraph { a -> b", "expected a name, found 'the end of the text'"),
        ("dot", "digraph { a -> b [probability=often] }", "'often': expected a number"),
        ("dot", "a -> b", "expected digraph, found 'a'"),
        ("csv", "from,to\na,b", "expected the columns source and target"),
        ("csv", "", "expected the columns source and target"),
        ("csv", "source,target,probability\na,b", "record 2 has 2 cells"),
        ("csv", "source,target,probability\na,b,2", "probability 2: expected"),
        ("csv", "source,target,probability\na,b,nan", "probability nan: expected"),
        ("csv", "source,target\na,a", "'a' cause itself"),
        ("csv", "source,target\na,b\na,b", "appears twice"),
        ("json", "[]", "no graph of nodes and edges"),
        ("json", '{"nodes": [], "edges": [{"source": "a", "target": "b"}]}', "none of the nodes"),
        ("json", '{"directed": false, "nodes": [], "edges": []}', "no directions"),
        ("json", '{"nodes": [{"id": ["a"]}], "edges": []}', "a name is text or a number"),
        ("graphml", "<graphml", "cannot be read"),
        ("graphml", "<html/>", "cannot be read"),
        ("gml", "graph [ node [ id 0 ", "cannot be read"),
        ("gml", 'graph [ directed 1 node [ id 0 label "a" ] node [ id 1 label "a" ] ]', "same label"),
        ("gml", 'graph [ node [ id 0 label "a" ] ]', "no directions"),
        ("dagitty", "a -> b", "begins with dag {"),
        ("dagitty", "dag {\na -> b", "line 2: expected a name, found 'the end of the text'"),
        ("dagitty", "dag {\na <-> b }", "line 2: 'a' <-> 'b' has another end"),
        ("dagitty", "dag { a -> b [x", "expected ], found 'the end"),
        ("dagitty", 'dag { "a -> b }', "cannot read"),
        ("dagitty", "dag { a -> a }", "'a' cause itself"),
        ("tetrad", "a --> b", "line 1: expected Graph Nodes:, found 'a --> b'"),
        ("tetrad", "", "expected Graph Nodes:"),
        ("tetrad", "Graph Nodes:\na;b\nGraph Edges:\n1. a o-> b", "line 4: 'a' o-> 'b' has another end"),
        ("tetrad", "Graph Nodes:\na;b\nGraph Edges:\n1. a --> c", "line 4: 'c' is none of the nodes"),
        ("tetrad", "Graph Nodes:\na;b\nGraph Edges:\na b", "line 4: expected an edge such as"),
        ("bif", "dag { a -> b }", "expected blocks that begin with variable"),
        ("bif", "variable a { }\nprobability ( a | b ) { }", "line 2: 'b' is none of the variables"),
    ],
)
def test_what_cannot_be_read_is_refused_in_a_sentence(name, text, words, tmp_path):
    path = tmp_path / f"graph.{name}"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError) as refused:
        exports.read_edges(path)
    assert words in str(refused.value)
    assert str(path) in str(refused.value)


def test_files_that_are_not_there_not_known_or_not_text(posterior, tmp_path):
    with pytest.raises(DataError, match="No such file"):
        exports.read_edges(tmp_path / "nothing.csv")
    with pytest.raises(ConfigError, match=r"must be one of .csv, .json, .dot, .graphml, .gml"):
        exports.write_edges(posterior, tmp_path / "graph.png")
    with pytest.raises(ConfigError, match="file_format must be one of csv"):
        exports.write_edges(posterior, tmp_path / "graph.csv", file_format="png")
    with pytest.raises(ConfigError, match="cannot write"):
        exports.write_edges(posterior, tmp_path / "no" / "graph.csv")
    (tmp_path / "graph.csv").write_bytes(b"source,target\n\xff,b")
    with pytest.raises(DataError, match="no text in UTF-8"):
        exports.read_edges(tmp_path / "graph.csv")
    (tmp_path / "graph.csv").write_text("source,target\nRef,Mek")
    with pytest.raises(DataError, match=r"'Ref' that is not among the names given \(did you mean 'Raf'\?\)"):
        exports.read_edges(tmp_path / "graph.csv", names=["Raf", "Mek"])


def test_tables_that_are_no_graphs_are_refused():
    good = table(("a", "b"), ("a", "b"))
    for wrong, words in [
        (np.eye(2), "a ndarray cannot be exported"),
        (good.rename(columns={"b": "c"}), "same names for rows"),
        (good * 8, "between 0 and 1"),
        (good.rename(index={"a": "b", "b": "b"}, columns={"a": "b"}), "a name of its own"),
        (good + np.eye(2), "from 'a' to itself"),
    ]:
        with pytest.raises(ConfigError, match=words):
            exports.edge_table(wrong)
    with pytest.raises(ConfigError, match="minimum"):
        exports.edge_table(good, minimum=2)
    # Rows may come in another order than columns.
    assert same(exports.edge_table(good.loc[["b", "a"]]), good)


def test_graphml_is_xml_whatever_the_names(posterior):
    root = xml.etree.ElementTree.fromstring(exports.to_graphml(posterior).encode())
    assert {node.get("id") for node in root.iter() if node.tag.endswith("}node")} == set(AWKWARD)


# Conventions of other libraries ------------------------------------------------------------------------------------


def test_lingam_has_effects_as_rows():
    chain = table(("cause", "effect"), ("cause", "effect"))
    assert exports.to_lingam(chain).loc["effect", "cause"] == 0.25
    # As LiNGAM writes effect = -1.5 cause + noise.
    weights = exports.from_lingam(np.array([[0.0, 0.0], [-1.5, 0.0]]), names=["cause", "effect"])
    assert weights.loc["cause", "effect"] == -1.5
    with pytest.raises(ConfigError, match="give names="):
        exports.from_lingam(np.zeros((2, 2)))
    with pytest.raises(DataError, match="does not fit the 1 names"):
        exports.from_lingam(np.zeros((2, 2)), names=["a"])


def test_causal_learn_marks_there_and_back(posterior):
    consensus = posterior.consensus()
    marks = exports.to_causal_learn(posterior)
    i, j = np.argwhere(consensus.graph)[0]
    assert (marks.iloc[i, j], marks.iloc[j, i]) == (-1, 1)
    assert np.array_equal(exports.from_causal_learn(marks), consensus.graph)
    assert np.array_equal(exports.from_causal_learn(marks.to_numpy(), names=AWKWARD), consensus.graph)
    classes = consensus.cpdag()
    marks = exports.to_causal_learn(classes)
    undirected = classes.to_numpy().astype(bool) & classes.to_numpy().T.astype(bool)
    assert undirected.any()
    assert (marks.to_numpy()[undirected] == -1).all()
    assert same(exports.from_causal_learn(marks), classes)


@pytest.mark.parametrize("marks", [[[0, 1], [1, 0]], [[0, 2], [1, 0]], [[0, -1], [0, 0]]])
def test_marks_of_hidden_causes_are_refused(marks):
    with pytest.raises(DataError, match="between 'a' and 'b' has the marks"):
        exports.from_causal_learn(np.array(marks), names=["a", "b"])


def test_causal_learn_means_the_same():
    general = pytest.importorskip("causallearn.graph.GeneralGraph")
    from causallearn.graph.GraphNode import GraphNode

    nodes = [GraphNode(name) for name in AWKWARD]
    graph = general.GeneralGraph(nodes)
    graph.add_directed_edge(nodes[3], nodes[1])
    back = exports.from_causal_learn(graph)
    assert back.loc[AWKWARD[3], AWKWARD[1]] == back.to_numpy().sum() == 1
    np.testing.assert_array_equal(exports.to_causal_learn(back), graph.graph)


def test_one_graph_is_asked_for_where_one_is_needed(posterior):
    with pytest.raises(ConfigError, match=r"causal-learn takes one graph, and there are 3"):
        exports.to_causal_learn(posterior.sample(3))
    with pytest.raises(ConfigError, match="other probabilities"):
        exports.to_causal_learn(posterior.edge_probabilities)
    cycle = pd.DataFrame([[0, 1], [1, 0]], index=["a", "b"], columns=["a", "b"])
    with pytest.raises(ConfigError, match="without cycles"):
        exports.to_pgmpy(cycle)
    one = posterior.sample(1)
    np.testing.assert_array_equal(exports.from_causal_learn(exports.to_causal_learn(one)), one.graph(0))


@pytest.mark.parametrize("kind", ["dag", "discrete", "linear"])
def test_pgmpy_has_the_consensus(posterior, kind):
    pytest.importorskip("pgmpy")
    network = exports.to_pgmpy(posterior, kind=kind)
    back = exports.from_networkx(network)
    assert list(back.index) == list(AWKWARD)
    np.testing.assert_array_equal(back, posterior.consensus().graph)


def test_pgmpy_learns_the_weights_of_the_graph():
    pytest.importorskip("pgmpy")
    rng = np.random.default_rng(0)
    cause = rng.normal(size=500)
    data = pd.DataFrame({"cause": cause, "effect": 2 * cause + 0.1 * rng.normal(size=500)})
    network = exports.to_pgmpy(table(data.columns, ("cause", "effect")) > 0, kind="linear")
    network.fit(data)
    learned = network.get_cpds("effect").beta
    assert learned[-1] == pytest.approx(2, abs=0.05)  # ten standard errors of .1 / sqrt(500)


def several_kinds(**columns) -> vcuda.Posterior:
    """A posterior of model mixed: plan and grade depend on smoker, columns beside them on nothing."""
    rng = np.random.default_rng(0)
    smoker = rng.integers(0, 2, 300)
    borders = np.array([[0.7, 0.9], [0.1, 0.3]])[smoker]
    plan = np.array(["basic", "plus", "pro"])[(rng.random(300)[:, None] > borders).sum(axis=1)]
    grade = np.clip(rng.poisson(1 + 2 * smoker), 0, 3) + 1
    return vcuda.fit(pd.DataFrame({"smoker": smoker, "plan": plan, "grade": grade, **columns}), subsamples=2, seed=0)


@pytest.fixture
def fake_pgmpy(monkeypatch):
    """What is asked of pgmpy, in place of the package: networks that are networkx graphs, and tables as they came."""

    class Network(nx.DiGraph):
        def add_cpds(self, *tables):
            self.cpds = {table["variable"]: table for table in tables}

    for name in ("pgmpy", "pgmpy.base", "pgmpy.models", "pgmpy.factors", "pgmpy.factors.discrete"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    sys.modules["pgmpy.base"].DAG = Network
    sys.modules["pgmpy.models"].DiscreteBayesianNetwork = Network
    sys.modules["pgmpy.models"].LinearGaussianBayesianNetwork = Network
    sys.modules["pgmpy.factors.discrete"].TabularCPD = dict


def test_a_mixed_posterior_of_labels_has_its_probabilities_in_pgmpy(fake_pgmpy):
    posterior = several_kinds()
    assert posterior.kinds == ("yes/no", "label", "ordered")
    network = exports.to_pgmpy(posterior, kind="discrete")
    assert np.array_equal(exports.from_networkx(network), posterior.consensus().graph)
    predictive = posterior.graph_posterior.predictive
    for target, name in enumerate(posterior.names):
        table = network.cpds[name]
        values = np.array(table["values"])
        causes = table["evidence"] or []
        assert values.shape == (table["variable_card"], np.prod(table["evidence_card"], dtype=int))
        assert values.sum(axis=0) == pytest.approx(1)
        assert [posterior.names[k] for k in np.flatnonzero(posterior.consensus().graph[:, target])] == causes
        assert set(table["state_names"]) == {name, *causes}
    assert network.cpds["plan"]["state_names"]["plan"] == ["basic", "plus", "pro"]
    assert network.cpds["grade"]["state_names"]["grade"] == ["1", "2", "3", "4"]
    graph = pd.DataFrame([[0, 0, 1], [0, 0, 1], [0, 0, 0]], index=posterior.names, columns=posterior.names)
    values = np.array(libraries._probability_tables([predictive], graph)[2]["values"])
    # The last cause changes first: a smoker with plan plus is combination 3 + 1.
    chances = predictive.node(2, np.array([0, 1])).probabilities(np.array([[1.0, 1.0]]))[0]
    assert values[:, 4] == pytest.approx(chances)


def test_what_pgmpy_cannot_mix_is_named(fake_pgmpy):
    rng = np.random.default_rng(1)
    posterior = several_kinds(weight=rng.normal(size=300))
    with pytest.raises(ConfigError, match=r"and this table has 'weight' \(number\): .*to_networkx.*, or bin these"):
        exports.to_pgmpy(posterior, kind="discrete")
    with pytest.raises(ConfigError, match=r"'smoker' \(yes/no\), 'plan' \(label\), 'grade' \(ordered\): export the"):
        exports.to_pgmpy(posterior, kind="linear")
    assert set(exports.to_pgmpy(posterior)) == {"smoker", "plan", "grade", "weight"}


def test_pgmpy_takes_the_probabilities_of_a_mixed_posterior():
    pytest.importorskip("pgmpy")
    assert exports.to_pgmpy(several_kinds(), kind="discrete").check_model()


def test_an_unknown_kind_is_refused(posterior):
    with pytest.raises(ConfigError, match="kind must be one of dag, discrete, linear"):
        exports.to_pgmpy(posterior, kind="noisy")


@pytest.mark.parametrize(
    ("package", "export"),
    [
        ("pgmpy", lambda posterior: exports.to_pgmpy(posterior)),
        ("arviz", lambda posterior: exports.to_arviz(posterior)),
        ("dowhy", lambda posterior: exports.dowhy_estimate(pd.DataFrame({"a": [1.0], "b": [2.0]}), "a", "b")),
    ],
)
def test_a_package_that_is_missing_is_named_with_the_way_to_get_it(posterior, package, export, monkeypatch):
    for module in [name for name in sys.modules if name.split(".")[0] == package]:
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"pip install 'vcuda\[{package}\]'"):
        export(posterior)


@pytest.mark.parametrize("version", ["installed", "next"])
def test_arviz_has_draws_trace_and_diagnostics(posterior, version, monkeypatch):
    arviz = pytest.importorskip("arviz", exc_type=ImportError)
    if version == "next":  # from 1.0 on there is no InferenceData any more
        monkeypatch.delattr(arviz, "InferenceData", raising=False)
    posterior = replace(posterior, trace={"elbo": np.arange(6.0).reshape(2, 3), "rate": np.ones(4)})
    seen = exports.to_arviz(posterior, draws=50, seed=3)
    edge = seen["posterior"]["edge"]
    assert edge.dims == ("chain", "draw", "source", "target")
    np.testing.assert_array_equal(edge.to_numpy()[0], posterior.sample(50, seed=3).dense())
    assert list(edge["source"].to_numpy()) == list(AWKWARD)
    share = edge.sel(source=AWKWARD[0], target=AWKWARD[1]).mean().item()
    assert share == pytest.approx(posterior.sample(50, seed=3).edge_probabilities()[0, 1])
    np.testing.assert_array_equal(seen["posterior"]["edge_count"][0], posterior.sample(50, seed=3).edge_counts())
    np.testing.assert_array_equal(seen["marginals"]["edge_probability"], posterior.edge_probabilities)
    for name, series in posterior.trace.items():
        np.testing.assert_array_equal(seen["trace"][name], series)
    assert json.loads(seen["posterior"].attrs["diagnostics"]).keys() == posterior.diagnostics.keys()
    assert seen["posterior"].attrs["status"] == posterior.status.code
    if version == "installed":
        np.testing.assert_allclose(arviz.summary(seen, kind="stats", round_to=8)["mean"].iloc[1], share, atol=1e-6)


# A weighted set of DAGs --------------------------------------------------------------------------------------------


def test_weighted_dags_are_the_draws_with_equal_ones_merged(posterior):
    samples = posterior.sample(400, seed=2)
    dags = exports.weighted_dags(posterior, draws=400, seed=2)
    assert len(dags) == len({graph.tobytes() for graph in samples})
    weights = np.array([dag.weight for dag in dags])
    assert weights.sum() == pytest.approx(1)
    assert (np.diff(weights) <= 0).all()
    assert all(list(dag.graph) == list(AWKWARD) and nx.is_directed_acyclic_graph(dag.graph) for dag in dags)
    shares = sum(dag.weight * nx.to_numpy_array(dag.graph) for dag in dags)
    np.testing.assert_allclose(shares, samples.edge_probabilities(), atol=1e-12)
    few = exports.weighted_dags(posterior, draws=400, seed=2, most=3)
    assert [dag.weight for dag in few] == weights[:3].tolist()


def test_edges_in_another_order_are_the_same_dag():
    samples = GraphSamples.from_counts(("a", "b", "c"), [2, 2], [0, 1, 1, 0], [2, 2, 2, 2], np.array([0.3, 0.7]))
    (only,) = exports.weighted_dags(samples)
    assert only.weight == pytest.approx(1)


def test_the_average_is_weighted_and_tells_what_is_not_identified():
    chain, turned = nx.DiGraph([("a", "b")]), nx.DiGraph([("b", "a")])
    empty = nx.empty_graph(("a", "b"), create_using=nx.DiGraph)
    dags = [exports.WeightedDag(0.5, chain), exports.WeightedDag(0.3, turned), exports.WeightedDag(0.1, empty)]

    def estimate(graph):
        if graph.has_edge("a", "b"):
            return 2.0, 0.4
        return None if graph.has_edge("b", "a") else 0.0

    seen = exports.average_over_dags(dags, estimate)
    # Shares 5/6 and 1/6 of what is identified: mean 10/6, variance 5/6 1/6 2² and within 5/6 0.4².
    assert seen.mean == pytest.approx(10 / 6)
    assert seen.between == pytest.approx(np.sqrt(5 / 36 * 4))
    assert seen.within == pytest.approx(np.sqrt(5 / 6 * 0.16))
    assert seen.spread == pytest.approx(np.sqrt(5 / 9 + 0.8 / 6))
    assert seen.identified == pytest.approx(2 / 3)
    assert seen.covered == pytest.approx(0.9)
    assert seen.table["edges"].tolist() == [1, 1, 0]
    assert "identified in 67%" in repr(seen)
    nowhere = exports.average_over_dags(dags, lambda graph: float("nan"))
    assert nowhere.identified == 0
    assert np.isnan(nowhere.mean)
    with pytest.raises(ConfigError, match="no DAGs"):
        exports.average_over_dags([], estimate)
    with pytest.raises(ConfigError, match="at most one"):
        exports.average_over_dags([*dags, *dags], estimate)
    with pytest.raises(ConfigError, match="most must be"):
        exports.weighted_dags(GraphSamples.from_dense(("a", "b"), np.zeros((2, 2))), most=0)


def test_the_average_over_a_posterior_agrees_with_its_own_effect():
    """Regressions on the parents in each drawn DAG, averaged, and the package's own posterior mean of the effect."""
    rng = np.random.default_rng(3)
    z = rng.normal(size=80)
    x = z + rng.normal(size=80)
    data = pd.DataFrame({"z": z, "x": x, "y": x + z + rng.normal(size=80)})
    posterior = vcuda.fit(data, model="linear", noise="unequal", engine="exact", seed=0)

    def estimate(graph):
        if not nx.has_path(graph, "x", "y"):
            return 0.0
        columns = data[["x", *graph.predecessors("x")]].to_numpy()
        design = np.column_stack([np.ones(len(data)), columns])
        return float(np.linalg.lstsq(design, data["y"].to_numpy(), rcond=None)[0][1])

    seen = exports.average_over_dags(posterior, estimate)
    own = posterior.effect("x", "y", draws=1000, seed=0)
    # The draws of graphs are the same, so what is left is shrinkage (80 rows: about 1/80 of the effect), and the noise
    # of 1,000 drawn weights, .15 / sqrt(1000).
    assert seen.mean == pytest.approx(own.mean, abs=0.05)
    assert seen.between > 0.1
    assert seen.identified == 1


def test_dowhy_over_dags():
    pytest.importorskip("dowhy")
    rng = np.random.default_rng(3)
    z = rng.normal(size=80)
    x = z + rng.normal(size=80)
    data = pd.DataFrame({"z z": z, "x<1": x, "y": x + z + rng.normal(size=80)})
    adjusted = nx.DiGraph([("z z", "x<1"), ("z z", "y"), ("x<1", "y")])
    turned = nx.DiGraph([("z z", "x<1"), ("z z", "y"), ("y", "x<1")])
    dags = [exports.WeightedDag(0.75, adjusted), exports.WeightedDag(0.25, turned)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of DoWhy about pandas
        seen = exports.average_over_dags(dags, exports.dowhy_estimate(data, "x<1", "y", standard_errors=True))
        hidden = exports.dowhy_estimate(data, "x<1", "y", confounded=[("x<1", "y")])
        unknown = exports.average_over_dags(dags, hidden)
        gml = exports.to_gml(exports.from_networkx(adjusted))
        from dowhy import CausalModel

        model = CausalModel(data, "x<1", "y", graph=gml)
    design = np.column_stack([np.ones(80), data[["x<1", "z z"]]])
    expected = np.linalg.lstsq(design, data["y"], rcond=None)[0][1]
    assert seen.table["estimate"].tolist() == pytest.approx([expected, 0.0])
    assert seen.mean == pytest.approx(0.75 * expected)
    assert seen.identified == 1
    assert seen.within > 0
    assert unknown.identified == 0.25
    assert set(model._graph._graph.edges) >= set(adjusted.edges)
    with pytest.raises(ConfigError, match="did you mean 'y'"):
        exports.dowhy_estimate(data, "x<1", "yy")


def test_what_comes_back_from_a_dag_is_a_dag():
    for names in itertools.islice(itertools.permutations("abc"), 2):
        chain = exports.from_dot("digraph { a -> b -> c }", names=names)
        assert is_dag(chain)
        assert cpdag(chain).sum() == 4
