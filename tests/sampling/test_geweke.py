"""The joint distribution test holds for every sampler, and fails for samplers with a bug."""

import inspect
import textwrap

import numba
import numpy as np
import pytest

from sojourn.kernels.cpu import sampling as kernel
from sojourn.sampling import Beam, BlockedGibbs, CollapsedGibbs, DirectAssignment, infinite
from sojourn.transitions import GammaDistribution
from tests.support.geweke import finite_prior, infinite_prior, z_scores

pytestmark = pytest.mark.slow

DRAWS, SWEEPS = 5_000, 5_000
# Of at most 14 numbers, the largest is above 4 once in a thousand times; the seed is fixed.
SOUND, UNSOUND = 4.0, 6.0


def make(sampler):
    if issubclass(sampler, infinite.InfiniteSampler):
        return sampler(
            np.array([0.5, 0.8]), GammaDistribution(3.0, 2.0), GammaDistribution(3.0, 2.0)
        ), infinite_prior
    rng = np.random.default_rng(0)
    return sampler(rng.uniform(0.3, 1.5, (4, 3)), rng.uniform(0.3, 1.5, (2, 3))), finite_prior


def largest(sampler, seed=0):
    return np.abs(z_scores(*make(sampler), DRAWS, SWEEPS, seed)).max()


@pytest.mark.parametrize("sampler", [CollapsedGibbs, BlockedGibbs, DirectAssignment, Beam])
def test_both_simulations_agree(sampler):
    assert largest(sampler) < SOUND


def mutated(name, old, new):
    """Compile one of the inner loops with a line changed."""
    source = textwrap.dedent(inspect.getsource(getattr(kernel, name).py_func))
    assert source.count(old) == 1
    body = source[source.index("def ") :].replace(old, new)
    space = {}
    exec(body, space)
    return numba.njit(space[name])


@pytest.mark.parametrize(
    ("sampler", "name", "line"),
    [
        (
            CollapsedGibbs,
            "collapsed_sweep",
            "weight /= prior_totals[k + 1] + row_totals[k + 1] + came",
        ),
        (DirectAssignment, "direct_assignment_sweep", "weight /= alpha + row_totals[k + 1] + came"),
    ],
)
def test_forgetting_the_normaliser_of_the_next_row_is_caught(sampler, name, line, monkeypatch):
    monkeypatch.setattr(kernel, name, mutated(name, line, "weight /= 1.0"))
    assert largest(sampler) > UNSOUND


@pytest.mark.parametrize("sampler", [DirectAssignment, Beam])
def test_tables_with_the_wrong_prior_are_caught(sampler, monkeypatch):
    right = kernel.draw_tables

    def wrong(rng, counts, prior, tables):
        right(rng, counts, np.ones_like(prior), tables)

    monkeypatch.setattr(kernel, "draw_tables", wrong)
    assert largest(sampler) > UNSOUND


class Truncated(Beam):
    """Never breaks a stick."""

    def _break_sticks(self, rows, emissions, state, smallest, rng):
        return rows, emissions, state.shares


def test_a_beam_that_makes_no_new_states_is_caught():
    assert largest(Truncated) > UNSOUND
