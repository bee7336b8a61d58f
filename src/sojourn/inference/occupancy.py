"""Number and share of the steps in each state."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sojourn.kernels import updates
from sojourn.kernels.arrays import to_host
from sojourn.kernels.interface import Floats
from sojourn.transitions import Rows

USED_SHARE = 0.005
"""A state is in use if it has more than this share of the steps."""

_ONE_STEP = 1.0 - 1e-6  # in single precision


def state_masses(counts: Rows) -> Floats:
    """Return the expected number of steps in each state: E[C_·k], including E[C_0k].

    The result is an array in memory, wherever the counts are placed.
    """
    return to_host(updates.state_masses(*counts))


def state_shares(counts: Rows) -> Floats:
    """Return the share of the steps in each state: E[C_·k] divided by its sum.

    Examples
    --------
    >>> import numpy as np
    >>> state_shares(Rows(np.array([1.0, 0.0]), np.array([[0.0, 2.0], [1.0, 0.0]])))
    array([0.5, 0.5])
    """
    masses = state_masses(counts)
    return masses / masses.sum()


def is_idle(counts: Rows) -> NDArray[np.bool_]:
    """Say which states have less than one step of the data.

    Examples
    --------
    >>> import numpy as np
    >>> is_idle(Rows(np.array([1.0, 0.0]), np.array([[0.0, 0.7], [99.3, 0.0]])))
    array([False,  True])
    """
    return state_masses(counts) < _ONE_STEP


def n_used(counts: Rows) -> int:
    """Count the states in use: of few steps, those with one step at least; one is always in use.

    Examples
    --------
    >>> import numpy as np
    >>> n_used(Rows(np.array([1.0, 0.0]), np.array([[0.0, 0.7], [99.3, 0.0]])))
    1
    """
    masses = state_masses(counts)
    return max(1, int((masses > max(USED_SHARE * masses.sum(), _ONE_STEP)).sum()))
