"""Tables with a known graph: the bundled ones, each with a card, and graphs in files."""

from __future__ import annotations

import csv
import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path

import numpy as np
import numpy.typing as npt

from vcuda.data.dataset import Dataset
from vcuda.data.formats import unreadable_refused
from vcuda.data.graph_texts import GRAPH_ENDINGS, GRAPH_FORMATS, graph_format_of, oriented
from vcuda.data.knowledge_files import LARGEST_FILE
from vcuda.data.messages import listed, nearest, shortened
from vcuda.data.paths import BUNDLED, existing_file
from vcuda.data.pipes import spooled
from vcuda.data.reading import as_dataset
from vcuda.data.spreadsheets import as_cell, quoting
from vcuda.data.text_files import check_text_size, text_records
from vcuda.errors import ConfigError, DataError

BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Card:
    """Where a bundled table comes from and what may be done with it."""

    name: str
    title: str
    source: str
    licence: str
    citation: str
    sha256: str  # of the (n, d) values as little-endian float64, row after row
    rows: int
    columns: tuple[str, ...]
    note: str
    graph: str = "sachs_graph.csv"  # the file of the graph to compare with
    interventions: str | None = None  # the column that names what an experiment set in each row


@dataclass(frozen=True, eq=False)
class BundledTable:
    """A table that comes with the package, the (d, d) graph to compare with, and its card."""

    dataset: Dataset
    truth: BoolArray
    card: Card


def names() -> tuple[str, ...]:
    """The names of the bundled tables; each can stand where a path is asked for."""
    return BUNDLED


def card(name: str) -> Card:
    """The card of a bundled table, without loading the table."""
    if name not in BUNDLED:
        raise DataError(
            f"there is no bundled table {shortened(name)}{nearest(name, BUNDLED)}: choose {listed(BUNDLED)}."
        )
    fields = json.loads((files("vcuda.data") / "tables" / f"{name}.json").read_text(encoding="utf-8"))
    return Card(name=name, **{**fields, "columns": tuple(fields["columns"])})


@cache
def load(name: str) -> BundledTable:
    """A bundled table with its graph and card, verified against the card's sha256.

    Examples
    --------
    >>> sachs = load("sachs")
    >>> sachs.dataset.n, sachs.dataset.d, int(sachs.truth.sum())
    (853, 11, 17)
    """
    description = card(name)
    folder = files("vcuda.data") / "tables"
    ending = "csv" if (folder / f"{name}.csv").is_file() else "csv.gz"
    with as_file(folder / f"{name}.{ending}") as table, as_file(folder / description.graph) as graph:
        data = replace(as_dataset(table, interventions=description.interventions), source=name)
        truth = read_graph(graph, data.names)
    truth.flags.writeable = False
    sha256 = hashlib.sha256(data.values.astype("<f8", copy=False).data).hexdigest()
    if sha256 != description.sha256 or data.names != description.columns:
        raise DataError(f"{name}: the bundled table is not the one on its card: install vcuda again.")
    return BundledTable(data, truth, description)


def read_graph(path: str | os.PathLike[str], names: Sequence[str]) -> BoolArray:
    """The (d, d) graph of a file, true at [i, j] for i -> j, in the order of the given column names.

    Parameters
    ----------
    path
        A graph of DAGitty (.dagitty), Tetrad (.tetrad, .txt) or a Bayesian network (.bif); or a CSV or TSV file, either
        with the columns source and target (others are ignored) or with a matrix of 0 and 1 under a header of names, row
        i and column j telling whether i -> j, with or without names before the rows; or the name of a bundled table.
    names
        The d column names of the data that the graph is about.
    """
    if isinstance(path, str) and path in BUNDLED:
        table = load(path)
        return _reordered(table.truth, table.dataset.names, names, path)
    file = existing_file(spooled(Path(path)), also_known=BUNDLED)
    if (graph := _from_graph_text(file, names)) is not None:
        _check_acyclic(graph, names, str(file))
        return graph
    check_text_size(file)
    records = list(text_records(file))
    if not records:
        raise DataError(f"{file}: the file is empty: a graph has the columns source and target.")
    header = [cell.strip() for cell in records[0][1]]
    lowered = [cell.lower() for cell in header]
    if "source" in lowered and "target" in lowered:
        if "probability" in lowered and "probability" not in names:
            raise DataError(
                f"{file}: the column 'probability' says that this is a posterior and not a true graph: keep "
                "the edges that you hold true and remove that column."
            )
        graph = _from_edge_list(file, records, lowered.index("source"), lowered.index("target"), names)
    else:
        graph = _from_matrix(file, records, header, names)
    _check_acyclic(graph, names, str(file))
    return graph


def _from_graph_text(file: Path, names: Sequence[str]) -> BoolArray | None:
    """The graph of a file of another program; None where it is none."""
    ending = file.suffix.lower()
    if ending not in GRAPH_ENDINGS or file.stat().st_size > LARGEST_FILE:
        return None
    with unreadable_refused(file):
        text = file.read_bytes().decode("utf-8-sig")
    kind = graph_format_of(ending, text)
    if kind is None:
        return None
    try:
        found = oriented(GRAPH_FORMATS[kind].read(text))
    except DataError as error:
        raise DataError(f"{file}: {error}") from None
    position = {name: k for k, name in enumerate(names)}
    graph = np.zeros((len(names), len(names)), dtype=bool)
    for name in found.nodes:
        if name not in position:
            raise DataError(
                f"{file}: the graph names {shortened(name)}, which is no column of the data{nearest(name, names)}: the "
                f"columns are {listed(names)}."
            )
    for source, target in found.edges:
        graph[position[source], position[target]] = True
    return graph


