"""The bundled tables, and graphs in files."""

import hashlib
from importlib.resources import files

import numpy as np
import pytest

from vcuda.data import as_dataset, library, read_graph, write_graph
from vcuda.errors import ConfigError, DataError
from vcuda.graphs import is_dag

NAMES = ("rain", "sprinkler", "wet", "slippery")
EDGES = [("rain", "sprinkler"), ("rain", "wet"), ("sprinkler", "wet"), ("wet", "slippery")]
GRAPH = np.zeros((4, 4), dtype=bool)
for source, target in EDGES:
    GRAPH[NAMES.index(source), NAMES.index(target)] = True


def test_sachs_is_the_published_table():
    table = library.load("sachs")
    assert table.dataset.values.shape == (853, 11)
    digest = hashlib.sha256(table.dataset.values.astype("<f8").tobytes()).hexdigest()
    assert digest == "8b788d2ec161b4fe63c07ea10f9678994439178ca737e57d32807193a1478dbf" == table.card.sha256
    assert " ".join(table.dataset.names) == "Raf Mek Plcg PIP2 PIP3 Erk Akt PKA PKC P38 Jnk"
    assert table.dataset.values[0].tolist() == [
        26.4,
        13.2,
        8.82,
        18.3,
        58.8,
        6.61,
        17.0,
        414.0,
        17.0,
        44.9,
        40.0,
    ]
    assert table.dataset.notes == ()
    assert as_dataset("sachs") is table.dataset


def test_the_consensus_graph_has_its_parents():
    # Parents as the conditional tables of the Bayesian network repository's sachs.bif list them.
    parents = {
        "Akt": {"Erk", "PKA"},
        "Erk": {"Mek", "PKA"},
        "Jnk": {"PKA", "PKC"},
        "Mek": {"PKA", "PKC", "Raf"},
        "P38": {"PKA", "PKC"},
        "PIP2": {"PIP3", "Plcg"},
        "PIP3": {"Plcg"},
        "PKA": {"PKC"},
        "PKC": set(),
        "Plcg": set(),
        "Raf": {"PKA", "PKC"},
    }
    table = library.load("sachs")
    names = np.array(table.dataset.names)
    assert {name: set(names[table.truth[:, k]]) for k, name in enumerate(names)} == parents
    assert table.truth.sum() == 17
    assert is_dag(table.truth)
    with pytest.raises(ValueError, match="read-only"):
        table.truth[0, 0] = True


def test_the_experiments_of_sachs_are_the_same_cells_and_more():
    table, cells = library.load("sachs-experiments"), library.load("sachs").dataset
    data = table.dataset
    assert data.values.shape == (7466, 11)
    np.testing.assert_array_equal(data.values[:853], cells.values)
    counts = dict(zip(data.names, data.interventions.sum(axis=0).tolist(), strict=True))
    assert {name: count for name, count in counts.items() if count} == {
        "Mek": 799,
        "PIP2": 810,
        "PIP3": 848,
        "Akt": 911,
        "PKA": 707,
        "PKC": 723 + 913,
    }
    assert not data.interventions[: 853 + 902].any()
    assert as_dataset("sachs-experiments", interventions="target") is data
    with pytest.raises(ConfigError, match="has no column 'dose' of texts any more"):
        as_dataset("sachs-experiments", interventions="dose")


def test_cards_are_complete():
    for name in library.names():
        card, table = library.card(name), library.load(name)
        assert (card.rows, card.columns) == (table.dataset.n, table.dataset.names)
        assert all([card.title, card.source, card.licence, card.citation, card.note])
    sachs = library.card("sachs")
    assert "Copyright (c) 2018 Diviyan Kalainathan" in sachs.licence
    assert "Permission is hereby granted" in (files("vcuda.data") / "tables" / "sachs_licence.txt").read_text()
    assert "consensus" in sachs.note
    assert "not the truth" in sachs.note


def test_unknown_bundled_names_are_refused():
    with pytest.raises(DataError, match=r"did you mean 'sachs'\?\): choose 'sachs'"):
        library.load("sach")


def test_a_damaged_table_is_refused(tmp_path, monkeypatch):
    folder = files("vcuda.data") / "tables"
    (tmp_path / "tables").mkdir()
    for name in ("sachs.csv", "sachs_graph.csv", "sachs.json"):
        text = (folder / name).read_text(encoding="utf-8")
        (tmp_path / "tables" / name).write_text(text.replace("26.4,13.2", "26.4,13.3"), encoding="utf-8")
    monkeypatch.setattr(library, "files", lambda package: tmp_path)
    with pytest.raises(DataError, match="not the one on its card: install vcuda again"):
        library.load.__wrapped__("sachs")


