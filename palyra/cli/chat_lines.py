"""`palyra chat` in a pipe: each line of standard input is one message, standard output the answers."""

import sys
from collections.abc import AsyncGenerator

import trio

from palyra.cli.approval_prompt import ApprovalPrompt
from palyra.cli.approve_policy import ApprovePolicy
from palyra.cli.chat_session import Conversation
from palyra.cli.errors import DONE, USAGE, CommandFailed
from palyra.cli.model_pause import ModelPause
from palyra.cli.run import follow
from palyra.cli.run_exit import RunExit
from palyra.cli.run_printer import RunPrinter


async def answer_lines(conversation: Conversation, policy: ApprovePolicy) -> int:
    """Send each line of standard input as one message; stop at the first run that does not end well.

    Returns the exit code.  Cancellation: a run that is open continues.
    """
    client = conversation.client
    async for text in read_lines():
        started = await conversation.send(text)
        ending, printer = RunExit(started.run_id), RunPrinter(streams=False)
        async with client.events(started.run_id) as items:
            desk = ApprovalPrompt(client, None, policy)
            await follow(items, printer.tell, desk, ending, ModelPause(client, "count down"))
        sys.stdout.flush()
        if ending.code != DONE:
            return ending.code
    return DONE


async def read_lines() -> AsyncGenerator[str]:
    """Yield the lines of standard input that are not blank.  Raises CommandFailed for no UTF-8."""
    stdin = sys.stdin.buffer if sys.stdin is not None else None
    while stdin is not None:
        line = await trio.to_thread.run_sync(stdin.readline, abandon_on_cancel=True)
        if not line:
            return
        text = _decode(line).strip()
        if text:
            yield text


def _decode(line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise CommandFailed(
            f"standard input is not UTF-8: byte 0x{error.object[error.start]:02x}", code=USAGE
        ) from None
