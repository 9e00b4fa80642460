"""Smooth functions of a single column: the leading ones of a squared exponential kernel at its quantiles."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class ColumnBasis(NamedTuple):
    """The basis functions of a standardised column, centred over the rows that were fitted.

    ``anchors`` (p,), ``mixing`` (p, m) of the kernels at the anchors, ``means`` (m,) of the functions; for
    several columns, each has a leading axis d.
    """

    anchors: np.ndarray
    mixing: np.ndarray
    means: np.ndarray

    def of(self, column: int) -> ColumnBasis:
        """Return the basis of one of several columns."""
        return ColumnBasis(self.anchors[column], self.mixing[column], self.means[column])

    def at(self, values: np.ndarray) -> np.ndarray:
        """Return the functions (n, m) at standardised values (n,)."""
        return np.exp(-0.5 * (values[:, None] - self.anchors) ** 2) @ self.mixing - self.means

    def shifted(self, shifts: np.ndarray) -> ColumnBasis:
        """Return the same functions of columns from which shifts (d,) were taken away."""
        return self._replace(anchors=self.anchors - shifts[:, None])

    def expand(self, rows: np.ndarray) -> np.ndarray:
        """Return the functions (n, d m) of several columns at standardised rows (n, d)."""
        return np.concatenate([self.of(node).at(column) for node, column in enumerate(rows.T)], axis=1)
