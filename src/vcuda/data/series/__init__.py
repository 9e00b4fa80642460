"""Tables whose rows are steps in time: clock.py (times as whole steps), levels.py (units, trends, seasons), lagged.py
(windows of steps)."""

from vcuda.data.series.lagged import Series, SeriesOptions, lagged_name, parted, series_of

__all__ = ["Series", "SeriesOptions", "lagged_name", "parted", "series_of"]
