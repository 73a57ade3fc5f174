"""Exit codes, and the messages and remedies of failed commands.

Theory: every way in which a command can end is mapped to one exit code and at most one error.  A
command raises `CommandFailed` (a click exception); `stop_for` makes one from a `PalyraError` with
the table REMEDIES.  `find_exit_code` runs the whole command and catches those, click's own errors,
an interrupt and OSError.  The error is printed to standard error: as two lines of text, or with
--json as one object `{"error": Problem}`.
"""

import os
import re
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import IO, Any

import click
import msgspec
from click.exceptions import NoArgsIsHelpError

from palyra import errors
from palyra.cli.command.output import say
from palyra.errors import PalyraError

TOKEN_VARIABLE = "PALYRA_TOKEN"  # noqa: S105 - as in net/protocol/discovery, which is not imported for help

DONE = 0
FAILED = 1
USAGE = 2  # click's own
CANCELLED = 3
PARTIAL = 4  # done, but something was refused or is missing
OVER_BUDGET = 5
WAITING = 6  # the run is open: a call waits for a person, and none can answer at this command
NO_DAEMON = 69  # EX_UNAVAILABLE of sysexits.h
DAEMON_FAILED = 70  # EX_SOFTWARE
DISK_FULL = 75  # EX_TEMPFAIL
NO_PERMISSION = 77  # EX_NOPERM
INTERRUPTED = 130  # 128 + SIGINT

EXPLAINED = {
    DONE: "done",
    FAILED: "failed",
    USAGE: "wrong usage",
    CANCELLED: "the run was cancelled",
    PARTIAL: "the run is done, but a call was denied or a result is missing",
    OVER_BUDGET: "a budget stopped the run",
    WAITING: "the run is open: a call waits for a person, and the command cannot ask one",
    NO_DAEMON: "no daemon answers, or one cannot start: its directory, keys, journal or port",
    DAEMON_FAILED: "the daemon gave up, or a part of it did not stop",
    DISK_FULL: "the daemon cannot start or go on: its disk is full or the quota used up",
    NO_PERMISSION: "the token is missing, refused or lacks the scope",
    INTERRUPTED: "interrupted",
}

# Error class, exit code, remedy.  The first class that matches is used.
REMEDIES: tuple[tuple[type[PalyraError], int, str], ...] = (
    (errors.Unauthenticated, NO_PERMISSION, ""),  # `_remedy` reads the environment
    (errors.Forbidden, NO_PERMISSION, ""),  # `_remedy` reads the field
    (
        errors.TlsFailed,
        NO_DAEMON,
        "name the PEM file of its certificate's authority in SSL_CERT_FILE, or use the certificate's name",
    ),
    (
        errors.Unreachable,
        NO_DAEMON,
        "start one with `palyra up`; if one is running, see its log",
    ),
    (
        errors.Unavailable,
        FAILED,
        "run `palyra doctor`, and see the daemon's log",
    ),
    (errors.NotFound, FAILED, ""),  # `_remedy` reads LISTS
    (errors.InvalidParams, USAGE, ""),  # `_remedy` decides
    (errors.DigestMismatch, FAILED, "read it again with `palyra approvals show`"),
    (errors.Overloaded, FAILED, "try again in a moment"),
    (errors.TooSlow, FAILED, "try again; if it keeps failing, see the daemon's log"),
    (errors.ProtocolError, FAILED, "check that both ends are Palyra and of similar versions"),
)


# Field of a NotFound -> command that lists the existing values of that field.
LISTS = {
    "run_id": "runs list",
    "session_id": "sessions list",
    "approval_id": "approvals list --all",
    "grant_id": "approvals grants --all",
    "incident_id": "incidents list",
    "checkpoint_id": "checkpoints list",
    "memory_id": "memory list",
    "candidate_id": "learn list",
    "task_id": "tasks list",
    "schedule_id": "schedules list",
    "channel": "channels list",
    "pairing_id": "pairings list",
    "budget_id": "budget list",
    "token_id": "tokens list",
    "agent": "agents list",
    "id": "skills list",
    "model": "models",
    "server": "mcp list",
}


