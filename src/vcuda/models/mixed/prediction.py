"""New rows of tables of any mix of kinds, and mechanisms to draw.

The rows of the table are kept. A column is regressed on a set of parents when somebody asks for it, and the result is
kept too: some tenths of a second for thousands of rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import logsumexp

from vcuda.data.categorical import number_label
from vcuda.data.dataset import Dataset
from vcuda.data.kinds import KINDS, ColumnLabels, Kind
from vcuda.data.messages import data_row, listed, shortened
from vcuda.data.scaling import Scaling, check_shapes
from vcuda.errors import ConfigError, DataError
from vcuda.models.mixed.columns import Column, columns_of
from vcuda.models.mixed.evidence import ColumnEvidence
from vcuda.models.mixed.nodes import MixedNode
from vcuda.models.mixed.tables import MixedTable
from vcuda.models.prediction import ParentSets, Predicted, Prediction, Predictive, Tails
from vcuda.models.protocol import LocalScore
from vcuda.models.sets import checked_candidates

# Rows that are kept of a larger table, always the same ones.
KEPT_ROWS = 5000
# Sets of parents whose regressions are kept.
KEPT_NODES = 2000


@dataclass(frozen=True, eq=False)
class MixedScore(LocalScore):
    """The evidence of single sets of parents on the rows of a table, each set regressed when it is asked for."""

    evidences: tuple[ColumnEvidence, ...]
    rows: int
    log_jacobian: float
    max_parents: int | None = None

    slow_sets = True

    @classmethod
    def from_table(cls, table: MixedTable) -> Self:
        evidences = table.evidences()
        return cls(tuple(evidences), len(table.values), table.log_jacobian(evidences))

    @property
    def nodes(self) -> int:
        return len(self.evidences)

    def score(self, target: int, parents: Sequence[int]) -> float:
        chosen = checked_candidates(target, np.asarray(parents, dtype=np.int64), self.nodes)
        return float(self.evidences[target].average([tuple(sorted(chosen.tolist()))])[0])


@dataclass(frozen=True, eq=False)
class MixedPredictive(Predictive):
    """New rows of a table of any mix of kinds, with descriptions and weights integrated out.

    Parameters
    ----------
    kinds
        The kind of each column.
    labels
        The labels of each column that holds codes of labels; None for a column of numbers, and in place of all where no
        column has labels.
    rows
        ``(n, d)`` fitted rows in the user's units, at most 5,000.
    held
        ``(n, d)`` the cells that an experiment set, or None.
    scaling
        The logarithms that were taken.
    """

    kinds: tuple[Kind, ...] = field()
    labels: ColumnLabels | None = field()
    rows: np.ndarray
    held: np.ndarray | None
    scaling: Scaling = field()
    kind: ClassVar[str] = "mixed"
    quick_rows: ClassVar[int] = 1000
    _nodes: dict[tuple[int, ...], MixedNode] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def of(cls, data: Dataset, logarithm: np.ndarray) -> Self:
        """From the table that was fitted, in the user's units, and the columns ``(d,)`` taken by their logarithm."""
        kept = _kept_rows(data.values, data.kinds)
        held = None if data.interventions is None else data.interventions[kept]
        scaling = Scaling(np.zeros(data.d), np.ones(data.d), np.asarray(logarithm, dtype=bool))
        return cls(data.kinds, data.categories, data.values[kept], held, scaling)

    def __getstate__(self) -> dict[str, Any]:
        # Regressions hold functions, which cannot be pickled, and are made again when asked for.
        return self.__dict__ | {"_nodes": {}}

    @cached_property
    def _scaled(self) -> np.ndarray:
        return self.scaling.apply(self.rows)

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """What the family knows of the columns, in the units of the score."""
        return columns_of(self.kinds, self._scaled, self.scaling.logarithm)

    def node(self, target: int, parents: np.ndarray) -> MixedNode:
        chosen = (target, *(int(parent) for parent in parents))
        if chosen not in self._nodes:
            if len(self._nodes) >= KEPT_NODES:
                self._nodes.pop(next(iter(self._nodes)))
            self._nodes[chosen] = MixedNode.of(
                [self.columns[k] for k in chosen],
                self._scaled[:, chosen],
                free=self._free(target),
                logarithm=bool(self.scaling.logarithm[target]),
                seed=chosen,
            )
        return self._nodes[chosen]

    def local_score(self) -> MixedScore:
        return MixedScore.from_table(MixedTable(self.columns, self._scaled, self.held))

    def _free(self, target: int) -> np.ndarray:
        """The rows ``(n,)`` in which no experiment set a column; all, if it was set in every one."""
        held = np.zeros(len(self.rows), dtype=bool) if self.held is None else self.held[:, target]
        return ~held if not held.all() else held

    def column(self, target: int, parents: np.ndarray, scaled: np.ndarray) -> Predicted:
        """Mean and log density of a column; of yes/no, ordered and other labels the most probable value as mean."""
        return self.node(target, parents).predict(scaled[:, parents], scaled[:, target])

    def tails(self, target: int, parents: np.ndarray, scaled: np.ndarray) -> Tails:
        return self.node(target, parents).tails(scaled[:, parents], scaled[:, target])

    def learned_from(self, values: np.ndarray, held: np.ndarray | None) -> MixedPredictive:
        if len(self.rows) <= len(values):
            return self
        shown = [np.isin(own.levels, values[:, k]).all() for k, own in enumerate(self.columns)]
        if not all(shown):
            # A level that these rows lack would be unknown.
            return self
        return MixedPredictive(self.kinds, self.labels, values, held, self.scaling)

    def predict(self, sets: ParentSets, graphs: int, values: np.ndarray, names: Sequence[str] | None) -> Prediction:
        """Numbers and counts as expected, and of other columns the most probable value, averaged over graphs."""
        known = [f"column {k}" for k in range(len(self.kinds))] if names is None else names
        self._check_rows(values, known)
        scaled = self.scaling.apply(values, names)
        mean, squared, log_density = np.zeros(values.shape), 0.0, np.zeros((graphs, len(values)))
        shares = [np.zeros((len(values), own.levels.size)) if own.levels.size else None for own in self.columns]
        for target, parents, members in sets:
            share, own = len(members) / graphs, shares[target]
            prediction = self.column(target, parents, scaled)
            log_density[members] += prediction.log_density
            if own is not None:
                own += share * self.node(target, parents).probabilities(scaled[:, parents])
                continue
            mean[:, target] += share * prediction.mean
            undone = self.scaling.of(target).undo(prediction.mean[:, None])[:, 0]
            squared += share * float(np.mean((values[:, target] - undone) ** 2))
        total = logsumexp(log_density, axis=0) - np.log(graphs) + self.scaling.log_jacobian(values)
        numbers = sum(own is None for own in shares)
        mse, levels = squared / numbers if numbers else np.nan, tuple(own.levels for own in self.columns)
        found = Prediction(self.scaling.undo(mean), mse, total, shares=tuple(shares), levels=levels)
        return found.with_likely_levels(values)

    def _check_rows(self, values: np.ndarray, names: Sequence[str]) -> None:
        """Refuse new rows with values that no column of this kind can have, or that the fitted table did not show."""
        for k, (kind, own) in enumerate(zip(self.kinds, self.columns, strict=True)):
            if own.levels.size:
                strange = ~np.isin(values[:, k], own.levels)
            elif kind == "count":
                strange = (values[:, k] < 0) | (values[:, k] != np.floor(values[:, k]))
            else:
                continue
            if strange.any():
                row = int(np.argmax(strange))
                found = shortened(self.value_words(k, values[row, k]))
                if kind == "count":
                    fault = "which is no count: expected a whole number from 0 on"
                else:
                    fitted = listed([self.value_words(k, level) for level in own.levels])
                    fault = (
                        f"which the fitted table did not ({fitted}): leave out such rows, or fit again with some of "
                        "them"
                    )
                raise DataError(f"{data_row(row)} of column {shortened(names[k])} holds {found}, {fault}.")

    def fitted_table(self, names: Sequence[str]) -> Dataset:
        return Dataset(tuple(names), self.rows, interventions=self.held, categories=self.labels, kinds=self.kinds)

    def value_words(self, column: int, value: float) -> str:
        """A value as people write it: its label, or the number."""
        labels = None if self.labels is None else self.labels[column]
        if labels is not None and value == int(value) and 0 <= value < len(labels):
            return labels[int(value)]
        return number_label(float(value))

    def config(self) -> dict[str, Any]:
        labels = None if self.labels is None else [None if own is None else list(own) for own in self.labels]
        return {"kind": self.kind, "kinds": list(self.kinds)} | ({} if labels is None else {"column_labels": labels})

    def arrays(self) -> dict[str, np.ndarray]:
        held = {} if self.held is None else {"held": self.held}
        return {"rows": self.rows} | held | self.scaling.arrays()

    @classmethod
    def restore(cls, config: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Self:
        kinds, stored = tuple(config["kinds"]), config.get("column_labels")
        labels = None if stored is None else tuple(None if own is None else tuple(own) for own in stored)
        rows, held, d = arrays["rows"], arrays.get("held"), len(kinds)
        check_shapes({"rows": rows}, {"rows": (len(rows), d)})
        check_shapes(arrays, dict.fromkeys(("centre", "scale"), (d,)))
        if labels is not None and len(labels) != d:
            raise ConfigError(f"labels of {len(labels)} columns do not fit {d} kinds")
        if held is not None:
            check_shapes({"held": held}, {"held": rows.shape})
            if held.dtype != np.bool_:
                raise ConfigError(f"held must hold true or false, not {held.dtype}")
        scaling = Scaling.restore(arrays)
        _check_stored(kinds, labels, rows, scaling)
        return cls(kinds, labels, rows.astype(np.float64), held, scaling)


def _kept_rows(values: np.ndarray, kinds: Sequence[Kind]) -> np.ndarray:
    """Rows of a table, in their order: all, or so many, among them one of each level of the columns that are coded."""
    if len(values) <= KEPT_ROWS:
        return np.arange(len(values))
    coded = [k for k, kind in enumerate(kinds) if kind not in ("number", "count")]
    first = [np.unique(values[:, k], return_index=True)[1] for k in coded]
    needed = np.unique(np.concatenate([*first, np.zeros(0, dtype=np.int64)]))
    others = np.setdiff1d(np.arange(len(values)), needed)
    drawn = np.random.default_rng(0).choice(others, max(KEPT_ROWS - needed.size, 0), replace=False)
    return np.sort(np.concatenate([needed, drawn]))


def _check_stored(kinds: Sequence[Kind], labels: ColumnLabels | None, rows: np.ndarray, scaling: Scaling) -> None:
    """Refuse a stored table that no fit can have written."""
    strange = [kind for kind in kinds if kind not in KINDS]
    if strange:
        raise ConfigError(f"kinds of columns are {', '.join(KINDS)}, not {strange[0]!r}")
    if len(rows) < 2 or rows.dtype.kind != "f" or not np.isfinite(rows).all():
        raise ConfigError("rows must hold two rows of finite numbers or more")
    if np.any(scaling.centre != 0) or np.any(scaling.scale != 1):
        raise ConfigError("columns of several kinds have no scaling but their logarithms")
    for k, kind in enumerate(kinds):
        own = rows[:, k]
        if scaling.logarithm[k] and (kind != "number" or own.min() <= 0):
            raise ConfigError(f"column {k} has no logarithm: expected positive numbers")
        if kind == "count" and (own.min() < 0 or np.any(own != np.floor(own))):
            raise ConfigError(f"column {k} must hold counts, whole numbers from 0 on")
        if labels is not None and labels[k] is not None and not np.isin(own, np.arange(len(labels[k] or ()))).all():
            raise ConfigError(f"column {k} must hold codes of its {len(labels[k] or ())} labels")
        if kind not in ("number", "count") and np.unique(own).size < 2:
            raise ConfigError(f"column {k} must have at least two different values")
