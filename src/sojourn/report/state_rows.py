"""The table of states: one row each, which opens where there is more to see."""

from __future__ import annotations

from sojourn.report.examples import Context
from sojourn.report.figures import color_class
from sojourn.report.gather import Contents
from sojourn.report.markup import Markup, join, tag
from sojourn.report.profile import Profile
from sojourn.report.profile_figures import telling_columns
from sojourn.report.states import StateSummary, Symbol
from sojourn.report.text import measured, percent

_TEXT_COLUMNS = 4  # columns whose parameters are written out in the row


def state_table(contents: Contents) -> Markup:
    """Return the states in use, the largest first."""
    largest = max(entry.share for entry in contents.states)
    rows = [_state_row(contents, entry, largest) for entry in contents.states]
    return tag("div", *rows, class_="states", role="list")


def _state_row(contents: Contents, entry: StateSummary, largest: float) -> Markup:
    kind = color_class(contents, entry.state)
    bar = tag(
        "svg",
        tag("rect", x=0, y=0, width=100.0, height=6, rx=3, class_="track"),
        tag("rect", x=0, y=0, width=max(100.0 * entry.share / largest, 1.5), height=6, rx=3,
            class_=f"bar {kind}"),
        viewBox="0 0 100 6", class_="share", aria_hidden="true", preserveAspectRatio="none",
    )  # fmt: skip
    inside = _inside(contents, entry.state)
    summary = join(
        tag("span", str(entry.state), class_=f"badge {kind}"),
        tag("span", f"{entry.share:.1%}", bar, class_="size"),
        _what(contents, entry),
        tag("span", f"lasts {entry.stay} steps", tag("br"), f"next: state {entry.following}",
            class_="then"),
        tag("span", "", class_="mark-open", aria_hidden="true") if inside is not None else None,
    )  # fmt: skip
    if inside is None:
        return tag("div", summary, class_="state", role="listitem", data_state=entry.state)
    return tag(
        "details",
        tag("summary", summary, class_="state"),
        inside,
        role="listitem", data_state=entry.state,
    )  # fmt: skip


def _what(contents: Contents, entry: StateSummary) -> Markup:
    """Return what tells a state apart."""
    given = contents.given_name(entry.state)
    name = tag("b", given, class_="given") if given else None
    symbols = contents.symbols[entry.state]
    if symbols:
        return tag("span", name, *map(_chip, symbols), class_="chips")
    if _is_wide(contents.profile):
        assert contents.profile is not None
        chips = [
            tag("span", text, class_=f"chip l{level}", data_tip=tip)
            for text, level, tip in telling_columns(contents.profile, entry.state)
        ]
        return tag("span", name, *chips, class_="chips")
    return tag("span", name, " " if given else None, entry.text, class_="parameters")


def _inside(contents: Contents, state: int) -> Markup | None:
    """Return what a row opens to: examples in context, or all columns."""
    contexts = contents.decoded.contexts[state] if contents.decoded else []
    if contexts:
        return tag("table", *map(_context, contexts), class_="contexts")
    if not _is_wide(contents.profile):
        return None
    assert contents.profile is not None
    profile = contents.profile
    values = zip(profile.names, profile.means[state], profile.spreads[state], strict=True)
    items = [
        tag("div", tag("span", name), tag("b", measured(float(mean), float(spread))))
        for name, mean, spread in values
        if mean == mean  # a state without a step has no means
    ]
    return tag("div", *items, class_="all-columns")


def _is_wide(profile: Profile | None) -> bool:
    return profile is not None and len(profile.names) > _TEXT_COLUMNS


def _chip(symbol: Symbol) -> Markup:
    level = min(4, int(symbol.probability * 12.0))
    tip = f"{symbol.word}: {percent(symbol.probability)} here, {percent(symbol.overall)} overall"
    kind = f"chip l{level}" if symbol.is_known else "chip unknown"
    return tag("span", symbol.word, class_=kind, data_tip=tip)


def _context(context: Context) -> Markup:
    return tag(
        "tr", tag("td", context.before), tag("td", tag("b", context.word)), tag("td", context.after)
    )
