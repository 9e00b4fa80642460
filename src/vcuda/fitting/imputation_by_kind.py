"""Multiple imputation of tables of several kinds: chained regressions, each of the kind of its column.

Columns with missing cells are visited in turn. Each is regressed on the few others that explain it best by the
regressions of the mixed family; one mechanism is drawn from the posterior of the regression, so that imputations differ
as much as the data leave open, and it simulates the missing cells. Imputed cells are values that a column of their kind
can have: labels that occur, whole counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from vcuda.data.checks import check_columns
from vcuda.data.dataset import Dataset
from vcuda.data.imputation import imputations, no_progress, rounds_for
from vcuda.errors import ConfigError
from vcuda.models.mixed.columns import Column
from vcuda.models.mixed.evidence import ColumnEvidence, Rows, Set
from vcuda.models.mixed.mechanisms import MixedMechanism
from vcuda.models.mixed.nodes import MixedNode

# A column is regressed on so many others at most.
MOST_PREDICTORS = 5
# Of more columns these are looked for among so many, those that go with it most closely one at a time.
MOST_CANDIDATES = 20
# Weights of a regression: one of a label with many levels has as many for each level, and gets fewer predictors.
MOST_WEIGHTS = 400
# Rows that choose the predictors, and rows of a regression; more rows are drawn anew for every regression.
CHOOSING_ROWS = 1000
MOST_ROWS = 2000
# Cells that an experiment set, or left alone, are regressed apart from the others if so many are not missing.
FEWEST_ROWS = 30
# How often cells outside the range of their column are drawn again.
MOST_TRIES = 20


def imputed_tables(
    data: Dataset,
    count: int,
    *,
    seed: int = 0,
    logarithm: npt.ArrayLike | None = None,
    first: int = 0,
    on_regression: Callable[[], None] = no_progress,
) -> Iterator[Dataset]:
    """Impute the missing values of a table ``count`` times, each column by its kind; an imputation is made when it is
    asked for.

    Tables of numbers alone are imputed by `vcuda.data.imputation.imputations`, which has the same parameters. Of the
    columns marked in ``logarithm`` those of kind number are imputed on that scale.

    Cells that are there stay as they are to the last bit, and imputation k is the same whatever ``count`` is.
    """
    if set(data.kinds) == {"number"}:
        return imputations(data, count, seed=seed, logarithm=logarithm, first=first, on_regression=on_regression)
    if count < 1:
        raise ConfigError(f"the number of imputations must be at least 1, not {count}.")
    check_columns(data.source, data.names, data.values, missing="keep")
    marked = np.zeros(data.d, dtype=bool) if logarithm is None else np.asarray(logarithm, dtype=bool)
    marked = marked & np.array([kind == "number" for kind in data.kinds])
    return _drawn_tables(data, marked, range(first, first + count), seed, on_regression)


def _drawn_tables(
    data: Dataset, marked: np.ndarray, numbers: range, seed: int, on_regression: Callable[[], None]
) -> Iterator[Dataset]:
    if data.missing is None:
        for _ in numbers:
            yield data
        return
    chained = _ChainedRegressions.of(data, marked, seed)
    rounds = rounds_for(float(data.missing.mean(axis=0).max()))
    for number in numbers:
        rng = np.random.default_rng([seed, number])
        values = _with_observed_cells(chained.values, rng)
        for _ in range(rounds):
            for target in chained.order:
                on_regression()
                chained.impute(target, values, rng)
        imputed = values[:, : data.d]
        imputed[:, marked] = np.exp(imputed[:, marked])
        yield replace(data, values=np.where(data.missing, imputed, data.values))


@dataclass(frozen=True, eq=False)
class _ChainedRegressions:
    """What all imputations of a table share.

    Parameters
    ----------
    values
        (n, d + e) the table in the units of the regressions, NaN where a cell is missing, and for each column that an
        experiment set in some rows, and each environment but the reference, one of 0 and 1.
    held
        (n, d) the cells that an experiment set.
    columns
        What the family knows of the columns, from the cells that are not missing.
    candidates
        By column, where its predictors are looked for.
    order
        The columns with missing cells, those with the fewest first.
    """

    values: np.ndarray
    held: np.ndarray
    columns: tuple[Column, ...]
    candidates: tuple[list[int], ...]
    order: list[int]

    @classmethod
    def of(cls, data: Dataset, marked: np.ndarray, seed: int) -> _ChainedRegressions:
        logged = data.with_logarithms(marked)
        held = np.zeros(data.values.shape, dtype=bool) if data.interventions is None else data.interventions
        experiments = held[:, held.any(axis=0) & ~held.all(axis=0)].astype(np.float64)
        if data.environment is not None:
            others = data.environment[:, None] == np.arange(1, data.environment.max() + 1)
            experiments = np.concatenate([experiments, others[:, others.any(axis=0)]], axis=1)
        values = np.concatenate([logged.values, experiments], axis=1)
        kinds = [*logged.kinds, *["yes/no"] * experiments.shape[1]]
        columns = tuple(Column.of(kind, _present(values[:, k])) for k, kind in enumerate(kinds))
        missing = np.isnan(values).sum(axis=0)
        order = [int(k) for k in np.argsort(missing, kind="stable") if missing[k]]
        return cls(values, held, columns, _candidates(columns, values, seed), order)

    def impute(self, target: int, values: np.ndarray, rng: np.random.Generator) -> None:
        """Draw the missing cells of a column again, in place, given the current cells (n, d + e) of all others."""
        missing = np.isnan(self.values[:, target])
        held = self.held[:, target]
        for group in (~held, held):
            cells = np.flatnonzero(missing & group)
            if not cells.size:
                continue
            # What an experiment set does not follow its causes.
            rows = np.flatnonzero(~missing & group)
            rows = rows if rows.size >= FEWEST_ROWS else np.flatnonzero(~missing)
            values[cells, target] = self._drawn(target, values, rows, cells, rng)

    def _drawn(
        self, target: int, values: np.ndarray, rows: np.ndarray, cells: np.ndarray, rng: np.random.Generator
    ) -> np.ndarray:
        """Cells of a column, drawn from a regression on these rows."""
        rows = _some(rows, MOST_ROWS, rng)
        predictors = self._predictors(target, values[_some(rows, CHOOSING_ROWS, rng)])
        chosen = [target, *predictors]
        node = MixedNode.of(
            [self.columns[k] for k in chosen],
            values[rows][:, chosen],
            free=np.ones(rows.size, dtype=bool),
            logarithm=False,
            seed=(int(rng.integers(2**31)),),
        )
        seen = _present(self.values[:, target])
        bounds = float(seen.min()), float(seen.max())
        return _simulated(node.draw(rng, None), values[cells][:, predictors], bounds, rng)

    def _predictors(self, target: int, values: np.ndarray) -> list[int]:
        """The columns that explain one best in these rows: the best is added until none is worth its weights."""
        chosen = [target, *self.candidates[target]]
        evidence = ColumnEvidence(0, Rows([self.columns[k] for k in chosen], values[:, chosen]))
        widths = [len(features) for features in evidence.rows.features(smooth=True)]
        predictors = max(self.columns[target].levels.size - 1, 1) if self.columns[target].kind != "ordered" else 1
        own: Set = ()
        height = float(evidence.cheap([own])[0])
        while len(own) < MOST_PREDICTORS:
            sets = [tuple(sorted((*own, k))) for k in range(1, len(chosen)) if k not in own]
            sets = [some for some in sets if predictors * (1 + sum(widths[k] for k in some)) <= MOST_WEIGHTS]
            if not sets:
                break
            heights = evidence.cheap(sets)
            if heights.max() <= height:
                break
            own, height = sets[int(heights.argmax())], float(heights.max())
        return [chosen[k] for k in own]


def _simulated(
    mechanism: MixedMechanism, inputs: np.ndarray, bounds: tuple[float, float], rng: np.random.Generator
) -> np.ndarray:
    """A column (n,) given its predictors (n, k), inside the range of the cells that are not missing.

    Of the tails of noise of any shape few rows speak, and the exponential of a cell far out would be larger than all
    others by a multiple. Cells are drawn again until they are inside: held at a bound they would pile up there.
    """
    drawn = mechanism.simulate(inputs, rng.random(len(inputs)))
    for _ in range(MOST_TRIES):
        outside = np.flatnonzero((drawn < bounds[0]) | (drawn > bounds[1]))
        if not outside.size:
            break
        drawn[outside] = mechanism.simulate(inputs[outside], rng.random(outside.size))
    return np.clip(drawn, *bounds)


def _present(cells: np.ndarray) -> np.ndarray:
    return cells[~np.isnan(cells)]


def _some(rows: np.ndarray, most: int, rng: np.random.Generator) -> np.ndarray:
    """All of these rows, or so many at random."""
    return rows if rows.size <= most else np.sort(rng.choice(rows, most, replace=False))


def _with_observed_cells(values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A first guess: each missing cell is drawn from those of its column that are not missing."""
    drawn = values.copy()
    for k in range(values.shape[1]):
        missing = np.isnan(values[:, k])
        drawn[missing, k] = rng.choice(values[~missing, k], int(missing.sum()))
    return drawn


