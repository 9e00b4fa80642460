"""Graphs as text and files that other programs read, each with its way back: CSV, JSON, GraphML, GML and DOT with
probabilities; DAGitty, Tetrad and BIF without."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from vcuda.data.graph_texts import (
    GRAPH_FORMATS,
    GraphText,
    edge_list,
    graph_format_of,
    write_marked_dagitty,
    write_marked_tetrad,
)
from vcuda.data.messages import listed, shortened
from vcuda.data.spreadsheets import as_cell, from_cell
from vcuda.errors import ConfigError, DataError
from vcuda.outputs.exports.dot import from_dot, to_dot
from vcuda.outputs.exports.edges import (
    Edge,
    Exportable,
    edge_table,
    listed_edges,
    number,
    single_graph,
    table_of_edges,
)
from vcuda.outputs.exports.libraries import from_networkx, to_networkx
from vcuda.posterior import Posterior
from vcuda.posterior.mixed_graphs import HiddenCausesPosterior
from vcuda.summaries.structures import NamedGraph, consensus

# What XML 1.0 cannot hold, not even as a number of a character.
_NO_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_EXACT_NAME = "exact_name"


def to_csv(graph: Exportable, *, minimum: float = 0.0) -> str:
    """A line for each edge under source, target, probability; a variable without edges has no line.

    A name that a spreadsheet would take for a formula has an apostrophe in front, which `from_csv` takes away.
    """
    text = io.StringIO(newline="")
    # All names in quotes: a carriage return inside one would otherwise end the line.
    writer = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    writer.writerow(Edge._fields)
    for edge in listed_edges(edge_table(graph, minimum=minimum)):
        writer.writerow((as_cell(edge.source), as_cell(edge.target), edge.probability))
    return text.getvalue()


def from_csv(text: str, *, names: Sequence[str] | None = None) -> pd.DataFrame:
    """The table of edges ``(d, d)`` from lines under source and target; without a probability they have 1.

    ``names`` gives all variables in their order; otherwise they stand as they come in the lines.
    """
    records = list(csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline="")))
    header = [cell.strip().lower() for cell in records[0]] if records else []
    if "source" not in header or "target" not in header:
        found = listed(header) if header else "nothing"
        raise DataError(f"CSV text: expected the columns source and target in the first line, found {found}.")
    source, target = header.index("source"), header.index("target")
    likely = header.index("probability") if "probability" in header else None
    edges: list[Edge] = []
    for line, record in enumerate(records[1:], start=2):
        if not record:
            continue
        if len(record) != len(header):
            raise DataError(
                f"CSV text: record {line:,} has {len(record)} cells where the first line has {len(header)}: give each "
                "column one."
            )
        ends = from_cell(record[source]), from_cell(record[target])
        edges.append(Edge(*ends, 1.0 if likely is None else number(record[likely], *ends)))
    return table_of_edges(edges, [name for edge in edges for name in edge[:2]], names)


def to_json(graph: Exportable, *, minimum: float = 0.0) -> str:
    """Nodes and edges in the form that networkx calls node-link data, and that d3 reads as well."""
    table = edge_table(graph, minimum=minimum)
    content = {
        "directed": True,
        "multigraph": False,
        "graph": {"format": "vcuda graph 1"},
        "nodes": [{"id": str(name)} for name in table.index],
        "edges": [edge._asdict() for edge in listed_edges(table)],
    }
    return json.dumps(content, ensure_ascii=False, indent=1) + "\n"


def from_json(text: str, *, names: Sequence[str] | None = None) -> pd.DataFrame:
    """The table of edges ``(d, d)`` of node-link data; the edges may be called ``links``, as in older files."""
    try:
        content = json.loads(text.removeprefix("\ufeff"))
        nodes = [_as_name(node["id"]) for node in content["nodes"]]
        lines = content["edges"] if "edges" in content else content["links"]
        if not content.get("directed", True):
            raise DataError("JSON text: this graph has no directions; expected one with them.")
        edges = []
        for line in lines:
            ends = _as_name(line["source"]), _as_name(line["target"])
            edges.append(Edge(*ends, number(line.get("probability", 1.0), *ends)))
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise DataError(
            f"JSON text: this is no graph of nodes and edges ({error}): expected an object with nodes, each with an "
            "id, and edges, each with a source and a target."
        ) from error
    known = set(nodes)
    for edge in edges:
        for name in edge[:2]:
            if name not in known:
                raise DataError(f"JSON text: an edge names {shortened(name)}, which is none of the nodes: add it.")
    return table_of_edges(edges, nodes, names)


def to_graphml(graph: Exportable, *, minimum: float = 0.0) -> str:
    """GraphML, as igraph, Gephi, yEd and networkx read it; the id of a node is its name.

    Control characters, which XML does not know, stand spelt out in the id, and the name itself as ``exact_name``.
    """
    import networkx as nx

    tree = to_networkx(graph, minimum=minimum)
    spelt: dict[str, str] = {}
    for name in [name for name in tree if _NO_XML.search(name)]:
        shown = _NO_XML.sub(lambda match: f"\\u{ord(match[0]):04x}", name)
        while shown in tree or shown in spelt.values():
            shown += "_"
        spelt[name] = shown
        tree.nodes[name][_EXACT_NAME] = json.dumps(name)
    buffer = io.BytesIO()
    nx.write_graphml_xml(nx.relabel_nodes(tree, spelt), buffer)
    return buffer.getvalue().decode("utf-8") + "\n"


def from_graphml(text: str, *, names: Sequence[str] | None = None) -> pd.DataFrame:
    """The table of edges ``(d, d)`` of GraphML; nodes are called by their ids, edges without a probability have 1."""
    import networkx as nx

    try:
        tree = nx.read_graphml(io.BytesIO(text.encode("utf-8")))
    except (SyntaxError, ValueError, LookupError, nx.NetworkXException) as error:
        raise DataError(f"GraphML text: it cannot be read ({error}): write the file again.") from error
    exact = {node: json.loads(text) for node, text in tree.nodes(data=_EXACT_NAME) if text is not None}
    return from_networkx(nx.relabel_nodes(tree, exact), names=names)


def to_gml(graph: Exportable, *, minimum: float = 0.0) -> str:
    """GML, which DoWhy and older programs read; letters outside ASCII stand as numbers of characters."""
    import networkx as nx

    return "\n".join(nx.generate_gml(to_networkx(graph, minimum=minimum))) + "\n"


def from_gml(text: str, *, names: Sequence[str] | None = None) -> pd.DataFrame:
    """The table of edges ``(d, d)`` of GML; nodes are called by their labels, edges without a probability have 1."""
    import networkx as nx

    try:
        tree = nx.parse_gml(text, label="id")
    except (ValueError, LookupError, nx.NetworkXException) as error:
        raise DataError(f"GML text: it cannot be read ({error}): write the file again.") from error
    # networkx takes the labels "[]" and "()" for an empty list and an empty tuple.
    labels = {node: str(label) for node, label in tree.nodes(data="label", default=None) if label is not None}
    if len(set(labels.values())) < len(labels):
        raise DataError("GML text: two nodes have the same label: give each a label of its own.")
    return from_networkx(nx.relabel_nodes(tree, labels), names=names)


def _structure(graph: Exportable, minimum: float) -> GraphText:
    """One graph, without the edges below a probability; a posterior gives its consensus."""
    chosen = consensus(graph) if isinstance(graph, Posterior) else graph
    if isinstance(chosen, NamedGraph):
        table = edge_table(chosen, minimum=minimum)
    else:
        table = single_graph(chosen, purpose="a file of one graph", acyclic=False)
    return edge_list([str(name) for name in table.index], [edge[:2] for edge in listed_edges(table)])


def _marked(edges: pd.DataFrame, minimum: float) -> list[tuple[str, str, str]]:
    """The edges of a graph with hidden causes, with their marks."""
    kept = edges[edges.probability >= minimum]
    return list(zip(kept.source, kept.target, kept.edge, strict=True))


def _table(text: str, kind: str, names: Sequence[str] | None) -> pd.DataFrame:
    """The table of edges of a file of one graph; an edge without direction stands in both."""
    graph = GRAPH_FORMATS[kind].read(text.removeprefix("\ufeff"))
    both = [edge for pair in graph.undirected for edge in (pair, pair[::-1])]
    return table_of_edges([Edge(*edge, 1.0) for edge in (*graph.edges, *both)], graph.nodes, names)


def to_dagitty(graph: Exportable, *, minimum: float = 0.0) -> str:
    """Model code for DAGitty (dagitty.net, R); a posterior gives its consensus, and probabilities are left out.

    Of a fit with hidden causes it is the most probable graph, with ``<->`` for a hidden cause.
    """
    if isinstance(graph, HiddenCausesPosterior):
        return write_marked_dagitty(graph.names, _marked(graph.admg(), minimum))
    return GRAPH_FORMATS["dagitty"].write(_structure(graph, minimum))


def from_dagitty(text: str, *, names: Sequence[str] | None = None) -> pd.DataFrame:
    """The table of edges ``(d, d)``, 0 and 1, of DAGitty's model code; edges with two arrowheads are refused."""
    return _table(text, "dagitty", names)


