"""How far training has come: what is reported, and what is needed to continue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from sojourn.inference.step import StepInfo


class Progress(NamedTuple):
    """How far training has come.

    Parameters
    ----------
    passes : float
        Passes over the data, including the fraction of the current one.
    sequences : int
        Sequences, or tiles of them, seen so far.
    steps : int
        Time steps seen so far.
    updates : int
        Minibatch updates made so far.
    seconds : float
        Training time, without the scoring of held-out data.
    score : float or None
        Held-out log likelihood per step, at the end of a pass if there is held-out data.
    bound : float or None
        Objective that the method maximizes, if it is tracked: estimated on the first minibatch of
        the pass or, if statistics are kept per sequence, of all data at the end of the pass.
    states : int
        Number of states of the model at that time, in use or not.
    moves : list of dict
        Proposals to change the states, made at the end of the pass: kind, states, gain of the
        bound in nats, change of the log likelihood per step of fresh sequences, whether it was
        accepted, and the number of states afterwards.
    move_seconds : float
        Time that the proposals took; included in `seconds`.
    buffer : int or None
        Steps on each side of a tile from which the states at its edges were estimated in that
        pass; None where sequences are not cut.
    """

    passes: float
    sequences: int
    steps: int
    updates: int
    seconds: float
    score: float | None
    bound: float | None = None
    states: int = 0
    moves: Sequence[dict[str, Any]] = ()
    move_seconds: float = 0.0
    buffer: int | None = None


class Position(NamedTuple):
    """Position in the training: with the posterior, enough to continue from there.

    Attributes
    ----------
    n_pass : int
        Number of completed passes.
    n_batches : int
        Number of completed minibatches of the current pass.
    sequences, steps, updates, seconds
        As in `Progress`.
    history : tuple of Progress
        Entries so far of the history that training returns.
    log_likelihood : float or None
        Log likelihood of the last pass's minibatches, each under the potentials of its moment,
        where convergence is looked at.
    pass_log_likelihood : float
        The same of the current pass, so far.
    pass_steps : int
        Its steps.
    converged : bool
        Whether training has ended because it rises no more.
    buffer : int or None
        Of the tiles of the current pass.
    """

    n_pass: int = 0
    n_batches: int = 0
    sequences: int = 0
    steps: int = 0
    updates: int = 0
    seconds: float = 0.0
    history: tuple[Progress, ...] = ()
    log_likelihood: float | None = None
    pass_log_likelihood: float = 0.0
    pass_steps: int = 0
    converged: bool = False
    buffer: int | None = None

    def progress(self, passes: float, states: int, score: float | None = None) -> Progress:
        """Return the report at this position."""
        return Progress(
            passes,
            self.sequences,
            self.steps,
            self.updates,
            self.seconds,
            score,
            states=states,
            buffer=self.buffer,
        )

    @classmethod
    def warmed_up(cls, history: Sequence[Progress]) -> Position:
        """Return the position after a warm-up, whose proposals the first pass will report."""
        entry = Progress(0.0, 0, 0, 0, history[-1].seconds, None, states=history[-1].states)
        return cls(seconds=entry.seconds, history=(_with_moves_of(entry, history),))

    def ended_pass(self, entry: Progress) -> Position:
        """Return the position after the end of a pass."""
        before = [earlier for earlier in self.history if earlier.passes == 0.0]
        history = (*self.history[len(before) :], _with_moves_of(entry, [*before, entry]))
        return self._replace(n_pass=self.n_pass + 1, n_batches=0, history=history)

    def after(self, info: StepInfo, seconds: float) -> Position:
        """Return the position after a step that took some seconds."""
        return self._replace(
            n_batches=self.n_batches + 1,
            sequences=self.sequences + info.n_sequences,
            steps=self.steps + info.n_steps,
            updates=self.updates + 1,
            seconds=self.seconds + seconds,
        )

    def with_likelihood(self, info: StepInfo) -> Position:
        """Take in the log likelihood of a minibatch."""
        return self._replace(
            pass_log_likelihood=self.pass_log_likelihood + float(info.log_normalizer),
            pass_steps=self.pass_steps + info.n_steps,
        )

    def after_likelihoods(self, tol: float) -> Position:
        """Compare the log likelihood of a pass that ends with that of the pass before."""
        now, before = self.pass_log_likelihood, self.log_likelihood
        converged = before is not None and now - before < tol * self.pass_steps
        return self._replace(
            log_likelihood=now, pass_log_likelihood=0.0, pass_steps=0, converged=converged
        )


def _with_moves_of(entry: Progress, history: Sequence[Progress]) -> Progress:
    """Return an entry with the proposals of several entries."""
    return entry._replace(
        moves=[move for part in history for move in part.moves],
        move_seconds=sum(part.move_seconds for part in history),
    )
