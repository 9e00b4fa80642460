"""Units: what was done to the columns before a fit, how it is undone, and what densities gain by it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from vcuda.data.dataset import Dataset
from vcuda.errors import ConfigError, DataError

ColumnScaling = Literal["raw", "common", "columns"]


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

    def column_log_jacobians(self, values: np.ndarray, free: np.ndarray | None = None) -> np.ndarray:
        """The same of all cells of each column ``(d,)``, or of those that are ``free`` ``(n, d)``: an experiment set
        the others, and they have no density."""
        logs = np.log(values[:, self.logarithm])
        if free is None:
            return self.log_jacobians_of(np.full(len(self.scale), len(values)), logs.sum(axis=0))
        return self.log_jacobians_of(free.sum(axis=0), np.where(free[:, self.logarithm], logs, 0.0).sum(axis=0))

    def log_jacobians_of(self, cells: np.ndarray, log_sums: np.ndarray) -> np.ndarray:
        """The same from how many cells each column has ``(d,)``, and from the sums of the logarithms of those columns
        that are taken by it, in their order."""
        each = -cells * np.log(self.scale)
        each[self.logarithm] -= log_sums
        return each

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


def units_log_jacobian(cells: int | np.ndarray, scale: np.ndarray) -> float:
    """What the log density of a table gains by going from columns in units ``scale`` (d,) to the columns themselves;
    ``cells`` is how many each column has, one number or (d,)."""
    logs = np.log(scale)
    return -cells * float(logs.sum()) if isinstance(cells, int) else -float(cells @ logs)


def check_shapes(arrays: Mapping[str, np.ndarray], expected: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse named arrays that have not the shapes expected of them."""
    for name, shape in expected.items():
        if arrays[name].shape != shape:
            raise ConfigError(f"{name} must have the shape {shape}, not {arrays[name].shape}")
