"""Sets of environments that may have changed a column: their prior, the pieces of the rows that they make, and a search
for the likely ones where they are too many to sum all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Literal, NamedTuple

import numpy as np

from vcuda.data.moments import Moments, merged
from vcuda.models.linear import BGe
from vcuda.models.protocol import LocalScore, ScoreSpec

Changes = Literal["mechanisms", "shifts"]
# Some environments whose rows share a mechanism; and groups of them that share slopes and noise, and no mean.
Group = tuple[int, ...]
Piece = tuple[Group, ...]
# The columns that were set, and the environment, of rows that are alike in both.
Strata = Mapping[tuple[frozenset[int], int], Moments]

# Of sets that are searched for, those that are so many nats below the best do not count, and no more than so many do.
NEGLIGIBLE, MOST_SEARCHED = 12.0, 256
# Parents that a search considers at most.
MOST_PARENTS = 6


def change_probability(columns: int) -> float:
    """The prior probability that an environment changed a column: each is expected to have changed one."""
    return min(0.5, 1.0 / columns)


class Change(NamedTuple):
    """Environments that changed a column: the pieces of the rows whose scores add up, and what is added to them."""

    environments: Group
    pieces: tuple[Piece, ...]
    log_weight: float


@dataclass(frozen=True)
class Prior:
    """What may have changed a column: ``active`` environments have rows in which it was free, the first is the base.

    ``rows`` has their numbers of free rows, of all ``count`` environments.
    """

    count: int
    active: Group
    rows: tuple[int, ...]
    probability: float
    changes: Changes
    mean_rows: float

    @property
    def others(self) -> Group:
        return self.active[1:]

    @property
    def sets(self) -> int:
        """How many sets of environments there are."""
        return 1 << len(self.others)

    def every(self) -> list[Change]:
        """All sets of environments, the smallest first."""
        sizes = range(len(self.others) + 1)
        return [self.change(own) for size in sizes for own in combinations(self.others, size)]

    def change(self, environments: Group) -> Change:
        same = tuple(e for e in self.active if e not in environments)
        odds = np.log(self.probability) - np.log1p(-self.probability)
        log_prior = len(environments) * odds + len(self.others) * np.log1p(-self.probability)
        alone = tuple((e,) for e in environments)
        if self.changes == "mechanisms":
            return Change(environments, ((same,), *((own,) for own in alone)), float(log_prior))
        # The pieces together have one mean in a score, and each of them has its own here.
        groups = (same, *alone)
        intercepts = sum(self._intercept(group) for group in groups) - self._intercept(self.active)
        return Change(environments, (groups,), float(log_prior + intercepts))

    def _intercept(self, group: Group) -> float:
        """What an intercept of its own, with the prior of the linear scores, adds to the score of some rows."""
        rows = sum(self.rows[e] for e in group)
        return 0.5 * float(np.log(self.mean_rows / (rows + self.mean_rows)))


class Pattern(NamedTuple):
    """Columns that were free in the same rows: the moments of these rows in each environment.

    ``never``: experiments set the columns in every row, so that their scores count nothing.
    """

    columns: list[int]
    moments: tuple[Moments, ...]
    prior: Prior
    never: bool


def piece_score(spec: ScoreSpec, moments: Sequence[Moments], piece: Piece, scale: np.ndarray) -> LocalScore:
    """The score of the rows of a piece; products are centred within its groups."""
    groups = [merged((moments[e] for e in group), scale.size) for group in piece]
    together = groups[0]._replace(
        rows=sum(group.rows for group in groups), gram=sum((group.gram for group in groups[1:]), start=groups[0].gram)
    )
    return spec.from_statistics(together, None, None, scale=scale)


def searched_changes(target: int, pattern: Pattern, scale: np.ndarray, kept: int) -> list[Change]:
    """The likely sets of environments that changed a column, found by a search from none and from all of them.

    They are judged by the linear score, given no parents and given those that explain the column in each environment
    by itself; the search adds or removes one environment at a time, and keeps what it has seen.
    """
    prior, seen = replace(pattern.prior, changes="mechanisms"), dict[Group, float]()

    def value(environments: Group, parents: Sequence[int]) -> float:
        change = prior.change(environments)
        scores = [piece_score(BGe(), pattern.moments, piece, scale).score(target, parents) for piece in change.pieces]
        return change.log_weight + sum(scores)

    for parents in ([], _separate_parents(target, pattern, scale)):
        here, ends = dict[Group, float](), list[Group]()
        for start in ((), prior.others):
            best = start
            here.setdefault(best, value(best, parents))
            while True:
                near = [tuple(sorted({*best} ^ {e})) for e in prior.others]
                for own in near:
                    if own not in here:
                        here[own] = value(own, parents)
                found = max(near, key=lambda own: here[own])
                if here[found] <= here[best]:
                    break
                best = found
            # Given other parents what is near may count more.
            ends += near
        top = max(here.values())
        for own, height in here.items():
            least = -NEGLIGIBLE if own in ends else -np.inf
            seen[own] = max(seen.get(own, -np.inf), height - top, least)
    likely = sorted(seen, key=lambda own: -seen[own])
    chosen = [own for own in likely if seen[own] >= -NEGLIGIBLE][:kept]
    return [pattern.prior.change(own) for own in dict.fromkeys([(), *chosen])]


def _separate_parents(target: int, pattern: Pattern, scale: np.ndarray) -> list[int]:
    """Columns that explain a column when every environment has a mechanism of its own, taken one by one."""
    scores = [piece_score(BGe(), pattern.moments, ((e,),), scale) for e in pattern.prior.active]
    chosen: list[int] = []
    while len(chosen) < min(MOST_PARENTS, scale.size - 1):
        gains = np.sum([score.gains(target, chosen) for score in scores], axis=0)
        if gains.max() <= 0:
            break
        chosen.append(int(np.argmax(gains)))
    return chosen
