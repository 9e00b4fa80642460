"""Graphs as other libraries hold them: networkx, pgmpy, causal-learn, LiNGAM, ArviZ."""

from __future__ import annotations

import itertools
import json
import math
import warnings
from collections.abc import Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from vcuda.arguments import check_draws
from vcuda.data.kinds import Kind
from vcuda.data.messages import listed, shortened
from vcuda.data.series import parted
from vcuda.errors import ConfigError, DataError, MissingExtraError
from vcuda.models.mixed.prediction import MixedPredictive
from vcuda.outputs.exports.edges import (
    Edge,
    Exportable,
    edge_table,
    listed_edges,
    named_table,
    number,
    single_graph,
    table_of_edges,
)
from vcuda.posterior import Posterior

if TYPE_CHECKING:
    import networkx as nx

TAIL, ARROW = -1, 1
# A table of more probabilities than this is no longer of use in pgmpy.
MOST_PROBABILITIES = 1_000_000
# Where each kind of network is found, the newest place first.
_PGMPY = {
    "dag": (("pgmpy.base", "DAG"),),
    "discrete": (
        ("pgmpy.models", "DiscreteBayesianNetwork"),
        ("pgmpy.models", "BayesianNetwork"),
        ("pgmpy.models", "BayesianModel"),
    ),
    "linear": (("pgmpy.models", "LinearGaussianBayesianNetwork"),),
}


def to_networkx(graph: Exportable, *, minimum: float = 0.0) -> nx.DiGraph:
    """A ``DiGraph`` with all variables as nodes and the ``probability`` of each edge of more than ``minimum`` and 0.

    A posterior usually has edges in both directions, and so cycles; ``posterior.consensus()`` has none. Of a time
    series edges have their ``lag``, and nodes their ``variable`` and ``lag``.
    """
    import networkx as nx

    table = edge_table(graph, minimum=minimum)
    tree: nx.DiGraph = nx.DiGraph()
    tree.add_nodes_from(str(name) for name in table.index)
    tree.add_edges_from((source, target, {"probability": value}) for source, target, value in listed_edges(table))
    lagged = graph.lagged if isinstance(graph, Posterior) else None
    if lagged is not None:
        steps = {name: parted(name, lagged.names) or (name, 0) for name in tree}
        nx.set_node_attributes(tree, {name: {"variable": own, "lag": lag} for name, (own, lag) in steps.items()})
        nx.set_edge_attributes(tree, {edge: steps[edge[0]][1] for edge in tree.edges}, "lag")
    return tree


def to_tigramite(posterior: Posterior, *, minimum: float = 0.5) -> dict[str, Any]:
    """A posterior of a time series as Tigramite's results have it, by name: ``var_names``, ``graph``, ``val_matrix``.

    ``graph[i, j, lag]`` is "-->" where variable i acts on j so many steps later with a probability of at least
    ``minimum``, and "<--" where at lag 0 it is the other way round; ``val_matrix`` holds the probabilities. Plots of
    Tigramite take them: ``plot_graph(**to_tigramite(posterior))``.
    """
    lagged = posterior.lagged
    if lagged is None:
        raise ConfigError("Tigramite's arrays are for time series: fit with lags=, or use to_networkx")
    likely = lagged.by_lag(posterior.edge_probabilities.to_numpy()).transpose(1, 2, 0)
    graph = np.where(likely >= minimum, "-->", "").astype("<U3")
    now = likely[:, :, 0]
    forward = (now >= minimum) & (now >= now.T)
    graph[:, :, 0] = np.where(forward, "-->", np.where(forward.T, "<--", ""))
    return {"var_names": list(lagged.names), "graph": graph, "val_matrix": np.array(likely)}


