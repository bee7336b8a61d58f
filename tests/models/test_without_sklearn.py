"""Models before scikit-learn is imported, and that they are its estimators afterwards."""

import subprocess
import sys

CODE = """
import sys
import numpy as np
import sojourn
from sojourn.estimator import clone

class Own(sojourn.HMM):
    def fit(self, X, lengths=None, *, colour=None):
        return super().fit(X, lengths)

model = Own(2, sojourn.Poisson(), n_passes=2, random_state=0)
own = clone(model).fit(np.arange(20)[:, None] % 7)
before = model.get_params()
assert own.predict(np.arange(5)[:, None]).shape == (5,)
assert "sklearn" not in sys.modules
assert clone(model).emission is not model.emission
assert "scipy.stats" not in sys.modules and "pandas" not in sys.modules

import sklearn.base
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

assert isinstance(model, BaseEstimator) and isinstance(model.emission, BaseEstimator)
assert issubclass(sojourn.HDPHMM, BaseEstimator) and isinstance(own, BaseEstimator)
assert model.get_params() == before and list(model.get_params()) == list(before)
assert sklearn.base.clone(model).get_params().keys() == before.keys()
assert "colour" in str(Own.set_fit_request.__doc__) and hasattr(own, "set_fit_request")
assert repr(model.emission) == "Poisson()"
assert not any(type(one).__module__.startswith("sojourn") for one in sys.meta_path)
try:
    model.predict([[1]])
except NotFittedError:
    print("as they should be")
"""

REPR = """
import sys
import sojourn
model = sojourn.Poisson()
assert "sklearn" not in sys.modules
{statement}
assert isinstance(model, sys.modules["sklearn.base"].BaseEstimator)
print("as they should be")
"""


def run(code):
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_models_become_estimators_of_scikit_learn_when_it_is_imported():
    found = run(CODE)
    assert found.stdout == "as they should be\n", found.stderr


def test_a_method_of_scikit_learn_imports_it():
    code = 'assert repr(model) == "Poisson()"\nassert model.set_params(prior_rate=2.0) is model'
    found = run(REPR.format(statement=code))
    assert found.stdout == "as they should be\n", found.stderr
