"""A corpus folder: one sentence per line, tokens separated by spaces."""

from __future__ import annotations

import argparse
from pathlib import Path

import sojourn as sj
from experiments.reproduce.corpus import read_sentences


def read_corpus(folder: Path) -> tuple[sj.Vocabulary, sj.Sequences, sj.Sequences]:
    """Read train and dev (if there) against test, with one vocabulary for all of them."""
    train = read_sentences(folder / "train.txt")
    if (folder / "dev.txt").exists():
        train += read_sentences(folder / "dev.txt")
    test = read_sentences(folder / "test.txt")
    vocabulary = sj.Vocabulary.from_sequences(train + test, unknown=None)
    return vocabulary, vocabulary.encode(train), vocabulary.encode(test)


def corpus_argument(description: str) -> argparse.ArgumentParser:
    """Make a parser that takes the folder."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "corpus", type=Path, help="folder with train.txt, test.txt and perhaps dev.txt"
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--passes", type=int, default=10)
    return parser
