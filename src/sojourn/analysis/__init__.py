"""What is computed from a fitted model beyond score and path: now, next, and how sure.

Functions here take a posterior, a family and data; `sojourn.prediction.FittedModel` calls them.
"""