def _candidates(columns: Sequence[Column], values: np.ndarray, seed: int) -> tuple[list[int], ...]:
    """By column: all others, or those whose features have the largest squared correlations with it."""
    count = len(columns)
    if count <= MOST_CANDIDATES + 1:
        return tuple([other for other in range(count) if other != k] for k in range(count))
    rng = np.random.default_rng([seed, 0, 13])
    drawn = _with_observed_cells(values[_some(np.arange(len(values)), CHOOSING_ROWS, rng)], rng)
    rows = Rows(columns, drawn)
    responses, response_starts = _unit_features(rows.features(smooth=False))
    features, feature_starts = _unit_features(rows.features(smooth=True))
    squares = np.add.reduceat(np.add.reduceat((responses @ features.T) ** 2, response_starts), feature_starts, axis=1)
    np.fill_diagonal(squares, -1.0)
    return tuple(np.sort(np.argsort(-own, kind="stable")[:MOST_CANDIDATES]).tolist() for own in squares)


def _unit_features(features: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Features of all columns, centred and of length one, and where those of each column begin."""
    stacked = np.concatenate(features)
    stacked = stacked - stacked.mean(axis=1, keepdims=True)
    lengths = np.maximum(np.sqrt((stacked**2).sum(axis=1, keepdims=True)), 1e-12)
    return stacked / lengths, np.cumsum([0, *(len(own) for own in features[:-1])])
