"""Laws: what an engine has learned, as something that graphs and predictions can be drawn from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import numpy as np

from vcuda.data.dataset import Dataset
from vcuda.errors import ConfigError
from vcuda.posterior.samples import GraphSamples

ColumnScaling = Literal["raw", "common", "columns"]


class Prediction(NamedTuple):
    """Rows predicted from their parents, averaged over posterior graphs, in the user's units.

    ``mean`` is ``(n, d)``. ``mse`` is the mean over graphs of the mean squared error of all cells; ``log_density`` is
    ``(n,)``: the logarithm of each row's posterior predictive density.
    """

    mean: np.ndarray
    mse: float
    log_density: np.ndarray


class Law(Protocol):
    """A distribution over DAGs as learned by an engine; saved as a JSON-able ``config`` and named ``arrays``."""

    kind: ClassVar[str]

    def edge_probabilities(self) -> np.ndarray: ...

    def sample(self, rng: np.random.Generator, names: Sequence[str], size: int) -> GraphSamples: ...

    def predict(self, rng: np.random.Generator, values: np.ndarray, graphs: int) -> Prediction: ...

    def config(self) -> dict[str, Any]: ...

    def arrays(self) -> dict[str, np.ndarray]: ...

    @classmethod
    def restore(cls, config: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Law: ...


@dataclass(frozen=True, eq=False)
class Scaling:
    """What was done to the columns before the fit: ``(x - centre) / scale``, both ``(d,)``."""

    centre: np.ndarray
    scale: np.ndarray

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

    def apply(self, values: np.ndarray) -> np.ndarray:
        return (values - self.centre) / self.scale

    def undo(self, scaled: np.ndarray) -> np.ndarray:
        return scaled * self.scale + self.centre

    @property
    def log_jacobian(self) -> float:
        """What one row's log density gains by going from scaled to the user's units."""
        return -float(np.sum(np.log(self.scale)))
