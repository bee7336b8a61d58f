"""Steps and sequences in Arrow arrays, and the columns of tables with one row per step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sojourn.sequences import Sequences, check_arrow
from sojourn.vocabulary import Vocabulary


def listed(names: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return names as a tuple, also a single one.

    Examples
    --------
    >>> listed("a"), listed(["a", "b"]), listed(None)
    (('a',), ('a', 'b'), ())
    """
    if names is None:
        return ()
    return (names,) if isinstance(names, str) else tuple(names)


@dataclass(frozen=True)
class Roles:
    """What columns of a table are for that are not observations: one field for each role.

    Attributes
    ----------
    sequence : str or None
        The id of the sequence; None if all rows are one.
    time : str or None
        When a row was observed; rows of a sequence must be in this order.
    drop : tuple of str
        Columns that are left out.
    label, weight : str or None
        Labels of steps, and weights of sequences.
    """

    sequence: str | None = None
    time: str | None = None
    drop: tuple[str, ...] = ()
    label: str | None = None
    weight: str | None = None

    @property
    def read(self) -> list[str]:
        """Columns that are read for what they are."""
        found = (self.sequence, self.time, self.label, self.weight)
        return [name for name in found if name is not None]

    def record(self) -> dict[str, Any]:
        """Return the roles as options of `sojourn.open`, without those that no column has."""
        given = {"sequence": self.sequence, "time": self.time, "drop": list(self.drop)}
        return {role: names for role, names in given.items() if names}

    @property
    def names(self) -> list[str]:
        """All columns that have a role, and are not observations."""
        return [*self.read, *self.drop]


NO_ROLES = Roles()
"""All columns are observations, and all rows one sequence."""


