"""Data for every family and every entry point, most of them past validation."""

import copy
import warnings
from functools import cache

import numpy as np

import sojourn as sj
from sojourn.families.checks import LARGEST
from tests.soak.harness import Part, WrongError, finite, soak
from tests.support.families import EXAMPLES

NAMES = tuple(EXAMPLES)
ENTRIES = ("score", "log_likelihood", "predict", "predict_proba", "decode")
RARE_ENTRIES = ("partial_fit", "fit", "fit hdp", "gibbs", "vb")
ODD = (
    float("nan"), float("inf"), -float("inf"), 1e308, -1e308, LARGEST, -LARGEST, 1e155, 1e60, 1e-60,
    1e-120, 5e-324, -1.0, 0.0, 0.5, 1.0, 2.0**31, 2.0**53, 2.0**63, -0.0, 1e9, 3.0, 7.0,
)  # fmt: skip
ODD_LENGTHS = (0, 1, -1, 2**63 - 1, 2**62, 2**31, 5, 10**6)
DTYPES = ("float32", "float16", "int64", "int8", "uint64", "bool", "object", "complex128", "U4")
_ROWS = 240


@cache
def data_of(name):
    """Rows to take steps from, as lists."""
    return np.asarray(EXAMPLES[name].draw_data(np.random.default_rng(7), _ROWS)).tolist()


@cache
def model_of(name):
    """A small fitted model."""
    x = np.asarray(data_of(name))
    model = sj.HMM(3, EXAMPLES[name].given, n_passes=2, batch_size=4, random_state=0, n_jobs=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(x, [20] * (_ROWS // 20))


def make(rng):
    """Return a case: a family, an entry point, steps, lengths and a dtype."""
    name = NAMES[rng.randrange(len(NAMES))]
    entry = ENTRIES[rng.randrange(len(ENTRIES))]
    if rng.random() < 0.03:
        entry = RARE_ENTRIES[rng.randrange(len(RARE_ENTRIES))]
    rows = data_of(name)
    lengths = [1 + rng.randrange(5) for _ in range(1 + rng.randrange(3))]
    begin = rng.randrange(_ROWS - 20)
    values = [list(r) if type(r) is list else r for r in rows[begin : begin + sum(lengths)]]
    case = {"family": name, "entry": entry, "values": values, "lengths": lengths, "dtype": None}
    kind = rng.random()
    if kind < 0.35:
        _spoil(rng, values)
    elif kind < 0.5:
        _stretch(rng, values)
    elif kind < 0.56:
        case["lengths"] = _odd_lengths(rng, lengths)
    elif kind < 0.6:
        case["dtype"] = DTYPES[rng.randrange(len(DTYPES))]
    elif kind < 0.63:
        _misshape(rng, values)
    return case


def _spoil(rng, values):
    """Replace some numbers."""
    for _ in range(1 + rng.randrange(3)):
        at, odd = rng.randrange(len(values)), ODD[rng.randrange(len(ODD))]
        if type(values[at]) is list and rng.random() < 0.8:
            values[at][rng.randrange(len(values[at]))] = odd
        elif type(values[at]) is list:
            values[at] = [odd] * len(values[at])
        else:
            values[at] = odd if odd != odd or abs(odd) > 2**40 or rng.random() < 0.5 else int(odd)


def _stretch(rng, values):
    """Multiply all numbers by one power of ten."""
    factor = 10.0 ** rng.choice([-100, -30, -5, 0, 1, 3, 8, 20, 60, 110])
    for at, row in enumerate(values):
        values[at] = [x * factor for x in row] if type(row) is list else row


def _odd_lengths(rng, lengths):
    if rng.random() < 0.3:
        return None
    lengths = list(lengths)
    lengths[rng.randrange(len(lengths))] = ODD_LENGTHS[rng.randrange(len(ODD_LENGTHS))]
    return lengths


def _misshape(rng, values):
    at = rng.randrange(len(values))
    values[at] = rng.choice([[1.0], [], None, "a", [1.0, 2.0, 3.0, 4.0, 5.0], 1.0, {}, [[1.0]]])


def run(case):
    """Call the entry point, and check what it returns."""
    values, lengths = case["values"], case["lengths"]
    if case["dtype"] is not None:
        try:
            with np.errstate(all="ignore"):
                values = np.asarray(values).astype(case["dtype"])
        except (ValueError, TypeError, OverflowError):
            return False  # NumPy's business
    return _called(case["family"], case["entry"], values, lengths)


def _called(name, entry, values, lengths):
    fitted = model_of(name)
    if entry in RARE_ENTRIES:
        return _learned(name, entry, values, lengths)
    try:
        result = getattr(fitted, entry)(values, lengths)
    except FloatingPointError as error:
        if "no possible state path" in str(error):
            return False
        raise
    if entry == "decode":
        finite(result[0], entry)
        result = result[1]
    finite(result if lengths is not None else np.concatenate(np.atleast_2d(result)), entry)
    result = np.asarray(result)
    if entry in ("predict", "decode") and not (result.min() >= 0 and result.max() < 3):
        raise WrongError("a state that the model does not have")
    if entry == "predict_proba" and not np.allclose(result.sum(axis=-1), 1.0, atol=1e-3):
        raise WrongError("probabilities that do not add up to one")
    return True


def _learned(name, entry, values, lengths):
    given = EXAMPLES[name].given
    if entry == "partial_fit":
        model = copy.deepcopy(model_of(name)).partial_fit(values, lengths)
    elif entry == "fit hdp":
        model = sj.HDPHMM(3, given, n_passes=2, n_init=1, random_state=0, n_jobs=1)
        model.fit(values, lengths)
    elif entry == "gibbs":
        sampling = sj.Sampling("gibbs", n_samples=2, burn_in=1)
        model = sj.HMM(2, given, inference=sampling, random_state=0, n_jobs=1).fit(values, lengths)
    else:
        method = "vb" if entry == "vb" else "scvi"
        model = sj.HMM(
            3, given, inference=method, n_passes=2, n_init=1, random_state=0, n_jobs=1
        ).fit(values, lengths)
    finite(model.transmat_, "transmat_")
    for parameter, value in model.fitted_.parameters.items():
        finite(value, parameter)
    finite(model.score(values, lengths), "score")
    return True


def warm():
    """Fit all models, in the process that the children are forked from."""
    for name in NAMES:
        model = model_of(name)
        x = np.asarray(data_of(name))[:40]
        for entry in ENTRIES:
            getattr(model, entry)(x, [20, 20])
        for entry in RARE_ENTRIES:
            if entry != "gibbs" or name.startswith("categorical"):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    try:
                        _learned(name, entry, x, [20, 20])
                    except (ValueError, TypeError):
                        continue


PART = Part("inputs", make, run, (ValueError, TypeError, FloatingPointError))


def soak_part(seed, **limits):
    """Run cases of this part."""
    warm()
    return soak(PART, seed, **limits)
