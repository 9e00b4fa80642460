"""Scores that are regressions, as the variational engine takes them: products of features, and an evidence.

With the weights integrated out, such a score depends on a set of parents only through the residual quadratic form of
the target and a log determinant.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np


class Evidence(NamedTuple):
    """How residual q, log determinant l and number of parents k become a log evidence.

    ``constants[k] - l / 2 - powers[k] log(offset + q)`` where each node's noise is integrated out; with one noise
    variance for all nodes (``powers`` is None) ``constants[k] - l / 2 - q / (2 variance) - n log(variance) / 2``.
    Constants, powers and rows have a leading axis of parts.
    """

    constants: Any
    powers: Any
    offset: Any
    rows: Any


class Regressions(NamedTuple):
    """All that is needed of a table, for d columns of m features each, under a amplitudes of the functions.

    The rows that a target is judged by are one of p parts, ``part_of`` (d,). ``gram`` (a, p, d m, d m) holds products
    of features, ``own`` (a, p, m, m, d) its diagonal blocks, ``products`` (a, p, d m, d) those of features with
    targets, ``squares`` (p, d) those of targets, with their ridge. ``ridge`` is that of the weights; with a shared
    noise variance it is the variance divided by ``weight_variance`` (else None), and the noise is in so many ``cells``.
    Evidences are averaged over the amplitudes.
    """

    gram: Any
    own: Any
    products: Any
    squares: Any
    ridge: Any
    weight_variance: Any
    evidence: Evidence
    part_of: Any
    cells: Any

    @property
    def nodes(self) -> int:
        return int(self.squares.shape[-1])

    @property
    def block(self) -> int:
        return int(self.gram.shape[-1] // self.nodes)


def joined_regressions(parts: Sequence[Regressions], part_of: np.ndarray, free_rows: np.ndarray) -> Regressions:
    """Parts of a table as one problem. Targets that were never free get a part of no rows, in which nothing has a
    score."""
    first, part_of = parts[0], part_of.astype(np.int32)
    if not free_rows.all():
        part_of = np.where(free_rows > 0, part_of, len(parts)).astype(np.int32)
        parts = [*parts, _without_rows(first)]

    def along(axis: int, pick: Callable[[Regressions], Any]) -> Any:
        return None if pick(first) is None else np.concatenate([pick(part) for part in parts], axis=axis)

    return Regressions(
        along(1, lambda part: part.gram),
        along(1, lambda part: part.own),
        along(1, lambda part: part.products),
        along(0, lambda part: part.squares),
        first.ridge,
        first.weight_variance,
        Evidence(
            along(0, lambda part: part.evidence.constants),
            along(0, lambda part: part.evidence.powers),
            first.evidence.offset,
            along(0, lambda part: part.evidence.rows),
        ),
        part_of,
        float(free_rows.sum()),
    )


def _without_rows(like: Regressions) -> Regressions:
    """A part of no rows; a residual of one keeps its logarithm finite where the noise is integrated out."""

    def zeros(array: Any) -> Any:
        return None if array is None else np.zeros_like(array)

    own_noise = like.evidence.powers is not None
    return like._replace(
        gram=zeros(like.gram),
        own=zeros(like.own),
        products=zeros(like.products),
        squares=zeros(like.squares) + own_noise,
        evidence=like.evidence._replace(
            constants=zeros(like.evidence.constants), powers=zeros(like.evidence.powers), rows=zeros(like.evidence.rows)
        ),
    )
