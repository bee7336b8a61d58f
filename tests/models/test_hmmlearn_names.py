"""Every name of hmmlearn's models is on docs/hmmlearn.md, and none is misunderstood here."""

import inspect
import logging
import re

import numpy as np
import pytest
from hmmlearn import hmm, vhmm

import sojourn as sj
from sojourn.hmmlearn_names import INSTEAD
from tools.source import ROOT

MODELS = {
    hmm.CategoricalHMM: {},
    hmm.GaussianHMM: {},
    hmm.GMMHMM: {},
    hmm.MultinomialHMM: {"n_trials": 5},
    hmm.PoissonHMM: {},
    vhmm.VariationalCategoricalHMM: {},
    vhmm.VariationalGaussianHMM: {},
}


def arguments(model):
    """Return the names of a constructor's arguments."""
    return list(inspect.signature(model.__init__).parameters)[1:]


def section(title):
    """Return the code in the first column of a table of the page, by row."""
    page = (ROOT / "docs/hmmlearn.md").read_text()
    text = page.split(f"\n### {title}\n")[1].split("\n#")[0]
    rows = [line.split(" | ")[0] for line in text.splitlines() if line.startswith("| `")]
    assert all(line.count(" | ") == 1 for line in text.splitlines() if line.startswith("| `"))
    code = [name for row in rows for name in re.findall(r"`(\w[^`]*)`", row)]
    return [re.match(r"\w+", name).group() for name in code]


def fitted(model, parameters):
    """Fit a model of hmmlearn to anything that it takes."""
    rng = np.random.default_rng(0)
    if model is hmm.MultinomialHMM:
        X = rng.multinomial(5, [0.2, 0.3, 0.5], 40)
    elif "means_prior" in arguments(model):
        X = rng.random((40, 2))
    else:
        X = rng.integers(0, 3, (40, 1))
    return model(2, n_iter=2, **parameters).fit(X)


def test_the_page_names_all_that_hmmlearn_has(monkeypatch):
    monkeypatch.setattr(logging.getLogger("hmmlearn"), "disabled", True)
    assert set(section("Models")) == {model.__name__ for model in MODELS}
    names = {name for model in MODELS for name in arguments(model)}
    assert set(section("Constructor arguments")) == names
    methods, attributes = set(), set()
    for model, parameters in MODELS.items():
        found = fitted(model, parameters)
        public = {name for name in dir(found) if not name.startswith("_")} - set(arguments(model))
        own = {name for name in public if not name.endswith("_") and name != "n_features"}
        methods |= own
        attributes |= public - own
    assert set(section("Methods")) == methods
    assert set(section("Attributes")) == attributes


def test_what_the_page_says_is_there_is_there():
    page = (ROOT / "docs/hmmlearn.md").read_text()
    model = sj.HMM(2, sj.Gaussian(), n_passes=2, random_state=0).fit(np.eye(9))
    kinds = (model, model.emission_, model.statistics_, sj.Poisson(), sj.Categorical(), sj, np)
    for name in set(re.findall(r"`(?:\w*\.)?(\w+_|[a-z]\w+)(?:\(|=|`)", _second_columns(page))):
        known = any(hasattr(owner, name) for owner in kinds)
        known |= name in ("weight", "k", "per_step", *INSTEAD) or hasattr(sj.Multinomial(), name)
        assert known, f"the page names {name}"


def _second_columns(page):
    tables = page.split("## From the other side")[1].split("## Differences")[0]
    rows = [line.split(" | ", 1)[1] for line in tables.splitlines() if line.startswith("| `")]
    return "\n".join(re.sub(r'"[^"]*"', "", row) for row in rows if "the same" not in row)


