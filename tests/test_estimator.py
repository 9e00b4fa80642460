"""CausalPosterior behaves as scikit-learn expects of an estimator, and says what `fit` says."""

import inspect
import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

import vcuda
from vcuda.errors import DataError

NAMES = ["dose", "blood level", "response", "age"]
# Checks that look at the class and its parameters alone; the others fit tables that our own checks refuse.
WITHOUT_FIT = {
    "check_estimator_cloneable",
    "check_estimator_tags_renamed",
    "check_no_attributes_set_in_init",
    "check_estimators_unfitted",
    "check_estimator_repr",
    "check_get_params_invariance",
    "check_set_params",
    "check_do_not_raise_errors_in_init_or_set_param",
    "check_mixin_order",
    "check_valid_tag_types",
}


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(2)
    values = rng.normal(size=(60, 4))
    values[:, 1] += values[:, 0]
    values[:, 2] += values[:, 1] + values[:, 3]
    return pd.DataFrame(values, columns=NAMES)


@pytest.fixture(scope="module")
def estimator(table):
    return vcuda.CausalPosterior(model="linear", engine="exact", random_state=3).fit(table)


def test_it_passes_on_every_option_of_fit():
    taken = set(inspect.signature(vcuda.CausalPosterior).parameters) - {"random_state"}
    # Where a fit runs, where it keeps what it has, and what it takes of a table, is no property of an estimator.
    of_one_fit = {"data", "columns", "exclude", "seed", "progress", "client", "checkpoint", "resume"}
    assert taken == set(inspect.signature(vcuda.fit).parameters) - of_one_fit
    defaults = vcuda.CausalPosterior().get_params()
    for name, parameter in inspect.signature(vcuda.fit).parameters.items():
        if name in taken:
            assert defaults[name] == parameter.default
    assert defaults["random_state"] == inspect.signature(vcuda.fit).parameters["seed"].default


def test_what_is_learned_is_what_fit_learns(estimator, table):
    posterior = vcuda.fit(table, model="linear", engine="exact", seed=3)
    pd.testing.assert_frame_equal(estimator.edge_probabilities_, posterior.edge_probabilities)
    assert estimator.posterior_.provenance["seed"] == 3
    np.testing.assert_array_equal(estimator.consensus_.graph, posterior.consensus().graph)
    assert estimator.n_features_in_ == 4
    assert estimator.feature_names_in_.tolist() == NAMES
    assert estimator.score(table) == posterior.held_out(table)["log_likelihood"]


def test_options_reach_the_fit(table):
    knowledge = vcuda.Knowledge(required=["age -> dose"], sinks=["response"])
    options = {"model": "linear", "noise": "equal", "knowledge": knowledge, "prior": 0.05, "engine": vcuda.Exact()}
    probabilities = vcuda.CausalPosterior(**options).fit(table).edge_probabilities_
    assert probabilities.loc["age", "dose"] == 1
    assert (probabilities.loc["response"] == 0).all()
    assert np.array_equal(probabilities, vcuda.fit(table, **options).edge_probabilities)


def test_a_clone_has_the_parameters_and_nothing_that_was_learned(estimator, table):
    spec = vcuda.CausalPosterior(engine=vcuda.Orders(), prior=vcuda.DagPrior(0.2), knowledge=vcuda.Knowledge())
    assert clone(spec).get_params() == spec.get_params()
    copy = clone(estimator).set_params(prior=0.3)
    assert not hasattr(copy, "posterior_")
    assert estimator.get_params()["prior"] is None
    with pytest.raises(NotFittedError):
        copy.score(table)
    assert "engine='exact'" in repr(estimator)


def test_it_ends_a_pipeline(table):
    pipeline = make_pipeline(StandardScaler(), vcuda.CausalPosterior(model="linear", engine="exact"))
    pipeline.set_output(transform="pandas")
    clone(pipeline).fit(table)
    pipeline.fit(table, y=table["response"])
    learned = pipeline[-1]
    assert learned.posterior_.names == tuple(NAMES)
    assert np.isfinite(pipeline.score(table))
    assert pipeline.set_params(causalposterior__model="gp")[-1].model == "gp"


def test_settings_are_searched_by_what_they_predict(table):
    """Rows that were held out tell a prior that all but forbids edges from one that does not."""
    search = GridSearchCV(vcuda.CausalPosterior(model="linear", engine="exact"), {"prior": [1e-9, 0.3]}, cv=3)
    search.fit(table)
    assert search.best_params_ == {"prior": 0.3}
    assert search.best_estimator_.posterior_.names == tuple(NAMES)
    assert cross_val_score(search.best_estimator_, table, cv=3).shape == (3,)


def test_arrays_have_numbered_columns_and_are_scored_by_their_order(estimator, table):
    values = table.to_numpy()
    again = clone(estimator).fit(values)
    assert not hasattr(again, "feature_names_in_")
    assert again.posterior_.names == ("X1", "X2", "X3", "X4")
    np.testing.assert_array_equal(again.edge_probabilities_, estimator.edge_probabilities_)
    assert estimator.score(values) == again.score(values) == estimator.score(table[NAMES[::-1]])
    with pytest.raises(DataError, match="3 columns, and the posterior is about 4"):
        estimator.score(values[:, :3])
    refitted = clone(estimator).fit(table).fit(values)
    assert not hasattr(refitted, "feature_names_in_")


def test_a_random_state_may_be_a_generator_or_nothing(table):
    def seed(state):
        made = vcuda.CausalPosterior(model="linear", engine="exact", random_state=state)
        return made.fit(table).posterior_.provenance["seed"]

    assert seed(np.random.RandomState(1)) == seed(np.random.RandomState(1)) != seed(np.random.RandomState(2))
    assert seed(None) != seed(None)
    assert seed(np.int64(7)) == 7


def test_it_can_be_pickled_for_workers(estimator, table):
    again = pickle.loads(pickle.dumps(estimator))
    assert again.score(table) == estimator.score(table)


CHECKS = {
    check.func.__name__: (made, check)
    for made, check in estimator_checks_generator(vcuda.CausalPosterior(model="linear"), legacy=True)
    if check.func.__name__ in WITHOUT_FIT
}


def test_the_checks_are_still_there():
    assert len(CHECKS) >= 7


@pytest.mark.parametrize("name", CHECKS)
def test_scikit_learns_own_checks(name):
    made, check = CHECKS[name]
    check(made)
