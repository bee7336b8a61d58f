"""Choosing the number of states for one series, by entries that are masked."""

import numpy as np
import pytest

import sojourn as sj
from sojourn.model_selection import entry_folds, n_parameters
from tests.support.families import EVERY


def series(seed=0, n=600):
    rng = np.random.default_rng(seed)
    z = np.repeat(rng.integers(3, size=n // 20), 20)
    return np.array([0.0, 4.0, 9.0])[z] + rng.normal(size=len(z))


def test_one_series_has_as_many_states_as_it_was_made_of():
    model = sj.HMM(2, sj.DiagonalGaussian(), random_state=0)
    found = sj.select_n_states(model, series(), n_states=[1, 2, 3, 5])
    assert found.simplest.n_states == 3
    assert found[0].score < found[1].score < found[2].score


def test_scores_are_those_of_masked_entries_given_the_others():
    x = series(n=60)
    model = sj.HMM(2, sj.DiagonalGaussian(), random_state=0, n_init=1)
    (found,) = sj.select_n_states(model, x, n_states=[2], n_splits=2, hold_out="entries")
    data, expected = sj.Sequences.from_lengths(x[:, None]), []
    for mask in entry_folds(model.emission, data, 2):
        masked = np.where(mask, np.nan, x[:, None])
        fitted = sj.HMM(2, sj.DiagonalGaussian(), random_state=0, n_init=1).fit(masked)
        # One entry after another, each given what is already known.
        known, total = masked.copy(), 0.0
        for t in np.flatnonzero(mask[:, 0]):
            before = fitted.score(known)
            known[t] = x[t]
            total += fitted.score(known) - before
        expected.append(total / mask.sum())
    np.testing.assert_allclose(found.score, np.mean(expected), rtol=1e-6)


@pytest.mark.parametrize("name", EVERY)
def test_every_family_is_masked_where_it_may_be(name):
    example = EVERY[name]
    values = example.draw_data(np.random.default_rng(0), 40)
    data = sj.Sequences(values, [0, 40])
    if name == "autoregressive Gaussian":
        with pytest.raises(ValueError, match="cut the series into several"):
            list(entry_folds(example.given, data, 3))
        return
    masks = list(entry_folds(example.given, data, 3))
    total = np.sum(masks, axis=0)
    free = total.reshape(40, -1)[:, 2:] if name == "linear Gaussian" else np.zeros(1)
    assert (free == 0).all()  # covariates stay
    assert (np.delete(total.reshape(40, -1), slice(2, None) if free.size > 1 else [], 1) == 1).all()
    model = sj.HMM(3, example.given, random_state=0, n_init=1, n_passes=2)
    found = sj.select_n_states(model, values, [20, 20], n_states=[3], n_splits=2,
                               hold_out="entries")  # fmt: skip
    assert np.isfinite(found[0].score)


def test_words_are_masked():
    words = (["a", "b"] * 30 + ["c", "d"] * 30) * 2
    model = sj.HMM(2, sj.Categorical(), random_state=0, n_init=1)
    found = sj.select_n_states(model, [words], n_states=[1, 4])
    assert found[1].score > found[0].score


def test_many_sequences_are_held_out_as_before():
    data = [series(seed, 60) for seed in range(4)]
    model = sj.HMM(2, sj.DiagonalGaussian(), random_state=0, n_init=1)
    assert sj.select_n_states(model, data, n_states=[2]) == sj.select_n_states(
        model, data, n_states=[2], hold_out="sequences"
    )
    with pytest.raises(ValueError, match="hold_out='steps' is not one of"):
        sj.select_n_states(model, data, n_states=[2], hold_out="steps")
    with pytest.raises(ValueError, match="n_splits=99 is not between 2 and the 60 steps"):
        sj.select_n_states(model, data[0], n_states=[2], n_splits=99)


@pytest.mark.parametrize(
    ("name", "of_a_state", "shared"),
    [
        ("tied Gaussian", 3, 6),
        ("product with a tied part", 2 + 1, 3),
        ("binomial", 2, 0),
        ("binomial, known trials", 2, 0),
        ("von Mises", 4, 0),
        ("beta", 4, 0),
        ("gamma, learned shape", 4, 0),
        ("negative binomial, learned dispersion", 4, 0),
        ("mixture of diagonal Gaussians", 3 * 6 + 2, 0),
        ("mixture of Gaussians", 2 * 5 + 1, 0),
        ("zero-inflated Poisson", 4, 0),
        ("Student t", 2 + 3 + 1, 0),
        ("Student t, known degrees of freedom", 1 + 1, 0),
        ("product with a mixture", (2 * 4 + 1) + 2 + 1, 0),
    ],
)
def test_free_parameters_are_counted(name, of_a_state, shared):
    x = EVERY[name].draw_data(np.random.default_rng(0), 40)
    model = sj.HMM(3, EVERY[name].given, random_state=0, n_init=1, n_passes=1).fit(x)
    assert n_parameters(model) == 2 + 6 + 3 * of_a_state + shared
