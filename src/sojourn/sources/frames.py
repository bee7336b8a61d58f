"""Tables in memory: data frames of pandas and polars, and tables of PyArrow and others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sojourn.sequences import Sequences
from sojourn.sources.arrow_arrays import (
    NO_ROLES,
    Roles,
    StepColumns,
    count_words,
    is_numeric,
    is_text,
    plain,
)
from sojourn.vocabulary import Vocabulary

Output = Literal["pandas", "polars"]
"""A library of data frames in which results are returned."""


class TableUse(NamedTuple):
    """What a model knows of the columns of its data.

    Attributes
    ----------
    roles : Roles
        Columns that are not observations.
    names : sequence of str or None
        Columns of the data that the model was fitted to; None if they had no names.
    words : mapping of int to Vocabulary
        Words of the symbols in some of them, by their number.
    """

    roles: Roles = NO_ROLES
    names: Sequence[str] | None = None
    words: Mapping[int, Vocabulary] = {}

    @classmethod
    def of(cls, provenance: Mapping[str, Any], words: Mapping[int, Vocabulary]) -> TableUse:
        """Return what the record of a fit says."""
        reading = provenance.get("reading", {})
        drop = tuple(reading.get("drop") or ())
        roles = Roles(reading.get("sequence") or None, reading.get("time"), drop)
        return cls(roles, provenance.get("columns") or None, words)


NOTHING_KNOWN = TableUse()
"""Of a model that has seen no table."""


@dataclass(frozen=True)
class Frame:
    """Sequences from a table in memory, and what it takes to give results the form of the table.

    Attributes
    ----------
    sequences : Sequences
    names : list of str
        Columns of the steps.
    words : mapping of int to Vocabulary
        Words of the symbols in some of them.
    order : (T,) integer array or None
        The row of each step; None if they are in the order of the rows.
    index : pandas index or None
    """

    sequences: Sequences
    names: list[str]
    words: Mapping[int, Vocabulary]
    order: NDArray[np.int64] | None
    index: Any

    def in_sequences(self, y: Any) -> Any:
        """Return what is given for every row in the order of the steps."""
        if self.order is None:
            return y
        if len(y) != len(self.order):
            raise ValueError(f"y has {len(y)} labels, and the table {len(self.order)} rows")
        items = y.to_numpy() if hasattr(y, "to_numpy") else y
        if isinstance(items, np.ndarray):
            return items[self.order]
        return [items[n] for n in self.order.tolist()]

    def in_rows(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return results of every step in the order of the rows."""
        if self.order is None:
            return values
        rows = np.empty_like(values)
        rows[self.order] = values
        return rows


class _Rows(NamedTuple):
    """A table in memory: an Arrow table, and what its rows are labelled with."""

    table: Any
    index: Any = None
    groups: NDArray[np.int64] | None = None
    keys: tuple[str, ...] = ()
    times: NDArray[Any] | None = None


def is_frame(X: Any) -> bool:
    """Whether data is a table with named columns, a column of one, or groups of its rows."""
    root, kind = _origin(X)
    if root == "pandas":
        return kind in ("DataFrame", "Series") or "GroupBy" in kind
    if root == "polars":
        return kind in ("DataFrame", "LazyFrame", "Series", "GroupBy")
    if root == "pyarrow":
        return kind in ("Table", "RecordBatch")
    return hasattr(X, "__arrow_c_stream__")


def read_frame(X: Any, lengths: ArrayLike | None, use: TableUse, *, step_ndim: int) -> Frame | None:
    """Read sequences from a table in memory; None if its rows are sequences, for symbols.

    Parameters
    ----------
    X
        What `is_frame` accepts.
    lengths : (N,) integer array, optional
        Lengths of the sequences, where no column says which a row belongs to.
    use : TableUse
        What the model knows of its columns.
    step_ndim : {0, 1}
        Dimensions of one step.
    """
    rows = _rows(X)
    roles = _present(use.roles, rows, fitted=use.names is not None)
    names = [n for n in rows.table.column_names if n not in (*roles.names, *rows.keys)]
    is_series = _origin(X)[1] == "Series"  # whose name is no name of a column
    if use.names is not None and names != list(use.names) and not is_series:
        _refuse_names(names, list(use.names))
    if step_ndim == 0 and len(names) != 1:
        if not (roles.names or rows.keys):
            return None
        raise ValueError(f"one column of symbols is needed, and there are {', '.join(names)}")
    if not names:
        raise ValueError("the table has no column of observations")
    _check_columns(rows.table, names, roles)
    is_vector = step_ndim == 1
    words = _words(rows.table, names, use.words) if is_vector else {}
    by_name = {names[n]: of for n, of in words.items()}
    order, offsets = _order(rows, roles)
    values = StepColumns(names, is_vector, words=by_name).steps_of(rows.table)[1]
    if lengths is not None:
        if roles.sequence is not None or rows.groups is not None:
            raise ValueError("lengths are not accepted where a column says which sequence it is")
        return Frame(Sequences.from_lengths(values, lengths), names, words, None, rows.index)
    taken = values if order is None else values[order]
    return Frame(Sequences(taken, offsets), names, words, order, rows.index)