def from_networkx(graph: nx.DiGraph, *, names: Sequence[str] | None = None) -> pd.DataFrame:
    """The table of edges ``(d, d)`` of a directed graph, by ``str(node)``; edges without a ``probability`` have 1.

    pgmpy's networks are networkx graphs too.
    """
    if not graph.is_directed():
        raise DataError("this networkx graph has no directions: give a DiGraph.")
    found = [str(node) for node in graph]
    if len(set(found)) < len(found):
        raise DataError("two nodes of the networkx graph are written alike, such as 1 and '1': rename one of them.")
    edges = [
        Edge(str(source), str(target), number(1.0 if labels is None else labels, str(source), str(target)))
        for source, target, labels in graph.edges(data="probability")
    ]
    return table_of_edges(edges, found, names)


def to_pgmpy(graph: Exportable, *, kind: Literal["dag", "discrete", "linear"] = "dag") -> Any:
    """One DAG for pgmpy; a posterior gives its consensus.

    ``kind`` is ``"dag"`` (a plain DAG), ``"discrete"`` (a network for categorical tables, whose probabilities its
    ``fit`` learns) or ``"linear"`` (a linear Gaussian network). A posterior of model mixed has the probabilities of its
    labels, yes/no and ordered columns in a discrete network, ready to be asked; with numbers or counts it is a DAG.
    """
    if kind not in _PGMPY:
        raise ConfigError(f"kind must be one of {', '.join(_PGMPY)}, not {kind!r}")
    mixed = _mixed_predictives(graph) if kind != "dag" else []
    if isinstance(graph, Posterior) and mixed:
        _check_one_kind(kind, graph.names, mixed[0].kinds)
    table = single_graph(graph, purpose="pgmpy")
    network = _pgmpy_class(kind)()
    network.add_nodes_from([str(name) for name in table.index])
    network.add_edges_from([edge[:2] for edge in listed_edges(table)])
    if mixed and kind == "discrete":
        from pgmpy.factors.discrete import TabularCPD

        network.add_cpds(*(TabularCPD(**one) for one in _probability_tables(mixed, table)))
    return network


def _mixed_predictives(graph: Exportable) -> list[MixedPredictive]:
    """What a posterior of model mixed predicts by, for each imputed table; nothing for others."""
    if not isinstance(graph, Posterior):
        return []
    members = getattr(graph.graph_posterior, "members", (graph.graph_posterior,))
    every = [getattr(member, "predictive", None) for member in members]
    return [one for one in every if isinstance(one, MixedPredictive)]


def _check_one_kind(kind: str, names: Sequence[str], kinds: Sequence[Kind]) -> None:
    """Refuse columns of which pgmpy's networks have no distribution."""
    taken = ("label", "yes/no", "ordered") if kind == "discrete" else ("number",)
    others = [f"{shortened(name)} ({own})" for name, own in zip(names, kinds, strict=True) if own not in taken]
    if others:
        shown = ", ".join(others[:5]) + (f" and {len(others) - 5} more" if len(others) > 5 else "")
        binned = ", or bin these columns into labels and fit again" if kind == "discrete" else ""
        raise ConfigError(
            f"pgmpy's {kind} networks take columns of kind {', '.join(taken)} only, and this table has {shown}: export "
            f'the graph alone (kind="dag", or to_networkx){binned}'
        )


