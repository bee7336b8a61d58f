"""Which family the command line proposes, by simulated tables."""

import numpy as np
import pytest

import sojourn as sj
from sojourn.families.choose import choose_family


def states(rng, stay=0.95, n=3000):
    """Three states that last for twenty steps on average."""
    out = np.zeros(n, int)
    for t in range(1, n):
        out[t] = out[t - 1] if rng.random() < stay else rng.integers(3)
    return out


RATES = np.array([1.0, 6.0, 20.0])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("stay", [0.9, 0.98])
def test_counts_of_states_that_differ_are_poissons(seed, stay):
    rng = np.random.default_rng(seed)
    choice = choose_family(rng.poisson(RATES[states(rng, stay)]))
    assert isinstance(choice.family, sj.Poisson)


@pytest.mark.parametrize("seed", range(3))
def test_counts_that_vary_more_are_negative_binomial(seed):
    rng = np.random.default_rng(seed)
    mean = RATES[states(rng)]
    choice = choose_family(rng.negative_binomial(1.5, 1.5 / (1.5 + mean)))
    assert isinstance(choice.family, sj.NegativeBinomial)
    assert choice.family.dispersion is None
    assert choice.reason == "counts that vary more within 6 steps than Poisson's"


@pytest.mark.parametrize("seed", range(3))
def test_counts_with_many_zeros_are_zero_inflated(seed):
    rng = np.random.default_rng(seed)
    x = rng.poisson(np.array([4.0, 9.0, 20.0])[states(rng)]) * (rng.random(3000) < 0.6)
    choice = choose_family(x)
    assert isinstance(choice.family, sj.ZeroInflated)
    assert choice.reason == "counts with more zeros than Poisson's"


def test_angles_and_shares_are_known_by_their_range():
    rng = np.random.default_rng(0)
    angles = rng.vonmises(np.array([0.0, 2.5, -2.0])[states(rng)], 2.0)
    assert isinstance(choose_family(angles).family, sj.VonMises)
    assert isinstance(choose_family(np.mod(angles, 2 * np.pi)).family, sj.VonMises)
    assert isinstance(choose_family(rng.normal(size=3000)).family, sj.Gaussian)
    assert isinstance(choose_family(rng.uniform(-2.0, 2.0, 3000)).family, sj.Gaussian)
    choice = choose_family(rng.beta(2.0, 5.0, 300))
    assert isinstance(choice.family, sj.Beta)
    assert choice.reason == "numbers between 0 and 1"
    both = np.column_stack([rng.gamma(2.0, 3.0, 3000), angles])
    assert [type(part) for part in choose_family(both).family.parts] == [sj.Gaussian, sj.VonMises]


def test_few_counts_are_not_judged():
    assert isinstance(choose_family(np.array([0, 0, 0, 40, 0, 7])).family, sj.Poisson)
