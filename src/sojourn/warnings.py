"""The warnings of `fit`, as a category of their own."""


class FitWarning(UserWarning):
    """Something about a fit that works, but is seldom what was wanted.

    ``warnings.simplefilter("ignore", sojourn.FitWarning)`` silences all of them.
    """
