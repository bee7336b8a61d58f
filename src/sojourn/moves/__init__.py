"""Moves: merge, split, delete and restart states, judged by the bound."""
