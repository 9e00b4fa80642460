"""Graphs in the text formats of DAGitty, Tetrad and Bayesian networks (BIF): nodes and edges, read and written.

These formats hold one graph and no probabilities of edges. They may come from somebody else; what cannot be read is
refused with its line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import NamedTuple, NoReturn

from vcuda.data.messages import shortened
from vcuda.errors import ConfigError, DataError

Edge = tuple[str, str]
HIDDEN_CAUSES = "hidden causes cannot be expressed"
# A node with more causes would need millions of lines in a BIF file.
MOST_BIF_CAUSES = 16


class GraphText(NamedTuple):
    """The nodes of a graph in their order, its edges from source to target, and those without a direction."""

    nodes: tuple[str, ...]
    edges: tuple[Edge, ...]
    undirected: tuple[Edge, ...] = ()


# DAGitty --------------------------------------------------------------------------------------------------------

_DAGITTY = re.compile(
    r"""
    (?P<space>\s+|;|,|//[^\n]*|/\*(?:[^*]|\*(?!/))*+(?:\*/|\Z))
  | (?P<quoted>"(?:[^"\\]|\\.)*+")
  | (?P<arrow><->|->|<-|--|[@<]-+[@>]|@?->|<-@?)
  | (?P<sign>[{}\[\]=])
  | (?P<word>[^\s;,{}\[\]="<>@-]+)
    """,
    re.VERBOSE | re.DOTALL,
)
_DAGITTY_START = re.compile(r"\s*(?:dag|pdag|digraph|graph|mag|pag)\b[^{]*\{", re.IGNORECASE)


def read_dagitty(text: str) -> GraphText:
    """The graph of DAGitty's model code, such as ``dag { age -> dose -> {pain sleep} }``."""
    start = _DAGITTY_START.match(text)
    if start is None:
        raise DataError("DAGitty text: expected a text that begins with dag {, and found something else.")
    reader = _DagittyReader(list(_dagitty_tokens(text, start.end())))
    return reader.read()


class _Token(NamedTuple):
    kind: str
    text: str
    line: int


def _dagitty_tokens(text: str, position: int) -> Iterator[_Token]:
    line = text.count("\n", 0, position) + 1
    while position < len(text):
        match = _DAGITTY.match(text, position)
        if match is None:
            found = shortened(text[position : position + 10])
            raise DataError(f"DAGitty text, line {line:,}: cannot read {found}: give names in double quotes.")
        if match.lastgroup != "space":
            yield _Token(str(match.lastgroup), match[0], line)
        line += match[0].count("\n")
        position = match.end()
    yield _Token("end", "the end of the text", line)


class _DagittyReader:
    """Statements: a node, or groups of nodes with arrows between them; attributes are passed over."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens, self._next = tokens, 0
        self._nodes: dict[str, None] = {}
        self._edges: dict[Edge, None] = {}
        self._undirected: dict[Edge, None] = {}

    def read(self) -> GraphText:
        while not self._skip("}"):
            group = self._group()
            if self._skip("="):
                self._name()
                for name in group:
                    self._nodes.pop(name, None)
                continue
            self._attributes()
            while self._tokens[self._next].kind == "arrow":
                arrow = self._tokens[self._next]
                self._next += 1
                following = self._group()
                for first, second in product(group, following):
                    self._add(arrow, first, second)
                self._attributes()
                group = following
        return GraphText(tuple(self._nodes), tuple(self._edges), tuple(self._undirected))

    def _add(self, arrow: _Token, first: str, second: str) -> None:
        if arrow.text == "--":
            self._undirected[first, second] = None
        elif arrow.text in ("->", "<-"):
            self._edges[(first, second) if arrow.text == "->" else (second, first)] = None
        else:
            ends = f"{shortened(first)} {arrow.text} {shortened(second)}"
            raise DataError(
                f"DAGitty text, line {arrow.line:,}: {ends} has another end than an arrow and a tail: {HIDDEN_CAUSES}; "
                "remove the edge."
            )

    def _group(self) -> list[str]:
        if not self._skip("{"):
            names = [self._name()]
        else:
            names = []
            while not self._skip("}"):
                names.append(self._name())
        self._nodes |= dict.fromkeys(names)
        return names

    def _attributes(self) -> None:
        if not self._skip("["):
            return
        while not self._skip("]"):
            if self._tokens[self._next].kind == "end":
                self._refuse("]")
            self._next += 1

    def _name(self) -> str:
        token = self._tokens[self._next]
        if token.kind not in ("quoted", "word"):
            self._refuse("a name")
        self._next += 1
        return re.sub(r"\\(.)", r"\1", token.text[1:-1]) if token.kind == "quoted" else token.text

    def _skip(self, sign: str) -> bool:
        found = self._tokens[self._next][:2] == ("sign", sign)
        self._next += found
        return found

    def _refuse(self, expected: str) -> NoReturn:
        token = self._tokens[self._next]
        raise DataError(f"DAGitty text, line {token.line:,}: expected {expected}, found {shortened(token.text)}.")


def write_dagitty(graph: GraphText) -> str:
    """The graph as model code for DAGitty; names in double quotes."""
    marked = [*((*edge, "->") for edge in graph.edges), *((*edge, "--") for edge in graph.undirected)]
    return write_marked_dagitty(graph.nodes, marked, kind="pdag" if graph.undirected else "dag")


def write_marked_dagitty(nodes: Sequence[str], edges: Sequence[tuple[str, str, str]], *, kind: str = "dag") -> str:
    """A graph whose edges have marks of their own, such as ``<->`` for a hidden cause, as model code for DAGitty."""
    lines = [f"  {_quoted(name)}" for name in nodes]
    lines += [f"  {_quoted(first)} {mark} {_quoted(second)}" for first, second, mark in edges]
    return "\n".join([f"{kind} {{", *lines, "}"]) + "\n"


def _quoted(name: str) -> str:
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


# Tetrad ---------------------------------------------------------------------------------------------------------

_TETRAD_EDGE = re.compile(r"(?:\d+\.\s+)?(\S+)\s+([<o-]-[>o-])\s+(\S+)(?:\s+.*)?")


def read_tetrad_graph(text: str) -> GraphText:
    """A graph that Tetrad saved as text: its nodes after ``Graph Nodes:``, its edges after ``Graph Edges:``."""
    nodes: dict[str, None] = {}
    edges: dict[Edge, None] = {}
    undirected: dict[Edge, None] = {}
    section = ""
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        lowered = stripped.lower()
        if lowered.startswith(("graph nodes:", "graph edges:")):
            section, stripped = lowered[6:11], stripped[12:].strip()
        elif section and lowered.startswith(("graph ", "ambiguous triples")):
            section = "other"  # such as attributes of the graph
        if not stripped or section == "other":
            continue
        if not section:
            raise DataError(f"Tetrad text, line {number:,}: expected Graph Nodes:, found {shortened(stripped)}.")
        if section == "nodes":
            nodes |= dict.fromkeys(name.strip() for name in re.split(r"[;,]|\s", stripped) if name.strip())
            continue
        match = _TETRAD_EDGE.fullmatch(stripped)
        if match is None:
            raise DataError(
                f"Tetrad text, line {number:,}: expected an edge such as 1. A --> B, found {shortened(stripped)}."
            )
        first, mark, second = match.groups()
        for name in (first, second):
            if name not in nodes:
                raise DataError(f"Tetrad text, line {number:,}: {shortened(name)} is none of the nodes: add it.")
        if mark == "---":
            undirected[first, second] = None
        elif mark in ("-->", "<--"):
            edges[(first, second) if mark == "-->" else (second, first)] = None
        else:
            raise DataError(
                f"Tetrad text, line {number:,}: {shortened(first)} {mark} {shortened(second)} has another end than an "
                f"arrow and a tail: {HIDDEN_CAUSES}; remove the edge."
            )
    if not nodes:
        raise DataError("Tetrad text: expected Graph Nodes: and the names of the variables, and found none.")
    return GraphText(tuple(nodes), tuple(edges), tuple(undirected))


def write_tetrad_graph(graph: GraphText) -> str:
    """The graph as Tetrad saves one as text."""
    marked = [*((*edge, "-->") for edge in graph.edges), *((*edge, "---") for edge in graph.undirected)]
    return write_marked_tetrad(graph.nodes, marked)


def write_marked_tetrad(nodes: Sequence[str], edges: Sequence[tuple[str, str, str]]) -> str:
    """A graph whose edges have marks of their own, such as ``o->``, as Tetrad saves one as text."""
    for name in nodes:
        check_tetrad_name(name)
    lines = [f"{number}. {first} {mark} {second}" for number, (first, second, mark) in enumerate(edges, start=1)]
    return "\n".join(["Graph Nodes:", ";".join(nodes), "", "Graph Edges:", *lines]) + "\n"


def check_tetrad_name(name: str) -> None:
    """Refuse a name that Tetrad would cut in pieces."""
    if not name or re.search(r"[\s;,\"]", name) or name.startswith("//"):
        raise ConfigError(
            f"the files of Tetrad cannot hold the name {shortened(name)}, with spaces, commas, semicolons or quotes: "
            "rename the column, or choose another format"
        )


# BIF ------------------------------------------------------------------------------------------------------------

_BIF_NAME = r'(?:"[^"]*"|[^\s|,(){}\[\];"]+)'
_BIF_COMMENT = re.compile(r'("[^"\n]*")|//[^\n]*|/\*(?:[^*]|\*(?!/))*+(?:\*/|\Z)')
_BIF_BLOCK = re.compile(
    rf"""
    \bvariable\s+(?P<variable>{_BIF_NAME})\s*\{{
  | \bprobability\s*\(\s*(?P<child>{_BIF_NAME})\s*(?:\|?\s*(?P<parents>[^)]*))?\)
    """,
    re.VERBOSE,
)


def read_bif(text: str) -> GraphText:
    """The structure of a Bayesian network in the interchange format (BIF); its tables are not read."""
    plain = _BIF_COMMENT.sub(lambda match: match[1] or "\n" * match[0].count("\n"), text)
    nodes: dict[str, None] = {}
    families: list[tuple[int, str, list[str]]] = []
    line, counted = 1, 0
    for match in _BIF_BLOCK.finditer(plain):
        if match["variable"]:
            nodes[match["variable"].strip('"')] = None
        else:
            parents = [name.strip('"') for name in re.findall(_BIF_NAME, match["parents"] or "")]
            line, counted = line + plain.count("\n", counted, match.start()), match.start()
            families.append((line, match["child"].strip('"'), parents))
    if not nodes:
        raise DataError("BIF text: expected blocks that begin with variable, and found none.")
    edges: dict[Edge, None] = {}
    for line, child, parents in families:
        for name in (child, *parents):
            if name not in nodes:
                raise DataError(f"BIF text, line {line:,}: {shortened(name)} is none of the variables: add it.")
        edges |= {(parent, child): None for parent in parents}
    return GraphText(tuple(nodes), tuple(edges))


def write_bif(graph: GraphText) -> str:
    """The structure as a Bayesian network of yes and no; its tables are uniform, and a property says so."""
    if graph.undirected:
        raise ConfigError("a BIF file holds a graph with directions, and this one has edges without: choose one graph")
    causes: dict[str, list[str]] = {name: [] for name in graph.nodes}
    for source, target in graph.edges:
        causes[target].append(source)
    lines = ["network unknown {", '  property "structure only: the tables are uniform, and to be estimated";', "}"]
    for name in graph.nodes:
        lines += [f"variable {_bif_name(name)} {{", "  type discrete [ 2 ] { no, yes };", "}"]
    for name, parents in causes.items():
        if len(parents) > MOST_BIF_CAUSES:
            raise ConfigError(
                f"a BIF file has a line for every combination of causes, and {shortened(name)} has {len(parents)} of "
                "them: choose another format"
            )
        given = f" | {', '.join(map(_bif_name, parents))}" if parents else ""
        lines.append(f"probability ( {_bif_name(name)}{given} ) {{")
        rows = product(("no", "yes"), repeat=len(parents))
        lines += [f"  ({', '.join(row)}) 0.5, 0.5;" for row in rows] if parents else ["  table 0.5, 0.5;"]
        lines.append("}")
    return "\n".join(lines) + "\n"


def _bif_name(name: str) -> str:
    if re.fullmatch(r"[A-Za-z_][\w.-]*", name, flags=re.ASCII):
        return name
    if '"' in name or "\n" in name or "\r" in name or not name:
        raise ConfigError(f"a BIF file cannot hold the name {shortened(name)}: rename the column")
    return f'"{name}"'


# All of them ----------------------------------------------------------------------------------------------------


class GraphFormat(NamedTuple):
    """A text format for one graph, with the endings of its files."""

    endings: tuple[str, ...]
    read: Callable[[str], GraphText]
    write: Callable[[GraphText], str]


GRAPH_FORMATS = {
    "dagitty": GraphFormat((".dagitty",), read_dagitty, write_dagitty),
    "tetrad": GraphFormat((".tetrad", ".txt"), read_tetrad_graph, write_tetrad_graph),
    "bif": GraphFormat((".bif",), read_bif, write_bif),
}
GRAPH_ENDINGS = tuple(ending for known in GRAPH_FORMATS.values() for ending in known.endings)


def graph_format_of(ending: str, text: str = "") -> str | None:
    """The name of the format of a file, by its ending, or by its content where it is called .txt; None if unknown."""
    if ending == ".txt":
        if _DAGITTY_START.match(text):
            return "dagitty"
        return "tetrad" if not text or re.match(r"\s*graph nodes", text, re.IGNORECASE) else None
    return next((name for name, known in GRAPH_FORMATS.items() if ending in known.endings), None)


def oriented(graph: GraphText) -> GraphText:
    """The graph, if all of its edges have a direction."""
    if graph.undirected:
        first, second = graph.undirected[0]
        raise DataError(
            f"the edge between {shortened(first)} and {shortened(second)} has no direction: give it one, or remove it."
        )
    return graph


def edge_list(names: Sequence[str], edges: Sequence[Edge]) -> GraphText:
    """A graph of these edges, in which an edge in both directions has none."""
    every, position = set(edges), {name: k for k, name in enumerate(names)}
    both = {(first, second) for first, second in edges if (second, first) in every}
    undirected = [edge for edge in edges if edge in both and position[edge[0]] < position[edge[1]]]
    return GraphText(tuple(names), tuple(edge for edge in edges if edge not in both), tuple(undirected))
