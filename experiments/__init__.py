"""Experiments on corpora: one module an experiment, results in results/."""
