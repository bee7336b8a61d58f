"""Fit a model in one way or another, and digest what it gives, for `tools.digests`."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import sojourn as sj
from tools.digest_data import Data, words_of

Digests = dict[str, str]
Case = Callable[["Run"], Digests]
Write = Callable[[Path, sj.Sequences], Path]

PARAMETERS = ("emissionprob_", "lambdas_", "probs_", "rates_", "means_", "covars_", "coefs_")
PARAMETERS += ("intercepts_", *(f"part{i}_{name}" for i in range(4) for name in PARAMETERS))


# ---- models -------------------------------------------------------------------------------------


HDP_OPTIONS = {field.name for field in fields(sj.HDPOptions)}
SAMPLING = {field.name for field in fields(sj.Sampling)} - {"method"}


def make(model_name: str, emission: Any, n_states: int = 5, **options: Any) -> Any:
    """Make an estimator; the only place that knows where its options go."""
    options = {"batch_size": 20, "n_passes": 2, "random_state": 0} | options
    hdp = {name: options.pop(name) for name in HDP_OPTIONS & options.keys()}
    sampling = {name: options.pop(name) for name in SAMPLING & options.keys()}
    if hdp:
        options["hdp"] = sj.HDPOptions(**hdp)
    if sampling:
        options["inference"] = sj.Sampling(options["inference"], **sampling)
    if "init_states" in options:
        options["moves"] = sj.MoveSettings(init_states=options.pop("init_states"))
    if "stickiness_prior" in options:
        options["stickiness"] = options.pop("stickiness_prior")
    return getattr(sj, model_name)(n_states, emission, **options)


class Run:
    """What the cases of one recording share: threads, a folder, and a cluster if one is needed."""

    def __init__(self, folder: Path, n_jobs: int | None, stack: ExitStack) -> None:
        self.folder = folder
        self.n_jobs = n_jobs
        self._stack = stack
        self._client: Any = None
        self._n_folders = 0

    def make(self, model_name: str, emission: Any, **options: Any) -> Any:
        """Make an estimator with the number of threads of this run."""
        return make(model_name, emission, **{"n_jobs": self.n_jobs} | options)

    def new_folder(self) -> Path:
        """Return an empty folder."""
        self._n_folders += 1
        folder = self.folder / str(self._n_folders)
        folder.mkdir()
        return folder

    def path(self, name: str) -> Path:
        """Return a path that nothing is at, in a folder of its own."""
        return self.new_folder() / name

    @property
    def client(self) -> Any:
        """A client of a cluster with two workers in this process."""
        if self._client is None:
            from distributed import Client, LocalCluster

            cluster = LocalCluster(
                n_workers=2,
                threads_per_worker=1,
                processes=False,
                dashboard_address=None,
                silence_logs=logging.CRITICAL,
            )
            self._client = self._stack.enter_context(Client(self._stack.enter_context(cluster)))
        return self._client


# ---- digests ------------------------------------------------------------------------------------


def _feed(value: Any) -> Iterator[bytes]:
    if isinstance(value, sj.Sequences):
        value = (value.values, value.offsets)
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, np.ndarray):
        if value.dtype == object:
            raise TypeError("an array of objects has no bytes")
        yield f"array {value.dtype.str} {value.shape} ".encode()
        yield np.ascontiguousarray(value).tobytes()
    elif isinstance(value, Mapping):
        yield f"mapping of {len(value)} ".encode()
        for key in sorted(value):
            yield f"{key}: ".encode()
            yield from _feed(value[key])
    elif isinstance(value, Iterable) and not isinstance(value, str | bytes):
        items = list(value)
        yield f"list of {len(items)} ".encode()
        for item in items:
            yield from _feed(item)
    else:
        yield f"{value!r}, ".encode()


def digest(value: Any) -> str:
    """Return the SHA-256 of a value: type, shape and bytes of arrays, what numbers print as."""
    sha = hashlib.sha256()
    for part in _feed(value):
        sha.update(part)
    return sha.hexdigest()


def _timeless(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if "seconds" not in key}


def _move(move: Any) -> dict[str, Any]:
    names = ("kind", "states", "gain", "fresh", "accepted", "n_states")
    return {name: move[name] if isinstance(move, dict) else getattr(move, name) for name in names}


def outcome(model: Any, X: Any, lengths: Any = None) -> Digests:
    """Return digests of everything that a fitted model reports, and its score on data."""
    score = float(model.score(X, lengths))
    log_probability, path = model.decode(X, lengths)
    history = [_timeless(entry) for entry in model.history_]
    moves = [[_move(move) for move in entry.pop("moves", ())] for entry in history]
    every = [move for made in moves for move in made]
    accepted = sum(bool(move["accepted"]) for move in every)
    results: dict[str, Any] = {
        "statistics_.start": model.statistics_.start,
        "statistics_.transitions": model.statistics_.transitions,
        "statistics_.emissions": model.statistics_.emissions,
        "startprob_": model.startprob_,
        "transmat_": model.transmat_,
        "n_states_": model.n_states_,
        "n_updates_": model.n_updates_,
        "path": path,
        "log probability of the path": log_probability,
        "predict_proba": model.predict_proba(X, lengths),
        "log_likelihood": model.log_likelihood(X, lengths),
        "history_": history,
        "moves": moves,
        "sample": model.sample(2, 5, random_state=3),
        "parameters": {name: getattr(model, name, None) for name in PARAMETERS},
    }
    if hasattr(model, "hdp_"):
        results["hdp_"] = model.hdp_
    if hasattr(model, "samples_"):
        traces = ("log_joint", "n_states", "alpha", "gamma")
        results["samples_"] = [model.samples_.trace(name) for name in traces]
    told = {"score": repr(score), "accepted": f"{accepted} of {len(every)}"}
    return told | {name: digest(value) for name, value in results.items()}


def _file(model: Any, path: Path) -> Digests:
    """Return digests of a model's file, without times and the order of its metadata."""
    model.set_params(n_jobs=None).save(path)
    raw = path.read_bytes()
    end = 8 + int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:end])
    description = json.loads(header.pop("__metadata__")["sojourn"])
    description["history"] = [_timeless(entry) for entry in description["history"]]
    return {
        "file, parameters": digest(description.pop("parameters")),
        "file, description": digest(description),
        "file, header": digest(header),
        "file, arrays": digest(raw[end:]),
    }


