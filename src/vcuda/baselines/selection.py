"""Which inputs a node may have: neighbours by random trees before a fit, significant parents after it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from vcuda.infer.engine import Info


class Candidates(NamedTuple):
    """The inputs that nodes may have, ``(d, d)``, after they were selected for the first ``selected`` nodes."""

    allowed: np.ndarray
    selected: int

    @classmethod
    def start(cls, nodes: int, select_from: int | None) -> Candidates:
        """Every other node; a selection follows from so many nodes on, or never for None."""
        selects = select_from is not None and nodes >= select_from
        return cls(~np.eye(nodes, dtype=bool), 0 if selects else nodes)

    @property
    def is_complete(self) -> bool:
        return self.selected == len(self.allowed)

    def select(self, values: np.ndarray, seed: int) -> Candidates:
        """Those of one more node."""
        allowed = self.allowed.copy()
        allowed[:, self.selected] = likely_inputs(values, self.selected, seed=seed)
        return Candidates(allowed, self.selected + 1)

    def info(self) -> Info:
        return Info(0, 0, 1, f"selecting inputs, {self.selected} of {len(self.allowed)} columns")


def likely_inputs(
    values: np.ndarray, node: int, *, seed: int, trees: int = 500, share: float = 0.75, most: int | None = None
) -> np.ndarray:
    """Candidate parents ``(d,)`` of a node, by the importance of each other column in extremely randomised trees.

    A column stays a candidate when its importance is at least ``share`` times the mean, and among the ``most`` largest.
    The mean is over all d columns, with the target's own, which is zeroed, among them.
    """
    from sklearn.ensemble import ExtraTreesRegressor

    others = values.copy()
    others[:, node] = 0.0
    forest = ExtraTreesRegressor(n_estimators=trees, random_state=np.random.RandomState((seed + node) % 2**32))
    importance = forest.fit(others, values[:, node]).feature_importances_
    largest = np.argsort(-importance, kind="stable")[:most]
    kept = np.zeros(values.shape[1], dtype=bool)
    kept[largest] = importance[largest] >= share * importance.mean()
    kept[node] = False
    return kept


def significant_parents(
    values: np.ndarray, graph: np.ndarray, *, level: float = 1e-3, functions: int = 10
) -> np.ndarray:
    """The edges of a ``(d, d)`` graph that an additive regression of each node on its parents cannot do without.

    The pruning of CAM (Bühlmann, Peters and Ernest 2014): every parent enters by a cubic spline of ``functions`` basis
    functions, and stays when the F test against the regression without it has a p-value below ``level``.
    """
    from scipy.stats import f as f_distribution  # a second to import, for few fits

    rows, kept = len(values), np.zeros_like(graph)
    for node in np.flatnonzero(graph.any(axis=0)):
        parents = np.flatnonzero(graph[:, node])
        # At least three rows for each coefficient, or else straight lines.
        most = min(functions, max(1, rows // (3 * len(parents))))
        blocks = [_spline(values[:, parent], most) for parent in parents]
        target = values[:, node] - values[:, node].mean()
        full, rank = _residual(blocks, target)
        free = rows - 1 - rank
        if free < 1:
            continue
        for k, parent in enumerate(parents):
            reduced, reduced_rank = _residual(blocks[:k] + blocks[k + 1 :], target)
            extra = rank - reduced_rank
            if extra < 1:
                continue
            ratio = (reduced - full) / extra / max(full / free, np.finfo(float).tiny)
            kept[parent, node] = f_distribution.sf(ratio, extra, free) < level
    return kept


def _spline(column: np.ndarray, functions: int) -> np.ndarray:
    """A centred spline basis ``(n, at most functions - 1)``: the constant is left to the intercept."""
    from sklearn.preprocessing import SplineTransformer

    degree = 3
    knots = np.unique(np.quantile(column, np.linspace(0, 1, max(functions - degree + 1, 2))))
    if functions <= degree or len(knots) < 2:
        basis = column[:, None]
    else:
        basis = SplineTransformer(degree=degree, knots=knots[:, None], include_bias=False).fit_transform(
            column[:, None]
        )
    return basis - basis.mean(axis=0)


def _residual(blocks: list[np.ndarray], target: np.ndarray) -> tuple[float, int]:
    """The sum of squares that least squares leaves, and the rank of its design."""
    if not blocks:
        return float(target @ target), 0
    design = np.hstack(blocks)
    coefficients, _, rank, _ = np.linalg.lstsq(design, target, rcond=None)
    left = target - design @ coefficients
    return float(left @ left), int(rank)
