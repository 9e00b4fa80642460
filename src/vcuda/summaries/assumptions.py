"""A table described by more and by fewer assumptions: local scores that say what each assumption adds.

Without any, a score reads conditional independences alone: it is the same for all Markov equivalent graphs. Curves, the
shape of the noise, a spread that depends on the causes, and equal noise variances each let it read directions as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import NamedTuple, Protocol, TypeVar

import numpy as np

from vcuda.data.dataset import Dataset
from vcuda.data.moments import Moments
from vcuda.fitting.independences import PRIOR_ROWS, independences_of, likely_prior_rows
from vcuda.fitting.mixed import THREADS
from vcuda.infer.edge_prior import EdgePrior
from vcuda.models.interventions import InterventionalPredictive, joined, prepare
from vcuda.models.linear import BGe, LinearPredictive
from vcuda.models.mixed.columns import columns_of
from vcuda.models.mixed.evidence import (
    EVERY,
    NEAR,
    SHAPES,
    ColumnEvidence,
    Description,
    Set,
    View,
    descriptions_of,
    log_mean,
    shares_of,
)
from vcuda.models.mixed.tables import DOMINATED, MixedTable, scored_sets
from vcuda.models.protocol import LocalScore, ScoreSpec
from vcuda.models.tabulated import TabulatedScore

FUNCTIONS, SHAPE, SPREAD, EQUAL_NOISE = "functions", "shape", "spread", "equal noise"
Assumptions = frozenset[str]
NO_ASSUMPTIONS: Assumptions = frozenset()
OnProgress = Callable[[float], None]
ResultT = TypeVar("ResultT")


class DescribedTable(Protocol):
    """A table whose scores can be had with any of its ``assumptions``, the weakest first, and without experiments.

    ``with_independences`` says whether a part of the fit's answer is read from independences alone.
    """

    assumptions: tuple[str, ...]
    with_independences: bool

    def scores(self, assumed: Assumptions, *, experiments: bool) -> Sequence[LocalScore]:
        """One for each part of the rows and view of them, or for each imputed table; of independences alone if nothing
        is ``assumed``.

        Without ``experiments`` all cells are taken as observed.
        """
        ...


class NothingSeen(LocalScore):
    """The score of a table without rows: every set of parents is as good as any other."""

    def __init__(self, nodes: int) -> None:
        self._nodes = nodes

    @property
    def nodes(self) -> int:
        return self._nodes

    rows = 0
    log_jacobian = 0.0
    max_parents = None
    cheap_tables = True

    def score(self, target: int, parents: Sequence[int]) -> float:
        return 0.0

    def table(self, target: int, candidates: np.ndarray) -> np.ndarray:
        return np.zeros(1 << len(candidates))


class ScoredRows:
    """Rows with a score of a family: one for independences, and one with the assumption of the family, if it has any.

    Parameters
    ----------
    values
        (n, d) rows as ``spec`` takes them.
    plain
        The score of independences, with the rows (n, d) that it takes.
    assumption
        What ``spec`` assumes beyond independences; None if nothing.
    """

    def __init__(
        self,
        values: np.ndarray,
        held: np.ndarray | None,
        spec: ScoreSpec,
        plain: tuple[ScoreSpec, np.ndarray],
        assumption: str | None,
    ) -> None:
        self.assumptions: tuple[str, ...] = () if assumption is None else (assumption,)
        self.with_independences = False
        self._values, self._held, self._spec, self._plain = values, held, spec, plain

    def scores(self, assumed: Assumptions, *, experiments: bool) -> Sequence[LocalScore]:
        spec, values = (self._spec, self._values) if assumed else self._plain
        return [prepare(spec, values, self._held if experiments else None)]


class LinearStatistics:
    """Linear models from what their predictions keep: products of the columns, in the rows in which each was free.

    Parameters
    ----------
    kept
        One for each imputed table.
    columns
        (k,) those that are described.
    always
        (d,) columns that experiments set in every row.
    equal
        The score with equal noise variances that was fitted; None for unequal ones.
    """

    def __init__(
        self,
        kept: Sequence[LinearPredictive | InterventionalPredictive],
        columns: np.ndarray,
        always: np.ndarray,
        rows: int,
        *,
        plain: BGe,
        equal: ScoreSpec | None,
    ) -> None:
        self.assumptions: tuple[str, ...] = () if equal is None else (EQUAL_NOISE,)
        self.with_independences = False
        self._kept, self._columns, self._always, self._rows = kept, columns, always, rows
        self._plain, self._equal = plain, equal

    @property
    def knows_all_rows(self) -> bool:
        """Whether products of all rows were kept, whatever was set in them."""
        return all(any(part.rows == self._rows for part in _linear_parts(one)) for one in self._kept)

    def scores(self, assumed: Assumptions, *, experiments: bool) -> Sequence[LocalScore]:
        return [self._score(one, assumed, experiments) for one in self._kept]

    def _score(
        self, kept: LinearPredictive | InterventionalPredictive, assumed: Assumptions, experiments: bool
    ) -> LocalScore:
        chosen = np.ix_(self._columns, self._columns)
        moments = [_moments(part.gram[chosen], part.rows) for part in _linear_parts(kept)]
        pooled = max(moments, key=lambda one: one.rows)
        spec: ScoreSpec = self._equal if assumed and self._equal is not None else self._plain
        # Equal noise was fitted in the units of these products, independences have those of every column.
        ones = np.ones(len(self._columns))
        scale = ones if assumed else np.sqrt(np.diag(pooled.gram) / pooled.rows)

        def prepared(one: Moments) -> LocalScore:
            return spec.from_statistics(one, None, None, scale=scale)

        if not (experiments and isinstance(kept, InterventionalPredictive)):
            return prepared(pooled)
        which = kept.part_of[self._columns]
        free = np.where(self._always[self._columns], 0, [moments[part].rows for part in which])
        shifts = np.zeros((len(moments), len(ones)))
        return joined(prepared(pooled), [prepared(one) for one in moments], which, free, ones, shifts)


def _linear_parts(kept: LinearPredictive | InterventionalPredictive) -> list[LinearPredictive]:
    parts = kept.parts if isinstance(kept, InterventionalPredictive) else (kept,)
    return [part for part in parts if isinstance(part, LinearPredictive)]


def _moments(gram: np.ndarray, rows: int) -> Moments:
    nothing = np.zeros(len(gram))
    return Moments(rows, nothing, gram, nothing, nothing)


# Regressions of columns of any kind --------------------------------------------------------------------------------


def is_within(how: Description, assumed: Assumptions) -> bool:
    """Whether a description of a column needs no more than some assumptions."""
    return (
        (FUNCTIONS in assumed or not how.smooth)
        and (SHAPE in assumed or not how.shape)
        and (SPREAD in assumed or not how.spread)
    )  # odds of values and ranks say nothing of noise


def subsets_asked(assumptions: Sequence[str]) -> list[Assumptions]:
    """The assumptions of a ladder that adds one after the other, and all without one of them."""
    found = [frozenset(assumptions[: k + 1]) for k in range(len(assumptions))]
    found += [frozenset(assumptions) - {one} for one in assumptions]
    return [own for own in dict.fromkeys(found) if own]


def competing(kind: str, view: View, assumed: Assumptions) -> tuple[Description, ...]:
    """The descriptions of a column that need no more than some assumptions: those of a view, if it has any."""
    every = [how for how in descriptions_of(kind) if is_within(how, assumed)]
    seen = [how for how in descriptions_of(kind, view) if is_within(how, assumed)]
    return tuple(seen if any(how.has_distribution for how in seen) else every)


class _Sets(NamedTuple):
    """The sets of one column: those that are fitted, subsets first, and those that are expected to lose something
    beside one of their subsets, by assumptions."""

    fitted: tuple[Set, ...]
    expected: dict[Set, tuple[Set, Mapping[Assumptions, float]]]

    @classmethod
    def tried(cls, evidence: ColumnEvidence, required: Set, asked: Sequence[Assumptions]) -> _Sets:
        """Try sets of all other columns; with and without those that are required, so that these can be dropped."""
        others = [k for k in range(len(evidence.rows.columns)) if k != evidence.target]
        fitted: dict[Set, None] = {}
        expected: dict[Set, tuple[Set, Mapping[Assumptions, float]]] = {}
        for must in dict.fromkeys([(), required]):
            sets, _ = scored_sets(evidence, [k for k in others if k not in must], must)
            fitted |= dict.fromkeys(sets.fitted)
            expected |= {own: (above, dict.fromkeys(asked, loss)) for own, (above, loss) in sets.expected.items()}
        return cls(tuple(fitted), {own: found for own, found in expected.items() if own not in fitted})

    def without_dominated(self, described: _DescribedColumn, asked: Sequence[Assumptions]) -> _Sets:
        """The sets with those only expected that are far below a subset, whatever is assumed."""
        by_assumption = {assumed: described.scores(self, assumed) for assumed in asked}
        full = by_assumption[asked[0]]
        fitted, expected = list[Set](), dict(self.expected)
        for own in self.fitted:
            subsets = [some for k in range(len(own)) if (some := own[:k] + own[k + 1 :]) in full]
            above = max(subsets, key=lambda some: full[some], default=None)
            losses = {} if above is None else {a: found[own] - found[above] for a, found in by_assumption.items()}
            if above is not None and max(losses.values()) < -DOMINATED:
                expected[own] = above, losses
            else:
                fitted.append(own)
        return _Sets(tuple(fitted), expected)


class _DescribedColumn:
    """The evidence of a column by description, on some rows; on a part of them of what came near the best before.

    Parameters
    ----------
    evidence
        The column on these rows.
    heights
        By the name of the description, the evidence of sets.
    before
        The same on the rows that came first.
    """

    def __init__(
        self,
        evidence: ColumnEvidence,
        heights: Mapping[str, Mapping[Set, float]],
        before: _DescribedColumn | None = None,
    ) -> None:
        self.evidence, self.heights, self.before = evidence, heights, before

    @property
    def kind(self) -> str:
        return self.evidence.own.kind

    @classmethod
    def of_part(
        cls,
        evidence: ColumnEvidence,
        before: _DescribedColumn,
        views: Sequence[View],
        sets: _Sets,
        asked: Sequence[Assumptions],
    ) -> _DescribedColumn:
        """Fit to a part of the rows what counts in some of the views, by some of the assumptions."""
        heights: dict[str, dict[Set, float]] = {how.name: {} for how in descriptions_of(before.kind)}
        found = cls(evidence, heights, before)
        ways = [(view, assumed) for view in dict.fromkeys(views) for assumed in asked]
        near = {own: {how for way in ways for how in found.counted(own, *way)} for own in sets.fitted}
        for how in descriptions_of(before.kind):
            tried = [own for own in sets.fitted if how in near[own]]
            if tried:
                heights[how.name] |= zip(tried, evidence.evidence(how, tried).tolist(), strict=True)
        return found

    def counted(self, own: Set, view: View, assumed: Assumptions) -> list[Description]:
        """The descriptions of a set that count."""
        every = competing(self.kind, view, assumed)
        shares = shares_of(every, self.evidence.share_of_odds(own))
        every = tuple(how for how, share in zip(every, shares, strict=True) if share > 0)
        if self.before is None:
            return [how for how in every if own in self.heights[how.name]]
        known = {how: self.before.heights[how.name].get(own, -np.inf) for how in every}
        best = max(known.values())
        return [how for how in every if known[how] > best - NEAR]

    def scores(self, sets: _Sets, assumed: Assumptions, view: View = EVERY) -> dict[Set, float]:
        """The log evidence of all sets, averaged over the descriptions that need no more than some assumptions."""
        every, found = competing(self.kind, view, assumed), dict[Set, float]()
        offset = self.evidence.offset_of_gains(every)
        for own in sets.fitted:
            shares = dict(zip(every, shares_of(every, self.evidence.share_of_odds(own)), strict=True))
            counted = [
                (self.heights[how.name][own] + (0.0 if how.has_distribution else offset), shares[how])
                for how in self.counted(own, view, assumed)
            ]
            heights, weights = np.array(counted).T[:, :, None]
            found[own] = float(log_mean(heights, weights)[0])
        # Smaller sets first, so that each finds its subset.
        for own in sorted(sets.expected, key=len):
            above, losses = sets.expected[own]
            found[own] = found[above] + losses[assumed]
        return found


class Part(NamedTuple):
    """Rows (k,) that are described, and which descriptions of numbers compete there, in one view after the other."""

    rows: np.ndarray
    views: tuple[View, ...] = (EVERY,)


class RegressionTable:
    """Columns of any mix of kinds: regressions in lines or curves, with normal noise or noise of any shape, of constant
    spread or one that depends on the causes.

    Parameters
    ----------
    table
        The rows, logarithms of some columns among them, which are marked (d,) in ``logarithm``.
    first
        Rows (k,) that decide which sets count and where fits begin, as in the fit.
    parts
        What is described; no parts are the ``first`` rows themselves.
    edges
        The prior of the edges, with all that is known.
    seed
        Of the searches for the best graph.
    experiments_dropped
        Whether the table is described as observed as well.
    is_averaged
        Whether the fit averaged over parts of the rows, in some of it by independences alone.
    """

    def __init__(
        self,
        table: Dataset,
        logarithm: np.ndarray,
        first: np.ndarray,
        parts: Sequence[Part],
        edges: EdgePrior,
        *,
        seed: int,
        experiments_dropped: bool,
        is_averaged: bool,
        on_progress: OnProgress = lambda share: None,
    ) -> None:
        has_numbers = "number" in table.kinds
        self.assumptions: tuple[str, ...] = (FUNCTIONS, SHAPE, SPREAD) if has_numbers else (FUNCTIONS,)
        self._table, self._logarithm, self._first, self._parts = table, logarithm, first, parts
        self.with_independences = is_averaged
        self._prior_rows = likely_prior_rows(table, edges, seed) if is_averaged else PRIOR_ROWS[0]
        self._required = [tuple(own.tolist()) for own in edges.required_parents()]
        # All of them first: it decides which subset of a set is the best.
        self._asked = sorted(subsets_asked(self.assumptions), key=len, reverse=True)
        ways = [True, False] if experiments_dropped else [True]
        self._described = {}
        for number, experiments in enumerate(ways):

            def report(share: float, number: int = number) -> None:
                on_progress((number + share) / len(ways))

            self._described[experiments] = self._tabulated(table.interventions if experiments else None, report)

    def _tabulated(
        self, held: np.ndarray | None, on_progress: OnProgress
    ) -> list[tuple[list[_DescribedColumn], list[_Sets]]]:
        """All columns on each part of the rows, and their sets."""
        table, asked = self._table, self._asked
        mixed = MixedTable(columns_of(table.kinds, table.values, self._logarithm), table.values, held)
        evidences = mixed.evidences(self._first)

        def tried(target: int) -> _Sets:
            sets = _Sets.tried(evidences[target], self._required[target], asked)
            # Of a column with steps and no grid only odds were asked for; some parts ask for all else.
            evidences[target].by_description(sets.fitted, SHAPES)
            return sets

        def share(number: int) -> OnProgress:
            # The first rows take about as long as two parts.
            start, size = (0, 2) if number == 0 else (number + 1, 1)
            return lambda done: on_progress((start + size * done) / (len(self._parts) + 2))

        sets = _over_columns(tried, table.d, share(0))
        first = [_DescribedColumn(one, one.heights) for one in evidences]
        if not self._parts:
            return [(first, sets)]
        fewer = [own.without_dominated(one, asked) for own, one in zip(sets, first, strict=True)]
        found = []
        for number, part in enumerate(self._parts, start=1):
            of_part = mixed.evidences(part.rows, before=evidences)

            def described(target: int, part: Part = part, own: list[ColumnEvidence] = of_part) -> _DescribedColumn:
                return _DescribedColumn.of_part(own[target], first[target], part.views, fewer[target], asked)

            found.append((_over_columns(described, table.d, share(number)), fewer))
        return found

    def scores(self, assumed: Assumptions, *, experiments: bool) -> Sequence[LocalScore]:
        parts = self._parts or [Part(self._first)]
        if not assumed:
            return [self._of_independences(part.rows, experiments) for part in parts]
        as_set = experiments or self._table.interventions is None
        found = []
        for (columns, sets), part in zip(self._described[as_set], parts, strict=True):
            by_view = {
                view: _tabulated_score(
                    [one.scores(own, assumed, view) for own, one in zip(sets, columns, strict=True)], len(part.rows)
                )
                for view in dict.fromkeys(part.views)
            }
            found += [by_view[view] for view in part.views]
        return found

    def _of_independences(self, rows: np.ndarray, experiments: bool) -> LocalScore:
        table = self._table if experiments else replace(self._table, interventions=None)
        return independences_of(table.select(rows), self._prior_rows)


def _over_columns(work: Callable[[int], ResultT], columns: int, on_progress: OnProgress) -> list[ResultT]:
    found = []
    # Most of the time is spent in NumPy, which lets other threads go on.
    with ThreadPoolExecutor(THREADS) as pool:
        for done, result in enumerate(pool.map(work, range(columns)), start=1):
            found.append(result)
            on_progress(done / columns)
    return found


def _tabulated_score(scores: Sequence[dict[Set, float]], rows: int) -> TabulatedScore:
    return TabulatedScore(tuple(scores), rows, 0.0, max_parents=max(len(own) for one in scores for own in one))
