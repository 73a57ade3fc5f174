"""A daemon process that can be given a point at which to kill itself."""

from functools import partial

from tests.e2e.daemon_process import DaemonProcess
from tests.faults.crash_points import CrashAt, arm
from tests.forked import ForkedProcess, Setting


class MortalDaemon(DaemonProcess):
    """One home; the next process can be given a point at which to kill itself."""

    crash: CrashAt | None = None

    def is_alive(self) -> bool:
        """Return True if the process has not ended yet."""
        return self.process is not None and self.process.poll() is None

    def _begin(self, environment: dict[str, str], streams: tuple[int, int, int]) -> ForkedProcess:
        crash, self.crash = self.crash, None
        before = None if crash is None else partial(arm, crash)
        return ForkedProcess(self.arguments(), Setting(environment, streams, before=before))
