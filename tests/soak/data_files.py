"""Damaged and odd files for every reader."""

import base64
import gzip
import io
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv, feather

import sojourn as sj
from tests.soak.harness import Part, WrongError, scratch, soak

TEXT = b"the cat sleeps\na dog barks\nthe dog sleeps\na cat\n\nthe the the\n"
CELLS = (
    "1", "2", "0.5", "-1", "nan", "inf", "-inf", "", "a", "b c", "1e400", "1e308", "9" * 25, "NA",
    "\x1b[2J", "é", '"', "2020-01-01", "true", "null", "0x10", "1_000", " ",
)  # fmt: skip
HEADERS = ("a", "b", "a", "sequence", "x", "", "1", "seq", "a b", "\x1b", "time")
NPY_HEADERS = (
    "{'descr': '<f8', 'fortran_order': False, 'shape': (%d,), }",
    "{'descr': '<i8', 'fortran_order': True, 'shape': (%d, 2), }",
    "{'descr': '|O', 'fortran_order': False, 'shape': (%d,), }",
    "{'descr': '<M8[s]', 'fortran_order': False, 'shape': (%d,), }",
    "{'descr': '<c16', 'fortran_order': False, 'shape': (%d,), }",
    "{'descr': '|V3', 'fortran_order': False, 'shape': (%d,), }",
    "{'descr': [('a', '<i4')], 'fortran_order': False, 'shape': (%d,), }",
    "{'descr': '<f2', 'fortran_order': False, 'shape': (-1, %d), }",
    "{'descr': '>i4', 'fortran_order': False, 'shape': (%d,), }",
    "{'descr': '<f8', 'shape': (%d,) }",
    "[(%d,)]",
)


@cache
def bases():
    """The bytes of a sound file of every kind, with the end of its name."""
    lists = pa.table({"symbols": pa.array([[0, 1, 2], [1], [2, 2, 0, 1]])})
    words = pa.table({"words": pa.array([["a", "b"], ["c"], ["a", "a"]])})
    rows = pa.table({"sequence": [0, 0, 1, 1], "x": [0.5, 1.5, -1.0, 2.0], "y": [1, 2, 3, 4]})
    found = {
        "text": (".txt", TEXT),
        "gzip": (".txt.gz", gzip.compress(TEXT)),
        "zstd": (".txt.zst", pa.compress(TEXT, "zstd", asbytes=True)),
        "csv": (".csv", _written(lambda sink: csv.write_csv(rows, sink))),
        "tsv": (".tsv", b"sequence\tx\n0\t1\n0\t2\n1\t3\n"),
        "csv.gz": (".csv.gz", gzip.compress(_written(lambda sink: csv.write_csv(rows, sink)))),
    }
    for name, table in (("lists", lists), ("words", words), ("rows", rows)):
        found[f"parquet {name}"] = (".parquet", _written(lambda s, t=table: pq.write_table(t, s)))
        found[f"arrow {name}"] = (".arrow", _ipc(table, pa.ipc.new_file))
        found[f"stream {name}"] = (".arrows", _ipc(table, pa.ipc.new_stream))
        found[f"feather {name}"] = (
            ".feather", _written(lambda s, t=table: feather.write_feather(t, s))
        )  # fmt: skip
    found["npy"] = (".npy", _npy(np.arange(8)))
    found["npy matrix"] = (".npy", _npy(np.ones((8, 2))))
    return found


def _written(write):
    sink = io.BytesIO()
    write(sink)
    return sink.getvalue()


