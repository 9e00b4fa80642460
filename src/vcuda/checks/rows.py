"""Checks of the rows: their order, copies, and rows that carry an edge alone."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from vcuda.checks.residuals import Departure, Tested
from vcuda.checks.statistics import added_features_test, corrected, normal_scores, smallest, two_sided
from vcuda.checks.subject import Subject
from vcuda.data.dataset import Dataset

# Serial dependence below this many standard errors was found in tables whose rows are independent.
SERIAL_Z = 5.0
# What is less alike than this, or a drift that explains less than this share, changes no edge of a table of many rows.
LEAST_LIKENESS, LEAST_DRIFT = 0.1, 0.05
# The longest distance of rows that is looked at.
MOST_LAGS = 30
# A column is sorted when so many of its steps go one way.
SORTED = 0.99
# Sorted keys that are looked for one inside the other.
MOST_KEYS = 3
# Copies are counted among so many rows.
MOST_COUNTED = 100_000
# Copies fewer than these are nothing to speak of.
LEAST_COPIES, LEAST_SHARE = 5, 0.01
# Sure edges that are weighed row by row.
MOST_EDGES = 200


class Serial(NamedTuple):
    """Order of the rows: what was tested, and the correlation of neighbouring rows for each column that was."""

    tested: Tested
    keys: list[int]
    lag_one: dict[int, float]


def order(subject: Subject) -> Serial:
    """Whether residuals depend on those of rows before them, or drift along the table.

    A table that is sorted by a column shows it in that column, and in others that go with it; what the sorted column
    explains is taken out first.
    """
    keys, groups = sorted_keys(subject.table.values)
    position = subject.rows / max(subject.table.n - 1, 1) * 2 - 1
    trend = np.polynomial.legendre.legvander(position, 5)[:, 1:]
    place = normal_scores(position, subject.rng(3))
    rng, found, lag_one = subject.rng(4), [], {}
    lags = [k for k in range(1, MOST_LAGS + 1) if subject.n >= 10 * k]
    for column in subject.columns:
        if column in keys:
            continue
        own = normal_scores(subject.residuals[:, column], rng)
        p_drift, drift = 1.0, 0.0
        if keys:
            own = _without(own, np.column_stack([trend, place]), groups[subject.rows])
        else:
            drift, p_drift = added_features_test(own, np.zeros((subject.n, 0)), trend[:, :3])
        own = own - own.mean()
        best, best_lag, first = 0.0, 1, 0.0
        for lag in lags:
            same = subject.runs[lag:] == subject.runs[:-lag]
            products = (own[lag:] * own[:-lag])[same]
            z = float(products.sum() / (np.mean(own**2) * np.sqrt(max(products.size, 1))))
            if lag == 1:
                first = float(products.mean() / np.mean(own**2)) if products.size else 0.0
            if abs(z) > abs(best):
                best, best_lag = z, lag
        p_lag = corrected(float(two_sided(best)), len(lags))
        p_value = smallest([p_lag, p_drift]) if not keys else p_lag
        lag_one[column] = first
        if p_lag <= p_drift or abs(best) > SERIAL_Z:
            distance = "neighbouring rows" if best_lag == 1 else f"rows {best_lag} apart"
            words = f"residuals of {distance} go together ({abs(best):.0f} standard errors)"
            matters = abs(best) > max(SERIAL_Z, LEAST_LIKENESS * np.sqrt(subject.n))
            found.append(Departure((column,), p_value, best, matters, words))
        else:
            words = "residuals drift along the rows"
            matters = drift > LEAST_DRIFT and p_drift < float(two_sided(SERIAL_Z))
            found.append(Departure((column,), p_value, best, matters, words))
    return Serial(Tested(smallest([one.p_value for one in found]), len(found), found), keys, lag_one)


def _without(values: np.ndarray, features: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Values less what features and the means of groups explain."""
    _, group = np.unique(groups, return_inverse=True)
    counts = np.bincount(group)
    if counts.size < values.size / 3:
        values = values - (np.bincount(group, values) / counts)[group]
        features = features - np.stack([(np.bincount(group, one) / counts)[group] for one in features.T], axis=1)
    return np.asarray(values - features @ np.linalg.lstsq(features, values, rcond=None)[0])


