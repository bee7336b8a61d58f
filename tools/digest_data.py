"""Small data sets for every family, and files with them, for `tools.digests`."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import sojourn as sj


class Data(NamedTuple):
    """A family and data for it."""

    emission: Any
    X: sj.Sequences


class Example(NamedTuple):
    """How to make a family, how to draw its data given the states, and what may be missing."""

    emission: Callable[[], Any]
    draw: Callable[[np.random.Generator, Any], Any]
    missing: str = "entries"


def _autoregression(rng: np.random.Generator, z: Any) -> Any:
    noise = rng.normal(size=(z.size, 2))
    coefs = np.array([0.9, -0.7, 0.1])[z]
    x = np.zeros_like(noise)
    for t in range(1, z.size):
        x[t] = coefs[t] * x[t - 1] + noise[t]
    return x + 3.0


def _regression(rng: np.random.Generator, z: Any) -> Any:
    covariates = rng.normal(2.0, 1.5, (z.size, 2))
    coefs = np.array([[1.0, -1.0], [0.5, 2.0], [-2.0, 0.0]])[z]
    targets = (covariates * coefs).sum(axis=1) + rng.normal(scale=0.3, size=z.size)
    return np.column_stack([targets, covariates])


def _real(rng: np.random.Generator, z: Any) -> Any:
    means = np.array([[0.0, 5.0, 1.0], [4.0, 4.0, 0.0], [-3.0, 0.0, 2.0]])
    noise = rng.normal(size=(z.size, 3))
    return means[z] + noise * [0.5, 1.0, 1.5] + noise[:, :1] * 0.4


def _by_state(*rows: Any) -> Callable[[Any], Any]:
    return lambda z: np.array(rows)[z]


_COUNTS = _by_state([0.5, 9.0], [4.0, 1.0], [15.0, 5.0])
_CHANCES = _by_state([0.1, 0.5, 0.8], [0.7, 0.2, 0.1], [0.4, 0.9, 0.5])
_SHARES = _by_state([0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6])

EXAMPLES = {
    "Categorical": Example(
        lambda: sj.Categorical(7),
        lambda rng, z: (2 * z + rng.integers(3, size=z.size)) % 7,
        "symbols",
    ),
    "Bernoulli": Example(
        lambda: sj.Bernoulli(),
        lambda rng, z: (rng.random((z.size, 3)) < _CHANCES(z)).astype(float),
    ),
    "Poisson": Example(lambda: sj.Poisson(), lambda rng, z: rng.poisson(_COUNTS(z)).astype(float)),
    "Geometric": Example(
        lambda: sj.Geometric(), lambda rng, z: rng.geometric(_CHANCES(z)).astype(float)
    ),
    "NegativeBinomial": Example(
        lambda: sj.NegativeBinomial(dispersion=[0.7, 3.0, 1.0]),
        lambda rng, z: rng.negative_binomial([0.7, 3.0, 1.0], _CHANCES(z)).astype(float),
    ),
    "Multinomial": Example(
        lambda: sj.Multinomial(),
        lambda rng, z: rng.multinomial(rng.integers(0, 9, z.size), _SHARES(z)).astype(float),
        "rows",
    ),
    "Exponential": Example(
        lambda: sj.Exponential(), lambda rng, z: rng.exponential(_COUNTS(z)) + 1e-9
    ),
    "Gamma": Example(
        lambda: sj.Gamma(shape=[0.6, 4.0]),
        lambda rng, z: rng.gamma([0.6, 4.0], _COUNTS(z)) + 1e-9,
    ),
    "LogNormal": Example(lambda: sj.LogNormal(), lambda rng, z: np.exp(_real(rng, z))),
    "Gaussian": Example(lambda: sj.Gaussian(), _real, "rows"),
    "Gaussian of one column": Example(
        lambda: sj.Gaussian(), lambda rng, z: _real(rng, z)[:, 0], "symbols"
    ),
    "DiagonalGaussian": Example(lambda: sj.DiagonalGaussian(), _real),
    "SphericalGaussian": Example(lambda: sj.SphericalGaussian(), _real),
    "ZeroMeanGaussian": Example(
        lambda: sj.ZeroMeanGaussian(),
        lambda rng, z: rng.normal(size=(z.size, 2)) * _by_state([0.3], [2.0], [9.0])(z),
        "rows",
    ),
    "LinearGaussian": Example(lambda: sj.LinearGaussian(n_targets=1), _regression, "targets"),
    "AutoregressiveGaussian": Example(lambda: sj.AutoregressiveGaussian(), _autoregression, "rows"),
    "AutoregressiveGaussian of order 2": Example(
        lambda: sj.AutoregressiveGaussian(order=2), _autoregression, "rows"
    ),
    "Product": Example(
        lambda: sj.Product(sj.DiagonalGaussian(3), sj.Poisson(2), sj.Categorical(3), sj.Gamma()),
        lambda rng, z: np.column_stack(
            [
                _real(rng, z),
                rng.poisson(_COUNTS(z)),
                (z + rng.integers(2, size=z.size)) % 3,
                rng.gamma(1.0, 1.0 + 4.0 * z) + 1e-9,
            ]
        ),
    ),
    "Product of two": Example(
        lambda: sj.Product(sj.Gaussian(3), sj.Categorical(3)),
        lambda rng, z: np.column_stack([_real(rng, z), (z + rng.integers(2, size=z.size)) % 3]),
        "rows",
    ),
    "Categorical of many symbols": Example(
        lambda: sj.Categorical(3000),
        lambda rng, z: 1000 * z + rng.integers(1000, size=z.size) ** 2 // 1000,
        "symbols",
    ),
}


def _states(rng: np.random.Generator, n: int) -> Any:
    """Draw states that last some steps."""
    return np.repeat(rng.integers(3, size=n), rng.integers(1, 9, n))[:n]


@cache
def data(
    name: str, *, missing: bool = False, n: int = 40, longest: int = 40, seed: int = 0
) -> Data:
    """Return an example's family, and `n` sequences of up to `longest` steps."""
    example = EXAMPLES[name]
    rng = np.random.default_rng([seed, n, longest, *name.encode()])
    lengths = rng.integers(3 if n > 1 else longest, longest + 1, n)
    values = np.asarray(example.draw(rng, _states(rng, int(lengths.sum()))))
    if missing:
        rows = rng.random(len(values)) < 0.1
        if example.missing == "entries":
            values[rng.random(values.shape) < 0.1] = np.nan
        elif example.missing == "rows":
            values[rows] = np.nan
        elif example.missing == "targets":
            values[rows, 0] = np.nan
        else:
            values[rows] = np.nan if values.dtype.kind == "f" else -1
    return Data(example.emission(), sj.Sequences.from_lengths(values, lengths))


