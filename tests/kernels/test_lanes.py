"""Vectors as values in compiled code, against NumPy."""

import numpy as np
import pytest
from numba import njit

from sojourn.kernels.cpu.lanes import LANES, ZIPPED, unzip_rows, zip_rows


@njit
def _there_and_back(columns, n, rows, back):
    none, stride = np.int64(0), np.int64(LANES)
    zip_rows(columns, none, stride, n, rows, none)
    unzip_rows(rows, none, n, back, none, stride)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_columns_become_rows_and_rows_columns(dtype):
    for n in ZIPPED:
        columns = np.random.default_rng(n).random((n, LANES)).astype(dtype)
        rows, back = np.zeros((LANES, n), dtype), np.zeros((n, LANES))
        _there_and_back(columns, n, rows, back)
        np.testing.assert_array_equal(rows, columns.T)
        np.testing.assert_array_equal(back, columns.astype(np.float64))
