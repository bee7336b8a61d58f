"""Where minibatches come from."""

from sojourn.sources.memory import MemorySource
from sojourn.sources.remembering import RememberingSource

__all__ = ["MemorySource", "RememberingSource"]
