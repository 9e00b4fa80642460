"""Laws: what an engine has learned, as something that graphs and predictions can be drawn from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol

import numpy as np

from vcuda.data.dataset import Dataset
from vcuda.errors import ConfigError, DataError
from vcuda.posterior.samples import GraphSamples

if TYPE_CHECKING:
    from vcuda.posterior.mechanisms import CausalModel

ColumnScaling = Literal["raw", "common", "columns"]


class Prediction(NamedTuple):
    """Rows predicted from their parents, averaged over posterior graphs, in the user's units.

    ``mean`` is ``(n, d)``; for a column that was fitted on its logarithm it is the exponential of the logarithm's mean,
    and so what one graph predicts is the median. ``mse`` is the mean over graphs of the mean squared error of all
    cells; ``log_density`` is ``(n,)``: the logarithm of each row's posterior predictive density.
    Of categories ``mean`` is the code of the most probable label, ``accuracy`` the share of cells in which it is right,
    and there is no ``mse``.
    """

    mean: np.ndarray
    mse: float
    log_density: np.ndarray
    accuracy: float | None = None


class Predicted(NamedTuple):
    """One column given its parents, for every row: mean and log density, both ``(n,)``, in scaled units."""

    mean: np.ndarray
    log_density: np.ndarray


class GraphPosterior(Protocol):
    """A distribution over DAGs as learned by an engine; saved as a JSON-able ``config`` and named ``arrays``."""

    kind: ClassVar[str]

    def edge_probabilities(self) -> np.ndarray: ...

    def sample(self, rng: np.random.Generator, names: Sequence[str], size: int) -> GraphSamples: ...

    def predict(
        self, rng: np.random.Generator, values: np.ndarray, graphs: int, *, names: Sequence[str] | None = None
    ) -> Prediction: ...

    def models(self, rng: np.random.Generator, names: Sequence[str], size: int) -> Iterator[CausalModel]:
        """Graphs with functions for their nodes, drawn together; a ConfigError where there are no functions."""
        ...

    def config(self) -> dict[str, Any]: ...

    def arrays(self) -> dict[str, np.ndarray]: ...

    @classmethod
    def restore(cls, config: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> GraphPosterior: ...


@dataclass(frozen=True, eq=False)
class Scaling:
    """What was done to the columns before the fit: ``(f(x) - centre) / scale``, f the logarithm or nothing.

    All three are ``(d,)``; ``logarithm`` says of which columns the logarithm was taken, by default of none.
    """

    centre: np.ndarray
    scale: np.ndarray
    logarithm: np.ndarray = field(default_factory=lambda: np.array(False))

    def __post_init__(self) -> None:
        logarithm = np.asarray(self.logarithm)
        if self.centre.ndim != 1 or self.scale.shape != self.centre.shape or logarithm.dtype != np.bool_:
            raise ConfigError(
                "a scaling needs centres and scales of one length and booleans for the logarithms; their shapes are "
                f"{self.centre.shape} and {self.scale.shape}, and the type of the last is {logarithm.dtype}"
            )
        if logarithm.shape not in ((), self.centre.shape):
            raise ConfigError(f"a scaling of {len(self.centre)} columns got logarithms of shape {logarithm.shape}")
        object.__setattr__(self, "logarithm", np.broadcast_to(logarithm, self.centre.shape).copy())

    @classmethod
    def choose(cls, data: Dataset, rule: ColumnScaling) -> Scaling:
        """Nothing, one factor for all columns (the root of their mean variance), or z-scores."""
        if rule == "raw":
            return cls(np.zeros(data.d), np.ones(data.d))
        if rule == "common":
            return cls(data.mean, np.full(data.d, np.sqrt(np.mean(data.scale**2))))
        if rule == "columns":
            return cls(data.mean, data.scale)
        raise ConfigError(f"scaling must be raw, common or columns, not {rule!r}")

    def then(self, inner: Scaling) -> Scaling:
        """This scaling and after it another one, as one: ``then(inner).apply(x) == inner.apply(apply(x))``.

        So an engine that was given columns on another scale can be told the user's units. A logarithm can come second
        only where nothing was taken away first.
        """
        second = inner.logarithm
        if np.any(second & (self.logarithm | (self.centre != 0))):
            raise ConfigError("the logarithm of a column that was centred, or of a logarithm, is no scaling of its own")
        return Scaling(
            centre=np.where(second, np.log(self.scale) + inner.centre, self.centre + self.scale * inner.centre),
            scale=np.where(second, inner.scale, self.scale * inner.scale),
            logarithm=self.logarithm | second,
        )

    def of(self, column: int) -> Scaling:
        """The scaling of one column."""
        only = slice(column, column + 1)
        return Scaling(self.centre[only], self.scale[only], self.logarithm[only])

    def apply(self, values: np.ndarray, names: Sequence[str] | None = None) -> np.ndarray:
        """Rows ``(n, d)`` as the fit saw them; a value without a logarithm is refused, by the names of the columns."""
        rows, columns = np.nonzero(values[:, self.logarithm] <= 0)
        if rows.size:
            column = int(np.flatnonzero(self.logarithm)[columns[0]])
            named = f"column {column}" if names is None else f"column {names[column]!r}"
            raise DataError(
                f"{named} was fitted on its logarithm, but data row {rows[0] + 1:,} has {values[rows[0], column]:g}; "
                "expected positive numbers: leave such rows out, or fit without logarithms"
            )
        return (self._logarithms(values) - self.centre) / self.scale

    def undo(self, scaled: np.ndarray) -> np.ndarray:
        """Rows in the user's units; beyond the largest number there is infinity."""
        values = np.asarray(scaled * self.scale + self.centre)
        with np.errstate(over="ignore"):
            values[:, self.logarithm] = np.exp(values[:, self.logarithm])
        return values

    def log_jacobian(self, values: np.ndarray) -> np.ndarray:
        """What the log density of each row ``(n,)`` gains by going from scaled to the user's units."""
        return -np.log(self.scale).sum() - np.log(values[:, self.logarithm]).sum(axis=1)

    def _logarithms(self, values: np.ndarray) -> np.ndarray:
        if not self.logarithm.any():
            return values
        changed = np.array(values, dtype=np.float64)
        changed[:, self.logarithm] = np.log(changed[:, self.logarithm])
        return changed

    def arrays(self) -> dict[str, np.ndarray]:
        return {"centre": self.centre, "scale": self.scale, "logarithm": self.logarithm}

    @classmethod
    def restore(cls, arrays: Mapping[str, np.ndarray]) -> Scaling:
        """From stored arrays; runs from before there were logarithms have none."""
        logarithm = arrays.get("logarithm", np.zeros(arrays["centre"].shape, dtype=bool))
        check_shapes({"logarithm": logarithm}, {"logarithm": arrays["centre"].shape})
        return cls(arrays["centre"], arrays["scale"], logarithm)


