"""What is known about the states of steps: labels, in every form in which users have them.

A step with a label multiplies its emission potential, eq (2), by m_t(k) ∈ [0, 1].  Most steps have
one of a few masks, so that a number per step says which: row 0 of the table allows every state, and
a label k allows that state alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

UNKNOWN = -1
"""The label of a step of which nothing is known, as in scikit-learn."""


@dataclass(frozen=True, eq=False)
class Labels:
    """Masks of states for the steps of some sequences.

    Attributes
    ----------
    codes : (T,) array
        Row of the table for each step; without a table, names or numbers as a file has them.
    table : (M, L + 1) array or None
        Weights in [0, 1] of the states 0..L−1, and in the last column of every further state.

    Examples
    --------
    >>> labels = Naming(("rest", "walk")).encode(np.array(["walk", "", "rest"]))
    >>> labels.masks(3)
    array([[0., 1., 0.],
           [1., 1., 1.],
           [1., 0., 0.]])
    """

    codes: NDArray[Any]
    table: NDArray[np.float64] | None = None

    @property
    def n_labelled(self) -> int:
        """L: states that labels name, which keep their places."""
        assert self.table is not None
        return self.table.shape[1] - 1

    def __getitem__(self, steps: Any) -> Labels:
        """Return the labels of a slice of the steps, or of an array of positions."""
        return Labels(self.codes[steps], self.table)

    def compact(self, n_states: int) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """Return the row of each step, and as few rows of `n_states` weights as there may be."""
        assert self.table is not None
        codes, table = self.codes, self.table
        if len(table) > len(codes) + 1:  # a mask of its own for every step of larger data
            codes, table = np.arange(len(codes), dtype=np.int32), table[codes]
        masks = np.empty((len(table), n_states))
        masks[:, : self.n_labelled] = table[:, :-1][:, :n_states]
        masks[:, self.n_labelled :] = table[:, -1:]
        return codes, masks

    def masks(self, n_states: int) -> NDArray[np.float64]:
        """Return the weights of all states at every step, (T, K)."""
        codes, table = self.compact(n_states)
        return table[codes]

    def is_complete(self) -> bool:
        """Whether every step has exactly one possible state."""
        assert self.table is not None
        single = (self.table[:, :-1] > 0.0).sum(axis=1) == 1
        return bool((single & (self.table[:, -1] == 0.0))[self.codes].all())

    @classmethod
    def joined(cls, parts: Sequence[Labels]) -> Labels:
        """Concatenate labels; tables that differ are put below each other."""
        first = parts[0].table
        codes = [part.codes for part in parts]
        if first is None or all(part.table is first for part in parts):
            return cls(np.concatenate(codes), first)
        tables = [part.table for part in parts if part.table is not None]
        if all(np.array_equal(table, first) for table in tables):
            return cls(np.concatenate(codes), first)
        begins = np.cumsum([0, *map(len, tables)])[:-1]
        moved = [own + begin for own, begin in zip(codes, begins, strict=True)]
        return cls(np.concatenate(moved).astype(np.int32), np.concatenate(tables))


class Naming(NamedTuple):
    """The states that labels may name.

    Attributes
    ----------
    names : tuple of str or None
        Names of the first states.
    n_labelled : int or None
        Number of states that numbers may name; by default that of the names.
    """

    names: tuple[str, ...] | None = None
    n_labelled: int | None = None

    @property
    def size(self) -> int:
        """L: number of states that labels may name."""
        if self.n_labelled is not None:
            return self.n_labelled
        return 0 if self.names is None else len(self.names)

    @property
    def table(self) -> NDArray[np.float64]:
        """Row 0 allows every state, row 1 + k state k alone, (L + 1, L + 1)."""
        rows = np.eye(self.size + 1, self.size + 1, -1)
        rows[0] = 1.0
        return rows

    def encode(self, items: Any, offsets: NDArray[np.int64] | None = None) -> Labels:
        """Return the labels of flat steps: numbers, names, None for unknown, or sets of these.

        Raises
        ------
        ValueError
            Naming sequence and position of a label that is no state.
        """
        array = flat_array(items)
        if array.dtype.kind in "iuf":
            return Labels(self._numbers(array, offsets), self.table)
        if array.dtype.kind in "UT":
            kinds, inverse = np.unique(array, return_inverse=True)
            rows = np.array([self._row_of(str(name)) for name in kinds], dtype=np.int32)
            codes = rows[inverse]
            self._refuse(codes < 0, array, offsets)
            return Labels(codes, self.table)
        if array.dtype.kind != "O":
            raise ValueError(f"labels must be whole numbers, names or sets, not {array.dtype}")
        return self._objects(array, offsets)

    def _numbers(self, array: NDArray[Any], offsets: NDArray[np.int64] | None) -> NDArray[np.int32]:
        if array.dtype.kind == "f":
            self._refuse(~(np.isfinite(array) & (np.rint(array) == array)), array, offsets)
        self._refuse((array < UNKNOWN) | (array >= self.size), array, offsets)
        return array.astype(np.int32) + 1

    def _objects(self, array: NDArray[Any], offsets: NDArray[np.int64] | None) -> Labels:
        rows: dict[frozenset[int], int] = {}
        codes = np.empty(len(array), dtype=np.int32)
        for step, item in enumerate(array):
            if isinstance(item, set | frozenset):
                members = [self._row_of(member) for member in item]
                if not members or min(members) < 1:
                    codes[step] = UNKNOWN
                    continue
                states = frozenset(members)
                codes[step] = rows.setdefault(states, self.size + 1 + len(rows))
            else:
                codes[step] = self._row_of(item)
        self._refuse(codes < 0, array, offsets)
        sets = np.zeros((len(rows), self.size + 1))
        for states, row in rows.items():
            sets[row - self.size - 1, [state - 1 for state in states]] = 1.0
        return Labels(codes, np.concatenate([self.table, sets]))

    def _row_of(self, item: Any) -> int:
        """Return the row of a label, 0 for an unknown one, −1 for one that is no state."""
        if item is None or (isinstance(item, str) and item == ""):
            return 0
        if isinstance(item, str):
            if self.names is None or item not in self.names:
                return -1
            return 1 + self.names.index(item)
        if isinstance(item, bool | np.bool_) or not isinstance(item, int | np.integer):
            return -1
        return int(item) + 1 if UNKNOWN <= item < self.size else -1

    def _refuse(
        self, bad: NDArray[np.bool_], array: NDArray[Any], offsets: NDArray[np.int64] | None
    ) -> None:
        """Raise an error for the first bad label."""
        if not bad.any():
            return
        step = int(np.flatnonzero(bad)[0])
        where = f"step {step}"
        if offsets is not None:
            n = int(np.searchsorted(offsets, step, side="right")) - 1
            where = f"sequence {n}, position {step - offsets[n]}"
        item = array[step].item() if isinstance(array[step], np.generic) else array[step]
        raise ValueError(f"{where}: the label {item!r} is {self._problem(item)}")

    def _problem(self, item: Any) -> str:
        if isinstance(item, float):
            return "not a whole number: -1 is for steps of which nothing is known"
        if isinstance(item, str):
            if self.names is None:
                return "a name, but the states have none: state_names=[...]"
            return f"not one of the names {', '.join(map(repr, self.names))}"
        if isinstance(item, set | frozenset):
            return "not a set of states" if item else "an empty set: no state is possible"
        return (
            f"not a state: there are {self.size}, counted from 0, and {UNKNOWN} is for steps of "
            "which nothing is known"
        )


def flat_array(items: Any) -> NDArray[Any]:
    """Return labels as a one-dimensional array; sets, and numbers among names, as objects."""
    if isinstance(items, np.ndarray):
        return items
    items = list(items)
    kinds = {type(item) for item in items}
    plain = all(issubclass(kind, str) for kind in kinds) or all(
        issubclass(kind, int | float | np.number) and not issubclass(kind, bool) for kind in kinds
    )
    if plain:
        return np.asarray(items)
    array = np.empty(len(items), dtype=object)
    array[:] = items
    return array


def with_names(path: Any, names: Sequence[str]) -> Any:
    """Return paths of states with names for numbers, in the same form: arrays, or a list of them.

    Examples
    --------
    >>> with_names([np.array([1, 0]), np.array([1])], ["rest", "walk"])
    [array(['walk', 'rest'], dtype='<U4'), array(['walk'], dtype='<U4')]
    """
    if isinstance(path, list):
        return [with_names(part, names) for part in path]
    table = np.asarray(names)
    if isinstance(path, np.ndarray):
        return table[path]
    return path.with_values(table[path.values])


def kind_of(items: NDArray[Any]) -> tuple[int, set[str]]:
    """Return one more than the largest number among labels, and the names among them.

    Examples
    --------
    >>> kind_of(np.array([2, -1, 0]))
    (3, set())
    >>> kind_of(flat_array([{"a", "b"}, None, "a"])) == (0, {"a", "b"})
    True
    """
    if items.dtype.kind in "iu":
        return int(items.max(initial=UNKNOWN)) + 1, set()
    if items.dtype.kind == "f":
        finite = items[np.isfinite(items)]
        return int(finite.max(initial=UNKNOWN)) + 1, set()
    if items.dtype.kind in "UT":
        return 0, {str(name) for name in np.unique(items)} - {""}
    members: list[Any] = []
    for item in items:
        members.extend(item if isinstance(item, set | frozenset) else [item])
    numbers = [m for m in members if isinstance(m, int | np.integer) and not isinstance(m, bool)]
    names = {member for member in members if isinstance(member, str)} - {""}
    return int(max(numbers, default=UNKNOWN)) + 1, names


def from_masks(masks: NDArray[Any], n_states: int, offsets: NDArray[np.int64]) -> Labels:
    """Return labels of a weight in [0, 1] for every step and state, (T, K)."""
    if masks.dtype.kind not in "biuf" or masks.ndim != 2 or masks.shape[1] != n_states:
        raise ValueError(
            f"masks of labels must be numbers of the shape ({offsets[-1]}, {n_states}), a weight "
            f"for every step and state, got {masks.dtype} of the shape {masks.shape}"
        )
    from sojourn.kernels.cpu.masks import distinct_masks  # compiled, so loaded on first use

    weights = np.ascontiguousarray(masks, dtype=np.float64)
    numbers, firsts, outside, empty = distinct_masks(weights)
    for step, problem in ((outside, "has a weight outside of [0, 1]"), (empty, "allows no state")):
        if step >= 0:
            n = int(np.searchsorted(offsets, step, side="right")) - 1
            raise ValueError(f"sequence {n}, position {step - offsets[n]}: the mask {problem}")
    table = np.zeros((1 + len(firsts), n_states + 1))
    table[0, :n_states], table[1:, :n_states] = 1.0, weights[firsts]
    return Labels(numbers + np.int32(1), table)


def flattened(y: Any, lengths: NDArray[np.int64]) -> NDArray[Any]:
    """Return labels of some sequences for flat steps: (T,), or (T, K) for masks.

    Labels are flat themselves, or have the form of the sequences.
    """
    n_steps = int(lengths.sum())
    if type(y).__module__.partition(".")[0] == "pyarrow":
        y = y.to_pylist()
    if isinstance(y, str | bytes | set | frozenset) or not isinstance(y, Iterable):
        raise TypeError(f"labels must be a sequence with one label per step, got {y!r}")
    if hasattr(y, "__array__"):
        y = np.asarray(y)
    if isinstance(y, np.ndarray) and y.dtype != object:
        shape = y.shape
        if len(shape) > 1 and shape[:2] == (len(lengths), *set(lengths.tolist())):
            y = y.reshape(n_steps, *shape[2:])
        return _of_length(y, n_steps)
    items = list(y)
    if items and all(_is_nested(item) for item in items):
        sizes = [len(item) for item in items]
        if sizes == lengths.tolist():
            return _together([_plain(item) for item in items])
        if len(items) == n_steps and len(set(sizes)) == 1:  # a row of weights per step
            return np.asarray(items)
        if len(items) != len(lengths):
            raise ValueError(f"there are labels of {len(items)} sequences, and {len(lengths)}")
        n = int(np.flatnonzero(np.asarray(sizes) != lengths)[0])
        raise ValueError(f"sequence {n} has {lengths[n]} steps, and {sizes[n]} labels")
    return _of_length(flat_array(items), n_steps)


def _is_nested(item: Any) -> bool:
    return isinstance(item, list | tuple) or (isinstance(item, np.ndarray) and item.ndim > 0)


def _plain(item: Any) -> NDArray[Any]:
    if isinstance(item, np.ndarray):
        return item
    if item and all(_is_nested(member) for member in item):
        return np.asarray(item)
    return flat_array(item)


def _together(parts: list[NDArray[Any]]) -> NDArray[Any]:
    """Concatenate; numbers and names, or sets, become objects, as NumPy would convert them."""
    kinds = {"n" if part.dtype.kind in "iuf" else part.dtype.kind for part in parts if len(part)}
    if len(kinds) > 1 and {part.ndim for part in parts} == {1}:
        parts = [flat_array([*part.tolist()]).astype(object) for part in parts]
    return np.concatenate([part for part in parts if len(part)] or parts[:1])


def _of_length(flat: NDArray[Any], n_steps: int) -> NDArray[Any]:
    if len(flat) != n_steps:
        raise ValueError(f"there are {n_steps} steps, and {len(flat)} labels")
    return flat
