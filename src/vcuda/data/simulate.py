"""Simulated tables: rows drawn from a random graph, so that the truth about them is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from string import ascii_lowercase
from typing import Any, Literal, get_args

import numpy as np

from vcuda.arguments import number, seed_of, whole_number
from vcuda.data.checks import LARGEST_VALUE
from vcuda.data.dataset import Dataset
from vcuda.data.kinds import KINDS, Kind
from vcuda.data.random_models import (
    LABELS,
    LOG_ODDS_SD,
    LOG_RATE_SD,
    LOG_SCALE_SD,
    MIX,
    ORDERED_LEVELS,
    Edges,
    IntArray,
    NoiseFamily,
    as_cause,
    barabasi_albert,
    draw_counts,
    draw_gp,
    draw_labels,
    draw_network,
    draw_ordered,
    draw_yes_no,
    erdos_renyi,
    oriented,
    standard_noise,
    standardised,
)
from vcuda.data.raw_table import FloatArray
from vcuda.errors import ConfigError
from vcuda.graphs import BoolArray, topological_order_edges
from vcuda.memory import memory_available

GraphFamily = Literal["er", "sf"]
Mechanism = Literal["linear", "gp", "mlp"]
NoiseScales = Literal["equal", "unequal"]
Spread = Literal["constant", "causes"]
Kinds = str | Sequence[str] | Mapping[str, str]

NUMBER: Kind = "number"
WEIGHT_RANGE = (0.5, 2.0)
VARIANCE_RANGE = (0.5, 2.0)
# How far outliers lie from the mean of their column, in its standard deviations.
OUTLIER_RANGE = (5.0, 10.0)
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
        The coefficient of each edge, ``(m,)``; None when the mechanism is not linear. It says by how much one unit of
        the cause changes the mean of a number, the log odds of a yes/no column, the log odds of a higher level of an
        ordered column, or the logarithm of the mean of a count. NaN where the cause or the effect is a label, as each
        label has a coefficient of its own.
    noise_scales
        The standard deviation of each node's noise, ``(d,)``; of columns that are no numbers it has no meaning.
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
    def kinds(self) -> tuple[Kind, ...]:
        """The kind of each column."""
        return self.train.kinds

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
    kinds: Kinds | None = None,
    spread: Spread = "constant",
    outliers: float = 0.0,
    rounded: float | None = None,
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
    kinds
        The kind of every column: ``"number"``, ``"count"``, ``"yes/no"``, ``"ordered"`` or ``"label"``. One
        kind for all columns, a list with one for each, a mapping from names (``{"X1": "label"}``; the others are
        numbers), or ``"mixed"``: half of the columns are numbers, the others are of each kind in turn, at random
        places. By default all are numbers. See the notes.
    spread
        ``"constant"``: the noise of a number has one standard deviation. ``"causes"``: its logarithm is a function of
        the causes too (of the same mechanism), with standard deviation 0.5 between rows; noise_scales is then the
        root of the mean variance.
    outliers
        This share of the cells of number columns is replaced by values 5 to 10 standard deviations away from the mean.
    rounded
        Number columns are rounded to multiples of this.
    rows, test_rows
        Rows to learn from and to test on; both come from the same functions.
    seed
        The same seed gives the same simulation. None draws one, which ``config`` says.

    Notes
    -----
    Columns keep their raw scale. In linear sets the variance grows along the causal order, so that sorting by
    variance alone nearly finds that order; judge a method on standardised columns as well.

    As soon as one column is no number, every cause acts on its effects by its standardised values, so that the
    coefficients above are those of one standard deviation of the cause; a label acts by a random effect of each
    level. A yes/no column (0 and 1) has a logistic regression on its causes, an ordered one (whole numbers from 1 on,
    4 to 6 levels) cumulative logits, a label (3 to 5 levels) a softmax, a count a Poisson or a negative binomial
    distribution with the logarithm as link. What all causes add to the log odds has standard deviation 2, to the
    logarithm of a mean 0.7.

    Outliers and rounding are errors of recording: what a column causes follows the value before.

    Examples
    --------
    >>> truth = simulate("er", nodes=5, edges=6, rows=50, test_rows=20, seed=1)
    >>> truth.train.values.shape, truth.test.values.shape, truth.graph.shape
    ((50, 5), (20, 5), (5, 5))
    >>> simulate("er", nodes=4, edges=4, kinds="mixed", seed=1).kinds
    ('label', 'count', 'number', 'number')
    """
    check_choice("graph", graph, GraphFamily)
    check_choice("mechanism", mechanism, Mechanism)
    check_choice("noise", noise, NoiseScales)
    check_choice("noise_family", noise_family, NoiseFamily)
    check_choice("spread", spread, Spread)
    nodes, edges = whole_number("nodes", nodes, least=2), whole_number("edges", edges)
    rows, test_rows = whole_number("rows", rows, least=1), whole_number("test_rows", test_rows, least=1)
    seed = seed_of(seed)
    check_sizes(graph, nodes, edges)
    outliers, rounded = number("outliers", outliers), None if rounded is None else number("rounded", rounded)
    _check_recording(outliers, rounded)
    _check_memory(nodes, edges, rows + test_rows)

    rng = np.random.default_rng(seed)
    pairs = erdos_renyi if graph == "er" else barabasi_albert
    dag = oriented(rng, *pairs(rng, nodes, edges), nodes)
    variances = np.ones(nodes) if noise == "equal" else rng.uniform(*VARIANCE_RANGE, size=nodes)
    scales = np.sqrt(variances)
    count = dag.sources.size
    weights = random_weights(rng, count)
    kind_of = _kinds(rng, kinds, nodes)
    columns = _Columns(rng, dag, mechanism, noise_family, spread, kind_of, scales, weights)

    order = topological_order_edges(dag.sources, dag.targets, nodes).tolist()
    with np.errstate(over="ignore", invalid="ignore"):
        values = propagate(order, dag, rows + test_rows, columns.draw)
    if not np.all(np.abs(values) <= LARGEST_VALUE):
        raise ConfigError(
            f"with {count:,} edges the values grow along the order beyond {LARGEST_VALUE:g}: ask for fewer edges"
        )
    _record(rng, values, [k for k, kind in enumerate(kind_of) if kind == "number"], outliers, rounded)
    config = {
        "graph": graph,
        "nodes": nodes,
        "edges": edges,
        "mechanism": mechanism,
        "noise": noise,
        "noise_family": noise_family,
        "kinds": kinds if kinds is None or isinstance(kinds, str) else copy(kinds),
        "spread": spread,
        "outliers": outliers,
        "rounded": rounded,
        "rows": rows,
        "test_rows": test_rows,
        "seed": seed,
    }
    return as_simulation(config, values, rows, dag, columns.coefficients, scales, kind_of)


