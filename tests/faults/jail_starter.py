"""A process that opens jails without end, to be killed at any moment of one's start."""

import sys
from pathlib import Path

import trio

from tests.tools.sandbox.jails import open_sandbox, python


async def main(marker: str, records: str) -> None:
    """Report readiness, then start jails that never end, without waiting for them."""
    async with open_sandbox(Path(records)) as sandbox:
        async with sandbox.open(python("", marker)) as child:  # what is made once is made
            await child.wait()
        sys.stdout.write("begun\n")
        sys.stdout.flush()
        while True:
            async with sandbox.open(python("import signal; signal.pause()", marker)):
                pass


if __name__ == "__main__":
    trio.run(main, sys.argv[1], sys.argv[2])
