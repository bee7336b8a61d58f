"""``tuned="auto"``: the prior on symbols is learned where everything is left to the library."""

import pytest

import sojourn as sj
from sojourn.models.plan import FULL_STEPS
from sojourn.sources.base import joined
from sojourn.sources.generate import draw_sentences, draw_truth
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


def test_few_symbols_keep_their_prior_unless_states_are_searched_for():
    family, drawn = simulate("categorical", 3, 1, n_train=100)
    assert prior_of(sj.HMM(3, family, random_state=0), drawn.train) is None
    learned = prior_of(sj.HDPHMM(6, family, random_state=0), drawn.train)
    assert learned.of_seen != pytest.approx(0.1, rel=0.01)


@pytest.mark.parametrize("kind", [sj.HMM, sj.HDPHMM])
def test_few_words_are_predicted_better_than_by_full_batches_with_a_fixed_prior(kind):
    truth = draw_truth(10, 2000, seed=0)
    drawn = joined(list(draw_sentences(truth, 700, seed=1)))
    train, test = drawn[:200], drawn[200:]
    fits = [
        kind(10, sj.Categorical(2000), random_state=0, tuned=tuned).fit(train)
        for tuned in ("auto", ())
    ]
    learned, fixed = (model.score(test, per_step=True) for model in fits)
    assert learned > fixed + 0.02


def test_a_prior_is_learned_in_a_copy():
    family, drawn = simulate("categorical", 3, 1, n_train=100)
    model = sj.HDPHMM(3, family, random_state=0).fit(drawn.train)
    before = model.fitted_.posterior
    before.emissions.prior.of_seen = 1.0
    after = before.with_prior_learned()
    assert before.emissions.prior.of_seen == 1.0
    assert after.emissions.prior.of_seen < 0.1
    assert after.emissions.rows is before.emissions.rows


def test_the_setting_is_kept_in_files(many, tmp_path):
    family, train = many
    model = sj.HMM(3, family, random_state=0).fit(train)
    model.save(tmp_path / "model")
    assert sj.load(tmp_path / "model").tuned == "auto"