# `kind` in JSON output of an error that has no code of the protocol.
USAGE_KIND = "usage"
KINDS = {USAGE: USAGE_KIND, INTERRUPTED: "interrupted"}
FAILED_KIND = "failed"


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Error as `--json` prints it.

    `kind` is an error code of the protocol, USAGE_KIND, FAILED_KIND, a value of KINDS or
    "io_error".
    """

    kind: str
    message: str
    field: str | None = None
    remedy: str | None = None


class CommandFailed(click.ClickException):
    """Failure that ends the command: a message, an optional remedy and an exit code."""

    def __init__(
        self,
        what: str,
        remedy: str | None = None,
        *,
        code: int = FAILED,
        kind: str | None = None,
        field: str | None = None,
    ) -> None:
        super().__init__(what)
        self.remedy = remedy
        self.kind = kind or KINDS.get(code, FAILED_KIND)
        self.field = field
        self.exit_code = code  # type: ignore[misc]  # click reads it from the instance

    def show(self, file: IO[Any] | None = None) -> None:  # noqa: ARG002 - click's signature
        """Print the message and the remedy to standard error."""
        say("error:", err=True, nl=False, fg="red", bold=True)
        say(f" {self.message}", err=True)
        if self.remedy:
            say("remedy:", err=True, nl=False, bold=True)
            say(f" {self.remedy}", err=True)


def _own_help(context: click.Context | None = None) -> str:
    """Return a hint that names the `--help` call of the running command."""
    context = context or click.get_current_context(silent=True)
    return f"`{context.command_path if context else 'palyra'} --help` shows the usage"


def _own_list() -> str:
    """Return the command that lists what the running command names, such as `mcp list`; "" without one."""
    context = click.get_current_context(silent=True)
    parent = context.parent if context is not None else None
    if parent is None or not isinstance(parent.command, click.Group):
        return ""
    return f"{parent.info_name} list" if "list" in parent.command.commands else ""


def stop_for(error: PalyraError, *, code: int | None = None) -> CommandFailed:
    """Return the failure to raise for an error of the daemon or the client.

    A message that names a `palyra` command already contains its remedy and gets no second one.
    `code` replaces the exit code of the error's class.
    """
    for kind, usual, remedy in REMEDIES:
        if isinstance(error, kind):
            said = None if "`palyra " in error.message else remedy or _remedy(error)
            return CommandFailed(
                error.message, said, code=code or usual, kind=error.code, field=error.field
            )
    return CommandFailed(error.message, kind=error.code, field=error.field)


def stop_for_start(error: PalyraError) -> CommandFailed:
    """Return the failure to raise for an error that prevents a daemon's start or ends the daemon.

    The usual remedy of Unavailable, `palyra doctor`, is replaced, because it needs a running daemon.
    A message that already contains a remedy (_OWN_REMEDIES) gets none; others get DATA_REMEDY.
    """
    failed = stop_for(error)
    if isinstance(error, errors.DiskFull):
        failed.remedy = "free disk space, then start again"
        failed.exit_code = DISK_FULL  # type: ignore[misc]  # click reads it from the instance
    elif isinstance(error, errors.Unavailable):
        says_itself = any(word in error.message for word in _OWN_REMEDIES)
        failed.remedy = None if says_itself else DATA_REMEDY
        failed.exit_code = NO_DAEMON  # type: ignore[misc]  # a retry would fail again
    return failed


DATA_REMEDY = "restore the data directory from a backup, or choose another one with --home"
_OWN_REMEDIES = ("--host", "--port", "--home", "choose another place", "backup", "remove it", "chmod",
                 "newer version", "in use by another process")  # fmt: skip


def _token_remedy(message: str) -> str | None:
    """Return the remedy of a refused token: PALYRA_TOKEN is used instead of the directory's own."""
    if TOKEN_VARIABLE in message:
        return None  # no token was found, and the message names every place for one
    if os.environ.get(TOKEN_VARIABLE):
        return "unset PALYRA_TOKEN to use the operator's own, or set it to a token of this daemon"
    return "name the daemon's directory with --home, or set PALYRA_TOKEN"