def random_weights(rng: np.random.Generator, count: int) -> FloatArray:
    return rng.uniform(*WEIGHT_RANGE, size=count) * rng.choice([-1.0, 1.0], size=count)


def _kinds(rng: np.random.Generator, kinds: Kinds | None, nodes: int) -> tuple[Kind, ...]:
    """The kind of each column; random numbers are drawn for ``"mixed"`` only."""
    names = [f"X{column}" for column in range(1, nodes + 1)]
    chosen: list[Any]
    if isinstance(kinds, Mapping):
        strange = [name for name in kinds if name not in names]
        if strange:
            raise ConfigError(f"kinds names column {strange[0]!r}, but the columns are X1 to X{nodes}")
        chosen = [kinds.get(name, "number") for name in names]
    elif kinds == "mixed":
        chosen = [MIX[k % len(MIX)] for k in rng.permutation(nodes)]
    elif kinds is None or isinstance(kinds, str):
        chosen = ["number" if kinds is None else kinds] * nodes
    else:
        chosen = list(kinds)
        if len(chosen) != nodes:
            raise ConfigError(f"kinds must have one kind for each of {nodes} columns, not {len(chosen)}")
    for name, kind in zip(names, chosen, strict=True):
        if kind not in KINDS:
            whole = ", or mixed for all columns" if isinstance(kinds, str) else f" (column {name})"
            raise ConfigError(f"kinds must be one of {', '.join(KINDS)}{whole}, not {kind!r}")
    return tuple(chosen)


