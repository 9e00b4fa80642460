"""Numbers against a known truth: ranking, calibration and distance of posterior edges and sampled graphs.

What is measured is a ``(d, d)`` matrix of scores or probabilities, `GraphSamples`, or anything that has
``edge_probabilities`` (a posterior). The truth is a ``(d, d)`` matrix, true at [i, j] for i -> j; a truth
with column names is brought into the order of the result's names where the result has any.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.metrics import average_precision_score, roc_auc_score

from vcuda.errors import ConfigError
from vcuda.graphs import BoolArray, as_graph, compelled_edges, cpdag, is_dag
from vcuda.posterior.samples import GraphSamples

FloatArray = npt.NDArray[np.float64]


class Calibration(NamedTuple):
    """The calibration curve of edge probabilities in bins of equal width; arrays are ``(bins,)``.

    ``error`` is the expected calibration error, the sum over bins of
    (pairs in the bin / all pairs) * |frequency - probability|, where ``probability`` is the mean of the
    stated probabilities and ``frequency`` the share of true edges. Both are NaN in a bin without pairs, which
    does not count.
    """

    probability: FloatArray
    frequency: FloatArray
    pairs: npt.NDArray[np.int64]
    error: float


def roc_auc(scores: Any, truth: npt.ArrayLike, *, diagonal: bool = False) -> float:
    """The probability that a true edge is scored above a pair without one, ties counted half.

    Ordered pairs i != j count; ``diagonal=True`` counts the d free negatives of the diagonal as well, as the
    paper's tables do. NaN when the truth has no edges, or nothing but edges, since there is nothing to rank.

    Examples
    --------
    >>> roc_auc([[0.0, 0.9], [0.2, 0.0]], [[0, 1], [0, 0]])
    1.0
    """
    values, labels = _cells(scores, truth, diagonal=diagonal)
    return float(roc_auc_score(labels, values)) if labels.any() and not labels.all() else float("nan")


def average_precision(scores: Any, truth: npt.ArrayLike, *, diagonal: bool = False) -> float:
    """The area under the precision-recall steps over ordered pairs; NaN when the truth has no edges.

    ``diagonal`` as in `roc_auc`. Scores that are all the same have the share of true edges as their result.
    """
    values, labels = _cells(scores, truth, diagonal=diagonal)
    return float(average_precision_score(labels, values)) if labels.any() else float("nan")


def skeleton_average_precision(scores: Any, truth: npt.ArrayLike) -> float:
    """The average precision over unordered pairs, each scored by the sum of its two directions.

    In a DAG the two directions exclude each other, so that their sum is the probability of an adjacency. Fair
    to a model that cannot distinguish the members of an equivalence class. NaN when the truth has no edges.
    """
    values, labels = _score_matrix(scores), _truth(truth, scores)
    _same_nodes(len(values), labels)
    one, other = np.triu_indices(len(labels), k=1)
    labels = (labels | labels.T)[one, other]
    values = _finite(values[one, other] + values[other, one])
    return float(average_precision_score(labels, values)) if labels.any() else float("nan")


def brier(probabilities: Any, truth: npt.ArrayLike) -> float:
    """The mean squared difference of edge probability and truth over ordered pairs i != j."""
    values, labels = _cells(probabilities, truth)
    return float(np.mean((_probabilities(values) - labels) ** 2))


def base_rate_brier(truth: npt.ArrayLike) -> float:
    """The Brier score of giving every pair the true share of edges: what the density alone is worth."""
    graph = _truth(truth)
    share = graph.sum() / (graph.size - len(graph))
    return float(share * (1 - share))


def calibration(probabilities: Any, truth: npt.ArrayLike, *, bins: int = 10) -> Calibration:
    """How often edges of a stated probability are true, over ordered pairs i != j, in bins of equal width.

    Examples
    --------
    >>> calibration([[0.0, 0.75], [0.25, 0.0]], [[0, 1], [0, 0]], bins=2).error
    0.25
    """
    if bins < 1:
        raise ConfigError(f"bins must be at least 1, not {bins}")
    values, labels = _cells(probabilities, truth)
    which = np.minimum((_probabilities(values) * bins).astype(np.int64), bins - 1)
    pairs = np.bincount(which, minlength=bins)
    counts = np.where(pairs > 0, pairs, np.nan)
    probability = np.bincount(which, weights=values, minlength=bins) / counts
    frequency = np.bincount(which, weights=labels, minlength=bins) / counts
    error = float(np.nansum(pairs * np.abs(frequency - probability)) / labels.size)
    return Calibration(probability, frequency, pairs, error)


def expected_edges(result: Any) -> float:
    """The expected number of edges: the sum of the edge probabilities over ordered pairs i != j."""
    values = _score_matrix(result)
    return float(_probabilities(_finite(values[~np.eye(len(values), dtype=bool)])).sum())


def expected_shd(samples: GraphSamples, truth: npt.ArrayLike) -> float:
    """The weighted mean over samples of the pairs to correct: missing, extra or reversed, each counted once.

    The empty graph has as many as the truth has edges.
    """
    graph = _true_dag(truth, samples)
    hits = _per_sample(samples, graph[samples.sources, samples.targets])
    reversed_edges = _per_sample(samples, graph[samples.targets, samples.sources])
    distances = samples.edge_counts() + graph.sum() - 2 * hits - reversed_edges
    return float(samples.weights @ distances)


def expected_f1(samples: GraphSamples, truth: npt.ArrayLike) -> float:
    """The weighted mean over samples of F1 = 2 hits / (edges + true edges) of directed edges.

    An empty sample of an empty truth has F1 = 1.
    """
    graph = _true_dag(truth, samples)
    hits = _per_sample(samples, graph[samples.sources, samples.targets])
    total = samples.edge_counts() + graph.sum()
    return float(samples.weights @ np.where(total > 0, 2 * hits / np.maximum(total, 1), 1.0))


def expected_cpdag_shd(samples: GraphSamples, truth: npt.ArrayLike) -> float:
    """The weighted mean distance of equivalence classes: pairs that the two CPDAGs join in different ways.

    A pair can be apart, directed either way or undirected; any difference counts once. Costs about that of
    sorting each sample's edges.
    """
    graph = _true_dag(truth, samples)
    true_class = cpdag(graph)
    distances = np.empty(len(samples))
    for k in range(len(samples)):
        sources, targets = samples.edges(k)
        compelled = compelled_edges(sources, targets, samples.nodes)
        forward, backward = true_class[sources, targets], true_class[targets, sources]
        shared = np.count_nonzero(forward | backward)
        agreeing = np.count_nonzero(forward & (backward != compelled))
        distances[k] = len(sources) + graph.sum() - shared - agreeing
    return float(samples.weights @ distances)


def evaluate(result: Any, truth: npt.ArrayLike, *, samples: int = 1_000, seed: int = 0) -> dict[str, float]:
    """All metrics that fit: ranking always, calibration for probabilities, distances for graphs.

    Parameters
    ----------
    result
        A posterior (``samples`` graphs are drawn from it with ``seed`` for the distances), `GraphSamples`, or
        a ``(d, d)`` matrix of scores, for which the distances are left out. Scores outside 0 to 1 have no
        calibration, no Brier score and no expected number of edges.
    truth
        The true DAG, ``(d, d)``.

    Returns
    -------
    dict
        Names ending in ``_full`` count the diagonal, as the paper's tables do. ``true_edges`` is at the same
        time the structural Hamming distance of the empty graph.
    """
    scores, truth = _score_matrix(result), _truth(truth, result)
    numbers = {
        "auroc": roc_auc(scores, truth),
        "average_precision": average_precision(scores, truth),
        "auroc_full": roc_auc(scores, truth, diagonal=True),
        "average_precision_full": average_precision(scores, truth, diagonal=True),
        "skeleton_average_precision": skeleton_average_precision(scores, truth),
        "true_edges": float(truth.sum()),
    }
    if scores.min() >= 0 and scores.max() <= 1:
        numbers |= {
            "brier": brier(scores, truth),
            "base_rate_brier": base_rate_brier(truth),
            "calibration_error": calibration(scores, truth).error,
            "expected_edges": expected_edges(scores),
        }
    # A data frame of scores has a method `sample` too, of another kind.
    draws = hasattr(result, "sample") and hasattr(result, "edge_probabilities")
    graphs = result.sample(samples, seed=seed) if draws else result
    if isinstance(graphs, GraphSamples):
        numbers |= {
            "expected_shd": expected_shd(graphs, truth),
            "expected_f1": expected_f1(graphs, truth),
            "expected_cpdag_shd": expected_cpdag_shd(graphs, truth),
        }
    return numbers


def _score_matrix(result: Any) -> FloatArray:
    scores = getattr(result, "edge_probabilities", result)
    matrix = np.asarray(scores() if callable(scores) else scores, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ConfigError(f"scores are a square matrix (nodes, nodes), but these have shape {matrix.shape}")
    return matrix


def _truth(truth: Any, result: Any = None) -> BoolArray:
    names = getattr(result, "names", getattr(result, "columns", None))
    if names is not None and isinstance(truth, pd.DataFrame) and not isinstance(truth.columns, pd.RangeIndex):
        differing = set(names) ^ set(truth.columns) | set(names) ^ set(truth.index)
        if differing:
            name = min(map(str, differing))
            raise ConfigError(f"{name!r} is a name of the truth or of the result, but not of both")
        truth = truth.loc[list(names), list(names)]
    graph = as_graph(truth)
    if len(graph) < 2:
        raise ConfigError("a truth of fewer than two nodes has no pair to measure")
    if graph.diagonal().any():
        raise ConfigError(f"the true graph has a self-loop at node {int(np.argmax(graph.diagonal()))}")
    return graph


def _true_dag(truth: npt.ArrayLike, samples: GraphSamples) -> BoolArray:
    if not isinstance(samples, GraphSamples):
        raise ConfigError(
            f"this metric needs sampled graphs (GraphSamples), not {type(samples).__name__}; "
            "a posterior gives them by its method sample"
        )
    graph = _truth(truth, samples)
    _same_nodes(samples.nodes, graph)
    if not is_dag(graph):
        raise ConfigError("the true graph has a directed cycle; distances between DAGs need a true DAG")
    return graph


def _same_nodes(nodes: int, truth: BoolArray) -> None:
    if nodes != len(truth):
        raise ConfigError(f"the result has {nodes} nodes, but the true graph has {len(truth)}")


def _cells(scores: Any, truth: npt.ArrayLike, *, diagonal: bool = False) -> tuple[FloatArray, BoolArray]:
    """Scores and labels of all ordered pairs, flat; with or without the diagonal."""
    values, labels = _score_matrix(scores), _truth(truth, scores)
    _same_nodes(len(values), labels)
    if not diagonal:
        pairs = ~np.eye(len(labels), dtype=bool)
        return _finite(values[pairs]), labels[pairs]
    return _finite(values.ravel()), labels.ravel()


def _finite(values: FloatArray) -> FloatArray:
    if not np.isfinite(values).all():
        raise ConfigError("every pair needs a finite score, but some are NaN or infinite")
    return values


def _probabilities(values: FloatArray) -> FloatArray:
    if values.size and (values.min() < 0 or values.max() > 1):
        raise ConfigError(
            f"edge probabilities lie between 0 and 1, but these reach from {values.min():.4g} "
            f"to {values.max():.4g}; scores of another kind can only be ranked"
        )
    return values


def _per_sample(samples: GraphSamples, marks: BoolArray) -> npt.NDArray[np.int64]:
    """The number of marked edges of each sample, from one mark for each stored edge."""
    running = np.concatenate([[0], np.cumsum(marks)])
    return np.diff(running[samples.offsets])