def _remedy(error: PalyraError) -> str | None:
    """Return the remedy that depends on the error's field: a list command or the `--help` call."""
    if isinstance(error, errors.Unauthenticated):
        return _token_remedy(error.message)
    if isinstance(error, errors.Forbidden):
        scope = "use a token with that scope (`palyra tokens create`)"
        return None if error.field == "host" else scope  # which the message names
    if isinstance(error, errors.NotFound):
        listed = _own_list() if error.field == "name" else LISTS.get(error.field or "")
        return f"`palyra {listed}` shows which there are" if listed else None
    # A message about a field already names the problem; `--help` would add nothing.
    return None if error.field else _own_help()


_CLICK_WORDS = re.compile(
    r"^(?:Missing|No such|Option|Got|Error|Invalid|Path|File|Directory|Could) "
)


# --- the end of the program ----------------------------------------------------------------------


def find_exit_code(command: Callable[[], object], *, as_json: bool) -> int:
    """Run `command`, print its error if it has one, and return the exit code of the program."""
    try:
        return _tell_end(command, as_json=as_json)
    except KeyboardInterrupt:  # outside of click's handler, or while an error was being printed
        return _abort(is_interrupt=True, as_json=as_json)


def _tell_end(command: Callable[[], object], *, as_json: bool) -> int:
    try:
        code = command()
    except click.ClickException as error:
        if error.exit_code == INTERRUPTED:
            _ignore_interrupts()
        print_error(error, as_json=as_json)
        return error.exit_code
    except errors.InvalidParams as error:  # from the environment, raised outside of `talk`
        failed = stop_for(error)
        print_error(failed, as_json=as_json)
        return failed.exit_code
    except click.Abort as abort:  # click raises it for Ctrl-C and for end of input at a prompt
        return _abort(is_interrupt=not isinstance(abort.__cause__, EOFError), as_json=as_json)
    except OSError as error:
        where = error.filename or "the output"
        print_error(
            CommandFailed(f"{where}: {error.strerror or error}", kind="io_error"), as_json=as_json
        )
        give_up_output()
        return FAILED
    return code if isinstance(code, int) else DONE


def print_error(error: click.ClickException, *, as_json: bool) -> None:
    """Print the error to standard error, with `as_json` as one JSON object."""
    with suppress(OSError):  # standard error is closed
        if as_json:
            say(msgspec.json.encode({"error": _problem(error)}).decode(), err=True)
        elif isinstance(error, CommandFailed | NoArgsIsHelpError):
            error.show()
        else:
            problem = _problem(error)
            CommandFailed(problem.message, problem.remedy).show()


def _message(error: click.ClickException) -> str:
    """Return the message of an error; one of click's own in the style of the others."""
    message = error.format_message()
    if isinstance(error, CommandFailed):
        return message
    message = re.sub(r"^Invalid value(?: for '?([^':]+(?: / [^':]+)*)'?)?: ", r"\1: ", message)
    message = message.removeprefix(": ").removesuffix(".")
    message = _CLICK_WORDS.sub(lambda found: found[0].lower(), message)
    return message.replace("no such command", "no command").replace("no such option", "no option")


def _problem(error: click.ClickException) -> Problem:
    message = _message(error)
    if isinstance(error, CommandFailed):
        return Problem(kind=error.kind, message=message, field=error.field, remedy=error.remedy)
    context = error.ctx if isinstance(error, click.UsageError) else None
    parameter = error.param if isinstance(error, click.BadParameter) else None
    return Problem(
        kind=USAGE_KIND,
        message=message,
        field=parameter.name if parameter else None,
        remedy=_own_help(context),
    )


def _abort(*, is_interrupt: bool, as_json: bool) -> int:
    if not is_interrupt:
        print_error(CommandFailed("the input has ended"), as_json=as_json)
        return FAILED
    _ignore_interrupts()
    print_error(CommandFailed("interrupted", code=INTERRUPTED), as_json=as_json)
    return INTERRUPTED


def _ignore_interrupts() -> None:
    """Ignore further interrupts, so that none kills the process while it exits."""
    with suppress(ValueError):  # not in the main thread
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def give_up_output() -> None:
    """Redirect standard output to /dev/null, so that exit does not retry a failed write.

    Otherwise the interpreter flushes once more at exit and, from Python 3.13 on, exits with 120.
    """
    with suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
