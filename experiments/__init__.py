"""Experiments on corpora: one module per experiment, results in results/."""
