"""What reaches the terminal: escaped, aligned, or as JSON.

Tape content comes from models, tools and web pages.  Nothing of it may move the cursor, change
colours, retitle the window or reverse the direction of text: such characters are shown as escapes.
"""

import time
import unicodedata
from collections.abc import Sequence

import click
import msgspec

from palyra.core.text.visible import visible

_HIDDEN = frozenset({"Cc", "Cs", "Zl", "Zp"})
_DIRECTION = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_KEPT = frozenset("\n\t")
LOOK_CHARS = 5_000  # of a text of which one line is shown
MINUTE_S, HOUR_S, DAY_S = 60, 3_600, 86_400


def safe(text: str) -> str:
    """The text with everything that steers a terminal escaped; lines and tabs stay."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escape(ch) if _steers(ch) else ch for ch in text)


def _steers(char: str) -> bool:
    if char in _KEPT:
        return False
    return char in _DIRECTION or unicodedata.category(char) in _HIDDEN


def _escape(char: str) -> str:
    return f"\\u{ord(char):04x}"


def one_line(text: str, limit: int = 100) -> str:
    """The beginning of the text on one line, with nothing hidden."""
    words = " ".join(text[:LOOK_CHARS].split())
    flat = visible(words)
    is_whole = len(text) <= LOOK_CHARS and len(flat) <= limit
    return flat if is_whole else f"{flat[: limit - 1]}…"


def say(
    text: str = "",
    *,
    fg: str | None = None,
    bold: bool | None = None,
    dim: bool | None = None,
    err: bool = False,
) -> None:
    """Print a line, safely; `err` to standard error."""
    click.echo(click.style(safe(text), fg=fg, bold=bold, dim=dim), err=err)


def without_empty(found: object) -> object:
    """An object without the members that say nothing."""
    if not isinstance(found, dict):
        return found
    return {name: value for name, value in found.items() if value}


def print_json(value: object) -> None:
    """Print as indented JSON; what steers a terminal becomes an escape, which JSON reads back."""
    say(msgspec.json.format(msgspec.json.encode(_with_nulls(value))).decode())


def _with_nulls(value: object) -> object:
    """Return the value with the optional members of results present, null where there is none.

    The wire leaves such members out; a script that reads the output finds every name.
    """
    # Imported here, since `palyra --help` must start without the protocol.
    from palyra.core.session.commands import RunView  # noqa: PLC0415 - see above
    from palyra.core.usage.views import UsageView  # noqa: PLC0415 - see above
    from palyra.net.protocol.results import Result  # noqa: PLC0415 - see above

    def whole(each: object) -> object:
        match each:
            case list() | tuple():
                return [whole(item) for item in each]
            case dict():
                return {name: whole(item) for name, item in each.items()}
            case Result() | RunView() | UsageView():
                return whole(msgspec.structs.asdict(each))
            case _:
                return each

    return whole(value)


def print_json_line(value: object) -> None:
    """Print as one line of NDJSON, escaped alike."""
    say(msgspec.json.encode(value).decode())


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, empty: str) -> None:
    """Print aligned columns; the last one may be of any length."""
    if not rows:
        say(empty, dim=True)
        return
    cells = [[one_line(str(cell), 200) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    say(_align(columns, widths), bold=True)
    for row in cells:
        say(_align(row, widths))


def _align(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=True)]
    return "  ".join(padded).rstrip()


def now_ms() -> int:
    """Unix time, integer milliseconds."""
    return time.time_ns() // 1_000_000


def age(at_ms: int | None) -> str:
    """How long ago, in the unit that fits."""
    return "-" if at_ms is None else _span(now_ms() - at_ms)


def due(at_ms: int) -> str:
    """How long until then."""
    left_ms = at_ms - now_ms()
    return f"in {_span(left_ms)}" if left_ms > 0 else "over"


def _span(length_ms: int) -> str:
    length_s = max(length_ms, 0) / 1000
    for limit_s, unit_s, unit in (
        (MINUTE_S, 1, "s"),
        (HOUR_S, MINUTE_S, "min"),
        (DAY_S, HOUR_S, "h"),
    ):
        if length_s < limit_s:
            return f"{length_s / unit_s:.0f} {unit}"
    return f"{length_s / DAY_S:.0f} d"
