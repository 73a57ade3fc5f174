"""Printing to the terminal: escaped lines, aligned tables and JSON.

Tape content comes from models, tools and web pages and is untrusted.  It must not move the cursor,
change colours, set the window title or reverse the direction of text.  Control and direction
characters are therefore printed as escapes.
"""

import os
import time
import unicodedata
from collections.abc import Sequence

import click
import msgspec

from palyra.cli.last_listing import remember_listing
from palyra.core.text.visible import visible

_HIDDEN = frozenset({"Cc", "Cs", "Zl", "Zp"})
_DIRECTION = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_KEPT = frozenset("\n\t")
LOOK_CHARS = 5_000  # `one_line` reads at most so many characters of a text
MINUTE_S, HOUR_S, DAY_S = 60, 3_600, 86_400


def safe(text: str) -> str:
    """Escape every character that controls a terminal, except newline and tab."""
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
    """Return the start of the text on one line, at most `limit` characters, invisible ones shown."""
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
    """Print a line with terminal controls escaped; with `err` to standard error."""
    click.echo(click.style(safe(text), fg=fg, bold=bold, dim=dim), err=err, color=uses_color())


def uses_color() -> bool | None:
    """Return False if NO_COLOR is set (no-color.org), else None: click asks the stream."""
    return False if os.environ.get("NO_COLOR") else None


def without_empty(found: object) -> object:
    """Return a dict without its falsy members; return any other value unchanged."""
    if not isinstance(found, dict):
        return found
    return {name: value for name, value in found.items() if value}


def print_json(value: object) -> None:
    """Print as indented JSON; terminal controls become JSON escapes, which parse back."""
    say(msgspec.json.format(msgspec.json.encode(_with_nulls(value))).decode())


def _with_nulls(value: object) -> object:
    """Return the value with the optional members of results present, null where there is none.

    The wire leaves such members out; a script that reads the output finds every name.
    """
    # Imported here, because `palyra --help` must start without the protocol modules.
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
    """Print as one line of NDJSON, with the same escapes as `print_json`."""
    say(msgspec.json.encode(value).decode())


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, empty: str) -> None:
    """Print aligned columns with a header, or `empty` if there are no rows.

    A cell is cut to one line of 200 characters.  At a terminal rows of ids get numbers, which commands
    take in place of the ids.
    """
    if not rows:
        say(empty, dim=True)
        return
    if remember_listing([str(row[0]) for row in rows]):
        columns = ("#", *columns)
        rows = [(number, *row) for number, row in enumerate(rows, 1)]
    cells = [[one_line(str(cell), 200) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    say(_align(columns, widths), bold=True)
    for row in cells:
        say(_align(row, widths))


def _align(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=True)]
    return "  ".join(padded).rstrip()


def now_ms() -> int:
    """Return Unix time in integer milliseconds."""
    return time.time_ns() // 1_000_000


def age(at_ms: int | None) -> str:
    """Format the time since `at_ms` in s, min, h or d; "-" for None.

    A time well in the future was written by a clock that was ahead, and is shown as such.
    """
    if at_ms is None:
        return "-"
    past_ms = now_ms() - at_ms
    return span(past_ms) if past_ms > -MINUTE_S * 1_000 else f"in {span(-past_ms)}"


def due(at_ms: int) -> str:
    """Format the time until `at_ms`, or "over" if that time has passed."""
    left_ms = at_ms - now_ms()
    return f"in {span(left_ms)}" if left_ms > 0 else "over"


def span(length_ms: int) -> str:
    """Format a length of time in s, min, h or d; a negative one as none."""
    length_s = max(length_ms, 0) / 1000
    for limit_s, unit_s, unit in (
        (MINUTE_S, 1, "s"),
        (HOUR_S, MINUTE_S, "min"),
        (DAY_S, HOUR_S, "h"),
    ):
        if length_s < limit_s:
            return f"{length_s / unit_s:.0f} {unit}"
    return f"{length_s / DAY_S:.0f} d"
