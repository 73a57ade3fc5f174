"""Command line `palyra NOUN VERB`, an ordinary client of the daemon.

Each noun is a module that is imported on first use, so that help and completion start fast.
"""

import importlib
import re
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

import click

from palyra import __version__
from palyra.cli.command.errors import EXPLAINED, find_exit_code
from palyra.cli.command.options import GivenPath
from palyra.cli.command.talk import Options

# Name -> module and line in the list of commands.  tests/cli/test_commands.py compares the line
# with the short help of the command itself.
COMMANDS: dict[str, tuple[str, str]] = {
    "up": ("host.up", "Start the daemon here, in the foreground."),
    "run": ("run.run", "Send a message and follow the run."),
    "chat": ("chat.chat", "Talk with the agent in the terminal."),
    "console": ("console", "Print a link that opens the web console, logged in."),
    "watch": ("host.watch", "Show live what waits for a person, runs and went wrong."),
    "runs": ("runs", "List, show, follow, fork, cancel and wait for runs."),
    "context": ("context", "Show what a turn's prompt was made of."),
    "approvals": ("approvals", "List and answer approvals."),
    "tape": ("tape", "Read, verify, replay and export tapes."),
    "artifacts": ("artifacts", "Print tool outputs that are too long for the tape."),
    "checkpoints": ("checkpoints", "List changes of files by tool calls, and restore files."),
    "diff": ("run.changes", "Show what a run changed in the workspace."),
    "undo": ("run.changes", "Put the files back that a run changed."),
    "documents": (
        "documents",
        "List, show, sync, fill and restore MEMORY.md, PALYRA.md and USER.md.",
    ),
    "workspaces": ("run.workspaces", "List, add and remove the folders that sessions can work in."),
    "sessions": ("sessions", "List, show, archive, reset and purge conversations."),
    "memory": ("memory", "Store, search, change and forget what runs remember."),
    "learn": ("learn", "List, accept, reject, edit and undo what runs taught."),
    "agents": ("agents", "List, show, create, update and delete agents."),
    "channels": ("channels", "List, set and delete channels for incoming messages."),
    "pairings": ("channels", "List, approve and revoke senders."),
    "models": ("models", "List models, their capabilities and their providers' health."),
    "tools": ("tools", "List the tools that a model can call."),
    "mcp": ("mcp", "Add, remove, test and list MCP servers, their resources and their prompts."),
    "skills": ("skills", "Write, install, audit and quarantine WASM skills."),
    "policy": ("policy", "Explain, check and test policies."),
    "usage": ("usage", "Sum up tokens and cost of model calls."),
    "budget": ("usage", "List, set and delete budgets."),
    "backup": ("backup", "Make, check and restore backups of the daemon's directory."),
    "retention": ("retention", "Preview and apply the bounds of [retention]; compact the journal."),
    "tasks": ("tasks", "Submit, list, pause and cancel background tasks."),
    "schedules": ("tasks", "Add, list, pause and remove schedules of tasks."),
    "healing": ("healing", "Show and set the modes of self-healing."),
    "incidents": ("incidents", "List, show and resolve incidents."),
    "env": ("host.env", "Print the daemon's address and token as shell variables."),
    "tokens": ("tokens", "Create, list and revoke bearer tokens."),
    "notify": ("notify", "Try the addresses that learn that a question waits."),
    "secrets": ("secrets", "Keep secrets in the daemon's vault, and test references."),
    "status": ("host.status", "Show the daemon's status."),
    "logs": ("host.logs", "Show the newest lines of the daemon's log; it keeps some thousand."),
    "suspend": (
        "suspend",
        "Refuse new runs and start no task or schedule, until `palyra resume`.",
    ),
    "resume": ("suspend", "Take new runs again; missed instants of schedules follow their policy."),
    "drain": (
        "suspend",
        "End the daemon: refuse new runs, finish those that make progress, exit with 0.",
    ),
    "tree": ("host.status", "Show the supervision tree."),
    "bench": ("bench", "Run many cases; resume, replay and compare them."),
    "doctor": ("host.doctor", "Check this machine and the daemon."),
    "config": ("config", "Show and change the configuration; show its schema."),
    "completion": ("host.completion", "Print the completion script of a shell."),
    "schema": ("host.schema", "Print the schemas of the protocol."),
    "serve": ("host.serve", "Run the daemon for a service manager or a parent process."),
    "service": ("host.service", "Print a systemd unit that runs this installation."),
}