def test_graphs_survive_a_file(tmp_path):
    path = tmp_path / "graph.csv"
    write_graph(path, GRAPH, NAMES)
    assert path.read_text().splitlines()[:2] == ["source,target", "rain,sprinkler"]
    np.testing.assert_array_equal(read_graph(path, NAMES), GRAPH)
    order = [2, 0, 3, 1]
    np.testing.assert_array_equal(read_graph(path, [NAMES[k] for k in order]), GRAPH[np.ix_(order, order)])
    write_graph(path, np.zeros((4, 4)), NAMES)
    assert not read_graph(path, NAMES).any()
    with pytest.raises(ConfigError, match="does not fit 3 names"):
        write_graph(path, GRAPH, NAMES[:3])


def test_other_columns_spaces_and_separators_are_borne(tmp_path):
    path = tmp_path / "graph.csv"
    path.write_text("why;Target;Source\n" + "".join(f"x; {t};{s} \n" for s, t in EDGES))
    np.testing.assert_array_equal(read_graph(path, NAMES), GRAPH)


@pytest.mark.parametrize("corner", [None, "", "name"])
@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 1, 0, 2]])
def test_matrices_are_read_in_any_order(tmp_path, corner, order):
    names = [NAMES[k] for k in order]
    matrix = GRAPH[np.ix_(order, order)].astype(int)
    rows = [",".join(map(str, row)) for row in matrix]
    header = ",".join(names)
    if corner is not None:
        header = f"{corner},{header}"
        # With names before them the rows may have an order of their own.
        rows = [f"{name},{row}" for name, row in zip(names, rows, strict=True)][::-1]
    path = tmp_path / "graph.csv"
    path.write_text("\n".join([header, *rows]))
    np.testing.assert_array_equal(read_graph(path, NAMES), GRAPH)


def test_the_graph_of_a_bundled_table_is_read_by_name():
    table = library.load("sachs")
    backwards = table.dataset.names[::-1]
    np.testing.assert_array_equal(read_graph("sachs", backwards), table.truth[::-1, ::-1])
    with pytest.raises(DataError, match="differ in 'rain'"):
        read_graph("sachs", [*table.dataset.names[:-1], "rain"])


MATRIX_HEADER = "rain,sprinkler,wet,slippery\n"
BAD_GRAPHS = {
    "unknown name": ("source,target\nrain,wett\n", ("line 2", "'wett'", "did you mean 'wet'?")),
    "a cycle": ("source,target\nwet,slippery\nrain,wet\nslippery,wet\n", ("'wet' and 'slippery'", "cycle")),
    "a self-loop": ("source,target\nrain,rain\n", ("line 2", "'rain' cause itself", "remove the line")),
    "a posterior": ("source,target,probability\nrain,wet,0.9\n", ("'probability'", "posterior", "remove")),
    "half an edge": ("source,target\nrain\n", ("line 2", "give both")),
    "empty": ("", ("empty", "source and target")),
    "something else": ("from,to\nrain,wet\n", ("neither a list of edges nor a matrix", "source and target")),
    "matrix with an unknown name": (
        "rain,sprinkle,wet,slippery\n" + "0,0,0,0\n" * 4,
        ("'sprinkle'", "did you mean 'sprinkler'?"),
    ),
    "matrix with a name twice": ("rain,rain,wet,slippery\n" + "0,0,0,0\n" * 4, ("a name twice",)),
    "matrix too short": (MATRIX_HEADER + "0,0,0,0\n" * 3, ("3 rows for 4 columns",)),
    "matrix with a short row": (
        MATRIX_HEADER + "0,0,0,0\n0,0,0\n" + "0,0,0,0\n" * 2,
        ("line 3 has 3 cells",),
    ),
    "matrix of weights": (
        MATRIX_HEADER + "0,0.7,0,0\n" + "0,0,0,0\n" * 3,
        ("line 2, column 'sprinkler'", "'0.7'", "1 for an edge"),
    ),
    "matrix with a cycle": (
        MATRIX_HEADER + "0,1,0,0\n1,0,0,0\n" + "0,0,0,0\n" * 2,
        ("'rain' and 'sprinkler'",),
    ),
    "matrix with a self-loop": (
        MATRIX_HEADER + "0,0,0,0\n" * 3 + "0,0,0,1\n",
        ("'slippery' is its own cause",),
    ),
}


@pytest.mark.parametrize("name", BAD_GRAPHS)
def test_bad_graphs_are_refused_in_one_sentence(name, tmp_path):
    text, fragments = BAD_GRAPHS[name]
    path = tmp_path / "graph.csv"
    path.write_text(text)
    with pytest.raises(DataError) as caught:
        read_graph(path, NAMES)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    for fragment in fragments:
        assert fragment in message


def test_a_missing_graph_is_refused_with_the_nearest_name(tmp_path):
    (tmp_path / "graph.csv").write_text("source,target\n")
    with pytest.raises(DataError, match=r"did you mean 'graph\.csv'"):
        read_graph(tmp_path / "grahp.csv", NAMES)
