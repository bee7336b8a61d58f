"""Potentials and sums of statistics, computed in blocks of steps on several threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sojourn.families.base import EmissionRows, Family
from sojourn.families.fused import SquaredPotentials, TensorRows
from sojourn.families.interpolated import InterpolatedPotentials
from sojourn.families.table import DecayedTable
from sojourn.families.tabled import TabledPotentials
from sojourn.kernels.arrays import is_tensor, namespace
from sojourn.kernels.cpu.densities import student_rows
from sojourn.kernels.cpu.single import SingleWeights, single_weights
from sojourn.kernels.cpu.sweeps import Numbers
from sojourn.kernels.cpu.symbols import consecutive
from sojourn.kernels.interface import Floats, row_width

BLOCK_STEPS = 512
"""Steps in a block: few enough to stay in the cache, and for BLAS to use one thread."""

TENSOR_NUMBERS = 2**24
"""Numbers in the largest array that a block of steps takes as tensors: 128 MiB."""

WORTH_THREADS = 2**15
"""Number of steps from which several threads are faster than one."""

FUSED_STATES = 128
"""Number of states up to which a program on a GPU has those of a step together."""

LogPotentials = Callable[[Any], Floats]
"""Maps the observations x of T steps to their log potentials, shape (T, K)."""


@dataclass(frozen=True, eq=False)
class CompiledPotentials:
    """Log potentials in NumPy, and the arguments of a compiled kernel that computes the same.

    Attributes
    ----------
    plain : LogPotentials
        The closed form, which defines what is computed.
    whole_rows : bool
        Whether a step with a missing entry is missing; otherwise the kernel does not apply to it.
    location : array
        Argument of `kernels.cpu.densities.student_rows`, as are those that follow.
    weights : array
    spans : array
    factors : array
    powers : array
    constants : array
    collapsed : bool
    shares : array or None
        None where there is no leverage.
    """

    plain: LogPotentials
    whole_rows: bool
    location: Floats
    weights: Floats
    spans: NDArray[np.int64]
    factors: Floats
    powers: Floats
    constants: Floats
    collapsed: bool
    shares: Floats | None = None

    def __call__(self, x: Floats) -> Floats:
        """Return the log potentials, by the closed form."""
        return self.plain(x)

    @cached_property
    def _of_states(self) -> tuple[Floats, Floats, Floats, Floats]:
        """What `student_rows` takes of every state beside weights."""
        shares = np.zeros_like(self.powers) if self.shares is None else self.shares
        return self.factors, shares, self.powers, self.constants

    @cached_property
    def _single(self) -> SingleWeights:
        """The arguments for single precision."""
        return single_weights(self.weights, *self._of_states, collapsed=self.collapsed)

    def rows(self, x: Floats, dtype: Any, n_threads: int) -> EmissionRows | None:
        """Return rows for the kernel, or None if only `plain` applies."""
        table, log_scale, n_missing = student_rows(
            x,
            self.location,
            self.weights,
            self.spans,
            *self._of_states,
            dtype,
            collapsed=self.collapsed,
            n_threads=n_threads,
            single=self._single,
        )
        if n_missing and not self.whole_rows:
            return None
        return EmissionRows(table, log_scale, consecutive(len(x)))

    def numbers(self, x: Floats, pairs: NDArray[np.int64]) -> Numbers:
        """Return what computes the potentials, and sums of products of columns, in one sweep."""
        return Numbers(
            x,
            self.location,
            self.spans,
            self.weights,
            self._of_states,
            self._single,
            self.collapsed,
            pairs,
        )


def natural_parameters(family: Family, table: DecayedTable) -> Floats:
    """Return λ = λ° + E[t], shape (K, S)."""
    statistics = table.dense()
    return namespace(statistics).asarray(family.prior(), like=statistics) + statistics


def potential_rows(
    log_potentials: LogPotentials,
    x: Any,
    n_columns: int,
    n_states: int,
    dtype: Any,
    n_threads: int,
) -> EmissionRows:
    """Return rows of potentials for the kernel, scaled so that the largest of each row is one.

    Blocks, and hence results, do not depend on the number of threads.  A block may take
    `n_columns` numbers per step and state.
    """
    if isinstance(x, TensorRows):
        if isinstance(log_potentials, SquaredPotentials | TabledPotentials):
            fused = log_potentials.tensor_rows(x, dtype) if n_states <= FUSED_STATES else None
            if fused is not None:
                return fused
        x = x.values
    elif isinstance(log_potentials, CompiledPotentials | TabledPotentials) and not is_tensor(x):
        compiled = log_potentials.rows(x, dtype, n_threads)
        if compiled is not None:
            return compiled
        log_potentials = log_potentials.plain
    if isinstance(log_potentials, InterpolatedPotentials) and not is_tensor(x):
        log_potentials = log_potentials.on(x)
    xp = namespace(x)
    width = n_states if is_tensor(x) else row_width(n_states)
    table = xp.zeros((len(x), width), dtype, like=x)
    log_scale = xp.empty(len(x), "float64", like=x)

    def fill(steps: slice) -> None:
        rows = log_potentials(x[steps])
        largest = xp.amax(rows, axis=1)
        log_scale[steps] = largest
        rows -= largest[:, None]
        # Of a log potential below single precision's range nothing is left in any precision.
        with np.errstate(over="ignore"):
            xp.exp(xp.astype(rows, dtype), out=table[steps, :n_states])

    for _ in in_blocks(fill, x, n_columns * n_states, n_threads):
        pass
    index = xp.arange(len(x), dtype="int32", like=x) if is_tensor(x) else consecutive(len(x))
    return EmissionRows(table, log_scale, index)


def weighted_sums(
    statistics: Callable[[Any], Floats],
    x: NDArray[Any],
    weights: Floats,
    n_statistics: int,
    n_threads: int = 1,
) -> Floats:
    """Return ``statistics(x).T @ weights``, (S, K), without building all of ``statistics(x)``."""
    xp = namespace(x)
    parts = in_blocks(
        lambda steps: statistics(x[steps]).T @ xp.astype(weights[steps], "float64"),
        x,
        n_statistics,
        n_threads,
    )
    # Added in the order of the steps, whichever thread finishes first.
    total = next(parts)
    for part in parts:
        total += part
    return total


def in_blocks(
    work: Callable[[slice], Any], x: NDArray[Any], width: int, n_threads: int
) -> Iterator[Any]:
    """Yield ``work(steps)`` for every block of steps, in their order.

    Blocks fit into the processor's cache.  A few of them are faster on one thread, because threads
    wait for the interpreter between array functions.  Blocks of tensors are as large as
    `TENSOR_NUMBERS` allows if a step takes `width` numbers, and are processed one by one.
    """
    size = max(1, TENSOR_NUMBERS // width) if is_tensor(x) else BLOCK_STEPS
    blocks = [slice(begin, begin + size) for begin in range(0, len(x), size)]
    if n_threads == 1 or len(x) < WORTH_THREADS or is_tensor(x):
        yield from map(work, blocks)
        return
    with ThreadPoolExecutor(min(n_threads, len(blocks))) as pool:
        yield from pool.map(work, blocks)
