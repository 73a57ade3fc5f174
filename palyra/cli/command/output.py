"""Printing to the terminal: escaped lines, aligned tables and JSON.

Every byte that a command prints passes `write`, and every style and cursor move is decided here: no
other module of the command line styles a text or names a terminal escape.  Tape content comes from models, tools and web pages and is untrusted.  It must not move the cursor,
change colours, set the window title or reverse the direction of text.  Control and direction
characters are therefore printed as escapes.
"""

import os
import shutil
import sys
import textwrap
import time
import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypedDict, Unpack

import click
import msgspec

from palyra.cli.command.last_listing import remember_listing
from palyra.core.text.escapes import allows_cursor, allows_style, choose_notice
from palyra.core.text.visible import visible

if TYPE_CHECKING:
    from rich.console import Console

_NOTICE = "palyra waits for your answer"  # of fixed words: nothing of a model is in it
_NOTICES = {
    "none": "",
    "bell": "\a",
    "osc9": f"\a\x1b]9;{_NOTICE}\x1b\\",
    "osc777": f"\a\x1b]777;notify;palyra;{_NOTICE}\x1b\\",
}
_HIDDEN = frozenset({"Cc", "Cs", "Zl", "Zp"})
_DIRECTION = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_KEPT = frozenset("\n\t")
MIN_COLUMNS = 20  # to break lines in
PIPE_CHARS = 240  # of one line of a log
_WIDE = frozenset({"W", "F"})
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


class Style(TypedDict, total=False):
    """Style of a text, as click names it."""

    fg: str | None
    bold: bool | None
    dim: bool | None
    reverse: bool | None


def say(text: str = "", *, err: bool = False, nl: bool = True, **style: Unpack[Style]) -> None:
    """Print a line with terminal controls escaped; with `err` to standard error."""
    write(paint(text, err=err, **style), err=err, nl=nl)


def paint(text: str, *, err: bool = False, **style: Unpack[Style]) -> str:
    """Return the text with terminal controls escaped, styled if the stream shows styles."""
    shown = safe(text)
    is_styled = any(style.values()) and uses_style(err=err)
    return click.style(shown, **style) if is_styled else shown


def write(text: str | bytes, *, err: bool = False, nl: bool = False) -> None:
    """Print a text as it is.  It holds no terminal control but those of `paint`."""
    click.echo(text, err=err, nl=nl, color=True)  # True: nothing is left for click to strip


def page(lines: Sequence[str]) -> None:
    """Show painted lines in the pager of the person."""
    click.echo_via_pager("\n".join(lines), color=uses_style())


def uses_style(*, err: bool = False) -> bool:
    """True if standard output, or with `err` standard error, shows colours and weights."""
    return allows_style(os.environ, is_terminal=_is_terminal(err=err))


def moves_cursor(*, err: bool = False) -> bool:
    """True if the cursor can be moved on standard output, or with `err` on standard error."""
    return allows_cursor(os.environ, is_terminal=_is_terminal(err=err))


def make_notice(*, err: bool = False) -> str:
    """Return what makes the terminal notify its person of a question; "" for a pipe."""
    return _NOTICES[choose_notice(os.environ, is_terminal=_is_terminal(err=err))]


def _is_terminal(*, err: bool) -> bool:
    return (sys.stderr if err else sys.stdout).isatty()


def clear_screen() -> None:
    """Erase the terminal; where the cursor cannot be moved, print an empty line."""
    if moves_cursor():
        click.clear()
    else:
        say()


def open_console(width: int | None = None) -> "Console":
    """Return a console of rich on standard output with the styles that `paint` would use."""
    from rich.console import Console  # noqa: PLC0415 - help must be instant

    return Console(highlight=False, width=width, color_system="auto" if uses_style() else None)


def line_width(*, err: bool = False) -> int:
    """Return the characters of a line that does not wrap at the terminal; of a pipe, a generous limit."""
    return shutil.get_terminal_size().columns - 1 if _is_terminal(err=err) else PIPE_CHARS


def wrap_words(text: str, width: int, *, indent: str = "") -> list[str]:
    """Return the lines of a text, broken between words; those that continue one are indented."""
    rows = [
        textwrap.wrap(
            line, width, subsequent_indent=indent, replace_whitespace=False, break_on_hyphens=False
        )
        for line in text.split("\n")
    ]
    return [row for lines in rows for row in lines or [""]]


def fold(text: str, *, err: bool = False) -> str:
    """Return the text with line breaks where a terminal would break within a word; for a pipe as it is."""
    if not _is_terminal(err=err):
        return text
    indent = "  " + " " * (len(text) - len(text.lstrip(" ")))
    width = max(line_width(err=err), MIN_COLUMNS)
    return "\n".join(wrap_words(text, width, indent=indent))


def fit_cells(text: str, cells: int) -> str:
    """Return the start of a line, its tabs as blanks, that takes at most so many cells.

    East Asian letters take two.
    """
    used, text = 0, text.expandtabs()
    for at, char in enumerate(text):
        used += 2 if unicodedata.east_asian_width(char) in _WIDE else 1
        if used > cells:
            return text[:at]
    return text


class LiveLines:
    """Last lines of the output, which are replaced in place; none where the cursor cannot be moved."""

    def __init__(self, *, err: bool = False) -> None:
        self._err = err
        self._is_shown = moves_cursor(err=err)
        self._count = 0

    def show(self, lines: Sequence[str]) -> None:
        """Replace the lines, dimmed and cut to the width; none erases them."""
        if not self._is_shown or not (lines or self._count):
            return
        back = f"\x1b[{self._count}A\r\x1b[J" if self._count else ""
        width = line_width(err=self._err)
        rows = [paint(fit_cells(safe(line), width), err=self._err, dim=True) for line in lines]
        write(back + "".join(f"{row}\n" for row in rows), err=self._err)
        self._count = len(rows)


class ProgressLine:
    """Line of standard error that is printed again in place; shown at a terminal only."""

    def __init__(self) -> None:
        self._is_shown = _is_terminal(err=True)
        self._width = 0

    def show(self, text: str) -> None:
        """Replace the text of the line."""
        if self._is_shown:
            write(f"\r{safe(text).ljust(self._width)}", err=True)
            self._width = len(text)

    def clear(self) -> None:
        """Erase the line."""
        if self._width:
            write(f"\r{' ' * self._width}\r", err=True)
            self._width = 0


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