# ---- ways to fit --------------------------------------------------------------------------------


def fitted(
    model_name: str, source: Data, *, fit: Mapping[str, Any] | None = None, **options: Any
) -> Case:
    """Fit data in memory."""

    def case(run: Run) -> Digests:
        model = run.make(model_name, source.emission, **options)
        return outcome(model.fit(source.X, **(fit or {})), source.X)

    return case


def laid_out(model_name: str, emission: Any, X: Any, lengths: Any = None) -> Case:
    """Fit data in memory of any form."""
    return lambda run: outcome(run.make(model_name, emission).fit(X, lengths), X, lengths)


def in_minibatches(
    model_name: str, source: Data, size: int, *, n_rounds: int = 1, **options: Any
) -> Case:
    """Learn by `partial_fit`, going over the data once or more."""

    def case(run: Run) -> Digests:
        model = run.make(model_name, source.emission, **options)
        total = len(source.X)
        for start in list(range(0, total, size)) * n_rounds:
            model.partial_fit(source.X[start : start + size], total_sequences=total)
        return outcome(model, source.X)

    return case


def reloaded(model_name: str, source: Data, **options: Any) -> Case:
    """Save, load and, where the method allows it, learn on."""

    def case(run: Run) -> Digests:
        path = run.path("model.sojourn")
        file = _file(run.make(model_name, source.emission, **options).fit(source.X), path)
        loaded = sj.load(path).set_params(n_jobs=run.n_jobs)
        results = outcome(loaded, source.X) | file
        with suppress(ValueError):
            loaded.partial_fit(source.X[20:])
            results["learned on"] = digest(outcome(loaded, source.X))
        return results

    return case


def resumed(
    model_name: str,
    source: Data,
    write: Write | None = None,
    *,
    stop: int = 3,
    **options: Any,
) -> Case:
    """Stop after some updates, and go on from the checkpoint."""

    def interrupt(progress: Any) -> None:
        if progress.updates == stop:
            raise KeyboardInterrupt

    def case(run: Run) -> Digests:
        X = source.X if write is None else write(run.new_folder(), source.X)
        folder = run.path("checkpoints")
        model = run.make(model_name, source.emission, **options)
        with suppress(KeyboardInterrupt):
            model.fit(X, callback=interrupt, checkpoint=folder, checkpoint_every=1)
            raise AssertionError("the run was not stopped")
        model = run.make(model_name, source.emission, **options)
        return outcome(model.fit(X, checkpoint=folder, resume=True), source.X)

    return case


def _results_in(path: Path) -> str:
    """Return a digest of the results that a prediction wrote, in the order of the data."""
    files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    levels = []
    for file in files:
        column = pq.read_table(file).column(0).combine_chunks()
        while pa.types.is_nested(column.type):
            if hasattr(column, "value_lengths"):
                levels.append(column.value_lengths().to_numpy())
            column = column.flatten()
        levels.append(column.to_numpy())
    return digest(levels)


def from_file(
    model_name: str,
    source: Data,
    write: Write,
    *,
    cluster: bool = False,
    words: bool = False,
    opened: Mapping[str, Any] | None = None,
    **options: Any,
) -> Case:
    """Fit, score and predict from a file, here or on a cluster."""

    def case(run: Run) -> Digests:
        path: Any = write(run.new_folder(), source.X)
        held_out = write(run.new_folder(), source.X[: len(source.X) // 4])
        if opened is not None:
            path, held_out = sj.open(path, **opened), sj.open(held_out, **opened)
        client = {"client": run.client} if cluster else {}
        emission = sj.Categorical() if words else source.emission
        model = run.make(model_name, emission, **options)
        model.fit(path, validation=held_out, **client)
        out = {name: run.path(name) for name in ("states.parquet", "probabilities.parquet")}
        states, probabilities = out.values()
        model.predict(path, out=states, **client)
        model.predict_proba(path, out=probabilities, **client)
        few = source.X[:50]
        return outcome(model, words_of(few) if words else few) | {
            "score of the file": repr(float(model.score(path, **client))),
            "states in a file": _results_in(states),
            "probabilities in a file": _results_in(probabilities),
        }

    return case
