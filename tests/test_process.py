"""The process ends with a reason and a code that a service manager can act on."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import pytest

from palyra import daemon
from palyra.config.load import load
from palyra.core.journal.changes import Change, OpenReport
from palyra.errors import DiskFull, PalyraError, Unavailable
from palyra.process import EX_SOFTWARE, EX_TEMPFAIL, EX_UNAVAILABLE, serve
from tests.store.memory.journal import MemoryJournal

pytestmark = pytest.mark.real


class CrashingStore(MemoryJournal):
    """A store with a bug: its first commit takes the journal's actor down."""

    def commit(self, changes: Sequence[Change]) -> NoReturn:
        raise RuntimeError(f"a bug in the store, met with {len(changes)} changes")


async def test_a_journal_that_crashes_at_the_first_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The operator reads why, and gets no traceback out of the process."""
    monkeypatch.setattr(daemon, "sqlite_journal", lambda *_: CrashingStore())
    config = load(home=tmp_path, environ={}, overrides={"server.port": 0})
    assert EX_SOFTWARE == await serve(config)
    assert "cannot continue" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("error", "code"),
    [(DiskFull("no room"), EX_TEMPFAIL), (Unavailable("owned by another"), EX_UNAVAILABLE)],
)
async def test_a_full_disk_is_worth_another_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: PalyraError, code: int
) -> None:
    """A service manager tells what goes away by itself from what does not."""

    class Refusing(MemoryJournal):
        def open(self) -> OpenReport:
            raise error

    monkeypatch.setattr(daemon, "sqlite_journal", lambda *_: Refusing())
    config = load(home=tmp_path, environ={}, overrides={"server.port": 0})
    assert code == await serve(config)


_PRODUCT = """
import os
from palyra.cli.host import serve
serve.forbid_blas_threads()
import numpy
a = numpy.ones((1024, 1024), numpy.float32)
assert (a @ a).sum() > 0
print(len(os.listdir("/proc/self/task")))
"""


def count_threads(script: str) -> int:
    """Threads of an interpreter of its own at the end of the script."""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return int(done.stdout)


@pytest.mark.real
def test_matrix_products_leave_no_threads_that_a_fork_waits_for() -> None:
    """The daemon's numpy has no thread pool; without the setting it has one on several processors."""
    assert 1 == count_threads(_PRODUCT)
    bare = _PRODUCT.replace("serve.forbid_blas_threads()", "")
    assert min(len(os.sched_getaffinity(0)), 2) <= count_threads(bare)
