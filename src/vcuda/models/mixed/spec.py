"""The spec of regressions for tables of any mix of kinds."""

from __future__ import annotations

from dataclasses import dataclass

from vcuda.models.checks import check_max_parents
from vcuda.models.protocol import ScoreSpec


@dataclass(frozen=True)
class Mixed(ScoreSpec):
    """A regression of each column on its parents, by the kind of the column; free of units.

    Parameters
    ----------
    max_parents
        How many parents a column may have.
    """

    max_parents: int = 6

    def __post_init__(self) -> None:
        check_max_parents(self.max_parents)
