"""Filtering: what is known of the state at a step from the steps so far, and a few later ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sojourn.analysis.evidence import Evidence, Past
from sojourn.data import Data
from sojourn.inference.local import CHUNK_STEPS, impossible
from sojourn.kernels.cpu.filtering import filter_steps
from sojourn.kernels.interface import Floats, Integers, Potentials
from sojourn.sequences import Sequences
from sojourn.sources.base import reading
from sojourn.sources.stretches import Stretch, stretches_of
from sojourn.sources.write_npy import NpySink


class Filtered(NamedTuple):
    """Result of filtering some sequences.

    Attributes
    ----------
    probabilities : (T, K) array
        p(z_t | x_1, ..., x_{t+lag}); of the copies of states that last.
    log_densities : (T,) array
        log p(x_t | x_1, ..., x_{t−1}); their sum is the log likelihood.
    last : (N, K) array
        p(z_T | x_1, ..., x_T) of the last step of each sequence; as `probabilities`.
    """

    probabilities: Floats
    log_densities: Floats
    last: Floats


def filter_sequences(evidence: Evidence, data: Sequences, lag: int = 0) -> Filtered:
    """Filter validated sequences, with bounded memory beside the result.

    Parameters
    ----------
    evidence : Evidence
    data : Sequences
    lag : int
        Number of later steps that are known too.
    """
    check_lag(lag)
    out = np.empty((data.n_steps, evidence.n_inner))
    log_densities = np.empty(data.n_steps)
    last = np.empty((len(data), evidence.n_inner))
    at = n = 0
    for chunk in data.chunks(CHUNK_STEPS):
        steps = slice(at, at + chunk.n_steps)
        if chunk.n_steps > CHUNK_STEPS:  # one long sequence
            for part in follow(evidence, _cut(chunk.values), lag):
                end = at + len(part.probabilities)
                out[at:end], log_densities[at:end] = part.probabilities, part.log_densities
                last[n], at = part.last, end
        else:
            potentials, index = evidence.potentials(chunk)
            out[steps], log_densities[steps], last[n : n + len(chunk)] = filter_steps(
                potentials, index, chunk.offsets, lag=lag, n_threads=evidence.n_threads
            )
            at = steps.stop
        n += len(chunk)
        _check(chunk, log_densities[steps])
    return Filtered(out, log_densities, last)


def follow(
    evidence: Evidence, parts: Iterable[NDArray[np.generic]], lag: int = 0
) -> Iterator[Filtered]:
    """Filter one sequence that comes in parts, and yield the results of as many steps in all.

    Parameters
    ----------
    evidence : Evidence
    parts : iterable of (n, ...) arrays
        Validated steps.
    lag : int

    Notes
    -----
    The last `lag` steps of a part are filtered again with the next one.  Memory does not grow with
    the sequence.
    """
    past = Past(evidence.family)
    message: Floats = evidence.start[None]
    held: NDArray[np.generic] | None = None
    for part in _with_end(parts):
        values = part[0] if held is None else np.concatenate([held, part[0]])
        is_last = part[1]
        done = len(values) if is_last else max(0, len(values) - lag)
        if done == 0:
            held = values
            continue
        window, before = past.window(values[None])
        potentials, index = evidence.potentials(window)
        offsets = np.array([0, len(values)])
        found, densities, last = filter_steps(
            potentials, index[before:], offsets, first=message, lag=lag
        )
        belief = last[0]
        if done < len(values):
            belief = _belief_after(potentials, index[before:][:done], message)
        message = (belief @ evidence.transitions)[None]
        past.advance(values[None, :done])
        held = values[done:]
        yield Filtered(found[:done], densities[:done], belief[None])


def filter_file(
    evidence: Evidence, data: Data, lag: int, target: Path, *, overwrite: bool = False
) -> None:
    """Filter data of any size, and write the probabilities to an ``.npy`` file, shape (T, K).

    Sequences are read in parts where the file allows it: memory does not grow with them.
    """
    check_lag(lag)
    inputs = () if data.source is None else data.source.paths
    with NpySink(target, overwrite=overwrite, inputs=inputs) as sink:
        for parts in _sequences(data, evidence):
            for found in follow(evidence, parts, lag):
                if not np.isfinite(found.log_densities).all():
                    raise FloatingPointError("a sequence has no possible state path")
                sink.write(evidence.folded(found.probabilities))


def _sequences(data: Data, evidence: Evidence) -> Iterator[Iterator[NDArray[np.generic]]]:
    """Yield every sequence as an iterator over its parts, which must be used up before the next."""
    if data.sequences is not None:
        yield from (_cut(values) for values in data.sequences)
        return
    assert data.source is not None
    waiting: list[Stretch] = []
    parts = stretches_of(data.source)

    def one(first: Stretch) -> Iterator[NDArray[np.generic]]:
        yield _accepted(first, evidence)
        for part in parts:
            if part.begins:
                waiting.append(part)
                return
            yield _accepted(part, evidence)

    waiting.extend(islice(parts, 1))
    while waiting:
        yield one(waiting.pop())


def _accepted(part: Stretch, evidence: Evidence) -> NDArray[np.generic]:
    """Check some steps as read from a file."""
    with reading(part.place):
        return evidence.family.accept(Sequences.from_lengths(part.values)).values


def _belief_after(potentials: Potentials, index: Integers, message: Floats) -> Floats:
    """Return p(z_t | x_≤t) of the last of some steps."""
    offsets = np.array([0, len(index)])
    return filter_steps(potentials, index, offsets, first=message)[2][0]


def _with_end(
    parts: Iterable[NDArray[np.generic]],
) -> Iterator[tuple[NDArray[np.generic], bool]]:
    """Yield every part, and whether it is the last."""
    waiting = None
    for part in parts:
        if waiting is not None:
            yield waiting, False
        waiting = part
    if waiting is not None:
        yield waiting, True


def _cut(values: NDArray[np.generic]) -> Iterator[NDArray[np.generic]]:
    return (values[at : at + CHUNK_STEPS] for at in range(0, len(values), CHUNK_STEPS))


def check_lag(lag: int) -> None:
    """Raise an error if a lag is not a whole number of at least 0."""
    if isinstance(lag, bool) or not isinstance(lag, int | np.integer) or lag < 0:
        raise ValueError(f"lag must be a whole number of at least 0, got {lag!r}")


def _check(chunk: Sequences, log_densities: Floats) -> None:
    """Raise an error if a sequence has no possible path."""
    if not np.isfinite(log_densities).all():
        raise impossible(chunk, np.add.reduceat(log_densities, chunk.offsets[:-1]))