def to_tetrad(graph: Exportable, *, minimum: float = 0.0) -> str:
    """One graph as Tetrad saves it as text; a posterior gives its consensus, and probabilities are left out.

    Of a fit with hidden causes it is the PAG, as FCI has it.
    """
    if isinstance(graph, HiddenCausesPosterior):
        return write_marked_tetrad(graph.names, _marked(graph.pag(), minimum))
    return GRAPH_FORMATS["tetrad"].write(_structure(graph, minimum))


def from_tetrad(text: str, *, names: Sequence[str] | None = None) -> pd.DataFrame:
    """The table of edges ``(d, d)``, 0 and 1, of a graph that Tetrad saved as text; those of FCI are refused."""
    return _table(text, "tetrad", names)


def to_bif(graph: Exportable, *, minimum: float = 0.0) -> str:
    """The structure of one DAG in the interchange format of Bayesian networks; its tables are uniform.

    pgmpy and bnlearn read it, and estimate the tables from data.
    """
    if not isinstance(graph, Posterior | NamedGraph):
        single_graph(graph, purpose="a BIF file")
    return GRAPH_FORMATS["bif"].write(_structure(graph, minimum))


def from_bif(text: str, *, names: Sequence[str] | None = None) -> pd.DataFrame:
    """The table of edges ``(d, d)``, 0 and 1, of the structure of a Bayesian network (BIF)."""
    return _table(text, "bif", names)


