"""The training of ``sojourn fit``: settings that follow from the data, and the fit itself."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from sojourn.cli.options import Kind

if TYPE_CHECKING:
    from sojourn.cli.holdout import Parts
    from sojourn.families.choose import Choice
    from sojourn.models.base import BaseHMM

_MOST, _MOST_REMOTE = 1000, 2**16  # sequences per update; on a cluster many workers share them
_UPDATES = 300  # updates after which most models have settled


class Plan(NamedTuple):
    """How to pass over the data."""

    batch_size: int | None
    n_passes: int
    forgetting_rate: float


def make_plan(
    n_sequences: int,
    batch_size: int | None,
    n_passes: int | None,
    rate: float | None,
    remote: bool = False,
) -> Plan:
    """Fill in what was not given: about 300 updates, or more for large data.

    Minibatches are a fiftieth of the data, and at most 1,000 sequences, or 65,536 where `remote`
    workers share them.  Few sequences are taken all at once, with full steps.

    Examples
    --------
    >>> make_plan(20_000, None, None, None)
    Plan(batch_size=400, n_passes=10, forgetting_rate=0.5)
    >>> make_plan(1, None, None, None)
    Plan(batch_size=None, n_passes=50, forgetting_rate=0.0)
    """
    if batch_size is None and n_sequences < 50:
        return Plan(None, n_passes or 50, 0.0 if rate is None else rate)
    most = _MOST_REMOTE if remote else _MOST
    size = batch_size or min(most, max(5, n_sequences // 50))
    per_pass = math.ceil(n_sequences / size)
    wanted = n_passes or min(50, max(10, math.ceil(_UPDATES / per_pass)))
    return Plan(size, wanted, 0.5 if rate is None else rate)


def make_model(
    kind: Kind,
    n_states: int,
    choice: Choice,
    plan: Plan,
    moves: bool | None,
    init_states: int | None,
    **parameters: Any,
) -> BaseHMM:
    """Make the estimator; `moves` of None keeps its default."""
    from sojourn.models import HDPHMM, HMM

    model: BaseHMM = (HDPHMM if kind is Kind.hdp else HMM)(
        n_states,
        choice.family,
        batch_size=plan.batch_size,
        n_passes=plan.n_passes,
        forgetting_rate=plan.forgetting_rate,
        **parameters,
    )
    return model.set_params(moves=_moves(model.moves, moves, init_states))


def _moves(usual: Any, asked: bool | None, init_states: int | None) -> Any:
    """Return whether and how states may change: the default of the model, unless given."""
    from sojourn.moves.settings import MoveSettings

    moves = usual if asked is None else ("auto" if asked else None)
    if init_states is None:
        return moves
    if moves is None:
        raise ValueError("init_states needs moves='auto', by which the model grows: --moves")
    return MoveSettings(init_states=init_states)


def read_stickiness(text: str) -> float | str:
    """Read a number, or the word for one that is to be learned."""
    if text == "learned":
        return text
    try:
        return float(text)
    except ValueError:
        raise ValueError(f'--stickiness is a number or "learned", not {text}') from None


def fit_noting_warnings(model: BaseHMM, parts: Parts, **options: Any) -> list[str]:
    """Fit the model with a live view of progress, and return its `FitWarning` messages.

    Other warnings are passed on.
    """
    import warnings

    from sojourn.progress import LiveProgress
    from sojourn.warnings import FitWarning

    with (
        LiveProgress(model.n_passes, "learning", n_used=lambda: model.n_states_) as live,
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always", FitWarning)
        callback = live if live.is_live else None  # quiet when piped
        model.fit(parts.train, validation=parts.held_out, callback=callback, **options)
    ours = [str(entry.message) for entry in caught if entry.category is FitWarning]
    for entry in caught:
        if entry.category is not FitWarning:
            warnings.warn_explicit(entry.message, entry.category, entry.filename, entry.lineno)
    return ours
