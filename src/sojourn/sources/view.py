"""A source that reads from another one, and says of its data what that says."""

from __future__ import annotations

from collections.abc import Mapping

from sojourn.sources.base import Source
from sojourn.vocabulary import Vocabulary


class SourceView(Source):
    """Base class of sources that give part of another one, or the same in another form.

    Parameters
    ----------
    whole : Source
    """

    def __init__(self, whole: Source) -> None:
        super().__init__(whole.paths)
        self.whole = whole

    @property
    def n_blocks(self) -> int:
        """Number of blocks, the same as of the other source."""
        return self.whole.n_blocks

    @property
    def name(self) -> str:
        """Name of the source in messages."""
        return self.whole.name

    @property
    def words(self) -> Mapping[int, Vocabulary]:
        """Words of the symbols in columns of vectors, by the number of the column."""
        return self.whole.words

    @property
    def vocabulary(self) -> Vocabulary | None:
        """The words of the symbols, if the file contains them."""
        return self.whole.vocabulary

    @property
    def has_labels(self) -> bool:
        """Whether steps have labels."""
        return self.whole.has_labels

    @property
    def has_weights(self) -> bool:
        """Whether sequences have weights."""
        return self.whole.has_weights
