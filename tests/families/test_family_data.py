"""What families make of raw data: scale and place, extreme values, missing values, bad values."""

import copy
import pickle

import numpy as np
import pytest
from sklearn.base import clone

import sojourn as sj
from sojourn.families import DecayedTable, RowSums
from tests.support.families import EXAMPLES

LENGTHS = [60, 80, 60]
REAL = {
    "Gaussian": sj.Gaussian(),
    "DiagonalGaussian": sj.DiagonalGaussian(),
    "SphericalGaussian": sj.SphericalGaussian(),
    "AutoregressiveGaussian": sj.AutoregressiveGaussian(order=1),
    "LinearGaussian": sj.LinearGaussian(n_targets=2),
}


def clusters(seed, d=3):
    """Three states that stay for ten steps."""
    rng = np.random.default_rng(seed)
    states = np.repeat(rng.integers(3, size=20), 10)
    return rng.normal(0.0, 4.0, (3, d))[states] + rng.normal(size=(200, d))


def decoded(family, x, **parameters):
    model = sj.HMM(3, family, random_state=0, n_passes=15, batch_size=2, **parameters)
    return model.fit(x, LENGTHS).predict(x, LENGTHS)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("inference", ["scvi", "svi"])
@pytest.mark.parametrize("name", REAL)
def test_scale_and_place_of_the_data_do_not_change_the_states(name, inference, dtype):
    x = clusters(0)
    expected = decoded(REAL[name], x, inference=inference, dtype=dtype)
    assert len(np.unique(expected)) > 1
    changes = {"place": x + 1e6, "size": x * 1e6, "both": x * 1e6 + 1e6, "small": x * 1e-6}
    if name != "SphericalGaussian":  # one variance for all columns: their relative size matters
        changes["a column's size"] = x * [1e6, 1.0, 1.0]
        changes["a column's place"] = x + np.array([0.0, 1e6, 0.0])
    for what, changed in changes.items():
        got = decoded(REAL[name], changed, inference=inference, dtype=dtype)
        np.testing.assert_array_equal(got, expected, err_msg=what)


@pytest.mark.parametrize("factor", [1e6, 1e-6])
def test_size_of_positive_and_centred_data_does_not_change_the_states(factor):
    x = np.exp(clusters(1) / 2)
    for family in (sj.Exponential(), sj.Gamma(shape=2.0), sj.LogNormal()):
        np.testing.assert_array_equal(decoded(family, x * factor), decoded(family, x))
    swings = np.random.default_rng(0).normal(size=(200, 2)) * np.repeat([0.1, 1, 9, 1], 50)[:, None]
    for family in (sj.ZeroMeanGaussian(),):
        np.testing.assert_array_equal(decoded(family, swings * factor), decoded(family, swings))


def extreme_real():
    x = clusters(2)
    tiny = np.where(x[:, :1] > 0, 1.0, -1.0) + 1e-6 * x  # variances of 1e-12 around ±1
    constant = x.copy()
    constant[:, 1] = 5.0
    outlier = x.copy()
    outlier[7] = 1e12
    return {"1e-12 variances": tiny, "a constant column": constant, "a far outlier": outlier,
            "nothing but one value": np.full_like(x, 3.0), "huge": x * 1e100}  # fmt: skip


def extreme_counts():
    rng = np.random.default_rng(3)
    counts = rng.poisson(3.0, (200, 3)).astype(float)
    large = counts * 1e6
    outlier = counts.copy()
    outlier[7] = 1e9
    return {"counts of 1e6": large, "all zero": np.zeros_like(counts), "an outlier": outlier}


EXTREMES = [
    *((name, what) for name in [*REAL, "ZeroMeanGaussian"] for what in extreme_real()),
    *((name, what) for name in ("Exponential", "Gamma", "LogNormal") for what in extreme_real()),
    *((name, what) for name in ("Poisson", "NegativeBinomial", "Multinomial", "Geometric")
      for what in extreme_counts()),
]  # fmt: skip


@pytest.mark.parametrize("inference", ["scvi", "svi"])
@pytest.mark.parametrize("device", ["cpu", "reference"])
@pytest.mark.parametrize(("name", "what"), EXTREMES)
def test_extreme_values_stay_finite(name, what, inference, device):
    family = REAL.get(name) or getattr(sj, name)()
    x = (extreme_real() | extreme_counts())[what]
    if name in ("Exponential", "Gamma", "LogNormal"):
        x = np.abs(x) + 1e-12
    if name == "Geometric":
        x = x + 1
    model = sj.HMM(
        3, family, inference=inference, device=device, random_state=0, n_passes=3, batch_size=2
    ).fit(x, LENGTHS)
    assert np.isfinite(model.log_likelihood(x, LENGTHS)).all()
    assert np.isfinite(model.predict_proba(x, LENGTHS)).all()
    for parameter in model.emission_.parameter_names:
        assert np.isfinite(getattr(model, parameter)).all()
    assert np.isfinite(model.statistics_.emissions).all()