def _probability_tables(mixed: Sequence[MixedPredictive], table: pd.DataFrame) -> list[dict[str, Any]]:
    """For each column what pgmpy's TabularCPD takes: its probabilities ``(L, c)``, given each of the c combinations of
    its parents' levels, of which that of the last parent changes first; the mean over imputed tables."""
    names, graph = [str(name) for name in table.index], table.to_numpy() > 0
    levels = [own.levels for own in mixed[0].columns]
    words = [[mixed[0].value_words(k, level) for level in own.tolist()] for k, own in enumerate(levels)]
    found = []
    for target, name in enumerate(names):
        parents = np.flatnonzero(graph[:, target])
        sizes = [levels[parent].size for parent in parents]
        combinations = math.prod(sizes)
        if combinations * levels[target].size > MOST_PROBABILITIES:
            raise ConfigError(
                f"column {shortened(name)} has {parents.size} causes with {combinations:,} combinations of values, too "
                'many for a table of probabilities: export the graph alone (kind="dag", or to_networkx)'
            )
        values = np.array(list(itertools.product(*(levels[parent] for parent in parents))), dtype=np.float64)
        shares = np.mean([one.node(target, parents).probabilities(values) for one in mixed], axis=0)
        found.append(
            {
                "variable": name,
                "variable_card": levels[target].size,
                "values": (shares / shares.sum(axis=1, keepdims=True)).T.tolist(),
                "evidence": [names[parent] for parent in parents] or None,
                "evidence_card": sizes,
                "state_names": {names[k]: words[k] for k in (target, *parents.tolist())},
            }
        )
    return found


def _pgmpy_class(kind: str) -> Any:
    from importlib import import_module

    for module, name in _PGMPY[kind]:
        try:
            found = getattr(import_module(module), name)
            found()  # the names of older versions are still there in new ones, and raise when they are used
        except (ImportError, AttributeError):
            continue
        return found
    raise MissingExtraError("pgmpy", "pgmpy", "a network for pgmpy")


def to_causal_learn(graph: Exportable) -> pd.DataFrame:
    """One graph as causal-learn's ``(d, d)`` matrix of endpoint marks: -1 a tail, 1 an arrowhead, 0 no edge.

    The mark at [i, j] is the one at the end of i of the edge between i and j: i -> j is -1 at [i, j] and 1 at [j, i].
    A table with 1 in both directions, such as a CPDAG, gives an edge without direction, two tails. A posterior gives
    its consensus.
    """
    matrix = (table := single_graph(graph, purpose="causal-learn", acyclic=False)).to_numpy().astype(bool)
    marks = np.where(matrix, TAIL, np.where(matrix.T, ARROW, 0))
    return pd.DataFrame(marks, index=list(table.index), columns=list(table.columns))


def from_causal_learn(graph: Any, *, names: Sequence[str] | None = None) -> pd.DataFrame:
    """The table of edges ``(d, d)``, 0 and 1, of causal-learn's graph or matrix of endpoint marks.

    Takes a ``GeneralGraph`` or ``CausalGraph`` with its names, a named table, or an array with ``names``. Edges
    without direction stand in both directions; edges with two arrowheads, or with circles (from FCI), are refused.
    """
    graph = getattr(graph, "G", graph)
    if hasattr(graph, "get_node_names"):
        labels = [str(name) for name in graph.get_node_names()] if names is None else list(names)
        marks = np.asarray(graph.graph)
    else:
        labels, marks = _named_matrix(graph, names, "causal-learn's marks")
    edge = marks != 0
    known = np.isin(marks, (TAIL, 0, ARROW)) & (edge == edge.T) & ~((marks == ARROW) & (marks.T == ARROW))
    if not known.all():
        i, j = np.argwhere(~known)[0]
        raise DataError(
            f"the edge between {shortened(labels[i])} and {shortened(labels[j])} has the marks {marks[i, j]} and "
            f"{marks[j, i]}: expected a tail (-1) and an arrowhead (1), or two tails; hidden causes are not supported."
        )
    return table_of_edges(_edges_of(marks == TAIL, labels), labels)


def to_lingam(graph: Exportable, *, minimum: float = 0.0) -> pd.DataFrame:
    """The ``(d, d)`` table in LiNGAM's direction: the row is the effect and the column the cause.

    It holds probabilities, as ``get_probabilities`` of LiNGAM's bootstrap does.
    """
    table = edge_table(graph, minimum=minimum)
    return pd.DataFrame(table.to_numpy().T.copy(), index=list(table.index), columns=list(table.columns))


