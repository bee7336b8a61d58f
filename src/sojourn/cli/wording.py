"""Messages of the library in the words of the command line: options, not arguments of Python."""

from __future__ import annotations

import re

_OPTIONS = {
    "n_states": "--states", "n_passes": "--passes", "batch_size": "--batch-size",
    "forgetting_rate": "--forgetting-rate", "n_init": "--restarts", "inference": "--inference",
    "stickiness": "--stickiness", "init_states": "--init-states", "device": "--device",
    "n_jobs": "--jobs", "random_state": "--seed", "column": "--column", "sequence": "--sequence",
    "time": "--time", "drop": "--drop", "missing": "--missing", "encoding": "--encoding",
    "pattern": "--pattern", "lower": "--lower", "max_bytes": "--max-bytes",
    "min_count": "--min-count", "max_size": "--max-size", "checkpoint": "--checkpoint",
    "n_sequences": "--sequences", "length": "--length", "lag": "--lag",
    "client": "--cluster",
}  # fmt: skip
"""Arguments of Python, and the options that stand for them."""

_PHRASES = [
    (r"; sj\.open\(.*, sequence=False\) reads a column as one sequence", ""),
    (r"overwrite=True", "--force"),
    (r"resume=True", "--resume"),
    (r"moves=['\"]auto['\"]", "--moves"),
    (r"moves=None", "--no-moves"),
    (r"sequence=False", "one row per step without --sequence"),
    (r"or another file given as offsets=; with", "with"),
    (r"; if they are measurements, pass X\.astype\(float\)", ""),
    (r", or pass sj\.open\(path\)\.read_all\(\) to get them in memory", ""),
    (r": sj\.open\(path\)\.read_all\(\)", ""),
    (r"give n_passes for more of them, or a larger tol", "--passes gives more of them"),
    (r"tol=(\S+)", r"\1"),
    (r"n_symbols=(\S+?)([,;:.)]*)(?=\s|$)", r"\1 symbols\2"),
    (r"n_symbols or a vocabulary", "--min-count or --max-size"),
    (r"tile_length=None", "another --inference"),
    (r"describe it by Categorical\(\) in a Product", "--family auto"),
]
"""What has no option of its own, in words."""

_NAMES = "|".join(sorted(_OPTIONS, key=len, reverse=True))
_WITH_VALUE = re.compile(rf"(?<![\w.-])({_NAMES})=((?:'[^']*'|\"[^\"]*\"|[\w.+-]+)?)")
_ALONE = re.compile(
    r"(?<![\w.-])(n_states|n_passes|batch_size|forgetting_rate|n_init|init_states|"
    r"max_bytes|min_count|max_size|n_jobs|random_state)(?![\w=])"
)


def in_options(message: str) -> str:
    """Say a message of the library in the words of the command line.

    Examples
    --------
    >>> in_options("try n_states=40, or a smaller batch_size")
    'try --states 40, or a smaller --batch-size'
    >>> in_options("encoding='latin-1' reads it")
    '--encoding latin-1 reads it'
    """
    for pattern, words in _PHRASES:
        message = re.sub(pattern, words, message)

    def with_value(found: re.Match[str]) -> str:
        name, value = found.groups()
        value = value.strip("'\"") if value else ""
        if re.search(r"[^\w.+-]", value):
            value = f"'{value}'"
        return f"{_OPTIONS[name]} {value}".rstrip()

    message = _WITH_VALUE.sub(with_value, message)
    return _ALONE.sub(lambda found: _OPTIONS[found.group(1)], message)