# ---- tables of several libraries ----------------------------------------------------------------


def _origin(X: Any) -> tuple[str, str]:
    kind = type(X)
    return kind.__module__.partition(".")[0], kind.__name__


def _rows(X: Any) -> _Rows:
    """Return a table in memory as an Arrow table."""
    import pyarrow as pa

    root, kind = _origin(X)
    if root == "pandas":
        return _from_pandas(X)
    if kind == "GroupBy":
        return _from_groups(X)
    if kind == "LazyFrame":
        X = X.collect()
    if kind == "Series":
        X = X.to_frame(X.name or "value")
    if root == "pyarrow" and kind == "RecordBatch":
        X = pa.Table.from_batches([X])
    return _Rows(X if isinstance(X, pa.Table) else pa.table(X))


def _from_groups(X: Any) -> _Rows:
    """Return the rows of polars' groups, one group after another."""
    import pyarrow as pa

    frames = [frame for _, frame in X]
    keys = tuple(name for name in getattr(X, "by", ()) if isinstance(name, str))
    groups = np.repeat(np.arange(len(frames)), [len(frame) for frame in frames])
    return _Rows(pa.concat_tables([pa.table(frame) for frame in frames]), None, groups, keys)


def _from_pandas(X: Any) -> _Rows:
    """Return a frame, a series or groups of pandas, with index levels as columns if named."""
    import pyarrow as pa

    groups: NDArray[np.int64] | None = None
    keys: tuple[str, ...] = ()
    if "GroupBy" in type(X).__name__:
        groups = X.ngroup().to_numpy()
        given = X.keys if isinstance(X.keys, list | tuple) else [X.keys]
        keys, X = tuple(name for name in given if isinstance(name, str)), X.obj
        if (groups < 0).any():
            at = int(np.flatnonzero(groups < 0)[0])
            raise ValueError(f"row {at + 1} belongs to no group: its key is missing")
    if type(X).__name__ == "Series":
        X = X.to_frame("value" if X.name is None else X.name)
    index = X.index
    times = index.to_numpy() if type(index).__name__ == "DatetimeIndex" else None
    X = X.set_axis([str(name) for name in X.columns], axis="columns")
    levels = [str(name) for name in index.names if name is not None and str(name) not in X.columns]
    try:
        table = pa.Table.from_pandas(X, preserve_index=False)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise TypeError(f"{error.args[-1]}: convert the column to numbers or strings") from error
    for name in levels:
        table = table.append_column(f"{_LEVEL}{name}", pa.array(index.get_level_values(name)))
    return _Rows(table, index, groups, keys, times)


_LEVEL = "\0index: "  # levels of an index are columns only where a role names them


def _present(roles: Roles, rows: _Rows, *, fitted: bool) -> Roles:
    """Return the roles of columns that the table has, levels of an index among them."""
    names = rows.table.column_names
    levels = tuple(name for name in names if name.startswith(_LEVEL))

    def found(name: str | None) -> str | None:
        if name is None or name in names:
            return name
        if f"{_LEVEL}{name}" in levels:
            return f"{_LEVEL}{name}"
        if fitted:
            return None
        raise ValueError(f"there is no column {name!r}: {', '.join(_shown(names))}")

    dropped = tuple(n for n in map(found, roles.drop) if n is not None)
    sequence, time = found(roles.sequence), found(roles.time)
    if rows.groups is not None and sequence is not None:
        raise ValueError("sequence= is not accepted with groups, which say it already")
    return Roles(sequence, time, (*dropped, *(n for n in levels if n not in (sequence, time))))


def _shown(names: Iterable[str]) -> list[str]:
    return [name.removeprefix(_LEVEL) for name in names]


# ---- columns ------------------------------------------------------------------------------------


def _refuse_names(now: list[str], fitted: list[str]) -> None:
    """Raise scikit-learn's error for columns that differ from those of `fit`."""
    message = "The feature names should match those that were passed during fit.\n"
    unseen, missing = sorted(set(now) - set(fitted)), sorted(set(fitted) - set(now))
    if unseen:
        message += "Feature names unseen at fit time:\n" + _bullets(unseen)
    if missing:
        message += "Feature names seen at fit time, yet now missing:\n" + _bullets(missing)
    if not (unseen or missing):
        message += "Feature names must be in the same order as they were in fit.\n"
    raise ValueError(message)


