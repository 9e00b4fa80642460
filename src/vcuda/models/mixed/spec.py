"""What people give as a spec: regressions of every kind."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vcuda.errors import ConfigError
from vcuda.models.protocol import LocalScore, ScoreSpec


@dataclass(frozen=True)
class Mixed(ScoreSpec):
    """Every column by a regression of its kind, averaged over what its noise and the effects of its causes may be.

    Parameters
    ----------
    most_rows
        Of a larger table so many rows are drawn at random.
    """

    most_rows: int = 5000

    is_tabulated = True

    def __post_init__(self) -> None:
        if self.most_rows < 10:
            raise ConfigError(f"most_rows must be at least 10, got {self.most_rows}")

    def prepare(self, values: np.ndarray, *, scale: np.ndarray | None = None) -> LocalScore:
        raise ConfigError("model mixed is fitted by vcuda.fit, which knows the kinds of the columns")
