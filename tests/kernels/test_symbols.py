"""Compiled work on tables with one row per symbol."""

import numpy as np

from sojourn.kernels.cpu import symbols


def test_numbers_of_symbols_begin_again_when_they_are_used_up(monkeypatch):
    rng = np.random.default_rng(0)
    batches = [rng.integers(1000, size=n).astype(np.int32) for n in (1, 90, 300, 7, 200, 999)]
    monkeypatch.setattr(symbols, "_MOST_NUMBERS", 1500)
    monkeypatch.setattr(symbols, "_slots", symbols._Slots())
    for n_symbols in (1000, 2000, 1000):
        for batch in batches:
            present, index = symbols.distinct(batch, n_symbols)
            assert (present[index] == batch).all()
            assert len(np.unique(present)) == len(present)
            _, first = np.unique(batch, return_index=True)
            assert present.tolist() == batch[np.sort(first)].tolist()