# Sections of the list of commands; a command that none names is in the last one.
SECTIONS: dict[str, tuple[str, ...]] = {
    "Use": (
        "up", "run", "chat", "runs", "sessions", "diff", "undo", "checkpoints", "artifacts",
        "memory", "documents", "learn", "workspaces", "tasks", "schedules", "bench",
    ),
    "Watch and answer": (
        "console", "watch", "approvals", "tape", "context", "usage", "status", "tree", "logs", "incidents",
        "doctor",
    ),
    "Operate": (
        "serve", "service", "suspend", "resume", "drain", "backup", "retention", "healing",
    ),
    "Configure": (),
}  # fmt: skip


def sections() -> dict[str, list[str]]:
    """Return the commands of each section, in the order of COMMANDS."""
    placed = {name: title for title, names in SECTIONS.items() for name in names}
    found: dict[str, list[str]] = {title: [] for title in SECTIONS}
    for name in COMMANDS:
        found[placed.get(name, "Configure")].append(name)
    return found


def first_sentence(text: str) -> str:
    """Return the first sentence of a help text, whole."""
    paragraph = " ".join(text.split("\n\n", 1)[0].split())
    return re.split(r"(?<=\.) (?=[A-Z`])", paragraph, maxsplit=1)[0]


class LazyGroup(click.Group):
    """Click group that imports a command when its name is looked up."""

    table = COMMANDS

    def main(self, args: Sequence[str] | None = None, **more: Any) -> Any:  # type: ignore[override]  # noqa: ANN401 - click's, by name
        """Run the command line and exit the process with an exit code of `palyra.cli.command.errors`."""
        if not more.pop("standalone_mode", True):
            return super().main(args, standalone_mode=False, **more)
        given = list(sys.argv[1:] if args is None else args)
        command = partial(super().main, given, standalone_mode=False, **more)
        sys.exit(find_exit_code(command, as_json=_wants_json(given)))

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in self.table:
            return None
        module = importlib.import_module(f"palyra.cli.{self.table[cmd_name][0]}")
        command = getattr(module, cmd_name)
        assert isinstance(command, click.Command)  # noqa: S101 - the table above is ours
        if isinstance(command, click.Group):
            for each in command.commands.values():  # click cuts what has no short help of its own
                each.short_help = each.short_help or first_sentence(each.help or "")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, and name the nearest ones for an unknown name."""
        if args[0] not in self.table and not args[0].startswith("-"):
            near = get_close_matches(args[0], self.table)
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            ctx.fail(f"no command {args[0]!r}{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        for title, names in sections().items():
            with formatter.section(title):
                formatter.write_dl([(name, self.table[name][1]) for name in names])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section(self.epilog or ""):
            formatter.write_dl([(str(code), text) for code, text in EXPLAINED.items()])


def _wants_json(given: Sequence[str]) -> bool:
    """True if errors are to be printed as JSON.

    The raw arguments are searched, because the errors include those of parsing the arguments.
    """
    own = given[: given.index("--")] if "--" in given else given
    return "--json" in own


@click.group(
    cls=LazyGroup,
    epilog="Exit codes",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--home",
    type=GivenPath(),
    envvar="PALYRA_HOME",
    help="The daemon's directory (or $PALYRA_HOME).",
)
@click.option("--url", envvar="PALYRA_URL", help="The daemon's address (or $PALYRA_URL).")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.version_option(__version__, prog_name="palyra")
@click.pass_context
def cli(context: click.Context, home: Path | None, url: str | None, *, as_json: bool) -> None:
    """Palyra: an agent daemon whose every step is on a tape.

    `palyra up` starts it; `palyra run "hello"` talks to it.
    """
    context.obj = Options(home=home, url=url, as_json=as_json)
