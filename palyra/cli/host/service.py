"""`palyra service`: print a unit for systemd that runs this installation.

`systemd-analyze verify` accepts a unit whose protections hide the program from it; its start fails with
203/EXEC.  Each path that the unit needs is therefore checked against each protection that the unit sets,
as systemd.exec(5) defines them, and against the permissions of its user.
"""

import os
import pwd
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import click

import palyra
from palyra.cli.command.errors import CommandFailed
from palyra.cli.command.options import GivenPath
from palyra.cli.command.output import say

PACKAGE = Path(palyra.__file__).parent
UNITS = PACKAGE / "templates" / "systemd"
WORKSPACES = {"system": "/var/lib/palyra/workspace", "user": "%h/palyra"}
# Setting -> folders whose content a service does not see.
HIDES = {
    "ProtectHome": ("/home", "/root", "/run/user"),
    "PrivateTmp": ("/tmp", "/var/tmp"),  # noqa: S108 - nothing is written there
    "PrivateDevices": ("/dev",),
}
READ, WRITE, SEARCH = 4, 2, 1  # bits of one class of a file's mode
INSTALL = (
    "install it for all users with the system's Python: `/usr/bin/python3 -m venv /opt/palyra`, then "
    "`/opt/palyra/bin/pip install` the wheel and `/opt/palyra/bin/palyra service`; or print the unit of "
    "a user: `palyra service --user`"
)
CHOOSE = "name a folder that the service sees and that belongs to the unit's user"


class Account(NamedTuple):
    """User that a service runs as; an unknown one has the rights that everybody has."""

    uid: int
    gids: frozenset[int]


STRANGER = Account(-1, frozenset())


@click.command()
@click.option("--user", "is_user", is_flag=True, help="For the manager of one user.")
@click.option(
    "--workspace",
    type=GivenPath(exists=True, file_okay=False, resolve_path=True),
    help="A folder for the daemon's workspace; the unit may write there.",
)
def service(*, is_user: bool, workspace: Path | None) -> None:
    """Print a systemd unit that runs this installation.

    The command fails if the unit hides the installation or the workspace from the daemon, or if the
    unit's user may not use them.
    """
    program = Path(sys.executable).with_name("palyra")
    unit = render_unit(program, workspace, is_user=is_user)
    settings = read_settings(unit)
    user = settings.get("User")
    account = find_account(user)
    if account is None:
        say(f"there is no user {user} yet: the unit says how to add it", err=True, fg="yellow")
    # A virtual environment has links to the Python that made it.
    needed = (program, Path(sys.executable), Path(sys.base_prefix), PACKAGE)
    _check(find_faults(settings, needed, account or STRANGER, READ | SEARCH), INSTALL)
    if workspace is not None:  # one that waits for its user is not open to a stranger
        bits = 0 if account is None else READ | WRITE | SEARCH
        _check(find_faults(settings, [workspace], account or STRANGER, bits), CHOOSE)
    say(unit, nl=False)


def _check(faults: Iterable[str], remedy: str) -> None:
    """Raise CommandFailed if there is a fault."""
    found = "; ".join(faults)
    if found:
        raise CommandFailed(f"the unit could not start: {found}", remedy)


def render_unit(program: Path, workspace: Path | None = None, *, is_user: bool) -> str:
    """Return the unit whose ExecStart is this program."""
    name = "user" if is_user else "system"
    template = (UNITS / f"{name}.service").read_text(encoding="utf-8")
    folder = WORKSPACES[name] if workspace is None else _quote(str(workspace))
    writable = "" if workspace is None else f"ReadWritePaths={folder}\n"
    # Variables are expanded in the words of ExecStart, except for the first one.
    return (
        template.replace("@PALYRA@", _quote(str(program)))
        .replace("@WORKSPACE@", folder.replace("$", "$$"))
        .replace("@WRITABLE@\n", writable)
    )


def _quote(path: str) -> str:
    """Quote a path as systemd reads it: specifiers, backslashes and quotes are escaped."""
    escaped = path.replace("%", "%%").replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"' if escaped != path or any(map(str.isspace, path)) else path


def read_settings(unit: str) -> dict[str, str]:
    """Return the settings of a unit; of a repeated one the last."""
    lines = (line.partition("=") for line in unit.splitlines() if not line.startswith("#"))
    return {name: value for name, sign, value in lines if sign}


def find_account(user: str | None) -> Account | None:
    """Return the account with the name, or for None that of this process; None if it is unknown."""
    if user is None:
        return Account(os.getuid(), frozenset({os.getgid(), *os.getgroups()}))
    try:
        found = pwd.getpwnam(user)
    except KeyError:
        return None
    return Account(found.pw_uid, frozenset(os.getgrouplist(user, found.pw_gid)))


def find_faults(
    settings: Mapping[str, str], needed: Iterable[Path], account: Account, bits: int
) -> Iterator[str]:
    """Yield why a service with the settings could not use one of the paths, links followed."""
    for path in dict.fromkeys(each for given in needed for each in (given, given.resolve())):
        hidden = next(_hidden(settings, path), None)
        refused = None if hidden else _refused(path, account, bits)
        if hidden is not None:
            yield hidden
        elif refused is not None:
            yield f"{settings.get('User') or 'the user'} may not use {refused}"


def _hidden(settings: Mapping[str, str], path: Path) -> Iterator[str]:
    for setting, folders in HIDES.items():
        value = settings.get(setting, "no")
        if value not in {"no", "read-only"}:
            above = (folder for folder in folders if path.is_relative_to(folder))
            yield from (f"{setting}={value} hides {path}" for _ in above)


def _refused(path: Path, account: Account, bits: int) -> Path | None:
    """Return the path, or the folder above it, that the account may not use."""
    for each in (*reversed(path.parents), path):
        wanted = bits if each == path else SEARCH
        try:
            found = each.stat()
        except OSError:  # it is missing, or this user may not look
            return each
        mode = found.st_mode & 0o7
        if found.st_uid == account.uid:
            mode = found.st_mode >> 6 & 0o7
        elif found.st_gid in account.gids:
            mode = found.st_mode >> 3 & 0o7
        if account.uid != 0 and mode & wanted != wanted:
            return each
    return None
