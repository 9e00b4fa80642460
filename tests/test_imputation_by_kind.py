"""Missing values of tables of several kinds: imputed cells are values of their kind, and depend on the other columns."""

from __future__ import annotations

from dataclasses import replace

import mixed_tables
import numpy as np
import pytest
from mixed_tables import KINDS, LOGARITHM, NAMES

import vcuda
from vcuda.data.dataset import Dataset
from vcuda.data.imputation import imputations
from vcuda.errors import ConfigError
from vcuda.fitting.imputation_by_kind import imputed_tables

COMPLETE = mixed_tables.dataset(3000, seed=1)
COUNT = 3


def with_missing(data: Dataset, share: float = 0.1, seed: int = 2) -> Dataset:
    """The table without this share of its cells, at random."""
    lost = np.random.default_rng(seed).random(data.values.shape) < share
    return replace(data, values=np.where(lost, np.nan, data.values))


@pytest.fixture(scope="module")
def table() -> Dataset:
    return with_missing(COMPLETE)


@pytest.fixture(scope="module")
def imputed(table) -> list[Dataset]:
    return list(imputed_tables(table, COUNT, logarithm=LOGARITHM))


def z_score(found: np.ndarray, expected: np.ndarray) -> float:
    """How far the mean of imputed cells (n,) is from that of the cells that they may be like, in standard errors.

    Cells of the same row in several imputations are not independent, and the cells that were lost are a sample of all:
    the standard error is that of a single imputation, whose regression adds a ninth of its variance (a tenth of the
    cells is predicted from the other nine).
    """
    error = expected.std() * np.sqrt((1 + 1 / 9) * COUNT / found.size)
    return abs(found.mean() - expected.mean()) / error


def test_imputed_cells_have_values_of_their_kind(table, imputed):
    for one in imputed:
        assert one.missing is None
        np.testing.assert_array_equal(one.values[~table.missing], table.values[~table.missing])
        assert (one.kinds, one.categories) == (table.kinds, table.categories)
        for k, kind in enumerate(KINDS):
            own = one.values[:, k]
            if kind == "count":
                assert (own >= 0).all()
                np.testing.assert_array_equal(own, own.round())
            elif kind == "number":
                assert own.min() >= 0
            else:
                assert set(own) == set(COMPLETE.values[:, k])


@pytest.mark.parametrize("name", NAMES)
def test_imputed_cells_are_distributed_as_the_others(name, table, imputed):
    k = NAMES.index(name)
    lost, every = table.missing[:, k], COMPLETE.values[:, k]
    drawn = np.concatenate([one.values[lost, k] for one in imputed])
    if KINDS[k] in ("number", "count"):
        assert z_score(drawn, every) < 4
        # A variance of 300 cells, of noise with heavy tails too, is known within a factor of two.
        assert 0.5 < drawn.var() / every.var() < 2
        return
    for level in np.unique(every):
        assert z_score(drawn == level, every == level) < 4


CONDITIONAL = (
    ("smoker", "sex", lambda cells: cells),
    ("visits", "smoker", lambda cells: cells),
    ("grade", "smoker", lambda cells: cells >= 3),
    ("sex", "smoker", lambda cells: cells),
    ("income", "region", np.log),
    ("plan", "sex", lambda cells: cells == 1),
    ("region", "region", lambda cells: cells == 2),
)


@pytest.mark.parametrize(("effect", "cause", "measure"), CONDITIONAL[:-1], ids=lambda own: own if own is str else None)
def test_imputed_cells_depend_on_the_other_columns(effect, cause, measure, table, imputed):
    """Given each level of a column that is not missing, imputed cells are as those of the complete table; pooled over
    all levels they are not."""
    k, other = NAMES.index(effect), NAMES.index(cause)
    lost = table.missing[:, k] & ~table.missing[:, other]
    given, every = COMPLETE.values[:, other], measure(COMPLETE.values[:, k])
    apart = []
    for level in np.unique(given):
        drawn = np.concatenate([measure(one.values[lost & (given == level), k]) for one in imputed])
        assert z_score(drawn, every[given == level]) < 4
        apart.append(z_score(drawn, every))
    assert max(apart) > 4
