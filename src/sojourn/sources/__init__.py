"""Where minibatches come from."""

from sojourn.sources.memory import MemorySource

__all__ = ["MemorySource"]
