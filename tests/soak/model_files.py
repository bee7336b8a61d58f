"""Model files and checkpoints with right checksums, and something in them that is wrong."""

import copy
import tempfile
import warnings
from functools import cache
from pathlib import Path

import numpy as np

import sojourn as sj
from sojourn import persist
from tests.soak.harness import Part, WrongError, finite, scratch, soak
from tests.support.families import EXAMPLES

NUMBERS = (
    0, 1, -1, 2, 3, 7, 10**6, 2**31, 2**63, 10**400, 0.5, -0.5, 1e308, -1e308, 1e-320, float("nan"),
    float("inf"), True, False, None, "", "a", "7", [], {}, [1, 2], [[1]], {"a": 1}, "\x1b[2J",
)  # fmt: skip
SIZES = (0, 1, 2, 3, 5, 7, 50)
DTYPES = ("float32", "float64", "float16", "int32", "int64", "uint8", "bool")
FILLS = (0.0, -1.0, 1e308, float("nan"), float("inf"), -1e-9, 1e30, 127.0, 3.0)


@cache
def bases():
    """Descriptions and arrays of sound files of every kind, with data that each can score."""
    found = {}
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, model, x, lengths in _models(Path(folder)):
            path = Path(folder) / "model.sojourn"
            if model is not None:
                model.save(path)
            else:
                path = max((Path(folder) / "checkpoints").glob("*.sojourn"))
            found[name] = (*persist._unpack(path), x, lengths)
    return found


def _models(folder):
    options = {"n_passes": 2, "batch_size": 2, "random_state": 0, "n_jobs": 1}
    for name, example in EXAMPLES.items():
        x = np.asarray(example.draw_data(np.random.default_rng(3), 24))
        yield name, sj.HMM(3, example.given, **options).fit(x, [6] * 4), x, [6] * 4
    x = np.array([0, 1, 2, 1, 0, 2, 2, 0, 1, 0, 3, 3, 1])
    lengths = [5, 2, 4, 2]
    yield "hdp", sj.HDPHMM(3, sj.Categorical(4), **options).fit(x, lengths), x, lengths
    for inference in ("gibbs", "beam"):
        sampling = sj.Sampling(inference, n_samples=3, burn_in=2, n_chains=2)
        model = sj.HDPHMM(3, sj.Categorical(4), inference=sampling, random_state=0, n_jobs=1)
        yield f"hdp {inference}", model.fit(x, lengths), x, lengths
    sampling = sj.Sampling("gibbs", n_samples=3, burn_in=2)
    model = sj.HMM(3, sj.Categorical(4), inference=sampling, random_state=0, n_jobs=1)
    yield "gibbs", model.fit(x, lengths), x, lengths
    model = sj.HDPHMM(3, sj.Categorical(4), inference="svi", **options).fit(x, lengths)
    yield "point hdp", model, x, lengths
    model = sj.HMM(2, sj.Categorical(4), stickiness="learned", **options).fit(x, lengths)
    yield "sticky", model, x, lengths
    model = sj.HMM(2, sj.Categorical(4), tuned=True, **options).fit(x, lengths)
    yield "tuned", model, x, lengths
    words = [["a", "b"], ["c", "a", "b"], ["a"]]
    yield "words", sj.HDPHMM(2, sj.Categorical(), **options).fit(words), words, None
    batch = {**options, "hdp_batch_size": 3}
    model = sj.HDPHMM(3, sj.Categorical(4), **batch).fit(x, lengths)
    model.partial_fit(x[:5], [5])
    yield "hdp in a large batch", model, x, lengths
    model = sj.HDPHMM(3, sj.Categorical(4), **{**options, "n_passes": 1})
    model.fit(x, lengths, checkpoint=folder / "checkpoints", checkpoint_every=1)
    yield "checkpoint", None, x, lengths


@cache
def paths_of(name):
    """Return where the values of a description are."""
    found = []

    def walk(value, path):
        found.append(path)
        if type(value) in (dict, list):
            items = value.items() if type(value) is dict else enumerate(value)
            for key, inner in items:
                walk(inner, [*path, key])

    walk(bases()[name][0], [])
    return found[1:]


