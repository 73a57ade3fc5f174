"""`palyra status` and `palyra tree`: state of the daemon and of its supervision tree."""

from typing import Any

import click

from palyra.cli.command.options import shared_options
from palyra.cli.command.output import print_json, print_table, say
from palyra.cli.command.talk import Options, talk
from palyra.cli.suspend import describe_suspension
from palyra.core.memory.vectors import EmbedderView


@click.command()
@shared_options
def status(options: Options) -> None:
    """Show the daemon's status."""
    found = talk(options, lambda client: client.status())
    if options.as_json:
        print_json(found)
        return
    rows = [
        ("state", found.state),
        ("suspended", describe_suspension(found.suspension)),
        ("version", found.version),
        ("instance", found.instance_id),
        ("journal", "writable" if found.is_writable else "READ ONLY"),
        ("rows waiting", "-" if found.journal_backlog is None else found.journal_backlog),
        ("stranded runs", "-" if found.stranded_runs is None else found.stranded_runs),
        ("open incidents", "-" if found.open_incidents is None else found.open_incidents),
        ("problems", "; ".join(found.problems) or "none"),
        ("absent", "; ".join(found.absent) or "nothing"),
        ("memory embedder", describe_embedder(found.embedder)),
        ("connections", "-" if found.connections is None else found.connections),
    ]
    print_table(("WHAT", "VALUE"), rows, empty="")


def describe_embedder(embedder: EmbedderView | None) -> str:
    """Return the embedder of the memory in words; "-" if the daemon does not show it."""
    if embedder is None:
        return "-"
    in_use = embedder.in_use or f"{embedder.configured} fails, searches use words only"
    return f"{in_use}; {embedder.reason}" if embedder.reason else in_use


@click.command()
@shared_options
def tree(options: Options) -> None:
    """Show the supervision tree."""
    root = talk(options, lambda client: client.tree())
    if options.as_json:
        print_json(root)
        return
    for line in draw(root):
        say(line)


def draw(node: dict[str, Any], indent: str = "") -> list[str]:
    """Return the tree as indented lines: id, state, awaited event, restarts, mailbox, last crash."""
    mailbox = node.get("mailbox_depth")
    queue = f"  mailbox {mailbox}/{node.get('mailbox_capacity')}" if mailbox is not None else ""
    restarts = f"  restarts {node['restarts']}" if node.get("restarts") else ""
    crash = f"  last crash: {node['last_crash']}" if node.get("last_crash") else ""
    age_ms = node.get("age_ms")
    waits = f"  waits for {node['waits_for']}, {age_ms / 1000:.1f} s" if age_ms is not None else ""
    first = f"{indent}{node['id']}  {node['state']}{waits}{restarts}{queue}{crash}"
    children = [line for child in node.get("children", ()) for line in draw(child, indent + "  ")]
    return [first, *children]