def _ipc(table, kind):
    sink = io.BytesIO()
    with kind(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _npy(array):
    sink = io.BytesIO()
    np.save(sink, array)
    return sink.getvalue()


def make(rng):
    """Return a case: the end of a name, content, offsets of .npy files, and options."""
    kind = list(bases())[rng.randrange(len(bases()))]
    suffix, content = bases()[kind]
    if kind in ("csv", "tsv", "csv.gz") and rng.random() < 0.7:
        content = _table(rng, "\t" if kind == "tsv" else ",")
        content = gzip.compress(content, 1, mtime=0) if kind == "csv.gz" else content
    elif kind.startswith("npy") and rng.random() < 0.5:
        size = rng.choice([0, 1, 7, 8, 9, 2**31, 2**40, 2**62, 2**63, 10**30])
        header = (rng.choice(NPY_HEADERS) % size).ljust(117).encode() + b"\n"
        content = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(64)
    if rng.random() < 0.6:
        content = _damaged(rng, content)
    offsets = [0, *sorted(rng.randrange(9) for _ in range(rng.randrange(4))), 8]
    if rng.random() < 0.3:
        odd = rng.choice([-1, 2**63 - 1, -(2**63), 9, 0, 2**62])
        offsets[rng.randrange(len(offsets))] = odd
    options = {}
    if rng.random() < 0.3:
        options = rng.choice(
            [{"column": "x"}, {"column": ["x", "y"]}, {"sequence": "sequence"}, {"lower": True},
             {"sequence": "sequence", "column": "x"}, {"pattern": "[a-z]+"}, {"column": ["a", "a"]},
             {"sequence": "sequence", "column": ["x", "y"]}, {"max_bytes": 20}]
        )  # fmt: skip
    text = base64.b64encode(content).decode()
    return {"suffix": suffix, "content": text, "offsets": offsets, "options": options}


def _table(rng, comma):
    columns = [HEADERS[rng.randrange(len(HEADERS))] for _ in range(1 + rng.randrange(3))]
    lines = [columns]
    for _ in range(rng.randrange(6)):
        n = len(columns) + (rng.random() < 0.1)
        common = CELLS[: 2 + rng.randrange(len(CELLS) - 2)]
        lines.append([common[rng.randrange(len(common))] for _ in range(n)])
    return "\n".join(comma.join(line) for line in lines).encode() + b"\n"


def _damaged(rng, content):
    raw = bytearray(content)
    for _ in range(1 + rng.randrange(4)):
        if not raw:
            break
        at, what = rng.randrange(len(raw)), rng.random()
        if what < 0.5:
            raw[at] = rng.randrange(256)
        elif what < 0.65:
            del raw[at : at + 1 + rng.randrange(8)]
        elif what < 0.8:
            raw[at:at] = rng.choice([b"\0", b"\xff" * 4, b"\n", b",", b"\x80", bytes(8), b"\r"])
        elif what < 0.9:
            raw[at : at + 4] = rng.choice([b"\xff\xff\xff\x7f", b"\0\0\0\x80", bytes(4)])
        else:
            del raw[at:]
    return bytes(raw)


@cache
def folder():
    return scratch()


def run(case):
    """Open the file and read all of it."""
    path = folder() / f"data{case['suffix']}"
    path.write_bytes(base64.b64decode(case["content"]))
    if case["suffix"] == ".npy":
        np.save(folder() / "data.offsets.npy", np.array(case["offsets"], dtype=np.int64))
    options = dict(case["options"])
    source = sj.open(path, **options)
    n_sequences = n_steps = 0
    for piece in source:
        n_sequences, n_steps = n_sequences + len(piece), n_steps + piece.n_steps
        if len(piece.values) != piece.offsets[-1]:
            raise WrongError("offsets that do not end where the steps do")
    summary = source.summary
    if (summary.n_sequences, summary.n_steps) != (n_sequences, n_steps):
        raise WrongError(f"{summary} for {n_sequences} sequences of {n_steps} steps")
    return True


def warm():
    for suffix, content in bases().values():
        text = base64.b64encode(content).decode()
        case = {"suffix": suffix, "content": text, "offsets": [0, 3, 8], "options": {}}
        try:
            run(case)
        except ValueError:
            continue


PART = Part("data_files", make, run, (sj.DataFileError, ValueError, TypeError))


def soak_part(seed, **limits):
    """Run cases of this part."""
    warm()
    return soak(PART, seed, **limits)
