"""Tables that depart from the model in one way each, with the graph and the effects that are true of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from benchmarks.honesty.worlds import MANY_ROWS, Maker, World, cubed, curves, distorted, of_kinds, squashed
from vcuda.data.random_models import Edges
from vcuda.data.simulate import Simulation, random_weights, simulate
from vcuda.graphs import ancestors

OUTLIERS = 0.01
# Of the variance of a column that is measured with errors, this share is error.
ERROR_SHARE = 0.3
# Where most pairs are joined: so many of them, by weights of such sizes.
WEAKLY_JOINED, WEAK = 0.8, (0.1, 0.4)
# How strongly the noise of a row depends on that of the row before.
SERIAL = 0.9

# By how much the expected outcome (0/1 columns: the probability of 1) changes when a cause is set from low to high.
Change = Callable[[int, int, float, float], float]
Group = Literal["control", "shape", "rows"]


class Made(NamedTuple):
    """A table as a file would give it, the true graph (d, d) and the true effects."""

    table: pd.DataFrame
    truth: np.ndarray
    change: Change


class Departure(NamedTuple):
    """How tables are made, from columns, rows and seed; what they are, in words; and what may be asked of the fit.

    ``control``: the model holds. ``shape``: noise, functions or kinds of columns, which a family can express.
    ``rows``: hidden causes, selection, errors, dependent rows, which none can.
    """

    group: Group
    make: Callable[[int, int, int], Made]
    words: str


def make(name: str, *, nodes: int, rows: int, seed: int) -> Made:
    """A table of a departure; the same seed gives the same graph with all departures that `simulate` begins."""
    return DEPARTURES[name].make(nodes, rows, seed)


# What `simulate` makes ----------------------------------------------------------------------------------------


def simulated(nodes: int, rows: int, seed: int, **options: Any) -> Made:
    made = _simulation(nodes, rows, seed, **options)
    return Made(made.train.to_frame(), made.graph, by_paths(_weights(made)))


def _simulation(nodes: int, rows: int, seed: int, **options: Any) -> Simulation:
    """Linear, with noise of unequal variance, and as many expected edges as columns."""
    settings: dict[str, Any] = {"noise": "unequal", "test_rows": 1} | options
    return simulate("er", nodes=nodes, edges=nodes, mechanism="linear", rows=rows, seed=seed, **settings)


def _weights(made: Simulation) -> np.ndarray:
    assert made.weights is not None  # the mechanism is linear
    return made.weights


def totals(weights: np.ndarray) -> np.ndarray:
    """The total effects (d, d) along all paths; exactly zero where there is none."""
    return np.where(ancestors(weights != 0), np.linalg.inv(np.eye(len(weights)) - weights), 0.0)


def by_paths(*weights: np.ndarray) -> Change:
    """Linear effects; with several matrices of weights those of populations of the same size."""
    total = np.mean([totals(own) for own in weights], axis=0)
    return lambda cause, outcome, low, high: float(total[cause, outcome] * (high - low))


# What is recorded of such tables ------------------------------------------------------------------------------


def cut(nodes: int, rows: int, seed: int) -> Made:
    """Every second column says only whether the value lies above the median; what it causes follows the value."""
    made = _simulation(nodes, rows, seed, test_rows=MANY_ROWS)
    frame, total, many = made.train.to_frame(), totals(_weights(made)), made.test.values
    halves = {k: float(np.median(made.train.values[:, k])) for k in every_second(nodes)}
    for column, median in halves.items():
        name = made.train.names[column]
        frame[name] = (frame[name] > median).astype(np.int64)

    def change(cause: int, outcome: int, low: float, high: float) -> float:
        if total[cause, outcome] == 0:
            return 0.0
        before, after = (expected(cause, outcome, value) for value in (low, high))
        return after - before

    def expected(cause: int, outcome: int, value: float) -> float:
        own: np.ndarray | float = value
        if cause in halves:
            # Who is put above the median has a value from there.
            side = many[(many[:, cause] > halves[cause]) == bool(value), cause]
            own = np.random.default_rng([seed, cause]).choice(side, MANY_ROWS)
        moved = many[:, outcome] + total[cause, outcome] * (own - many[:, cause])
        return float(np.mean(moved > halves[outcome] if outcome in halves else moved))

    return Made(frame, made.graph, change)


def weakly_joined(nodes: int, rows: int, seed: int) -> Made:
    """Most pairs of columns are joined, by weak linear effects."""
    rng = np.random.default_rng([seed, 8])
    weights = rng.uniform(*WEAK, (nodes, nodes)) * rng.choice([-1, 1], (nodes, nodes))
    weights *= np.triu(rng.random((nodes, nodes)) < WEAKLY_JOINED, 1)
    order = rng.permutation(nodes)
    weights = weights[np.ix_(order, order)]
    noise = rng.standard_normal((rows, nodes)) * np.sqrt(rng.uniform(0.5, 2, nodes))
    return Made(_frame(_along(noise, weights)), weights != 0, by_paths(weights))


def measured_with_errors(nodes: int, rows: int, seed: int) -> Made:
    """Independent errors on every column; effects are those between the values without errors."""
    made = _simulation(nodes, rows, seed)
    values = made.train.values
    sizes = values.std(axis=0) * np.sqrt(ERROR_SHARE / (1 - ERROR_SHARE))
    errors = sizes * np.random.default_rng([seed, 1]).standard_normal(values.shape)
    return Made(_frame(values + errors), made.graph, by_paths(_weights(made)))


def selected(nodes: int, rows: int, seed: int) -> Made:
    """Only rows in the upper half of the column with the most causes are in the table; effects are those in all."""
    made = _simulation(nodes, 2 * rows, seed)
    values = made.train.values
    own = values[:, selecting(made.graph)]
    # Ties have probability zero; argsort keeps exactly half of the rows, in the order in which they were drawn.
    kept = np.sort(np.argsort(own)[rows:])
    return Made(_frame(values[kept]), made.graph, by_paths(_weights(made)))


def selecting(graph: np.ndarray) -> int:
    """The column with the most causes."""
    return int(graph.sum(axis=0).argmax())


# Linear tables whose noise is not independent -----------------------------------------------------------------


def hidden_of_pairs(nodes: int, rows: int, seed: int) -> Made:
    """Random pairs of columns, each column in one at most, have a hidden cause each."""
    rng = np.random.default_rng([seed, 2])
    pairs = rng.permutation(nodes)[: nodes // 2 * 2].reshape(-1, 2)
    loads = np.zeros((len(pairs), nodes))
    loads[np.arange(len(pairs))[:, None], pairs] = random_weights(rng, pairs.size).reshape(pairs.shape)
    return _hidden(nodes, rows, seed, loads, rng)


def hidden_of_all(nodes: int, rows: int, seed: int) -> Made:
    """One hidden cause of all columns."""
    rng = np.random.default_rng([seed, 3])
    return _hidden(nodes, rows, seed, random_weights(rng, nodes)[None], rng)


def _hidden(nodes: int, rows: int, seed: int, loads: np.ndarray, rng: np.random.Generator) -> Made:
    """``loads`` (h, d) are the weights of hidden causes of variance one."""
    made = _simulation(nodes, 1, seed)
    noise = made.noise_scales * rng.standard_normal((rows, nodes))
    noise += rng.standard_normal((rows, len(loads))) @ loads
    return Made(_frame(_along(noise, _weights(made))), made.graph, by_paths(_weights(made)))


def _along(noise: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The rows (n, d) that noise (n, d) becomes along the edges."""
    return np.asarray(noise @ np.linalg.inv(np.eye(len(weights)) - weights))


