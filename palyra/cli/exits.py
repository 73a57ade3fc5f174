"""Exit codes, and what a person is told when a command cannot do its work."""

import sys
from typing import IO, Any

import click

from palyra import errors
from palyra.cli.screen import safe
from palyra.errors import PalyraError

DONE = 0
FAILED = 1
USAGE = 2  # click's own
CANCELLED = 3
PARTIAL = 4  # done, but something was refused or is missing
OVER_BUDGET = 5
NO_DAEMON = 69  # EX_UNAVAILABLE of sysexits.h
NO_PERMISSION = 77  # EX_NOPERM
INTERRUPTED = 130  # 128 + SIGINT

EXPLAINED = {
    DONE: "done",
    FAILED: "failed",
    USAGE: "wrong usage",
    CANCELLED: "the run was cancelled",
    PARTIAL: "the run is done, but something was refused or is missing",
    OVER_BUDGET: "a budget did not allow the run to go on",
    NO_DAEMON: "no daemon answers",
    NO_PERMISSION: "the token is missing, refused or lacks the scope",
    INTERRUPTED: "interrupted",
}

# What somebody can do about an error; the first class that fits counts.
REMEDIES: tuple[tuple[type[PalyraError], int, str], ...] = (
    (
        errors.Unauthenticated,
        NO_PERMISSION,
        "name the daemon's directory with --home, or set PALYRA_TOKEN",
    ),
    (errors.Forbidden, NO_PERMISSION, "use a token with that scope (`palyra tokens create`)"),
    (
        errors.Unavailable,
        NO_DAEMON,
        "see `palyra status`; where no daemon runs, start one with `palyra up`",
    ),
    (errors.NotFound, FAILED, "look for the right id with the `list` command"),
    (errors.InvalidParams, USAGE, ""),  # the command's own help
    (errors.DigestMismatch, FAILED, "look at it again with `palyra approvals show`"),
    (errors.Overloaded, FAILED, "try again in a moment"),
    (errors.TooSlow, FAILED, "try again; `palyra status` shows how the daemon is"),
    (errors.ProtocolError, FAILED, "check that both ends are Palyra and of similar versions"),
)


class Stop(click.ClickException):
    """Ends the command: one line that says what, one that says what to do, and an exit code."""

    def __init__(self, what: str, remedy: str | None = None, *, code: int = FAILED) -> None:
        super().__init__(what)
        self.remedy = remedy
        self.exit_code = code  # type: ignore[misc]  # click reads it from the instance

    def show(self, file: IO[Any] | None = None) -> None:
        """Print both lines to standard error."""
        out = file or sys.stderr
        click.echo(f"{click.style('error:', fg='red', bold=True)} {safe(self.message)}", file=out)
        if self.remedy:
            click.echo(f"{click.style('remedy:', bold=True)} {safe(self.remedy)}", file=out)


def _own_help() -> str:
    """What shows how the command is called that is running."""
    context = click.get_current_context(silent=True)
    return f"`{context.command_path if context else 'palyra'} --help` shows what it takes"


def stop_for(error: PalyraError) -> Stop:
    """The error as a person should see it; a remedy in its own words is not said twice."""
    for kind, code, remedy in REMEDIES:
        if isinstance(error, kind):
            said = None if "`palyra " in error.message else remedy or _own_help()
            return Stop(error.message, said, code=code)
    return Stop(error.message)
