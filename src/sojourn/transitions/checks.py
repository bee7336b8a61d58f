"""Checks of priors on transitions that come from a file."""

from __future__ import annotations

from typing import Any

from sojourn import file_values

_DISTRIBUTIONS = ("alpha_prior", "gamma_prior", "alpha", "gamma", "override_prior", "override")
_FLAGS = ("second_order", "sort_states", "normalize_rows", "exchangeable", "learn_stickiness")


def check_steps(prior: Any) -> None:
    """Raise a ValueError unless step sizes and their count are numbers that training reaches."""
    file_values.number("forgetting_rate", prior.forgetting_rate, 0.0, 1.0)
    file_values.number("delay", prior.delay, 0.0)
    file_values.whole("n_updates", prior.n_updates)


def check_pending(prior: Any, n_states: int) -> None:
    """Raise a ValueError unless the large batch has the sums of K states."""
    file_values.whole("n_states", prior.n_states, n_states, n_states)
    if prior.constraints is not None:
        prior.constraints.check(n_states)
    file_values.whole("batch_size", prior.batch_size, 1)
    file_values.whole("n_pending", prior.n_pending, 1 if prior.pending else 0)
    square = {"transitions", "squares_pairs"}
    line = {"start", "squares_start", "squares_rows"}
    for name, part in prior.pending.items():
        if name not in square | line:
            raise ValueError(f"a large batch has no {name}")
        shape = (n_states, n_states) if name in square else (n_states,)
        file_values.array(f"pending.{name}", part, shape, least=0.0)
    if prior.pending and not {"start", "transitions"} <= set(prior.pending):
        raise ValueError("the large batch lacks counts")
    squares = {name for name in prior.pending if name.startswith("squares_")}
    if squares and len(squares) < 3:
        raise ValueError("the large batch lacks sums of squares")


def check_hdp(hdp: Any, n_states: int) -> None:
    """Raise a ValueError unless options, posteriors and large batch are those of an HDP."""
    check_steps(hdp)
    check_pending(hdp, n_states)
    file_values.array("tables", hdp.tables, (n_states,), least=0.0)
    file_values.positive("stick_gamma", hdp.stick_gamma)
    file_values.number("stickiness", hdp.stickiness, 0.0)
    for name in _DISTRIBUTIONS:
        getattr(hdp, name).check(name)
    for name in _FLAGS:
        file_values.flag(name, getattr(hdp, name))
    if hdp.occupancy not in ("auto", "exact", "fast"):
        raise ValueError("there is no occupancy of this name")
