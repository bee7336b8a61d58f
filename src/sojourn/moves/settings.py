"""Settings of the moves that change the number of states."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MoveSettings:
    """How states may be merged, deleted and split, for the parameter `moves` of an estimator.

    ``moves="auto"`` stands for ``MoveSettings()``.

    Parameters
    ----------
    init_states : int, optional
        Number of states to begin with, where splits are to create more of them; by default
        `n_states` of the estimator.

    Examples
    --------
    >>> import sojourn as sj
    >>> model = sj.HDPHMM(20, sj.Categorical(50), moves=sj.MoveSettings(init_states=2))
    """

    init_states: int | None = None
