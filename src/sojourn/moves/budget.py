"""What training and moves cost: counted, not timed, so that a seed always gives the same moves."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from sojourn.moves.settings import MoveSettings


def step_work(n_states: int, settings: MoveSettings) -> float:
    """Work per step of the data: forward-backward takes K², emissions K, and the rest is fixed."""
    return float(n_states + settings.cost_fixed_states) ** 2


def training_work(n_steps: float, n_states: int, settings: MoveSettings) -> float:
    """Work of an update with a minibatch of `n_steps` steps."""
    per_step = step_work(n_states, settings)
    return n_steps * per_step + max(settings.cost_call_steps * per_step, settings.cost_call_work)


def overhead_steps(
    n_statistics: int, total_steps: float, settings: MoveSettings, *, slow_launches: bool
) -> float:
    """Steps of a sample that would take as long as what a local step on it does beside them.

    A device spends most of that on launching kernels.  It is not counted for small data, so that
    these get the same moves with and without a device.
    """
    launches = settings.cost_launch_steps
    if not slow_launches or total_steps < launches:
        launches = 0
    return settings.cost_call_steps + settings.cost_statistic_steps * n_statistics + launches


def search_work(n_states: int, n_statistics: int, settings: MoveSettings) -> float:
    """Work of finding out which states to merge."""
    return settings.cost_search_steps * n_statistics * step_work(n_states, settings)


def pruned_work(n_local: int, n_states: int, n_proposed: int, settings: MoveSettings) -> float:
    """Work per step of the sample of a split or a restart, and of the model to compare it with.

    Parameters
    ----------
    n_local : int
        Local steps of the proposal before its states are merged again.
    n_states, n_proposed : int
        States of the present model and of the proposal.
    """
    bound, prunings = settings.cost_bound_steps, settings.pruning_rounds
    present = 1 + bound + n_local + prunings + bound
    proposed = n_local + bound + prunings * (1 + bound)
    return present * step_work(n_states, settings) + proposed * step_work(n_proposed, settings)


# What the fields of `MoveState` are called in model files, where it is not the same.
_FILE_KEYS = {
    "n_sequences": "sequences",
    "n_rounds": "n_phases",
    "rounds_without_change": "quiet",
    "warmed_up": "parted",
    "held_out_change": "lost",
    "held_out_variance": "variance",
}


@dataclass
class MoveState:
    """What moves carry from one round of proposals to the next.

    Attributes
    ----------
    budget : float
        Work that may yet go into moves.
    n_sequences : int
        Sequences seen since the last round.
    n_rounds : int
        Rounds so far.
    rounds_without_change : int
        Rounds in a row that changed nothing.
    warmed_up : bool
        Whether states have differentiated in a warm-up before the first pass.
    grown : bool
        Whether a start with few states has grown until a split was refused.
    held_out_change : float
        Nats per step that moves have cost so far in the likelihood of held-out sequences; not
        positive.
    held_out_variance : float
        Variance of that, from the differences between sequences.
    effective_steps : float
        Steps of the data that the running statistics are an average of: large step sizes forget.
    """

    budget: float = 0.0
    n_sequences: int = 0
    n_rounds: int = 0
    rounds_without_change: int = 0
    warmed_up: bool = False
    grown: bool = False
    held_out_change: float = 0.0
    held_out_variance: float = 0.0
    effective_steps: float = 0.0

    def earn(
        self,
        n_steps: int,
        n_sequences: int,
        n_states: int,
        step_size: float,
        settings: MoveSettings,
    ) -> None:
        """Take in a minibatch: a share of its work may go into moves."""
        self.budget += settings.move_share * training_work(n_steps, n_states, settings)
        self.n_sequences += n_sequences
        # Weights w of minibatches of S steps average over S / Σ w² steps.
        kept = (1.0 - step_size) ** 2 / self.effective_steps if self.effective_steps else 0.0
        self.effective_steps = 1.0 / (kept + step_size**2 / n_steps)

    def end_round(
        self,
        *,
        budget: float,
        changed: bool,
        growing: bool,
        finished: bool,
        held_out_change: float,
        held_out_variance: float,
    ) -> None:
        """Take in a round of proposals, in place.

        Parameters
        ----------
        budget : float
            Work that is left.
        changed : bool
            Whether a proposal was accepted.
        growing : bool
            Whether the round was one of splits that make a small start grow.
        finished : bool
            Whether everything was tried that was to be; otherwise the same is tried again.
        held_out_change, held_out_variance : float
            As they are now.
        """
        self.budget = budget
        self.n_sequences = 0
        self.n_rounds += 1
        if changed or growing:
            self.rounds_without_change = 0
        elif finished:
            self.rounds_without_change += 1
        self.grown = self.grown or (growing and not changed)
        self.held_out_change = held_out_change
        self.held_out_variance = held_out_variance

    def after_warm_up(self) -> MoveState:
        """Return the state at the start of training after a warm-up: all moves are tried again."""
        return replace(self, warmed_up=True, rounds_without_change=0)

    def to_json(self) -> dict[str, Any]:
        """Return what a model file has of it."""
        described = {_FILE_KEYS.get(name, name): value for name, value in asdict(self).items()}
        if not self.effective_steps:  # as before there was any
            described.pop("effective_steps")
        return described

    @classmethod
    def from_json(cls, described: dict[str, Any]) -> MoveState:
        """Undo `to_json`."""
        names = {key: name for name, key in _FILE_KEYS.items()}
        return cls(**{names.get(key, key): value for key, value in described.items()})