class _Columns:
    """Draws one column after the other, causes first, and notes the coefficient of each edge ``(m,)`` in its units."""

    def __init__(
        self,
        rng: np.random.Generator,
        dag: Edges,
        mechanism: Mechanism,
        noise_family: NoiseFamily,
        spread: Spread,
        kinds: tuple[Kind, ...],
        noise_scales: FloatArray,
        weights: FloatArray,
    ) -> None:
        self.rng, self.dag, self.mechanism, self.spread, self.kinds = rng, dag, mechanism, spread, kinds
        self.noise_family, self.noise_scales, self.weights = noise_family, noise_scales, weights
        self.only_numbers = set(kinds) == {"number"}
        self.coefficients = weights if self.only_numbers else np.full(weights.size, np.nan)

    def draw(self, node: int, inputs: FloatArray) -> FloatArray:
        """The values ``(rows,)`` of a node, given those of its parents ``(k, rows)``."""
        rng, kind = self.rng, self.kinds[node]
        if kind == "number":
            return self._number(node, inputs)
        if kind == "label":
            levels = int(rng.integers(*LABELS, endpoint=True))
            return draw_labels(rng, self._log_odds(node, inputs, levels))
        predictor = self._predictor(node, inputs, LOG_RATE_SD if kind == "count" else LOG_ODDS_SD)
        if kind == "count":
            return draw_counts(rng, predictor)
        if kind == "yes/no":
            return draw_yes_no(rng, predictor)
        return draw_ordered(rng, predictor, int(rng.integers(*ORDERED_LEVELS, endpoint=True)))

    def _number(self, node: int, inputs: FloatArray) -> FloatArray:
        values = self.noise_scales[node] * standard_noise(self.rng, self.noise_family, inputs.shape[1])
        if not len(inputs):
            return values
        causes = inputs if self.only_numbers else self._causes(node, inputs)
        mean = self._function(causes, self.weights[self.dag.into(node)])
        if not self.only_numbers:
            self._note(node, inputs, 1.0)
        if self.spread == "causes":
            scale = np.exp(LOG_SCALE_SD * standardised(self._random_function(node, inputs)))
            values *= scale / np.sqrt(np.mean(scale**2))
        values += mean
        return values

    def _predictor(self, node: int, inputs: FloatArray, sd: float) -> FloatArray:
        """What the causes add to the log odds or the log rate ``(rows,)``."""
        if not len(inputs):
            return np.zeros(inputs.shape[1])
        combined = self._function(self._causes(node, inputs), self.weights[self.dag.into(node)])
        self._note(node, inputs, sd / combined.std() if combined.std() > 0 else 0.0)
        return sd * standardised(combined)

    def _log_odds(self, node: int, inputs: FloatArray, levels: int) -> FloatArray:
        """What the causes add to each label ``(levels, rows)``, so that the log odds of two have the stated sd."""
        if not len(inputs):
            return np.zeros((levels, inputs.shape[1]))
        parts = np.array([self._random_function(node, inputs) for _ in range(levels)])
        parts -= parts.mean(axis=1, keepdims=True)
        parts -= parts.mean(axis=0)
        # The mean over all pairs of different labels of the variance of the difference between their parts.
        variance = 2 * levels / (levels - 1) * np.mean(parts**2)
        return parts * LOG_ODDS_SD / np.sqrt(variance) if variance > 0 else parts

    def _random_function(self, node: int, inputs: FloatArray) -> FloatArray:
        """Another function of the causes, with the mechanism of the table and coefficients of its own."""
        return self._function(self._causes(node, inputs), random_weights(self.rng, len(inputs)))

    def _causes(self, node: int, inputs: FloatArray) -> FloatArray:
        parents = self.dag.sources[self.dag.into(node)].tolist()
        return np.array([as_cause(self.rng, self.kinds[k], own) for k, own in zip(parents, inputs, strict=True)])

    def _function(self, causes: FloatArray, weights: FloatArray) -> FloatArray:
        if self.mechanism == "linear":
            return weights @ causes
        return (draw_gp if self.mechanism == "gp" else draw_network)(self.rng, causes)

    def _note(self, node: int, inputs: FloatArray, factor: float) -> None:
        """The coefficients of the edges into a node, for one unit of each cause that is no label."""
        into = self.dag.into(node)
        labels = np.array([self.kinds[k] == "label" for k in self.dag.sources[into]])
        scales = inputs.std(axis=1)
        per_unit = factor * self.weights[into] / np.where(scales > 0, scales, 1.0)
        self.coefficients[into] = np.where(labels, np.nan, per_unit)


