"""HTML and SVG in which other people's words are always text."""

from __future__ import annotations

import html
import json
from typing import Any

_EMPTY = {"meta", "br", "circle", "line", "path", "polyline", "rect"}


class Markup(str):
    """Text that is markup already; only `tag` and `join` make it."""

    __slots__ = ()


def tag(name: str, /, *children: str | None, **attributes: Any) -> Markup:
    """Make an element; whatever is not `Markup` is escaped.

    Parameters
    ----------
    name : str
    *children : str
        None is left out.
    **attributes
        ``class_`` is the class, other underscores are hyphens; None is left out.

    Examples
    --------
    >>> tag("b", "<i>", class_="x", data_tip='"')
    '<b class="x" data-tip="&quot;">&lt;i&gt;</b>'
    """
    named = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_number(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    inside = "".join(escape(child) for child in children if child is not None)
    if name in _EMPTY:
        return Markup(f"<{name}{named}/>")
    return Markup(f"<{name}{named}>{inside}</{name}>")


def join(*children: str | None) -> Markup:
    """Put pieces one after another, escaped where they are not markup."""
    return Markup("".join(escape(child) for child in children if child is not None))


def escape(text: str) -> Markup:
    """Make text of whatever it is; characters that no document may hold become U+FFFD."""
    if isinstance(text, Markup):
        return text
    return Markup(html.escape("".join(map(_allowed, text)), quote=True))


def _allowed(character: str) -> str:
    point = ord(character)
    is_control = (point < 0x20 and character not in "\t\n") or 0x7F <= point < 0xA0
    is_surrogate = 0xD800 <= point < 0xE000 or point & 0xFFFE == 0xFFFE
    turns_text = 0x202A <= point <= 0x202E or 0x2066 <= point <= 0x2069  # could hide what follows
    return "\ufffd" if is_control or is_surrogate or turns_text else character


def json_script(value: Any, identifier: str) -> Markup:
    r"""Make a script element that holds data; nothing in it can end the element.

    Examples
    --------
    >>> json_script({"word": "</script>"}, "data")
    '<script type="application/json" id="data">{"word": "\\u003c/script\\u003e"}</script>'
    """
    text = json.dumps(value, allow_nan=False)  # in ASCII: U+2028 and U+2029 are escaped too
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(f'<script type="application/json" id="{escape(identifier)}">{text}</script>')


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
