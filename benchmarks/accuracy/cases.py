"""What one line of an accuracy suite is about: a data set, and how it is fitted."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from vcuda.data import library
from vcuda.data.dataset import Dataset
from vcuda.data.simulate import GraphFamily, Mechanism, paper_dataset, simulate

Kind = Literal["fit", "oracle", "rescaling", "calibration"]
Source = Literal["paper", "fresh", "sachs", "prior"]
Columns = Literal["raw", "standardised", "logarithm", "prior units"]


@dataclass(frozen=True)
class Case:
    """One run, in words and numbers that go into its line as they are.

    Parameters
    ----------
    suite
        The suite that it belongs to.
    kind
        ``"fit"``; ``"oracle"``, told the true order; ``"rescaling"``, a fit beside one of the same columns in
        random units; ``"calibration"``, a block of small data sets whose truth is drawn from the prior.
    source
        ``"paper"`` and ``"fresh"`` sets are made by `paper_dataset` and `simulate` with ``index`` as index or
        seed; ``"prior"`` by the model itself; ``"sachs"`` has one table, and ``index`` is the restart.
    columns
        How they are given to the fit; ``"prior units"``: neither standardised nor centred, so that the prior of
        the score is exactly that of the drawn truth.
    engine, model, noise, prior
        As `vcuda.fit` takes them; None is its default. Engine ``"straight-through"`` is the preset ``paper``.
    index
        Of the data set; the seed of the fit as well.
    """

    suite: str
    source: Source
    engine: str
    model: str
    noise: str | None
    kind: Kind = "fit"
    graph: GraphFamily | None = None
    mechanism: Mechanism | None = None
    nodes: int = 10
    edges: int | None = None
    rows: int = 1_000
    columns: Columns = "raw"
    prior: float | None = None
    index: int = 0

    def what(self) -> dict[str, Any]:
        """The part of the line that says what was run."""
        return asdict(self)

    def words(self) -> str:
        """One line for people, and what ``--only`` is looked for in."""
        size = f"d={self.nodes}" + ("" if self.edges is None else f" e={self.edges}") + f" n={self.rows}"
        shown = (self.kind, self.source, self.graph, self.mechanism, size, self.columns, self.engine, self.model)
        return " ".join(str(part) for part in (*shown, self.noise, f"index={self.index}") if part is not None)


class Problem(NamedTuple):
    """A table to learn from and the graph (d, d) that made it.

    ``log_jacobian`` turns the log density of the table into that of the cells before they were standardised or taken
    by their logarithm.
    """

    data: Dataset
    truth: np.ndarray
    log_jacobian: float


def problem(case: Case, folder: Path | None = None) -> Problem:
    """Make the data set of a case; nonlinear ones, which take seconds, are kept in ``folder``."""
    if case.source == "sachs":
        table = library.load("sachs")
        names, values, truth = table.dataset.names, table.dataset.values, table.truth
    else:
        values, truth = _simulated(case, folder)
        names = tuple(f"X{column}" for column in range(1, case.nodes + 1))
    scale, log_jacobian = values.std(axis=0), 0.0
    if case.columns == "standardised":
        values, log_jacobian = (values - values.mean(axis=0)) / scale, -len(values) * float(np.log(scale).sum())
    elif case.columns == "logarithm":
        values, log_jacobian = np.log(values), -float(np.log(values).sum())
    return Problem(Dataset(names=names, values=values, source="benchmark"), truth, log_jacobian)


def in_random_units(values: np.ndarray, seed: int) -> np.ndarray:
    """Multiply every column by its own factor between a thousandth and a thousand."""
    return values * 10.0 ** np.random.default_rng(seed).uniform(-3, 3, values.shape[1])


def _simulated(case: Case, folder: Path | None) -> tuple[np.ndarray, np.ndarray]:
    if case.graph is None or case.mechanism is None or case.edges is None:
        raise ValueError(f"a simulated data set needs a graph, a mechanism and a number of edges: {case}")
    name = f"{case.source}-{case.graph}-{case.mechanism}-{case.nodes}-{case.edges}-{case.rows}-{case.index}.npz"
    keep = folder is not None and case.mechanism == "gp"
    if keep and folder is not None and (folder / name).exists():
        with np.load(folder / name) as stored:
            return stored["values"], stored["truth"]
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
    values, truth = made.train.values, made.graph
    if keep and folder is not None:
        beside = folder / f"{os.getpid()}-{name}"
        np.savez(beside, values=values, truth=truth)
        os.replace(beside, folder / name)  # another process may read at the same time
    return values, truth
