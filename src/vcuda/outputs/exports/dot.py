"""Graphs as Graphviz's DOT text: written for people and programs, and the part of it that graphs need read back."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import pandas as pd

from vcuda.data.messages import shortened
from vcuda.errors import DataError
from vcuda.outputs.exports.edges import Edge, Exportable, edge_table, listed_edges, number, table_of_edges

_TOKENS = re.compile(
    r"""
    (?P<space>^[^\S\n]*\#[^\n]* | [^\S\n]+ | \n | //[^\n]* | /\*.*?\*/)
  | (?P<quoted>"(?:[^"\\]|\\.)*")
  | (?P<arrow>->|--)
  | (?P<sign>[{}\[\];,=:+])
  | (?P<number>-?(?:\.\d+|\d+(?:\.\d*)?))
  | (?P<word>[^\W\d]\w*)
    """,
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
_DEFAULTS = ("node", "edge", "graph")


def to_dot(graph: Exportable, *, minimum: float = 0.0) -> str:
    """The graph as DOT text for Graphviz; lines are wider and labelled by their ``probability``.

    Nodes are named as the variables are. A backslash within a name is written twice, which Graphviz draws as one.
    """
    table = edge_table(graph, minimum=minimum)
    lines = ["digraph {"]
    lines += [f"  {_quoted(str(name))};" for name in table.index]
    for source, target, probability in listed_edges(table):
        shown = f'probability="{probability!r}", label="{probability:.2f}", penwidth={0.5 + 2.5 * probability:.2f}'
        lines.append(f"  {_quoted(source)} -> {_quoted(target)} [{shown}];")
    return "\n".join([*lines, "}"]) + "\n"


def from_dot(text: str, *, names: Sequence[str] | None = None) -> pd.DataFrame:
    """The table of edges ``(d, d)`` of a DOT text; edges without a ``probability`` have 1.

    Nodes, edges and chains of edges with their attributes are read; subgraphs are refused.
    """
    reader = _Reader(text)
    found, edges = reader.read()
    return table_of_edges(edges, found, names)


def _quoted(name: str) -> str:
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _unquoted(text: str) -> str:
    r"""What stands between the quotes: \" is a quote, \\ a backslash, and a backslash ends a line that goes on."""
    return re.sub(r"\\(\n|\\|\")", lambda match: match[1].strip("\n"), text[1:-1])


class _Token(NamedTuple):
    kind: str
    text: str
    line: int


def _tokens(text: str) -> Iterator[_Token]:
    position, line = 0, 1
    while position < len(text):
        match = _TOKENS.match(text, position)
        if match is None:
            what = "a label in HTML" if text[position] == "<" else shortened(text[position : position + 10])
            raise DataError(f"DOT text, line {line:,}: cannot read {what}: give names in double quotes.")
        kind = str(match.lastgroup)
        if kind != "space":
            yield _Token(kind, match[0], line)
        line += match[0].count("\n")
        position = match.end()
    yield _Token("end", "the end of the text", line)


class _Reader:
    """Recursive descent over the statements of one ``digraph { ... }``."""

    def __init__(self, text: str) -> None:
        self._tokens = list(_tokens(text.removeprefix("\ufeff")))
        self._next = 0
        self._found: list[str] = []
        self._edges: list[Edge] = []

    def read(self) -> tuple[list[str], list[Edge]]:
        self._skip_word("strict")
        if self._is_word("graph"):
            raise DataError("DOT text: this is a graph without directions; expected one that begins with digraph.")
        if not self._skip_word("digraph"):
            self._refuse("digraph")
        if self._here.kind != "sign":
            self._name()
        self._expect("{")
        while not self._skip("}"):
            self._statement()
        return self._found, self._edges

    @property
    def _here(self) -> _Token:
        return self._tokens[self._next]

    def _statement(self) -> None:
        if self._skip(";"):
            return
        if self._is_word("subgraph") or self._here[:2] == ("sign", "{"):
            raise DataError(f"DOT text, line {self._here.line:,}: subgraphs are not read: write their edges out.")
        if self._here.kind == "word" and self._here.text.lower() in _DEFAULTS:
            self._next += 1
            self._attributes()
            return
        chain = [self._name()]
        if self._skip("="):
            self._name()
            return
        self._skip_port()
        while self._here.kind == "arrow":
            if self._here.text == "--":
                self._refuse("-> between two names")
            self._next += 1
            chain.append(self._name())
            self._skip_port()
        attributes = self._attributes()
        self._found += chain
        for source, target in pairwise(chain):
            self._edges.append(Edge(source, target, number(attributes.get("probability", 1.0), source, target)))

    def _attributes(self) -> dict[str, str]:
        attributes: dict[str, str] = {}
        while self._skip("["):
            while not self._skip("]"):
                key = self._name()
                attributes[key] = self._name() if self._skip("=") else "true"
                if not self._skip(","):
                    self._skip(";")
        return attributes

    def _name(self) -> str:
        token = self._here
        if token.kind not in ("quoted", "word", "number"):
            self._refuse("a name")
        self._next += 1
        if token.kind != "quoted":
            return token.text
        parts = [token.text]
        while self._skip("+"):
            if self._here.kind != "quoted":
                self._refuse("a text in quotes after +")
            parts.append(self._here.text)
            self._next += 1
        return "".join(map(_unquoted, parts))

    def _skip_port(self) -> None:
        while self._skip(":"):
            self._name()

    def _is_word(self, word: str) -> bool:
        return self._here.kind == "word" and self._here.text.lower() == word

    def _skip_word(self, word: str) -> bool:
        found = self._is_word(word)
        self._next += found
        return found

    def _skip(self, sign: str) -> bool:
        found = self._here[:2] == ("sign", sign)
        self._next += found
        return found

    def _expect(self, sign: str) -> None:
        if not self._skip(sign):
            self._refuse(sign)

    def _refuse(self, expected: str) -> None:
        raise DataError(f"DOT text, line {self._here.line:,}: expected {expected}, found {shortened(self._here.text)}.")
