"""Recursions that take no time where there is no GPU, for tests of what is around them."""

import numpy as np
import torch

from sojourn.kernels import cpu, gpu
from sojourn.kernels.arrays import to_device, to_host


def _on_host(potentials, index):
    """Return potentials and index as arrays, with a row of ones for missing observations."""
    start, matrix, rows, log_scale = gpu.plain(potentials)
    rows = torch.nn.functional.pad(rows[:, : len(start)], (0, 0, 0, 1), value=1.0)
    if log_scale is not None:
        log_scale = to_host(torch.nn.functional.pad(log_scale, (0, 1)))
    factors = type(potentials)(to_host(start), to_host(matrix), to_host(rows), log_scale)
    return factors, to_host(index)


def _forward_backward(potentials, index, offsets, *, absences=False, n_threads=1, order=None):
    factors, places = _on_host(potentials, index)
    found = cpu.forward_backward(factors, places, to_host(offsets), absences=absences, n_threads=1)
    return to_device(found, index.device)


def _log_normalizers(potentials, index, offsets, *, n_threads=1):
    factors, places = _on_host(potentials, index)
    found = cpu.log_normalizers(factors, places, to_host(offsets), n_threads=1)
    return to_device(np.ascontiguousarray(found), index.device)


def use_quick_recursions(monkeypatch):
    """Have the CPU's kernel run them where Triton's interpreter would take seconds a minibatch.

    Other tests hold the GPU's own to the reference.  Where there is a GPU nothing changes.
    """
    if gpu.INTERPRETED:
        monkeypatch.setattr(gpu, "forward_backward", _forward_backward)
        monkeypatch.setattr(gpu, "log_normalizers", _log_normalizers)
