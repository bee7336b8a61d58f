"""Backends: the CPU of this machine, a GPU, or a Dask cluster."""
