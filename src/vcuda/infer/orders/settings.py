"""How orders are sampled: lengths, temperatures, and how many candidate parents there may be."""

from __future__ import annotations

from dataclasses import dataclass

from vcuda.errors import ConfigError

# Sweeps times columns, and the most sweeps: what few columns need to be known to within half a percent.
USUAL_UPDATES = 120_000
MOST_SWEEPS = 6000


@dataclass(frozen=True)
class Orders:
    """How to sample orders.

    Parameters
    ----------
    sweeps
        Updates of every node after annealing; the first quarter is dropped.
    precision, max_sweeps
        The sampling goes on until the largest standard error of an edge probability is below ``precision``,
        or ``max_sweeps`` are done. By default it ends after 120,000 updates of single nodes, if the chains agree by
        then: 6,000 sweeps at 20 columns, 600 at 200, ``sweeps`` from 400 on. If they do not, it goes on for up to 2.5
        times as many.
    replicas
        Independent ladders of chains; at least 2, since their disagreement is the first thing to look at.
    levels, hottest
        Number of temperatures in a ladder, and the inverse temperature of the hottest. By default 4 down to
        .5, and 6 down to .2 for scores that cannot distinguish Markov equivalent graphs.
    annealing
        Sweeps from random orders to the ladder; by default 60, and 120 from 500 columns.
    full
        Up to this many columns every column may be a parent of every other; by default 18 for linear scores, whose
        tables are quick to make, and 14 for the others.
    max_candidates
        Most candidate parents of a node beside those that are beyond doubt; its table has 2**max_candidates
        entries. By default 18 for linear scores, 12 for the others, whose tables take longer.
    fill
        Candidates that every node gets at least; by default 8 below 200 columns, none above.
    tolerance
        Columns that would gain more than minus this many nats (prior odds included) become candidates at
        first; in the first half of the rounds half of it, in the others none.
    rounds
        Most rounds of short sampling in which candidates are added.
    round_sweeps
        Sweeps in each of them.
    """

    sweeps: int = 300
    precision: float = 0.006
    max_sweeps: int | None = None
    replicas: int = 4
    levels: int | None = None
    hottest: float | None = None
    annealing: int | None = None
    full: int | None = None
    max_candidates: int | None = None
    fill: int | None = None
    tolerance: float = 4.0
    rounds: int = 8
    round_sweeps: int = 20

    def __post_init__(self) -> None:
        least = {
            "sweeps": 4,
            "max_sweeps": self.sweeps,
            "replicas": 2,
            "levels": 1,
            "annealing": 1,
            "full": 0,
            "max_candidates": 1,
            "fill": 0,
            "rounds": 0,
            "round_sweeps": 1,
        }
        for name, smallest in least.items():
            value = getattr(self, name)
            if value is not None and value < smallest:
                raise ConfigError(f"{name} must be at least {smallest}, got {value}")
        if not self.precision > 0:
            raise ConfigError(f"precision must be a positive number, got {self.precision}")
        if self.hottest is not None and not 0 < self.hottest <= 1:
            raise ConfigError(f"hottest is an inverse temperature above 0 and up to 1, got {self.hottest}")
        if max((self.full or 1) - 1, self.max_candidates or 0) > 24:
            raise ConfigError("tables of more than 24 candidates take too much memory; lower full or max_candidates")

    def usual_sweeps(self, nodes: int) -> int:
        """How many sweeps over so many columns are enough where the chains agree, however precise they are."""
        return self.max_sweeps or max(self.sweeps, min(USUAL_UPDATES // nodes, MOST_SWEEPS))

    def most_sweeps(self, nodes: int) -> int:
        """How many sweeps over so many columns are done at the most."""
        return self.max_sweeps or max(self.sweeps, min(round(2.5 * self.usual_sweeps(nodes)), MOST_SWEEPS))
