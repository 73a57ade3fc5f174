"""Slash commands of `palyra chat` that ask the daemon; each returns the lines to print."""

import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import trio

from palyra.cli.chat.session import Conversation
from palyra.cli.command.errors import CommandFailed
from palyra.cli.command.output import one_line
from palyra.cli.context import describe_explained
from palyra.cli.export import export_session, write_new
from palyra.cli.run.modes import MODES, find_mode, next_mode, spell_mode
from palyra.cli.run.preview import style_blocks
from palyra.cli.usage import render_cost
from palyra.cli.view.conversation import read_exchanges
from palyra.cli.view.event_text import narrate
from palyra.core.journal.records import SessionMode
from palyra.core.tape import events as ev
from palyra.core.text.visible import pluralize

PAGE_ROWS = 500
MOST_DIFFS = 20  # runs of which changes are shown
DRAFT_INSTRUCTIONS = """\
Draft an AGENTS.md for this workspace: what an agent that works here for the first time must know.
Look at the files first: README, manifests, settings of tests, linters and continuous integration, and
a few sources. Then answer with the text of the file and nothing else, at most 60 lines of Markdown:
- what the project is, in two sentences, and where its parts are;
- the exact commands that build it, test it, test one thing and check its style;
- conventions that the sources show and that a newcomer would get wrong.
State what you have seen, and leave out what you have not. Do not write the file."""
_FENCED = re.compile(r"```(?:markdown|md)?[ \t]*\n(.*)\n```\Z", re.DOTALL)


async def show_model(conversation: Conversation, name: str) -> list[str]:
    """List the models, or choose one."""
    models = (await conversation.client.list_models()).models
    names = [each.name for each in models]
    if not name:
        chosen = conversation.model
        return [
            _row(
                each.name,
                each.name == chosen or (chosen is None and each.is_default),
                each.provider,
            )
            for each in models
        ]
    if name not in names and "/" not in name:  # a list holds only some names of a provider
        raise CommandFailed(f"no model {name!r}", f"there are {', '.join(names)}")
    conversation.model = name
    providers = {each.provider for each in models}
    if name not in names and name.partition("/")[0] not in providers:
        return [f"the next message goes to {name}, which no list holds: it may be refused"]
    return [f"the next message goes to {name}"]


async def show_agent(conversation: Conversation, name: str) -> list[str]:
    """List the agents, or choose one."""
    agents = await conversation.client.list_agents()
    names = [each.name for each in agents]
    if not name:
        chosen = conversation.agent or "default"
        return [_row(each, each == chosen) for each in names]
    if name not in names:
        raise CommandFailed(f"no agent {name!r}", f"there are {', '.join(names)}")
    conversation.agent = name
    return [f"the next message goes to {name}"]


async def change_mode(conversation: Conversation, name: str) -> list[str]:
    """Change the mode of the session; without a name, to the next one."""
    mode = find_mode(name) if name else next_mode(conversation.mode)
    if mode is None:
        raise CommandFailed(f"no mode {name!r}", f"there are {', '.join(map(spell_mode, MODES))}")
    await conversation.set_mode(mode)
    return [f"mode {spell_mode(mode)}: {_MODES[mode]}"]


_MODES: dict[SessionMode, str] = {
    "ask": "calls are asked about as the rules say",
    "accept_edits": "changes of files in the workspace need no answer",
    "plan": "only reading, until you accept a plan",
}


async def show_session(conversation: Conversation, name: str) -> list[str]:
    """Show the session, start a new one, or go on with another one."""
    if name == "new":
        conversation.begin()
        return ["the next message starts a new session"]
    if name:
        session_id = await conversation.resume(name)
        await conversation.print_end()
        return [f"the next message goes to {session_id}"]
    if conversation.session_id is None:
        return ["a new session, with the next message"]
    branch = "; the next message continues it in a branch" if conversation.is_branching else ""
    return [f"{conversation.session_id}: {pluralize(len(conversation.runs), 'exchange')}{branch}"]


async def give_title(conversation: Conversation, title: str) -> list[str]:
    """Give the session a title."""
    if conversation.session_id is None or conversation.is_branching:
        raise CommandFailed("there is no session to name yet", "it begins with the next message")
    session = await conversation.client.rename_session(conversation.session_id, title)
    conversation.title = session.title
    return [f"this session is named {session.title}"]


async def undo(conversation: Conversation, _argument: str) -> list[str]:
    """Take back the last exchange."""
    text = await conversation.undo()
    if not text:
        return ["there is nothing to take back"]
    where = "continues before it, in a branch" if conversation.runs else "starts a new session"
    return [
        f"taken back: {one_line(text, 120)}",
        f"the next message {where}; changes of files stay (`palyra checkpoints list`)",
    ]


