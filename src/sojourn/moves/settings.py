"""Every threshold of moves and of the warm-up, with the experiment that it comes from.

The source of a field is the committed command of the experiment on whose data the value was chosen,
with seeds below those that the experiment reports; its result file shows what all values do
together.  No experiment varies one threshold alone.  Where no experiment was looked at for a value,
its source begins with "no experiment".
"""

from __future__ import annotations

from dataclasses import Field, dataclass, field, fields
from typing import Any

import numpy as np

_STUDY = "`python -m experiments.number_of_states FOLDER --seeds 10`"
_ROWS = "`python -m experiments.number_of_states --seeds 10 --only {}`"
_NO_WARM_UP = _ROWS.format('"gaussian 8, 80 passes by 100, no warm-up"')
_NUMBERS = _ROWS.format('"gaussian 8" "poisson 8" "bernoulli 8"')
_MANY_NUMBERS = _ROWS.format('"gaussian 8, 20,000 sequences"')
_SYMBOLS = _ROWS.format('"categorical 8" "categorical 20"')
_GROWTH = _ROWS.format('"gaussian 8 from 2" "categorical 8 from 2"')
_MANY_STATES = _ROWS.format('"categorical 40"')
_RECORDINGS = _ROWS.format('"dwell 500"')
_CORPUS = "`python -m experiments.number_of_states FOLDER --only corpus`"
_GPU = "`python -m benchmarks.gpu --only moves`"
_NONE = "no experiment: "
_SMALL = "`python -m experiments.defaults`, the small cells"
_MUCH = "`python -m experiments.defaults`, the cells of 2 million steps, seeds below 430"
_SENTENCES = "`python -m experiments.much_data`"
_TIME = f"{_STUDY}, the column of time in moves"
_BY_HAND = _NONE + "chosen by hand"
_SEEN_IN = _BY_HAND + "; its effect, with that of others, is seen in "


def _number(default: float, source: str, least: float = 0.0, most: float = np.inf) -> Any:
    metadata = {"source": source, "least": least, "most": most, "whole": False}
    return field(default=default, metadata=metadata)


def _share(default: float, source: str) -> Any:
    return _number(default, source, 0.0, 1.0)


