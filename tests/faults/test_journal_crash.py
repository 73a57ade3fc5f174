"""The journal's actor crashes inside a daemon: everything above it restarts from the tapes."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import trio
from structlog.testing import capture_logs

from palyra.config.load import load
from palyra.core.journal.changes import Change
from palyra.core.session.commands import StartRun
from palyra.core.tape.events import TERMINAL_KINDS
from palyra.daemon import Daemon
from palyra.errors import ActorGone, PalyraError, Unavailable
from tests.faults.bad_disk_daemon import OPERATOR
from tests.store.kit import KEYS
from tests.store.memory.journal import MemoryJournal

pytestmark = pytest.mark.real
RUNS = 6
WITHIN_S = 120.0  # a bound against hanging, not a promise


class Fragile(MemoryJournal):
    """A journal whose n-th commit of events raises a bug, before or after the write."""

    def __init__(self, crash_at: int, *, is_late: bool) -> None:
        super().__init__()
        self.left = crash_at
        self.is_late = is_late

    def commit(self, changes: Sequence[Change]) -> list[PalyraError | None]:
        self.left -= any(change.rows for change in changes)
        if self.left == 0:
            self.left = -1
            if self.is_late:
                super().commit(changes)
            raise RuntimeError("a bug in the store")
        return super().commit(changes)


async def start_some(daemon: Daemon) -> list[str]:
    """Runs that were acknowledged; it is tried again while the tree restarts."""
    started: list[str] = []
    while len(started) < RUNS:
        command = StartRun(text=f'/call echo {{"text": "{len(started)}"}}')
        try:
            started.append((await daemon.gateway.start_run(OPERATOR, command)).run_id)
        except (ActorGone, Unavailable):
            await trio.lowlevel.checkpoint()
    return started


@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize("crash_at", [1, 2, 3, 5])
async def test_a_daemon_outlives_a_crash_of_its_journal(
    tmp_path: Path, crash_at: int, *, is_late: bool
) -> None:
    """After a crash of the journal acknowledged runs end once, and new runs are accepted."""
    for folder in ("home", "workspace"):
        (tmp_path / folder).mkdir(mode=0o700)
    config = load(
        home=tmp_path / "home", overrides={"tools.workspace": str(tmp_path / "workspace")}
    )
    store = Fragile(crash_at, is_late=is_late)
    daemon = Daemon(config, keys=KEYS, operator_token="operator-token", store=store)
    with capture_logs(), trio.fail_after(WITHIN_S):
        async with trio.open_nursery() as nursery:
            await nursery.start(daemon.run)
            await daemon.wait_ready()
            started = await start_some(daemon)
            for run_id in started:
                await daemon.gateway.wait_run(
                    OPERATOR, run_id, until="terminal", timeout_s=WITHIN_S
                )
            (journal,) = [c for c in daemon.snapshot().children if c.id == "journal"]
            daemon.stop("seen enough")
    assert 1 == journal.restarts
    store.open()
    for run_id in started:
        kinds = [row.kind for row in store.read_tape(run_id, after_seq=-1, limit=100).rows]
        assert ["run.done"] == [kind for kind in kinds if kind in TERMINAL_KINDS] == kinds[-1:]