def two_populations(nodes: int, rows: int, seed: int) -> Made:
    """Half of the rows, in random order, have other means and other weights on the same edges."""
    rng = np.random.default_rng([seed, 4])
    made = _simulation(nodes, 1, seed)
    first, graph = _weights(made), made.graph
    second = np.zeros_like(first)
    second[graph] = random_weights(rng, int(graph.sum()))
    means = random_weights(rng, nodes)
    noise = made.noise_scales * rng.standard_normal((rows, nodes))
    one = rng.permutation(rows) < rows // 2
    noise[~one] += means
    values = np.where(one[:, None], _along(noise, first), _along(noise, second))
    return Made(_frame(values), graph, by_paths(first, second))


def serial(nodes: int, rows: int, seed: int) -> Made:
    """The noise of every column is an autoregression along the rows."""
    rng = np.random.default_rng([seed, 5])
    made = _simulation(nodes, 1, seed)
    noise = rng.standard_normal((rows, nodes))
    for row in range(1, rows):
        noise[row] = SERIAL * noise[row - 1] + np.sqrt(1 - SERIAL**2) * noise[row]
    weights = _weights(made)
    return Made(_frame(_along(made.noise_scales * noise, weights)), made.graph, by_paths(weights))


def random_walks(nodes: int, rows: int, seed: int) -> Made:
    """Columns that have nothing to do with each other, each a random walk along the rows."""
    steps = np.random.default_rng([seed, 6]).standard_normal((rows, nodes))
    nothing = np.zeros((nodes, nodes))
    return Made(_frame(steps.cumsum(axis=0)), nothing.astype(bool), by_paths(nothing))