BAD = {
    "infinity": (sj.Gaussian(), [[1.0, np.inf]], "position 1, column 1: inf is not a finite"),
    "a partly missing row": (sj.Gaussian(), [[1.0, np.nan]], "position 1: column 1 is"),
    "a partly missing past": (
        sj.AutoregressiveGaussian(), [[np.nan, 1.0]], "position 1: column 0 is missing and"),
    "a partly missing count": (sj.Multinomial(), [[1.0, np.nan]], "position 1: column 1 is"),
    "a missing covariate": (sj.LinearGaussian(), [[1.0, np.nan]], "position 1: a covariate is"),
    "a negative count": (sj.Poisson(), [[1.0, -2.0]], "position 1, column 1: -2.0 is not a whole"),
    "half a count": (sj.NegativeBinomial(), [[0.5, 2.0]], "position 1, column 0: 0.5 is not"),
    "a zero": (sj.Geometric(), [[0.0, 1.0]], "position 1, column 0: 0.0 is not a whole"),
    "two": (sj.Bernoulli(), [[1.0, 2.0]], "position 1, column 1: 2.0 is not 0 or 1"),
    "a negative time": (sj.Exponential(), [[1.0, -1.0]], "position 1, column 1: -1.0 is"),
    "no time": (sj.Gamma(), [[1.0, 0.0]], "position 1, column 1: 0.0 is not a positive"),
    "no size": (sj.LogNormal(), [[0.0, 1.0]], "position 1, column 0: 0.0 is not a positive"),
    "no symbol": (
        sj.Product(sj.Poisson(), sj.Categorical(3)), [[1.0, 3.0]], "position 1: symbol 3 is"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_values_are_named_with_sequence_and_position(case):
    family, row, message = BAD[case]
    x = np.ones((6, 2))
    x[4] = row[0]
    with pytest.raises(ValueError, match=f"sequence 1, {message}"):
        sj.HMM(2, family).fit(x, [3, 3])
    fitted = sj.HMM(2, family, n_passes=1, random_state=0).fit(np.ones((6, 2)), [3, 3])
    before = fitted.statistics_.emissions
    for method in (fitted.score, fitted.predict, fitted.partial_fit):
        with pytest.raises(ValueError, match=f"sequence 1, {message}"):
            method(x, [3, 3])
    np.testing.assert_array_equal(fitted.statistics_.emissions, before)


VECTORS = [n for n in EXAMPLES if not n.startswith("categorical")]


@pytest.mark.parametrize("name", VECTORS)
def test_another_number_of_columns_is_refused(name):
    x = EXAMPLES[name].draw_data(np.random.default_rng(0), 20)
    model = sj.HMM(2, EXAMPLES[name].given, n_passes=1, random_state=0).fit(x, [20])
    with pytest.raises(ValueError, match="columns"):
        model.score(np.hstack([x, x]), [20])
    if not name.startswith("product"):
        wrong = clone(EXAMPLES[name].given).set_params(n_features=x.shape[1] + 1)
        with pytest.raises(ValueError, match=f"but the data have {x.shape[1]} columns"):
            sj.HMM(2, wrong).fit(x, [20])
    with pytest.raises(TypeError, match="numbers"):
        model.score(np.full((2, x.shape[1]), "a"), [2])


@pytest.mark.parametrize("name", EXAMPLES)
def test_families_are_scikit_learn_objects(name):
    given = EXAMPLES[name].given
    copy = clone(sj.HMM(2, given)).emission
    assert repr(copy) == repr(given)
    assert copy is not given
    resolved = EXAMPLES[name].resolve()
    assert repr(type(resolved).from_config(*resolved.config())) == repr(resolved)


def test_one_column_may_come_flat():
    x = clusters(4, 1)
    model = sj.HMM(3, sj.Gaussian(), random_state=0).fit(x, LENGTHS)
    flat = sj.HMM(3, sj.Gaussian(), random_state=0).fit(x[:, 0], LENGTHS)
    listed = sj.HMM(3, sj.Gaussian(), random_state=0).fit(np.split(x[:, 0], [60, 140]))
    assert (
        model.score(x, LENGTHS)
        == flat.score(x[:, 0], LENGTHS)
        == listed.score([x[:, 0]]) + (flat.score(x[:, 0], LENGTHS) - flat.score([x[:, 0]]))
    )


def test_a_mask_is_a_missing_entry():
    rng = np.random.default_rng(0)
    counts, hidden = rng.poisson(3.0, (40, 2)), rng.random((40, 2)) < 0.3
    masked = np.ma.array(counts, mask=hidden)
    holes = np.where(hidden, np.nan, counts)
    scores = [
        sj.HMM(2, sj.Poisson(), random_state=0, n_passes=2)
        .fit(data, [20, 20])
        .score(data, [20, 20])
        for data in (masked, holes)
    ]
    assert scores[0] == scores[1]


def test_statistics_do_not_depend_on_the_number_of_threads():
    x = np.random.default_rng(0).normal(size=(9000, 4))
    for family in (sj.Gaussian(), sj.DiagonalGaussian(), sj.SphericalGaussian(), sj.LogNormal()):
        own = np.exp(x) if isinstance(family, sj.LogNormal) else x
        fits = [
            sj.HMM(3, family, random_state=0, n_passes=2, n_jobs=n).fit(own, [1000] * 9)
            for n in (1, 2, 3)
        ]
        for other in fits[1:]:
            assert other.statistics_.emissions.tobytes() == fits[0].statistics_.emissions.tobytes()


def test_restarts_keep_the_best_model():
    x = clusters(5)
    held_out = clusters(6)

    def fit(seed, n_init, **options):
        model = sj.HMM(3, sj.Poisson(), random_state=seed, n_init=n_init, n_passes=2, batch_size=1)
        return model.fit(np.abs(x).round(), LENGTHS, **options)

    single = fit(3, 1).score(np.abs(x).round(), LENGTHS)
    best = fit(3, 4).score(np.abs(x).round(), LENGTHS)
    assert best > single + 1.0  # with this seed a later restart is better
    validation = (np.abs(held_out).round(), LENGTHS)
    scored = fit(0, 4, validation=validation)
    assert scored.history_[-1]["score"] == pytest.approx(
        scored.score(*validation, per_step=True), rel=1e-6
    )
    assert scored.history_[-1]["score"] >= fit(0, 1, validation=validation).history_[-1]["score"]
    with pytest.raises(ValueError, match="n_init must be a whole number"):
        fit(0, 0)


def test_product_shares_out_columns():
    x = np.abs(clusters(7)).round()
    family = sj.Product(sj.Gaussian(2), sj.Poisson()).resolve(sj.Sequences.from_lengths(x), 3)
    assert family.columns == [2, 1]
    assert family.parameter_names == ("means_", "covars_", "lambdas_")
    twice = sj.Product(sj.Poisson(), sj.Poisson(), columns=[1, 2])
    twice = twice.resolve(sj.Sequences.from_lengths(x), 3)
    assert twice.parameter_names == ("part0_lambdas_", "part1_lambdas_")
    with pytest.raises(ValueError, match="set the number of columns of each"):
        sj.Product(sj.Poisson(), sj.Poisson()).resolve(sj.Sequences.from_lengths(x), 3)
    changed = sj.Product(sj.Poisson(), sj.Gamma()).set_params(part1__shape=3.0)
    assert changed.parts[1].shape == 3.0


def test_missing_symbols_count_for_nothing():
    rng = np.random.default_rng(0)
    for n_symbols in (5, 5000):  # all rows of the table, and only those present
        x = rng.integers(n_symbols, size=200)
        x[rng.random(200) < 0.2] = -1
        model = sj.HMM(
            3, sj.Categorical(n_symbols), random_state=0, n_passes=3, forgetting_rate=0.0
        )
        model.fit(x, LENGTHS)
        assert model.statistics_.emissions.sum() == pytest.approx((x >= 0).sum(), rel=1e-5)
        with pytest.raises(ValueError, match="symbol -2 is outside"):
            model.score([-2])


def test_potentials_are_derived_once_for_the_chunks_of_a_batch(monkeypatch):
    """The table keeps them until it changes, and neither copies nor pickles them."""
    derived = []
    plain = sj.Poisson.potentials

    def potentials(self, natural, *, collapsed):
        derived.append(collapsed)
        return plain(self, natural, collapsed=collapsed)

    monkeypatch.setattr(sj.Poisson, "potentials", potentials)
    family = sj.Poisson(n_features=1, prior_shape=1.0, prior_rate=1.0)
    table = DecayedTable(np.array([[3.0, 2.0], [1.0, 2.0]]), "float64")
    data = sj.Sequences.from_lengths(np.array([[1.0], [0.0], [2.0]]), [3])
    encoded = family.encode(family.validate(data))

    def rows(of):
        return family.emission_rows(of, table, collapsed=True, dtype="float64", n_threads=1)

    first = rows(encoded)
    np.testing.assert_array_equal(rows(encoded).table, first.table)
    assert derived == [True]
    assert copy.copy(table).derived is None
    assert pickle.loads(pickle.dumps(table)).derived is None
    table.blend(RowSums(None, np.ones((2, 2)), 2), keep=0.5, weight=1.0)
    assert not np.array_equal(rows(encoded).table, first.table)
    assert len(derived) == 2
