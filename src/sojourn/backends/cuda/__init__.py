"""A GPU by PyTorch and Triton, which are loaded only where one is asked for."""
