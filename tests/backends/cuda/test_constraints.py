"""Constraints and fixed parts on a GPU: what the CPU computes, and zeros that stay 0.0."""

import warnings

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

import sojourn as sj
from sojourn.warnings import FitWarning

pytestmark = [
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

NAN = np.nan
GIVEN = np.array([[NAN, 0.25, NAN], [0.0, NAN, NAN], [0.0, 0.0, 1.0]])
SYMBOLS = [np.random.default_rng(n).integers(0, 4, n + 2) for n in range(8)]


@pytest.mark.parametrize(
    ("kind", "constraints", "options"),
    [
        (sj.HMM, GIVEN, {}),
        (sj.HMM, "left-right", {"stickiness": "learned"}),
        (sj.HMM, GIVEN, {"inference": "svi"}),
        (sj.HDPHMM, GIVEN, {"hdp": sj.HDPOptions(occupancy="exact")}),
        (sj.HDPHMM, "no-self", {"inference": "svi"}),
    ],
)
def test_constraints_are_those_of_the_cpu(kind, constraints, options):
    here, there = (
        kind(
            3, sj.Categorical(4), transition_constraints=constraints, batch_size=4, n_passes=2,
            random_state=0, moves=None, device=device, init="exponential", **options,
        ).fit(SYMBOLS)
        for device in ("cpu", "cuda")
    )  # fmt: skip
    for name in ("start", "transitions", "emissions"):
        ours, theirs = (getattr(model.statistics_, name) for model in (there, here))
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)
    never = ~here.fitted_.posterior.transitions.constraints.allowed.transitions
    for model in (here, there):
        assert (model.transmat_[never] == 0.0).all()
        assert (model.statistics_.transitions[never] == 0.0).all()


@pytest.mark.parametrize(
    ("options", "is_told"),
    [
        ({}, True),
        ({"transition_constraints": "no-self"}, False),
        ({"dtype": "float64"}, False),
        ({"device": "cpu"}, False),
    ],
)
def test_where_transitions_lead_one_way_it_is_said_what_a_gpu_does_not_notice(options, is_told):
    usual = {"transition_constraints": "left-right", "device": "cuda", "n_passes": 1}
    model = sj.HMM(3, sj.Categorical(4), moves=None, random_state=0, **(usual | options))
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always", FitWarning)
        model.fit(SYMBOLS)
    assert any("lead one way" in str(one.message) for one in found) == is_told


def test_fixed_emissions_stay_as_they_are_to_the_bit():
    chances = np.array([[0.7, 0.1, 0.1, 0.1], [0.1, 0.1, 0.4, 0.4]])
    model = sj.HMM.from_parameters(
        [0.5, 0.5], [[0.5, 0.5], [0.5, 0.5]], sj.Categorical(4), emissionprob=chances,
        fixed={"emissions": [1]}, device="cuda", batch_size=4, n_passes=2, random_state=0,
    )  # fmt: skip
    before = model.statistics_.emissions[1]
    model.fit(SYMBOLS)
    np.testing.assert_array_equal(model.statistics_.emissions[1], before)
    assert np.abs(model.emissionprob_[0] - chances[0]).max() > 1e-3
