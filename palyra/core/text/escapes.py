"""Permission to write terminal escapes: styles, moves of the cursor, and notices.

NO_COLOR (no-color.org) forbids styles, when it is set and not empty.  A terminal named "dumb" or
"unknown", or one without a name, knows no escapes at all; curses and git judge alike.
"""

from collections.abc import Mapping
from typing import Literal

Notice = Literal["none", "bell", "osc9", "osc777"]

WITHOUT_ESCAPES = frozenset({"", "dumb", "unknown"})
MULTIPLEXERS = ("screen", "tmux")  # beginnings of TERM
OSC9_PROGRAMS = frozenset({"iTerm.app", "WezTerm", "ghostty"})  # TERM_PROGRAM
OSC9_TERMS = frozenset({"xterm-kitty", "xterm-ghostty"})
OSC777_TERMS = ("foot", "rxvt-unicode")


def allows_cursor(environment: Mapping[str, str], *, is_terminal: bool) -> bool:
    """True if escapes may move the cursor and erase text."""
    return is_terminal and environment.get("TERM", "") not in WITHOUT_ESCAPES


def allows_style(environment: Mapping[str, str], *, is_terminal: bool) -> bool:
    """True if escapes may set colours and weights."""
    is_plain = bool(environment.get("NO_COLOR"))
    return not is_plain and allows_cursor(environment, is_terminal=is_terminal)


def choose_notice(environment: Mapping[str, str], *, is_terminal: bool) -> Notice:
    """Return how a terminal notifies its person.

    A notice of the desktop is asked for only where the terminal is known to show one: another one may
    print the request.  A multiplexer passes on the bell alone.
    """
    if not allows_cursor(environment, is_terminal=is_terminal):
        return "none"
    term = environment.get("TERM", "")
    if environment.get("TMUX") or environment.get("STY") or term.startswith(MULTIPLEXERS):
        return "bell"
    if environment.get("TERM_PROGRAM") in OSC9_PROGRAMS or term in OSC9_TERMS:
        return "osc9"
    return "osc777" if term.startswith(OSC777_TERMS) else "bell"
