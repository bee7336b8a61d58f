"""Warnings of `fit`, and the fits that deserve none."""

import warnings

import numpy as np
import pytest

import sojourn as sj
from sojourn.inference import Schedule
from sojourn.models.advice import start_left

DATA = [[0, 1, 2, 3] * 5, [3, 2, 1, 0] * 5] * 40


def fit(**changes):
    settings = {"n_states": 2, "batch_size": 4, "n_passes": 5, "random_state": 0, "n_jobs": 1}
    return sj.HMM(emission=sj.Categorical(4), **(settings | changes)).fit(DATA)


def test_a_good_fit_is_quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit()
        fit(batch_size=None, forgetting_rate=0.0, n_passes=3)
        fit(inference="vb", n_passes=2)
        sj.HMM(1, sj.Gaussian(), batch_size=None, forgetting_rate=0.0).fit(np.eye(3) * 1.5)
        sj.HDPHMM(12, sj.Categorical(4), batch_size=4, random_state=0).fit(DATA)


def test_a_start_that_is_not_forgotten():
    message = r"after 2 updates 29% of the posterior .* with forgetting_rate=0.9 .* n_passes=2"
    with pytest.warns(sj.FitWarning, match=message):
        fit(batch_size=None, forgetting_rate=0.9, n_passes=2)


@pytest.mark.parametrize(("rate", "delay", "n"), [(0.5, 1.0, 7), (0.9, 10.0, 30), (1.0, 0.0, 3)])
def test_what_is_left_of_the_start_is_what_the_blend_leaves(rate, delay, n):
    schedule = Schedule(rate, delay)
    left = 1.0
    for step in range(1, n + 1):
        left = (1 - schedule(step)) * left  # eq (3) with nothing new
    assert start_left(schedule, n) == pytest.approx(left, abs=1e-11)


def test_states_that_never_got_used():
    idle = sj.Statistics(
        start=[80, 0, 0],
        transitions=np.diag([1600.0, 1e-6, 1e-6]),
        emissions=np.outer([1, 1e-9, 1e-9], [400.0] * 4),
    )
    with pytest.warns(
        sj.FitWarning, match="2 of 3 states are unused, .*; n_states=1 would be enough"
    ):
        fit(n_states=3, init=idle, transition_concentration=1e-9)


def test_a_held_out_score_that_falls(monkeypatch):
    scores = iter([-1.0, -0.5, -0.9])
    monkeypatch.setattr(sj.FittedModel, "score_data", lambda *_, **__: next(scores))
    model = sj.HMM(2, sj.Categorical(4), batch_size=4, n_passes=3, random_state=0)
    with pytest.warns(
        sj.FitWarning, match=r"fell from -0.5000 after pass 2 to -0.9000 after pass 3"
    ):
        model.fit(DATA, validation=DATA[:2])


@pytest.mark.parametrize("family", [sj.Gaussian(), sj.DiagonalGaussian(), sj.SphericalGaussian()])
def test_whole_numbers_for_real_ones(family):
    counts = np.random.default_rng(0).poisson(4.0, (60, 2))
    with pytest.warns(sj.FitWarning, match="for counts use Poisson, for symbols Categorical"):
        sj.HMM(1, family, n_passes=20).fit(counts)
    with warnings.catch_warnings():
        warnings.simplefilter("error", sj.FitWarning)
        sj.HMM(1, family, n_passes=20).fit(counts.astype(float))


def test_restarts_warn_once():
    with pytest.warns(sj.FitWarning) as caught:
        fit(batch_size=None, n_passes=2, n_init=3)
    assert len(caught) == 1


def test_the_warning_points_at_the_line_that_called_fit():
    model = sj.HMM(2, sj.Categorical(4), n_passes=1, random_state=0)
    with pytest.warns(sj.FitWarning) as caught:
        model.fit(DATA)
    assert caught[0].filename == __file__
