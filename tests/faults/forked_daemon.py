"""A daemon process that is forked from one in which everything is imported already.

The same program with the same arguments, in a session of its own; only the half second that the
interpreter needs for its imports is saved, which is most of what a kill costs a campaign.
"""

import multiprocessing
import os
import signal
import subprocess
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self, cast

from tests.e2e.daemon_process import DaemonProcess
from tests.faults.crash_points import CrashAt, arm

_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(
    ["palyra.__main__", "palyra.cli.main", "palyra.cli.serve", "palyra.serve", __name__]
)


class ForkedProcess:
    """What `DaemonProcess` uses of a `subprocess.Popen`."""

    def __init__(
        self, arguments: list[str], environment: dict[str, str], log: Path, crash: CrashAt | None
    ) -> None:
        read, write = _SERVER.Pipe(duplex=False)
        self._process = _SERVER.Process(
            target=_serve, args=(arguments, environment, str(log), write, crash), daemon=False
        )
        self._process.start()
        write.close()
        self.stdout: IO[bytes] = os.fdopen(os.dup(read.fileno()), "rb")
        read.close()

    @property
    def pid(self) -> int:
        pid = self._process.pid
        assert pid is not None
        return pid

    @property
    def is_alive(self) -> bool:
        return self._process.exitcode is None

    def send_signal(self, number: signal.Signals) -> None:
        if self._process.exitcode is None:
            os.kill(self.pid, number)

    def wait(self, timeout_s: float) -> int:
        self._process.join(timeout_s)
        code = self._process.exitcode
        assert code is not None, "it does not end"
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stdout.close()
        self._process.close()


class ForkedDaemon(DaemonProcess):
    """One home, served by forked processes; the next may be told where to kill itself."""

    crash: CrashAt | None = None

    def is_alive(self) -> bool:
        """Whether it has not ended yet."""
        process = cast("ForkedProcess", self.process)
        return process.is_alive

    def launch(self) -> subprocess.Popen[bytes]:
        """A process that begins to serve; nobody waits for it to be ready."""
        kept = {key: text for key, text in os.environ.items() if not key.startswith("PALYRA_")}
        crash, self.crash = self.crash, None
        forked: Any = ForkedProcess(
            self.command()[3:], {**kept, **self.environment}, self.log, crash
        )
        self.process = cast("subprocess.Popen[bytes]", forked)
        return self.process


def _serve(
    arguments: list[str],
    environment: dict[str, str],
    log: str,
    output: Connection,
    crash: CrashAt | None,
) -> None:
    """The child: become what `python -m palyra serve …` is."""
    from palyra.__main__ import main  # noqa: PLC0415 - preloaded in the server

    os.setsid()
    os.environ.clear()
    os.environ.update(environment)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output.fileno(), 1)
    os.dup2(os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), 2)
    output.close()
    signal.set_wakeup_fd(-1)
    sys.argv = ["palyra", *arguments]
    if crash is not None:
        arm(crash)
    main()
