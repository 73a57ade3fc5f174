"""Running the command line as a process of its own, against a fake or no daemon."""

import os
import sys
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import trio

from tests.client.fake_daemon import TOKEN
from tests.forked import ForkedProcess, Setting, run_forked

WITHIN_S = 120.0  # a bound against hanging, not a promise


class Result(NamedTuple):
    """The output and exit code of a command."""

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
    *arguments: str,
    home: Path | None = None,
    url: str | None = None,
    stdin: bytes = b"",
    folder: Path | None = None,
) -> Result:
    """Run `palyra` with these arguments to its end, in that folder."""
    before = None if folder is None else partial(os.chdir, folder)
    with trio.fail_after(WITHIN_S):
        kept = environment(home or Path("/nonexistent"), url)
        code, out, err = await run_forked(arguments, kept, stdin, before)
    return Result(code, out.decode(), err.decode())


def start_palyra(
    *arguments: str, terminal: int, home: Path | None = None, url: str | None = None
) -> ForkedProcess:
    """Start `palyra` at that terminal and leave it running."""
    return ForkedProcess(arguments, Setting(environment(home, url), (terminal,) * 3))


async def run_python(program: str) -> str:
    """The output of a fresh interpreter."""
    with trio.fail_after(WITHIN_S):
        ended = await trio.run_process([sys.executable, "-c", program], capture_stdout=True)
    return ended.stdout.decode()
