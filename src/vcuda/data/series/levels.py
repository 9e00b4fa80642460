"""Levels of units, trends and seasons: what is taken out of the numbers of a series before it is fitted.

What drifts or returns with the calendar in two columns makes them go together without any effect between them. Levels
are regressions of each number on the unit, on time within the unit, and on the place in the season; what is left keeps
the mean of the column.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from vcuda.data.series.clock import Clock, runs_of

# Seasons that are tried where the calendar says nothing.
USUAL_SEASONS = (12, 4, 7, 24, 52)
# A season that is not asked for must have been seen so many times.
LEAST_SEASONS = 3
# Evidence, in nats, beyond what the number of columns and seasons tried may bring by chance.
ENOUGH = 3.0
# What a logarithm must gain, in nats.
ENOUGH_FOR_LOGARITHM = 5.0
# Units with fewer steps share the slope of the trend.
STEPS_FOR_SLOPES = 30
# Steps back in the regressions that look for trends and seasons.
OWN_STEPS = 2


class Asked(NamedTuple):
    """What was found to be in the table: whether there is a trend, the season or None, and why, in sentences."""

    trend: bool
    season: int | None
    sentences: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Levels:
    """Levels of d columns: at step t of unit u, ``intercept[u] + slope[u] t + season[t mod s]``.

    Columns that are no numbers have zeros, and ``mean`` is what is added again to what is left.
    """

    intercept: np.ndarray
    slope: np.ndarray
    season: np.ndarray
    mean: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray, taken: np.ndarray, clock: Clock, *, trend: bool, season: int | None) -> Levels:
        """Fit the levels of the columns ``taken`` (d,) of a table (n, d), each to the cells that are not missing."""
        groups, d = len(clock.unit_names), values.shape[1]
        per_unit = np.bincount(clock.units, minlength=groups)
        own_slopes = bool(per_unit.min() >= STEPS_FOR_SLOPES)
        period = season or 1
        intercept, slope = np.zeros((groups, d)), np.zeros((groups, d))
        seasons, mean = np.zeros((period, d)), np.zeros(d)
        for k in np.flatnonzero(taken):
            known = ~np.isnan(values[:, k])
            y, units, steps = values[known, k], clock.units[known], clock.steps[known].astype(np.float64)
            mean[k] = y.mean()
            phases = np.eye(period)[clock.steps[known] % period][:, 1:]
            within = _Within(units, steps, groups, trend=trend, own_slopes=own_slopes)
            left, phases_left = within.residuals(y), within.residuals(phases)
            effects = np.linalg.lstsq(phases_left, left, rcond=None)[0] if period > 1 else np.zeros(0)
            seasons[1:, k] = effects
            seasons[:, k] -= seasons[:, k].mean()
            intercept[:, k], slope[:, k] = within.line(y - seasons[clock.steps[known] % period, k])
        return cls(intercept, slope, seasons, mean)

    def at(self, steps: np.ndarray, units: np.ndarray) -> np.ndarray:
        """The levels (n, d) less the means of the columns."""
        line = self.intercept[units] + self.slope[units] * steps[:, None]
        return line + self.season[steps % len(self.season)] - self.mean

    def to_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name).tolist() for name in ("intercept", "slope", "season", "mean")}

    @classmethod
    def from_dict(cls, stored: dict[str, Any]) -> Levels:
        return cls(*(np.array(stored[name], dtype=np.float64) for name in ("intercept", "slope", "season", "mean")))


class _Within:
    """Regressions on units, and on time within them, without a column for each unit."""

    def __init__(self, units: np.ndarray, steps: np.ndarray, groups: int, *, trend: bool, own_slopes: bool) -> None:
        self.units, self.groups, self.trend, self.own_slopes = units, groups, trend, own_slopes
        self.counts = np.maximum(np.bincount(units, minlength=groups), 1)
        self.mean_step = self._means(steps)
        self.away = steps - self.mean_step[units]
        squares = np.bincount(units, self.away**2, minlength=groups)
        self.squares = squares if own_slopes else np.full(groups, squares.sum())

    def _means(self, column: np.ndarray) -> np.ndarray:
        return np.bincount(self.units, column, minlength=self.groups) / self.counts

    def line(self, column: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Intercepts and slopes, both (g,)."""
        means, slopes = self._means(column), np.zeros(self.groups)
        if self.trend:
            products = np.bincount(self.units, self.away * column, minlength=self.groups)
            together = products if self.own_slopes else np.full(self.groups, products.sum())
            slopes = np.where(self.squares > 0, together / np.maximum(self.squares, 1e-300), 0.0)
        return means - slopes * self.mean_step, slopes

    def residuals(self, columns: np.ndarray) -> np.ndarray:
        if columns.ndim == 1:
            intercept, slope = self.line(columns)
            return columns - intercept[self.units] - slope[self.units] * (self.away + self.mean_step[self.units])
        return np.stack([self.residuals(one) for one in columns.T], axis=1) if columns.shape[1] else columns


