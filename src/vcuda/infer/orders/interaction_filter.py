"""Parents whose effects show only together: a matched filter over pairs of rows.

A function of many parents has hardly any main effects, so that no search which adds one column after the
other to a score sees them. But rows that are close in all parents have close values of the target: with
K_U(a, b) the product over the parents of exp(-(x_a - x_b)² / 2), z(U) = sum y_a y_b K_U / sqrt(sum K_U²) over
pairs of rows is about standard normal for wrong columns and grows with every right one. All one-column
extensions of a set cost two products with a matrix.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

# Kernels and their squares of all columns at all pairs of rows may take this many bytes; rows are left out
# beyond.
FILTER_BYTES = 600e6
BEAM = 4
LARGEST = 9
# Sets of each size whose z is above ALARM are worth an exact score; of 50 columns' best sets by chance few
# are.
SHOWN = 2
ALARM = 5.0


@dataclass(frozen=True, eq=False)
class InteractionFilter:
    """Kernels (d, p) of standardised columns at p pairs of rows, their squares, and which rows the pairs
    are."""

    kernels: np.ndarray
    squares: np.ndarray
    first: np.ndarray
    second: np.ndarray
    columns: np.ndarray

    @classmethod
    def of(cls, columns: np.ndarray) -> InteractionFilter:
        """Prepare the filter for standardised columns (n, d)."""
        rows = _used_rows(columns).astype(np.float32)
        first, second = np.triu_indices(len(rows), 1)
        kernels = np.stack([np.exp(-0.5 * (column[first] - column[second]) ** 2) for column in rows.T])
        return cls(kernels, kernels**2, first, second, rows)

    def search(self, target: int, pool: np.ndarray) -> list[tuple[int, ...]]:
        """Return promising sets of three and more columns of the pool (m,) for a target, by a beam search."""
        column = self.columns[:, target]
        products = column[self.first] * column[self.second]
        # Heavy products of outlying rows would decide alone; three standard deviations are enough for
        # everybody.
        products = np.clip(products, -9.0, 9.0)
        kernels, squares = self.kernels[pool], self.squares[pool]
        beam: list[tuple[int, ...]] = [()]
        found: list[tuple[int, ...]] = []
        for size in range(1, min(LARGEST, pool.size) + 1):
            together = np.stack([kernels[list(some)].prod(axis=0) for some in beam])
            signal = (together * products) @ kernels.T
            spread = np.sqrt(together**2 @ squares.T)
            z = signal / np.maximum(spread, 1e-12)
            for row, some in enumerate(beam):
                z[row, list(some)] = -np.inf
            best: dict[tuple[int, ...], float] = {}
            for flat in np.argsort(-z, axis=None)[: 4 * BEAM]:
                row, extra = divmod(int(flat), pool.size)
                if np.isfinite(z[row, extra]):
                    best.setdefault(tuple(sorted((*beam[row], extra))), float(z[row, extra]))
            beam = sorted(best, key=lambda some: -best[some])[:BEAM]
            if not beam:
                break
            if size == 4 and best[beam[0]] < ALARM:
                break
            if size >= 3:
                found += [some for some in beam[:SHOWN] if best[some] > ALARM]
        return [tuple(int(pool[i]) for i in some) for some in found]


def _used_rows(columns: np.ndarray) -> np.ndarray:
    """The rows of standardised columns (n, d) whose pairs there is room for."""
    most = int(np.sqrt(FILTER_BYTES / (4 * columns.shape[1])))
    return columns[:: max(1, -(-len(columns) // most))]


def seconds_of_searches(columns: np.ndarray, targets: int) -> float:
    """About how long searches for so many targets take on one core, if it makes 10 billion operations a second."""
    rows, nodes = _used_rows(columns).shape
    return 4e-10 * BEAM * LARGEST * targets * nodes * 0.5 * rows**2
