"""``tuned="auto"``: the prior on symbols is learned where everything is left to the library."""

import pytest

import sojourn as sj
from sojourn.models.plan import FULL_STEPS
from tests.support.known_states import simulate


@pytest.fixture(scope="module")
def many():
    family, drawn = simulate("categorical", 3, 1, n_train=1200)
    assert drawn.train.n_steps > FULL_STEPS
    return family, drawn.train


def prior_of(model, data):
    return model.fit(data).fitted_.posterior.emissions.prior


@pytest.mark.parametrize("kind", [sj.HMM, sj.HDPHMM])
def test_the_prior_on_many_symbols_is_learned(many, kind):
    family, train = many
    assert prior_of(kind(4, family, random_state=0), train) is not None


@pytest.mark.parametrize(
    "options",
    [{"tuned": False}, {"batch_size": 1000}, {"n_passes": 2}, {"inference": "svi", "tol": 1e-3}],
)
def test_what_is_given_stays_as_it_is(many, options):
    family, train = many
    assert prior_of(sj.HMM(4, family, random_state=0, **options), train) is None


def test_a_concentration_that_is_given_is_not_learned(many):
    family, train = many
    given = sj.Categorical(family.n_symbols, concentration=0.2)
    assert prior_of(sj.HMM(4, given, random_state=0), train) is None


def test_few_symbols_keep_their_prior():
    family, drawn = simulate("categorical", 3, 1, n_train=100)
    assert prior_of(sj.HMM(3, family, random_state=0), drawn.train) is None


def test_the_setting_is_kept_in_files(many, tmp_path):
    family, train = many
    model = sj.HMM(3, family, random_state=0).fit(train)
    model.save(tmp_path / "model")
    assert sj.load(tmp_path / "model").tuned == "auto"
