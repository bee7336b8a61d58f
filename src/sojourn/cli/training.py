"""The training of ``sojourn fit``: settings that follow from the data, and the fit itself."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from sojourn.cli.options import Kind
from sojourn.cli.summary import plan_of
from sojourn.cli.wording import in_options

if TYPE_CHECKING:
    from sojourn.cli.holdout import Parts
    from sojourn.families.choose import Choice
    from sojourn.models.base import BaseHMM

_REMOTE_BATCH = 2**16  # sequences per update on a cluster, where many workers share them


def make_model(
    kind: Kind,
    n_states: int,
    choice: Choice,
    moves: bool | None,
    init_states: int | None,
    **parameters: Any,
) -> BaseHMM:
    """Make the estimator; what is None keeps its default."""
    from sojourn.models import HDPHMM, HMM
    from sojourn.models.parameters import check_parameters

    given = {name: value for name, value in parameters.items() if value is not None}
    model: BaseHMM = (HDPHMM if kind is Kind.hdp else HMM)(n_states, choice.family, **given)
    model.set_params(moves=_moves(model.moves, moves, init_states))
    check_parameters(model)
    return model


def _moves(usual: Any, asked: bool | None, init_states: int | None) -> Any:
    """Return whether and how states may change: the default of the model, unless given."""
    from sojourn.moves.settings import MoveSettings

    moves = usual if asked is None else ("auto" if asked else None)
    if init_states is None:
        return moves
    if moves is None:
        raise ValueError("--init-states needs --moves, by which the model grows")
    return MoveSettings(init_states=init_states)


def usual_batch_size(batch_size: int | None, n_sequences: int, remote: bool) -> int | None:
    """Return the sequences per update: as given, large ones for a cluster, or None to choose."""
    if batch_size is None and remote:
        return min(_REMOTE_BATCH, n_sequences)
    return batch_size


def read_stickiness(text: str) -> float | str:
    """Read a number, or the word for one that is to be learned."""
    if text == "learned":
        return text
    try:
        return float(text)
    except ValueError:
        raise ValueError(f'--stickiness is a number or "learned", not {text}') from None


def read_duration(name: str, max_shape: int | None, max_length: int | None) -> Any:
    """Return how long states last; None if that is geometric."""
    from sojourn.durations import CategoricalDuration, NegativeBinomialDuration

    if name not in ("geometric", "negative-binomial", "categorical"):
        raise ValueError(f"--duration is geometric, negative-binomial or categorical, not {name}")
    if max_shape is not None and name != "negative-binomial":
        raise ValueError("--max-shape needs --duration negative-binomial")
    if (max_length is None) == (name == "categorical"):
        raise ValueError("--duration categorical needs --max-length, and no other takes it")
    if name == "categorical":
        assert max_length is not None
        return CategoricalDuration(max_length)
    if name == "geometric":
        return None
    return NegativeBinomialDuration() if max_shape is None else NegativeBinomialDuration(max_shape)


def _n_passes(model: BaseHMM, parts: Parts) -> int:
    """Return the number of passes over the data, or of sweeps of a sampler."""
    from sojourn.models.parameters import is_sampled, sampling_of

    if not is_sampled(model):
        return plan_of(model, parts).n_passes
    settings = sampling_of(model)
    return settings.n_chains * (settings.burn_in + settings.n_samples * settings.thin)


def _n_used(model: BaseHMM) -> int | None:
    """Return the number of states in use; None while restarts learn in copies of the model."""
    return getattr(model, "n_states_", None)


def fit_noting_warnings(model: BaseHMM, parts: Parts, *, quiet: bool, **options: Any) -> list[str]:
    """Fit the model with a view of progress unless `quiet`, and return its `FitWarning` messages.

    Other warnings are passed on.
    """
    import warnings

    from sojourn.progress import LiveProgress
    from sojourn.warnings import FitWarning

    live = None
    if not quiet:
        n_passes = _n_passes(model, parts)
        live = LiveProgress(n_passes, "learning", n_used=lambda: _n_used(model), timed=True)
    with (
        nullcontext() if live is None else live,
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always", FitWarning)
        try:
            model.fit(parts.train, validation=parts.held_out, callback=live, **options)
        except KeyboardInterrupt as stop:
            if not str(stop) and options.get("checkpoint") is None:
                stop.args = ("Nothing is kept; with --checkpoint FOLDER, --resume goes on.",)
            elif not str(stop):
                stop.args = ("It had not come to its first checkpoint: nothing is kept.",)
            raise
    ours = [in_options(str(entry.message)) for entry in caught if entry.category is FitWarning]
    for entry in caught:
        if entry.category is not FitWarning:
            warnings.warn_explicit(entry.message, entry.category, entry.filename, entry.lineno)
    return ours