# Other functions and kinds ------------------------------------------------------------------------------------


def structural(nodes: int, rows: int, seed: int, of: Callable[[np.ndarray], Maker], whole: bool = False) -> Made:
    """A world on the graph and with the noise that `simulate` has; every second column is ``whole`` numbers."""
    made = _simulation(nodes, 1, seed)
    world = World(Edges.of(made.sources, made.targets, nodes), nodes, of(made.noise_scales), seed)
    frame = _frame(world.rows(rows))
    for column in every_second(nodes) if whole else ():
        name = frame.columns[column]
        frame[name] = frame[name].astype(np.int64)
    return Made(frame, world.graph, world.change)


def every_second(nodes: int) -> range:
    return range(1, nodes, 2)


def _half(kind: str) -> Callable[[int, int, int], Made]:
    def of(scales: np.ndarray) -> Maker:
        return of_kinds(scales, [kind if k in every_second(scales.size) else "number" for k in range(scales.size)])

    return partial(structural, of=of, whole=True)


def _frame(values: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame(values, columns=[f"X{k}" for k in range(1, values.shape[1] + 1)])


DEPARTURES: dict[str, Departure] = {
    "linear, equal noise": Departure(
        "control", partial(simulated, noise="equal"), "linear functions, Gaussian noise of one variance"
    ),
    "linear, unequal noise": Departure("control", simulated, "linear functions, Gaussian noise of variances 0.5 to 2"),
    "smooth functions": Departure(
        "control",
        partial(structural, of=partial(curves, noise="gaussian")),
        "functions drawn from a Gaussian process, Gaussian noise",
    ),
    "many weak edges": Departure(
        "shape", weakly_joined, "80 % of the pairs are joined, by weak linear effects, Gaussian noise"
    ),
    "uniform noise": Departure("shape", partial(simulated, noise_family="uniform"), "linear functions, uniform noise"),
    "exponential noise": Departure(
        "shape", partial(simulated, noise_family="exponential"), "linear functions, exponential noise"
    ),
    "Laplace noise": Departure("shape", partial(simulated, noise_family="laplace"), "linear functions, Laplace noise"),
    "curves, exponential noise": Departure(
        "shape",
        partial(structural, of=partial(curves, noise="exponential")),
        "functions drawn from a Gaussian process, exponential noise",
    ),
    "spread by causes": Departure(
        "shape", partial(simulated, spread="causes"), "linear functions, and the spread of the noise depends on causes"
    ),
    "cubed effects": Departure(
        "shape",
        partial(structural, of=partial(distorted, distortion=cubed, once=True)),
        "effects are cubes of sums (effects of cubes are not cubed again)",
    ),
    "squashed effects": Departure(
        "shape", partial(structural, of=partial(distorted, distortion=squashed)), "every effect is the tanh of a sum"
    ),
    "outliers": Departure(
        "shape", partial(simulated, outliers=OUTLIERS), "1 % of the cells lie 5 to 10 standard deviations away"
    ),
    "0/1 columns": Departure("shape", _half("yes/no"), "every second column is 0 or 1, by logistic regressions"),
    # Effects follow a value that is not in the table: no description of the columns that are there can be true.
    "cut at the median": Departure(
        "rows", cut, "every second column says only whether a number is above its median; its effects follow the number"
    ),
    "counts": Departure("shape", _half("count"), "every second column is a count, by Poisson regressions"),
    "hidden causes of pairs": Departure("rows", hidden_of_pairs, "three pairs of columns have a hidden cause each"),
    "one hidden cause": Departure("rows", hidden_of_all, "all columns have one hidden cause"),
    "errors of measurement": Departure("rows", measured_with_errors, "30 % of the variance of every column is error"),
    "selected rows": Departure("rows", selected, "only rows in the upper half of the column with the most causes"),
    "two populations": Departure("rows", two_populations, "half of the rows have other means and other weights"),
    "AR rows": Departure("rows", serial, "noise that is an autoregression (0.9) along the rows"),
    "random walks": Departure("rows", random_walks, "independent random walks along the rows, no edges"),
}