def found_in(values: np.ndarray, taken: np.ndarray, clock: Clock, *, trend: str, season: int | str) -> Asked:
    """Whether there is a trend, and which season, as asked for or as the columns show beside their own past."""
    sentences = []
    has_trend = trend == "linear"
    if trend == "auto":
        gains = _gains(values, taken, clock, trend=False, of=_time)
        has_trend = bool(gains.size) and float(gains.max()) > ENOUGH + np.log(gains.size)
    chosen = season if isinstance(season, int) and season > 1 else None
    if season == "auto":
        longest = max((len(run) for run in runs_of(clock)), default=0)
        tried = [clock.season] if clock.season is not None else list(USUAL_SEASONS)
        tried = [one for one in tried if one is not None and LEAST_SEASONS * one <= longest]
        best = 0.0
        for one in tried:
            for of in (_waves(one), _phases(one)):
                gains = _gains(values, taken, clock, trend=has_trend, of=of)
                lead = float(gains.max()) - ENOUGH - np.log(gains.size * len(tried)) if gains.size else 0.0
                if lead > best:
                    best, chosen = lead, one
    if has_trend and trend == "auto":
        sentences.append('The columns drift in straight lines beside their own past (trend="none" keeps that).')
    if chosen is not None and season == "auto":
        sentences.append(f"The columns have a season of {chosen} steps (season=0 keeps it).")
    return Asked(has_trend, chosen, tuple(sentences))


def _time(steps: np.ndarray) -> np.ndarray:
    return steps[:, None].astype(np.float64)


def _waves(season: int) -> Any:
    """A sine and a cosine of the season: few numbers, for seasons that rise and fall once."""

    def of(steps: np.ndarray) -> np.ndarray:
        angle = 2 * np.pi * steps / season
        return np.stack([np.sin(angle), np.cos(angle)], axis=1) if season > 2 else np.cos(angle)[:, None]

    return of


def _phases(season: int) -> Any:
    return lambda steps: np.eye(season)[steps % season][:, 1:]


def _gains(values: np.ndarray, taken: np.ndarray, clock: Clock, *, trend: bool, of: Any) -> np.ndarray:
    """What functions of time gain in each number beside its own past, in nats by the Bayesian information criterion."""
    windows = windows_of(clock, OWN_STEPS)
    if len(windows) < 10:
        return np.zeros(0)
    now = windows[:, 0]
    found = []
    for k in np.flatnonzero(taken):
        past = values[windows, k]
        known = ~np.isnan(past).any(axis=1)
        steps, units = clock.steps[now[known]], clock.units[now[known]]
        within = _Within(units, steps.astype(float), len(clock.unit_names), trend=trend, own_slopes=False)
        y, own, new = (within.residuals(one) for one in (past[known, 0], past[known, 1:], of(steps)))
        rows = int(known.sum())
        if rows < 3 * (own.shape[1] + new.shape[1]):
            continue
        without = _left(y, own)
        with_it = _left(y, np.concatenate([own, new], axis=1))
        if not with_it > 0:
            continue
        found.append(0.5 * rows * np.log(without / with_it) - 0.5 * new.shape[1] * np.log(rows))
    return np.array(found)


def lognormal_columns(values: np.ndarray, taken: np.ndarray, clock: Clock, season: int | None) -> np.ndarray:
    """The columns (d,) whose logarithm is better described by its own past, a trend and a season than the column is."""
    windows, found = windows_of(clock, OWN_STEPS), np.zeros(values.shape[1], dtype=bool)
    if len(windows) < 10:
        return found
    now = windows[:, 0]
    for k in np.flatnonzero(taken):
        past = values[windows, k]
        known = ~np.isnan(past).any(axis=1)
        if not known.any() or np.nanmin(values[:, k]) <= 0:
            continue
        steps, units = clock.steps[now[known]], clock.units[now[known]]
        within = _Within(units, steps.astype(float), len(clock.unit_names), trend=True, own_slopes=False)
        phases = within.residuals(_phases(season)(steps)) if season else np.zeros((steps.size, 0))
        rows, left = int(known.sum()), []
        for one in (past[known], np.log(past[known])):
            own = np.concatenate([within.residuals(one[:, 1:]), phases], axis=1)
            left.append(max(_left(within.residuals(one[:, 0]), own), 1e-300))
        lead = 0.5 * rows * np.log(left[0] / left[1]) - float(np.log(past[known, 0]).sum())
        found[k] = lead > ENOUGH_FOR_LOGARITHM
    return found


def _left(y: np.ndarray, columns: np.ndarray) -> float:
    weights = np.linalg.lstsq(columns, y, rcond=None)[0]
    return float(np.sum((y - columns @ weights) ** 2))


def windows_of(clock: Clock, lags: int) -> np.ndarray:
    """Rows (w, 1 + lags) that follow each other without a missing step: the present one first, then back in time."""
    found = [
        np.stack([run[lags - lag : len(run) - lag] for lag in range(lags + 1)], axis=1)
        for run in runs_of(clock)
        if len(run) > lags
    ]
    return np.concatenate([np.zeros((0, 1 + lags), dtype=np.int64), *found])
