"""When each row was measured: times as whole steps, one after the other within each unit."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from itertools import pairwise
from math import gcd
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from vcuda.data.messages import data_row, shortened
from vcuda.data.raw_table import as_number
from vcuda.errors import DataError

if TYPE_CHECKING:
    from vcuda.data.dataset import Dataset

# Beside ISO 8601, which comes first. Where several fit, the first whose steps are regular is taken.
FORMATS = ("%Y-%m", "%Y/%m", "%Y/%m/%d", "%Y.%m.%d", "%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%b %Y", "%B %Y", "%d %b %Y")
QUARTER = re.compile(r"(\d{4})[- ]?Q([1-4])", flags=re.IGNORECASE)
SECOND = 1.0
DAY = 86_400.0
# What people call steps of so many seconds.
NAMED_SECONDS = {60.0: "minute", 3600.0: "hour", DAY: "day", 7 * DAY: "week"}
NAMED_MONTHS = {1: "month", 3: "quarter", 12: "year"}
# The season that a step of the calendar has.
SEASONS = {"hour": 24, "day": 7, "weekday": 5, "week": 52, "month": 12, "quarter": 4}
# A step may be off by this share of it.
TOLERANCE = 0.01
HOW_TO_RESAMPLE = "(resample=, --resample)"
PERIODS = ("minute", "hour", "day", "week", "month", "quarter", "year")
# The mean of so few seconds of a month says that rows are a month apart or more.
SHORTEST_MONTH = 27.9 * DAY


def index_as_column(data: Any) -> tuple[Any, str] | None:
    """A pandas table whose index holds dates, with the index as a column, and the name of that; None for others."""
    pandas = sys.modules.get("pandas")
    if pandas is None or not isinstance(data, pandas.DataFrame):
        return None
    index = data.index.to_timestamp() if isinstance(data.index, pandas.PeriodIndex) else data.index
    if not isinstance(index, pandas.DatetimeIndex):
        return None
    name = str(index.name or "time")
    while name in data.columns:
        name += "_"
    return data.reset_index(drop=True).assign(**{name: index}), name


class Times(NamedTuple):
    """Moments (n,), as numbers of the user's column or as seconds since 1970; ``dated`` if they are dates."""

    moments: np.ndarray
    dated: bool

    def months(self) -> np.ndarray | None:
        """Months since year 0, of dates that are all on one day of the month, at one time of the day."""
        import pandas as pd

        if not self.dated:
            return None
        dates = pd.to_datetime(self.moments, unit="s")
        within = dates - dates.to_period("M").start_time
        ends = dates.is_month_end.all()
        if not (ends or (within == within[0]).all()):
            return None
        return (dates.year * 12 + dates.month - 1).to_numpy(dtype=np.int64)

    def counted(self, kind: str) -> np.ndarray | None:
        """Months, weekdays or the moments themselves; None where the times are no such."""
        if kind == "months":
            return self.months()
        return self.weekdays() if kind == "weekdays" else self.moments

    def weekdays(self) -> np.ndarray | None:
        """Days without Saturdays and Sundays since 1970, of dates among which there are none of these."""
        if not self.dated or np.any(self.moments % DAY != self.moments[0] % DAY):
            return None
        days = (self.moments // DAY).astype("datetime64[D]")
        return np.busday_count("1970-01-01", days) if np.is_busday(days).all() else None


class Grid(NamedTuple):
    """Steps of a width from an origin: of ``months``, ``weekdays``, ``moments`` (seconds or the user's numbers), or of
    ``rows`` that have no time."""

    kind: str
    origin: float = 0.0
    width: float = 1.0


class Clock(NamedTuple):
    """Rows in time: ``steps`` (n,) are whole numbers, ``units`` (n,) say which unit each belongs to.

    ``step`` is what a step is called, such as month; ``season`` is the season that such steps usually have, or None.
    ``grid`` says how times become steps.
    """

    steps: np.ndarray
    units: np.ndarray
    unit_names: tuple[str, ...]
    step: str
    season: int | None
    grid: Grid

    @property
    def order(self) -> np.ndarray:
        """The rows (n,) by unit, then by time."""
        return np.lexsort((self.steps, self.units))


def clock_of(table: Dataset, time: str | None, unit: str | None) -> Clock:
    """Read the times and units of a table; rows without a time are one step apart, in their order."""
    units, names = _units(table, unit)
    if time is None:
        steps = np.zeros(table.n, dtype=np.int64)
        for own in range(len(names)):
            steps[units == own] = np.arange(int((units == own).sum()))
        return Clock(steps, units, names, "row", None, Grid("rows"))
    found = []
    for times in read_times(table, time):
        try:
            return _regular(table, time, unit, times, units, names)
        except DataError as fault:
            found.append(fault)
    raise found[0]


def clock_on(grid: Grid, known: Sequence[str], table: Dataset, time: str | None, unit: str | None) -> Clock:
    """The clock of new rows, on the steps and with the units that a fit has seen."""
    clock = clock_of(table, time, unit)
    places = {name: place for place, name in enumerate(known)}
    strange = [name for name in clock.unit_names if name not in places]
    if strange:
        row = int(np.argmax(clock.units == clock.unit_names.index(strange[0])))
        raise DataError(
            f"{table.source}: {data_row(row)} belongs to unit {shortened(strange[0])}, which was not in the fitted "
            "table: leave out its rows, or fit them too."
        )
    units = np.array([places[clock.unit_names[own]] for own in clock.units])
    steps = clock.steps
    if time is not None:
        for times in read_times(table, time):
            count = times.counted(grid.kind)
            if count is not None:
                steps = np.round((count - grid.origin) / grid.width).astype(np.int64)
                break
    return Clock(steps, units, tuple(known), clock.step, clock.season, grid)


def _units(table: Dataset, unit: str | None) -> tuple[np.ndarray, tuple[str, ...]]:
    if unit is None:
        return np.zeros(table.n, dtype=np.int64), ("",)
    cells = table.beside[unit]
    if "" in cells:
        raise DataError(
            f"{table.source}: {data_row(cells.index(''))} has no {shortened(unit)}: say which unit it belongs to, or "
            "leave out the row."
        )
    names = tuple(dict.fromkeys(cells))
    places = {name: place for place, name in enumerate(names)}
    return np.array([places[cell] for cell in cells]), names


def read_times(table: Dataset, column: str) -> list[Times]:
    """The times of all rows, in every way that they can be read, the likeliest first."""
    cells = table.beside[column]
    if "" in cells:
        raise DataError(
            f"{table.source}: {data_row(cells.index(''))} has no time in column {shortened(column)}: write it there, "
            "or leave out the row."
        )
    numbers = [as_number(cell) for cell in cells]
    if None not in numbers:
        values = np.array(numbers, dtype=np.float64)
        if not np.isfinite(values).all():
            row = int(np.argmin(np.isfinite(values)))
            raise _no_time(table, column, row)
        return [*_dates_of_numbers(values), Times(values, False)]
    found = _dates(cells)
    if not found:
        good = _parsed(cells, "ISO8601", errors="coerce")
        raise _no_time(table, column, int(np.argmax(np.isnan(good))) if np.isnan(good).any() else 0)
    return found


def _no_time(table: Dataset, column: str, row: int) -> DataError:
    cell = table.beside[column][row]
    return DataError(
        f"{table.source}: {data_row(row)} of column {shortened(column)} holds {shortened(cell)}, which is no time: "
        "write times as 2024-01-31, 2024-01-31 13:00, 2024-01, 2024Q1 or as numbers."
    )


def _dates_of_numbers(values: np.ndarray) -> list[Times]:
    """Dates that were written as numbers: 20240131, 202401."""
    if np.any(values != np.floor(values)) or values.size < 3:
        return []
    for least, most, pattern in ((19000101, 22001231, "%Y%m%d"), (190001, 220012, "%Y%m")):
        if values.min() >= least and values.max() <= most:
            moments = _parsed([f"{int(value)}" for value in values], pattern, errors="coerce")
            if not np.isnan(moments).any():
                return [Times(moments, True)]
    return []


def _dates(cells: Sequence[str]) -> list[Times]:
    found = []
    for pattern in ("ISO8601", *FORMATS):
        moments = _parsed(cells, pattern, errors="coerce")
        if not np.isnan(moments).any():
            found.append(Times(moments, True))
    quarters = [QUARTER.fullmatch(cell) for cell in cells]
    if not found and all(quarters):
        months = [f"{own[1]}-{3 * int(own[2]) - 2:02d}" for own in quarters if own]
        found.append(Times(_parsed(months, "%Y-%m", errors="raise"), True))
    return found


def _parsed(cells: Sequence[str], pattern: str, *, errors: Any) -> np.ndarray:
    """Seconds since 1970, NaN for what is no date of this pattern."""
    import pandas as pd

    try:
        dates = pd.to_datetime(pd.Series(list(cells)), format=pattern, errors=errors, utc=True)
    except (ValueError, TypeError):
        return np.full(len(cells), np.nan)
    moments = (dates - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(seconds=1)
    return moments.to_numpy(dtype=np.float64)


def _regular(
    table: Dataset, time: str, unit: str | None, times: Times, units: np.ndarray, names: tuple[str, ...]
) -> Clock:
    """Whole steps, of the calendar where all times agree with one; refused where the times are irregular."""
    order = np.lexsort((times.moments, units))
    same = units[order][1:] == units[order][:-1]
    first, second = order[:-1][same], order[1:][same]
    apart = times.moments[second] - times.moments[first]
    if np.any(apart == 0):
        place = int(np.argmax(apart == 0))
        rows = sorted((int(first[place]), int(second[place])))
        remedy = (
            "if the rows belong to several units, name the column that says which (unit=, --unit); otherwise leave "
            f"out one of them, or take the mean of each period {HOW_TO_RESAMPLE}"
            if unit is None
            else f"leave out one of them, or take the mean of each period {HOW_TO_RESAMPLE}"
        )
        who = "" if unit is None else f" of unit {shortened(names[int(units[rows[0]])])}"
        raise DataError(
            f"{table.source}: {data_row(rows[0])} and {data_row(rows[1])}{who} have the same time "
            f"{shortened(table.beside[time][rows[0]])} in column {shortened(time)}: {remedy}."
        )
    if not apart.size:
        return Clock(np.zeros(table.n, dtype=np.int64), units, names, "step", None, Grid("moments"))
    for count, called in ((times.months(), NAMED_MONTHS), (times.weekdays(), None)):
        if count is None:
            continue
        between = count[second] - count[first]
        if called is None:
            if np.median(between) == 1 and np.any(apart > 1.5 * DAY) and float(np.median(apart)) == DAY:
                grid = Grid("weekdays", float(count.min()))
                return Clock(count - count.min(), units, names, "weekday", SEASONS["weekday"], grid)
        elif between.min() > 0 and float(np.median(apart)) >= SHORTEST_MONTH:
            months = gcd(*between.tolist())
            step = called.get(months, f"{months} months")
            grid = Grid("months", float(count.min()), float(months))
            return Clock((count - count.min()) // months, units, names, step, SEASONS.get(step), grid)
    width = float(np.median(apart))
    counted = apart / width
    off = np.abs(counted - np.round(counted)) > TOLERANCE
    off |= np.round(counted) < 1
    if off.any():
        place = int(np.argmax(off))
        raise _irregular(table, time, int(first[place]), int(second[place]), apart[place], width, times.dated)
    steps = np.zeros(table.n, dtype=np.int64)
    for own in range(len(names)):
        mine = np.flatnonzero(units == own)
        steps[mine] = np.round((times.moments[mine] - times.moments[mine].min()) / width).astype(np.int64)
        steps[mine] += int(np.floor((times.moments[mine].min() - times.moments.min()) / width + TOLERANCE))
    step = in_words(width, times.dated)
    return Clock(steps, units, names, step, SEASONS.get(step), Grid("moments", float(times.moments.min()), width))


def _irregular(
    table: Dataset, time: str, first: int, second: int, apart: float, width: float, dated: bool
) -> DataError:
    cells = table.beside[time]
    return DataError(
        f"{table.source}: the times in column {shortened(time)} are irregular: most rows are {in_words(width, dated)} "
        f"apart, but {data_row(second)} ({shortened(cells[second])}) is {in_words(apart, dated)} after "
        f"{data_row(first)} ({shortened(cells[first])}): take the mean of each period {HOW_TO_RESAMPLE}, or leave out "
        "rows so that all steps are alike."
    )


def in_words(width: float, dated: bool) -> str:
    """How long a step is."""
    if not dated:
        return "step" if width == 1 else f"{width:.4g}"
    if width in NAMED_SECONDS:
        return NAMED_SECONDS[width]
    for seconds, name in sorted(NAMED_SECONDS.items(), reverse=True):
        if width >= seconds:
            return f"{width / seconds:.4g} {name}s"
    return f"{width:.4g} seconds"


def period_of(times: Times, period: str) -> np.ndarray:
    """The number of the period (n,) that each moment falls into."""
    import pandas as pd

    dates = pd.to_datetime(times.moments, unit="s")
    codes = {"minute": "min", "hour": "h", "day": "D", "week": "W", "month": "M", "quarter": "Q", "year": "Y"}
    return np.array([own.ordinal for own in dates.to_period(codes[period])], dtype=np.int64)


def runs_of(clock: Clock) -> list[np.ndarray]:
    """The rows of each unninterrupted run of steps, in order: no step is missing inside, and all are of one unit."""
    order = clock.order
    breaks = (np.diff(clock.steps[order]) != 1) | (np.diff(clock.units[order]) != 0)
    ends = [0, *(np.flatnonzero(breaks) + 1).tolist(), order.size]
    return [order[start:end] for start, end in pairwise(ends)]
