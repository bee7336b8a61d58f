"""Text to run the experiments on: sentences to learn from and sentences held out."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sojourn.demo import documentation_sentences
from sojourn.sequences import Sequences
from sojourn.vocabulary import Vocabulary

_HELD_OUT = 0.1


class Corpus(NamedTuple):
    """Encoded sentences.

    Attributes
    ----------
    name : str
    vocabulary : Vocabulary
        Every word of both parts: a word unseen in training is scored by what the prior leaves it.
    train, held_out : Sequences
    """

    name: str
    vocabulary: Vocabulary
    train: Sequences
    held_out: Sequences

    def fingerprint(self) -> str:
        """Return a digest of all symbols."""
        digest = hashlib.sha256()
        for part in (self.train, self.held_out):
            digest.update(part.offsets.tobytes())
            digest.update(np.ascontiguousarray(part.values).tobytes())
        return digest.hexdigest()

    def described(self) -> dict[str, int | float | str]:
        """Say how large it is."""
        is_new = ~np.isin(self.held_out.values, self.train.values)
        return {
            "name": self.name,
            "sentences": len(self.train),
            "tokens": self.train.n_steps,
            "held_out_sentences": len(self.held_out),
            "held_out_tokens": self.held_out.n_steps,
            "words": len(self.vocabulary),
            "held_out_tokens_unseen_in_training": round(float(is_new.mean()), 4),
        }


def read_corpus(path: Path | None) -> Corpus:
    """Read a text file, a folder with its parts, or, without a path, the embedded text.

    A file has one sentence per line, of which a random tenth is held out.  A folder has
    ``train.txt``, optionally ``dev.txt``, which is learned from too, and ``test.txt``.  Words are
    separated by whitespace and lower-cased.  The embedded text is Python's own documentation.

    Examples
    --------
    >>> corpus = read_corpus(None)
    >>> len(corpus.train) > 8 * len(corpus.held_out)
    True
    """
    if path is not None and path.is_dir():
        train = read_sentences(path / "train.txt")
        if (path / "dev.txt").exists():
            train += read_sentences(path / "dev.txt")
        return _encoded(path.name, train, read_sentences(path / "test.txt"))
    if path is None:
        name, sentences = "Python's documentation", documentation_sentences()
    else:
        name, sentences = path.stem, read_sentences(path)
    if len(sentences) < 2:
        raise ValueError(f"{name} has {len(sentences)} sentences: too few to hold some out")
    order = np.random.default_rng(0).permutation(len(sentences))
    n_held_out = max(1, int(_HELD_OUT * len(sentences)))
    parts = [sentences[i] for i in order[n_held_out:]], [sentences[i] for i in order[:n_held_out]]
    return _encoded(name, *parts)


def read_sentences(path: Path) -> list[list[str]]:
    """Read the sentences of a file, lower-cased, without empty lines."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [line.lower().split() for line in lines if line.split()]


def _encoded(name: str, train: list[list[str]], held_out: list[list[str]]) -> Corpus:
    vocabulary = Vocabulary.from_sequences(train + held_out, unknown=None)
    return Corpus(name, vocabulary, vocabulary.encode(train), vocabulary.encode(held_out))
