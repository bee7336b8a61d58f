"""The emission family of ``sojourn fit``: the one named, or one chosen from the data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sojourn.cli.data import Opened
    from sojourn.families.base import Family
    from sojourn.families.choose import Choice
    from sojourn.sequences import Sequences
    from sojourn.sources import Source
    from sojourn.vocabulary import Vocabulary


def choose(
    opened: Opened, train: Sequences | Source, wanted: str, min_count: int, max_size: int | None
) -> Choice:
    """Choose the family, and for words the vocabulary.

    Parameters
    ----------
    opened : Opened
        The data file.
    train : Sequences or Source
        The data to learn from.
    wanted : str
        Name of a family, or "auto".
    min_count : int
        Words that occur less often are dropped.
    max_size : int or None
        Maximum size of the vocabulary.
    """
    from sojourn.families import Categorical
    from sojourn.families.choose import Choice, choose_family
    from sojourn.sources import Source

    values = train.values if not isinstance(train, Source) else _sampled(train)
    is_words = values.dtype.kind in "UTO"
    if wanted == "auto":
        is_symbols = opened.is_symbols and values.dtype.kind in "iu"
        choice = choose_family(values, is_symbols=is_symbols, words=opened.source.words)
    else:
        choice = _named(wanted)
    if is_words and not isinstance(choice.family, Categorical):
        raise ValueError(f"{opened.source.name} holds words, which need --family categorical")
    if is_words:
        vocabulary = _vocabulary(train, min_count, max_size)
        return Choice(Categorical(vocabulary=vocabulary), f"words, {len(vocabulary):,} in all")
    if isinstance(choice.family, Categorical) and values.ndim == 2:
        raise ValueError("--family categorical takes one column: name it with --column")
    return choice


def _sampled(train: Source) -> NDArray[Any]:
    """Return the steps of a sample of a file."""
    from sojourn.sources.base import joined

    return joined([block.sequences for block in train.sample()]).values


def _named(wanted: str) -> Choice:
    """Return the family of that name with its defaults."""
    from sojourn.families import FAMILIES, DiagonalGaussian, Mixture, Poisson, ZeroInflated
    from sojourn.families.choose import Choice, family_name

    named: dict[str, Callable[[], Family]] = {
        family_name(name): of
        for name, of in FAMILIES.items()
        if name not in ("Product", "LinearGaussian")
    }
    # Families that another one is inside of, with the one that is asked for most.
    named |= {
        "mixture": lambda: Mixture(DiagonalGaussian()),
        "zero-inflated": lambda: ZeroInflated(Poisson()),
    }
    if wanted not in named:
        raise ValueError(f"--family {wanted} is not one of auto, {', '.join(sorted(named))}")
    return Choice(named[wanted](), "asked for")


def _vocabulary(train: Sequences | Source, min_count: int, max_size: int | None) -> Vocabulary:
    """Collect the words of the training data."""
    from sojourn.sources import Source
    from sojourn.sources.base import scan
    from sojourn.vocabulary import Vocabulary

    if isinstance(train, Source):
        vocabulary = scan(train, min_count=min_count, max_size=max_size).vocabulary
    else:
        counts = Counter(train.values.tolist())
        vocabulary = Vocabulary.from_counts(counts, min_count=min_count, max_size=max_size)
    assert vocabulary is not None
    if len(vocabulary) < 2:
        raise ValueError(
            f"no word occurs {min_count} times or more: --min-count 1 keeps those that occur once"
        )
    return vocabulary
