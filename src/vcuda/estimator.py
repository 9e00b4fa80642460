"""CausalPosterior: `fit` as an estimator of scikit-learn, for pipelines, clones and searches over settings."""

from __future__ import annotations

import inspect
from numbers import Integral
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from vcuda.deprecation import warn_renamed
from vcuda.errors import DataError
from vcuda.fitting.fit import fit
from vcuda.fitting.spec import OPTIONS, check_known, current_names, signature_of

# Columns are chosen before, by ``X[names]``, and the seed is called random_state, as scikit-learn has it.
PARAMETERS = {name: one for name, one in OPTIONS.items() if name not in ("columns", "exclude", "seed")}


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

    def __init__(self, *, random_state: int | np.random.RandomState | None = 0, **options: Any) -> None:
        given = current_names(options, warn_renamed)
        check_known(type(self).__name__, given, PARAMETERS)
        for name, one in PARAMETERS.items():
            setattr(self, name, given.get(name, one.default))
        self.random_state = random_state

    def set_params(self, **params: Any) -> CausalPosterior:
        """Change parameters, as scikit-learn has it; old names work for one release."""
        super().set_params(**current_names(params, warn_renamed))
        return self

    def fit(self, X: Any, y: Any = None) -> CausalPosterior:
        """Learn the posterior of a table ``(n, d)``; ``y`` is not used: what matters must be a column of ``X``."""
        self.posterior_ = fit(X, seed=self._seed(), **{name: getattr(self, name) for name in PARAMETERS})
        self.edge_probabilities_ = self.posterior_.edge_probabilities
        self.consensus_ = self.posterior_.consensus()
        # Columns that are no variables are left out of the posterior.
        self.n_features_in_ = len(self.posterior_.names) if hasattr(X, "columns") else np.shape(X)[1]
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
            named = hasattr(self, "feature_names_in_") or len(self.posterior_.names) == self.n_features_in_
            names = self.posterior_.names if named else [f"X{k}" for k in range(1, self.n_features_in_ + 1)]
            X = pd.DataFrame(np.asarray(X), columns=list(names))
        return self.posterior_.held_out(X)["log_likelihood"]

    def _seed(self) -> int:
        if isinstance(self.random_state, Integral):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31 - 1))


# scikit-learn reads the parameters of an estimator from the signature of its __init__.
_SELF = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
_STATE = inspect.signature(CausalPosterior.__init__).parameters["random_state"]
_SIGNATURE = signature_of(PARAMETERS.values(), _SELF)
CausalPosterior.__init__.__signature__ = _SIGNATURE.replace(  # type: ignore[attr-defined]
    parameters=[*_SIGNATURE.parameters.values(), _STATE]
)
