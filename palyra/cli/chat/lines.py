"""`palyra chat` in a pipe: each line of standard input is one message, standard output the answers."""

import sys

import trio

from palyra.cli.chat.session import Conversation
from palyra.cli.command.errors import DONE, USAGE, CommandFailed
from palyra.cli.run.approval_prompt import ApprovalPrompt
from palyra.cli.run.approve_policy import ApprovePolicy
from palyra.cli.run.exit import RunExit
from palyra.cli.run.model_pause import ModelPause
from palyra.cli.run.printer import RunPrinter
from palyra.cli.run.run import follow


async def answer_lines(conversation: Conversation, policy: ApprovePolicy) -> int:
    """Send each line of standard input as one message; stop at the first run that does not end well.

    Returns the exit code.  Cancellation: a run that is open continues.
    """
    client = conversation.client
    while (text := await read_line()) is not None:
        started = await conversation.send(text)
        ending, printer = RunExit(started.run_id), RunPrinter(streams=False)
        async with client.events(started.run_id) as items:
            desk = ApprovalPrompt(client, None, policy)
            await follow(items, printer.tell, desk, ending, ModelPause(client, "count down"))
        sys.stdout.flush()
        if ending.code != DONE:
            return ending.code
    return DONE


async def read_line() -> str | None:
    """Return the next line of standard input that is not blank, None at its end.

    Raises CommandFailed for no UTF-8.  Cancellation: the line that is read is lost.
    """
    stdin = sys.stdin.buffer if sys.stdin is not None else None
    while stdin is not None:
        line = await trio.to_thread.run_sync(stdin.readline, abandon_on_cancel=True)
        if not line:
            return None
        text = _decode(line).strip()
        if text:
            return text
    return None


def _decode(line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise CommandFailed(
            f"standard input is not UTF-8: byte 0x{error.object[error.start]:02x}", code=USAGE
        ) from None
