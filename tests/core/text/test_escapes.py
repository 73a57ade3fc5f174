"""Permission to write terminal escapes."""

import pytest

from palyra.core.text.escapes import allows_cursor, allows_style

XTERM = {"TERM": "xterm"}


@pytest.mark.parametrize(
    ("environment", "is_terminal", "expected"),
    [
        (XTERM, True, (True, True)),
        (XTERM, False, (False, False)),
        (XTERM | {"NO_COLOR": "1"}, True, (True, False)),
        (XTERM | {"NO_COLOR": "0"}, True, (True, False)),
        (XTERM | {"NO_COLOR": ""}, True, (True, True)),
        ({"TERM": "dumb"}, True, (False, False)),
        ({"TERM": "unknown"}, True, (False, False)),
        ({"TERM": ""}, True, (False, False)),
        ({}, True, (False, False)),
        (XTERM | {"FORCE_COLOR": "1"}, False, (False, False)),
    ],
)
def test_what_a_terminal_may_get(
    environment: dict[str, str], *, is_terminal: bool, expected: tuple[bool, bool]
) -> None:
    """NO_COLOR forbids styles; a dumb terminal, and what is none, get no escape at all."""
    cursor = allows_cursor(environment, is_terminal=is_terminal)
    style = allows_style(environment, is_terminal=is_terminal)
    assert expected == (cursor, style)
