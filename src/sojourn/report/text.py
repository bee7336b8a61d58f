"""Numbers and names as a person reads them."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_NOTHING = 5e-4  # a probability that would be 0.0%
_TAIL = 7  # characters that are kept at the end of a name that is too long


def readable(value: float, scale: float = 1.0) -> str:
    """Write a number with three digits that matter, and never as 8.48e-06.

    Parameters
    ----------
    value : float
    scale : float
        Size of the numbers beside it: a thousandth of it is the last place, and what is smaller
        is as good as zero.

    Examples
    --------
    >>> [readable(value) for value in (8.48e-06, 0.0, 0.5, -1.2345, 12345.6, 3.2e9)]
    ['≈ 0', '0', '0.5', '−1.23', '12,346', '3.2×10⁹']
    >>> readable(8.48e-06, scale=1e-5), readable(0.000646)
    ('8.48×10⁻⁶', '0.001')
    """
    if not math.isfinite(value):
        return "∞" if value > 0 else ("−∞" if value < 0 else "–")
    size = abs(value)
    if size == 0.0:
        return "0"
    power = math.floor(math.log10(size))
    last = 3 - math.floor(math.log10(scale)) if scale > 0.0 else 2 - power
    if size < 0.5 * 10.0**-last:
        return "≈ 0"
    if power >= 6 or max(size, scale) < 1e-4:
        mantissa = f"{value / 10.0**power:.2f}".rstrip("0").rstrip(".")
        return signed(f"{mantissa}×10{str(power).translate(_SUPERSCRIPTS)}")
    text = f"{value:,.{max(0, min(2 - power, last))}f}"
    return signed(text.rstrip("0").rstrip(".") if "." in text else text)


def measured(mean: float, spread: float) -> str:
    """Write a mean to the place that its spread makes sense of.

    Examples
    --------
    >>> measured(0.00016, 0.79), measured(1234.567, 21.0), measured(2.0, 0.0)
    ('0.00 ± 0.79', '1,235 ± 21', '2 ± 0')
    >>> measured(1.23e-7, 4.5e-8)
    '1.23×10⁻⁷ ± 4.5×10⁻⁸'
    """
    if not 1e-4 <= spread < 1e6:
        return f"{readable(mean, abs(mean))} ± {readable(spread, spread)}"
    places = max(0, 1 - math.floor(math.log10(spread)))
    return signed(f"{mean:,.{places}f} ± {spread:,.{places}f}")


def signed(text: str) -> str:
    """Write numbers with a true minus sign.

    Examples
    --------
    >>> signed("-1.5")
    '−1.5'
    """
    return text.replace("-", "−")


def percent(p: float) -> str:
    """Write a probability as a percentage.

    Examples
    --------
    >>> percent(0.5), percent(0.0123), percent(1e-6)
    ('50%', '1.2%', '≈ 0%')
    """
    if 0.0 < p < _NOTHING:
        return "≈ 0%"
    return f"{100.0 * p:.1f}%" if p < 0.0995 else f"{100.0 * p:.0f}%"


def columns_of(text: str) -> int:
    """Return how many letters wide a text is: those of East Asia are two, accents none.

    Examples
    --------
    >>> columns_of("abc"), columns_of("日本")
    (3, 4)
    """
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )


def shortened(names: Sequence[str], most: int = 24) -> list[str]:
    """Shorten names in the middle, where they are too long, so that all remain different.

    Examples
    --------
    >>> shortened(["lowerback.rx", "lowerback.ry"], 10)
    ['lo…back.rx', 'lo…back.ry']
    >>> shortened(["a" * 30, "a" * 31], 12)
    ['aaaa…aaaaaaa', 'aaaa…aaaaa·2']
    """
    found: list[str] = []
    for name in names:
        short = name if columns_of(name) <= most else _middle_out(name, most)
        n = 1
        while short in found and name not in names[: len(found)]:
            n += 1
            mark = f"·{n}"
            short = _middle_out(name, most)[: most - len(mark)] + mark
        found.append(short)
    return found


def _middle_out(name: str, most: int) -> str:
    tail = min(_TAIL, most // 2 + 2)
    end = name[-tail:]
    while columns_of(end) > tail:
        end = end[1:]
    room = most - 1 - columns_of(end)
    head = ""
    for character in name:
        if columns_of(head + character) > room:
            break
        head += character
    return f"{head}…{end}"