class _Format(NamedTuple):
    endings: tuple[str, ...]
    to_text: Callable[..., str]
    from_text: Callable[..., pd.DataFrame]


FORMATS = {
    "csv": _Format((".csv",), to_csv, from_csv),
    "json": _Format((".json",), to_json, from_json),
    "dot": _Format((".dot", ".gv"), to_dot, from_dot),
    "graphml": _Format((".graphml", ".xml"), to_graphml, from_graphml),
    "gml": _Format((".gml",), to_gml, from_gml),
}
# Formats of one graph, without probabilities.
STRUCTURES = {
    "dagitty": _Format(GRAPH_FORMATS["dagitty"].endings, to_dagitty, from_dagitty),
    "tetrad": _Format(GRAPH_FORMATS["tetrad"].endings, to_tetrad, from_tetrad),
    "bif": _Format(GRAPH_FORMATS["bif"].endings, to_bif, from_bif),
}


def write_edges(
    graph: Exportable, path: str | PathLike[str], *, file_format: str | None = None, minimum: float = 0.0
) -> None:
    """Write a posterior, or one graph, to a file: csv, json, dot, graphml or gml; or one graph: dagitty, tetrad, bif.

    Parameters
    ----------
    graph
        A posterior, a graph such as ``posterior.consensus()``, drawn graphs, or a table of edges.
    path
        The file; its ending says the format unless ``file_format`` does.
    minimum
        Edges below this probability are left out.
    """
    text = _format_of(path, file_format).to_text(graph, minimum=minimum)
    try:
        Path(path).write_bytes(text.encode("utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror or error}") from error


def read_edges(
    path: str | PathLike[str], *, file_format: str | None = None, names: Sequence[str] | None = None
) -> pd.DataFrame:
    """The table of edges ``(d, d)`` of a file that this or another program wrote; rows are sources, columns targets.

    ``names`` gives the variables in their order, and those that have no edge in a CSV file.
    """
    known = _format_of(path, file_format)
    try:
        text = Path(path).read_bytes().decode("utf-8")
        if file_format is None and (kind := graph_format_of(Path(path).suffix.lower(), text)) is not None:
            known = STRUCTURES[kind]  # of a .txt the content says which
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: this is no text in UTF-8 ({error}): save it as such.") from error
    try:
        return known.from_text(text, names=names)
    except DataError as error:
        raise DataError(f"{path}: {error}") from error


def _format_of(path: str | PathLike[str], file_format: str | None) -> _Format:
    every = FORMATS | STRUCTURES
    if file_format is not None:
        if file_format not in every:
            raise ConfigError(f"file_format must be one of {', '.join(every)}, not {file_format!r}")
        return every[file_format]
    ending = Path(path).suffix.lower()
    for known in every.values():
        if ending in known.endings:
            return known
    endings = ", ".join(known.endings[0] for known in every.values())
    raise ConfigError(f"{path}: the ending must be one of {endings}; or say file_format")


def _as_name(value: Any) -> str:
    if isinstance(value, dict | list | None):
        raise TypeError("a name is text or a number")
    return str(value)
