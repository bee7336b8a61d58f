"""Sources of data and of minibatches."""

from sojourn.sources.base import DataFileError, Minibatches, Source
from sojourn.sources.memory import MemorySource
from sojourn.sources.open import open
from sojourn.sources.remembering import RememberingSource
from sojourn.sources.shuffle import ShuffledSource
from sojourn.sources.tiles import TiledSource

__all__ = [
    "DataFileError",
    "MemorySource",
    "Minibatches",
    "RememberingSource",
    "ShuffledSource",
    "Source",
    "TiledSource",
    "open",
]
