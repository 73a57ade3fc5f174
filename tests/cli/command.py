"""Running the command line as a process of its own, against a fake or no daemon."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import trio

from tests.net.fake_daemon import TOKEN

PROGRAM = [sys.executable, "-c", "from palyra.cli.main import cli; cli(prog_name='palyra')"]
WITHIN_S = 30.0


@dataclass(frozen=True, slots=True)
class Result:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as JSON."""
        return msgspec.json.decode(self.out)


def environment(home: Path | None = None, url: str | None = None) -> dict[str, str]:
    """The environment of a command: nothing of the user's own daemon leaks in."""
    kept = {key: text for key, text in os.environ.items() if not key.startswith("PALYRA_")}
    if home is not None:
        kept["PALYRA_HOME"] = str(home)
    if url is not None:
        kept |= {"PALYRA_URL": url, "PALYRA_TOKEN": TOKEN}
    return kept


async def palyra(
    *arguments: str, home: Path | None = None, url: str | None = None, stdin: bytes = b""
) -> Result:
    """Run `palyra` with these arguments to its end."""
    with trio.fail_after(WITHIN_S):
        ended = await trio.run_process(
            [*PROGRAM, *arguments],
            stdin=stdin,
            capture_stdout=True,
            capture_stderr=True,
            check=False,
            env=environment(home or Path("/nonexistent"), url),
        )
    return Result(ended.returncode, ended.stdout.decode(), ended.stderr.decode())


async def start_palyra(*arguments: str, url: str, terminal: int) -> trio.Process:
    """Start `palyra` at that terminal and leave it running."""
    return await trio.lowlevel.open_process(
        [*PROGRAM, *arguments],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env=environment(url=url),
        start_new_session=True,
    )


async def run_python(program: str) -> str:
    """What a fresh interpreter prints."""
    with trio.fail_after(WITHIN_S):
        ended = await trio.run_process([sys.executable, "-c", program], capture_stdout=True)
    return ended.stdout.decode()
