"""Logging: structured lines on standard error, redacted as a whole before they are written.

Owns: the process's logging settings.  Called by: the start of the process; all other code calls
`structlog.get_logger`.  Never: writes a line that was not redacted, or fails because of a line.

Lines of libraries that use the standard `logging`, warnings and the traceback of a crash pass
through the same processors.  `run_id` and `session_id` come from structlog's context variables
where they are bound.
"""

import logging
import os
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from logging.handlers import MemoryHandler
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

from palyra.config.sections import Logging
from palyra.core.redaction.redactor import Redactor
from palyra.core.text.escapes import allows_style

if TYPE_CHECKING:
    from structlog.typing import EventDict, Processor, WrappedLogger


@contextmanager
def _without(package: str) -> Generator[None]:
    """Make imports of a package fail inside the block, unless it is imported already."""
    is_hidden = package not in sys.modules
    if is_hidden:
        sys.modules[package] = None  # type: ignore[assignment]  # makes `import` fail
    try:
        yield
    finally:
        if is_hidden:
            del sys.modules[package]


with _without("rich"):  # unused traceback format; importing it takes a tenth of the start
    import structlog

get_logger = structlog.get_logger  # for the first module of the daemon that needs one


Keep = Callable[[int, str, str], None]  # Unix milliseconds, level, line
HELD_S = 2.0  # a start that takes longer shows its lines as they come
HELD_LINES = 200


def setup(
    settings: Logging,
    redactor: Redactor,
    stream: TextIO | None = None,
    *,
    keep: Keep | None = None,
) -> None:
    """Log to `stream` (default: standard error); may be called again with another redactor.

    `keep` gets each line too, redacted and without colours, from the thread that logs.
    """
    target = stream or sys.stderr
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(settings.level),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,  # a second setup must reach loggers in use
    )
    handler = logging.StreamHandler(target)
    is_styled = allows_style(os.environ, is_terminal=target.isatty())
    if keep is not None:
        plain = _Redacted("console", redactor, shared, is_styled=False)
        handler = _KeepingHandler(target, keep, plain)
    handler.setFormatter(_Redacted(settings.format, redactor, shared, is_styled=is_styled))
    root = logging.getLogger()
    held = _find_held()
    if held is not None:
        held.setTarget(handler)
    else:
        root.handlers[:] = [handler]
    root.setLevel(settings.level.upper())
    logging.getLogger("httpx").setLevel(
        logging.WARNING
    )  # one line a request: the tape has the calls
    logging.captureWarnings(capture=True)
    logging.raiseExceptions = False  # ignore a closed standard error
    sys.excepthook = _log_crash


@contextmanager
def held() -> Generator[None]:
    """Hold the lines back until `release`, a warning, HELD_S, HELD_LINES, or the end of the block."""
    root = logging.getLogger()
    root.handlers[:] = [_HoldingHandler(root.handlers[0])]
    try:
        yield
    finally:
        release()


def release() -> None:
    """Write the lines that are held back, and hold no more."""
    handler = _find_held()
    if handler is not None:
        assert handler.target is not None  # noqa: S101 - `setup` gives it one
        logging.getLogger().handlers[:] = [handler.target]
        handler.close()


def _find_held() -> "_HoldingHandler | None":
    return next((x for x in logging.getLogger().handlers if isinstance(x, _HoldingHandler)), None)


class _HoldingHandler(MemoryHandler):
    """Handler of the lines that come before the first words for a person."""

    def __init__(self, target: logging.Handler) -> None:
        super().__init__(HELD_LINES, flushLevel=logging.WARNING, target=target)

    def shouldFlush(self, record: logging.LogRecord) -> bool:  # noqa: N802 - the standard library's
        """True also for a line that comes late."""
        return super().shouldFlush(record) or record.created - self.buffer[0].created > HELD_S


class _KeepingHandler(logging.StreamHandler[TextIO]):
    """Writes each line, and passes it on without colours under the lock of the handler."""

    def __init__(self, stream: TextIO, keep: Keep, plain: logging.Formatter) -> None:
        super().__init__(stream)
        self._keep = keep
        self._plain = plain

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; `emit` takes care of any error."""
        line = super().format(record)
        at_ms = round(record.created * 1000)
        self._keep(at_ms, record.levelname.lower(), self._plain.format(record))
        return line


class _Redacted(structlog.stdlib.ProcessorFormatter):
    """Renders a line, then redacts all of it: keys, values, tracebacks, representations."""

    def __init__(
        self, style: str, redactor: Redactor, shared: "list[Processor]", *, is_styled: bool
    ) -> None:
        renderers = _json() if style == "json" else _console(is_styled=is_styled)
        remove = structlog.stdlib.ProcessorFormatter.remove_processors_meta
        super().__init__(processors=[remove, *renderers], foreign_pre_chain=shared)
        self._is_json = style == "json"
        self._redactor = redactor

    def format(self, record: logging.LogRecord) -> str:
        line = super().format(record)
        if self._is_json:
            return self._redactor.redact_bytes(line.encode())[0].decode()
        return self._redactor.redact_text(line)[0]


def _json() -> "list[Processor]":
    return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]


def _console(*, is_styled: bool) -> "list[Processor]":
    # Plain tracebacks, because the other formats include local variables.
    plain = structlog.dev.plain_traceback
    renderer = structlog.dev.ConsoleRenderer(colors=is_styled, exception_formatter=plain)
    return [_escape_controls, renderer]


def _escape_controls(_logger: "WrappedLogger", _name: str, event: "EventDict") -> "EventDict":
    """Escape control characters, so that untrusted values cannot control the reader's terminal."""
    return {
        key: "".join(map(_visible, value))
        if isinstance(value, str) and not value.isprintable()
        else value
        for key, value in event.items()
    }


def _visible(character: str) -> str:
    is_plain = character.isprintable()
    return character if is_plain else character.encode("unicode_escape").decode("ascii")


def _log_crash(
    kind: type[BaseException], error: BaseException, traceback: TracebackType | None
) -> None:
    log = structlog.get_logger("palyra")
    log.critical("crashed", exc_info=(kind, error, traceback))