def check_shapes(arrays: Mapping[str, np.ndarray], expected: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse named arrays that have not the shapes expected of them."""
    for name, shape in expected.items():
        if arrays[name].shape != shape:
            raise ConfigError(f"{name} must have the shape {shape}, not {arrays[name].shape}")


def mixture_shares(rng: np.random.Generator, weights: np.ndarray, size: int) -> list[tuple[int, int]]:
    """How many of ``size`` draws fall to each member of a mixture, for those that get any."""
    return [(k, int(n)) for k, n in enumerate(rng.multinomial(size, weights)) if n]


def sample_mixture(
    rng: np.random.Generator,
    names: Sequence[str],
    weights: np.ndarray,
    size: int,
    draw: Callable[[np.random.Generator, int, int, Sequence[str]], GraphSamples],
) -> GraphSamples:
    """Graphs of a mixture in random order; ``draw(rng, member, size, names)`` gives those of one member."""
    parts = [draw(rng, k, n, names) for k, n in mixture_shares(rng, weights, size)]
    joined = GraphSamples.from_counts(
        names,
        np.concatenate([part.edge_counts() for part in parts]),
        np.concatenate([part.sources for part in parts]),
        np.concatenate([part.targets for part in parts]),
    )
    return joined.take(rng.permutation(size)) if len(parts) > 1 else joined