@pytest.mark.parametrize("name", sorted({n for model in MODELS for n in arguments(model)}))
def test_each_parameter_of_hmmlearn_is_one_here_or_says_what_is(name):
    ours = inspect.signature(sj.HMM).parameters
    assert (name in ours) != (name in INSTEAD)
    if name in ours:
        return
    for model in (sj.HMM, sj.HDPHMM):
        with pytest.raises(TypeError, match=f"no parameter {name}, which is hmmlearn's: it "):
            model(**{"n_states": 2, "emission": sj.Gaussian(), name: 3})


FAMILIES = {
    "covariance_type": (sj.Gaussian, r"Gaussian\(\) is 'full', DiagonalGaussian\(\) 'diag'"),
    "means_prior": (sj.Gaussian, "it is mean here"),
    "means_weight": (sj.DiagonalGaussian, "it is mean_strength here"),
    "covars_prior": (sj.SphericalGaussian, "it is scale here"),
    "covars_weight": (sj.Gaussian, "it is degrees_of_freedom here"),
    "lambdas_prior": (sj.Poisson, "it is prior_shape here"),
    "lambdas_weight": (sj.Poisson, "it is prior_rate here"),
    "emissionprob_prior": (sj.Categorical, "it is concentration here, less one"),
    "n_features": (sj.Categorical, "it is n_symbols here"),
    "n_trials": (sj.Multinomial, "any number of trials"),
    "n_components": (sj.Gaussian, "belongs to the model, HMM or HDPHMM, and is n_states here"),
    "n_iter": (sj.Poisson, "belongs to the model, HMM or HDPHMM, and is n_passes here"),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_the_errors_of_families_say_the_way(name):
    family, text = FAMILIES[name]
    with pytest.raises(TypeError, match=rf"{family.__name__} has no parameter {name}.*{text}"):
        family(**{name: 1})
    here = re.search("is (\\w+) here", text)
    if here and here[1] not in ("n_states", "n_passes"):
        assert here[1] in inspect.signature(family).parameters


def test_families_take_their_own_parameters():
    assert sj.Gaussian(n_features=2).n_features == 2
    assert sj.Mixture(sj.Gaussian(), n_components=3).n_components == 3
    with pytest.raises(TypeError, match="unexpected keyword argument 'covarience'"):
        sj.Gaussian(covarience=1)


def test_the_errors_say_the_way():
    with pytest.raises(TypeError, match="it is n_states here"):
        sj.HMM(n_components=3)
    with pytest.raises(TypeError, match=r"DiagonalGaussian\(\) 'diag'"):
        sj.HMM(3, sj.Gaussian(), covariance_type="diag")
    X = np.zeros((5, 1))
    with pytest.raises(TypeError, match=r"such as sojourn\.Gaussian\(\), got 'gaussian'"):
        sj.HMM(3, "gaussian").fit(X)
    with pytest.raises(TypeError, match="there are AutoregressiveGaussian, Bernoulli"):
        sj.HMM(3, "normal").fit(X)
    with pytest.raises(TypeError, match=r"not its class: sojourn\.Gaussian\(\)"):
        sj.HMM(3, sj.Gaussian).fit(X)
    with pytest.raises(TypeError, match="unexpected keyword argument 'n_compnents'"):
        sj.HMM(n_compnents=3)


def test_a_sample_is_refused_where_hmmlearn_means_something_else():
    model = sj.HMM(2, sj.Categorical(2), random_state=0).fit([[0] * 9 + [1] * 9] * 9)
    with pytest.raises(ValueError, match=r"sample\(1, 500\) is one sequence of 500 steps"):
        model.sample(500)
    X, Z = (np.asarray(part) for part in model.sample(1, 500))
    assert X.shape == Z.shape == (500,)
    assert model.sample()[0].n_steps == 1


def test_sequences_become_arrays():
    data = sj.Sequences.from_list([[1, 2], [3]])
    assert np.asarray(data).tolist() == [1, 2, 3]
    assert np.asarray(data, dtype=float).dtype == float
    own = np.array(data)
    own[0] = 9
    assert data.values[0] == 1
