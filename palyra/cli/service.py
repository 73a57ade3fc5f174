"""`palyra service`: print a unit for systemd that runs this installation."""

import sys
from pathlib import Path

import click

from palyra.cli.output import say

UNITS = Path(__file__).parents[1] / "templates" / "systemd"
PROGRAM = "@PALYRA@"


@click.command()
@click.option("--user", "is_user", is_flag=True, help="For the manager of one user.")
def service(*, is_user: bool) -> None:
    """Print a systemd unit that runs this installation."""
    say(render_unit(Path(sys.executable).with_name("palyra"), is_user=is_user), nl=False)


def render_unit(program: Path, *, is_user: bool) -> str:
    """Return the unit whose ExecStart is this program."""
    name = "user" if is_user else "system"
    template = (UNITS / f"{name}.service").read_text(encoding="utf-8")
    return template.replace(PROGRAM, _quote(str(program)))


def _quote(path: str) -> str:
    """Quote a path as systemd reads it: specifiers, backslashes and quotes are escaped.

    Variables are not expanded in the first word of ExecStart.
    """
    escaped = path.replace("%", "%%").replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"' if escaped != path or any(map(str.isspace, path)) else path
