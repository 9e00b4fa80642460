"""Multiple imputation of missing values by chained regressions: imputations differ by what is not known.

scikit-learn's ``IterativeImputer`` goes round the columns and draws the missing cells of each from its regression on
the others. By itself it draws every cell with errors of the weights of its own, which cancel over the rows of a table;
so the weights and the noise of a regression are drawn once for all rows, and imputations differ as much as the data
leave open (Rubin's proper imputation).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from vcuda.data.checks import check_columns
from vcuda.data.dataset import Dataset
from vcuda.data.interventions import BoolArray
from vcuda.data.moments import varies
from vcuda.data.raw_table import FloatArray
from vcuda.errors import ConfigError

# Rounds over all columns before an imputation is taken. Each leaves of the first guess about the share that is missing;
# after the last no more than this is left.
FEWEST_ROUNDS, MOST_ROUNDS, LEFT_OF_FIRST_GUESS = 5, 20, 1e-3
# A column is regressed on so many others at most, those that it is most correlated with.
MOST_PREDICTORS = 30
# With more columns the imputer picks so many of them at random, more often those of high correlation, to choose from:
# handing over all of them takes O(n d) for every column, and d² of it in a round.
MOST_OFFERED = 300
# Rows under one experiment, for each column and at least, that have regressions of their own.
ROWS_A_COLUMN, FEWEST_ROWS = 5, 50
# A column counts as log-normal when its logarithm is likelier to be normal by this many nats.
LOGARITHM_MARGIN = 5.0


class DrawnRegression:
    """A Bayesian ridge regression of which weights and noise are drawn once, when it is fitted.

    The imputer asks of an estimator ``fit``, and ``predict`` with standard deviations. ``on_regression`` is called
    before every fit, and may raise to end the imputation.
    """

    def __init__(self, rng: np.random.Generator, on_regression: Callable[[], None]) -> None:
        self.rng, self.on_regression = rng, on_regression

    def __sklearn_clone__(self) -> DrawnRegression:
        # The imputer clones its estimator for every column; a generator that was copied would draw the same again.
        return DrawnRegression(self.rng, self.on_regression)

    def fit(self, predictors: FloatArray, response: FloatArray) -> DrawnRegression:
        """Regress a column (n,) on others (n, k), and draw weights and noise from their posterior.

        With the noise variance v = (n - 1 - g) / (a chi²) for the estimated precision a and the g weights that the data
        determine, the weights are normal with the posterior covariance at v.
        """
        from sklearn.linear_model import BayesianRidge

        self.on_regression()
        self.columns = strongest(predictors, response, MOST_PREDICTORS)
        ridge = BayesianRidge().fit(predictors[:, self.columns], response)
        determined = len(self.columns) - ridge.lambda_ * np.trace(ridge.sigma_)
        freedom = max(len(response) - 1 - float(determined), 1.0)
        variance = freedom / (float(ridge.alpha_) * self.rng.chisquare(freedom))
        covariance = ridge.sigma_ * (variance * ridge.alpha_)
        self.weights = self.rng.multivariate_normal(ridge.coef_, covariance, method="eigh", check_valid="ignore")
        self.centre = predictors[:, self.columns].mean(axis=0)
        self.constant = response.mean() + np.sqrt(variance / len(response)) * self.rng.standard_normal()
        self.noise = float(np.sqrt(variance))
        return self

    def predict(self, predictors: FloatArray, return_std: bool = False) -> Any:
        mean = self.constant + (predictors[:, self.columns] - self.centre) @ self.weights
        return (mean, np.full(len(mean), self.noise)) if return_std else mean


def strongest(predictors: FloatArray, response: FloatArray, most: int) -> npt.NDArray[np.int64]:
    """The positions of the columns (n, k) that are most correlated with the response (n,), in ascending order."""
    if predictors.shape[1] <= most:
        return np.arange(predictors.shape[1])
    centred = response - response.mean()
    # Of columns that are standardised already, up to what was imputed.
    products = np.abs(centred @ predictors) / np.maximum(predictors.std(axis=0), 1e-12)
    return np.sort(np.argpartition(-products, most)[:most])


def no_progress() -> None:
    """Report nothing."""


def imputations(
    data: Dataset,
    count: int,
    *,
    seed: int = 0,
    logarithm: npt.ArrayLike | None = None,
    first: int = 0,
    on_regression: Callable[[], None] = no_progress,
) -> Iterator[Dataset]:
    """Impute the missing values of a table ``count`` times; each imputation is made when it is asked for.

    Cells that are there stay as they are to the last bit, and imputation k is the same whatever ``count`` is. Setting a
    variable changes how it goes with the others, so that rows under one experiment are imputed by themselves if there
    are enough of them; the others are imputed together, with a column of 0 and 1 for each variable that was set.

    Parameters
    ----------
    data
        The table with missing values, as ``as_dataset(..., missing="keep")`` gives it.
    count
        How many imputations.
    seed
        The same seed gives the same imputations.
    logarithm
        (d,) columns that are imputed on the scale of their logarithm, so that imputed values are positive; by default
        none. Other columns without negative values get none, and nothing below their least one.
    first
        The number of the first imputation, to go on after others; it is the same as if they were made before.
    on_regression
        Called before every regression; it may raise to end the work.
    """
    if count < 1:
        raise ConfigError(f"the number of imputations must be at least 1, not {count}.")
    check_columns(data.source, data.names, data.values, missing="keep")
    marked = np.zeros(data.d, dtype=bool) if logarithm is None else np.asarray(logarithm, dtype=bool)
    return _imputed_tables(data, data.with_logarithms(marked), marked, range(first, first + count), seed, on_regression)


def _imputed_tables(
    data: Dataset, logged: Dataset, marked: BoolArray, numbers: range, seed: int, on_regression: Callable[[], None]
) -> Iterator[Dataset]:
    missing = data.missing
    if missing is None:
        for _ in numbers:
            yield data
        return
    scaled = logged.standardised()
    # Rounding whole numbers, or holding them inside what was seen, would distort more than a cell in between does; but
    # a number that never is negative stays so, and one that has a logarithm keeps it.
    least = np.fmin.reduce(data.values, axis=0)
    bounded = (least >= 0) & ~marked
    low = np.where(bounded, (least - logged.mean) / logged.scale, -np.inf)
    apart, together = _groups(data, missing)
    experiments = _experiment_indicators(data)
    for number in numbers:
        regression = DrawnRegression(np.random.default_rng([seed, number]), on_regression)
        imputed = scaled.copy()
        for rows in apart:
            imputed[rows] = _impute(scaled[rows], low, regression)
        if together.size:
            bounds = np.append(low, np.full(experiments.shape[1], -np.inf))
            imputed[together] = _impute(np.hstack([scaled, experiments]), bounds, regression)[together, : data.d]
        imputed = imputed * logged.scale + logged.mean
        imputed[:, marked] = np.exp(imputed[:, marked])
        imputed[:, bounded] = np.maximum(imputed[:, bounded], least[bounded])  # rounding must not go below
        yield replace(data, values=np.where(missing, imputed, data.values))


def _groups(data: Dataset, missing: BoolArray) -> tuple[list[npt.NDArray[np.int64]], npt.NDArray[np.int64]]:
    """Rows with missing values: by experiment and environment, where there are enough rows to impute them alone, and
    all others."""
    lacking = np.asarray(missing.any(axis=1))
    if data.interventions is None and data.environment is None:
        return [], np.flatnonzero(lacking)
    held = np.zeros((data.n, 0)) if data.interventions is None else data.interventions
    environment = np.zeros(data.n) if data.environment is None else data.environment
    _, pattern_of = np.unique(np.column_stack([environment, held]), axis=0, return_inverse=True)
    pattern_of = pattern_of.reshape(-1)
    apart = []
    for pattern in np.unique(pattern_of[lacking]):
        rows = np.flatnonzero(pattern_of == pattern)
        if (~missing[rows]).sum(axis=0).min() >= max(FEWEST_ROWS, ROWS_A_COLUMN * data.d):
            apart.append(rows)
            lacking[rows] = False
    return apart, np.flatnonzero(lacking)


def _experiment_indicators(data: Dataset) -> FloatArray:
    """A standardised column (n,) for each variable that was set in some rows and not in others, and for each
    environment but the reference."""
    held = np.zeros((data.n, 0)) if data.interventions is None else data.interventions
    if data.environment is not None:
        held = np.column_stack([held, data.environment[:, None] == np.arange(1, data.environment.max() + 1)])
    held = held[:, held.any(axis=0) & ~held.all(axis=0)]
    return np.asarray((held - held.mean(axis=0)) / held.std(axis=0))


def _impute(scaled: FloatArray, low: FloatArray, regression: DrawnRegression) -> FloatArray:
    """One imputation of standardised columns."""
    from sklearn.experimental import enable_iterative_imputer  # noqa: F401 (makes the next import possible)
    from sklearn.impute import IterativeImputer

    imputer = IterativeImputer(
        regression,
        sample_posterior=True,
        max_iter=rounds_for(np.isnan(scaled).mean(axis=0).max()),
        n_nearest_features=MOST_OFFERED if scaled.shape[1] > MOST_OFFERED + 1 else None,
        skip_complete=True,
        min_value=low,
        random_state=int(regression.rng.integers(2**31)),
    )
    return imputer.fit_transform(scaled)


def rounds_for(share: float) -> int:
    """How many rounds over all columns an imputation takes, where this share of some column is missing."""
    rounds = int(np.ceil(np.log(LEFT_OF_FIRST_GUESS) / np.log(share)))
    return min(max(rounds, FEWEST_ROUNDS), MOST_ROUNDS)


def lognormal_columns(data: Dataset) -> BoolArray:
    """The positive columns (d,) whose logarithm is clearly nearer to a normal distribution than they are themselves.

    Each column by itself, by the likelihood of what is not missing.
    """
    marked = np.zeros(data.d, dtype=bool)
    for column in np.flatnonzero(np.fmin.reduce(data.values, axis=0) > 0):
        present = data.values[~np.isnan(data.values[:, column]), column]
        logs = np.log(present)
        if not varies(logs.min(), logs.max()):
            continue
        gain = len(present) * (np.log(present.std()) - np.log(logs.std()) - logs.mean())
        marked[column] = gain > LOGARITHM_MARGIN
    return marked
