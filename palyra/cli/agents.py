"""`palyra agents`: list and change agents."""

import click

from palyra.cli.command.options import read_text, shared_options
from palyra.cli.command.output import age, print_json, print_table, say
from palyra.cli.command.talk import Options, talk
from palyra.client import Agent
from palyra.client.registry import AgentOptions

COLUMNS = ("AGENT", "VERSION", "MODEL", "TOOLS", "LABELS", "CHANGED")


@click.group()
def agents() -> None:
    """List, show, create, update and delete agents."""


@agents.command("list")
@shared_options
def list_(options: Options) -> None:
    """List agents, the default one first."""
    found = talk(options, lambda client: client.list_agents())
    if options.as_json:
        print_json({"agents": found})
        return
    print_table(COLUMNS, [_row(agent) for agent in found], empty="no agents")


def _row(agent: Agent) -> tuple[object, ...]:
    tools = "all" if agent.tools is None else ", ".join(agent.tools) or "none"
    return (
        agent.name,
        agent.version,
        agent.model or "default",
        tools,
        ", ".join(agent.labels) or "-",
        age(agent.updated_ms or None),
    )


@agents.command()
@click.argument("name")
@shared_options
def show(options: Options, name: str) -> None:
    """Show one agent and its instructions."""
    agent = talk(options, lambda client: client.get_agent(name))
    if options.as_json:
        print_json(agent)
        return
    print_table(COLUMNS, [_row(agent)], empty="")
    say(f"memory scope: {agent.memory_scope}", dim=True)
    say(agent.instructions or "")


_MODEL = click.option("--model", help="Name of the model; '' for the daemon's default.")
_TOOLS = click.option(
    "--tool", "tools", multiple=True, help="Tool that the agent may call; repeatable, '*' for all."
)
_NO_TOOLS = click.option("--no-tools", is_flag=True, help="Allow no tools.")
_LABELS = click.option("--label", "labels", multiple=True, help="Label for policies; repeatable.")
_MEMORY = click.option(
    "--memory",
    "memory_scope",
    type=click.Choice(["principal", "session", "none"]),
    help="Scope of the agent's memory.",
)


@agents.command()
@click.argument("name")
@click.option("--instructions", required=True, help="System instructions; @FILE reads a file.")
@_MODEL
@_TOOLS
@_NO_TOOLS
@_LABELS
@_MEMORY
@shared_options
def create(
    options: Options, name: str, instructions: str, *, no_tools: bool, **wanted: object
) -> None:
    """Create an agent."""
    given = _given(wanted, no_tools=no_tools)
    text = read_text(instructions)
    made = talk(options, lambda client: client.create_agent(name, text, **given))
    _print_change(options, made, "is created")


@agents.command()
@click.argument("name")
@click.option("--instructions", help="System instructions; @FILE reads a file.")
@_MODEL
@_TOOLS
@_NO_TOOLS
@_LABELS
@_MEMORY
@shared_options
def update(
    options: Options, name: str, instructions: str | None, *, no_tools: bool, **wanted: object
) -> None:
    """Update an agent; a run keeps the version that it was accepted with."""
    given = _given(wanted, no_tools=no_tools)
    text = None if instructions is None else read_text(instructions)
    changed = talk(options, lambda client: client.update_agent(name, instructions=text, **given))
    _print_change(options, changed, f"has version {changed.version}")


@agents.command()
@click.argument("name")
@shared_options
def delete(options: Options, name: str) -> None:
    """Delete an agent; its open runs continue."""
    gone = talk(options, lambda client: client.delete_agent(name))
    _print_change(options, gone, "is deleted")


def _given(wanted: dict[str, object], *, no_tools: bool) -> AgentOptions:
    """Return only the options that were given; the others are left unchanged."""
    if no_tools and wanted["tools"]:
        raise click.UsageError("--tool and --no-tools exclude each other")
    given = {key: value for key, value in wanted.items() if value not in {None, ()}}
    if no_tools:
        given["tools"] = ()
    return given  # type: ignore[return-value]  # click made them


def _print_change(options: Options, agent: Agent, what: str) -> None:
    if options.as_json:
        print_json(agent)
    else:
        say(f"{agent.name} {what}")
