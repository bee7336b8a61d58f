"""What must be settled before tests are collected: whether there is a GPU, and PyTorch at all."""

import importlib.util
import os

HAS_TORCH = all(importlib.util.find_spec(name) for name in ("torch", "triton"))

# Modules that are tensors all through; `make test-gpu` installs what they need.
collect_ignore = (
    []
    if HAS_TORCH
    else [
        "src/sojourn/families/device.py",
        "src/sojourn/inference/device.py",
        "src/sojourn/kernels/gpu.py",
        "src/sojourn/kernels/gpu_device.py",
        "src/sojourn/kernels/gpu_padded.py",
        "src/sojourn/kernels/gpu_tiles.py",
        "src/sojourn/kernels/gpu_wide.py",
        "src/sojourn/kernels/gpu_wide_device.py",
        "tests/support/quick.py",
    ]
)

if HAS_TORCH:
    import torch

    if not torch.cuda.is_available():
        # Before Triton is loaded: the kernels then run on the CPU, slowly.
        os.environ.setdefault("TRITON_INTERPRET", "1")
