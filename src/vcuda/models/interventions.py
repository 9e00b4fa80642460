"""Local scores of tables in which experiments set some of the cells.

A cell that was set says nothing about the causes of its column, and as much as any other about those of the others:
the score of a node is that of the rows in which it was left free (Cooper and Yoo, 1999). Nodes that were free in the
same rows share a part, an ordinary score of these rows, and all parts have the same units.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np

from vcuda.data.categorical import all_labels
from vcuda.data.moments import Moments
from vcuda.data.scaling import Scaling, check_shapes, units_log_jacobian
from vcuda.data.streaming.statistics import FeatureStatistics, Statistics
from vcuda.errors import ConfigError
from vcuda.models import FAMILIES
from vcuda.models.prediction import Mechanism, NodePosterior, Predicted, Predictive, SharedParameter, Tails
from vcuda.models.protocol import Features, LocalScore, ScoreSpec, WrappedScore
from vcuda.models.regressions import Regressions, joined_regressions

if TYPE_CHECKING:
    from vcuda.data.dataset import Dataset
    from vcuda.data.streaming import StreamedTable


@dataclass(frozen=True, eq=False)
class InterventionalScore(WrappedScore):
    """A score that asks for each target the rows in which it was free.

    Attributes
    ----------
    scores
        A prepared score for each distinct set of rows, the ``parts``.
    which : (d,)
        Which part each target belongs to.
    counts : (d,)
        In how many rows each target was free. One that never was has score 0 whatever its parents; it belongs to a part
        of all rows, which says how it was set.
    scale : (d,)
        The units of the score.
    shifts : (p, d)
        The means of the columns in the rows of each part, less those in all rows, in the units of the score.
    """

    scores: tuple[LocalScore, ...]
    which: np.ndarray
    counts: np.ndarray
    scale: np.ndarray
    shifts: np.ndarray

    # Experiments distinguish graphs that are Markov equivalent.
    score_equivalent = False

    @property
    def inner(self) -> LocalScore:  # type: ignore[override]
        """The part whose traits all have."""
        return self.scores[0]

    @property
    def parts(self) -> tuple[LocalScore, ...]:
        return self.scores

    @property
    def part_of(self) -> np.ndarray:
        return self.which

    @property
    def free_rows(self) -> np.ndarray:
        return self.counts

    @property
    def nodes(self) -> int:
        return int(self.which.size)

    @property
    def rows(self) -> int:
        return max(part.rows for part in self.scores)

    @property
    def log_jacobian(self) -> float:
        """Of the free cells."""
        return units_log_jacobian(self.counts, self.scale)

    @property
    def is_stateless(self) -> bool:
        return all(part.is_stateless for part in self.scores)

    def table_seconds(self) -> float:
        return sum(part.table_seconds() for part in self.parts)

    def of(self, target: int) -> LocalScore:
        return self.parts[self.part_of[target]]

    def mapped(self, change: Callable[[Any], LocalScore]) -> InterventionalScore:
        return replace(self, scores=tuple(change(part) for part in self.scores))

    def score(self, target: int, parents: Sequence[int]) -> float:
        return float(self.of(target).score(target, parents)) if self.free_rows[target] else 0.0

    def table(self, target: int, candidates: np.ndarray) -> np.ndarray:
        return self._judged(target, self.of(target).table(target, candidates))

    def tables(self, targets: Sequence[int], free: np.ndarray, fixed: np.ndarray) -> np.ndarray:
        found = [
            self._judged(target, self.of(target).tables([target], free[[k]], fixed[[k]]))
            for k, target in enumerate(targets)
        ]
        return np.concatenate(found)

    def all_tables(
        self,
        targets: np.ndarray,
        candidates: Sequence[np.ndarray],
        *,
        threads: int,
        on_progress: Callable[[float], None],
    ) -> np.ndarray | None:
        tables = None
        for number, part in enumerate(self.parts):
            members = np.flatnonzero(self.part_of[targets] == number)

            def share_done(share: float, number: int = number) -> None:
                on_progress((number + share) / len(self.parts))

            own = [candidates[k] for k in members.tolist()]
            found = part.all_tables(targets[members], own, threads=threads, on_progress=share_done)
            if found is not None:
                tables = found if tables is None else tables
                tables[targets[members]] = found[targets[members]]
        if tables is not None:
            tables[self.free_rows == 0] = 0.0
        return tables

    def gains(self, target: int, parents: Sequence[int]) -> np.ndarray:
        return self._judged(target, self.of(target).gains(target, parents))

    def losses(self, target: int, parents: np.ndarray) -> np.ndarray:
        return np.asarray(self.of(target).losses(target, parents)) if self.free_rows[target] else np.zeros(len(parents))

    def changes(self, target: int, parents: Sequence[int]) -> np.ndarray | None:
        return self.of(target).changes(target, parents)

    def _judged(self, target: int, scores: np.ndarray) -> np.ndarray:
        """Scores of a target as they count: those of one that was never free are all the same."""
        scores = np.asarray(scores)
        return scores if self.free_rows[target] else np.where(np.isfinite(scores), 0.0, -np.inf)

    def start_order(self, log_odds: np.ndarray, *, go_on: Callable[[], bool] = lambda: True) -> np.ndarray | None:
        """By the part with most rows: a search may start there, whatever was set."""
        return max(self.parts, key=lambda part: part.rows).start_order(log_odds, go_on=go_on)

    def regressions(self) -> Regressions | None:
        parts = [found for part in self.parts if (found := part.regressions()) is not None]
        return joined_regressions(parts, self.part_of, self.free_rows) if len(parts) == len(self.parts) else None

    def without_last_digits(self) -> LocalScore:
        return self.mapped(lambda part: part.without_last_digits())

    def predictive(
        self, data: Dataset | StreamedTable, *, scaling: Scaling | None = None, value: float | None = None
    ) -> Predictive | None:
        if all_labels(data) is not None:
            # What was set is known by the table, whatever the part.
            return self.parts[0].predictive(data, scaling=scaling)
        inner = Scaling(data.mean, self.scale)
        units = inner if scaling is None else scaling.then(inner)
        parts = [found for part in self.parts if (found := part.predictive_in(units)) is not None]
        if len(parts) < len(self.parts):
            return None
        return InterventionalPredictive(tuple(parts), self.part_of, self.shifts, units, int(self.free_rows.sum()))


def prepare(spec: ScoreSpec, values: np.ndarray, interventions: np.ndarray | None) -> LocalScore:
    """Prepare a score for a table (n, d) of which the cells marked in ``interventions`` (n, d), if any, were set."""
    if interventions is None:
        return spec.prepare(values)
    free_rows = (~interventions).sum(axis=0)
    patterns, part_of = np.unique(interventions & (free_rows > 0), axis=1, return_inverse=True)
    part_of = part_of.reshape(-1)
    rows = [np.flatnonzero(~pattern) for pattern in patterns.T]
    centred, scale = spec.common_units(values)
    unit = spec.one_unit([np.std(values[~interventions[:, node], node]) for node in np.flatnonzero(free_rows)])
    if unit is not None:
        scale = np.full_like(scale, unit)
    shifts = np.stack([centred[free].mean(axis=0) / scale for free in rows])
    pooled, parts = spec.prepare_parts(values, rows, scale=scale, shifts=shifts)
    return joined(pooled, parts, part_of, free_rows, scale, shifts)


def prepare_streamed(
    spec: ScoreSpec, statistics: Statistics, features: FeatureStatistics | None, functions: Features | None
) -> LocalScore:
    """Prepare a score from what passes over a table found: moments, and ``features`` where it has ``functions``."""
    names, scale = statistics.names, statistics.scale
    free = [tuple(targets for targets in statistics.regimes if name not in targets) for name in names]
    free_rows = np.array([sum(statistics.regimes[targets].rows for targets in own) for own in free])
    unit = spec.one_unit([statistics.where_free(names[node]).scale[node] for node in np.flatnonzero(free_rows)])
    if unit is not None:
        scale = np.full_like(scale, unit)

    def prepared(moments: Moments, of_features: FeatureStatistics | None) -> LocalScore:
        shift = (moments.mean - statistics.mean) / scale
        shifted = None if functions is None else functions.shifted(shift)
        return spec.from_statistics(moments, of_features, shifted, scale=scale)

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
    return joined(pooled, parts, part_of, free_rows, scale, np.stack(shifts))


def joined(
    pooled: LocalScore,
    parts: Sequence[LocalScore],
    part_of: np.ndarray,
    free_rows: np.ndarray,
    scale: np.ndarray,
    shifts: np.ndarray,
) -> LocalScore:
    """Scores of parts as one; ``pooled`` is that of all rows."""
    by_parts = InterventionalScore(
        scores=tuple(part.given_nuisance() for part in parts),
        which=part_of,
        counts=free_rows,
        scale=scale,
        shifts=shifts,
    )
    return pooled.over_parts(by_parts)


@dataclass(frozen=True, eq=False)
class InterventionalPredictive(Predictive):
    """Predictions of parts of a table, joined: the part of a column has the rows in which the column was free.

    Parameters
    ----------
    parts
        What each part predicts, in common units less the means of its own rows.
    part_of
        ``(d,)`` which part each column belongs to.
    shifts
        ``(p, d)`` the means of the parts, in common units.
    scaling
        From the user's units to the common ones.
    cells
        How many cells were free.
    """

    parts: tuple[Predictive, ...]
    part_of: np.ndarray
    shifts: np.ndarray
    scaling: Scaling
    cells: int
    kind: ClassVar[str] = "interventional"

    def of(self, target: int) -> tuple[Predictive, np.ndarray]:
        """The predictions of a column's part, and the means ``(d,)`` of its rows."""
        part = int(self.part_of[target])
        return self.parts[part], self.shifts[part]

    def column(self, target: int, parents: np.ndarray, scaled: np.ndarray) -> Predicted:
        part, shift = self.of(target)
        prediction = part.column(target, parents, scaled - shift)
        return Predicted(prediction.mean + shift[target], prediction.log_density)

    @property
    def has_tails(self) -> bool:
        return all(part.has_tails for part in self.parts)

    def tails(self, target: int, parents: np.ndarray, scaled: np.ndarray) -> Tails:
        part, shift = self.of(target)
        return part.tails(target, parents, scaled - shift)

    def node(self, target: int, parents: np.ndarray) -> ShiftedNode:
        part, shift = self.of(target)
        return ShiftedNode(part.node(target, parents), shift[parents], float(shift[target]))

    def shared_parameter(self, cells: int | None = None) -> SharedParameter | None:
        shared = self.parts[0].shared_parameter(self.cells)
        return None if shared is None else _OfParts(shared)

    def local_score(self) -> LocalScore | None:
        scores = [found for part in self.parts if (found := part.local_score()) is not None]
        return _ByPart(scores, self.part_of) if len(scores) == len(self.parts) else None

    def column_products(self, outcome: int) -> tuple[int, np.ndarray] | None:
        return self.of(outcome)[0].column_products(outcome)

    def config(self) -> dict[str, Any]:
        return {"kind": self.kind, "cells": self.cells, "parts": [part.config() for part in self.parts]}

    def arrays(self) -> dict[str, np.ndarray]:
        stored = {"part_of": self.part_of, "shifts": self.shifts} | self.scaling.arrays()
        for number, part in enumerate(self.parts):
            stored |= {f"part{number}_{name}": array for name, array in part.arrays().items()}
        return stored

    @classmethod
    def restore(cls, config: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Self:
        scaling, parts = Scaling.restore(arrays), []
        kinds = FAMILIES.predictives()
        for number, stored in enumerate(config["parts"]):
            start = f"part{number}_"
            own = {name.removeprefix(start): array for name, array in arrays.items() if name.startswith(start)}
            parts.append(kinds[stored["kind"]].restore(stored, own))
        nodes, part_of = len(scaling.centre), arrays["part_of"]
        check_shapes(arrays, {"part_of": (nodes,), "shifts": (len(parts), nodes)})
        if not np.isin(part_of, np.arange(len(parts))).all():
            raise ConfigError(f"part_of must name parts 0 to {len(parts) - 1}")
        return cls(tuple(parts), part_of, arrays["shifts"], scaling, int(config["cells"]))


class _ByPart(LocalScore):
    """Scores of sets in the units of predictions, each target by its part."""

    def __init__(self, scores: Sequence[LocalScore], part_of: np.ndarray) -> None:
        self._scores, self._part_of = scores, part_of

    def score(self, target: int, parents: Sequence[int]) -> float:
        return self._scores[self._part_of[target]].score(target, parents)


class ShiftedNode(NamedTuple):
    """A node in the units of its part, whose rows have the means ``inputs`` ``(k,)`` and ``output`` in common ones."""

    node: NodePosterior
    inputs: np.ndarray
    output: float

    def draw(self, rng: np.random.Generator, shared: float | None) -> Mechanism:
        drawn = self.node.draw(rng, shared)
        if drawn.slopes is not None:
            intercept = drawn.intercept + self.output - float(drawn.slopes @ self.inputs)
            return Mechanism.linear(drawn.slopes, intercept, drawn.noise)
        return Mechanism(lambda rows: drawn.function(rows - self.inputs) + self.output, drawn.noise)


class _OfParts(NamedTuple):
    """What the nodes of all parts share: it asks them in the units of their parts."""

    shared: SharedParameter

    def draw(self, rng: np.random.Generator, nodes: Callable[[], Sequence[NodePosterior]]) -> float:
        return self.shared.draw(rng, lambda: [node.node if isinstance(node, ShiftedNode) else node for node in nodes()])
