"""What the checks look at: some rows of the table, their residuals given one probable graph, and the sure edges."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np

from vcuda.checks.statistics import normal_scores
from vcuda.data.dataset import Dataset
from vcuda.models.prediction import Predictive
from vcuda.posterior.predictions import predictive_of
from vcuda.posterior.samples import GraphSamples

if TYPE_CHECKING:
    from vcuda.infer.edge_prior import EdgePrior
    from vcuda.posterior.posterior import Posterior

# An edge of at least this probability is sure.
SURE = 0.9
# Of a larger table runs of so many neighbouring rows are looked at: what depends on the order shows inside them.
RUN = 100
# Of a wider table those columns are looked at that have the most sure edges.
MOST_COLUMNS = 200
# Graphs that are drawn to choose one.
GRAPHS = 200
# Other sets of parents with this share of the graphs are probable too; so many of them are tried.
OTHERS_SHARE, MOST_OTHERS = 0.1, 3


@dataclass(frozen=True, eq=False)
class Subject:
    """A posterior and the rows of its table that are checked.

    Parameters
    ----------
    names
        Of all columns.
    table
        The table that was fitted, all of its rows.
    rows
        ``(n,)`` the rows that are looked at, in their order.
    runs
        ``(n,)`` which run of neighbouring rows each of them belongs to.
    ordered
        Whether the rows are in the order of the user's table.
    columns
        The columns that are looked at.
    graph
        ``(d, d)`` a probable graph.
    probabilities
        ``(d, d)`` of the edges.
    residuals
        ``(n, d)`` standard normal under the model; zeros for columns that are not looked at. Cells that are missing or
        that an experiment set are drawn: under the model they look like all others.
    predictive, scaled
        What the residuals come from, and the rows in its units.
    held
        ``(n, d)`` cells of these rows that an experiment set.
    drawn
        Graphs of the posterior, to see which others are probable.
    edges
        The prior of the edges.
    deadline
        In seconds of the processor: what is found must not hang on what else the machine has to do.
    """

    names: tuple[str, ...]
    table: Dataset
    rows: np.ndarray
    runs: np.ndarray
    ordered: bool
    columns: tuple[int, ...]
    graph: np.ndarray
    probabilities: np.ndarray
    residuals: np.ndarray
    predictive: Predictive
    scaled: np.ndarray
    held: np.ndarray
    drawn: GraphSamples
    edges: EdgePrior
    seed: int
    deadline: float

    @property
    def n(self) -> int:
        return self.rows.size

    @property
    def late(self) -> bool:
        return time.process_time() > self.deadline

    def rng(self, check: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, 20, check])

    @cached_property
    def scores(self) -> np.ndarray:
        """The columns ``(n, d)`` of the rows on the scale of their ranks."""
        rng, found = self.rng(0), np.zeros((self.n, len(self.names)))
        needed = set(self.columns) | {int(k) for k in np.flatnonzero(self.graph[:, list(self.columns)].any(axis=1))}
        for k in needed:
            found[:, k] = normal_scores(self.table.values[self.rows, k], rng)
        return found

    def parents(self, column: int) -> np.ndarray:
        return np.flatnonzero(self.graph[:, column])

    @cached_property
    def sure(self) -> list[tuple[int, int]]:
        """The edges that the posterior is sure of, the surest first."""
        found = np.argwhere(self.probabilities >= SURE)
        order = np.argsort(-self.probabilities[tuple(found.T)], kind="stable")
        return [(int(i), int(j)) for i, j in found[order]]

    @cached_property
    def joined(self) -> list[tuple[int, int]]:
        """The pairs that are surely joined by an edge, in the likelier direction, the surest first."""
        either = self.probabilities + self.probabilities.T
        found = np.argwhere((either >= SURE) & (self.probabilities >= self.probabilities.T))
        order = np.argsort(-either[tuple(found.T)], kind="stable")
        pairs = {frozenset((int(i), int(j))): (int(i), int(j)) for i, j in found[order]}
        return list(pairs.values())

    def _other_graphs(self, columns: Sequence[int]) -> list[tuple[np.ndarray, np.ndarray]]:
        """Other probable graphs: one for each other set of parents that some columns have together in a share of the
        drawn graphs, the likeliest first."""
        used = tuple(self.parents(column).tobytes() for column in columns)
        counts, graphs = Counter[tuple[bytes, ...]](), dict[tuple[bytes, ...], tuple[float, int]]()
        agreement = _agreement(self.probabilities)
        for k in range(len(self.drawn)):
            sources, targets = self.drawn.edges(k)
            key = tuple(np.sort(sources[targets == column]).astype(np.int64).tobytes() for column in columns)
            counts[key] += 1
            graphs[key] = max(graphs.get(key, (-np.inf, 0)), (float(agreement[sources, targets].sum()), k))
        likely = [key for key, count in counts.most_common(1 + MOST_OTHERS) if count >= OTHERS_SHARE * len(self.drawn)]
        return [self.drawn.edges(graphs[key][1]) for key in likely if key != used]

    def best_other_graphs(self) -> list[np.ndarray]:
        """Of the drawn graphs other than the one used, a few ``(d, d)`` that agree best with the probabilities."""
        agreement, found = _agreement(self.probabilities), dict[bytes, tuple[float, np.ndarray]]()
        for k in range(len(self.drawn)):
            graph = np.zeros_like(self.graph)
            graph[self.drawn.edges(k)] = True
            found[graph.tobytes()] = (float(agreement[graph].sum()), graph)
        found.pop(self.graph.tobytes(), None)
        return [graph for _, graph in sorted(found.values(), key=lambda one: -one[0])[:MOST_OTHERS]]

    def others(self, columns: Sequence[int]) -> list[Callable[[], Subject]]:
        """The same with other probable graphs of some columns, each made when it is called.

        They have residuals of these columns, and of others that they exchange an edge with.
        """
        return [partial(self._with_graph, columns, *edges) for edges in self._other_graphs(columns)]

    def _with_graph(self, columns: Sequence[int], sources: np.ndarray, targets: np.ndarray) -> Subject:
        graph = np.zeros_like(self.graph)
        graph[sources, targets] = True
        changed = (graph != self.graph).any(axis=0)
        joined = (graph | self.graph)[:, list(columns)].any(axis=1) | (graph | self.graph)[list(columns)].any(axis=0)
        used = sorted({*columns, *np.flatnonzero(changed & joined).tolist()} & {*self.columns})
        residuals, rng = self.residuals.copy(), self.rng(8)
        for column in used:
            if changed[column]:
                own = np.flatnonzero(graph[:, column])
                unknown = self._unknown(column, own)
                residuals[:, column] = _residuals(self.predictive, column, own, self.scaled, unknown, rng)
        return replace(self, columns=tuple(used), graph=graph, residuals=residuals)

    def _unknown(self, column: int, parents: np.ndarray) -> np.ndarray:
        """The rows ``(n,)`` whose residual of a column cannot be computed."""
        values = self.table.values[self.rows]
        return np.isnan(values[:, [column, *parents]]).any(axis=1) | self.held[:, column]

    def rows_in_words(self) -> str:
        return f"{self.n:,} rows" if self.n == self.table.n else f"{self.n:,} of {self.table.n:,} rows"


def no_residuals(posterior: Posterior) -> str:
    """Why there are no residuals; empty where there are."""
    predictive = predictive_of(posterior.graph_posterior)
    if predictive is None:
        return "the model predicts no rows, so there are no residuals"
    if not predictive.has_tails:
        return "the model has no distribution function, so there are no residuals"
    return ""


def subject_of(
    posterior: Posterior, table: Dataset, edges: EdgePrior, *, ordered: bool, seed: int, deadline: float
) -> Subject:
    """Choose rows, columns and a graph, and compute the residuals; fewer columns where time is short."""
    predictive = predictive_of(posterior.graph_posterior)
    assert predictive is not None
    rng, started = np.random.default_rng([seed, 20]), time.process_time()
    probabilities = posterior.edge_probabilities.to_numpy()
    drawn = posterior.graph_posterior.sample(rng, posterior.names, GRAPHS)
    graph = _probable_graph(drawn, probabilities)
    rows, runs = _chosen_rows(table.n, predictive.quick_rows)
    values = table.values[rows]
    held = np.zeros(values.shape, dtype=bool) if table.interventions is None else table.interventions[rows]
    missing = np.isnan(values)
    if table.n > predictive.quick_rows:
        complete = ~missing.any(axis=1)
        if complete.sum() >= values.shape[0] // 2:
            predictive = predictive.learned_from(values[complete], held[complete] if held.any() else None)
    # A value that was observed stands where one is missing; no residual is computed with it.
    known = np.where(missing, _first_known(table), values) if missing.any() else values
    scaled = predictive.scaling.apply(known, posterior.names)
    residuals, columns = np.zeros(values.shape), list[int]()
    present = len(posterior.names) if posterior.lagged is None else posterior.lagged.nodes
    for column in _chosen_columns(probabilities[:, :present]):
        # The checks themselves take some of the time.
        if columns and time.process_time() > deadline - 0.3 * (deadline - started):
            break
        parents = np.flatnonzero(graph[:, column])
        unknown = missing[:, [column, *parents]].any(axis=1) | held[:, column]
        residuals[:, column] = _residuals(predictive, column, parents, scaled, unknown, rng)
        columns.append(column)
    return Subject(
        names=posterior.names,
        table=table,
        rows=rows,
        runs=runs,
        ordered=ordered,
        columns=tuple(sorted(columns)),
        graph=graph,
        probabilities=probabilities,
        residuals=residuals,
        predictive=predictive,
        scaled=scaled,
        held=held,
        drawn=drawn,
        edges=edges,
        seed=seed,
        deadline=deadline,
    )


def _residuals(
    predictive: Predictive,
    column: int,
    parents: np.ndarray,
    scaled: np.ndarray,
    unknown: np.ndarray,
    rng: np.random.Generator,
) -> np.ndarray:
    """The residuals ``(n,)`` of a column, drawn where they are ``unknown``."""
    found = predictive.residuals(column, parents, scaled, rng)
    return np.where(unknown, rng.standard_normal(found.size), found)


def _first_known(table: Dataset) -> np.ndarray:
    """The first value of each column ``(d,)`` that is not missing."""
    known = ~np.isnan(table.values)
    return table.values[known.argmax(axis=0), np.arange(table.d)]


def _chosen_rows(total: int, most: int) -> tuple[np.ndarray, np.ndarray]:
    """All rows, or runs of neighbouring ones at equal distances; and the number of the run of each."""
    if total <= most:
        return np.arange(total), np.zeros(total, dtype=np.int64)
    starts = np.linspace(0, total - RUN, most // RUN).astype(np.int64)
    rows = np.unique((starts[:, None] + np.arange(RUN)).reshape(-1))
    return rows, np.concatenate([[0], np.cumsum(np.diff(rows) > 1)])


def _chosen_columns(probabilities: np.ndarray) -> list[int]:
    """The columns with the most sure edges first; of all edges, those into the columns that may be chosen."""
    sure = probabilities >= SURE
    touched = sure.sum(axis=0) + sure.sum(axis=1)[: sure.shape[1]]
    return np.argsort(-touched, kind="stable")[:MOST_COLUMNS].tolist()


def _probable_graph(drawn: GraphSamples, probabilities: np.ndarray) -> np.ndarray:
    """Of some drawn graphs the one that agrees best with the probabilities of joined pairs, then with directions."""
    joined = _agreement(probabilities)
    best, graph = -np.inf, np.zeros(probabilities.shape, dtype=bool)
    for k in range(len(drawn)):
        sources, targets = drawn.edges(k)
        agreement = float(joined[sources, targets].sum())
        if agreement > best:
            best, chosen = agreement, (sources, targets)
    graph[chosen] = True
    return graph


def _agreement(probabilities: np.ndarray) -> np.ndarray:
    """What an edge adds to the agreement of a graph with the probabilities."""
    return np.asarray(probabilities + probabilities.T - 0.5 + 0.1 * probabilities)
