"""`palyra chat`: the command, whose first line is printed before anything slow is imported.

The conversation is in `chat_desk` at a terminal, and in `chat_lines` for a pipe.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from palyra.cli.command.options import shared_options
from palyra.cli.command.output import say
from palyra.cli.command.talk import Options, talk
from palyra.cli.run.approve_policy import ApprovePolicy, ApproveType, bell_option
from palyra.cli.run.modes import mode_option

if TYPE_CHECKING:
    from palyra.client import Client
    from palyra.core.journal.records import SessionMode


@click.command(short_help="Talk with the agent in the terminal.")
@click.option("--continue", "is_continued", is_flag=True, help="Go on with your last conversation.")
@click.option("--resume", metavar="SESSION", help="Go on with that session: its id or key.")
@click.option(
    "--workspace",
    help="Workspace of a new conversation; if left out, the one that the current directory lies in.",
)
@click.option("--agent", help="Name of the agent.")
@click.option("--model", help="Name of the model.")
@mode_option
@click.option(
    "--approve",
    "policy",
    type=ApproveType(),
    default=ApprovePolicy(),
    metavar="ask|deny|TOOL,...",
    help="How calls that need approval are answered, as for `palyra run`.",
)
@bell_option
@shared_options
def chat(  # noqa: PLR0913 - click's, by name
    options: Options,
    *,
    is_continued: bool,
    resume: str | None,
    workspace: str | None,
    agent: str | None,
    model: str | None,
    mode: SessionMode | None,
    policy: ApprovePolicy,
    rings: bool,
) -> None:
    """Talk with the agent in the terminal.

    /help lists the commands.  In a pipe each line of standard input is one message, and the exit code
    is that of the first run that did not end well.
    """
    is_resumed = is_continued or resume is not None
    mistakes = {
        "--continue and --resume exclude each other": is_continued and resume is not None,
        "--workspace is for a new conversation: a session keeps its own": is_resumed and workspace,
        "a conversation has no JSON form: use `palyra run --json`": options.as_json,
    }
    for mistake, is_made in mistakes.items():
        if is_made:
            raise click.UsageError(mistake)
    is_terminal = sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()
    if is_terminal:
        say("palyra chat: /help lists commands, Ctrl-D leaves", dim=True)
        sys.stdout.flush()

    async def work(client: Client) -> int:
        # The first line must be fast.
        from palyra.cli.chat.session import Conversation  # noqa: PLC0415
        from palyra.cli.run.approval_prompt import check_listed  # noqa: PLC0415
        from palyra.cli.run.workspaces import choose_workspace  # noqa: PLC0415

        await check_listed(client, policy, agent)
        conversation = Conversation(client, options, agent, model, workspace)
        if policy.mode == "deny":
            conversation.approval_mode = "deny"
        if is_resumed:
            await conversation.resume(resume)
        elif workspace is None:
            conversation.workspace = await choose_workspace(client, options)
        if mode is not None:
            await conversation.set_mode(mode)
        if is_terminal:
            from palyra.cli.chat.desk import talk_at_terminal  # noqa: PLC0415 - see above

            return await talk_at_terminal(conversation, policy, rings=rings)
        from palyra.cli.chat.lines import answer_lines  # noqa: PLC0415 - see above

        return await answer_lines(conversation, policy)

    raise SystemExit(talk(options, work))
