"""The estimators among those of scikit-learn."""

import pickle

import joblib
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import sojourn as sj


class _WithoutLengths:
    """scikit-learn hands a target to `fit` and `score`; here that place belongs to `lengths`."""

    def fit(self, X, y=None):
        return super().fit(X)

    def partial_fit(self, X, y=None):
        return super().partial_fit(X, total_sequences=1)

    def score(self, X, y=None):
        return super().score(X)


class PlainHMM(_WithoutLengths, sj.HMM):
    pass


class PlainHDPHMM(_WithoutLengths, sj.HDPHMM):
    pass


ORDER = "the rows are the steps of a sequence: what a step's state is depends on its neighbours"
FLAT = "a flat array is a sequence of single numbers, as in hmmlearn's users' hands"
NOT_APPLICABLE = {
    "check_methods_sample_order_invariance": ORDER,
    "check_methods_subset_invariance": ORDER,
    "check_fit1d": FLAT,
    "check_fit2d_predict1d": FLAT,
    "check_n_features_in_after_fitting": "refused as asked, in other words: 'the model has 4 "
    "columns (n_features), the data have 1'",
}


@parametrize_with_checks(
    [
        PlainHMM(2, sj.DiagonalGaussian(), n_passes=3, random_state=0, n_jobs=1),
        PlainHDPHMM(2, sj.DiagonalGaussian(), n_passes=3, random_state=0, n_jobs=1),
    ],
    expected_failed_checks=lambda estimator: NOT_APPLICABLE,
)
def test_conventions_of_scikit_learn(estimator, check):
    check(estimator)


def walks(n=12, seed=0):
    """Sequences that switch between two places, with a third column that says nothing."""
    rng = np.random.default_rng(seed)
    data = []
    for length in rng.integers(20, 60, n):
        state = (rng.random(length) < 0.1).cumsum() % 2
        data.append(np.column_stack([rng.normal(5.0 * state), rng.normal(size=length) * 100.0]))
    return data


def test_a_clone_is_unfitted_and_equal():
    model = sj.HDPHMM(3, sj.Product(sj.Gaussian(1), sj.Poisson()), random_state=4, delay=2.0)
    copy = clone(model)
    assert repr(copy) == repr(model)
    assert copy.emission is not model.emission
    assert not hasattr(copy, "emission_")
    assert not hasattr(copy, "n_features_in_")


def test_symbols_have_no_columns_and_vectors_have():
    assert not hasattr(sj.HMM(1, sj.Categorical(2)).fit([[0, 1]]), "n_features_in_")
    X = np.random.default_rng(0).normal(size=(30, 2))
    assert sj.HMM(1, sj.Gaussian()).fit(X).n_features_in_ == 2
    both = np.column_stack([X, np.ones(30)])
    product = sj.Product(sj.Gaussian(2), sj.Poisson())
    assert sj.HMM(1, product).fit(both).n_features_in_ == 3


def test_a_grid_search_keeps_sequences_whole_and_finds_the_states():
    data = walks()
    search = GridSearchCV(
        sj.HMM(1, sj.DiagonalGaussian(), batch_size=4, n_passes=10, random_state=0, n_jobs=1),
        {"n_states": [1, 2], "emission__mean_strength": [0.01, 0.1]},
        cv=sj.SequenceKFold(3),
    )
    search.fit(data)
    assert search.best_params_["n_states"] == 2
    by_hand = []
    for train, test in sj.SequenceKFold(3).split(data):
        model = clone(search.best_estimator_).fit([data[i] for i in train])
        by_hand.append(model.score([data[i] for i in test]))
    assert search.best_score_ == pytest.approx(np.mean(by_hand), rel=1e-12)


