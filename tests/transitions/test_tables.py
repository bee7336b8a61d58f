"""Compiled tables against the closed forms, and sums of q² that only part of a batch has."""

import numpy as np
import pytest

from sojourn.transitions import Rows
from sojourn.transitions.tables import (
    Occurrence,
    exchangeable_tables,
    expected_log_eta,
    log_absence,
    tables_and_log_eta,
)


def drawn(n_states, rng):
    """Sums of q and q² of few or many, certain or improbable events."""
    q = rng.random((n_states + 1, n_states, 40)) ** rng.choice([0.01, 1.0, 60.0], (1, n_states, 1))
    q[rng.random(q.shape[:2]) < 0.1] *= 1e-90
    q *= rng.random(q.shape) < rng.choice([0.0, 0.05, 1.0], (n_states + 1, n_states, 1))
    rows = q[1:].sum(axis=1)
    rows /= np.maximum(1.0, rows.max())
    return q.sum(axis=2), Occurrence((q**2).sum(axis=2), (rows**2).sum(axis=1))


@pytest.mark.parametrize("n_states", [1, 4, 9, 23])  # cells are taken 16 at a time
@pytest.mark.parametrize("by_row", [False, True])
def test_compiled_tables_are_the_closed_forms(n_states, by_row):
    rng = np.random.default_rng(n_states)
    counts, occurrence = drawn(n_states, rng)
    prior = 10.0 ** rng.uniform(-30, 2, (n_states + 1, n_states) if by_row else n_states)
    totals = Rows(3.0, 0.2)
    tables, log_eta = tables_and_log_eta(
        prior, counts, occurrence, totals, exchangeable=True, second_order=True
    )
    expected = exchangeable_tables(prior, counts, occurrence.squares)
    np.testing.assert_allclose(tables, expected, rtol=1e-9, atol=1e-12)
    sums = counts.sum(axis=1)
    absent = np.minimum(log_absence(sums[1:], occurrence.row_squares), -sums[1:])
    each = np.array([3.0] + [0.2] * n_states)
    expected = expected_log_eta(each, sums, np.concatenate([[-np.inf], absent]))
    np.testing.assert_allclose(log_eta, expected, rtol=1e-10)
