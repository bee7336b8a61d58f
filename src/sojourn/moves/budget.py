"""What training and moves cost: counted, not timed, so that a seed gives the same moves always."""

from __future__ import annotations

from dataclasses import dataclass

MOVE_SHARE = 0.21
"""Work that may go into moves, for each unit that goes into training: below a fifth of all."""

LAST_STEP = 1
"""Local steps that it takes about as long as to evaluate the bound after the last of them."""

_CALL_STEPS = 2**11  # steps that take as long as what a local step does once, whatever their number
_CALL_WORK = 4e6  # work that would take as long, where there are few states
_LAUNCH_STEPS = 2**21  # the same on a device, where nothing is recorded to be replayed
_TABLE_STEPS = 2  # steps that take as long as to evaluate one emission statistic of all states
_CHAIN_STEPS = 10  # the same, to find out which states to merge
_OTHER_WORK = 32  # states that would cost as much as what does not depend on their number


def step_work(n_states: int) -> float:
    """Work for a step of the data: forward-backward has K², emissions have K, all else is there."""
    return float(n_states + _OTHER_WORK) ** 2


def training_work(n_steps: float, n_states: int) -> float:
    """Work of a minibatch of so many steps."""
    a_step = step_work(n_states)
    return n_steps * a_step + max(_CALL_STEPS * a_step, _CALL_WORK)


def other_steps(n_statistics: int, total_steps: float = 0.0, *, on_device: bool = False) -> float:
    """Steps of a sample that would take as long as what a local step on it does beside them.

    A device spends most of it in launching things; small data are moved all the same, as they are
    without a device.
    """
    launches = _LAUNCH_STEPS if on_device and total_steps >= _LAUNCH_STEPS else 0
    return _CALL_STEPS + _TABLE_STEPS * n_statistics + launches


def chain_work(n_states: int, n_statistics: int) -> float:
    """Work to find out which states to merge."""
    return _CHAIN_STEPS * n_statistics * step_work(n_states)


@dataclass
class MoveState:
    """What the moves carry from one phase to the next.

    Attributes
    ----------
    budget : float
        Work that may yet go into moves.
    sequences : int
        Sequences seen since the last phase.
    n_phases : int
        Phases so far.
    quiet : int
        Phases in a row that changed nothing.
    parted : bool
        Whether states have come to differ before the first pass.
    grown : bool
        Whether a start with few states has grown as far as it does at first.
    lost : float
        Nats a step that moves have cost so far in the likelihood of fresh sequences; not positive.
    variance : float
        Of that, from the sequences' differences.
    """

    budget: float = 0.0
    sequences: int = 0
    n_phases: int = 0
    quiet: int = 0
    parted: bool = False
    grown: bool = False
    lost: float = 0.0
    variance: float = 0.0

    def earn(self, n_steps: int, n_sequences: int, n_states: int) -> None:
        """Take in a minibatch: a share of its work may go into moves."""
        self.budget += MOVE_SHARE * training_work(n_steps, n_states)
        self.sequences += n_sequences