async def compact(conversation: Conversation, _argument: str) -> list[str]:
    """Replace older messages by a summary."""
    if conversation.session_id is None or conversation.is_branching:
        return ["there is no session to compact yet"]
    planned = await conversation.client.compact_session(conversation.session_id, preview=True)
    if planned.reason:
        return [f"nothing to do: {planned.reason}"]
    started = await conversation.client.compact_session(conversation.session_id)
    if started.run_id is not None:
        await conversation.client.wait_run(started.run_id)
    shown = (
        f"{pluralize(planned.messages, 'message')}: {planned.before_tokens} tokens become "
        f"{planned.after_tokens}"
    )
    return [shown]


async def show_cost(conversation: Conversation, _argument: str) -> list[str]:
    """Show tokens and cost of the session."""
    if conversation.session_id is None:
        return ["nothing spent yet"]
    total = (await conversation.client.sum_usage(session_id=conversation.session_id)).total
    cost = render_cost(total.cost_usd_micros, total.unpriced_calls)
    shown = (
        f"{pluralize(total.calls, 'model call')}, {total.input_tokens} + "
        f"{total.output_tokens} tokens, {cost}"
    )
    return [shown]


async def show_why(conversation: Conversation, _argument: str) -> list[str]:
    """Show how the calls of the last run were decided, and the size of its prompt."""
    if not conversation.runs:
        return ["there is no run yet"]
    run_id, lines = conversation.runs[-1], []
    cursor: int | None = -1
    while cursor is not None:
        page = await conversation.client.read_tape(run_id, cursor, limit=PAGE_ROWS)
        cursor = page.next_after_seq
        for item in page.events:
            if isinstance(
                item.event, (ev.ToolProposed, ev.ToolDecided, ev.ApprovalResolved, ev.RoutePlanned)
            ):
                line = narrate(item)
                lines.append(f"{line.mark} {line.text}")
    explained = await conversation.client.explain_context(run_id)
    return [*lines, describe_explained(explained), f"all of it: `palyra tape show {run_id}`"]


async def show_diff(conversation: Conversation, _argument: str) -> list[str]:
    """Show what the last runs of the conversation changed in files, each run by itself."""
    lines: list[str] = []
    for run_id in conversation.runs[-MOST_DIFFS:]:
        found = await conversation.client.diff_run(run_id)
        if found.files or found.unknown:
            lines += [f"{run_id}:", *style_blocks(found.blocks)]
            lines += [f"not known: {note}" for note in found.unknown]
    if len(conversation.runs) > MOST_DIFFS:
        lines.append(f"only the last {MOST_DIFFS} runs; `palyra diff RUN` shows others")
    return lines or ["no change of a file is recorded"]


async def export(conversation: Conversation, name: str) -> list[str]:
    """Write the conversation to a new Markdown file."""
    if conversation.session_id is None:
        return ["there is nothing to write yet"]
    path = Path(name or f"{conversation.session_id}.md")
    write_new(path, await export_session(conversation.client, conversation.session_id))
    return [f"{path} is written"]


async def save_instructions(conversation: Conversation, workspace: Path | None) -> list[str]:
    """Write the model's last answer to a new AGENTS.md: a model may not, because later runs obey it."""
    answers: list[str] = []
    if conversation.session_id is not None:
        exchanges, _ = await read_exchanges(conversation.client, conversation.session_id, 1)
        answers = [e.text for each in exchanges for e in each.entries if e.kind == "answer"]
    if not answers:
        raise CommandFailed("there is no answer to write", "/init has the model draft one")
    if workspace is None or not await trio.Path(workspace).is_dir():
        raise CommandFailed(
            "the workspace is not on this machine", "/export writes the answer to a file here"
        )
    path = workspace / "AGENTS.md"
    whole = _FENCED.match(answers[-1].strip())
    write_new(path, f"{(whole[1] if whole else answers[-1]).strip()}\n")
    return [f"{path} is written; the next message has it"]


def _row(name: str, is_chosen: bool, note: str = "") -> str:  # noqa: FBT001 - a mark
    return f"{'*' if is_chosen else ' '} {name}  {note}".rstrip()


PERFORM: dict[str, Callable[[Conversation, str], Awaitable[list[str]]]] = {
    "model": show_model,
    "agent": show_agent,
    "mode": change_mode,
    "session": show_session,
    "title": give_title,
    "undo": undo,
    "compact": compact,
    "cost": show_cost,
    "why": show_why,
    "diff": show_diff,
    "export": export,
}
