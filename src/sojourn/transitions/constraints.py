"""What is known of start and transitions: which never happen, and which probabilities are given.

The free part of a row is a Dirichlet over the entries that are learned, times the mass that the
given ones leave.  An entry that never happens has no prior count, so that its probability, and with
it its expected count, is 0.0 in every update.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sojourn import file_values
from sojourn.kernels.arrays import namespace, to_host
from sojourn.kernels.interface import Floats, Integers
from sojourn.transitions.rows import Rows, normalized

NAMES = ("left-right", "upper-triangular", "no-self")
"""Constraints on transitions that have a name."""

_ROUNDING = 1e-8  # how far the sum of given probabilities may be from one


class RowConstraints(NamedTuple):
    """Constraints on start and transitions.

    Attributes
    ----------
    free : Rows
        1.0 where a probability is learned, otherwise 0.0.
    given : Rows
        Probabilities that are given; 0.0 where they are learned, or where a state never follows.
    fixes : bool
        Whether any given probability is not zero.
    lasting : bool
        Whether states last, eq (60): how long is not for the rows to say, which lead from a state
        to another one.  Counts of steps within a state are then on the diagonal, and no row has
        them.

    Examples
    --------
    >>> made = RowConstraints.make(3, "left-right", None)
    >>> made.free.transitions
    array([[1., 1., 0.],
           [0., 1., 1.],
           [0., 0., 1.]])
    >>> made.probabilities(Rows(np.ones(3), np.ones((3, 3)))).transitions
    array([[0.5, 0.5, 0. ],
           [0. , 0.5, 0.5],
           [0. , 0. , 1. ]])
    """

    free: Rows
    given: Rows
    fixes: bool
    lasting: bool = False

    # ---- making them ----------------------------------------------------------------------

    @classmethod
    def make(
        cls, n_states: int, transitions: ArrayLike | str | None, start: ArrayLike | None
    ) -> RowConstraints | None:
        """Check what a user gives; None where nothing is constrained.

        Parameters
        ----------
        n_states : int
        transitions : (K, K) array, {"left-right", "upper-triangular", "no-self"} or None
            0 for never, NaN for what is learned, another number for a given probability.
        start : (K,) array or None
            The same for the first state.  By default it is learned, except that a left-right
            model starts in its first state.
        """
        if transitions is None and start is None:
            return None
        first = start
        if first is None and isinstance(transitions, str) and transitions == "left-right":
            first = _only(0, n_states)
        values = Rows(
            _values("start_constraints", first, (n_states,)),
            _values("transition_constraints", _named(transitions, n_states), (n_states,) * 2),
        )
        return cls.of(values)

    @classmethod
    def of(cls, values: Rows) -> RowConstraints:
        """Make constraints of arrays with NaN for what is learned, as `values` returns them."""
        free = Rows(*(np.isnan(part).astype(np.float64) for part in values))
        given = Rows(*(np.where(np.isnan(part), 0.0, part) for part in values))
        _check_rows("start_constraints", free.start[None], given.start[None])
        _check_rows("transition_constraints", free.transitions, given.transitions)
        return cls(free, given, any(bool((part > 0.0).any()) for part in given))

    @classmethod
    def between(cls, n_states: int, known: RowConstraints | None = None) -> RowConstraints | None:
        """Return the constraints of rows that lead from a state to another; None for one state.

        Examples
        --------
        >>> made = RowConstraints.between(2)
        >>> made.counted(Rows(np.ones(2), np.array([[9.0, 1.0], [2.0, 8.0]]))).transitions
        array([[0., 1.],
               [2., 0.]])
        """
        if n_states == 1:
            return known
        start = np.full(n_states, np.nan) if known is None else known.values.start
        rows = np.where(np.eye(n_states) > 0.0, 0.0, np.nan)
        return cls.of(Rows(start, rows))._replace(lasting=True)

    @property
    def values(self) -> Rows:
        """The constraints as arrays in memory: 0 never, NaN learned, another number given."""
        parts = zip(map(to_host, self.free), map(to_host, self.given), strict=True)
        return Rows(*(np.where(free > 0.0, np.nan, given) for free, given in parts))

    def converted(self, convert: Callable[[Any], Any]) -> Self:
        """Return the constraints with `convert` applied to every array."""
        free, given = (Rows(*(convert(part) for part in rows)) for rows in (self.free, self.given))
        return self._replace(free=free, given=given)

    def check(self, n_states: int, counts: Rows | None = None) -> None:
        """Raise a ValueError unless they constrain K states, and counts obey them."""
        shapes = ((n_states,), (n_states, n_states))
        for name, part, shape in zip(Rows._fields, self.given, shapes, strict=True):
            file_values.array(f"constraints.{name}", part, shape, least=0.0)
        free = to_host(self.free.transitions)
        if self.lasting and not np.array_equal(free, 1.0 - np.eye(n_states)):
            raise ValueError("states that last have rows that lead from one to another")
        if counts is None:
            return
        for count, allowed in zip(counts, self.allowed, strict=True):
            if (count[~allowed] != 0.0).any():
                raise ValueError("there are counts of transitions that never happen")

    # ---- what they do ---------------------------------------------------------------------

    @property
    def allowed(self) -> Any:
        """Which states may begin, and which may follow which, as `Rows` of booleans."""
        pairs: Any = zip(self.free, self.given, strict=True)
        start, rows = (free + given > 0.0 for free, given in pairs)
        if self.lasting:
            rows = rows | (namespace(start).eye(len(start), like=self.free.start) > 0.0)
        return Rows(start, rows)

    def counted(self, counts: Rows) -> Rows:
        """Return the counts that rows are about: those between states, where states last."""
        if not self.lasting:
            return counts
        return Rows(counts.start, counts.transitions * self.free.transitions)

    def rows(self, counts: Rows) -> Rows:
        """Return the counts of what is learned, and 0.0 elsewhere; one row may stand for all."""
        start, transitions = counts
        return Rows(start * self.free.start, transitions * self.free.transitions)

    @property
    def left(self) -> Rows:
        """Mass that the given probabilities leave for the rest of the start and of every row."""
        start, transitions = self.given
        return Rows(1.0 - start.sum(), 1.0 - transitions.sum(axis=1))

    def probabilities(self, counts: Rows) -> Rows:
        """Return the given probabilities, and beside them what is left in proportion to counts."""
        (start, rows), left = self.rows(counts), self.left
        xp = namespace(start)
        total, totals = start.sum(), rows.sum(axis=1)
        # A row that is given completely has nothing to share out.
        total = xp.where(total > 0.0, total, xp.ones_like(total))
        totals = xp.where(totals > 0.0, totals, xp.ones_like(totals))
        return Rows(
            self.given.start + left.start * (start / total),
            self.given.transitions + left.transitions[:, None] * (rows / totals[:, None]),
        )

    def without_forbidden(self, counts: Rows) -> Rows:
        """Return the counts, and 0.0 where a transition never happens."""
        if self.lasting:  # on the diagonal are the steps within a stay
            return counts
        pairs: Any = zip(counts, self.allowed, strict=True)
        return Rows(*(count * allowed for count, allowed in pairs))

    def conformed(self, counts: Rows) -> Rows:
        """Return counts that obey the constraints, with the same totals of start and rows."""
        (start, rows), chances = self.counted(counts), self.probabilities(counts)
        within = counts.transitions - rows
        return Rows(
            start.sum() * chances.start,
            rows.sum(axis=1, keepdims=True) * chances.transitions + within,
        )

    @property
    def is_ordered(self) -> bool:
        """Whether no state is followed by an earlier one."""
        allowed = to_host(self.allowed.transitions)
        return len(allowed) > 1 and not np.tril(allowed, -1).any()

    # ---- other states ---------------------------------------------------------------------

    def may_merge(self, first: Integers, second: Integers) -> Any:
        """Return for pairs of states whether one state may stand for both, (P,).

        Either they are alike, or one leads only to the other, which only it leads to.
        """
        return self.are_alike(first, second) | self._in_series(first, second)

    def are_alike(self, first: Integers, second: Integers) -> Any:
        """Return for pairs of states whether they differ at most in how they follow each other.

        Their rows and columns are the same, apart from the four transitions between the two.  These
        are of one kind, or none of them is given, both states stay or neither does, and where they
        stay one may follow the other.
        """
        start, rows = self.values
        starts = np.where(np.isnan(start), -1.0, start)
        if self.lasting:  # of two states that last one would be left, which is never left itself
            return (starts[first] == starts[second]) & (len(rows) > 2)
        code = np.where(np.isnan(rows), -1.0, rows)
        every = np.arange(len(first))
        row_differs, column_differs = code[first] != code[second], code.T[first] != code.T[second]
        for differs in (row_differs, column_differs):
            differs[every, first] = differs[every, second] = False
        same = ~(row_differs.any(axis=1) | column_differs.any(axis=1))
        same &= starts[first] == starts[second]
        stay, one = code[first, first], code[first, second]
        other = code[second, first]
        is_one_kind = (stay == code[second, second]) & (stay == one) & (stay == other)
        learned = np.minimum(one, other) < 0.0
        none_given = np.maximum(np.maximum(stay, one), other) <= 0.0
        elsewhere = code[first] != 0.0
        elsewhere[every, first] = elsewhere[every, second] = False
        leaves = (stay == 0.0) & elsewhere.any(axis=1)
        may = none_given & (stay == code[second, second]) & (leaves | ((stay < 0.0) & learned))
        return same & (is_one_kind | may)

    def _in_series(self, first: Integers, second: Integers) -> Any:
        """Return for pairs of states whether one is always followed by itself or the other, (P,).

        And the other follows itself or this one alone, both may stay, and nothing of them is given.
        """
        start, rows = self.values
        free, zero = np.isnan(rows), rows == 0.0
        plain = free | zero
        plain_states = plain.all(axis=1) & plain.all(axis=0) & ~(start > 0.0)
        leads = free.sum(axis=1) == 2  # itself and one more
        entered = free.sum(axis=0) == 2
        stays = np.diagonal(free) & plain_states
        found = np.zeros(len(first), np.bool_)
        for i, j in ((first, second), (second, first)):
            found |= free[i, j] & zero[j, i] & leads[i] & entered[j] & stays[i] & stays[j]
        return found

    def may_delete(self, state: int) -> bool:
        """Whether the others can do without a state.

        No given probability leads to it, every state still has one that may follow, and those that
        could be reached from the start still can.
        """
        allowed = self.allowed
        start, rows = to_host(allowed.start), to_host(allowed.transitions)
        given = self.values
        if self.lasting and len(start) == 2:
            return False
        if given.start[state] > 0.0 or (given.transitions[:, state] > 0.0).any():
            return False
        stay = np.delete(np.arange(len(start)), state)
        kept, begin = rows[np.ix_(stay, stay)], start[stay]
        if not begin.any() or not kept.any(axis=1).all():
            return False
        return bool((_reached(begin, kept) >= _reached(start, rows)[stay]).all())

    def regrouped(self, weights: Floats) -> RowConstraints | None:
        """Return the constraints of other states, each some of these; `weights` is (K', K)."""
        start, rows = self.values
        members = (np.asarray(to_host(weights)) > 0.0).astype(np.float64)
        first = members.argmax(axis=1)
        # Given probabilities of states that become one add up, and what any may do is learned.
        unknown = members @ np.isnan(rows) @ members.T > 0.0
        # States that do not follow themselves do not become one that does.
        stays = members @ (np.diagonal(rows) != 0.0) > 0.0
        unknown &= stays[:, None] | ~np.eye(len(members), dtype=np.bool_)
        sums = np.where(np.isnan(rows[first]), 0.0, rows[first]) @ members.T
        unknown_start = members @ np.isnan(start) > 0.0
        # Of states that are none of these nothing is known.
        new = members.sum(axis=1) == 0.0
        unknown, unknown_start = unknown | new | new[:, None], unknown_start | new
        sums_start = members @ np.where(np.isnan(start), 0.0, start)
        unknown[:] = unknown | self.lasting
        made: RowConstraints | None = RowConstraints.of(
            Rows(
                np.where(unknown_start, np.nan, sums_start),
                np.where(unknown, np.nan, sums),
            )
        )
        if self.lasting:
            free_start = bool(unknown_start.all())
            made = RowConstraints.between(len(members), None if free_start else made)
        like = self.free.start
        xp = namespace(like)
        return None if made is None else made.converted(lambda part: xp.placed(part, like=like))


# ---- constraints, if there are any --------------------------------------------------------------


def with_constraints(constraints: RowConstraints | None, rows: Rows) -> Rows:
    """Return probabilities in proportion to counts, within constraints if there are any."""
    return normalized(rows) if constraints is None else constraints.probabilities(rows)


def converted(
    constraints: RowConstraints | None, convert: Callable[[Any], Any]
) -> RowConstraints | None:
    """Return constraints with `convert` applied to every array."""
    return None if constraints is None else constraints.converted(convert)


def regrouped(constraints: RowConstraints | None, weights: Floats) -> RowConstraints | None:
    """Return the constraints of other states, each some of these."""
    return None if constraints is None else constraints.regrouped(weights)


_PREFIX = "constraints."


def arrays_of(constraints: RowConstraints | None) -> dict[str, NDArray[Any]]:
    """Return constraints as arrays for a model file."""
    if constraints is None:
        return {}
    found = {f"{_PREFIX}{name}": part for name, part in constraints.values._asdict().items()}
    return found | ({f"{_PREFIX}lasting": np.ones(1)} if constraints.lasting else {})


def taken(
    arrays: dict[str, NDArray[Any]],
) -> tuple[RowConstraints | None, dict[str, NDArray[Any]]]:
    """Take the constraints out of the arrays of a model file; return both."""
    own = {name: part for name, part in arrays.items() if not name.startswith(_PREFIX)}
    if len(own) == len(arrays):
        return None, own
    values = Rows(*(arrays[f"{_PREFIX}{name}"] for name in Rows._fields))
    for name, part, n_axes in zip(Rows._fields, values, (1, 2), strict=True):
        if part.ndim != n_axes or part.dtype != np.float64 or len(set(part.shape)) != 1:
            raise ValueError(f"constraints.{name} is not an array of K states")
        if ((part < 0.0) | (part > 1.0)).any():
            raise ValueError(f"constraints.{name} has numbers that are not probabilities")
    return RowConstraints.of(values)._replace(lasting=f"{_PREFIX}lasting" in arrays), own


# ---- what a user gives --------------------------------------------------------------------------


def _named(transitions: ArrayLike | str | None, n_states: int) -> Any:
    """Return the array that a name stands for."""
    if not isinstance(transitions, str):
        return transitions
    states = np.arange(n_states)
    ahead = states - states[:, None]
    allowed = {
        "left-right": (ahead == 0) | (ahead == 1),
        "upper-triangular": ahead >= 0,
        "no-self": ahead != 0,
    }
    if transitions not in allowed:
        raise ValueError(
            f"transition_constraints={transitions!r} is not one of {', '.join(NAMES)}, nor an array"
        )
    return np.where(allowed[transitions], np.nan, 0.0)


def _only(state: int, n_states: int) -> Floats:
    """Return the constraints of a start in one state."""
    values = np.zeros(n_states)
    values[state] = np.nan
    return values


def _values(name: str, value: Any, shape: tuple[int, ...]) -> Floats:
    """Return constraints as an array of its own, or refuse them."""
    if value is None:
        return np.full(shape, np.nan)
    try:
        array = np.array(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} is not an array of numbers") from None
    if array.shape != shape:
        raise ValueError(f"{name} has the shape {array.shape}; {shape} was expected")
    bad = np.argwhere((array < 0.0) | (array > 1.0))
    if len(bad):
        at = tuple(int(n) for n in bad[0])
        place = at[0] if len(at) == 1 else at
        raise ValueError(
            f"{name}[{place}] is {array[at]:g}; expected 0 for never, NaN for what is learned, "
            "or a probability"
        )
    return array


def _check_rows(name: str, free: Floats, given: Floats) -> None:
    """Refuse rows that cannot sum to one."""
    sums, learned = given.sum(axis=1), free.sum(axis=1) > 0.0
    too_much = sums >= np.where(learned, 1.0 - _ROUNDING, 1.0 + _ROUNDING)
    too_little = ~learned & (sums < 1.0 - _ROUNDING)
    for n in np.flatnonzero(too_much | too_little):
        row = name if len(free) == 1 and name.startswith("start") else f"row {n} of {name}"
        if too_little[n] and sums[n] == 0.0:
            raise ValueError(f"{row} allows nothing: at least one entry must not be 0")
        what = "leaves nothing for what is learned" if learned[n] else "is not one"
        raise ValueError(f"{row}: the sum {sums[n]:g} of the given probabilities {what}")


def _reached(start: Any, rows: Any) -> Any:
    """Return which states a path from the start may reach."""
    found = start.copy()
    for _ in range(len(rows)):
        found = found | (found[:, None] & rows).any(axis=0)
    return found
