"""Results of samplers: draws of states, α, γ and π, and their diagnostics."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sojourn.kernels.interface import Floats
from sojourn.kernels.ragged import checked_offsets
from sojourn.sampling.state import ChainState, Counts, SymbolData

TRACES = ("log_joint", "n_states", "alpha", "gamma")


def _arviz() -> Any:
    """Import ArviZ on first use: it is optional, and slow to import."""
    try:
        with warnings.catch_warnings():
            # It warns about a new interface in version 1, which pyproject.toml excludes.
            warnings.simplefilter("ignore", FutureWarning)
            import arviz
    except ImportError as error:
        raise ImportError("diagnostics need ArviZ: pip install sojourn[diagnostics]") from error
    return arviz


class Draw(NamedTuple):
    """One draw from the posterior.

    Attributes
    ----------
    states : (T,) int32 array
        z of the training data, flat.
    n_states : int
        Number of states: those in use, for the infinite model.
    log_joint : float
        log p(x, z), parameters integrated out; given π and α for the infinite model.
    alpha, gamma : float
        NaN for the finite model.
    shares : (K + 1,) array or None
        π and the share of all other states, for the infinite model.
    """

    states: NDArray[np.int32]
    n_states: int
    log_joint: float
    alpha: float
    gamma: float
    shares: Floats | None

    @classmethod
    def of(cls, state: ChainState, log_joint: float) -> Draw:
        """Make a draw of the current state of a chain."""
        return cls(state.states, state.n_states, log_joint, state.alpha, state.gamma, state.shares)


class Diagnostic(NamedTuple):
    """How well a quantity was sampled.

    Attributes
    ----------
    ess : float
        Effective sample size (bulk) of all chains together.
    rhat : float
        Split R-hat, rank-normalised: near one when chains and their halves agree.
    """

    ess: float
    rhat: float


@dataclass(frozen=True, eq=False)
class Samples:
    """Draws of every chain; iteration yields all of them in order.

    Attributes
    ----------
    chains : tuple of tuples of Draw
    data : SymbolData
        The training data, which the counts of a draw are computed from.
    """

    chains: tuple[tuple[Draw, ...], ...]
    data: SymbolData

    def __len__(self) -> int:
        return sum(map(len, self.chains))

    def __iter__(self) -> Iterator[Draw]:
        for chain in self.chains:
            yield from chain

    def trace(self, name: str) -> Floats:
        """Return one quantity of each draw, shape (chains, draws): one of `TRACES`."""
        if name not in TRACES:
            raise ValueError(f"there is no trace {name!r}, only {', '.join(TRACES)}")
        return np.array([[float(getattr(d, name)) for d in chain] for chain in self.chains])

    @property
    def best(self) -> Draw:
        """The draw with the highest log joint probability."""
        return max(self, key=lambda draw: draw.log_joint)

    def counts(self, draw: Draw) -> Counts:
        """Count starts, transitions and symbols of a draw."""
        return self.data.count(draw.states, draw.n_states)

    def diagnostics(self) -> dict[str, Diagnostic]:
        """Return effective sample size and R-hat of each trace, through ArviZ.

        Quantities that never change, such as the number of states of a finite model, are left out.
        Install ArviZ with ``pip install sojourn[diagnostics]``.
        """
        arviz = _arviz()
        found = {}
        for name in TRACES:
            trace = self.trace(name)
            if np.isfinite(trace).all() and np.ptp(trace) > 0:
                found[name] = Diagnostic(
                    float(arviz.ess(trace, method="bulk")), float(arviz.rhat(trace, method="rank"))
                )
        return found

    def relabeling(self, draw: Draw, reference: Draw) -> NDArray[np.int64]:
        """Match the states of a draw to those of a reference: labels differ between draws.

        States are paired such that as many steps as possible agree; one without a partner joins the
        state that it shares most steps with.

        Returns
        -------
        (K,) array
            The state of the reference for each state of the draw.
        """
        shape = (draw.n_states, reference.n_states)
        shared = np.zeros(shape, dtype=np.int64)
        np.add.at(shared, (draw.states, reference.states), 1)
        labels = shared.argmax(axis=1)
        from scipy.optimize import linear_sum_assignment

        rows, columns = linear_sum_assignment(shared, maximize=True)
        labels[rows] = columns
        return labels

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return everything as arrays, for model files."""
        draws = list(self)
        shares = [np.zeros(0) if d.shares is None else d.shares for d in draws]
        return {
            "states": np.array([d.states for d in draws]),
            "numbers": np.array([[d.n_states, d.log_joint, d.alpha, d.gamma] for d in draws]),
            "shares": np.concatenate(shares),
            "chain_lengths": np.array([len(chain) for chain in self.chains]),
            "values": self.data.values,
            "offsets": self.data.offsets,
            "n_symbols": np.array(self.data.n_symbols),
        }

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]]) -> Samples:
        """Undo `to_arrays`."""
        offsets = checked_offsets(arrays["offsets"], len(arrays["values"]))
        if (offsets[1:] == offsets[:-1]).any():
            raise ValueError("the data of the draws have an empty sequence")
        data = SymbolData(arrays["values"], offsets, arrays["n_symbols"].item())
        draws, at = [], 0
        for states, (k, log_joint, alpha, gamma) in zip(
            arrays["states"], arrays["numbers"].tolist(), strict=True
        ):
            shares = arrays["shares"][at : at + int(k) + 1] if np.isfinite(alpha) else None
            at += 0 if shares is None else len(shares)
            draws.append(Draw(states, int(k), log_joint, alpha, gamma, shares))
        chains = checked_offsets(np.append(0, np.cumsum(arrays["chain_lengths"])), len(draws))
        return cls(tuple(tuple(draws[a:b]) for a, b in pairwise(chains.tolist())), data)
