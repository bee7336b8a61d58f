"""Stand-ins where there is no GPU, for tests of what is around them."""

from dataclasses import fields, is_dataclass

import numpy as np
import torch

from sojourn.backends.cuda import graphs
from sojourn.kernels import cpu, cuda
from sojourn.kernels.arrays import to_device, to_host
from sojourn.kernels.cuda import recursions


def _on_host(potentials, index):
    """Return potentials and index as arrays, with a row of ones for missing observations."""
    start, matrix, rows, log_scale = cuda.plain(potentials)[:4]
    rows = torch.nn.functional.pad(rows[:, : len(start)], (0, 0, 0, 1), value=1.0)
    if log_scale is not None:
        log_scale = to_host(torch.nn.functional.pad(log_scale, (0, 1)))
    factors = type(potentials)(to_host(start), to_host(matrix), to_host(rows), log_scale)
    return factors, to_host(index)


def _forward_backward(
    potentials, index, offsets, *, squares=False, summed=False, order=None, n_threads=1
):
    n_steps = int(offsets[-1])  # the index may be longer
    factors, places = _on_host(potentials, index[:n_steps])
    found = cpu.forward_backward(factors, places, to_host(offsets), squares=squares, n_threads=1)
    rows = np.pad(found.responsibilities, ((0, len(index) - n_steps), (0, 0)))
    return to_device(found._replace(responsibilities=rows), index.device)


def _log_normalizers(potentials, index, offsets, *, n_threads=1):
    factors, places = _on_host(potentials, index)
    found = cpu.log_normalizers(factors, places, to_host(offsets), n_threads=1)
    return to_device(np.ascontiguousarray(found), index.device)


def use_quick_recursions(monkeypatch):
    """Have the CPU's kernel run them where Triton's interpreter would take seconds a minibatch.

    Other tests hold the GPU's own to the reference.  Where there is a GPU nothing changes.
    """
    if cuda.INTERPRETED:
        for module in (cuda, recursions):
            monkeypatch.setattr(module, "forward_backward", _forward_backward)
            monkeypatch.setattr(module, "log_normalizers", _log_normalizers)


class _Graph:
    """What a CUDA graph does, one launch after another: the same places, with new numbers."""

    def __init__(self, run, restore):
        run()
        restore()
        self._run, self.result = run, run()
        restore()

    def replay(self):
        new = list(_tensors(self._run()))
        for one, other in zip(new, _tensors(self.result), strict=True):
            other.copy_(one)


def _tensors(value):
    """Yield every tensor in a value, in a fixed order."""
    if isinstance(value, torch.Tensor):
        yield value
    elif is_dataclass(value):
        for field in fields(value):
            yield from _tensors(getattr(value, field.name))
    elif isinstance(value, dict):
        yield from _tensors(tuple(value.values()))
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _tensors(part)


def _recorded(run, restore, rehearse=None, beside=(), *, is_first=True):
    if rehearse is not None:  # there it is noted, and not run
        rehearse()
        restore()
    graph = _Graph(run, restore)
    return graph, graph.result


def use_recordings(monkeypatch):
    """Record steps without a GPU too, by running them again into the same places."""
    if cuda.INTERPRETED:
        monkeypatch.setattr(graphs, "can_record", lambda device: True)
        monkeypatch.setattr(graphs, "_recorded", _recorded)
