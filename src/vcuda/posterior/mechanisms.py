"""Causal models drawn from a posterior: a DAG, and for each of its nodes a function of its parents and noise.

Weights and noise are drawn from the posterior that goes with the score's own prior, so that what they say of effects
is as sure as the score is, no more and no less. Everything here is in the units of the score.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from scipy.special import logsumexp

from vcuda.errors import ConfigError
from vcuda.models.integrated_noise import NoiseIntegrated
from vcuda.posterior.categorical import CategoricalPredictive
from vcuda.posterior.graph_posterior import Scaling
from vcuda.posterior.predictive import (
    AdditivePredictive,
    GaussianProcessPredictive,
    LinearPredictive,
    Predictive,
    kernel_design,
    kernel_pivots,
)
from vcuda.posterior.predictives import InterventionalPredictive
from vcuda.posterior.samples import GraphSamples

# Features of a Gaussian process that a function is drawn with, at most: their cube is what a set of parents costs.
MOST_FEATURES = 400
# A shared noise variance of more cells than this is known within half a per cent, and is not drawn.
CELLS_THAT_TELL_THE_NOISE = 100_000


class Mechanism(NamedTuple):
    """One node as drawn: ``function`` of its parents ``(n, k)`` plus normal noise of standard deviation ``noise``.

    A linear function also tells its ``slopes`` ``(k,)`` and its ``intercept``.
    """

    function: Callable[[np.ndarray], np.ndarray]
    noise: float
    slopes: np.ndarray | None = None
    intercept: float = 0.0

    @classmethod
    def linear(cls, slopes: np.ndarray, intercept: float, noise: float) -> Mechanism:
        return cls(lambda inputs: inputs @ slopes + intercept, noise, slopes, intercept)


@dataclass(frozen=True, eq=False)
class CausalModel:
    """One draw of everything: a DAG as edge lists, and a mechanism for each node that is asked for.

    ``mechanism(node, parents)`` draws anew at every call; ask once for each node. ``scaling`` leads from the user's
    units to those of the mechanisms.
    """

    sources: np.ndarray
    targets: np.ndarray
    scaling: Scaling
    mechanism: Callable[[int, np.ndarray], Mechanism]

    def parents(self, node: int) -> np.ndarray:
        return _parents(self.sources, self.targets, node)


def _parents(sources: np.ndarray, targets: np.ndarray, node: int) -> np.ndarray:
    return np.sort(sources[targets == node]).astype(np.int64)


class NodePosterior(Protocol):
    """What the table says of one node given its parents; ``variance`` is that of the noise where all nodes share it."""

    def draw(self, rng: np.random.Generator, variance: float | None) -> Mechanism: ...


@dataclass(frozen=True, eq=False)
class LinearNode:
    """Weights given the noise variance v are N((S + r)^-1 s, v (S + r)^-1), S and s products with the parents.

    S is kept as eigenvalues ``(k,)`` and ``rotation`` ``(k, k)``, so that any ridge r costs O(k²). Under a shared noise
    the ridge is v over the ``weight_variance``; otherwise v is inverse gamma with ``freedom`` / 2 and half the
    residual, and r is ``ridge``.
    """

    eigenvalues: np.ndarray
    rotation: np.ndarray
    products: np.ndarray
    square: float
    rows: int
    mean_rows: float
    ridge: float
    weight_variance: float | None
    freedom: float

    @classmethod
    def of(cls, predictive: LinearPredictive, target: int, parents: np.ndarray) -> LinearNode:
        gram = predictive.gram
        eigenvalues, rotation = np.linalg.eigh(gram[np.ix_(parents, parents)])
        variance = predictive.variance
        return cls(
            eigenvalues=np.maximum(eigenvalues, 0.0),
            rotation=rotation,
            products=rotation.T @ gram[parents, target],
            square=float(gram[target, target]),
            rows=predictive.rows,
            mean_rows=predictive.mean_rows,
            ridge=predictive.ridge,
            weight_variance=None if variance is None else variance / predictive.ridge,
            freedom=predictive.rows + predictive.excess + len(parents) + 1,
        )

    def draw(self, rng: np.random.Generator, variance: float | None) -> Mechanism:
        ridge = self.ridge if variance is None or self.weight_variance is None else variance / self.weight_variance
        inverse = 1.0 / (self.eigenvalues + ridge)
        if variance is None:
            residual = self.square + ridge - float(self.products @ (inverse * self.products))
            variance = 0.5 * residual / rng.gamma(0.5 * self.freedom)
        spread = np.sqrt(variance * inverse) * rng.standard_normal(len(inverse))
        intercept = np.sqrt(variance / (self.rows + self.mean_rows)) * rng.standard_normal()
        return Mechanism.linear(
            self.rotation @ (inverse * self.products + spread), float(intercept), float(np.sqrt(variance))
        )

    def log_evidence(self, variances: np.ndarray) -> np.ndarray:
        """Of the column under each shared noise variance ``(v,)``, apart from what does not depend on it."""
        assert self.weight_variance is not None
        ridges = variances / self.weight_variance
        shifted = self.eigenvalues[:, None] + ridges
        residual = self.square - (self.products[:, None] ** 2 / shifted).sum(axis=0)
        log_det = (np.log(shifted) - np.log(ridges)).sum(axis=0)
        return -0.5 * (residual / variances + log_det + self.rows * np.log(variances))


class Regression(NamedTuple):
    """Weights of m features under one amplitude: normal around ``L^-T u`` with covariance v (L L')^-1.

    ``factor`` L is ``(m, m)``, ``whitened`` u ``(m,)``; residual and log determinant are those of the fitted values.
    ``design`` gives the features ``(n, m)`` of new parents ``(n, k)``.
    """

    factor: np.ndarray
    whitened: np.ndarray
    residual: float
    log_det: float
    design: Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True, eq=False)
class FeatureNode:
    """A function that is linear in features: amplitudes by their evidence, noise inverse gamma, weights normal."""

    noise: NoiseIntegrated
    regressions: tuple[Regression, ...]
    shares: np.ndarray
    free_intercept: bool

    @classmethod
    def of(
        cls, noise: NoiseIntegrated, regressions: tuple[Regression, ...], *, free_intercept: bool = False
    ) -> FeatureNode:
        evidences = [noise.log_evidence(np.asarray(r.residual), np.asarray(r.log_det)) for r in regressions]
        return cls(noise, regressions, np.exp(evidences - logsumexp(evidences)), free_intercept)

    def draw(self, rng: np.random.Generator, variance: float | None) -> Mechanism:
        chosen = self.regressions[int(rng.choice(len(self.regressions), p=self.shares))]
        scale = self.noise.scale + 0.5 * chosen.residual
        own = scale / rng.gamma(self.noise.shape + 0.5 * self.noise.rows)
        noisy = chosen.whitened + np.sqrt(own) * rng.standard_normal(len(chosen.whitened))
        weights = np.linalg.solve(chosen.factor.T, noisy)
        # Where the features are centred, the constant is apart from them.
        spread = np.sqrt(own / (self.noise.rows + 1)) if self.free_intercept else 0.0
        intercept = float(spread * rng.standard_normal())
        return Mechanism(lambda inputs: chosen.design(inputs) @ weights + intercept, float(np.sqrt(own)))


def _additive_node(predictive: AdditivePredictive, target: int, parents: np.ndarray) -> FeatureNode:
    block = predictive.bases.means.shape[1]
    where = (parents[:, None] * block + np.arange(block)).reshape(-1)
    regressions = []
    for amplitude in predictive.amplitudes:
        root = np.sqrt(amplitude)

        def design(inputs: np.ndarray, root: float = root) -> np.ndarray:
            parts = [predictive.bases.of(int(parent)).at(inputs[:, k]) for k, parent in enumerate(parents)]
            return root * np.concatenate([*parts, np.empty((len(inputs), 0))], axis=1)

        factor = np.linalg.cholesky(amplitude * predictive.gram[np.ix_(where, where)] + np.eye(where.size))
        whitened = np.linalg.solve(factor, root * predictive.products[where, target])
        residual = float(predictive.squares[target] - whitened @ whitened)
        log_det = float(2 * np.log(np.diag(factor)).sum() + np.log1p(predictive.noise.rows))
        regressions.append(Regression(factor, whitened, residual, log_det, design))
    return FeatureNode.of(predictive.noise, tuple(regressions), free_intercept=True)


def _kernel_node(predictive: GaussianProcessPredictive, target: int, parents: np.ndarray) -> FeatureNode:
    """A Gaussian process by its features, the constant among them; what they lack is independent noise.

    Sets of parents that need more features than ``MOST_FEATURES`` get that many, and are a little less sure.
    """
    length = predictive.length_scale
    fitted = predictive.columns[:, parents].astype(np.float64) / length
    values = predictive.columns[:, target].astype(np.float64)
    pivots, _ = kernel_pivots(fitted, most=MOST_FEATURES)
    regressions = []
    for amplitude in predictive.amplitudes if len(parents) else (0.0,):
        build = kernel_design(fitted[pivots], amplitude)
        features, noise = build(fitted)
        factor = np.linalg.cholesky((features / noise) @ features.T + np.eye(len(features)))
        whitened = np.linalg.solve(factor, features @ (values / noise))
        residual = float(values @ (values / noise) - whitened @ whitened)
        log_det = float(2 * np.log(np.diag(factor)).sum() + np.log(noise).sum())

        def design(inputs: np.ndarray, build: Callable[..., tuple[np.ndarray, ...]] = build) -> np.ndarray:
            return build(inputs / length)[0].T

        regressions.append(Regression(factor, whitened, residual, log_det, design))
    return FeatureNode.of(predictive.noise, tuple(regressions))


class ShiftedNode(NamedTuple):
    """A node in the units of its part, whose rows have the means ``inputs`` ``(k,)`` and ``output`` in common ones."""

    node: NodePosterior
    inputs: np.ndarray
    output: float

    def draw(self, rng: np.random.Generator, variance: float | None) -> Mechanism:
        drawn = self.node.draw(rng, variance)
        if drawn.slopes is not None:
            intercept = drawn.intercept + self.output - float(drawn.slopes @ self.inputs)
            return Mechanism.linear(drawn.slopes, intercept, drawn.noise)
        return Mechanism(lambda rows: drawn.function(rows - self.inputs) + self.output, drawn.noise)


def node_posterior(predictive: Predictive, target: int, parents: np.ndarray) -> NodePosterior:
    """What the fitted table says of a node's function of these parents, and of its noise."""
    if isinstance(predictive, InterventionalPredictive):
        part, shift = predictive.of(target)
        return ShiftedNode(node_posterior(part, target, parents), shift[parents], float(shift[target]))
    if isinstance(predictive, LinearPredictive):
        return LinearNode.of(predictive, target, parents)
    if isinstance(predictive, AdditivePredictive):
        return _additive_node(predictive, target, parents)
    if isinstance(predictive, GaussianProcessPredictive):
        return _kernel_node(predictive, target, parents)
    raise ConfigError(f"no functions can be drawn from predictions of the kind {predictive.kind!r}")


class _SharedNoise:
    """The noise variance that all nodes share, drawn given a graph from its posterior on a grid of its logarithm."""

    def __init__(self, predictive: LinearPredictive, cells: int) -> None:
        assert predictive.variance is not None
        assert predictive.noise_prior is not None
        # The logarithm has a standard deviation of about sqrt(2 / cells) around a value that the engine found.
        width = np.sqrt(2 / cells)
        self.logarithms = np.log(predictive.variance) + width * np.linspace(-8.0, 8.0, 65)
        self.variances = np.exp(self.logarithms)
        shape, scale = predictive.noise_prior
        self.log_prior = -shape * self.logarithms - scale / self.variances
        self.known: dict[LinearNode, np.ndarray] = {}

    def draw(self, rng: np.random.Generator, nodes: list[LinearNode]) -> float:
        for node in nodes:
            if node not in self.known:
                self.known[node] = node.log_evidence(self.variances)
        log_density = self.log_prior + sum(self.known[node] for node in nodes)
        density = np.exp(log_density - log_density.max())
        heaps = np.concatenate([[0.0], np.cumsum(0.5 * (density[1:] + density[:-1]))])
        return float(np.exp(np.interp(rng.random() * heaps[-1], heaps, self.logarithms)))


def draw_models(predictive: Predictive | None, graphs: GraphSamples, rng: np.random.Generator) -> Iterator[CausalModel]:
    """A model for each of the graphs; sets of parents that come again are regressed once."""
    if predictive is None:
        raise ConfigError(
            "this model gives edge probabilities and graphs, but no functions, and so no effects; fit model linear, gp "
            "or additive for those"
        )
    if isinstance(predictive, CategoricalPredictive):
        raise ConfigError(
            "the columns hold categories, whose effects are probabilities of labels and no numbers; ask for single ones"
        )
    known: dict[tuple[int, bytes], NodePosterior] = {}

    def posterior_of(node: int, parents: np.ndarray) -> NodePosterior:
        key = (node, parents.tobytes())
        if key not in known:
            known[key] = node_posterior(predictive, node, parents)
        return known[key]

    shared = None
    fixed = None
    some, cells = predictive, 0
    if isinstance(predictive, InterventionalPredictive):
        some, cells = predictive.parts[0], predictive.cells
    elif isinstance(predictive, LinearPredictive):
        cells = predictive.rows * graphs.nodes
    if isinstance(some, LinearPredictive) and some.variance is not None:
        fixed = some.variance
        if some.noise_prior is not None and cells <= CELLS_THAT_TELL_THE_NOISE:
            shared = _SharedNoise(some, cells)
    for k in range(len(graphs)):
        sources, targets = graphs.edges(k)
        variance = fixed
        if shared is not None:
            nodes = [posterior_of(node, _parents(sources, targets, node)) for node in range(graphs.nodes)]
            bare = [node.node if isinstance(node, ShiftedNode) else node for node in nodes]
            variance = shared.draw(rng, [node for node in bare if isinstance(node, LinearNode)])

        def mechanism(node: int, parents: np.ndarray, variance: float | None = variance) -> Mechanism:
            return posterior_of(node, parents).draw(rng, variance)

        yield CausalModel(sources, targets, predictive.scaling, mechanism)
