"""A table in time as a table of windows: each row has the present step and the steps before it.

The columns of earlier steps are called ``x.lag1``, ``x.lag2``; they may be causes and have no causes here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vcuda.data.dataset import Dataset, read_only
from vcuda.data.messages import data_row, listed, shortened
from vcuda.data.raw_table import as_number
from vcuda.data.series.clock import PERIODS, Clock, Grid, Times, clock_of, clock_on, period_of, read_times
from vcuda.data.series.levels import Levels, found_in, windows_of
from vcuda.errors import ConfigError, DataError

LAGGED = re.compile(r"(.*)\.lag(\d+)", flags=re.DOTALL)
# Fewer windows than this tell nothing.
FEWEST_WINDOWS = 10
# Units with fewer steps than this lose much of their past with their level.
FEWEST_STEPS = 10


@dataclass(frozen=True)
class SeriesOptions:
    """What was asked for: how many steps back, the columns with the time and the unit, what is taken out.

    ``season`` and ``trend`` may be "auto"; a season of 0 is none. ``resample`` is a period, such as month.
    """

    lags: int
    time: str | None = None
    unit: str | None = None
    season: int | str = "auto"
    trend: str = "auto"
    resample: str | None = None
    log: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Series:
    """A table of windows, ``table``, whose first ``nodes`` columns are the present step.

    Parameters
    ----------
    names
        Of the present columns.
    lags
        How many steps back a window goes.
    sources
        ``(n, lags)`` the row of the table in which an earlier step is the present one; -1 where there is none.
    clock
        Of the rows of ``table``.
    levels
        What was taken out; None for nothing.
    logarithms
        Columns of which the logarithm was taken first.
    season, trend
        What was taken out, as found or as asked for.
    sentences
        What was done to the rows, for the summary.
    """

    table: Dataset
    names: tuple[str, ...]
    lags: int
    sources: np.ndarray
    clock: Clock
    levels: Levels | None
    logarithms: tuple[str, ...]
    season: int | None
    trend: bool
    sentences: tuple[str, ...]

    @property
    def nodes(self) -> int:
        return len(self.names)

    def consistent(self, table: Dataset) -> Dataset:
        """A table of windows whose missing cells were imputed, with one value for each cell: that of its own step."""
        if self.table.missing is None:
            return table
        values = table.values.copy()
        for lag in range(1, self.lags + 1):
            known = self.sources[:, lag - 1] >= 0
            own = slice(lag * self.nodes, (lag + 1) * self.nodes)
            values[known, own] = table.values[self.sources[known, lag - 1], : self.nodes]
        return replace(table, values=values)

    def to_dict(self) -> dict[str, Any]:
        """What a run stores."""
        return {
            "names": list(self.names),
            "lags": self.lags,
            "step": self.clock.step,
            "grid": list(self.clock.grid),
            "units": len(self.clock.unit_names),
            "unit_names": list(self.clock.unit_names),
            "rows": self.table.n,
            "season": self.season,
            "trend": self.trend,
            "logarithms": list(self.logarithms),
            "levels": None if self.levels is None else self.levels.to_dict(),
        }


def lagged_name(name: str, lag: int) -> str:
    """What a column is called so many steps before."""
    return f"{name}.lag{lag}" if lag else name


def parted(name: str, names: Sequence[str]) -> tuple[str, int] | None:
    """The column of the present step and the lag that a name stands for; ``x.lag0`` is ``x``. None where it is none."""
    if name in names:
        return name, 0
    found = LAGGED.fullmatch(name)
    return (found[1], int(found[2])) if found and found[1] in names else None


def series_of(table: Dataset, options: SeriesOptions) -> Series:
    """Sort the rows by unit and time, take out levels, and put each step beside those before it."""
    table, sentences = _resampled(table, options)
    clock = clock_of(table, options.time, options.unit)
    _check_steps(table, clock, options)
    values, kinds = np.array(table.values), list(table.kinds)
    for name in options.log:
        k = table.names.index(name)
        if np.nanmin(values[:, k]) <= 0:
            raise DataError(
                f"column {shortened(name)} reaches down to {np.nanmin(values[:, k]):g}, and only positive numbers have "
                "a logarithm: leave the column as it is."
            )
        values[:, k], kinds[k] = np.log(values[:, k]), "number"
    taken = np.array([kind in ("number", "count") for kind in kinds])
    asked = found_in(values, taken, clock, trend=options.trend, season=options.season)
    levels = None
    if asked.trend or asked.season is not None or len(clock.unit_names) > 1:
        levels = Levels.of(values, taken, clock, trend=asked.trend, season=asked.season)
        values = values - np.where(taken, levels.at(clock.steps, clock.units), 0.0)
        kinds = ["number" if kind == "count" else kind for kind in kinds]
    windows = windows_of(clock, options.lags)
    if len(windows) < FEWEST_WINDOWS:
        raise DataError(
            f"{table.source}: {len(windows)} rows have all of the {options.lags} steps before them, too few for a fit: "
            "use fewer lags (lags=, --lags), or give a longer series."
        )
    places = np.full(table.n, -1)
    places[windows[:, 0]] = np.arange(len(windows))
    for name in table.names:
        if parted(name, [other for other in table.names if other != name]) is not None:
            raise DataError(
                f"{table.source}: column {shortened(name)} has the name that an earlier step gets: rename it, or leave "
                "it out (exclude=, --exclude)."
            )
    held = None
    if table.interventions is not None:
        now = table.interventions[windows[:, 0]]
        held = np.concatenate([now, np.zeros((len(now), table.d * options.lags), dtype=bool)], axis=1)
    wide = Dataset(
        names=tuple(lagged_name(name, lag) for lag in range(options.lags + 1) for name in table.names),
        values=np.concatenate([values[windows[:, lag]] for lag in range(options.lags + 1)], axis=1),
        source=table.source,
        notes=table.notes,
        interventions=None if held is None or not held.any() else read_only(held),
        target_column=table.target_column,
        categories=None if table.categories is None else table.categories * (options.lags + 1),
        choice=table.choice,
        kinds=tuple(kinds) * (options.lags + 1),
        left_out=table.left_out,
    )
    now = windows[:, 0]
    return Series(
        table=wide,
        names=table.names,
        lags=options.lags,
        sources=places[windows[:, 1:]],
        clock=clock._replace(steps=clock.steps[now], units=clock.units[now]),
        levels=levels,
        logarithms=options.log,
        season=asked.season,
        trend=asked.trend,
        sentences=(
            *sentences,
            *_sentences(table, clock, options, len(windows)),
            *asked.sentences,
            *_taken_sentences(table, clock, levels, asked.season, trend=asked.trend),
        ),
    )


def new_windows(table: Dataset, stored: Mapping[str, Any], options: SeriesOptions) -> tuple[np.ndarray, Clock, Levels]:
    """Windows ``(n, d (lags + 1))`` of new rows, with what the fit took out of them, as a fit stored it.

    Returns the clock of the rows at their ends, and the levels.
    """
    names, lags = tuple(stored["names"]), int(stored["lags"])
    table, _ = _resampled(table, options)
    clock = clock_on(Grid(*stored["grid"]), stored["unit_names"], table, options.time, options.unit)
    d = len(names)
    nothing = np.zeros((len(stored["unit_names"]), d))
    levels = Levels(nothing, nothing, np.zeros((1, d)), np.zeros(d))
    if stored["levels"] is not None:
        levels = Levels.from_dict(stored["levels"])
        moves = np.ptp(levels.season) > 0 or np.any(levels.slope != 0)
        if options.time is None and moves:
            raise ConfigError(
                "the fit took out a trend or a season, and these rows do not say when they were measured: fit with "
                "time= (--time) to predict new rows"
            )
    values = np.array(table.values)
    for name in stored["logarithms"]:
        k = names.index(name)
        if np.any(values[:, k] <= 0):
            row = int(np.argmax(values[:, k] <= 0))
            raise DataError(
                f"{table.source}: {data_row(row)} of column {shortened(name)} has no logarithm: {values[row, k]:g}."
            )
        values[:, k] = np.log(values[:, k])
    values = values - levels.at(clock.steps, clock.units)
    windows = windows_of(clock, lags)
    if not len(windows):
        raise DataError(
            f"{table.source}: no row has the {lags} steps before it that a prediction needs: give more rows, those "
            "before the first to be predicted among them."
        )
    now = windows[:, 0]
    wide = np.concatenate([values[windows[:, lag]] for lag in range(lags + 1)], axis=1)
    return wide, clock._replace(steps=clock.steps[now], units=clock.units[now]), levels


def _resampled(table: Dataset, options: SeriesOptions) -> tuple[Dataset, list[str]]:
    """The mean of each period: of labels and other kinds the last value that is known."""
    if options.resample is None:
        return table, []
    if options.time is None:
        raise ConfigError("resample takes the mean of each period of time: name the column with the time (time=)")
    times = read_times(table, options.time)[0]
    units = np.zeros(table.n, dtype=np.int64)
    if options.unit is not None:
        _, units = np.unique(np.array(table.beside[options.unit]), return_inverse=True)
    periods, starts = _periods(times, options.resample)
    order = np.lexsort((times.moments, periods, units))
    keys = np.stack([units[order], periods[order]], axis=1)
    first = np.flatnonzero(np.r_[True, (np.diff(keys, axis=0) != 0).any(axis=1)])
    groups = np.split(order, first[1:])
    values = np.empty((len(groups), table.d))
    for k, kind in enumerate(table.kinds):
        column = table.values[:, k]
        for place, rows in enumerate(groups):
            known = column[rows][~np.isnan(column[rows])]
            if not known.size:
                values[place, k] = np.nan
            else:
                values[place, k] = known.mean() if kind in ("number", "count") else known[-1]
    if table.interventions is not None:
        raise ConfigError(
            "resample takes means of rows, and cells that were set cannot be told apart then: leave out "
            "interventions, or resample the table before"
        )
    beside = {options.time: tuple(starts[int(rows[0])] for rows in groups)}
    if options.unit is not None:
        beside[options.unit] = tuple(table.beside[options.unit][int(rows[0])] for rows in groups)
    kinds = tuple("number" if kind == "count" else kind for kind in table.kinds)
    sentence = f"{table.n:,} rows became {len(groups):,}, one for each {options.resample}: numbers by their mean."
    return replace(table, values=values, kinds=kinds, beside=beside), [sentence]


def _periods(times: Times, resample: str) -> tuple[np.ndarray, list[str]]:
    """The number of the period (n,) of each row, and its start as text."""
    width = as_number(resample)
    if width is not None and not times.dated:
        if not width > 0:
            raise ConfigError(f"resample must be a period longer than zero, not {resample!r}")
        periods = np.floor(times.moments / width).astype(np.int64)
        return periods, [f"{own * width:.15g}" for own in periods]
    if resample not in PERIODS or not times.dated:
        known = f"one of {', '.join(PERIODS)}" if times.dated else "a number, the width of a period"
        raise ConfigError(f"resample must be {known}, not {resample!r}")
    import pandas as pd

    codes = {"minute": "min", "hour": "h", "day": "D", "week": "W", "month": "M", "quarter": "Q", "year": "Y"}
    starts = pd.to_datetime(times.moments, unit="s").to_period(codes[resample]).start_time
    return period_of(times, resample), [str(own) for own in starts]


def _check_steps(table: Dataset, clock: Clock, options: SeriesOptions) -> None:
    counts = np.bincount(clock.units, minlength=len(clock.unit_names))
    if table.n <= options.lags:
        raise DataError(
            f"{table.source}: lags={options.lags} steps back need more than {options.lags} rows, and there are "
            f"{table.n}: use fewer lags, or give a longer series."
        )
    short = int(np.argmin(counts))
    if counts[short] < options.lags + 2:
        row = int(np.argmax(clock.units == short))
        raise DataError(
            f"{table.source}: unit {shortened(clock.unit_names[short])} ({data_row(row)}) has {counts[short]} rows, "
            f"too few for {options.lags} {'lag' if options.lags == 1 else 'lags'} and its own level: leave it out, or "
            "use fewer lags."
        )
    season = options.season
    span = int(max(np.ptp(clock.steps[clock.units == unit]) for unit in range(len(counts)))) + 1
    if isinstance(season, int) and season > 1 and 2 * season > span:
        raise DataError(
            f"{table.source}: a season of {season} steps must be seen at least twice, and the series has {span:,} steps"
            ": give a shorter season, or leave it out (season=0)."
        )


def _sentences(table: Dataset, clock: Clock, options: SeriesOptions, windows: int) -> list[str]:
    """How the rows were ordered, and what that left of them."""
    steps = f"one {clock.step} apart" if clock.step not in ("row", "step") else "in their order"
    units = f" of {len(clock.unit_names):,} units" if len(clock.unit_names) > 1 else ""
    found = [
        f"The rows{units} are a time series, {steps}: each may depend on up to {options.lags} "
        f"{'step' if options.lags == 1 else 'steps'} before it."
    ]
    expected = table.n - options.lags * len(clock.unit_names)
    if windows < expected:
        span = sum(int(np.ptp(clock.steps[clock.units == own])) + 1 for own in range(len(clock.unit_names)))
        missing = span - table.n
        if missing > 0:
            found.append(
                f"{missing:,} of {span:,} steps are missing: {windows:,} rows have all steps before them and were "
                "fitted."
            )
    return found


def _taken_sentences(
    table: Dataset, clock: Clock, levels: Levels | None, season: int | None, *, trend: bool
) -> list[str]:
    if levels is None:
        return []
    what = []
    if len(clock.unit_names) > 1:
        what.append("the level of each unit")
    if trend:
        what.append("a straight trend")
    if season is not None:
        what.append(f"a season of {season} steps")
    found = [f"Taken out of the numbers before the fit: {' and '.join(what)}."]
    counts = [name for name, kind in zip(table.names, table.kinds, strict=True) if kind == "count"]
    if counts:
        found.append(f"So {listed(counts)} {'counts as a number' if len(counts) == 1 else 'count as numbers'}.")
    others = [name for name, kind in zip(table.names, table.kinds, strict=True) if kind not in ("number", "count")]
    if others:
        found.append(f"Nothing was taken out of {listed(others)}, which are no numbers.")
    least = int(np.bincount(clock.units, minlength=len(clock.unit_names)).min())
    if len(clock.unit_names) > 1 and least < FEWEST_STEPS:
        found.append(
            f"A unit has only {least} steps: with so few, taking out its level also takes away a part of how each step "
            "depends on the one before."
        )
    return found
