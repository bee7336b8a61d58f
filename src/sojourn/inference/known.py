"""What is known about the data beside their values: labels of steps, and weights of sequences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from sojourn.families import Family
from sojourn.families.base import EmissionRows
from sojourn.inference.posterior import Posterior
from sojourn.kernels.arrays import is_tensor, namespace, to_host
from sojourn.kernels.edges import written_out
from sojourn.kernels.interface import Floats, Integers, Potentials
from sojourn.labels import Labels
from sojourn.sequences import Sequences
from sojourn.transitions.constraints import RowConstraints

_ALL = 0.125  # pairs of rows and masks per step up to which there is a row for each
_FEW = 4  # pairs of rows and masks per step up to which they are numbered: a pass over a table


def of_equal_weight(data: Sequences) -> Iterator[Sequences]:
    """Yield sequences with the same weight together; all of them if they have none.

    Examples
    --------
    >>> data = Sequences.from_list([[3], [1], [4]]).with_known(weights=np.array([2.0, 1.0, 2.0]))
    >>> [part.values.tolist() for part in of_equal_weight(data)]
    [[1], [3, 4]]
    """
    if data.weights is None:
        yield data
        return
    for weight in np.unique(data.weights):
        same = np.flatnonzero(data.weights == weight)
        yield data if len(same) == len(data) else data.take(same)


def refuse_contradictions(
    data: Sequences | None, constraints: RowConstraints | None, *, first: int | None = 0
) -> None:
    """Raise an error for a sequence that labels and constraints together make impossible.

    Parameters
    ----------
    data : Sequences or None
        With labels or without.
    constraints : RowConstraints or None
        Those on start and transitions.
    first : int or None
        Number of the first sequence in the data of the user; None if it is not known.

    Examples
    --------
    >>> from sojourn.labels import Naming
    >>> data = Sequences.from_list([[3, 1], [4, 1, 5]])
    >>> data = data.with_known(Naming(None, 2).encode(np.array([0, 1, -1, 1, 0])))
    >>> known = RowConstraints.make(2, "left-right", None)
    >>> refuse_contradictions(data, known)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    ValueError: sequence 1, position 2: no path of states that the labels allow ...
    """
    if data is None or data.labels is None or constraints is None or data.labels.table is None:
        return
    start, follows = (np.asarray(to_host(part)) for part in constraints.allowed)
    from sojourn.kernels.cpu.masks import without_path  # compiled

    counted = data.counted
    begins = np.ones(len(data), np.bool_) if counted is None else counted[:, 2] == 0
    codes, masks = data.labels.compact(len(start))
    found = without_path(data.offsets, codes, masks, begins, start, follows)
    if found is None:
        return
    n, position = found
    position -= 0 if counted is None else int(counted[n, 0])
    value = np.asarray(data[n][0]).tolist()
    which = f"a sequence that starts with {value!r}" if first is None else f"sequence {first + n}"
    raise ValueError(
        f"{which}, position {position}: no path of states that the labels allow leads there "
        "under the constraints on start and transitions"
    )


def masked(
    rows: EmissionRows,
    labels: Labels,
    sequences: Any,
    posterior: Posterior,
    family: Family,
    *,
    collapsed: bool,
    n_threads: int,
) -> EmissionRows:
    """Multiply emission potentials by the masks of labelled steps, eq (2) times m_t(k).

    Rows are scaled before they are multiplied.  Where a label allows only states that are all but
    impossible, their potentials are computed again in logarithms.
    """
    n_states = posterior.n_states
    codes, masks = labels.compact(n_states)
    if is_tensor(rows.index):
        return _masked_tensors(rows, codes, masks, n_states)
    from sojourn.kernels.cpu.masks import (  # compiled
        mask_all_pairs,
        mask_in_place,
        number_pairs,
    )
    from sojourn.kernels.cpu.strip_edges import is_consecutive

    index, table, log_scale = rows.index, rows.table, rows.log_scale
    n_rows, n_pairs = len(table), len(table) * len(masks)
    if n_rows == len(codes) and table.flags.writeable and is_consecutive(index):
        # A row of its own for every step, made for this batch: unlabelled ones stay as they are.
        lost = mask_in_place(table, masks, codes, n_threads=n_threads)
    elif n_pairs <= _ALL * len(codes):
        table, index, lost = mask_all_pairs(table, index, masks, codes)
        log_scale = None if log_scale is None else np.tile(log_scale, len(masks))
    else:
        if n_pairs <= _FEW * len(codes):
            index, firsts = number_pairs(index, codes, n_rows, len(masks))
            taken, own = rows.index[firsts], codes[firsts]
        else:
            index, taken, own = np.arange(len(codes), dtype=np.int32), index, codes
        table = np.take(table, taken, axis=0)
        log_scale = None if log_scale is None else log_scale[taken]
        lost = mask_in_place(table, masks, own, n_threads=n_threads)
    if len(lost):
        steps = np.full(len(table), -1)
        steps[index] = np.arange(len(index))  # one of each row that occurs
        lost = lost[steps[lost] >= 0]
        log_scale = np.zeros(len(table)) if log_scale is None else log_scale
        logs = _log_potentials(sequences, steps[lost], posterior, family, collapsed=collapsed)
        with np.errstate(divide="ignore"):
            logs = logs + np.log(masks[codes[steps[lost]]])
        log_scale[lost] = logs.max(axis=1)
        table[lost, :n_states] = np.exp(logs - log_scale[lost, None])
    return EmissionRows(table, log_scale, index)


def _log_potentials(
    sequences: Sequences,
    steps: Integers,
    posterior: Posterior,
    family: Family,
    *,
    collapsed: bool,
) -> Floats:
    """Return the log potentials of some steps, by the closed form."""
    learned = posterior.learned(family)
    natural = learned.prior() + posterior.emissions.dense().astype(np.float64)
    observed: Any = family.observations(sequences)  # of a `Product` a list, an array a part
    several = isinstance(observed, list)
    x: Any = [part[steps] for part in observed] if several else observed[steps]
    function = learned.log_predictive if collapsed else learned.expected_log_likelihood
    return np.asarray(function(x, natural))


def _masked_tensors(rows: EmissionRows, codes: Any, masks: Any, n_states: int) -> EmissionRows:
    """Do the same with tensors, a row for each step; nothing is read back."""
    ones = namespace(rows.index).zeros(n_states, "float32", like=rows.index)
    plain = written_out(Potentials(ones, ones, rows.table, rows.log_scale))
    table, scale, index = plain.emissions, plain.log_scale, rows.index
    xp = namespace(table)
    own = xp.placed(masks, like=table)[xp.placed(codes, like=table)]
    product = table[index] * xp.astype(own, str(table.dtype).rpartition(".")[2])
    consecutive = xp.arange(len(index), dtype="int32", like=index)
    return EmissionRows(product, None if scale is None else scale[index], consecutive)
