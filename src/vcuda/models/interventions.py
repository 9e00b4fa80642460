"""Local scores of tables in which experiments set some of the cells.

A cell that was set says nothing about the causes of its column, and as much as any other about those of the others:
the score of a node is that of the rows in which it was left free (Cooper and Yoo, 1999). Nodes that were free in the
same rows share a part, an ordinary score of these rows, and all parts have the same units.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vcuda.data.moments import Moments
from vcuda.data.streaming.statistics import FeatureStatistics, Statistics
from vcuda.models.additive import AdditiveBasis
from vcuda.models.categorical import BDeu
from vcuda.models.scores import BGe, EqualNoise, LocalScore, ScoreSpec, SharedNoise, centred_columns


@dataclass(frozen=True, eq=False)
class InterventionalScore:
    """A score that asks for each target the rows in which it was free.

    Attributes
    ----------
    parts
        A prepared score for each distinct set of rows.
    part_of : (d,)
        Which part each target belongs to.
    free_rows : (d,)
        In how many rows each target was free. One that never was has score 0 whatever its parents; it belongs to a part
        of all rows, which tells how it was set.
    scale : (d,)
        The units of the score.
    shifts : (p, d)
        The means of the columns in the rows of each part, less those in all rows, in the units of the score.
    log_jacobian
        See :class:`LocalScore`; of the free cells.
    """

    parts: tuple[Any, ...]
    part_of: np.ndarray
    free_rows: np.ndarray
    scale: np.ndarray
    shifts: np.ndarray
    log_jacobian: float

    @property
    def nodes(self) -> int:
        return int(self.part_of.size)

    @property
    def max_parents(self) -> int | None:
        most: int | None = self.parts[0].max_parents
        return most

    def of(self, target: int) -> Any:
        """Return the score of the rows in which the target was free."""
        return self.parts[self.part_of[target]]

    def with_parts(self, parts: Sequence[Any]) -> InterventionalScore:
        """Return the same score with other parts for the same rows."""
        return replace(self, parts=tuple(parts))

    def score(self, target: int, parents: Sequence[int]) -> float:
        return float(self.of(target).score(target, parents)) if self.free_rows[target] else 0.0

    def table(self, target: int, candidates: np.ndarray) -> np.ndarray:
        scores = np.asarray(self.of(target).table(target, candidates))
        return scores if self.free_rows[target] else np.where(np.isfinite(scores), 0.0, -np.inf)

    def gains(self, target: int, parents: Sequence[int]) -> np.ndarray:
        gained = np.asarray(self.of(target).gains(target, parents))
        return gained if self.free_rows[target] else np.where(np.isfinite(gained), 0.0, -np.inf)

    def losses(self, target: int, parents: np.ndarray) -> np.ndarray:
        return np.asarray(self.of(target).losses(target, parents)) if self.free_rows[target] else np.zeros(len(parents))


@dataclass(frozen=True, eq=False)
class InterventionalNoise(SharedNoise):
    """A shared unknown noise variance, in the free cells only; ``known`` is the score of all rows, for a start."""

    scores: InterventionalScore

    @property
    def cells(self) -> int:
        return int(self.scores.free_rows.sum())

    @property
    def log_jacobian(self) -> float:
        return self.scores.log_jacobian

    def at(self, variance: float) -> InterventionalScore:  # type: ignore[override]
        """Return the score under this noise variance (in units of the smallest column variance)."""
        ridge = float(variance) / self.weight_variance
        return self.scores.with_parts(
            [replace(part, variance=float(variance), ridge=ridge) for part in self.scores.parts]
        )


def prepare(
    spec: EqualNoise | ScoreSpec, values: np.ndarray, interventions: np.ndarray | None
) -> LocalScore | SharedNoise:
    """Prepare a score for a table (n, d) of which the cells marked in ``interventions`` (n, d), if any, were set."""
    if interventions is None:
        return spec.prepare(values)
    free_rows = (~interventions).sum(axis=0)
    patterns, part_of = np.unique(interventions & (free_rows > 0), axis=1, return_inverse=True)
    part_of = part_of.reshape(-1)
    rows = [np.flatnonzero(~pattern) for pattern in patterns.T]
    if isinstance(spec, BDeu):
        # The parts must agree on what the categories are.
        every = spec.prepare(values)
        parts = tuple(replace(every, codes=every.codes[free], known={}) for free in rows)
        nothing = np.zeros((len(rows), part_of.size))
        return InterventionalScore(parts, part_of, free_rows, np.ones(part_of.size), nothing, 0.0)
    centred, scale = centred_columns(values)
    if isinstance(spec, EqualNoise):
        # The unit is what the noise is compared with, and how far a column was set says nothing of that.
        free = [np.std(values[~interventions[:, node], node]) for node in np.flatnonzero(free_rows)]
        scale = np.full_like(scale, 1.0 if spec.variance is not None else min(free, default=1.0))
    shifts = np.stack([centred[free].mean(axis=0) / scale for free in rows])
    pooled: Any = spec.prepare(values, scale=scale)
    if isinstance(spec, AdditiveBasis):
        # The same functions of a cause for all that it may cause, wherever they were chosen.
        bare = pooled.bases._replace(means=np.zeros_like(pooled.bases.means))
        prepared: list[Any] = [
            spec.prepare(values[free], scale=scale, bases=bare.shifted(shift))
            for free, shift in zip(rows, shifts, strict=True)
        ]
    else:
        prepared = [spec.prepare(values[free], scale=scale) for free in rows]
    return _joined(pooled, prepared, part_of, free_rows, scale, shifts)


def prepare_streamed(
    spec: EqualNoise | BGe | AdditiveBasis, statistics: Statistics, features: FeatureStatistics | None, bases: Any
) -> LocalScore | SharedNoise:
    """Prepare a score from what passes over a table found; an additive one also from its ``features`` and ``bases``."""
    names, scale = statistics.names, statistics.scale
    free = [tuple(targets for targets in statistics.regimes if name not in targets) for name in names]
    free_rows = np.array([sum(statistics.regimes[targets].rows for targets in own) for own in free])
    if isinstance(spec, EqualNoise):
        own = [statistics.where_free(names[node]).scale[node] for node in np.flatnonzero(free_rows)]
        scale = np.full_like(scale, 1.0 if spec.variance is not None else min(own, default=1.0))

    def prepared(moments: Moments, of_features: FeatureStatistics | None) -> Any:
        if isinstance(spec, AdditiveBasis):
            assert of_features is not None
            shift = (moments.mean - statistics.mean) / scale
            return spec.from_features(of_features, bases.shifted(shift), scale=scale)
        return spec.from_moments(moments, scale=scale)

    pooled = prepared(statistics.moments, features)
    if set(statistics.regimes) == {()}:
        return pooled
    every = tuple(statistics.regimes)
    patterns = list(dict.fromkeys(own or every for own in free))
    first = [names[[one or every for one in free].index(pattern)] for pattern in patterns]
    parts, shifts = [], []
    for pattern, name in zip(patterns, first, strict=True):
        moments = statistics.moments if pattern == every else statistics.where_free(name)
        own_features = features if features is None or pattern == every else features.where_free(name)
        parts.append(prepared(moments, own_features))
        shifts.append((moments.mean - statistics.mean) / scale)
    part_of = np.array([patterns.index(own or every) for own in free])
    return _joined(pooled, parts, part_of, free_rows, scale, np.stack(shifts))


def _joined(
    pooled: Any,
    parts: Sequence[Any],
    part_of: np.ndarray,
    free_rows: np.ndarray,
    scale: np.ndarray,
    shifts: np.ndarray,
) -> InterventionalScore | InterventionalNoise:
    """Scores of parts as one; ``pooled`` is that of all rows."""
    shared = isinstance(pooled, SharedNoise)
    score = InterventionalScore(
        parts=tuple(part.known if shared else part for part in parts),
        part_of=part_of,
        free_rows=free_rows,
        scale=scale,
        shifts=shifts,
        log_jacobian=-float(free_rows @ np.log(scale)),
    )
    if not shared:
        return score
    return InterventionalNoise(pooled.known, pooled.weight_variance, pooled.shape, pooled.scale, score)


def score_of(score: Any, target: int) -> Any:
    """Return the score that a target is judged by: its part where experiments were made, else the score itself."""
    return score.of(target) if isinstance(score, InterventionalScore) else score


def of_most_rows(score: Any) -> Any:
    """Return the linear score itself, or its part with most rows: where a search may start, whatever was set."""
    return max(score.parts, key=lambda part: part.rows) if isinstance(score, InterventionalScore) else score


def kind_of(score: Any) -> Any:
    """Return a score that shows the kind of another one, which may have parts or a noise yet to be found."""
    if isinstance(score, InterventionalScore):
        return score.parts[0]
    return score.known if isinstance(score, SharedNoise) else score
