"""Formulas in docstrings, for the reference: LaTeX to MathML, which browsers show by themselves."""

from __future__ import annotations

import re
import textwrap
from typing import Any

import griffe
from latex2mathml.converter import convert

_BLOCK = re.compile(r"^( *)\.\. math::\n\n((?:\1 +.*\n|\n)+)", re.MULTILINE)


def _as_mathml(match: re.Match[str]) -> str:
    latex = " ".join(textwrap.dedent(match.group(2)).split())
    return f'{match.group(1)}<div class="formula">{convert(latex, display="block")}</div>\n\n'


class Formulas(griffe.Extension):
    """Turn ``.. math::`` blocks of every docstring into MathML."""

    def on_object(self, *, obj: Any, **kwargs: Any) -> None:
        """Look at one object of the package."""
        if obj.docstring is not None:
            obj.docstring.value = _BLOCK.sub(_as_mathml, obj.docstring.value + "\n")
