"""Data and models that the tests of the cluster share."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import sojourn as sj
from sojourn.backends.dask import batches
from sojourn.sources import shuffle, write
from sojourn.sources.write import ParquetSink

PARTS = ("start", "transitions", "emissions")


def make_small(monkeypatch):
    """Let small data have many row groups, fillings of the buffer, and parts of a minibatch."""
    monkeypatch.setattr(write, "GROUP_SEQUENCES", 60)
    monkeypatch.setattr(shuffle, "BUFFER_SEQUENCES", 500)
    monkeypatch.setattr(batches, "PART_STEPS", 900)
    monkeypatch.setattr(batches, "GROUP_BYTES", 10_000)


def draw(n_sequences, n_symbols=3000, seed=0):
    """Sequences of two kinds of symbols in turns, of 1 to 19 steps.

    By default there are more symbols than steps in a part: only those present are sent.
    """
    rng = np.random.default_rng(seed)
    half = n_symbols // 2
    sequences = []
    for length in rng.integers(1, 20, n_sequences):
        kind = (np.arange(length) + rng.integers(2)) % 2
        sequences.append(half * kind + rng.integers(half, size=length) ** 2 // half)
    return sj.Sequences.from_list(sequences)


def write_parquet(path, sequences):
    with ParquetSink(path, "symbols") as sink:
        sink.write(sequences)
    return path


def write_known(path, sequences):
    """Write sequences with labels, half of them unknown, and weights."""
    rng = np.random.default_rng(0)
    known = [np.where(rng.random(len(x)) < 0.5, x >= 1500, -1).tolist() for x in sequences]
    weights = rng.choice([0.5, 1.0, 2.0], len(sequences))
    table = pa.table({"x": [x.tolist() for x in sequences], "tag": known, "w": weights})
    pq.write_table(table, path, row_group_size=60)
    return sj.open(path, column="x", label="tag", weight="w")


def model(**options):
    return sj.HDPHMM(
        5,
        sj.Categorical(concentration=0.5),
        **{
            "batch_size": 400,
            "n_passes": 2,
            "hdp_batch_size": 600,
            "init": "exponential",  # a warm-up is not the workers'
            "dtype": "float64",
            "n_jobs": 1,
            "random_state": 1,
        }
        | options,
    )


def assert_same(a, b, tolerance=1e-10):
    """Hold two fitted models to the same statistics, relative to the largest."""
    assert a.n_updates_ == b.n_updates_
    for name in PARTS:
        ours, theirs = (getattr(fitted.statistics_, name) for fitted in (a, b))
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=tolerance * np.abs(theirs).max())
    np.testing.assert_allclose(a.transmat_, b.transmat_, rtol=0, atol=tolerance)


def assert_identical(a, b):
    """Hold two fitted models to the same bits."""
    for name in PARTS:
        ours, theirs = (getattr(fitted.statistics_, name) for fitted in (a, b))
        assert ours.tobytes() == theirs.tobytes(), name