def _bullets(names: list[str], most: int = 5) -> str:
    listed = "".join(f"- {name}\n" for name in names[:most])
    return listed + ("- ...\n" if len(names) > most else "")


def _check_columns(table: Any, names: list[str], roles: Roles) -> None:
    """Refuse columns that are neither numbers nor words, by their names."""
    import pyarrow as pa

    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"there are {names.count(name)} columns named {name!r}")
        kind = table.schema.field(name).type
        if pa.types.is_temporal(kind):
            raise TypeError(
                f"column {name!r} has dates or times ({kind}), which are no observations: "
                f"time={name!r} orders the rows by it, drop={name!r} leaves it out"
            )
        if not (is_numeric(kind) or is_text(kind) or pa.types.is_dictionary(kind)):
            raise TypeError(f"column {name!r} has neither numbers nor strings, but {kind}")


def _words(table: Any, names: list[str], known: Mapping[int, Vocabulary]) -> dict[int, Vocabulary]:
    """Return the words of columns of strings: the model's, or those that there are."""
    texts = [n for n, name in enumerate(names) if is_text(table.schema.field(name).type)]
    return {
        n: known[n]
        if n in known
        else Vocabulary.from_counts(count_words([table.column(names[n])], lower=False))
        for n in texts
    }


def _order(rows: _Rows, roles: Roles) -> tuple[NDArray[np.int64] | None, NDArray[np.int64]]:
    """Return the rows in the order of their sequences and times, and where sequences begin."""
    n_rows = rows.table.num_rows
    groups = rows.groups
    if groups is None and roles.sequence is not None:
        column = rows.table.column(roles.sequence)
        if column.null_count:
            at = int(np.flatnonzero(plain(column.is_null()).to_numpy())[0])
            name = _shown([roles.sequence])[0]
            raise ValueError(f"row {at + 1}: the sequence is missing (column {name!r})")
        groups = _codes(column)
    times = _times(rows, roles)
    if groups is None and times is None:
        return None, np.array([0, n_rows])
    groups = np.zeros(n_rows, np.int64) if groups is None else groups
    order = np.lexsort([groups] if times is None else [times, groups])
    cuts = np.flatnonzero(np.diff(groups[order])) + 1
    offsets = np.concatenate([[0], cuts, [n_rows]]).astype(np.int64)
    is_same = bool((order == np.arange(n_rows)).all())
    return None if is_same else order, offsets


def _codes(column: Any) -> NDArray[np.int64]:
    """Number the values of a column in the order in which they first occur."""
    import pyarrow.compute as pc

    encoded = pc.dictionary_encode(plain(column)).unify_dictionaries()
    parts = [chunk.indices.to_numpy() for chunk in encoded.chunks]
    return np.concatenate(parts or [np.empty(0)]).astype(np.int64)


def _times(rows: _Rows, roles: Roles) -> NDArray[Any] | None:
    """Return what orders the rows: a column, or an index of dates."""
    if roles.time is None:
        return rows.times
    column = rows.table.column(roles.time)
    name = _shown([roles.time])[0]
    if is_text(column.type):
        raise TypeError(f"column {name!r} is text: convert it to times, with pandas.to_datetime")
    if column.null_count:
        at = int(np.flatnonzero(plain(column.is_null()).to_numpy())[0])
        raise ValueError(f"row {at + 1}: the time is missing (column {name!r})")
    return plain(column).to_numpy()


# ---- results ------------------------------------------------------------------------------------


def as_output(
    values: NDArray[Any], output: Output, name: str, index: Any, sequences: Sequences
) -> Any:
    """Return one result per row as a series or a frame of another library.

    Parameters
    ----------
    values : (T,) or (T, K) array
    output : {"pandas", "polars"}
    name : str
        Name of the column; of several, of each with its number.
    index : pandas index or None
        Labels of the rows; without, they are the sequence and the step in it.
    sequences : Sequences
        The data that the results belong to.
    """
    columns = {name: values}
    if values.ndim == 2:
        columns = {f"{name}_{k}": values[:, k] for k in range(values.shape[1])}
    if output == "polars":
        import polars as pl

        return pl.Series(name, values) if values.ndim == 1 else pl.DataFrame(columns)
    import pandas as pd

    if index is None:
        lengths = sequences.lengths
        steps = np.arange(sequences.n_steps) - np.repeat(sequences.offsets[:-1], lengths)
        which = np.repeat(np.arange(len(sequences)), lengths)
        index = pd.MultiIndex.from_arrays([which, steps], names=["sequence", "step"])
    if values.ndim == 1:
        return pd.Series(values, index, name=name)
    return pd.DataFrame(columns, index)
