"""What a training has proposed."""


def moves_of(model):
    """Return every proposal in the order of training, accepted or not."""
    return [move for entry in model.history_ for move in entry["moves"]]
