"""Posteriors of time series: which of their columns are earlier steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import pandas as pd


class Lagged(NamedTuple):
    """The d columns of the present step of a posterior, and how many steps back its other columns go."""

    names: tuple[str, ...]
    lags: int
    step: str

    @classmethod
    def of(cls, provenance: Mapping[str, Any]) -> Lagged | None:
        """From how a posterior was made; None where its rows were taken as independent."""
        stored = provenance.get("series")
        return None if stored is None else cls(tuple(stored["names"]), int(stored["lags"]), str(stored["step"]))

    @property
    def nodes(self) -> int:
        return len(self.names)

    def by_lag(self, edges: np.ndarray) -> np.ndarray:
        """Numbers of edges ``(D, D)`` as ``(lags + 1, d, d)``: from each column, so many steps back, to each other."""
        return edges[:, : self.nodes].reshape(self.lags + 1, self.nodes, self.nodes)

    def table(self, probabilities: np.ndarray, minimum: float) -> pd.DataFrame:
        """Every edge that there may be, with its lag and its probability, the surest first."""
        import pandas as pd

        every = self.by_lag(probabilities)
        may_be = np.ones(every.shape, dtype=bool)
        may_be[0][np.diag_indices(self.nodes)] = False
        lags, sources, targets = np.nonzero(may_be & (every >= minimum))
        probability = every[lags, sources, targets]
        order = np.argsort(-probability, kind="stable")
        names = np.asarray(self.names, dtype=object)
        return pd.DataFrame(
            {
                "source": names[sources[order]],
                "target": names[targets[order]],
                "lag": lags[order],
                "probability": probability[order],
            }
        )

    def later(self, lag: int) -> str:
        """When a cause acts, in words."""
        return f"{self.step_in_words(lag)} later" if lag else "at once"

    def step_in_words(self, count: int) -> str:
        """So many steps."""
        called = "step" if self.step in ("row", "step") else self.step
        if not called[0].isalpha():
            called = "step"
        return f"{count} {called}{'' if count == 1 else 's'}"
