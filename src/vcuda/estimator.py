"""CausalPosterior: `fit` as an estimator of scikit-learn, for pipelines, clones and searches over settings."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from os import PathLike
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from vcuda.dags.base import DagPrior
from vcuda.data.knowledge import Knowledge
from vcuda.data.reading import as_dataset
from vcuda.errors import DataError
from vcuda.fitting.fit import Preset, fit
from vcuda.models.protocol import Noise


class CausalPosterior(BaseEstimator):
    """Which column causes which, and how sure that is: :func:`vcuda.fit` with the manners of scikit-learn.

    All parameters are those of :func:`vcuda.fit`; ``random_state`` is its ``seed``, and may be a NumPy ``RandomState``,
    or None for another result each time. Columns are chosen before, as scikit-learn has it: ``X[names]``.

    Attributes
    ----------
    posterior_ : Posterior
        All that was learned, with its methods.
    edge_probabilities_ : pandas.DataFrame
        The probability of every edge: rows are sources, columns are targets.
    consensus_ : NamedGraph
        The DAG that is expected to agree with the posterior about most pairs.
    n_features_in_ : int
        The number of columns.
    feature_names_in_ : numpy.ndarray
        The names of the columns, where the table had names. An array has columns X1 ... Xd; a pipeline keeps names
        after ``pipeline.set_output(transform="pandas")``.

    Examples
    --------
    >>> import numpy as np
    >>> cause = np.linspace(-1, 1, 40)
    >>> table = np.column_stack([cause, cause**2 + 0.1 * np.sin(50 * cause)])
    >>> CausalPosterior(model="linear").fit(table).edge_probabilities_.shape
    (2, 2)
    """

    def __init__(
        self,
        *,
        model: Any = "auto",
        noise: Noise | None = None,
        logarithm: Sequence[str] | None = None,
        prior: float | DagPrior | None = None,
        knowledge: Knowledge | str | PathLike[str] | None = None,
        interventions: Any = None,
        engine: Any = "auto",
        preset: Preset = "default",
        standardise: bool = False,
        imputations: int = 10,
        streamed: bool | None = None,
        time_limit: float | None = None,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.model = model
        self.noise = noise
        self.logarithm = logarithm
        self.prior = prior
        self.knowledge = knowledge
        self.interventions = interventions
        self.engine = engine
        self.preset = preset
        self.standardise = standardise
        self.imputations = imputations
        self.streamed = streamed
        self.time_limit = time_limit
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> CausalPosterior:
        """Learn the posterior of a table ``(n, d)``; ``y`` is not used: what matters must be a column of ``X``."""
        given = {name: value for name, value in self.get_params(deep=False).items() if name != "random_state"}
        self.posterior_ = fit(X, seed=self._seed(), **given)
        self.edge_probabilities_ = self.posterior_.edge_probabilities
        self.consensus_ = self.posterior_.consensus()
        self.n_features_in_ = len(self.posterior_.names)
        if hasattr(X, "columns"):
            self.feature_names_in_ = np.array([str(name) for name in X.columns], dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_  # of an earlier fit
        return self

    def score(self, X: Any, y: Any = None) -> float:
        """The mean over rows of the log of their posterior predictive density; higher is better.

        Columns are matched by name; those of an array by their order. Of tables in the same units this compares
        models, priors and engines, and so serves ``GridSearchCV`` and ``cross_val_score``.
        """
        check_is_fitted(self)
        if hasattr(X, "columns") and isinstance(self.interventions, str):
            X = X[list(self.posterior_.names)]  # without the column that names what was set
        if not hasattr(X, "columns") and np.ndim(X) == 2:
            if np.shape(X)[1] != self.n_features_in_:
                raise DataError(
                    f"the array has {np.shape(X)[1]} columns, and the posterior is about {self.n_features_in_}: give "
                    f"these, in this order: {', '.join(self.posterior_.names[:10])}"
                )
            X = as_dataset(X, names=self.posterior_.names)
        return self.posterior_.held_out(X)["log_likelihood"]

    def _seed(self) -> int:
        if isinstance(self.random_state, Integral):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31 - 1))
