"""The data sets of the benchmarks: tables to learn from and to test on, with the graph that made them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

import numpy as np

from vcuda.data import library
from vcuda.data.dataset import Dataset
from vcuda.data.paper_tables import paper_dataset
from vcuda.data.simulate import GraphFamily, Mechanism, simulate

Source = Literal["paper", "fresh", "sachs", "prior"]
Columns = Literal["raw", "standardised", "logarithm", "prior units"]


class DataSet(Protocol):
    """What names a data set: ``paper`` and ``fresh`` ones are made by `paper_dataset` and `simulate` with ``index``."""

    @property
    def source(self) -> Source: ...
    @property
    def graph(self) -> GraphFamily | None: ...
    @property
    def mechanism(self) -> Mechanism | None: ...
    @property
    def nodes(self) -> int: ...
    @property
    def edges(self) -> int | None: ...
    @property
    def rows(self) -> int: ...
    @property
    def columns(self) -> Columns: ...
    @property
    def index(self) -> int: ...


class Problem(NamedTuple):
    """A table to learn from, the graph (d, d) that made it, and fresh rows of the same functions where there are any.

    ``log_jacobian`` turns the log density of the table into that of the cells before they were standardised or taken
    by their logarithm. Fresh rows are standardised by the means and scales of the others.
    """

    data: Dataset
    truth: np.ndarray
    log_jacobian: float
    fresh: Dataset | None


def problem(case: DataSet, folder: Path | None = None) -> Problem:
    """Make the data set of a case; nonlinear ones, which take seconds, are kept in ``folder``."""
    fresh: np.ndarray | None
    if case.source == "sachs":
        table = library.load("sachs")
        names, values, fresh, truth = table.dataset.names, table.dataset.values, None, table.truth
    else:
        values, fresh, truth = _simulated(case, folder)
        names = tuple(f"X{column}" for column in range(1, case.nodes + 1))
    mean, scale, log_jacobian = values.mean(axis=0), values.std(axis=0), 0.0
    if case.columns == "standardised":
        values, log_jacobian = (values - mean) / scale, -len(values) * float(np.log(scale).sum())
        fresh = None if fresh is None else (fresh - mean) / scale
    elif case.columns == "logarithm":
        values, log_jacobian = np.log(values), -float(np.log(values).sum())
        fresh = None if fresh is None else np.log(fresh)

    def named(cells: np.ndarray) -> Dataset:
        return Dataset(names=names, values=cells, source="benchmark")

    return Problem(named(values), truth, log_jacobian, None if fresh is None else named(fresh))


def _simulated(case: DataSet, folder: Path | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows to learn from, rows to test on, and the graph."""
    if case.graph is None or case.mechanism is None or case.edges is None:
        raise ValueError(f"a simulated data set needs a graph, a mechanism and a number of edges: {case}")
    name = f"{case.source}-{case.graph}-{case.mechanism}-{case.nodes}-{case.edges}-{case.rows}-{case.index}.npz"
    keep = folder is not None and case.mechanism == "gp"
    if keep and folder is not None and (folder / name).exists():
        with np.load(folder / name) as stored:
            return stored["values"], stored["fresh"], stored["truth"]
    if case.source == "paper":
        made = paper_dataset(case.graph, nodes=case.nodes, edges=case.edges, mechanism=case.mechanism, index=case.index)
    else:
        made = simulate(
            case.graph,
            nodes=case.nodes,
            edges=case.edges,
            mechanism=case.mechanism,
            rows=case.rows,
            seed=case.index,
        )
    values, fresh, truth = made.train.values, made.test.values, made.graph
    if keep and folder is not None:
        beside = folder / f"{os.getpid()}-{name}"
        np.savez(beside, values=values, fresh=fresh, truth=truth)
        os.replace(beside, folder / name)  # another process may read at the same time
    return values, fresh, truth
