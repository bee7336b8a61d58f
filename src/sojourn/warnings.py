"""The warning category of `fit`."""


class FitWarning(UserWarning):
    """Warning about a fit that succeeded, but is probably not what was intended.

    ``warnings.simplefilter("ignore", sojourn.FitWarning)`` silences all of them.
    """
