"""The GPU backend, on PyTorch and Triton, which are imported only if it is used."""
