"""Random graphs, mechanisms and noise: tables whose true graph is known, and the paper's own tables."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt
from scipy.linalg import cholesky, solve_triangular
from scipy.spatial.distance import pdist, squareform

from vcuda.data.checks import LARGEST_VALUE
from vcuda.data.dataset import Dataset
from vcuda.errors import ConfigError
from vcuda.graphs import BoolArray, topological_order_edges

GraphFamily = Literal["er", "sf"]
Mechanism = Literal["linear", "gp", "mlp"]
NoiseScales = Literal["equal", "unequal"]
NoiseFamily = Literal["gaussian", "uniform", "laplace", "gumbel"]
FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

WEIGHT_RANGE = (0.5, 2.0)
VARIANCE_RANGE = (0.5, 2.0)
HIDDEN_UNITS = 16
EXACT_GP_ROWS = 5_000
FOURIER_FEATURES = 1_000
# White noise of standard deviation 0.001 on a GP draw, a thousandth of the noise of the data, keeps the
# Cholesky factor real: rounding reaches about 1e-16 * rows * (largest eigenvalue <= rows): 3e-9 at 5,000.
JITTER = 1e-6
PAPER_ROWS = 1_000


@dataclass(frozen=True, eq=False)
class Simulation:
    """Rows to learn from, rows of the same functions to test on, and the graph that made both.

    Parameters
    ----------
    train, test
        The tables, with columns X1, X2, ...
    sources, targets
        The edges, ``(m,)`` each, sorted by target.
    edge_weights
        The coefficient of each edge, ``(m,)``; None when the mechanism is not linear.
    noise_scales
        The standard deviation of each node's noise, ``(d,)``.
    config
        Every argument that made this simulation.
    """

    train: Dataset
    test: Dataset
    sources: IntArray
    targets: IntArray
    edge_weights: FloatArray | None
    noise_scales: FloatArray
    config: dict[str, Any]

    @property
    def graph(self) -> BoolArray:
        """The true graph, ``(d, d)``, true at [i, j] for i -> j."""
        graph = np.zeros((self.train.d, self.train.d), dtype=bool)
        graph[self.sources, self.targets] = True
        return graph

    @property
    def weights(self) -> FloatArray | None:
        """The coefficients of a linear simulation, ``(d, d)``; None for the other mechanisms."""
        if self.edge_weights is None:
            return None
        weights = np.zeros((self.train.d, self.train.d))
        weights[self.sources, self.targets] = self.edge_weights
        return weights


class _Edges(NamedTuple):
    """Edges sorted by target; those into node j are ``starts[j]:starts[j + 1]``."""

    sources: IntArray
    targets: IntArray
    starts: IntArray

    @classmethod
    def of(cls, sources: IntArray, targets: IntArray, nodes: int) -> _Edges:
        by_target = np.lexsort((sources, targets))
        starts = np.searchsorted(targets[by_target], np.arange(nodes + 1))
        return cls(sources[by_target], targets[by_target], starts)

    def into(self, node: int) -> slice:
        return slice(self.starts[node], self.starts[node + 1])


def simulate(
    graph: GraphFamily = "er",
    *,
    nodes: int,
    edges: int,
    mechanism: Mechanism = "linear",
    noise: NoiseScales = "equal",
    noise_family: NoiseFamily = "gaussian",
    rows: int = 1_000,
    test_rows: int = 1_000,
    seed: int = 0,
) -> Simulation:
    """Draw a random DAG and rows from it: each node is a function of its parents plus independent noise.

    Parameters
    ----------
    graph
        ``"er"``: every pair of nodes is joined with the same probability, so that ``edges`` are expected.
        ``"sf"``: Barabási-Albert, every new node joins m = round(edges / nodes) old ones, m (nodes - m) edges
        in all. Both are oriented along a random order, so that hubs are no more often causes than effects.
    nodes, edges
        The number of columns, and of edges as said above.
    mechanism
        ``"linear"``: coefficients of size 0.5 to 2 with random signs. ``"gp"``: one draw from a Gaussian
        process over all parents together, zero mean, kernel exp(-||x - x'||² / 2) on the raw values; up to
        5,000 rows (train and test together) it is exact and costs O(rows³) a node, above that it is a sum of
        1,000 random Fourier features. ``"mlp"``: a network with one layer of 16 tanh units, its weights and
        biases normal with standard deviation 2, its output of variance 2 to 4, a quarter of it not linear.
    noise
        ``"equal"``: standard deviation 1 at every node. ``"unequal"``: variances uniform on 0.5 to 2.
    noise_family
        The shape of the noise, shifted to mean zero and scaled to the standard deviation above.
    rows, test_rows
        Rows to learn from and to test on; both come from the same functions.
    seed
        The same seed gives the same simulation.

    Notes
    -----
    Columns keep their raw scale. In linear sets the variance grows along the causal order, so that sorting by
    variance alone nearly finds that order; judge a method on standardised columns as well.

    Examples
    --------
    >>> truth = simulate("er", nodes=5, edges=6, rows=50, test_rows=20, seed=1)
    >>> truth.train.values.shape, truth.test.values.shape, truth.graph.shape
    ((50, 5), (20, 5), (5, 5))
    """
    _check_choice("graph", graph, GraphFamily)
    _check_choice("mechanism", mechanism, Mechanism)
    _check_choice("noise", noise, NoiseScales)
    _check_choice("noise_family", noise_family, NoiseFamily)
    _check_sizes(graph, nodes, edges)
    for option, size in (("rows", rows), ("test_rows", test_rows)):
        if size < 1:
            raise ConfigError(f"{option} must be at least 1, not {size}")
    if seed < 0:
        raise ConfigError(f"seed must not be negative, but it is {seed}")

    rng = np.random.default_rng(seed)
    pairs = _erdos_renyi if graph == "er" else _barabasi_albert
    dag = _orient(rng, *pairs(rng, nodes, edges), nodes)
    variances = np.ones(nodes) if noise == "equal" else rng.uniform(*VARIANCE_RANGE, size=nodes)
    scales = np.sqrt(variances)
    count = dag.sources.size
    weights = rng.uniform(*WEIGHT_RANGE, size=count) * rng.choice([-1.0, 1.0], size=count)

    def noise_of(node: int) -> FloatArray:
        return scales[node] * _standard_noise(rng, noise_family, rows + test_rows)

    def mean_of(node: int, inputs: FloatArray) -> FloatArray:
        if mechanism == "linear":
            return weights[dag.into(node)] @ inputs
        return (_draw_gp if mechanism == "gp" else _draw_network)(rng, inputs)

    order = topological_order_edges(dag.sources, dag.targets, nodes).tolist()
    with np.errstate(over="ignore", invalid="ignore"):
        values = _propagate(order, dag, rows + test_rows, noise_of, mean_of)
    if not np.all(np.abs(values) <= LARGEST_VALUE):
        raise ConfigError(
            f"with {count:,} edges the values grow along the order beyond {LARGEST_VALUE:g}: ask for fewer edges"
        )
    config = {
        "graph": graph,
        "nodes": nodes,
        "edges": edges,
        "mechanism": mechanism,
        "noise": noise,
        "noise_family": noise_family,
        "rows": rows,
        "test_rows": test_rows,
        "seed": seed,
    }
    return _simulation(config, values, rows, dag, weights, scales)


def paper_dataset(
    graph: GraphFamily, *, nodes: int = 10, edges: int = 10, mechanism: Mechanism = "linear", index: int = 0
) -> Simulation:
    """Make a data set of the VCUDA paper again by its own seed: 1,000 rows to learn from, 1,000 to test on.

    Linear sets equal the authors' up to the last bits, training and test rows alike. In ``"gp"`` sets the
    graph, the noise and the root columns are exact; the other columns follow the same random numbers through
    a singular value decomposition, whose vectors differ between builds of LAPACK. The authors drew *new*
    functions for the test rows of these sets, so that no method could have predicted them; here the test rows
    are drawn from the same functions, given their values at the training rows.

    Parameters
    ----------
    graph
        ``"er"`` or ``"sf"``. The first has edges (nodes - 1) / nodes expected edges, the second exactly
        m (nodes - m) with m = round(edges / nodes).
    nodes, edges
        The paper has 10, 50 and 100 nodes with as many edges, and 10 nodes with 20 and 40.
    mechanism
        ``"linear"`` or ``"gp"``, as in `simulate`; ``"gp"`` takes about a second for each node with parents.
    index
        The paper has sets 0 to 9; larger numbers continue the sequence of seeds.
    """
    _check_choice("graph", graph, GraphFamily)
    if mechanism not in ("linear", "gp"):
        raise ConfigError(f"mechanism of a paper data set must be one of linear, gp, not {mechanism!r}")
    if index < 0:
        raise ConfigError(f"index must not be negative, but it is {index}")
    _check_sizes(graph, nodes, edges)
    seed = 123 + index * (index + 1) // 2
    if (graph, nodes, edges, mechanism) == ("er", 10, 10, "gp") and index >= 2:
        seed -= 1  # two of these sets existed already when the authors' script made the rest
    # The authors seed Python's and NumPy's global generators; these instances give the same streams.
    rng = np.random.RandomState(seed)
    dag, order = _paper_graph(rng, random.Random(seed), graph, nodes, edges)
    sizes = rng.uniform(*WEIGHT_RANGE, size=(nodes, nodes))
    signed = np.where(rng.rand(nodes, nodes) < 0.5, -sizes, sizes)
    weights = signed[dag.sources, dag.targets]
    functions: dict[int, tuple[FloatArray, FloatArray]] = {}

    def noise_of(_: int) -> FloatArray:
        return rng.normal(size=PAPER_ROWS)

    def linear(node: int, inputs: FloatArray) -> FloatArray:
        return weights[dag.into(node)] @ inputs

    def new_function(node: int, inputs: FloatArray) -> FloatArray:
        values = rng.multivariate_normal(np.zeros(PAPER_ROWS), _kernel(inputs))
        functions[node] = (inputs, values)
        return values

    def same_function(node: int, inputs: FloatArray) -> FloatArray:
        seen, values = functions[node]
        lower = _factor(np.hstack([seen, inputs]))
        whitened = solve_triangular(lower[:PAPER_ROWS, :PAPER_ROWS], values, lower=True)
        return lower[PAPER_ROWS:] @ np.concatenate([whitened, rng.standard_normal(PAPER_ROWS)])

    halves = [
        _propagate(order, dag, PAPER_ROWS, noise_of, mean_of)
        for mean_of in ((linear, linear) if mechanism == "linear" else (new_function, same_function))
    ]
    config = {
        "graph": graph,
        "nodes": nodes,
        "edges": edges,
        "mechanism": mechanism,
        "index": index,
        "seed": seed,
    }
    return _simulation(config, np.hstack(halves), PAPER_ROWS, dag, weights, np.ones(nodes))


def _propagate(
    order: Sequence[int],
    dag: _Edges,
    rows: int,
    noise_of: Callable[[int], FloatArray],
    mean_of: Callable[[int, FloatArray], FloatArray],
) -> FloatArray:
    """Fill all nodes, causes first; each is its noise plus the mean given its parents' values ``(k, rows)``.

    Returns ``(d, rows)``: a node's values lie together, so that the cost is that of the edges.
    """
    values = np.empty((len(order), rows))
    for node in order:
        values[node] = noise_of(node)
        parents = dag.sources[dag.into(node)]
        if parents.size:
            values[node] += mean_of(node, values[parents])
    return values


def _simulation(
    config: dict[str, Any],
    values: FloatArray,
    rows: int,
    dag: _Edges,
    weights: FloatArray,
    noise_scales: FloatArray,
) -> Simulation:
    names = tuple(f"X{column}" for column in range(1, len(values) + 1))
    described = ", ".join(f"{option}={value}" for option, value in config.items())

    def table(part: str, cells: FloatArray) -> Dataset:
        cells = np.array(cells.T, order="C")
        cells.flags.writeable = False
        return Dataset(names=names, values=cells, source=f"simulated {part} rows ({described})")

    return Simulation(
        train=table("training", values[:, :rows]),
        test=table("test", values[:, rows:]),
        sources=dag.sources,
        targets=dag.targets,
        edge_weights=weights if config["mechanism"] == "linear" else None,
        noise_scales=noise_scales,
        config=config,
    )


def _erdos_renyi(rng: np.random.Generator, nodes: int, edges: int) -> tuple[IntArray, IntArray]:
    """Undirected pairs, each present with probability edges / (number of pairs), in O(edges)."""
    possible = nodes * (nodes - 1) // 2
    present = rng.binomial(possible, edges / possible)
    chosen = rng.choice(possible, size=present, replace=False, shuffle=False)
    # Pair number k of the list (0,1), (0,2), (1,2), (0,3), ... ; exact while 8 k stays below 2**52.
    high = ((1 + np.sqrt(1 + 8 * chosen.astype(np.float64))) / 2).astype(np.int64)
    return chosen - high * (high - 1) // 2, high


def _barabasi_albert(rng: np.random.Generator, nodes: int, edges: int) -> tuple[IntArray, IntArray]:
    """Undirected pairs of a graph that grows: a new node joins old ones in proportion to their degree."""
    joins = round(edges / nodes)
    old: list[int] = list(range(joins))
    new: list[int] = [joins] * joins
    ends = old + new  # every node as often as it has edges, so that a uniform pick is a pick by degree
    for node in range(joins + 1, nodes):
        chosen: set[int] = set()
        while len(chosen) < joins:
            chosen.add(ends[rng.integers(len(ends))])
        old += sorted(chosen)
        new += [node] * joins
        ends += [*sorted(chosen), *[node] * joins]
    return np.array(old, dtype=np.int64), np.array(new, dtype=np.int64)


def _orient(rng: np.random.Generator, one: IntArray, other: IntArray, nodes: int) -> _Edges:
    """Direct every pair along one random order of the nodes."""
    place = rng.permutation(nodes)
    forward = place[one] < place[other]
    return _Edges.of(np.where(forward, one, other), np.where(forward, other, one), nodes)


def _paper_graph(
    rng: np.random.RandomState, python_rng: random.Random, graph: GraphFamily, nodes: int, edges: int
) -> tuple[_Edges, list[int]]:
    """The edges, and the order of nodes in which the authors draw the noise."""
    import networkx as nx

    if graph == "er":
        undirected = nx.gnp_random_graph(nodes, 2 * edges / nodes**2, seed=python_rng)
    else:
        undirected = nx.barabasi_albert_graph(nodes, round(edges / nodes), seed=python_rng)
    pairs = np.array(undirected.edges, dtype=np.int64).reshape(-1, 2)
    # Relabel, direct each pair from its larger to its smaller label, relabel again.
    pairs = rng.permutation(nodes)[pairs]
    label = rng.permutation(nodes)
    dag = _Edges.of(label[pairs.max(axis=1)], label[pairs.min(axis=1)], nodes)
    directed = nx.DiGraph()
    directed.add_nodes_from(range(nodes))
    # networkx breaks ties of its topological order by the order in which edges came: by source, by target.
    directed.add_edges_from(sorted(zip(dag.sources.tolist(), dag.targets.tolist(), strict=True)))
    return dag, list(nx.topological_sort(directed))


def _standard_noise(rng: np.random.Generator, family: NoiseFamily, size: int) -> FloatArray:
    """Independent draws with mean 0 and variance 1."""
    if family == "gaussian":
        return rng.standard_normal(size)
    if family == "uniform":
        return rng.uniform(-np.sqrt(3), np.sqrt(3), size)
    if family == "laplace":
        return rng.laplace(0.0, np.sqrt(0.5), size)
    scale = np.sqrt(6) / np.pi
    return rng.gumbel(-np.euler_gamma * scale, scale, size)


def _kernel(inputs: FloatArray) -> FloatArray:
    """exp(-||x - x'||² / 2) between the columns of ``(k, rows)``."""
    covariance = squareform(np.exp(-0.5 * pdist(inputs.T, "sqeuclidean")))
    np.fill_diagonal(covariance, 1.0)
    return covariance


def _factor(inputs: FloatArray) -> FloatArray:
    """The lower Cholesky factor of the kernel, with the jitter on its diagonal."""
    covariance = _kernel(inputs)
    np.fill_diagonal(covariance, 1.0 + JITTER)
    return cholesky(covariance, lower=True, overwrite_a=True, check_finite=False)


def _draw_gp(rng: np.random.Generator, inputs: FloatArray) -> FloatArray:
    """The values ``(rows,)`` of one function of the parents, drawn from the Gaussian process of `_kernel`."""
    parents, rows = inputs.shape
    if rows <= EXACT_GP_ROWS:
        return _factor(inputs) @ rng.standard_normal(rows)
    # Bochner: cosines with standard normal frequencies and uniform phases have this kernel as covariance.
    frequencies = rng.standard_normal((FOURIER_FEATURES, parents))
    phases = rng.uniform(0, 2 * np.pi, FOURIER_FEATURES)
    amplitudes = rng.standard_normal(FOURIER_FEATURES) * np.sqrt(2 / FOURIER_FEATURES)
    values = np.empty(rows)
    for start in range(0, rows, EXACT_GP_ROWS):
        block = slice(start, start + EXACT_GP_ROWS)
        values[block] = amplitudes @ np.cos(frequencies @ inputs[:, block] + phases[:, None])
    return values


def _draw_network(rng: np.random.Generator, inputs: FloatArray) -> FloatArray:
    """The values ``(rows,)`` of one random network of the parents."""
    first = 2 * rng.standard_normal((HIDDEN_UNITS, len(inputs)))
    biases = 2 * rng.standard_normal((HIDDEN_UNITS, 1))
    last = rng.standard_normal(HIDDEN_UNITS) * np.sqrt(6 / HIDDEN_UNITS)
    return last @ np.tanh(first @ inputs + biases)


def _check_choice(option: str, value: str, choices: Any) -> None:
    if value not in get_args(choices):
        raise ConfigError(f"{option} must be one of {', '.join(get_args(choices))}, not {value!r}")


def _check_sizes(graph: GraphFamily, nodes: int, edges: int) -> None:
    if nodes < 2:
        raise ConfigError(f"nodes must be at least 2, not {nodes}")
    most = nodes * (nodes - 1) // 2
    if not 0 <= edges <= most:
        raise ConfigError(f"a DAG of {nodes} nodes has 0 to {most} edges, not {edges}")
    if graph == "sf" and not 1 <= round(edges / nodes) <= nodes // 2:
        raise ConfigError(
            f"a scale-free graph joins each new node to round(edges / nodes) others, 1 to half the nodes; "
            f"nodes={nodes}, edges={edges} gives {round(edges / nodes)}"
        )
