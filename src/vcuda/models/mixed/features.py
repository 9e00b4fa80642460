"""What a column is to its effects: the features of a cause, a line or smooth curves, and one of each label.

Features are scaled so that every weight has a standard normal prior. Those of different kinds of columns are scaled
alike, so that no kind is preferred as a cause: a line and the labels have the prior variance two, as in BGe.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

# Curves that a number has beside its line: the first functions of a Gaussian process of length scale one.
CURVES = 4
LENGTH_SCALE = 1.0
ANCHORS = 40
LINE = np.sqrt(2.0)
# Columns whose largest value is less than so many times their smallest look the same as their logarithm.
LEAST_RATIO = 3.0


class Features(NamedTuple):
    """Rows of features, of a straight description (p, n) and of a smooth one (q, n)."""

    straight: np.ndarray
    smooth: np.ndarray


class Line(NamedTuple):
    """A column, standardised: as it is, its logarithm, or what it is the logarithm of.

    A new row may hold no positive number where all fitted ones were positive; ``least`` stands for it then.
    """

    transform: Literal["none", "log", "exp"]
    centre: float
    scale: float
    least: float = -np.inf

    @classmethod
    def of(cls, values: np.ndarray, transform: Literal["none", "log", "exp"] = "none") -> Line:
        taken = _TRANSFORMS[transform](values)
        least = 0.5 * float(values.min()) if transform == "log" else -np.inf
        return cls(transform, float(taken.mean()), float(taken.std()) or 1.0, least)

    def apply(self, values: np.ndarray) -> np.ndarray:
        kept = values if self.least == -np.inf else np.maximum(values, self.least)
        return np.asarray((_TRANSFORMS[self.transform](kept) - self.centre) / self.scale)


_TRANSFORMS: dict[str, Callable[[np.ndarray], np.ndarray]] = {"none": np.asarray, "log": np.log, "exp": np.exp}


@dataclass(frozen=True, eq=False)
class NumberFeatures:
    """A line, and curves that bend away from it.

    Parameters
    ----------
    line
        The column on the scale on which it is described itself.
    other
        The column on the other scale, that of its logarithm or that which it is the logarithm of, where it has both: an
        effect may be straight in either.
    bent
        The scale of the curves, on which the rows lie most evenly.
    anchors
        (a,) standardised values at which the curves are tied.
    weights
        (a, k) of the kernel functions around the anchors, for each curve.
    straight
        (2, k) intercept and slope that are taken away from each curve, so that a line is described in one way only.
    """

    line: Line
    other: Line | None
    bent: Line
    anchors: np.ndarray
    weights: np.ndarray
    straight: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray, *, is_log: bool = False) -> NumberFeatures:
        """Curves for a column (n,), which may be the logarithm of another: as many as its different values allow."""
        line, other = Line.of(values), None
        if is_log:
            other = Line.of(values, "exp")
        elif has_both_scales(values):
            other = Line.of(values, "log")
        bent = line
        if other is not None and is_lognormal(np.exp(values) if is_log else values) != is_log:
            bent = other
        anchors = np.quantile(bent.apply(values), (np.arange(ANCHORS) + 0.5) / ANCHORS)
        curves = max(0, min(CURVES, np.unique(anchors).size - 2))
        if curves == 0:
            return cls(line, None, line, anchors[:0], np.zeros((0, 0)), np.zeros((2, 0)))
        kernel = _kernel(anchors, anchors)
        lines = np.stack([np.ones(ANCHORS), anchors], axis=1)
        basis, _ = np.linalg.qr(lines)
        left = kernel - basis @ (basis.T @ kernel)
        left -= (left @ basis) @ basis.T
        sizes, vectors = np.linalg.eigh((left + left.T) / 2)
        sizes, vectors = sizes[::-1][:curves], vectors[:, ::-1][:, :curves]
        kept = sizes > 1e-8 * ANCHORS
        weights = vectors[:, kept] / np.sqrt(sizes[kept])
        # The sign of an eigenvector is arbitrary.
        weights *= np.sign(weights[np.abs(weights).argmax(axis=0), np.arange(weights.shape[1])])
        return cls(line, other, bent, anchors, weights, np.linalg.lstsq(lines, kernel @ weights, rcond=None)[0])

    def expand(self, values: np.ndarray) -> Features:
        """The features of a column (n,)."""
        z, along = self.line.apply(values), self.bent.apply(values)
        curves = _kernel(along, self.anchors) @ self.weights - self.straight[0] - along[:, None] * self.straight[1]
        lines = [z] if self.other is None else [z, self.other.apply(values)]
        return Features(LINE * z[None], np.concatenate([np.stack(lines), curves.T]))


def has_both_scales(values: np.ndarray) -> bool:
    """Whether a column is positive, and varies so much that its logarithm is something else."""
    return bool(values.min() > 0 and values.max() > LEAST_RATIO * values.min())


def is_lognormal(values: np.ndarray) -> bool:
    """Whether the logarithm of a positive column is nearer to a normal distribution than the column."""
    logs = np.log(values)
    return bool(np.log(values.std()) - np.log(logs.std()) > logs.mean())


@dataclass(frozen=True, eq=False)
class LabelFeatures:
    """One of each label but the last, centred and made uncorrelated, so that no label stands out.

    Parameters
    ----------
    shares
        (l - 1,) of the labels in the fitted table.
    whitening
        (l - 1, l - 1) what makes them uncorrelated.
    """

    shares: np.ndarray
    whitening: np.ndarray

    @classmethod
    def of(cls, codes: np.ndarray, levels: int) -> LabelFeatures:
        shares = (np.bincount(codes.astype(np.int64), minlength=levels) + 0.5) / (codes.size + 0.5 * levels)
        rest = shares[:-1]
        return cls(rest, np.linalg.inv(np.linalg.cholesky(np.diag(rest) - np.outer(rest, rest))))

    def expand(self, codes: np.ndarray) -> Features:
        hit = (codes.astype(np.int64) == np.arange(self.shares.size)[:, None]) - self.shares[:, None]
        white = LINE * (self.whitening @ hit)
        return Features(white, white)


def _kernel(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    return np.exp(-0.5 * ((left[:, None] - right) / LENGTH_SCALE) ** 2)