def write_graph(path: str | os.PathLike[str], graph: npt.ArrayLike, names: Sequence[str]) -> None:
    """Write the edges of a (d, d) graph as a CSV file with the columns source and target."""
    matrix = np.asarray(graph, dtype=bool)
    if matrix.shape != (len(names), len(names)):
        raise ConfigError(f"a graph of shape {matrix.shape} does not fit {len(names)} names.")
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n", quoting=quoting(names))
        writer.writerow(["source", "target"])
        writer.writerows((as_cell(names[i]), as_cell(names[j])) for i, j in np.argwhere(matrix))


def _from_edge_list(
    file: Path, records: list[tuple[int, list[str]]], source: int, target: int, names: Sequence[str]
) -> BoolArray:
    # A name as it is, or as a spreadsheet may show it.
    position = {as_cell(name): k for k, name in enumerate(names)} | {name: k for k, name in enumerate(names)}
    graph = np.zeros((len(names), len(names)), dtype=bool)
    for line, record in records[1:]:
        if len(record) <= max(source, target):
            raise DataError(f"{file}: line {line:,} has no source and target: give both, or remove the line.")
        ends = record[source].strip(), record[target].strip()
        for end in ends:
            if end not in position:
                raise DataError(
                    f"{file}: line {line:,} names {shortened(end)}, which is no column of the data"
                    f"{nearest(end, names)}: the columns are {listed(names)}."
                )
        if ends[0] == ends[1]:
            raise DataError(f"{file}: line {line:,} lets {shortened(ends[0])} cause itself: remove the line.")
        graph[position[ends[0]], position[ends[1]]] = True
    return graph


def _from_matrix(
    file: Path, records: list[tuple[int, list[str]]], header: list[str], names: Sequence[str]
) -> BoolArray:
    body = records[1:]
    labelled = len(header) == len(names) + 1  # names before the rows, under a corner that may say anything
    columns = header[1:] if labelled else header
    if len(columns) != len(names) or not set(columns) & set(names):
        raise DataError(
            f"{file}: this is neither a list of edges nor a matrix for the {len(names)} columns of the data: "
            "give the columns source and target, or a matrix of 0 and 1 under a line with the names of "
            "all columns."
        )
    rows = [record[0].strip() for _, record in body] if labelled else columns
    for found in (columns, rows):
        unknown = [name for name in found if name not in names]
        if unknown:
            raise DataError(
                f"{file}: {shortened(unknown[0])} is no column of the data{nearest(unknown[0], names)}: the "
                f"columns are {listed(names)}."
            )
    if len(body) != len(names) or len(set(rows)) != len(names) or len(set(columns)) != len(names):
        raise DataError(
            f"{file}: the matrix has {len(body)} rows for {len(names)} columns, or a name twice: give each "
            "column of the data one row and one column."
        )
    matrix = np.zeros((len(names), len(names)), dtype=bool)
    for i, (line, record) in enumerate(body):
        cells = record[1:] if labelled else record
        if len(cells) != len(names):
            raise DataError(f"{file}: line {line:,} has {len(cells)} cells for {len(names)} names: give one for each.")
        for j, cell in enumerate(cells):
            if cell.strip() not in {"0", "1", "0.0", "1.0", "False", "True"}:
                raise DataError(
                    f"{file}: line {line:,}, column {shortened(columns[j])} holds {shortened(cell)}: write 1 "
                    "for an edge and 0 for none."
                )
            matrix[i, j] = cell.strip() in {"1", "1.0", "True"}
    by_header = matrix[[rows.index(name) for name in columns]]
    return _reordered(by_header, columns, names, str(file))


def _reordered(graph: BoolArray, given: Sequence[str], names: Sequence[str], source: str) -> BoolArray:
    """The graph, whose nodes are `given`, in the order of `names`; both must be the same set."""
    if set(given) != set(names):
        odd = [name for name in [*names, *given] if (name in names) != (name in given)]
        raise DataError(
            f"{source}: the graph and the data differ in {listed(odd)}: give a graph of the columns {listed(names)}."
        )
    order = [list(given).index(name) for name in names]
    return graph[np.ix_(order, order)]


def _check_acyclic(graph: BoolArray, names: Sequence[str], source: str) -> None:
    loops = np.flatnonzero(graph.diagonal())
    if loops.size:
        raise DataError(f"{source}: {shortened(names[loops[0]])} is its own cause: remove that edge.")
    from scipy.sparse.csgraph import connected_components  # inside, because importing SciPy takes a while

    _, labels = connected_components(graph, directed=True, connection="strong")
    crowded = np.flatnonzero(np.bincount(labels) > 1)
    if not crowded.size:
        return
    members = np.flatnonzero(labels == crowded[0]).tolist()
    raise DataError(
        f"{source}: the edges among {listed([names[k] for k in members])} go round in a cycle: a causal "
        "graph must have none, remove an edge."
    )
