"""How long states last at first."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sojourn as sj
from sojourn.models import plan
from sojourn.models.persistence import spread_pieces, with_persistence
from sojourn.models.start import initial_posterior
from sojourn.sequences import Sequences


@settings(deadline=None)
@given(st.lists(st.integers(1, 5000), min_size=1, max_size=60))
def test_pieces_are_of_the_data_and_none_twice(lengths):
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    pieces = spread_pieces(Sequences(np.arange(offsets[-1]), offsets))
    assert len(np.unique(pieces.values)) == pieces.n_steps
    assert (pieces.lengths > 0).all()
    for piece in pieces:
        assert (np.diff(piece) == 1).all()
        first, last = np.searchsorted(offsets, [piece[0], piece[-1]], side="right")
        assert first == last  # of one sequence
    if len(lengths) == 1:
        assert pieces.n_steps == min(lengths[0], plan.STAYING_PIECES * plan.STAYING_PIECE)


@pytest.mark.parametrize("stays", [False, True])
def test_states_last_at_first_as_they_do_in_the_data(stays):
    rng = np.random.default_rng(10)
    if stays:
        states = np.repeat(rng.integers(5, size=100), 400)
    else:  # each state is followed by one of two others
        ups = rng.integers(1, 3, size=40_000)
        states = np.cumsum(ups) % 5
    x = rng.normal(2.0 * states[:, None], 1.0)
    data = Sequences(x, np.array([0, len(x)]))
    family = sj.Gaussian().resolve(data, 5)
    drawn = initial_posterior(sj.HMM(5, sj.Gaussian()), family, data, 1, len(x), seed=0)
    rows = with_persistence(drawn, family, data, n_threads=1, dtype="float64").counts.transitions
    assert rows.sum() == pytest.approx(drawn.counts.transitions.sum())
    assert (np.trace(rows) / rows.sum() > 0.8) == stays


def test_what_is_given_or_constrained_stays_so():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(40_000, 1))
    model = sj.HMM(3, sj.Gaussian(), transition_constraints="no-self", random_state=0).fit(x)
    assert (np.diag(model.transmat_) == 0.0).all()
