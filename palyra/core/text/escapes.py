"""Permission to write terminal escapes: styles, and moves of the cursor.

NO_COLOR (no-color.org) forbids styles, when it is set and not empty.  A terminal named "dumb" or
"unknown", or one without a name, knows no escapes at all; curses and git judge alike.
"""

from collections.abc import Mapping

WITHOUT_ESCAPES = frozenset({"", "dumb", "unknown"})


def allows_cursor(environment: Mapping[str, str], *, is_terminal: bool) -> bool:
    """True if escapes may move the cursor and erase text."""
    return is_terminal and environment.get("TERM", "") not in WITHOUT_ESCAPES


def allows_style(environment: Mapping[str, str], *, is_terminal: bool) -> bool:
    """True if escapes may set colours and weights."""
    is_plain = bool(environment.get("NO_COLOR"))
    return not is_plain and allows_cursor(environment, is_terminal=is_terminal)
