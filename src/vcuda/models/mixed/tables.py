"""Which sets of parents count, and their evidence: computed before a search begins, because each takes milliseconds.

A cheap score, normal regressions on the smooth features of the parents, proposes the candidates of every column. All
sets of up to three candidates are then fitted, and larger ones where three are better than two. A set is not fitted
where the cheap score of one of its subsets is far better: it gets what it can be expected to have. To parts of the rows
only those sets are fitted that can matter there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np

from vcuda.models.mixed.columns import Column
from vcuda.models.mixed.evidence import EVERY, ColumnEvidence, Rows, Set, View
from vcuda.models.mixed.relevance import MOST_COLUMNS, losses
from vcuda.models.tabulated import TabulatedScore

ResultT = TypeVar("ResultT")

# Up to so many columns, all others are candidates of each.
ALL_COLUMNS = 12
# Sets of up to so many candidates are all tried; larger ones extend the best.
FULL_PARENTS = 3
MAX_PARENTS = 6
# A set whose cheap score is so many nats below that of a subset is not fitted.
DOMINATED = 8.0
# So is one with a parent that loses so much beside each of the other members alone.
USELESS = 4.0
# A set whose best graph is so many nats below the best of all cannot matter: parts of the rows differ by less.
IRRELEVANT = 100.0
# A set is extended if it is better than its subsets by the first, and among the best of its size by the second.
WORTH_EXTENDING, NEAR_BEST = 3.0, 10.0


class ColumnSets(NamedTuple):
    """The sets of one column: ``fitted``, subsets first, and ``expected``, each with a subset that is far better and
    what it is expected to have above it, which is negative."""

    candidates: tuple[int, ...]
    fitted: tuple[Set, ...]
    expected: dict[Set, tuple[Set, float]]


@dataclass(frozen=True, eq=False)
class MixedTable:
    """A table of any mix of kinds.

    Parameters
    ----------
    columns
        What the family knows of the columns.
    values
        (n, d) rows, logarithms of some columns among them.
    held
        (n, d) cells that an experiment set, or None.
    targets
        Only so many columns, from the first on, are described by others; the rest may be causes. By default all.
    """

    columns: tuple[Column, ...]
    values: np.ndarray
    held: np.ndarray | None = None
    targets: int | None = None

    @property
    def described(self) -> int:
        """How many columns are described by others, from the first on."""
        return len(self.columns) if self.targets is None else self.targets

    def evidences(
        self, rows: np.ndarray | None = None, before: Sequence[ColumnEvidence] | None = None
    ) -> list[ColumnEvidence]:
        """The evidence of every column, on all rows or on some of them (k,); fits begin at those ``before``."""
        values = self.values if rows is None else self.values[rows]
        held = self.held if rows is None or self.held is None else self.held[rows]
        every = Rows(self.columns, values)
        found = []
        for target in range(self.described):
            own = every
            if held is not None and held[:, target].any() and not held[:, target].all():
                own = Rows(self.columns, values[~held[:, target]], are_shared=False)
            found.append(ColumnEvidence(target, own, None if before is None else before[target]))
        return found

    def log_jacobian(self, evidences: Sequence[ColumnEvidence]) -> float:
        """What a sum of scores gains in the units of the values."""
        return sum(one.own.log_jacobian(one.rows.count) for one in evidences)


def candidates_kept(columns: int) -> int:
    """How many candidates a column has, given the number of columns."""
    if columns <= ALL_COLUMNS:
        return columns - 1
    return 10 if columns <= 20 else 8 if columns <= 60 else 6


def candidates_of(evidence: ColumnEvidence, allowed: Sequence[int], required: Sequence[int], kept: int) -> list[int]:
    """The candidates of a column beside what is required: what explains it beside the best others, and alone."""
    must = tuple(sorted(required))
    others = [k for k in allowed if k not in must]
    if len(others) <= kept:
        return others
    now, chosen = must, list[int]()
    alone = _gains(evidence, now, others)
    gains = alone
    while len(chosen) < kept // 2 and gains.max() > 0:
        chosen.append(others[int(np.argmax(gains))])
        now = tuple(sorted((*now, chosen[-1])))
        gains = _gains(evidence, now, others)
    ranked = [others[place] for place in np.argsort(-alone, kind="stable")]
    chosen += [k for k in ranked if k not in chosen][: kept - len(chosen)]
    return sorted(chosen)


def _gains(evidence: ColumnEvidence, now: Set, others: Sequence[int]) -> np.ndarray:
    """What each of the others gains beside a set (k,), by the cheap score; minus infinity if it belongs to it."""
    found = np.full(len(others), -np.inf)
    new = [place for place, k in enumerate(others) if k not in now]
    found[new] = evidence.cheap([tuple(sorted((*now, others[place]))) for place in new]) - evidence.cheap([now])
    return found


def scored_sets(
    evidence: ColumnEvidence, candidates: Sequence[int], required: Sequence[int], nodes: int | None = None
) -> tuple[ColumnSets, dict[Set, float]]:
    """All sets of few candidates beside what is required, and larger ones while they are better than their subsets.

    Where only the first ``nodes`` columns belong to the graph and sets of the others are summed out, what is best is
    judged among the sets with the same members of the graph.
    """
    must = tuple(sorted(required))
    fitted, expected = list[Set](), dict[Set, tuple[Set, float]]()
    scores, cheap = dict[Set, float](), dict[Set, float]()
    every: list[Set] = [must]
    for size in range(min(MAX_PARENTS, len(candidates)) + 1):
        if size > 0:
            before = [own for own in scores if len(own) == len(must) + size - 1]
            if size > FULL_PARENTS:
                before = _worth_extending(before, must, scores, nodes)
            grown = {tuple(sorted((*own, k))) for own in before for k in candidates if k not in own}
            # A search goes step by step: all sets without one member must be there.
            every = sorted(own for own in grown if all(some in scores for some in _subsets(own, must)))
        if not every:
            break
        cheap |= zip(every, evidence.cheap(every).tolist(), strict=True)
        some = []
        for own in every:
            above = _dominating(own, must, scores, cheap)
            if above is None:
                some.append(own)
            else:
                expected[own] = above
        scores |= zip(some, evidence.average(some).tolist(), strict=True)
        scores |= {own: scores[expected[own][0]] + expected[own][1] for own in every if own in expected}
        fitted += some
    return ColumnSets(tuple(candidates), tuple(fitted), expected), scores


def _subsets(own: Set, must: Set) -> list[Set]:
    """The sets without one member."""
    return [own[:k] + own[k + 1 :] for k, parent in enumerate(own) if parent not in must]


def _worth_extending(sets: Sequence[Set], must: Set, scores: dict[Set, float], nodes: int | None) -> list[Set]:
    """Sets that are among the best, and better than all of their subsets."""

    def group(own: Set) -> Set:
        return () if nodes is None else tuple(k for k in own if k < nodes)

    best = dict[Set, float]()
    for own, score in scores.items():
        best[group(own)] = max(score, best.get(group(own), -np.inf))
    return [
        own
        for own in sets
        if scores[own] > best[group(own)] - NEAR_BEST
        and scores[own] > max(scores[some] for some in _subsets(own, must)) + WORTH_EXTENDING
    ]


def _dominating(own: Set, must: Set, scores: dict[Set, float], cheap: dict[Set, float]) -> tuple[Set, float] | None:
    """A subset that is far better, and by how much less the set is expected to have; None where there is none.

    By the cheap score, or because one member gains nothing beside any of the others alone.
    """
    for parent in own:
        if parent in must:
            continue
        rest = tuple(k for k in own if k != parent)
        gain = cheap[own] - cheap[rest]
        if gain < -DOMINATED:
            return rest, gain
        if len(rest) - len(must) > 1:
            smaller = [scores[with_it] - scores[without] for with_it, without in _pairs(parent, rest, must)]
            if max(smaller) < -USELESS and gain < -USELESS / 2:
                return rest, max(smaller)
    return None


def _pairs(parent: int, rest: Set, must: Set) -> list[tuple[Set, Set]]:
    """Each of the other members alone, with and without a parent."""
    alone = [tuple(sorted((*must, k))) for k in rest if k not in must]
    return [(tuple(sorted((*own, parent))), own) for own in alone]


def without_dominated(sets: ColumnSets, scores: dict[Set, float], required: Sequence[int]) -> ColumnSets:
    """The sets with those only expected that came out far below one of their subsets: a part of the rows shows the
    same."""
    must = tuple(sorted(required))
    fitted, expected = list[Set](), dict[Set, tuple[Set, float]]()
    for own in sorted(scores, key=len):
        above = max(_subsets(own, must), key=lambda some: scores[some], default=None)
        if above is not None and (own in sets.expected or scores[own] < scores[above] - DOMINATED):
            expected[own] = above, scores[own] - scores[above]
        else:
            fitted.append(own)
    return ColumnSets(sets.candidates, tuple(fitted), expected)


def scores_of(evidence: ColumnEvidence, sets: ColumnSets, view: View = EVERY) -> dict[Set, float]:
    """The scores of all sets of a column, those that are dominated as expected."""
    scores = dict(zip(sets.fitted, evidence.average(sets.fitted, view).tolist(), strict=True))
    # Subsets come first, so that each finds its own.
    for own, (above, loss) in sets.expected.items():
        scores[own] = scores[above] + loss
    return scores


class Tabulation:
    """All scores of a table, and of parts of its rows.

    Parameters
    ----------
    allowed, required
        For each column the columns that may be, and must be, among its parents.
    rows
        (k,) those that decide which sets count and where fits begin; all by default.
    """

    def __init__(
        self,
        table: MixedTable,
        allowed: Sequence[Sequence[int]],
        required: Sequence[Sequence[int]],
        *,
        rows: np.ndarray | None = None,
        threads: int = 1,
        on_progress: Callable[[float], None] = lambda share: None,
    ) -> None:
        self.table, self.required, self.threads = table, [tuple(sorted(own)) for own in required], threads
        self.evidences = table.evidences(rows)
        d = table.described
        kept = candidates_kept(len(table.columns))
        candidates = [candidates_of(self.evidences[j], allowed[j], required[j], kept) for j in range(d)]
        if kept < len(table.columns) - 1:
            candidates = _both_ways(candidates, allowed, required)

        def work(target: int) -> tuple[ColumnSets, dict[Set, float]]:
            return scored_sets(self.evidences[target], candidates[target], required[target], table.targets)

        found = self._over_columns(work, on_progress)
        self.sets = [without_dominated(*both, must) for both, must in zip(found, required, strict=True)]
        self.score = self._tabulated(self.evidences, [scores for _, scores in found])

    def relevant_sets(self, views: Sequence[View]) -> list[ColumnSets]:
        """The sets with those only expected whose best graph is far from the best of all, in each of some views.

        They are expected to be worse than their subsets, which is less than they have: what cannot matter still does
        not. Columns that are nearly functions of each other have many such sets.
        """
        if self.table.described > MOST_COLUMNS:
            return self.sets
        columns = list(zip(self.evidences, self.sets, strict=True))
        by_view = [losses([scores_of(*both, view) for both in columns]) for view in views]
        found = []
        for column, (own, must) in enumerate(zip(self.sets, self.required, strict=True)):
            least = {some: min(known[column][some] for known in by_view) for some in own.fitted}
            fitted = tuple(some for some in own.fitted if least[some] <= IRRELEVANT or some == must)
            dropped = {some: (_subsets(some, must)[0], -DOMINATED) for some in own.fitted if some not in fitted}
            expected = dict(sorted((own.expected | dropped).items(), key=lambda item: len(item[0])))
            found.append(ColumnSets(own.candidates, fitted, expected))
        return found

    def of_part(
        self,
        rows: np.ndarray,
        views: Sequence[View] = (EVERY,),
        *,
        sets: Sequence[ColumnSets] | None = None,
        on_progress: Callable[[float], None] = lambda share: None,
    ) -> list[TabulatedScore]:
        """The scores of the same sets on some rows (k,), one for each view.

        Views share the fits of the descriptions that they have in common. ``sets`` says which of them are fitted.
        """
        evidences, chosen = self.table.evidences(rows, before=self.evidences), self.sets if sets is None else sets

        def work(target: int) -> list[dict[Set, float]]:
            return [scores_of(evidences[target], chosen[target], view) for view in views]

        by_column = self._over_columns(work, on_progress)
        return [self._tabulated(evidences, scores) for scores in zip(*by_column, strict=True)]

    def _tabulated(self, evidences: Sequence[ColumnEvidence], scores: Sequence[dict[Set, float]]) -> TabulatedScore:
        most = max(len(own) for one in scores for own in one)
        return TabulatedScore(
            tuple(scores), evidences[0].rows.count, self.table.log_jacobian(evidences), max_parents=most
        )

    def _over_columns(self, work: Callable[[int], ResultT], on_progress: Callable[[float], None]) -> list[ResultT]:
        d = self.table.described
        found = []
        # Most of the time is spent in NumPy, which lets other threads go on.
        with ThreadPoolExecutor(self.threads) as pool:
            for done, result in enumerate(pool.map(work, range(d)), start=1):
                found.append(result)
                on_progress(done / d)
        return found


def _both_ways(
    candidates: Sequence[Sequence[int]], allowed: Sequence[Sequence[int]], required: Sequence[Sequence[int]]
) -> list[list[int]]:
    """Where a column is a candidate of another, the other is one of it: which way the edge goes is still open."""
    found = [set(own) for own in candidates]
    for target, own in enumerate(candidates):
        for other in own:
            if other < len(candidates) and target in allowed[other] and target not in required[other]:
                found[other].add(target)
    return [sorted(own) for own in found]
