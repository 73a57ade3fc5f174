"""Log lines: whatever they are made of, no secret is in them."""

import io
import json
import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import structlog

from palyra import logs
from palyra.config.sections import Logging
from palyra.core.redaction.redactor import Redactor
from tests.rows import every_row

TOKEN = "operator-token-0123456789abcdef"
REDACTOR = Redactor([TOKEN])


pytestmark = pytest.mark.usefixtures("restored")


@pytest.fixture
def restored(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The process's logging is as it was, whatever a test sets up."""
    root = logging.getLogger()
    handlers, level, config = root.handlers[:], root.level, structlog.get_config()
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setattr(logging, "raiseExceptions", True)
    yield
    logging.captureWarnings(capture=False)
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.configure(**config)
    structlog.contextvars.clear_contextvars()


class Terminal(io.StringIO):
    """A stream that says it is one."""

    def isatty(self) -> bool:
        return True


def set_up(
    style: str = "json", level: str = "info", stream: io.StringIO | None = None
) -> io.StringIO:
    target = stream or io.StringIO()
    settings = {"format": style, "level": level}
    logs.setup(Logging(**settings), REDACTOR, target)  # type: ignore[arg-type]  # of literals
    return target


def only_line(stream: io.StringIO) -> dict[str, Any]:
    (line,) = stream.getvalue().splitlines()
    parsed: dict[str, Any] = json.loads(line)
    return parsed


def test_json_line_has_everything() -> None:
    """One object a line: time, level, logger, event, values, and the ids bound in the context."""
    stream = set_up()
    with structlog.contextvars.bound_contextvars(run_id="run_1", session_id="ses_1"):
        structlog.get_logger("palyra.test").info("it began", count=3, thing=object)
    line = only_line(stream)
    assert line.pop("timestamp").endswith("Z")
    expected = {"event": "it began", "level": "info", "logger": "palyra.test", "count": 3}
    ids = {"run_id": "run_1", "session_id": "ses_1", "thing": repr(object)}
    assert expected | ids == line


def test_console_line_has_everything() -> None:
    """For people the same stands in one readable line, without colours into a file."""
    stream = set_up("console")
    structlog.get_logger("palyra.test").warning("it began", count=3)
    assert "\x1b" not in stream.getvalue()
    for part in ("warning", "it began", "[palyra.test]", "count=3"):
        assert part in stream.getvalue()


class Secretive:
    """Its repr tells the token."""

    def __repr__(self) -> str:
        return f"<Secretive {TOKEN}>"


@every_row("style", ["console", "json"])
@every_row("stream", [io.StringIO, Terminal])
def test_no_secret_in_any_part(style: str, stream: type[io.StringIO]) -> None:
    """Event, key, value, nested value, repr and traceback are redacted alike."""
    target = set_up(style, stream=stream())
    log = structlog.get_logger("palyra.test")
    values: dict[str, Any] = {TOKEN: 1, "nested": [{"a": (TOKEN,)}], "thing": Secretive()}
    event = f"token {TOKEN}"
    log.info(event, value=TOKEN, **values)
    log.error("failed", exc_info=ValueError(TOKEN))
    assert TOKEN not in target.getvalue()
    assert target.getvalue().count("[redacted:known]") == 6
    if style == "json":
        assert 2 == len([json.loads(line) for line in target.getvalue().splitlines()])


def test_no_secret_from_libraries() -> None:
    """Lines through the standard logging and warnings are structured and redacted too."""
    stream = set_up()
    logging.getLogger("hypercorn.error").error("bad token %s", TOKEN)
    assert ("bad token [redacted:known]", "hypercorn.error") == (
        only_line(stream)["event"],
        only_line(stream)["logger"],
    )
    stream = set_up()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn(TOKEN, stacklevel=1)
    assert "[redacted:known]" in only_line(stream)["event"]


def test_no_secret_in_a_crash() -> None:
    """The traceback of an exception that nobody caught is a redacted line."""
    stream = set_up()
    error = RuntimeError(f"lost {TOKEN}")
    sys.excepthook(RuntimeError, error, None)
    line = only_line(stream)
    assert ("crashed", "critical") == (line["event"], line["level"])
    assert "RuntimeError: lost [redacted:known]" in line["exception"]


def test_lower_levels_are_dropped() -> None:
    """Only the level asked for and those above are written, of everybody."""
    stream = set_up(level="warning")
    structlog.get_logger("palyra.test").info("no")
    logging.getLogger("library").info("no")
    assert [] == stream.getvalue().splitlines()
    structlog.get_logger("palyra.test").warning("yes")
    assert "yes" == only_line(stream)["event"]


def test_second_setup_reaches_loggers_in_use() -> None:
    """A logger that has logged before takes the new stream, level and redactor."""
    first = set_up()
    log = structlog.get_logger("palyra.test")
    log.info("one")
    second = set_up(level="debug")
    log.debug("two")
    assert ("one", "two") == (only_line(first)["event"], only_line(second)["event"])


def test_values_do_not_control_the_terminal() -> None:
    """Control characters in a value are shown, not obeyed."""
    stream = set_up("console")
    structlog.get_logger("palyra.test").info("a\rü", value="\x1b[2Jx")
    assert "\x1b" not in stream.getvalue()
    assert r"a\rü" in stream.getvalue()
    assert r"\x1b[2Jx" in stream.getvalue()


def test_closed_stream_fails_nobody() -> None:
    """Logging into a closed standard error is silent."""
    stream = set_up()
    stream.close()
    structlog.get_logger("palyra.test").error("unheard")


def test_kept_lines_are_redacted_too() -> None:
    """The same lines as on standard error, plain and without the secret; below the level none."""
    kept: list[tuple[str, str]] = []
    logs.setup(
        Logging(format="json", level="info"),
        REDACTOR,
        io.StringIO(),
        keep=lambda _at_ms, level, text: kept.append((level, text)),
    )
    log = structlog.get_logger("palyra.test")
    log.debug("unseen")
    log.warning("said", token=TOKEN)
    logging.getLogger("library").error("with %s", TOKEN)
    assert ["warning", "error"] == [level for level, _ in kept]
    for _, text in kept:
        assert TOKEN not in text
        assert "[redacted:known]" in text
        assert "\x1b" not in text


def test_lines_of_a_quick_start_come_after_the_first_words() -> None:
    """They are held until the release, through another setup, whose redactor holds for them."""
    stream = io.StringIO()
    logs.setup(Logging(), Redactor([]), stream)
    log = structlog.get_logger()
    with logs.held():
        log.info("opened", by=TOKEN)
        logs.setup(Logging(), REDACTOR, stream)
        log.info("ready")
        stream.write("panel\n")
        logs.release()
        log.info("goes on")
    found = stream.getvalue()
    assert TOKEN not in found
    words = ("panel", "opened", "ready", "goes on")
    assert sorted(map(found.index, words)) == list(map(found.index, words))
    assert 4 == len(found.splitlines())


@pytest.mark.parametrize("ending", ["error", "warning", "late", "many"])
def test_lines_of_another_start_are_not_held(ending: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure, a warning, a slow start or a talkative one shows all lines so far, in their order."""
    stream = io.StringIO()
    logs.setup(Logging(), Redactor([]), stream)
    log = structlog.get_logger()
    with suppress(ZeroDivisionError), logs.held():
        log.info("opened")
        assert not stream.getvalue()
        if ending == "error":
            raise ZeroDivisionError
        if ending == "warning":
            log.warning("no sandbox")
        if ending == "late":
            monkeypatch.setattr(logs, "HELD_S", -1.0)
            log.info("still checking")
        for number in range(logs.HELD_LINES if ending == "many" else 0):
            log.info("line", number=number)
        assert "opened" in stream.getvalue()
    assert "opened" in stream.getvalue().splitlines()[0]