def sorted_keys(values: np.ndarray) -> tuple[list[int], np.ndarray]:
    """The columns by which a table ``(n, d)`` is sorted, each inside the ones before; and the group of each row.

    Rows of a group are equal in all keys that have more than one row for each of their values.
    """
    keys: list[int] = []
    group = np.zeros(len(values), dtype=np.int64)
    while len(keys) < MOST_KEYS:
        inside = group[1:] == group[:-1]
        if inside.sum() < max(20, 0.1 * len(values)):
            break
        steps = np.diff(values, axis=0)[inside]
        known = (~np.isnan(steps)).sum(axis=0)
        moving = (np.nan_to_num(steps) != 0).sum(axis=0)
        up = (np.nan_to_num(steps, nan=-1.0) >= 0).sum(axis=0) / np.maximum(known, 1)
        down = (np.nan_to_num(steps, nan=1.0) <= 0).sum(axis=0) / np.maximum(known, 1)
        # Of a column that seldom changes, most steps are zero in any order: those that are not must agree.
        rises = (np.nan_to_num(steps) > 0).sum(axis=0) / np.maximum(moving, 1)
        few = np.maximum(rises, 1 - rises) >= SORTED
        found = (np.maximum(up, down) >= SORTED) & few & (moving > 0) & (known >= 20)
        found[keys] = False
        if not found.any():
            break
        key = int(np.argmax(found))
        keys.append(key)
        changed = np.concatenate([[True], (np.diff(values[:, key]) != 0) | (np.diff(group) != 0)])
        group = np.cumsum(changed)
    return keys, group


class Copies(NamedTuple):
    """How many rows are equal to an earlier one, of how many, how many would be by chance, and the rows ``(u,)`` that
    are no copies."""

    copies: int
    rows: int
    expected: float
    first: np.ndarray

    @property
    def are_many(self) -> bool:
        return (
            self.copies >= LEAST_COPIES
            and self.copies >= LEAST_SHARE * self.rows
            and self.copies > 10 * self.expected + LEAST_COPIES
        )

    @property
    def inflation(self) -> float:
        """How many times each different row counts."""
        return self.rows / max(self.rows - self.copies, 1)


def copies(table: Dataset) -> Copies:
    """Count the rows that repeat another one, and what rounding and labels make of it by chance."""
    values = np.ascontiguousarray(np.nan_to_num(table.values[:MOST_COUNTED], nan=np.inf))
    rows = len(values)
    _, first = np.unique(values.view(np.dtype((np.void, values.strides[0]))).reshape(-1), return_index=True)
    distinct = values[first]
    pairs = max(len(distinct) * (len(distinct) - 1) / 2, 1.0)
    chances = []
    for column in distinct.T:
        counts = np.unique(column, return_counts=True)[1]
        chances.append(float((counts * (counts - 1.0) / 2).sum() / pairs))
    rarest = sorted(chances)[:2]
    # Columns that go together coincide more often than by the product of their chances.
    expected = rows * (rows - 1) / 2 * rarest[0] * (rarest[1] ** 0.5 if len(rarest) > 1 else 1.0)
    return Copies(rows - len(distinct), rows, expected, np.sort(first))


class Carried(NamedTuple):
    """A sure edge that a few rows carry: its gain in log density over no edge, and the gain without those rows."""

    edge: tuple[int, int]
    gain: float
    rest: float
    rows: np.ndarray


def influence(subject: Subject) -> list[Carried]:
    """Sure edges whose whole gain comes from one row, or up to three in large tables."""
    found = []
    few = int(np.clip(subject.n // 150, 1, 3))
    known = ~np.isnan(subject.table.values[subject.rows])
    if subject.table.interventions is not None:
        known = known & ~subject.table.interventions[subject.rows]
    looked_at = set(subject.columns)
    # A pair whose direction is open has that of the graph.
    edges = [edge if subject.graph[edge] else edge[::-1] for edge in subject.joined]
    for source, target in [edge for edge in edges if subject.graph[edge] and edge[1] in looked_at][:MOST_EDGES]:
        if subject.late:
            break
        parents = subject.parents(target)
        others = parents[parents != source]
        used = known[:, [target, *parents]].all(axis=1)
        with_edge = subject.predictive.column(target, parents, subject.scaled).log_density
        gains = np.where(used, with_edge - subject.predictive.column(target, others, subject.scaled).log_density, 0.0)
        largest = np.argsort(-gains)[:few]
        gain, rest = float(gains.sum()), float(gains.sum() - gains[largest].sum())
        if gain > 0 and rest <= 0:
            found.append(Carried((source, target), gain, rest, np.sort(subject.rows[largest])))
    return found