def test_groups_and_other_splitters_of_scikit_learn_work_on_sequences():
    data = walks()
    people = np.repeat(np.arange(4), 3)
    model = sj.HMM(2, sj.DiagonalGaussian(), n_passes=2, random_state=0, n_jobs=1)
    packed = sj.Sequences.from_list(data)
    for X in (data, packed):
        scores = cross_val_score(model, X, groups=people, cv=GroupKFold(2))
        assert np.isfinite(scores).all()


def test_a_scaler_in_a_pipeline():
    data = walks()
    hmm = sj.HMM(2, sj.DiagonalGaussian(), batch_size=4, random_state=0, n_jobs=1)
    flat = np.concatenate(data)
    scaled = StandardScaler().fit_transform(flat)
    one = make_pipeline(StandardScaler(), hmm).fit(flat)
    np.testing.assert_array_equal(one.predict(flat), clone(hmm).fit(scaled).predict(scaled))
    whole = make_pipeline(sj.PerStep(StandardScaler()), hmm).fit(data)
    lengths = [len(x) for x in data]
    expected = clone(hmm).fit(scaled, lengths).predict(scaled, lengths)
    np.testing.assert_array_equal(np.concatenate(whole.predict(data)), expected)
    search = GridSearchCV(whole, {"hmm__n_states": [1, 2]}, cv=sj.SequenceKFold(2)).fit(data)
    assert search.best_params_ == {"hmm__n_states": 2}


def test_models_travel_between_processes():
    data = walks(4)
    model = sj.HMM(2, sj.Gaussian(), n_passes=2, random_state=0, n_jobs=1).fit(data)
    same = pickle.loads(pickle.dumps(model))
    assert same.score(data) == model.score(data)
    # Processes would take seconds to start: pickling is what they need, threads show the rest.
    scores = joblib.Parallel(n_jobs=2, prefer="threads")(
        joblib.delayed(model.score)([sequence]) for sequence in data
    )
    np.testing.assert_allclose(scores, model.log_likelihood(data), rtol=1e-6)


def test_folds_are_disjoint_whole_and_of_like_size():
    rng = np.random.default_rng(0)
    data = [np.zeros(n) for n in rng.integers(1, 100, 60)]
    groups = rng.integers(20, size=60)
    steps, seen = [], []
    for train, test in sj.SequenceKFold(4, shuffle=True, random_state=0).split(data, None, groups):
        assert not set(groups[train]) & set(groups[test])
        assert sorted([*train, *test]) == list(range(60))
        steps.append(sum(len(data[i]) for i in test))
        seen.extend(test)
    assert sorted(seen) == list(range(60))
    largest_group = max(sum(len(data[i]) for i in np.flatnonzero(groups == g)) for g in range(20))
    assert max(steps) - min(steps) <= largest_group
    with pytest.raises(ValueError, match="not between 2 and the 3 sequences"):
        next(sj.SequenceKFold(4).split(data[:3]))
    with pytest.raises(ValueError, match="2 groups for 3 sequences"):
        next(sj.SequenceKFold(2).split(data[:3], None, [0, 1]))


def test_the_number_of_states_is_found_on_held_out_data():
    model = sj.HMM(1, sj.DiagonalGaussian(), batch_size=4, n_passes=10, random_state=0, n_jobs=1)
    data = walks()
    found = sj.select_n_states(model, data, n_states=[1, 2, 4], n_splits=3)
    assert [candidate.n_states for candidate in found] == [1, 2, 4]
    assert found.simplest.n_states == 2
    assert found.best.score >= found.simplest.score >= found.best.score - found.best.error
    assert found[0].train_score < found[1].train_score
    assert not hasattr(model, "emission_")
    scores = cross_val_score(clone(model), data, cv=sj.SequenceKFold(3),
                             scoring=lambda m, X, y=None: m.score(X, per_step=True))  # fmt: skip
    assert found[0].score == pytest.approx(scores.mean(), rel=1e-12)
    assert found[0].error == pytest.approx(scores.std(ddof=1) / np.sqrt(3), rel=1e-12)
