"""Toggles against differences of scores: the same numbers, for edges that are there and edges that are not."""

import jax
import numpy as np
import pytest

from vcuda.errors import ConfigError
from vcuda.infer.compilation import use_compilation_cache
from vcuda.infer.variational.edge_gains import Regressions, Tiers, Toggled, regressions_of, toggle_graphs
from vcuda.infer.variational.parts import precision_of
from vcuda.models.additive import AdditiveBasis
from vcuda.models.gaussian_process import GaussianProcess
from vcuda.models.linear import BGe, EqualNoise, SharedNoise
from vcuda.models.protocol import LocalScore

NODES = 7
_toggle = jax.jit(toggle_graphs, static_argnames="tiers")


def table() -> np.ndarray:
    rng = np.random.default_rng(3)
    return rng.normal(size=(150, NODES)) @ rng.normal(size=(NODES, NODES))


def dags() -> np.ndarray:
    """An empty, a full and a random DAG, with their nodes in no particular order."""
    rng = np.random.default_rng(4)
    full = np.triu(np.ones((NODES, NODES), dtype=bool), 1)
    shuffled = rng.permutation(NODES)
    graphs = np.stack([np.zeros_like(full), full, full & (rng.random(full.shape) < 0.5)])
    return graphs[:, shuffled][:, :, shuffled]


def toggle(problem: Regressions, graphs: np.ndarray, tiers: Tiers, variance: float) -> tuple[Toggled, np.ndarray]:
    use_compilation_cache()
    dtype = problem.squares.dtype
    with precision_of(dtype):
        importance = np.linspace(0.0, 1.0, graphs.size).reshape(graphs.shape).astype(dtype)
        found = _toggle(problem, graphs, importance, np.full(len(graphs), variance, dtype), tiers=tiers)
        return jax.device_get(found)


def by_scores(score: LocalScore, graph: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    gains = np.zeros((NODES, NODES))
    parents = [set(np.flatnonzero(graph[:, j]).tolist()) for j in range(NODES)]
    for i, j in zip(*np.nonzero(~np.eye(NODES, dtype=bool)), strict=True):
        gains[i, j] = score.score(j, sorted(parents[j] | {i})) - score.score(j, sorted(parents[j] - {i}))
    return np.array([score.score(j, sorted(parents[j])) for j in range(NODES)]), gains


# Double precision leaves 1e-16 of scores of hundreds of nats, times the condition of the Gram matrix, some 1e4; single
# precision 1e-7 of them, and Gram matrices of standardised features have conditions of about 1e3.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("spec", "variance", "tolerance"),
    [
        (EqualNoise(variance=1.7), 1.7, 1e-8),
        (EqualNoise(), 1.3, 1e-8),
        (BGe(), 1.0, 1e-8),
        (AdditiveBasis(), 1.0, 2e-3),
    ],
    ids=["equal", "shared", "bge", "additive"],
)
def test_edge_gains_are_differences_of_scores(spec, variance, tolerance):
    prepared = spec.prepare(table())
    score = prepared.at(variance) if isinstance(prepared, SharedNoise) else prepared
    graphs = dags()
    found, left_out = toggle(regressions_of(prepared), graphs, Tiers(0, NODES - 1, NODES), variance)
    assert not left_out.any()
    off_diagonal = ~np.eye(NODES, dtype=bool)
    for k, graph in enumerate(graphs):
        scores, gains = by_scores(score, graph)
        np.testing.assert_allclose(found.score[k], scores, atol=tolerance, rtol=0)
        np.testing.assert_allclose(found.gains[k][off_diagonal], gains[off_diagonal], atol=tolerance, rtol=0)


@pytest.mark.slow
def test_the_least_important_parents_are_left_out():
    prepared = EqualNoise(variance=1.0).prepare(table())
    graph = dags()[1]
    importance = np.linspace(0.0, 1.0, graph.size).reshape(graph.shape)
    found, left_out = toggle(regressions_of(prepared), graph[None], Tiers(2, 4, 3), 1.0)
    sizes = graph.sum(axis=0)
    wide = np.argsort(-sizes, kind="stable")[:3]
    most = np.full(NODES, 2)
    most[wide] = 4
    np.testing.assert_array_equal(left_out[0], np.maximum(sizes - most, 0))
    for j in range(NODES):
        parents = np.flatnonzero(graph[:, j])
        kept = parents[np.argsort(-importance[parents, j])[: most[j]]]
        assert found.score[0, j] == pytest.approx(prepared.score(j, kept.tolist()), abs=1e-8)


@pytest.mark.slow
def test_expected_squares_lead_to_the_mode_of_the_noise_variance():
    shared = EqualNoise().prepare(table())
    graph = dags()[2]
    problem = regressions_of(shared)
    variance = 1.0
    for _ in range(200):
        squares = toggle(problem, graph[None], Tiers(0, NODES - 1, NODES), variance)[0].squares
        variance = (shared.scale + 0.5 * squares.sum()) / (shared.shape + 1 + 0.5 * shared.rows * NODES)

    def height(log_variance: float) -> float:
        score = shared.at(np.exp(log_variance))
        fit = sum(score.score(j, np.flatnonzero(graph[:, j]).tolist()) for j in range(NODES))
        return fit + shared.log_prior(np.exp(log_variance))

    here, step = np.log(variance), 1e-3
    slope = (height(here + step) - height(here - step)) / (2 * step)
    # The curvature is about n d / 2 = 500, so a slope of .01 is a relative distance of 2e-5 from the mode.
    assert abs(slope) < 0.01


def test_scores_that_are_no_regressions_are_refused():
    with pytest.raises(ConfigError, match="linear and additive"):
        regressions_of(GaussianProcess().prepare(table()))