def _whole(default: int, source: str, least: int = 1) -> Any:
    metadata = {"source": source, "least": least, "most": np.inf, "whole": True}
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, repr=False)
class MoveSettings:
    """How the number of states changes in training, and how training begins.

    Moves merge, split, delete and restart states; the collapsed bound and held-out sequences judge
    them.  The defaults suit most data.  "Symbols" below are families whose sufficient statistics
    are counts, such as `Categorical`; a "local step" is one pass of forward-backward over the
    sample on which proposals are judged.  A "round" makes proposals at the end of a pass.

    Parameters
    ----------
    init_states : int, optional
        Number of states to begin with, where moves are to add more up to the model's `n_states`.
        By default training begins with all of them.
    move_share : float
        Work that moves may spend per unit of work that training spends: 0.21 is less than a fifth
        of the total.
    growth_advance : float
        Share of the work that passes to come will earn for moves which a growing model spends
        ahead.
    growth_factor : int
        Factor by which the number of states is taken to grow in that estimate.
    early_share : float
        Share of the passes up to which a round waits for a budget of `early_proposals`.
    early_proposals : int
        Local steps on the sample that a round of merges must be able to pay for, early in
        training: states that have become more different need fewer proposals.
    late_proposals : int
        The same after that.
    first_round_share : float
        Share of the passes before the first round of proposals, where there are many passes.
    first_round_share_few : float
        The same where there are few passes.
    first_round_share_symbols : float
        The same as `first_round_share` for symbols, whose states take longer to differentiate.
    first_round_share_few_symbols : float
        The same as `first_round_share_few` for symbols.
    symbols_steps_per_state : int
        Steps per state above which the two shares for symbols apply: on fewer, many states soon
        fit noise.
    first_round_min_passes : int
        Passes before the first round, at least.
    first_round_few_passes : int
        Passes before the first round that are enough where there are few.
    settling_share : float
        Share of the passes at the end, one at least, after which no moves are made.
    sample_max_steps : int
        Largest sample on which proposals are judged, in steps.
    sample_min_sequences : int
        Sequences that a sample has at least, where they are not very long.
    sample_steps_per_state : int
        Steps per state that are enough for a sample of more data than that.
    max_copies : float
        Number of copies of itself that a sample may stand for: it has at least the inverse of this
        share of the data, up to `sample_max_steps`.
    surveys : int
        Local steps on all the data that a round of merges may take where these are more than a
        sample stands for: one for the model at hand, the others for proposals.
    survey_loss : float
        Share of what states tell of new sequences, beyond a single state, that a merge judged on
        all the data may cost at first.
    split_sample_ratio : float
        Smallest sample for splits, relative to that for merges: splits are tried again with other
        parts, so that many on a smaller sample find more than few.
    minibatch_min_steps : int
        Steps of a minibatch that are enough for `partial_fit` to judge proposals on it.
    minibatch_min_share : float
        Share of the data that is enough for it where that is less.
    seen_share : float
        Share of a state's mass in the data that a sample must have to judge the state.
    held_out_every : int
        Every n-th sequence of a sample is held out, with n this number.
    held_out_tolerance : float
        Nats per step that all moves together may cost in the likelihood of held-out sequences.
    held_out_errors : float
        Standard errors within which such a cost may be chance.
    held_out_min_sequences : int
        Held-out sequences that are enough to estimate its standard error; with fewer it is taken
        to be `held_out_tolerance`.
    held_out_decay : float
        Share of what moves have cost that still counts after another pass of training.
    long_proposal_steps : int
        Local steps of restarts, and of merges and deletions for which one is not enough.
    hopeless_cost : float
        Cost of a refused merge on held-out sequences, in units of `held_out_tolerance`, above
        which it is not tried again with more local steps.
    pruning_rounds : int
        Times that states which do not differ are merged after a split or a restart, before it is
        judged.
    sifting_statistics : int
        Symbols above which pairs of states are first sifted by the overlap of their counts.
    sifted_pairs_per_state : int
        Pairs per state that are left after that.
    host_statistics : int
        Numbers of emission statistics of all states up to which merges are searched on the host,
        where training is on a device.
    small_share : float
        Share of the mass below which a state may be deleted after one local step.
    max_refusals : int
        Refused deletions in a row that end a round.
    search_steps : int
        On small data: local steps between two evaluations of the bound, while a model converges,
        and those of a merge that has not gained after `search_screen_steps`.
    search_max_rounds : int
        On small data: evaluations of the bound after which a model counts as converged anyway.
    search_screen_steps : int
        On small data: local steps that every candidate for a merge gets.
    search_pairs : int
        On small data: candidates for a merge by each of two rankings, by the gain that is sure and
        by the largest that is possible.
    search_finalists : int
        On small data: best candidates that get all local steps.
    split_parts : int
        States that one is split into at most.
    split_parts_symbols : int
        The same for symbols.
    split_steps : int
        Local steps that the parts of a split get to become different.
    split_steps_symbols : int
        The same for symbols.
    split_random_share : float
        Probability that the parts of states of symbols begin with random shares of their symbols,
        and not with segments of the data.
    split_noise : float
        Largest relative noise on the transition counts of parts.
    split_min_steps : int
        Steps that a state must have in the sample for its parts to begin with segments of them.
    cost_bound_steps : int
        Local steps that take as long as evaluating the bound.
    cost_call_steps : int
        Steps that take as long as what a local step does once, whatever their number.
    cost_call_work : float
        Work that takes as long as that, where there are few states.
    cost_launch_steps : int
        Steps of a sample that take as long as launching the kernels of a local step on a device;
        counted where the data have more steps than that.
    cost_statistic_steps : int
        Steps that take as long as evaluating one emission statistic of all states.
    cost_search_steps : int
        Steps per emission statistic that take as long as finding out which states to merge.
    cost_fixed_states : int
        States that cost as much as what does not depend on their number.
    warmup_piece_steps : int
        Length of the pieces that long sequences are cut into for the warm-up.
    warmup_updates : int
        Updates of a warm-up.
    warmup_updates_symbols : int
        The same for symbols.
    warmup_batch_steps : int
        Steps of a minibatch of the warm-up, where there are enough data.
    warmup_batch_steps_symbols : int
        The same for symbols.
    warmup_max_passes : int
        Passes of a warm-up over little data.
    warmup_max_passes_symbols : int
        The same for symbols.
    warmup_growth_passes : int
        Passes of a warm-up of a model that grows, with as many updates each.
    warmup_min_steps : int
        Steps of the data below which there is no warm-up: they say too little.
    warmup_max_steps : int
        Steps of the data that a warm-up sees at most.
    warmup_steps_per_state : int
        Steps per state that a minibatch of the warm-up has at least.
    warmup_statistics_per_step : int
        Emission statistics per step of such a minibatch, at most.
    warmup_usual_passes : int
        Passes of a training whose number of updates a warm-up must exceed to be worthwhile.

    Examples
    --------
    >>> MoveSettings(init_states=2, move_share=0.1)
    MoveSettings(init_states=2, move_share=0.1)
    """

    init_states: int | None = field(
        default=None, metadata={"source": _NONE + "a choice of the user; 2 in " + _GROWTH}
    )

    # ---- how much work moves may spend ----------------------------------------------------------
    move_share: float = _number(0.21, f"{_TIME}, which must stay below a fifth")
    growth_advance: float = _share(0.4, _SEEN_IN + _GROWTH)
    growth_factor: int = _whole(2, _NONE + "a split doubles the number of states")
    early_share: float = _share(0.65, _BY_HAND)
    early_proposals: int = _whole(10, _SEEN_IN + _TIME)
    late_proposals: int = _whole(6, _SEEN_IN + _TIME)

    # ---- when there are rounds of proposals -----------------------------------------------------
    first_round_share: float = _share(0.15, _SEEN_IN + _NO_WARM_UP)
    first_round_share_few: float = _share(0.35, _BY_HAND)
    first_round_share_symbols: float = _share(
        0.4, f"{_SYMBOLS} without a warm-up: with 0.15, runs ended at 7 of 8 and 19 of 20 states"
    )
    first_round_share_few_symbols: float = _share(0.4, _NONE + "as `first_round_share_symbols`")
    symbols_steps_per_state: int = _whole(2**10, _BY_HAND, 0)
    first_round_min_passes: int = _whole(3, _NONE + "very short trainings are left alone")
    first_round_few_passes: int = _whole(4, _NONE + "chosen for the default of ten passes")
    settling_share: float = _share(0.1, _BY_HAND)

    # ---- the sample -----------------------------------------------------------------------------
    sample_max_steps: int = _whole(2**18, _BY_HAND)
    sample_min_sequences: int = _whole(8, _SEEN_IN + _RECORDINGS)
    sample_steps_per_state: int = _whole(2**9, _BY_HAND)
    max_copies: float = _number(4.0, _BY_HAND, 1.0)
    surveys: int = _whole(3, _MUCH, least=2)
    survey_loss: float = _share(0.1, _SENTENCES)
    split_sample_ratio: float = _number(0.5, f"{_STUDY}: twice as many splits are tried", 1e-3, 1.0)
    minibatch_min_steps: int = _whole(2**13, _BY_HAND)
    minibatch_min_share: float = _share(1 / 8, _BY_HAND)
    seen_share: float = _share(
        0.1,
        f"{_RECORDINGS}, the need (a state that the sample lacked was lost), not the value",
    )

    # ---- the held-out safeguard -----------------------------------------------------------------
    held_out_every: int = _whole(4, _BY_HAND, 2)
    held_out_tolerance: float = _number(
        0.001, f"{_CORPUS}, the need (states of words were removed without it), not the value"
    )
    held_out_errors: float = _number(3.0, _NONE + "the usual three standard errors")
    held_out_min_sequences: int = _whole(8, _BY_HAND, 2)
    held_out_decay: float = _share(0.9, f"{_MANY_STATES}: without it the last merges were refused")

    # ---- merges, deletions and restarts ---------------------------------------------------------
    long_proposal_steps: int = _whole(4, _BY_HAND)
    hopeless_cost: float = _number(10.0, _BY_HAND)
    pruning_rounds: int = _whole(2, _BY_HAND, 0)
    sifting_statistics: int = _whole(1000, _NONE + "keeps the search for pairs affordable", 0)
    sifted_pairs_per_state: int = _whole(2, _BY_HAND)
    host_statistics: int = _whole(2**18, _SEEN_IN + _GPU, 0)
    small_share: float = _share(0.02, _BY_HAND)
    max_refusals: int = _whole(3, _BY_HAND)

    # ---- the search on small data ---------------------------------------------------------------
    search_steps: int = _whole(10, _SMALL)
    search_max_rounds: int = _whole(30, _SMALL)
    search_screen_steps: int = _whole(2, _SMALL)
    search_pairs: int = _whole(6, _SMALL)
    search_finalists: int = _whole(3, _SMALL)

    # ---- splits ---------------------------------------------------------------------------------
    split_parts: int = _whole(2, _SEEN_IN + _GROWTH, 2)
    split_parts_symbols: int = _whole(3, _SEEN_IN + _GROWTH, 2)
    split_steps: int = _whole(5, _SEEN_IN + _GROWTH)
    split_steps_symbols: int = _whole(10, _SEEN_IN + _GROWTH)
    split_random_share: float = _share(0.5, _SEEN_IN + _GROWTH)
    split_noise: float = _share(0.2, _BY_HAND)
    split_min_steps: int = _whole(4, _BY_HAND)

    # ---- what things cost: counted, not measured ------------------------------------------------
    cost_bound_steps: int = _whole(1, _SEEN_IN + _TIME, 0)
    cost_call_steps: int = _whole(2**11, _SEEN_IN + _TIME, 0)
    cost_call_work: float = _number(4e6, _SEEN_IN + _TIME)
    cost_launch_steps: int = _whole(2**21, _SEEN_IN + _GPU, 0)
    cost_statistic_steps: int = _whole(2, _SEEN_IN + _CORPUS, 0)
    cost_search_steps: int = _whole(10, _SEEN_IN + _CORPUS, 0)
    cost_fixed_states: int = _whole(32, _SEEN_IN + _TIME)

    # ---- the warm-up ----------------------------------------------------------------------------
    warmup_piece_steps: int = _whole(2**8, _SEEN_IN + _RECORDINGS)
    warmup_updates: int = _whole(400, f"{_NUMBERS}, with the passes and minibatches")
    warmup_updates_symbols: int = _whole(3000, f"{_SYMBOLS}, with the passes and minibatches")
    warmup_batch_steps: int = _whole(2**11, f"{_MANY_NUMBERS}, with the updates")
    warmup_batch_steps_symbols: int = _whole(2**9, f"{_SYMBOLS}, with the updates")
    warmup_max_passes: int = _whole(10, f"{_NUMBERS}, with the updates")
    warmup_max_passes_symbols: int = _whole(20, f"{_SYMBOLS}, with the updates")
    warmup_growth_passes: int = _whole(40, _GROWTH)
    warmup_min_steps: int = _whole(2**8, _NONE + "very few data are left alone")
    warmup_max_steps: int = _whole(2**23, _NONE + "a limit on the time of a warm-up")
    warmup_steps_per_state: int = _whole(8, _SEEN_IN + _MANY_STATES)
    warmup_statistics_per_step: int = _whole(16, _SEEN_IN + _CORPUS)
    warmup_usual_passes: int = _whole(10, _NONE + "the default of `n_passes`")

    def __post_init__(self) -> None:
        for name, value, metadata in ((f.name, getattr(self, f.name), f.metadata) for f in _own()):
            least, most = metadata["least"], metadata["most"]
            if metadata["whole"]:
                _check_whole(name, value, least)
            elif not _is_number(value) or not least <= value <= most:
                raise ValueError(f"{name}={value!r} is not a finite number of {least} to {most}")
        if self.init_states is not None:
            _check_whole("init_states", self.init_states, 1)
        if self.warmup_min_steps > self.warmup_max_steps:
            raise ValueError("warmup_min_steps is more than warmup_max_steps")

    def __repr__(self) -> str:
        changed = (f.name for f in fields(self) if getattr(self, f.name) != f.default)
        named = ", ".join(f"{name}={getattr(self, name)!r}" for name in changed)
        return f"{type(self).__name__}({named})"


def _own() -> list[Field[Any]]:
    """Return the fields that are thresholds: all but the number of states to begin with."""
    return [f for f in fields(MoveSettings) if f.name != "init_states"]


def _is_number(value: Any) -> bool:
    is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    return is_number and bool(np.isfinite(value))


def _check_whole(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")
