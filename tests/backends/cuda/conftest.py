"""Through Triton's interpreter tensors are in memory, where NumPy would take them silently."""

import pytest


@pytest.fixture(autouse=True)
def tensors_as_on_a_gpu(monkeypatch):
    """Refuse what a GPU refuses: that NumPy reads a tensor which nobody has fetched."""
    torch = pytest.importorskip("torch")

    def refused(self, dtype=None, copy=None):
        raise TypeError("on a GPU this tensor would have to be fetched first")

    monkeypatch.setattr(torch.Tensor, "__array__", refused)
