"""What one line is about: a departure, a number of rows, a data set and a method; and the grid of all lines."""

from __future__ import annotations

import inspect
from dataclasses import asdict, dataclass
from typing import Any, Literal

import vcuda
from benchmarks.honesty.departures import DEPARTURES

Method = Literal["default", "unrobust"]

NODES, ROWS, SETS = 7, (500, 5_000), 10
# Thresholds of the model checks were chosen on tables of smaller seeds.
FIRST_SET = 100
METHODS: dict[Method, str] = {"default": "by default", "unrobust": "`robust=False`"}


@dataclass(frozen=True)
class Case:
    """One run, in words and numbers that go into its line as they are.

    Parameters
    ----------
    departure
        A name of ``DEPARTURES``.
    rows
        Of the table; it has ``nodes`` columns.
    index
        The seed of the data set and of the fit.
    method
        ``"default"``: `vcuda.fit` with nothing but the table. ``"unrobust"``: the same with ``robust=False``.
    """

    departure: str
    rows: int
    index: int = 0
    method: Method = "default"
    nodes: int = NODES

    def what(self) -> dict[str, Any]:
        """The part of the line that says what was run."""
        return asdict(self)

    def words(self) -> str:
        """One line for people, and what ``--only`` is looked for in."""
        return f"{self.departure} n={self.rows} {self.method} index={self.index}"


def methods() -> tuple[Method, ...]:
    """The fit by default, and the one without remedies if `vcuda.fit` has the option."""
    return ("default", "unrobust") if "robust" in inspect.signature(vcuda.fit).parameters else ("default",)


def grid() -> list[list[Case]]:
    """The first set of every departure, then the second of every departure and so on; each in a process of its own.

    A benchmark that is stopped has then seen every departure, and a process compiles its programs once. The fits by
    default come first in each set.
    """
    return [
        [Case(departure, rows, index, method) for method in methods() for rows in ROWS for departure in DEPARTURES]
        for index in range(FIRST_SET, FIRST_SET + SETS)
    ]