def propagate(order: Sequence[int], dag: Edges, rows: int, draw: Callable[[int, FloatArray], FloatArray]) -> FloatArray:
    """Draw all nodes, causes first, each from its parents' values ``(k, rows)``.

    Returns ``(d, rows)``: a node's values lie together, so that the cost is that of the edges.
    """
    values = np.empty((len(order), rows))
    for node in order:
        values[node] = draw(node, values[dag.sources[dag.into(node)]])
    return values


def _record(
    rng: np.random.Generator, values: FloatArray, numbers: Sequence[int], outliers: float, rounded: float | None
) -> None:
    """Put outliers into the rows ``numbers`` of ``(d, rows)`` and round them, in place."""
    for column in numbers:
        own = values[column]
        if outliers > 0:
            far = rng.uniform(*OUTLIER_RANGE, own.size) * rng.choice([-1.0, 1.0], own.size)
            own[:] = np.where(rng.random(own.size) < outliers, own.mean() + far * own.std(), own)
        if rounded is not None:
            own[:] = rounded * np.round(own / rounded)
            if own.size > 1 and own.min() == own.max():
                raise ConfigError(
                    f"rounded to multiples of {rounded:g}, column X{column + 1} does not vary: round to smaller ones"
                )


def as_simulation(
    config: dict[str, Any],
    values: FloatArray,
    rows: int,
    dag: Edges,
    weights: FloatArray,
    noise_scales: FloatArray,
    kinds: tuple[Kind, ...],
) -> Simulation:
    names = tuple(f"X{column}" for column in range(1, len(values) + 1))
    short = {option: value for option, value in config.items() if isinstance(value, str | int | float)}
    described = ", ".join(f"{option}={value}" for option, value in short.items())

    # Labels by the alphabet, in the order of their codes.
    labels = [
        tuple(ascii_lowercase[: int(own.max()) + 1]) if kind == "label" else None
        for kind, own in zip(kinds, values, strict=True)
    ]
    categories = tuple(labels) if "label" in kinds else None

    def table(part: str, cells: FloatArray) -> Dataset:
        cells = np.array(cells.T, order="C")
        cells.flags.writeable = False
        source = f"simulated {part} rows ({described})"
        return Dataset(names=names, values=cells, source=source, categories=categories, kinds=kinds)

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


def _check_recording(outliers: float, rounded: float | None) -> None:
    if not 0 <= outliers < 1:
        raise ConfigError(f"outliers is a share of the cells, from 0 to less than 1, not {outliers!r}")
    if rounded is not None and not (rounded > 0 and np.isfinite(rounded)):
        raise ConfigError(f"rounded is the step to round to, a positive number, not {rounded!r}")


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