def from_lingam(matrix: npt.ArrayLike | pd.DataFrame, *, names: Sequence[str] | None = None) -> pd.DataFrame:
    """LiNGAM's ``adjacency_matrix_``, whose rows are effects, with rows as sources; the weights stay as they are.

    ``from_lingam(weights, names=names) != 0`` is the graph.
    """
    labels, numbers = _named_matrix(matrix, names, "LiNGAM's matrix")
    return named_table(labels, numbers.T)


def _named_matrix(matrix: Any, names: Sequence[str] | None, what: str) -> tuple[list[str], np.ndarray]:
    """A square matrix and its names; those of a table are used where none are given."""
    if isinstance(matrix, pd.DataFrame) and names is None:
        names = [str(name) for name in matrix.columns]
        if [str(name) for name in matrix.index] != names:
            raise DataError(f"{what}: rows and columns must have the same names in the same order.")
    numbers = np.asarray(matrix)
    if names is None:
        raise ConfigError(f"{what} has no names of its own: give names=[...] in the order of its columns")
    if numbers.shape != (len(names), len(names)) or len(set(names)) < len(names):
        raise DataError(
            f"{what} of shape {numbers.shape} does not fit the {len(names)} names {listed(list(names))}: give each "
            "variable one row, one column and one name."
        )
    return list(names), numbers


def _edges_of(graph: np.ndarray, names: Sequence[str]) -> list[Edge]:
    return [Edge(names[i], names[j], 1.0) for i, j in np.argwhere(graph)]


def to_arviz(posterior: Posterior, *, draws: int = 1000, seed: int = 0) -> Any:
    """Drawn graphs, the trace of the fit and its diagnostics for ArviZ: InferenceData, or from ArviZ 1 on a DataTree.

    The group ``posterior`` has ``edge`` (chain, draw, source, target), 0 or 1, and ``edge_count``; ``trace`` has the
    series that the fit recorded, if there are any. The draws are independent of each other, in one chain:
    ArviZ's own measures of convergence say nothing about the engine, whose diagnostics stand in the attributes.
    """
    check_draws(draws)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # ArviZ 0.2x announces its next version when imported
            import arviz
        import xarray
    except ImportError:
        raise MissingExtraError("arviz", "arviz", "InferenceData") from None
    edges = posterior.sample(draws, seed=seed).dense().astype(np.int8)[None]
    names = np.array(posterior.names, dtype=object)
    attributes = {
        "inference_library": "vcuda",
        "inference_library_version": version("vcuda"),
        "sampling_time": float(posterior.provenance["seconds"]),
        "engine": posterior.provenance["engine"]["name"],
        "status": posterior.status.code,
        "status_sentence": posterior.status.sentence,
        "diagnostics": json.dumps(posterior.summary()["diagnostics"], default=_plain),
    }
    drawn = xarray.Dataset(
        {
            "edge": (("chain", "draw", "source", "target"), edges),
            "edge_count": (("chain", "draw"), edges.sum(axis=(2, 3), dtype=np.int64)),
        },
        coords={"chain": [0], "draw": np.arange(draws), "source": names, "target": names},
        attrs=attributes,
    )
    marginals = xarray.Dataset(
        {"edge_probability": (("source", "target"), posterior.edge_probabilities.to_numpy())},
        coords={"source": names, "target": names},
        attrs=attributes,
    )
    trace = xarray.Dataset(
        {
            name: (tuple(f"{name}_dim_{axis}" for axis in range(np.ndim(series))), np.asarray(series))
            for name, series in posterior.trace.items()
        },
        attrs=attributes,
    )
    groups = {"posterior": drawn, "marginals": marginals} | ({"trace": trace} if posterior.trace else {})
    if hasattr(arviz, "InferenceData"):
        return arviz.InferenceData(**groups, attrs=attributes)
    tree = xarray.DataTree.from_dict(groups)
    tree.attrs.update(attributes)
    return tree


def _plain(value: Any) -> Any:
    """What JSON does not know, as lists and numbers, or as text."""
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else str(value)
