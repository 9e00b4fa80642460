"""Predictive and Mechanism: what a family predicts for new rows, and functions drawn from its posterior.

A score integrates weights and noise out; its prediction does the same given the fitted table, so that log p(new row |
table) is what the score of the table gains by the row. Mechanisms are drawn from the same posterior, so that what they
say of effects is as sure as the score is, no more and no less. All numbers are in the units of the score.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np
from scipy.special import gammaln, logsumexp, ndtri, stdtr

from vcuda.data.kinds import ColumnLabels, Kind
from vcuda.data.scaling import Scaling
from vcuda.errors import ConfigError

if TYPE_CHECKING:
    from vcuda.data.dataset import Dataset
    from vcuda.models.protocol import LocalScore

# A node, its parents in some of the graphs that were drawn, and which graphs these are.
ParentSets = Iterable[tuple[int, np.ndarray, list[int]]]
# Quantiles beyond this are not distinguished: 37 standard deviations.
LEAST_CHANCE = 1e-300


class Prediction(NamedTuple):
    """Rows predicted from their parents, averaged over posterior graphs, in the user's units.

    ``mean`` is ``(n, d)``; for a column that was fitted on its logarithm it is the exponential of the logarithm's mean,
    and so what one graph predicts is the median. ``mse`` is the mean over graphs of the mean squared error of all
    cells; ``log_density`` is ``(n,)``: the logarithm of each row's posterior predictive density.
    Of categories ``mean`` is the code of the most probable label, ``accuracy`` the share of cells in which it is right,
    and there is no ``mse``. In a table of several kinds ``mse`` is that of numbers and counts, ``accuracy`` that of
    all other columns, and ``shares`` has the probabilities ``(n, l)`` of the levels of each of these, which
    ``levels`` ``(l,)`` lists by their values.
    """

    mean: np.ndarray
    mse: float
    log_density: np.ndarray
    accuracy: float | None = None
    shares: tuple[np.ndarray | None, ...] | None = None
    levels: tuple[np.ndarray, ...] | None = None

    def with_likely_levels(self, values: np.ndarray) -> Prediction:
        """The same with the most probable levels as means, and how often these are those of the rows ``(n, d)``."""
        if self.shares is None or self.levels is None:
            return self
        mean, right = self.mean.copy(), list[float]()
        for k, (own, levels) in enumerate(zip(self.shares, self.levels, strict=True)):
            if own is not None:
                mean[:, k] = levels[own.argmax(axis=1)]
                right.append(float(np.mean(mean[:, k] == values[:, k])))
        return self._replace(mean=mean, accuracy=float(np.mean(right)) if right else None)


class Predicted(NamedTuple):
    """One column given its parents, for every row: mean and log density, both ``(n,)``, in scaled units."""

    mean: np.ndarray
    log_density: np.ndarray


class Tails(NamedTuple):
    """The predictive distribution of one column given its parents, at the value of every row: the probabilities of less
    and of more, both ``(n,)``. Their sum is one for numbers, and less where the value itself has a probability."""

    below: np.ndarray
    above: np.ndarray

    @classmethod
    def of_shares(cls, shares: np.ndarray, places: np.ndarray) -> Tails:
        """Of levels with probabilities ``(n, l)``, at the places ``(n,)`` of the rows among them."""
        order = np.arange(shares.shape[1])
        below = np.where(order < places[:, None], shares, 0.0).sum(axis=1)
        return cls(below, np.where(order > places[:, None], shares, 0.0).sum(axis=1))

    def normal_scores(self, rng: np.random.Generator) -> np.ndarray:
        """Randomised quantile residuals ``(n,)``: standard normal, and independent of the parents, under the model.

        Where a value has a probability, its quantile is drawn from those that it covers.
        """
        at, chance = np.maximum(1.0 - self.below - self.above, 0.0), rng.random(self.below.size)
        low, high = self.below + chance * at, self.above + (1.0 - chance) * at
        # From the nearer end: next to one a probability has few digits.
        scores = np.where(low < high, ndtri(np.maximum(low, LEAST_CHANCE)), -ndtri(np.maximum(high, LEAST_CHANCE)))
        return np.asarray(scores, dtype=np.float64)


class Mechanism(NamedTuple):
    """One node as drawn: ``function`` of its parents ``(n, k)`` plus normal noise of standard deviation ``noise``.

    A linear function also has its ``slopes`` ``(k,)`` and its ``intercept``.
    """

    function: Callable[[np.ndarray], np.ndarray]
    noise: float
    slopes: np.ndarray | None = None
    intercept: float = 0.0

    @classmethod
    def linear(cls, slopes: np.ndarray, intercept: float, noise: float) -> Mechanism:
        return cls(lambda inputs: inputs @ slopes + intercept, noise, slopes, intercept)

    # One row: its noise, what it would be with the same noise and other parents, and other noise.

    @property
    def noise_is_identified(self) -> bool:
        """Whether a value and its parents leave one noise only."""
        return True

    def noise_of(self, inputs: np.ndarray, values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """The noise ``(n,)`` that makes the values ``(n,)`` of parents ``(n, k)``, in standard deviations."""
        return (values - self.function(inputs)) / self.noise

    def with_noise(self, inputs: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """The node ``(n,)`` given parents ``(n, k)`` and this noise."""
        return self.function(inputs) + self.noise * noise

    def any_noise(self, rng: np.random.Generator, rows: int) -> np.ndarray:
        """Noise ``(rows,)`` as it is drawn."""
        return rng.standard_normal(rows)


class SimulatedMechanism(Protocol):
    """One node as drawn, of any kind and with any noise: it is simulated, its noise is in no sum."""

    @property
    def slopes(self) -> None: ...

    @property
    def levels(self) -> np.ndarray | None:
        """The values ``(l,)`` that the node can have, in order; None for a number and a count."""
        ...

    def expected(self, inputs: np.ndarray) -> np.ndarray:
        """The expected value ``(n,)`` given parents ``(n, k)``, in the user's units."""
        ...

    def simulate(self, inputs: np.ndarray, chances: np.ndarray) -> np.ndarray:
        """The node ``(n,)`` given parents ``(n, k)``, at the quantiles ``chances`` ``(n,)``."""
        ...

    @property
    def noise_is_identified(self) -> bool:
        """Whether a value and its parents leave one noise only; else :meth:`noise_of` draws one of those left."""
        ...

    def noise_of(self, inputs: np.ndarray, values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """The noise ``(n,)`` that makes the values ``(n,)`` of parents ``(n, k)``."""
        ...

    def with_noise(self, inputs: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """The node ``(n,)`` given parents ``(n, k)`` and this noise."""
        ...

    def any_noise(self, rng: np.random.Generator, rows: int) -> np.ndarray:
        """Noise ``(rows,)`` as it is drawn."""
        ...


class NodePosterior(Protocol):
    """What the table says of one node given its parents; ``shared`` is what all nodes of a graph have in common."""

    def draw(self, rng: np.random.Generator, shared: float | None) -> Any:
        """A `Mechanism`, or a `SimulatedMechanism` in tables of several kinds."""
        ...


class SharedParameter(Protocol):
    """A parameter that all nodes share, such as one noise variance, drawn given the nodes of a graph."""

    def draw(self, rng: np.random.Generator, nodes: Callable[[], Sequence[NodePosterior]]) -> float:
        """Draw it; ``nodes`` gives what the table says of each node, which may take a while."""
        ...


class Predictive:
    """What a score says of new rows; saved as a JSON-able ``config``, which names the kind, and named ``arrays``.

    A family brings a class of its own, with its ``kind``, :meth:`column`, :meth:`node` and how it is stored. Scores of
    single sets (:meth:`local_score`) are for the most probable of drawn graphs, and None where they take too long.
    """

    kind: ClassVar[str]
    # What earlier versions wrote in place of the kind.
    earlier_kinds: ClassVar[tuple[str, ...]] = ()
    # Rows whose residuals are quick to compute.
    quick_rows: ClassVar[int] = 2000

    if TYPE_CHECKING:

        @property
        def labels(self) -> ColumnLabels | None:
            """The labels of each column that holds labels; None where none does."""
            ...

        @property
        def kinds(self) -> tuple[Kind, ...] | None:
            """The kind of each column in a table of several kinds; None where the model takes one kind only."""
            ...

        @property
        def scaling(self) -> Scaling:
            """From the user's units to those of the score."""
            ...

    else:
        labels = None
        kinds = None

    def column(self, target: int, parents: np.ndarray, scaled: np.ndarray) -> Predicted:
        """Predict column ``target`` of the scaled rows ``(n, d)`` from its parents."""
        raise NotImplementedError

    @property
    def has_tails(self) -> bool:
        """Whether :meth:`tails` is known: model checks need it."""
        return type(self).tails is not Predictive.tails

    def tails(self, target: int, parents: np.ndarray, scaled: np.ndarray) -> Tails:
        """Where column ``target`` of the scaled rows ``(n, d)`` lies in its distribution given its parents."""
        raise ConfigError(f"predictions of the kind {self.kind!r} have no distribution function")

    def residuals(self, target: int, parents: np.ndarray, scaled: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Residuals ``(n,)`` of a column of any kind in the scaled rows ``(n, d)``: standard normal under the model."""
        return self.tails(target, parents, scaled).normal_scores(rng)

    def learned_from(self, values: np.ndarray, held: np.ndarray | None) -> Predictive:
        """The same learned from few of the fitted rows ``(n, d)``, in the user's units and with the cells ``held`` that
        an experiment set, where predictions from many rows take long."""
        return self

    def config(self) -> dict[str, Any]:
        raise NotImplementedError

    def arrays(self) -> dict[str, np.ndarray]:
        raise NotImplementedError

    @classmethod
    def restore(cls, config: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Self:
        raise NotImplementedError

    def node(self, target: int, parents: np.ndarray) -> NodePosterior:
        """What the fitted table says of a node's function of these parents, and of its noise."""
        raise ConfigError(f"no functions can be drawn from predictions of the kind {self.kind!r}")

    def shared_parameter(self, cells: int | None = None) -> SharedParameter | None:
        """What all nodes share, known from so many cells, by default all; None where each node has its own."""
        return None

    def local_score(self) -> LocalScore | None:
        """The score of sets of parents, in these units."""
        return None

    def column_products(self, outcome: int) -> tuple[int, np.ndarray] | None:
        """The number of rows in which a column was free, and the products ``(d, d)`` of all centred columns there, in
        these units, for questions about regressions of that column; None where they are not kept."""
        return None

    def fitted_table(self, names: Sequence[str]) -> Dataset | None:
        """The fitted rows in the user's units, as far as they are kept; None where they are not."""
        return None

    def predict(self, sets: ParentSets, graphs: int, values: np.ndarray, names: Sequence[str] | None) -> Prediction:
        """Rows ``(n, d)`` in the user's units, averaged over so many graphs of equal weight, whose ``sets`` of parents
        come node by node."""
        scaling = self.scaling
        scaled = scaling.apply(values, names)
        mean, squared, log_density = np.zeros(values.shape), 0.0, np.zeros((graphs, len(values)))
        for target, parents, members in sets:
            prediction = self.column(target, parents, scaled)
            share = len(members) / graphs
            mean[:, target] += share * prediction.mean
            undone = scaling.of(target).undo(prediction.mean[:, None])[:, 0]
            squared += share * float(np.mean((values[:, target] - undone) ** 2))
            log_density[members] += prediction.log_density
        total = logsumexp(log_density, axis=0) - np.log(graphs) + scaling.log_jacobian(values)
        return Prediction(scaling.undo(mean), squared / values.shape[1], total)


def log_student(squares: np.ndarray, squared_scale: np.ndarray, freedom: float) -> np.ndarray:
    """Log densities of Student-t variables, from squared distances to their centres."""
    # Spelt out because importing scipy.stats takes longer than a small fit.
    normaliser = gammaln((freedom + 1) / 2) - gammaln(freedom / 2) - 0.5 * np.log(np.pi * freedom * squared_scale)
    return normaliser - (freedom + 1) / 2 * np.log1p(squares / (freedom * squared_scale))


def student_tails(away: np.ndarray, squared_scale: np.ndarray, freedom: float) -> Tails:
    """Tails of Student-t variables, from distances to their centres."""
    scaled = away / np.sqrt(squared_scale)
    return Tails(stdtr(freedom, scaled), stdtr(freedom, -scaled))
