"""What specs and tables are checked for, whatever the family."""

from __future__ import annotations

import numpy as np

from vcuda.data.moments import varies
from vcuda.errors import ConfigError, DataError


def check_max_parents(max_parents: int | None) -> None:
    """Refuse a largest number of parents below one."""
    if max_parents is not None and max_parents < 1:
        raise ConfigError(f"max_parents must be at least 1, or None for no limit; got {max_parents}")


def check_positive(**settings: float) -> None:
    """Refuse settings that are not positive numbers, by name."""
    for name, value in settings.items():
        if not (np.isfinite(value) and value > 0):
            raise ConfigError(f"{name} must be a positive number, got {value}")


def centred_columns(values: np.ndarray, scale: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return the columns less their means (n, d) and their units (d,): those given, or their standard deviations;
    the columns must vary then."""
    table = np.asarray(values, dtype=np.float64)
    if table.ndim != 2 or table.shape[0] < 2 or table.shape[1] < 1:
        raise DataError(f"expected a table of at least 2 rows and 1 column, got an array of shape {table.shape}")
    if not np.isfinite(table).all():
        column = int(np.argmin(np.isfinite(table).all(axis=0)))
        raise DataError(f"column {column} holds missing or infinite values; fill or drop them before the fit")
    centred = table - table.mean(axis=0)
    # The mean is rounded, which matters where it is large beside the spread. What is left of it is small and exact.
    centred -= centred.mean(axis=0)
    if scale is not None:
        return centred, scale
    constant = ~varies(table.min(axis=0), table.max(axis=0))
    if constant.any():
        raise DataError(f"column {int(np.argmax(constant))} is constant; drop it, it can be neither cause nor effect")
    return centred, np.sqrt(np.mean(centred**2, axis=0))
