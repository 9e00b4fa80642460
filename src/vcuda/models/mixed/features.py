"""What a column is to its effects: the features of a cause, a line or smooth curves, and one of each label.

Features are scaled so that every weight has a standard normal prior. Those of different kinds of columns are scaled
alike, so that no kind is preferred as a cause: a line and the labels have the prior variance two, as in BGe.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

# Curves that a number has beside its line: the first functions of a Gaussian process of length scale one.
CURVES = 4
LENGTH_SCALE = 1.0
ANCHORS = 40
LINE = np.sqrt(2.0)


class Features(NamedTuple):
    """Rows of features, of a straight description (p, n) and of a smooth one (q, n)."""

    straight: np.ndarray
    smooth: np.ndarray


class Line(NamedTuple):
    """What standardises a column."""

    centre: float
    scale: float

    @classmethod
    def of(cls, values: np.ndarray) -> Line:
        return cls(float(values.mean()), float(values.std()) or 1.0)

    def apply(self, values: np.ndarray) -> np.ndarray:
        return np.asarray((values - self.centre) / self.scale)

    def undo(self, values: np.ndarray) -> np.ndarray:
        return np.asarray(self.centre + self.scale * values)


@dataclass(frozen=True, eq=False)
class NumberFeatures:
    """A line, and curves that bend away from it.

    Parameters
    ----------
    line
        The column, standardised.
    anchors
        (a,) standardised values at which the curves are tied.
    weights
        (a, k) of the kernel functions around the anchors, for each curve.
    straight
        (2, k) intercept and slope that are taken away from each curve, so that a line is described in one way only.
    """

    line: Line
    anchors: np.ndarray
    weights: np.ndarray
    straight: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray) -> NumberFeatures:
        """Curves for a column (n,): as many as its different values allow."""
        line = Line.of(values)
        anchors = np.quantile(line.apply(values), (np.arange(ANCHORS) + 0.5) / ANCHORS)
        curves = max(0, min(CURVES, np.unique(anchors).size - 2))
        if curves == 0:
            return cls(line, anchors[:0], np.zeros((0, 0)), np.zeros((2, 0)))
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
        return cls(line, anchors, weights, np.linalg.lstsq(lines, kernel @ weights, rcond=None)[0])

    def expand(self, values: np.ndarray) -> Features:
        """The features of a column (n,)."""
        z = self.line.apply(values)
        curves = _kernel(z, self.anchors) @ self.weights - self.straight[0] - z[:, None] * self.straight[1]
        return Features(LINE * z[None], np.concatenate([z[None], curves.T]))


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
