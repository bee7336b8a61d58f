"""Model files: safetensors with a JSON description, a checksum over every byte, no pickle."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray
from safetensors import SafetensorError

from sojourn.backends.compute import Compute
from sojourn.families import FAMILIES, Family
from sojourn.families.symbol_prior import SymbolPrior
from sojourn.families.table import DecayedTable
from sojourn.inference.posterior import Posterior
from sojourn.model_checks import check_model, check_training, checked_states
from sojourn.moves.budget import MoveState
from sojourn.prediction import EstimatorRecord, FittedModel, as_fitted
from sojourn.sampling import Samples
from sojourn.transitions import TRANSITIONS, Rows
from sojourn.transitions.durations import DURATIONS
from sojourn.whole_files import write_whole

_FORMAT = 1
_ESTIMATORS = frozenset({"HMM", "HDPHMM"})
_NO_DIGEST = "0" * 64
_DIGEST = re.compile(rb'"sha256":"([0-9a-f]{64})"')

Arrays = dict[str, NDArray[Any]]


class ModelFileError(ValueError):
    """A file that is not a valid model file: truncated, altered, of another kind or version."""


def save(
    model: Any,
    path: str | PathLike[str],
    training: dict[str, Any] | None = None,
    *,
    overwrite: bool = False,
) -> None:
    """Write a fitted model to `path`, atomically.

    The file contains the parameters of the estimator, the emission family with its vocabulary, the
    posterior and the history, so that a loaded model predicts and continues to learn as this one.

    Parameters
    ----------
    model : FittedModel, or an estimator that was fitted
    path : path
    training : dict, optional
        Position in the training, as JSON values; with it, the model file is a checkpoint.
    overwrite : bool
        Whether a file that is not a model file may be replaced; a model file is in any case.
    """
    if not overwrite and not _may_replace(Path(path)):
        raise FileExistsError(f"{path} exists and is not a model file: overwrite=True replaces it")
    fitted = as_fitted(model)
    posterior = fitted.posterior.fetched()
    family_values, family_arrays = fitted.family.config()
    prior_values, prior_arrays = posterior.transitions.state()
    values, arrays = _split(fitted.estimator.parameters)
    arrays |= _prefixed("family.", family_arrays) | _prefixed("prior.", prior_arrays)
    arrays |= {
        "posterior.start": posterior.counts.start,
        "posterior.transitions": posterior.counts.transitions,
        "posterior.emissions": posterior.emissions.rows[:, : posterior.emissions.n_states],
        "posterior.totals": posterior.emissions.totals,
    }
    if posterior.emissions.held is not None:
        arrays["posterior.held"] = np.asarray(posterior.emissions.held.states, dtype=np.int64)
    lasting: dict[str, Any] | None = None
    if posterior.durations is not None:
        lasting_values, lasting_arrays = posterior.durations.state()
        lasting = {"name": type(posterior.durations).__name__, "values": lasting_values}
        arrays |= _prefixed("durations.", lasting_arrays)
    learned_values: dict[str, Any] | None = None
    if posterior.emissions.prior is not None:
        learned_values, learned_arrays = posterior.emissions.prior.state()
        arrays |= _prefixed("learned.", learned_arrays)
    if fitted.samples is not None:
        arrays |= _prefixed("samples.", fitted.samples.to_arrays())
    description = {
        "format": _FORMAT,
        "model": fitted.estimator.name,
        "parameters": values,
        "family": {"name": type(fitted.family).__name__, "values": family_values},
        "prior": {"name": type(posterior.transitions).__name__, "values": prior_values},
        "learned": learned_values,
        "scale": posterior.emissions.scale,
        "n_updates": posterior.n_updates,
        "moves": fitted.move_state.to_json(),
        "total_sequences": fitted.total_sequences,
        "history": fitted.history,
        "provenance": fitted.provenance,
        "converged": fitted.converged,
    }
    if lasting is not None:
        description["durations"] = lasting
    if posterior.held:
        description["held"] = posterior.held
    if fitted.state_names is not None:
        description["state_names"] = fitted.state_names
    if training is not None:
        description["training"] = training
    write_whole(Path(path), _pack(description, arrays))


def read(path: str | PathLike[str]) -> tuple[FittedModel, dict[str, Any] | None]:
    """Read what `save` wrote: the model, and the position in the training for a checkpoint.

    Raises
    ------
    ModelFileError
        If the file is truncated, was altered, or is not a model file.
    """
    description, arrays = _unpack(Path(path))
    with refusing(path):
        fitted, training = _rebuild(description, arrays), description.get("training")
        check_model(fitted)
        if training is not None:
            check_training(training)
        return fitted, training


@contextmanager
def refusing(path: str | PathLike[str]) -> Iterator[None]:
    """Turn what is wrong with the content of a model file into one error that names the file."""
    try:
        with np.errstate(all="ignore"):  # what is not finite is refused
            yield
    except ModelFileError:
        raise
    except (KeyError, TypeError, AttributeError) as error:
        raise ModelFileError(f"{path} lacks an entry that a model needs: {error}") from error
    except (ValueError, ArithmeticError, LookupError, AssertionError, RecursionError) as error:
        raise ModelFileError(f"{path} does not describe a model: {error}") from error


def describe_parameters(estimator: EstimatorRecord) -> dict[str, Any]:
    """Return the parameters of an estimator, without the family, in a comparable form."""
    values, arrays = _split(estimator.parameters)
    values |= {name.removeprefix("parameter."): a.tolist() for name, a in arrays.items()}
    described: dict[str, Any] = json.loads(json.dumps(values, default=np.generic.item))
    return described


def describe_family(family: Family) -> str:
    """Return a digest of a resolved family with its alphabet and prior."""
    values, arrays = family.config()
    digest = hashlib.sha256(f"{type(family).__name__} {json.dumps(values)}".encode())
    for name in sorted(arrays):
        digest.update(name.encode() + np.ascontiguousarray(arrays[name]).tobytes())
    return digest.hexdigest()


def _rebuild(description: dict[str, Any], arrays: Arrays) -> FittedModel:
    name = description["model"]
    if name not in _ESTIMATORS:
        raise KeyError(name)
    family_class = FAMILIES[description["family"]["name"]]
    family = family_class.from_config(
        description["family"]["values"], _with_prefix("family.", arrays)
    )
    values = {
        key: tuple(value) if isinstance(value, list) else value  # JSON has no tuples
        for key, value in description["parameters"].items()
    }
    parameters: dict[str, Any] = values | _with_prefix("parameter.", arrays)
    table = DecayedTable.from_parts(
        arrays["posterior.emissions"], description["scale"], arrays["posterior.totals"]
    )
    if "posterior.held" in arrays:
        table.hold(checked_states(arrays["posterior.held"], table.n_states))
    if description.get("learned") is not None:
        table.prior = SymbolPrior.from_state(
            description["learned"], _with_prefix("learned.", arrays)
        )
    posterior = Posterior(
        Rows(arrays["posterior.start"], arrays["posterior.transitions"]),
        table,
        TRANSITIONS[description["prior"]["name"]].from_state(
            description["prior"]["values"], _with_prefix("prior.", arrays)
        ),
        description["n_updates"],
    )
    lasting = description.get("durations")
    if lasting is not None:
        posterior.durations = DURATIONS[lasting["name"]].from_state(
            lasting["values"], _with_prefix("durations.", arrays)
        )
    posterior.held, names = _held_and_names(description, len(arrays["posterior.start"]))
    samples = None
    if "samples.states" in arrays:
        samples = Samples.from_arrays(_with_prefix("samples.", arrays))
    where = {key: parameters[key] for key in ("device", "n_jobs", "dtype") if key in parameters}
    return FittedModel(
        family,
        posterior,
        description["total_sequences"],
        description["history"],
        description.get("provenance", {}),
        samples,
        MoveState.from_json(description["moves"]),
        EstimatorRecord(name, parameters),
        Compute(**where),
        description.get("converged"),
        state_names=names,
    )


def _held_and_names(
    description: dict[str, Any], n_states: int
) -> tuple[int, tuple[str, ...] | None]:
    """Return how many states keep their places, and the names of the first ones."""
    held, names = description.get("held", 0), description.get("state_names")
    if type(held) is not int or not 0 <= held <= n_states:
        raise ValueError(f"{held!r} of {n_states} states keep their places")
    if names is None:
        return held, None
    if type(names) is not list or len(names) > n_states:
        raise ValueError("the names are not those of states")
    if not all(isinstance(name, str) and name for name in names):
        raise ValueError("a name of a state is not a text")
    return held, tuple(names)


def _split(parameters: Mapping[str, Any]) -> tuple[dict[str, Any], Arrays]:
    """Return parameters as JSON values and arrays."""
    values: dict[str, Any] = {}
    arrays: Arrays = {}
    for name, value in parameters.items():
        if isinstance(value, np.ndarray):
            arrays[f"parameter.{name}"] = value
        else:
            values[name] = value
    return values, arrays


def _prefixed(prefix: str, arrays: Arrays) -> Arrays:
    return {prefix + name: array for name, array in arrays.items()}


def _with_prefix(prefix: str, arrays: Arrays) -> Arrays:
    return {
        name.removeprefix(prefix): array
        for name, array in arrays.items()
        if name.startswith(prefix)
    }


def _pack(description: dict[str, Any], arrays: Arrays) -> bytes:
    """Serialize, with the checksum of all bytes in place of 64 zeros."""
    raw = safetensors.numpy.save(
        {name: np.asarray(array, order="C") for name, array in arrays.items()},
        {"sojourn": json.dumps(description, default=np.generic.item), "sha256": _NO_DIGEST},
    )
    place = _DIGEST.search(raw)
    assert place is not None, "safetensors writes its metadata as compact JSON"
    digest = hashlib.sha256(raw).hexdigest().encode()
    return raw[: place.start(1)] + digest + raw[place.end(1) :]


def _may_replace(path: Path) -> bool:
    """Whether there is no file, an empty one, or one that begins like a model file."""
    if not path.is_file():
        return True
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        return path.stat().st_size == 0 or _DIGEST.search(file.read(min(size, 2**26))) is not None


def _unpack(path: Path) -> tuple[dict[str, Any], Arrays]:
    raw = path.read_bytes()
    header_end = 8 + int.from_bytes(raw[:8], "little")
    place = _DIGEST.search(raw, 8, min(header_end, len(raw)))
    if place is None:
        raise ModelFileError(f"{path} is not a sojourn model file, or its beginning is damaged")
    cleared = hashlib.sha256(raw[: place.start(1)])
    cleared.update(_NO_DIGEST.encode())
    cleared.update(raw[place.end(1) :])
    if cleared.hexdigest().encode() != place.group(1):
        raise ModelFileError(
            f"{path} is truncated or was altered: its checksum does not match its content"
        )
    try:
        arrays = safetensors.numpy.load(raw)
        metadata = json.loads(raw[8:header_end])["__metadata__"]
        description = json.loads(metadata["sojourn"])
        if type(description) is not dict:
            raise TypeError("its description is not an object")
        version = description["format"]
    except (SafetensorError, ValueError, LookupError, TypeError, RecursionError) as error:
        raise ModelFileError(f"{path} is not a sojourn model file: {error}") from error
    if type(version) is not int or version != _FORMAT:
        raise ModelFileError(
            f"{path} has format {str(version)[:40]}, but this version reads {_FORMAT}"
        )
    return description, arrays