def make(rng):
    """Return a case: a sound file, and one to three edits of it."""
    names = list(bases())
    base = names[rng.randrange(len(names))]
    edits = [_edit(rng, base) for _ in range(rng.choice([1, 1, 1, 2, 3]))]
    return {"base": base, "edits": edits}


def _edit(rng, base):
    arrays = sorted(bases()[base][1])
    kind = rng.random()
    if kind < 0.35:
        path = paths_of(base)[rng.randrange(len(paths_of(base)))]
        what = rng.choice(["set", "set", "set", "delete", "add"])
        return [what, path, NUMBERS[rng.randrange(len(NUMBERS))]]
    name = arrays[rng.randrange(len(arrays))]
    if kind < 0.65:
        return ["fill", name, FILLS[rng.randrange(len(FILLS))], rng.randrange(100), rng.random()]
    if kind < 0.85:
        shape = [SIZES[rng.randrange(len(SIZES))] for _ in range(rng.randrange(3))]
        return ["shape", name, shape]
    if kind < 0.95:
        return ["dtype", name, DTYPES[rng.randrange(len(DTYPES))]]
    return ["drop", name]


def edited(case):
    """Return description and arrays of a case."""
    description, arrays, _, _ = bases()[case["base"]]
    description, arrays = copy.deepcopy(description), dict(arrays)
    for edit in case["edits"]:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _apply(edit, description, arrays)
    return description, arrays


def _apply(edit, description, arrays):
    kind, where = edit[:2]
    if kind in ("set", "delete", "add"):
        inner = description
        try:
            for key in where[:-1]:
                inner = inner[key]
            if kind == "set":
                inner[where[-1]] = edit[2]
            elif kind == "delete":
                del inner[where[-1]]
            else:
                inner["unknown" if type(inner) is dict else 0] = edit[2]
        except (KeyError, IndexError, TypeError):
            return  # an earlier edit took its place away
    elif where not in arrays:
        return
    elif kind == "drop":
        del arrays[where]
    elif kind == "dtype":
        arrays[where] = arrays[where].astype(edit[2])
    elif kind == "shape":
        arrays[where] = np.resize(arrays[where], edit[2])
    else:
        filled = np.array(arrays[where])
        flat = filled.reshape(-1)
        value = np.asarray(edit[2]).astype(flat.dtype)
        if flat.size and edit[4] < 0.3:
            flat[:] = value
        elif flat.size:
            flat[edit[3] % flat.size] = value
        arrays[where] = filled


@cache
def folder():
    return scratch()


def run(case):
    """Load the file, and use what is loaded."""
    description, arrays = edited(case)
    path = folder() / "crafted.sojourn"
    try:
        path.write_bytes(persist._pack(description, arrays))
    except (TypeError, ValueError, AssertionError):
        return False  # cannot be written at all
    try:
        model = sj.load(path)
        persist.read(path)
    except sj.ModelFileError as error:
        if str(path) not in str(error):
            raise WrongError("the message does not name the file") from error
        return False
    _, _, x, lengths = bases()[case["base"]]
    try:
        finite(model.score(x, lengths), "score")
        finite(model.transmat_, "transmat_")
        model.predict(x, lengths)
        finite(np.concatenate(np.atleast_2d(model.predict_proba(x, lengths)))
               if lengths is not None else 0.0, "predict_proba")  # fmt: skip
    except FloatingPointError as error:
        if "no possible state path" in str(error):
            return True  # said clearly
        raise
    except ValueError as error:
        # The file describes a sound model of other data, of more symbols or other columns.
        if "sequence" in str(error) or "column" in str(error) or "vocabulary" in str(error):
            return True
        raise
    return True


def warm():
    for name in bases():
        run({"base": name, "edits": []})


PART = Part("model_files", make, run, (sj.ModelFileError,))


def soak_part(seed, **limits):
    """Run cases of this part."""
    warm()
    return soak(PART, seed, **limits)
