"""The sample server behind a start of its own: `hungry_server.py WHAT`.

`files` opens 300 files first, `errors` writes a mebibyte to standard error, `die` says why and ends,
`killed` ends by a signal, `silent` never says hello, `banner` prints one and works, `lost` prints
its errors to standard output and ends.
"""

import os
import runpy
import signal
import sys
import threading
from contextlib import ExitStack
from pathlib import Path

MANY = 300
SAID = "cannot find my papers: token=ghp_Canary0123456789abcdefghijABCDEFGHIJ\nsecond line\n"

with ExitStack() as held:
    match sys.argv[1]:
        case "files":
            for _ in range(MANY):
                held.enter_context(Path("/dev/null").open("rb"))
        case "errors":
            sys.stderr.write(("x" * 99 + "\n") * 10_486)
        case "die":
            sys.stderr.write("early " * 2_000 + "\n" + SAID)
            sys.exit(7)
        case "killed":
            sys.stderr.write("about to go\n")
            sys.stderr.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        case "silent":
            sys.stderr.write("waiting for a friend\n")
            sys.stderr.flush()
            os.close(1)
            threading.Event().wait()
        case "banner":
            sys.stdout.write("Welcome!\n")
            sys.stdout.flush()
        case "lost":
            sys.stdout.write("x" * 2_000 + "\n" + SAID)
            sys.stdout.flush()
            sys.exit(7)
        case what:
            sys.exit(f"it cannot do {what}")
    del sys.argv[1:]
    runpy.run_path(str(Path(__file__).with_name("sample_server.py")), run_name="__main__")
