"""Simulated tables: rows drawn from a random graph, so that the truth about them is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from vcuda.arguments import seed_of, whole_number
from vcuda.data.checks import LARGEST_VALUE
from vcuda.data.dataset import Dataset
from vcuda.data.random_models import (
    Edges,
    IntArray,
    NoiseFamily,
    barabasi_albert,
    draw_gp,
    draw_network,
    erdos_renyi,
    oriented,
    standard_noise,
)
from vcuda.data.raw_table import FloatArray
from vcuda.errors import ConfigError
from vcuda.graphs import BoolArray, topological_order_edges
from vcuda.memory import memory_available

GraphFamily = Literal["er", "sf"]
Mechanism = Literal["linear", "gp", "mlp"]
NoiseScales = Literal["equal", "unequal"]

WEIGHT_RANGE = (0.5, 2.0)
VARIANCE_RANGE = (0.5, 2.0)
# Of every edge: its two ends, as a pair, oriented and sorted, and its weight.
EDGE_COPIES = 16


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
    seed: int | None = 0,
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
        The same seed gives the same simulation. None draws one, which ``config`` says.

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
    check_choice("graph", graph, GraphFamily)
    check_choice("mechanism", mechanism, Mechanism)
    check_choice("noise", noise, NoiseScales)
    check_choice("noise_family", noise_family, NoiseFamily)
    nodes, edges = whole_number("nodes", nodes, least=2), whole_number("edges", edges)
    rows, test_rows = whole_number("rows", rows, least=1), whole_number("test_rows", test_rows, least=1)
    seed = seed_of(seed)
    check_sizes(graph, nodes, edges)
    _check_memory(nodes, edges, rows + test_rows)

    rng = np.random.default_rng(seed)
    pairs = erdos_renyi if graph == "er" else barabasi_albert
    dag = oriented(rng, *pairs(rng, nodes, edges), nodes)
    variances = np.ones(nodes) if noise == "equal" else rng.uniform(*VARIANCE_RANGE, size=nodes)
    scales = np.sqrt(variances)
    count = dag.sources.size
    weights = rng.uniform(*WEIGHT_RANGE, size=count) * rng.choice([-1.0, 1.0], size=count)

    def noise_of(node: int) -> FloatArray:
        return scales[node] * standard_noise(rng, noise_family, rows + test_rows)

    def mean_of(node: int, inputs: FloatArray) -> FloatArray:
        if mechanism == "linear":
            return weights[dag.into(node)] @ inputs
        return (draw_gp if mechanism == "gp" else draw_network)(rng, inputs)

    order = topological_order_edges(dag.sources, dag.targets, nodes).tolist()
    with np.errstate(over="ignore", invalid="ignore"):
        values = propagate(order, dag, rows + test_rows, noise_of, mean_of)
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
    return as_simulation(config, values, rows, dag, weights, scales)


def propagate(
    order: Sequence[int],
    dag: Edges,
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


def as_simulation(
    config: dict[str, Any],
    values: FloatArray,
    rows: int,
    dag: Edges,
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


def check_choice(option: str, value: str, choices: Any) -> None:
    if value not in get_args(choices):
        raise ConfigError(f"{option} must be one of {', '.join(get_args(choices))}, not {value!r}")


def _check_memory(nodes: int, edges: int, rows: int) -> None:
    """Refuse, before anything is drawn, what the memory cannot hold: the cells twice, and the edges."""
    pairs = nodes * (nodes - 1) // 2
    # NumPy lists all pairs to draw more than a fiftieth of them without repetition.
    listed = pairs if edges > pairs // 50 else 0
    needed, available = 8 * (2 * nodes * rows + EDGE_COPIES * edges + listed), memory_available()
    if needed > available:
        raise ConfigError(
            f"{rows:,} rows of {nodes:,} nodes with {edges:,} edges need about {needed / 1e9:,.1f} GB of memory and "
            f"{available / 1e9:,.1f} GB are free: ask for fewer"
        )


def check_sizes(graph: GraphFamily, nodes: int, edges: int) -> None:
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
