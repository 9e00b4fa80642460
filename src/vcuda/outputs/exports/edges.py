"""What all exports share: a table with a number for each edge, from source (row) to target (column), by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from vcuda.data.messages import listed, nearest, shortened
from vcuda.errors import ConfigError, DataError
from vcuda.graphs import is_dag
from vcuda.posterior import GraphSamples, Posterior
from vcuda.summaries.structures import NamedGraph, consensus

Exportable = Posterior | NamedGraph | GraphSamples | pd.DataFrame


class Edge(NamedTuple):
    """One edge by the names of its ends."""

    source: str
    target: str
    probability: float


def edge_table(graph: Exportable, *, minimum: float = 0.0) -> pd.DataFrame:
    """The probabilities of all edges, ``(d, d)``, rows are sources and columns targets; 0 where there is no edge.

    Parameters
    ----------
    graph
        A posterior; one graph of it, such as ``posterior.consensus()``, whose edges keep their probabilities; drawn
        graphs; or a square table with names for rows and columns.
    minimum
        Edges below this probability are left out.
    """
    if not 0 <= minimum <= 1:
        raise ConfigError(f"minimum is a probability between 0 and 1, not {minimum}")
    if isinstance(graph, Posterior):
        table = graph.edge_probabilities
    elif isinstance(graph, NamedGraph):
        # An edge that is in the graph must not vanish because its probability is too small for a number.
        least = np.finfo(np.float64).tiny
        table = named_table(graph.names, np.where(graph.graph, np.maximum(graph.probabilities, least), 0.0))
    elif isinstance(graph, GraphSamples):
        table = named_table(graph.names, graph.edge_probabilities())
    else:
        table = _checked_table(graph)
    return table.where(table >= minimum, 0.0)


def named_table(names: Sequence[str], matrix: np.ndarray) -> pd.DataFrame:
    """A ``(d, d)`` matrix under its names, as ``Posterior.edge_probabilities`` has them."""
    return pd.DataFrame(
        np.array(matrix, dtype=np.float64),
        index=pd.Index(list(names), name="source"),
        columns=pd.Index(list(names), name="target"),
    )


def listed_edges(table: pd.DataFrame) -> list[Edge]:
    """The edges of a table, the surest first."""
    matrix = table.to_numpy()
    sources, targets = np.nonzero(matrix)
    order = np.argsort(-matrix[sources, targets], kind="stable")
    names = [str(name) for name in table.index]
    return [Edge(names[i], names[j], float(matrix[i, j])) for i, j in zip(sources[order], targets[order], strict=True)]


def table_of_edges(edges: Iterable[Edge], found: Iterable[str], names: Sequence[str] | None = None) -> pd.DataFrame:
    """A table from the edges and the names of a file; ``names`` give another order, or more of them."""
    listed_names = list(dict.fromkeys(found)) if names is None else list(names)
    known = {name: k for k, name in enumerate(listed_names)}
    matrix = np.zeros((len(listed_names), len(listed_names)))
    if names is not None:
        _check_unique(listed_names)
        for name in found:
            if name not in known:
                raise DataError(
                    f"the graph has a variable {shortened(name)} that is not among the names given"
                    f"{nearest(name, listed_names)}: they are {listed(listed_names)}."
                )
    for source, target, probability in edges:
        if source == target:
            raise DataError(f"the graph lets {shortened(source)} cause itself: remove that edge.")
        if not 0 <= probability <= 1:
            raise DataError(
                f"the edge from {shortened(source)} to {shortened(target)} has the probability {probability:g}: "
                "expected a number between 0 and 1."
            )
        place = known[source], known[target]
        if matrix[place]:
            raise DataError(
                f"the edge from {shortened(source)} to {shortened(target)} appears twice: keep one of them."
            )
        matrix[place] = probability
    return named_table(listed_names, matrix)


def number(text: Any, source: str, target: str) -> float:
    """The probability of an edge as a file says it."""
    try:
        return float(text)
    except (TypeError, ValueError):
        raise DataError(
            f"the edge from {shortened(source)} to {shortened(target)} has the probability {shortened(text)}: expected "
            "a number between 0 and 1."
        ) from None


def single_graph(graph: Exportable, *, purpose: str, acyclic: bool = True) -> pd.DataFrame:
    """One graph as a table of 0 and 1; a posterior gives its consensus.

    What is no DAG is refused unless ``acyclic`` is False: then an edge in both directions is one without direction, as
    in a CPDAG.
    """
    if isinstance(graph, Posterior):
        graph = consensus(graph)
    if isinstance(graph, NamedGraph):
        return named_table(graph.names, graph.graph)
    if isinstance(graph, GraphSamples):
        if len(graph) > 1:
            raise ConfigError(
                f"{purpose} takes one graph, and there are {len(graph):,}: choose one, such as posterior.consensus()"
            )
        return named_table(graph.names, graph.graph(0))
    table = _checked_table(graph)
    matrix = table.to_numpy()
    if not np.isin(matrix, (0.0, 1.0)).all():
        raise ConfigError(
            f"{purpose} takes one graph, a table of 0 and 1, but there are other probabilities: choose the edges "
            "first, such as posterior.consensus(), or table > 0.5"
        )
    if acyclic and not is_dag(matrix):
        raise ConfigError(f"{purpose} takes a graph without cycles, and this one has a cycle: remove an edge of it")
    return table


def _checked_table(table: Any) -> pd.DataFrame:
    if not isinstance(table, pd.DataFrame):
        raise ConfigError(
            f"a {type(table).__name__} cannot be exported: give a posterior, a graph such as posterior.consensus(), "
            "drawn graphs, or a pandas table with the names as index and columns"
        )
    names = [str(name) for name in table.columns]
    _check_unique(names)
    rows = [str(name) for name in table.index]
    if len(rows) != len(names) or set(rows) != set(names):
        raise ConfigError(
            f"a table of edges has the same names for rows (sources) and columns (targets), but {len(rows)} rows "
            f"begin with {listed(rows[:3])} and {len(names)} columns with {listed(names[:3])}"
        )
    order = {name: k for k, name in enumerate(rows)}
    matrix = table.to_numpy(dtype=np.float64)[[order[name] for name in names]]
    if not ((matrix >= 0) & (matrix <= 1)).all():
        raise ConfigError("a table of edges holds probabilities between 0 and 1, or True and False")
    if matrix.diagonal().any():
        name = names[int(np.flatnonzero(matrix.diagonal())[0])]
        raise ConfigError(f"a table of edges has no edge from {shortened(name)} to itself: put 0 on the diagonal")
    return named_table(names, matrix)


def _check_unique(names: Sequence[str]) -> None:
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise ConfigError(f"each variable has a name of its own, but {listed(repeated)} occurs more than once")
