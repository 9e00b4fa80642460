"""Local scores of rows that come from several environments, where nobody knows what each environment changed.

Each environment apart from the reference may have changed the mechanism of a column. Let T be the environments that
did: the rows outside T share one mechanism, and each environment in T has one of its own. The score of a column sums
over all T, with prior rho^|T| (1 - rho)^(E - 1 - |T|):

    score(j, U) = log sum_T  p(T) score of the rows outside T  prod_{e in T} score of the rows of e

Given T these are ordinary scores of parts of the rows in common units, so that every family and every engine on local
scores takes them as they are. Where only means shift, the environments in T share slopes and noise with the others, and
have intercepts of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import softmax

from vcuda.data.moments import Moments, merged
from vcuda.data.streaming.statistics import Statistics
from vcuda.errors import ConfigError
from vcuda.models import interventions
from vcuda.models.environment_sets import (
    MOST_SEARCHED,
    Change,
    Changes,
    Pattern,
    Piece,
    Prior,
    Strata,
    change_probability,
    piece_score,
    searched_changes,
)
from vcuda.models.protocol import LocalScore, PowerLaw, ScoreSpec, WrappedScore
from vcuda.models.regressions import Regressions

if TYPE_CHECKING:
    from vcuda.data.dataset import Dataset

# So many sets of environments are all summed: 2^11, of 12 environments. For models that need rows fewer.
MOST_SETS, MOST_SETS_OF_ROWS = 1 << 11, 1 << 3


@dataclass(frozen=True, eq=False)
class ContextScore(WrappedScore):
    """A score that sums over the sets of environments that may have changed a column.

    Attributes
    ----------
    inner
        The score of all rows as if they came from one environment; traits are its.
    pieces
        Scores of parts of the rows.
    members
        For each set of environments the pieces whose scores add up to its score.
    log_weights : (t,)
        The logarithm of the prior of each set, and what its score has beside the pieces.
    changed : (t, e)
        The environments of each set; the reference, the first, is in none.
    """

    inner: LocalScore
    pieces: tuple[LocalScore, ...]
    members: tuple[tuple[int, ...], ...]
    log_weights: np.ndarray
    changed: np.ndarray

    # Changes of one column and not of the other distinguish graphs that are Markov equivalent.
    score_equivalent = False

    @property
    def content(self) -> tuple[Any, ...]:
        return (*(piece.content for piece in self.pieces), self.members, self.log_weights)

    @property
    def costs(self) -> Mapping[str, PowerLaw]:
        return {}

    def table_seconds(self) -> float:
        # Tables from a recursion cost little beside the sums over graphs, until there are hundreds of them.
        recursion = 2e-8 * self.nodes * 2.0 ** (self.nodes - 1) if self.cheap_tables else 0.0
        return sum(piece.table_seconds() + recursion for piece in self.pieces)

    def regressions(self) -> Regressions | None:
        return None

    @cached_property
    def _repeated(self) -> tuple[int, ...]:
        """Pieces that several sets share."""
        times = np.bincount(np.concatenate([np.array(own) for own in self.members]), minlength=len(self.pieces))
        return tuple(np.flatnonzero(times > 1).tolist())

    def _terms(self, ask: Callable[[LocalScore], Any]) -> Iterable[np.ndarray]:
        """What is asked of the pieces, summed up for each set of environments."""
        known = {k: np.asarray(ask(self.pieces[k])) for k in self._repeated}
        for own, weight in zip(self.members, self.log_weights.tolist(), strict=True):
            found = [known[k] if k in known else np.asarray(ask(self.pieces[k])) for k in own]
            yield sum(found[1:], start=found[0]) + weight

    def _summed(self, ask: Callable[[LocalScore], Any]) -> np.ndarray:
        """The logarithm of the sum over all sets of environments, without holding them all."""
        total: np.ndarray | None = None
        with np.errstate(invalid="ignore"):  # parents as targets mean nothing in what one evaluation gives for all
            for term in self._terms(ask):
                total = term if total is None else np.logaddexp(total, term)
        assert total is not None
        return total

    def score(self, target: int, parents: Sequence[int]) -> float:
        return float(self._summed(lambda piece: piece.score(target, parents)))

    def changes(self, target: int, parents: Sequence[int]) -> np.ndarray:
        terms = np.array([float(term) for term in self._terms(lambda piece: piece.score(target, parents))])
        return np.asarray(softmax(terms) @ self.changed)

    def table(self, target: int, candidates: np.ndarray) -> np.ndarray:
        if self.full_parents is not None:
            # Which larger sets count is judged by this score, not by each piece.
            return super().table(target, candidates)
        return self._summed(lambda piece: piece.table(target, candidates))

    def tables(self, targets: Sequence[int], free: np.ndarray, fixed: np.ndarray) -> np.ndarray:
        if self.full_parents is not None:
            return super().tables(targets, free, fixed)
        return self._summed(lambda piece: piece.tables(targets, free, fixed))

    def all_tables(
        self,
        targets: np.ndarray,
        candidates: Sequence[np.ndarray],
        *,
        threads: int,
        on_progress: Callable[[float], None],
    ) -> np.ndarray | None:
        if not self.makes_all_tables:
            return None
        asked = 0

        def ask(piece: LocalScore) -> np.ndarray:
            nonlocal asked
            asked += 1
            on_progress(min(asked / len(self.pieces), 1.0))
            made = piece.all_tables(targets, candidates, threads=threads, on_progress=lambda share: None)
            assert made is not None
            return made

        return self._summed(ask)

    def gains(self, target: int, parents: Sequence[int]) -> np.ndarray:
        after = self._summed(lambda piece: piece.score(target, parents) + piece.gains(target, parents))
        return after - self.score(target, parents)

    def losses(self, target: int, parents: np.ndarray) -> np.ndarray:
        own = parents.tolist()
        without = self._summed(lambda piece: piece.score(target, own) - piece.losses(target, parents))
        return np.asarray(self.score(target, own) - without)

    def evaluate(self, key: tuple[int, ...]) -> np.ndarray:
        return self._summed(lambda piece: piece.evaluate(key))

    def without_last_digits(self) -> LocalScore:
        return replace(self, pieces=tuple(piece.without_last_digits() for piece in self.pieces))


def summed(changes: Sequence[Change], scores: Mapping[Piece, LocalScore], prior: Prior) -> ContextScore:
    """The score that sums over these sets of environments, from the scores of their pieces."""
    pieces = tuple(dict.fromkeys(piece for change in changes for piece in change.pieces))
    at = {piece: k for k, piece in enumerate(pieces)}
    changed = np.zeros((len(changes), prior.count))
    for k, change in enumerate(changes):
        changed[k, list(change.environments)] = 1.0
    return ContextScore(
        scores[(prior.active,)],
        tuple(scores[piece] for piece in pieces),
        tuple(tuple(at[piece] for piece in change.pieces) for change in changes),
        np.array([change.log_weight for change in changes]),
        changed,
    )


def check_spec(spec: ScoreSpec, changes: Changes) -> None:
    """Refuse models whose parts do not add up over environments."""
    if spec.depends_on_scale:
        raise ConfigError(
            "contexts let an environment change a mechanism and its noise, so noise is not equal in all columns: leave "
            "noise out, or give noise='unequal' (--noise unequal)"
        )
    if changes == "shifts" and not needs_moments_only(spec):
        raise ConfigError("changes='shifts' (--changes shifts) is for linear models: use model linear, or leave it out")


def needs_moments_only(spec: ScoreSpec) -> bool:
    """Whether the moments of the environments are enough to score every set of them."""
    return spec.streams and type(spec).features_of is ScoreSpec.features_of


def sums_all(environments: int, *, by_moments: bool) -> bool:
    """Whether so many environments are few enough to sum over all sets of them."""
    return 1 << (environments - 1) <= (MOST_SETS if by_moments else MOST_SETS_OF_ROWS)


def pieces_of_rows(environments: int) -> int:
    """How many parts of the rows a model that needs them is prepared for, about."""
    return min(1 << (environments - 1), MOST_SETS_OF_ROWS) + environments - 1


# From a table in memory, and from statistics ----------------------------------------------------------------------


def prepare(spec: ScoreSpec, table: Dataset, changes: Changes = "mechanisms") -> LocalScore:
    """Prepare a score for a table in memory, with the interventions and the environments that it has."""
    values = table.values
    if table.environment is None or table.contexts is None:
        return interventions.prepare(spec, values, table.interventions)
    check_spec(spec, changes)
    centred, scale = spec.common_units(values)
    if needs_moments_only(spec):
        count = len(table.contexts.names)
        return _from_strata(spec, strata_of_rows(table), count, values.mean(axis=0), scale, changes)

    def scored(chosen: Sequence[np.ndarray]) -> list[LocalScore]:
        shifts = np.stack([centred[some].mean(axis=0) / scale for some in chosen])
        return spec.prepare_parts(values, chosen, scale=scale, shifts=shifts)[1]

    return prepare_rows(table, scored, scale)


def prepare_rows(
    table: Dataset, scored: Callable[[Sequence[np.ndarray]], list[LocalScore]], scale: np.ndarray
) -> LocalScore:
    """Prepare a score from those of parts of the rows: ``scored`` has those of several arrays of row numbers."""
    assert table.contexts is not None
    assert table.environment is not None
    environment, held, count = table.environment, table.interventions, len(table.contexts.names)

    def of_pieces(pattern: Pattern, pieces: Sequence[Piece]) -> list[LocalScore]:
        free = np.ones(table.n, dtype=bool) if held is None or pattern.never else ~held[:, pattern.columns[0]]
        return scored([np.flatnonzero(free & np.isin(environment, group)) for (group,) in pieces])

    patterns = _patterns(strata_of_rows(table), table.d, count, "mechanisms")
    most = MOST_SETS_OF_ROWS
    return _assembled(patterns, of_pieces, table.values.mean(axis=0), scale, most=most, kept=most)


def prepare_streamed(spec: ScoreSpec, statistics: Statistics, changes: Changes = "mechanisms") -> LocalScore:
    """Prepare a score from the moments of each environment of a table that need not fit into memory."""
    assert statistics.strata is not None
    assert statistics.environments is not None
    check_spec(spec, changes)
    contexts, cells = statistics.environments
    at = {name: k for k, name in enumerate(statistics.names)}
    strata = {
        (frozenset(at[name] for name in targets), cells.index(own)): moments
        for (targets, own), moments in statistics.strata.items()
    }
    return _from_strata(spec, strata, len(contexts.names), statistics.mean, statistics.scale, changes)


def strata_of_rows(table: Dataset) -> Strata:
    """The moments of rows in which the same columns were set, in each environment."""
    assert table.environment is not None
    held = np.zeros((table.n, 0), dtype=bool) if table.interventions is None else table.interventions
    patterns, number = np.unique(np.column_stack([table.environment, held]), axis=0, return_inverse=True)
    return {
        (frozenset(np.flatnonzero(own[1:]).tolist()), int(own[0])): Moments.of(table.values[number.reshape(-1) == k])
        for k, own in enumerate(patterns)
    }


def _patterns(strata: Strata, columns: int, count: int, changes: Changes, mean_rows: float = 1.0) -> list[Pattern]:
    by_rows: dict[tuple[bool, ...], list[int]] = {}
    for column in range(columns):
        by_rows.setdefault(tuple(column not in held for held, _ in strata), []).append(column)
    found = []
    for free, members in by_rows.items():
        never = not any(free)
        own = [key for key, is_free in zip(strata, free, strict=True) if is_free or never]
        moments = tuple(merged((strata[key] for key in own if key[1] == k), columns) for k in range(count))
        rows = tuple(one.rows for one in moments)
        active = tuple(k for k in range(count) if rows[k])
        prior = Prior(count, active, rows, change_probability(columns), changes, mean_rows)
        found.append(Pattern(members, moments, prior, never))
    return found


def _from_strata(
    spec: ScoreSpec, strata: Strata, count: int, mean: np.ndarray, scale: np.ndarray, changes: Changes
) -> LocalScore:
    def scored(pattern: Pattern, pieces: Sequence[Piece]) -> list[LocalScore]:
        return [piece_score(spec, pattern.moments, piece, scale) for piece in pieces]

    patterns = _patterns(strata, mean.size, count, changes, getattr(spec, "mean_rows", 1.0))
    return _assembled(patterns, scored, mean, scale, most=MOST_SETS, kept=MOST_SEARCHED)


def _assembled(
    patterns: Sequence[Pattern],
    scored: Callable[[Pattern, Sequence[Piece]], list[LocalScore]],
    mean: np.ndarray,
    scale: np.ndarray,
    *,
    most: int,
    kept: int,
) -> LocalScore:
    """A score for each pattern, or for each of its columns where the sets of environments are too many to sum all;
    ``kept`` sets are then searched for."""
    parts, shifts = list[LocalScore](), list[np.ndarray]()
    part_of, free_rows = np.zeros(scale.size, dtype=np.int64), np.zeros(scale.size, dtype=np.int64)
    for pattern in patterns:
        prior = pattern.prior
        if prior.sets <= most:
            families = [(pattern.columns, prior.every())]
        else:
            families = [([k], searched_changes(k, pattern, scale, kept)) for k in pattern.columns]
        pieces = list(dict.fromkeys(piece for _, own in families for change in own for piece in change.pieces))
        whole = (prior.active,)
        pieces += [whole] if whole not in pieces else []
        scores = dict(zip(pieces, scored(pattern, pieces), strict=True))
        for columns, changes in families:
            part_of[columns] = len(parts)
            free_rows[columns] = 0 if pattern.never else sum(prior.rows)
            parts.append(summed(changes, scores, prior))
            shifts.append((merged(pattern.moments, scale.size).mean - mean) / scale)
    if len(parts) == 1 and free_rows.all():
        return parts[0]
    return interventions.joined(parts[0], parts, part_of, free_rows, scale, np.stack(shifts))