def words_of(X: sj.Sequences) -> list[list[str]]:
    """Return the symbols as words."""
    return [[f"w{symbol}" for symbol in sequence] for sequence in X]


# ---- files --------------------------------------------------------------------------------------


def write_parquet(folder: Path, X: sj.Sequences) -> Path:
    """Write sequences in row groups of 16, or of 1,024 where there are many."""
    path = folder / "data.parquet"
    table = pa.table({"symbols": pa.array([sequence.tolist() for sequence in X])})
    pq.write_table(table, path, row_group_size=1024 if len(X) > 1000 else 16)
    return path


def write_columns(folder: Path, X: sj.Sequences) -> Path:
    """Write each column of vectors as a list column."""
    path = folder / "columns.parquet"
    columns = {
        f"x{i}": pa.array([sequence[:, i].tolist() for sequence in X])
        for i in range(X.values.shape[1])
    }
    pq.write_table(pa.table(columns), path, row_group_size=16)
    return path


def write_npy(folder: Path, X: sj.Sequences) -> Path:
    """Write all steps, and the offsets beside them."""
    path = folder / "data.npy"
    np.save(path, X.values)
    np.save(path.with_name("data.offsets.npy"), X.offsets)
    return path


def write_text(folder: Path, X: sj.Sequences) -> Path:
    """Write words, one sequence per line."""
    path = folder / "data.txt"
    path.write_text("".join(" ".join(words) + "\n" for words in words_of(X)))
    return path


def write_csv(folder: Path, X: sj.Sequences) -> Path:
    """Write one row per step."""
    path = folder / "data.csv"
    rows = [f"{n},{value}" for n, sequence in enumerate(X) for value in sequence]
    path.write_text("\n".join(["id,symbol", *rows]) + "\n")
    return path


def write_folder(folder: Path, X: sj.Sequences) -> Path:
    """Write three files to one folder."""
    folder = folder / "many"
    folder.mkdir()
    for n in range(3):
        write_parquet(folder, X[n * len(X) // 3 : (n + 1) * len(X) // 3]).rename(
            folder / f"{n}.parquet"
        )
    return folder