@dataclass(frozen=True)
class StepColumns:
    """The columns of a table with one row per step, and how they become steps.

    Attributes
    ----------
    names : list of str
        Columns with the observations.
    is_vector : bool
        Whether they make vectors; otherwise there is one.
    roles : Roles
    words : mapping of str to Vocabulary
        For columns of words in vectors: the words whose positions are the symbols.
    lower : bool
        Convert words to lower case.
    """

    names: list[str]
    is_vector: bool
    roles: Roles = NO_ROLES
    words: Mapping[str, Vocabulary] = field(default_factory=dict)
    lower: bool = False

    def steps_of(self, batch: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the sequence id and the steps of the rows of a record batch or table."""
        ids = np.zeros(batch.num_rows, np.int64)
        if self.roles.sequence is not None:
            column = batch.column(self.roles.sequence)
            _refuse_nulls(self.roles.sequence, column)
            ids = plain(column).to_numpy()
        columns = [self._numbers(name, batch.column(name)) for name in self.names]
        return ids, np.stack(columns, axis=1) if self.is_vector else columns[0]

    def _numbers(self, name: str, column: Any) -> NDArray[Any]:
        """Return a column as numbers, with symbols for words, or the only column as it is."""
        import pyarrow as pa
        import pyarrow.compute as pc

        column = plain(column)
        if not is_text(column.type):
            if column.null_count:
                # A missing number is NaN, which most families integrate out.
                column = column.cast(pa.float64())
            return column.to_numpy()
        column = pc.utf8_lower(column) if self.lower else column
        if not self.is_vector:
            _refuse_nulls(name, column)  # a word has no such value
            return column.to_numpy()
        vocabulary = self.words[name]
        codes = pc.index_in(column, value_set=pa.array(vocabulary.words, column.type))
        if vocabulary.unknown is not None:
            codes = codes.fill_null(vocabulary[vocabulary.unknown])
        codes = pc.if_else(pc.is_valid(column), codes, None).cast(pa.float64())
        if codes.null_count > column.null_count:
            is_known = plain(column.is_valid()).to_numpy().astype(bool)
            at = int(np.flatnonzero(np.isnan(codes.to_numpy()) & is_known)[0])
            raise ValueError(f"column {name!r}: {column[at]} is not in the vocabulary")
        return codes.to_numpy()


def plain(column: Any) -> Any:
    """Return an Arrow column as numbers or as text, in a chunked array."""
    import pyarrow as pa

    if not isinstance(column, pa.ChunkedArray):
        column = pa.chunked_array([column])
    if is_text(column.type):
        return _as_strings(column)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_boolean(column.type):
        return column.cast(pa.uint8())
    return column.cast(pa.float64()) if pa.types.is_decimal(column.type) else column


def _as_strings(column: Any) -> Any:
    """Return a column of texts as large strings; PyArrow 17 does not cast views of them."""
    import pyarrow as pa

    try:
        return column.cast(pa.large_string())
    except pa.ArrowNotImplementedError:
        return pa.chunked_array([pa.array(column.to_pylist(), pa.large_string())])


def is_text(kind: Any) -> bool:
    """Whether an Arrow type is one of strings, also as a dictionary."""
    import pyarrow as pa

    of = kind.value_type if pa.types.is_dictionary(kind) else kind
    is_view = getattr(pa.types, "is_string_view", lambda kind: False)
    return bool(pa.types.is_string(of) or pa.types.is_large_string(of) or is_view(of))


def is_numeric(kind: Any) -> bool:
    """Whether an Arrow type is one of numbers, or of true and false."""
    import pyarrow as pa

    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    return bool(is_number or pa.types.is_boolean(kind) or pa.types.is_decimal(kind))


def count_words(columns: Iterable[Any], lower: bool) -> Counter[str]:
    """Count the words of Arrow columns."""
    import pyarrow.compute as pc

    counts: Counter[str] = Counter()
    for column in columns:
        texts = plain(column)
        found = pc.value_counts(pc.utf8_lower(texts) if lower else texts)
        words, numbers = found.field("values").to_pylist(), found.field("counts").to_pylist()
        counts.update({w: n for w, n in zip(words, numbers, strict=True) if w is not None})
    return counts


class TimeOrder:
    """A check, batch by batch, that the rows of a sequence are in the order of their time.

    Parameters
    ----------
    roles : Roles
    """

    def __init__(self, roles: Roles) -> None:
        self.roles = roles
        self._last: tuple[Any, Any] | None = None
        self._n_rows = 0

    def check(self, batch: Any) -> None:
        """Raise an error at a row that is earlier than the one before it."""
        roles = self.roles
        if roles.time is None or batch.num_rows == 0:
            return
        times = plain(batch.column(roles.time)).to_numpy()
        ids = np.zeros(len(times), np.int64)
        if roles.sequence is not None:
            ids = plain(batch.column(roles.sequence)).to_numpy()
        comparable = times.dtype != object or is_ordered_text(times)
        if comparable:
            self._compare(ids, times)
        self._n_rows += len(times)

    def _compare(self, ids: NDArray[Any], times: NDArray[Any]) -> None:
        if times.dtype == object:
            times = np.array([str(time) for time in times])
        falls = np.flatnonzero((times[1:] < times[:-1]) & (ids[1:] == ids[:-1])) + 1
        is_first = self._last is not None and self._last[0] == ids[0] and times[0] < self._last[1]
        if is_first or len(falls):
            at = 0 if is_first else int(falls[0])
            raise ValueError(
                f"row {self._n_rows + at + 1}: {self.roles.time!r} is {times[at]}, earlier than in "
                "the row before: sort the rows of each sequence by time"
            )
        self._last = ids[-1], times[-1]


def is_ordered_text(times: NDArray[Any]) -> bool:
    """Whether dates as text are in an order that is that of the text: the year comes first."""
    first = next((time for time in times if time), "")
    return str(first)[:4].isdigit()


def _refuse_nulls(name: str, column: Any) -> None:
    if column.null_count:
        at = int(np.flatnonzero(plain(column.is_null()).to_numpy())[0])
        raise ValueError(f"column {name!r} has missing values, the first in row {at + 1} of these")


def check_together(runs: NDArray[Any]) -> None:
    """Reject ids that occur again later, for example if rows are sorted by time."""
    found, counts = np.unique(runs, return_counts=True)
    if (counts > 1).any():
        again = found[counts.argmax()]
        raise ValueError(f"the rows of sequence {again!r} are not adjacent: sort by sequence")


def list_sequences(array: Any) -> Sequences:
    """Make sequences from a list array; lists of lists of equal size become vectors."""
    import pyarrow as pa

    if not pa.types.is_fixed_size_list(array.type.value_type):
        return Sequences.from_arrow(array)
    if array.null_count:
        raise ValueError("a sequence is null")
    check_arrow(array)
    offsets = array.offsets.to_numpy().astype(np.int64)
    vectors = array.values.slice(offsets[0], offsets[-1] - offsets[0])
    flat = vectors.flatten()
    if vectors.null_count or flat.null_count:
        raise ValueError("a step is null")
    steps = flat.to_numpy(zero_copy_only=False).reshape(len(vectors), -1)
    return Sequences(steps, offsets - offsets[0])


def label_values(array: Any) -> NDArray[Any]:
    """Return labels of steps: whole numbers with −1 for a missing one, or names with "".

    Examples
    --------
    >>> import pyarrow as pa
    >>> label_values(pa.array(["a", None])), label_values(pa.array([3, None]))
    (array(['a', ''], dtype='<U1'), array([ 3, -1]))
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    if pa.types.is_null(array.type):
        return np.full(len(array), -1)
    if is_numeric(array.type):
        return np.asarray(pc.fill_null(array, -1).to_numpy(zero_copy_only=False))
    if not (pa.types.is_string(array.type) or pa.types.is_large_string(array.type)):
        raise TypeError(f"a label must be a whole number or a name, not {array.type}")
    filled = pc.fill_null(array, "").to_numpy(zero_copy_only=False)
    return np.asarray(filled, dtype=np.str_)


def list_labels(array: Any, offsets: NDArray[np.int64], name: str) -> NDArray[Any]:
    """Return the labels of a column of lists, which must be as long as those of the steps."""
    import pyarrow as pa

    if not isinstance(array, pa.ListArray | pa.LargeListArray):
        raise TypeError(f"column {name!r}: labels must be lists, as the steps are")
    check_arrow(array)
    if array.null_count:
        array = array.fill_null(pa.scalar([], array.type))
    own = array.offsets.to_numpy().astype(np.int64)
    if not np.array_equal(own - own[0], offsets):
        lengths, steps = np.diff(own), np.diff(offsets)
        n = int(np.flatnonzero(lengths != steps)[0])
        raise ValueError(f"sequence {n} has {steps[n]} steps, and {lengths[n]} in {name!r}")
    return label_values(array.values.slice(own[0], own[-1] - own[0]))


def weight_values(array: Any, name: str) -> NDArray[np.float64]:
    """Return a column of weights: finite numbers, none below zero."""
    if not is_numeric(array.type):
        raise TypeError(f"column {name!r}: weights must be numbers, not {array.type}")
    if array.null_count:
        raise ValueError(f"column {name!r} has missing values")
    weights = array.to_numpy(zero_copy_only=False).astype(np.float64)
    bad = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0.0)))
    if len(bad):
        raise ValueError(f"column {name!r}, row {bad[0]}: {weights[bad[0]]} is not a weight")
    return np.asarray(weights)
