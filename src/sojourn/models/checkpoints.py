"""Checkpoints of training in a folder: the last two, each a complete model file."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
import warnings
from collections.abc import Collection
from os import PathLike
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from sojourn import persist
from sojourn.data import Data
from sojourn.families import Family
from sojourn.inference import Position, Progress
from sojourn.models.parameters import Whole, record_of, tunings
from sojourn.prediction import FittedModel
from sojourn.whole_files import locked, remove_unlocked

if TYPE_CHECKING:
    from sojourn.models.base import BaseHMM

_KEPT = 2
_EVERY_SECONDS = 60.0
_PATTERN = "checkpoint-*.sojourn"


class Checkpoints:
    """Write checkpoints during training, and find the one to resume from.

    Called by the training loop after each update.  As a context manager it delays Ctrl-C
    until the posterior is consistent, writes a checkpoint, and only then raises
    `KeyboardInterrupt`; a second Ctrl-C is not delayed.

    Parameters
    ----------
    folder : path
        Created if it does not exist.
    every : int or None
        Updates between two checkpoints; None for one per minute.
    """

    def __init__(self, folder: str | PathLike[str], every: int | None = None) -> None:
        self.folder = Path(folder)
        self.every = every
        self._fitted: FittedModel | None = None
        self._identity: dict[str, Any] = {}
        self._written = time.monotonic()
        self._interrupted = False
        self._old_handler: Any = None
        self._lock: int | None = None

    def _unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    # ---- resuming -------------------------------------------------------------------------

    def files(self) -> list[Path]:
        """Return the checkpoints in the folder, the newest first."""
        return sorted(self.folder.glob(_PATTERN), reverse=True)

    def newest(self) -> tuple[FittedModel, dict[str, Any]] | None:
        """Return model and position of the newest valid checkpoint, or None without any.

        For a damaged one a warning is given, and the one before is used.
        """
        files = self.files()
        for path in files:
            try:
                fitted, training = persist.read(path)
            except persist.ModelFileError as error:
                warnings.warn(
                    f"the checkpoint {path} is damaged and skipped: {error}", stacklevel=3
                )
                continue
            if training is None:
                raise persist.ModelFileError(f"{path} is a model, not a checkpoint of training")
            return fitted, training
        if files:
            raise persist.ModelFileError(f"every checkpoint in {self.folder} is damaged")
        return None

    def check_empty(self) -> None:
        """Refuse a folder with the checkpoints of another run."""
        if self.files():
            raise FileExistsError(
                f"{self.folder} already contains checkpoints: resume=True continues from "
                "them; for a new run use another folder or delete them"
            )

    # ---- writing --------------------------------------------------------------------------

    def begin(self, fitted: FittedModel, identity: dict[str, Any]) -> None:
        """Take the model to be trained, and what a resumed run must have in common with it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._fitted, self._identity = fitted, identity

    def __call__(self, position: Position, *, now: bool = False) -> None:
        """Write a checkpoint if one is due, if `now` is set, or if Ctrl-C was pressed."""
        if now or self._interrupted or self._is_due(position):
            self.write(position)
        if self._interrupted:
            self._interrupted = False
            raise KeyboardInterrupt(
                f"the checkpoint is in {self.folder}: resume=True goes on from it"
            )

    def _is_due(self, position: Position) -> bool:
        if self.every is None:
            return time.monotonic() - self._written >= _EVERY_SECONDS
        return position.updates % self.every == 0

    def write(self, position: Position) -> None:
        """Write a checkpoint atomically, then delete all but the last two."""
        assert self._fitted is not None
        self._fitted.history = [entry._asdict() for entry in position.history]
        place = position._replace(history=())._asdict()
        path = self.folder / f"checkpoint-{position.n_pass:05d}-{position.updates:012d}.sojourn"
        training = {"identity": self._identity, "position": place}
        persist.save(self._fitted, path, training=training)
        for old in self.files()[_KEPT:]:
            old.unlink(missing_ok=True)
        self._written = time.monotonic()

    # ---- one run at a time, and Ctrl-C ----------------------------------------------------

    def __enter__(self) -> Self:
        self._lock = os.open(self.folder, os.O_RDONLY)
        if not locked(self._lock):
            self._unlock()
            raise BlockingIOError(f"another run is writing checkpoints to {self.folder}")
        for leftover in self.folder.glob(f".{_PATTERN}.*.part"):
            remove_unlocked(leftover)  # from a run that was killed while writing
        if threading.current_thread() is threading.main_thread():
            self._old_handler = signal.signal(signal.SIGINT, self._on_interrupt)
        return self

    def _on_interrupt(self, number: int, frame: FrameType | None) -> None:
        if self._interrupted:
            raise KeyboardInterrupt
        self._interrupted = True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._unlock()
        if self._old_handler is not None:
            signal.signal(signal.SIGINT, self._old_handler)
            self._old_handler = None


def make_checkpoints(
    folder: str | PathLike[str] | None, every: int | None, *, resume: bool
) -> Checkpoints | None:
    """Return the checkpoints that `fit` was asked for, or reject arguments that conflict."""
    if folder is None:
        if resume or every is not None:
            raise ValueError("resume and checkpoint_every need a folder: checkpoint=...")
        return None
    Whole(1, or_none=True).check("checkpoint_every", every)
    checkpoints = Checkpoints(folder, every)
    if not resume:
        checkpoints.check_empty()
    return checkpoints


def identity_of(
    model: BaseHMM, family: Family, data: Data, seed: int, tuned: Collection[str]
) -> dict[str, Any]:
    """Return what a resumed run must have in common; threads and passes may differ.

    `tuned` is what the library has chosen where the model leaves that to it.
    """
    parameters = persist.describe_parameters(record_of(model))
    if parameters["tuned"] == "auto":
        parameters["tuned"] = list(tuned) or False
    free = {"n_passes", "n_init", "n_jobs", "verbose", "random_state"}
    if "steps" in tunings(model):
        free.remove("n_passes")  # the step sizes follow from it
    for name in free:
        parameters.pop(name)
    return {
        "seed": seed,
        "parameters": parameters,
        "emission": persist.describe_family(family),
        "data": data.fingerprint(),
    }


def seed_of(training: dict[str, Any], random_state: Any) -> int:
    """Return the seed of the run to resume, which an integer `random_state` must equal."""
    seed = int(training["identity"]["seed"])
    if isinstance(random_state, int | np.integer) and random_state != seed:
        raise ValueError(f"the checkpoint's seed is {seed}, but random_state={random_state}")
    return seed


def checked_position(
    fitted: FittedModel, training: dict[str, Any], identity: dict[str, Any]
) -> Position:
    """Return the position of a checkpoint, or refuse to resume with other data or parameters."""
    stored = training["identity"]
    for name, value in identity["parameters"].items():
        then = stored["parameters"].get(name, value)  # an older version may not have had it
        if json.dumps(then) != json.dumps(value):  # NaN, for what is learned, equals nothing
            raise ValueError(
                f"cannot resume from the checkpoint: {name} was {then!r}, now it is {value!r}"
            )
    for name in ("emission", "data"):
        if stored[name] != identity[name]:
            raise ValueError(f"cannot resume from the checkpoint: the {name} has changed")
    history = tuple(Progress(**entry) for entry in fitted.history)
    return Position(**{**training["position"], "history": history})
