"""Hidden causes: whether a linear model with something hidden describes the table better than any DAG does.

A hidden cause of many columns, or errors of measurement, make all columns depend on each other, so that the best DAG
is dense and sure of edges that are not there. A sparse DAG beside one factor, or below errors, then has fewer
parameters for the same likelihood. This is a comparison of BIC and no test: a DAG with all edges fits every table of
numbers, and other rows would not tell the two apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from vcuda.checks.subject import SURE, Subject
from vcuda.data.messages import listed
from vcuda.graphs import compelled_edges
from vcuda.posterior.predictions import predictive_of

if TYPE_CHECKING:
    from vcuda.posterior.posterior import Posterior

# Fewer columns do not tell errors, or a factor, from edges; the graphs of more take too long to search.
LEAST_COLUMNS, LEAST_COLUMNS_OF_FACTOR, MOST_COLUMNS = 4, 6, 15
LEAST_ROWS, ROWS_A_COLUMN = 100, 10
# A factor has loads on so many columns at least: two columns with a load are one more edge, three are three.
LEAST_LOADS = 4
# Something hidden is found when its BIC is ahead by so many nats: dense graphs look like a factor by less than this.
BETTER = 3.0
# Shares of the variance of every column that may be error. The search ends where the first is so far behind.
SHARES, FAR_BEHIND = (0.1, 0.2, 0.3, 0.4), 50.0
# Searches for a factor from scratch and from the best so far, and the share of edges that each keeps to begin with.
# Those of more columns take longer, by a power of their number, and are fewer.
SCRATCH, SCRATCH_KEEPS, AGAIN, AGAIN_KEEPS = 10, 0.3, 50, 0.4
USUAL_COLUMNS, POWER, FEWEST = 7, 4, 2
# How far loads move between searches.
MOVES = 0.2
# Drawn graphs from which the best DAG is looked for.
DAGS = 10


class Model(NamedTuple):
    """A linear model: its BIC in nats, its graph as masks of parents (bit d for a load), loads, and share of errors."""

    score: float
    parents: np.ndarray
    loads: np.ndarray
    share: float

    @property
    def graph(self) -> np.ndarray:
        """``(d + 1, d + 1)``, the factor last."""
        d = len(self.parents)
        found = np.zeros((d + 1, d + 1), dtype=bool)
        found[:, :d] = (self.parents >> np.arange(d + 1)[:, None]) & 1
        return found

    @property
    def edges(self) -> int:
        """Those between columns."""
        d = len(self.parents)
        return int(self.graph[:d].sum())


class Hidden(NamedTuple):
    """The best model with something hidden, how many nats of BIC it is ahead of the best DAG, and the pairs, surely
    joined, that it or another one that is good enough does not join, or whose sure direction it leaves open."""

    model: Model
    gain: float
    edges_of_dag: int
    doubted: list[tuple[int, int]]

    def words(self, names: tuple[str, ...], named: int) -> str:
        """What the model has, for a sentence."""
        count = self.model.edges or "no"
        edges = f"{count} {'edge' if count == 1 else 'edges'} (instead of {self.edges_of_dag})"
        if self.model.share > 0:
            return f"errors of measurement in every column (about {self.model.share:.0%} of its variance) and {edges}"
        columns = [names[k] for k in np.flatnonzero(self.model.loads)]
        return f"one hidden cause of {listed(columns, named)}, and {edges},"


class Products(NamedTuple):
    """The rows of a table, products ``(d, d)`` of its columns, and whether the model has noise of one size."""

    rows: int
    columns: np.ndarray
    equal_noise: bool


def products_of(posterior: Posterior, subject: Subject) -> Products | None:
    """What a linear model with normal noise was fitted to; None for all other models.

    Tables with experiments are not looked at, and neither are missing values: the products are then of filled cells.
    """
    d, table = len(subject.names), subject.table
    predictive = predictive_of(posterior.graph_posterior)
    if not LEAST_COLUMNS <= d <= MOST_COLUMNS or table.interventions is not None or table.missing is not None:
        return None
    kept = None if predictive is None else predictive.column_products(0)
    if predictive is None or kept is None or kept[0] < max(LEAST_ROWS, ROWS_A_COLUMN * d):
        return None
    return Products(*kept, equal_noise=predictive.shared_parameter() is not None)


def hidden(subject: Subject, products: Products) -> Hidden | None:
    """The best model with something hidden, if it describes the table better and doubts what is sure."""
    rows, scale = products.rows, np.sqrt(np.diag(products.columns))
    correlations, d = products.columns / np.outer(scale, scale), len(scale)
    starts = [np.zeros(d, dtype=np.int64), *(_masks(graph) for graph in _probable_graphs(subject))]
    dag = max((_climbed(correlations, rows, start) for start in starts), key=lambda one: one.score)
    found = [*_errors(correlations, rows, dag, subject), *_factors(correlations, rows, dag, subject)]
    # Their graphs may lead to a better DAG than the posterior found.
    best = max(found, key=lambda one: one.score)
    dag = max(dag, _climbed(correlations, rows, best.parents & ((1 << d) - 1)), key=lambda one: one.score)
    without = dag.score
    if products.equal_noise:
        without = max(without, _of_equal_noise(subject, products.columns / rows, rows))
    least = without + BETTER
    enough = [model for model in found if model.score > least]
    if not enough:
        return None
    # What gave a direction that the best DAG leaves open (knowledge, equal noise) is not in doubt.
    directed = _fixed(dag)[:d, :d] & (subject.probabilities >= SURE)
    asked = [edge for edge in subject.joined if not subject.edges.required[edge]]
    doubted = [edge for edge in asked if any(_doubts(model, edge, directed) for model in enough)]
    return Hidden(best, best.score - without, dag.edges, doubted) if doubted else None


def _climbed(
    correlations: np.ndarray,
    rows: int,
    parents: np.ndarray,
    loads: np.ndarray | None = None,
    share: float = 0.0,
) -> Model:
    """The best model near a graph: with a factor if there are ``loads``, with errors if they have a ``share``."""
    d = len(parents)
    own = np.zeros(d) if loads is None else loads.copy()
    used = parents.copy() if loads is None else parents | (1 << d)
    noise = np.full(d, (1.0 if loads is None else 0.5) - share)
    least = 0 if loads is None else LEAST_LOADS
    # What compiles takes a while to import, and most fits do without.
    from vcuda.checks.latent import climb

    score = climb(correlations, rows, share, least, used, own, np.zeros((d, d)), noise)
    return Model(float(score), used, own, share)


def _factors(correlations: np.ndarray, rows: int, dag: Model, subject: Subject) -> list[Model]:
    """The models with a factor that several searches end with."""
    rng, d, found = subject.rng(9), len(correlations), list[Model]()
    portion = (USUAL_COLUMNS / max(d, USUAL_COLUMNS)) ** POWER
    scratch, again = max(FEWEST, round(SCRATCH * portion)), round(AGAIN * portion)
    best = dag
    if d < LEAST_COLUMNS_OF_FACTOR:
        return found
    for number in range(scratch + again):
        near = number >= scratch
        if near and subject.late:
            break
        start = _thinned(best.parents & ~(1 << d), AGAIN_KEEPS if near else SCRATCH_KEEPS, rng)
        # Every other search keeps the loads, more or less.
        keeps = near and number % 2 == 1
        loads = best.loads + rng.normal(0, MOVES, d) if keeps else _loads_of_residuals(correlations, start)
        found.append(_climbed(correlations, rows, start, loads))
        if found[-1].score > best.score or best is dag:
            best = found[-1]
    return found


def _errors(correlations: np.ndarray, rows: int, dag: Model, subject: Subject) -> list[Model]:
    """The models with errors of measurement, from the DAG and from no edges, the share of errors growing."""
    found, start = list[Model](), dag.parents
    for share in SHARES:
        for parents in (start, np.zeros_like(start)):
            found.append(_climbed(correlations, rows, parents, share=share))
            if subject.late or found[0].score < dag.score - FAR_BEHIND:
                return found
        start = max(found, key=lambda one: one.score).parents
    return found


def _thinned(parents: np.ndarray, keeps: float, rng: np.random.Generator) -> np.ndarray:
    """Some of the edges of a graph."""
    d = len(parents)
    bits = np.int64(1) << np.arange(d)
    return np.asarray(parents & (np.where(rng.random((d, d)) < keeps, bits, 0).sum(axis=1)))


def _loads_of_residuals(correlations: np.ndarray, parents: np.ndarray) -> np.ndarray:
    """What the residuals of a graph have in common: their first principal component."""
    d = len(parents)
    mixing = np.eye(d)
    for j in range(d):
        above = np.flatnonzero((parents[j] >> np.arange(d)) & 1)
        mixing[above, j] = -np.linalg.lstsq(correlations[np.ix_(above, above)], correlations[above, j], rcond=None)[0]
    residuals = mixing.T @ correlations @ mixing
    scale = np.sqrt(np.diag(residuals))
    sizes, directions = np.linalg.eigh(residuals / np.outer(scale, scale))
    return np.asarray(directions[:, -1] * np.sqrt(max(sizes[-1] - 0.5, 0.2)) * scale)


def _probable_graphs(subject: Subject) -> list[np.ndarray]:
    """Some of the drawn graphs ``(d, d)``, each once."""
    found = {subject.graph.tobytes(): subject.graph}
    for k in range(len(subject.drawn)):
        graph = np.zeros_like(subject.graph)
        graph[subject.drawn.edges(k)] = True
        found[graph.tobytes()] = graph
        if len(found) == DAGS:
            break
    return list(found.values())


def _masks(graph: np.ndarray) -> np.ndarray:
    return np.asarray((graph.T.astype(np.int64) << np.arange(len(graph))).sum(axis=1))


def _of_equal_noise(subject: Subject, covariance: np.ndarray, rows: int) -> float:
    """BIC of the best probable graph if all columns have noise of the same size, on the scale of correlations."""
    best, d = -np.inf, len(covariance)
    for graph in _probable_graphs(subject):
        left = 0.0
        for j in range(d):
            above = np.flatnonzero(graph[:, j])
            weights = np.linalg.lstsq(covariance[np.ix_(above, above)], covariance[above, j], rcond=None)[0]
            left += covariance[j, j] - covariance[above, j] @ weights
        log_likelihood = -0.5 * rows * (d * np.log(left / d) + d - np.log(np.diag(covariance)).sum())
        best = max(best, log_likelihood - 0.5 * np.log(rows) * (graph.sum() + 1))
    return float(best)


def _fixed(model: Model) -> np.ndarray:
    """The edges ``(d + 1, d + 1)`` of a model that all equivalent graphs have in the same direction."""
    sources, targets = np.nonzero(model.graph)
    found = np.zeros_like(model.graph)
    found[sources, targets] = compelled_edges(sources, targets, len(model.graph))
    return found


def _doubts(model: Model, edge: tuple[int, int], directed: np.ndarray) -> bool:
    """Whether a model does not join two columns, or leaves an edge open that is ``directed`` ``(d, d)``."""
    i, j = edge
    if not (model.graph[i, j] or model.graph[j, i]):
        return True
    return bool(directed[i, j] and not _fixed(model)[i, j])
