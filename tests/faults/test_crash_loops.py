"""Parts of a daemon that crash again and again: what else goes on."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs

from palyra.actors import task_queue
from palyra.actors.session import actor as session_actor
from palyra.config.load import load
from palyra.core.journal.changes import IncidentFilter
from palyra.core.session.commands import StartRun
from palyra.core.task.life import Submission
from palyra.daemon import Daemon
from palyra.errors import ActorGone, IllegalState, TooSlow
from tests.faults.bad_disk_daemon import OPERATOR
from tests.store.kit import KEYS
from tests.store.memory.journal import MemoryJournal

pytestmark = pytest.mark.real
WITHIN_S = 120.0  # a bound against hanging, not a promise


@asynccontextmanager
async def living(tmp_path: Path) -> AsyncGenerator[Daemon]:
    """A daemon that runs inside the block."""
    for folder in ("home", "workspace"):
        (tmp_path / folder).mkdir(mode=0o700)
    config = load(
        home=tmp_path / "home", overrides={"tools.workspace": str(tmp_path / "workspace")}
    )
    daemon = Daemon(config, keys=KEYS, operator_token="operator-token", store=MemoryJournal())
    with capture_logs(), trio.fail_after(WITHIN_S):
        async with trio.open_nursery() as nursery:
            await nursery.start(daemon.run)
            await daemon.wait_ready()
            yield daemon  # noqa: RUF075 - an error in the block cancels the daemon
            daemon.stop("seen enough")


async def repeat(daemon: Daemon, command: StartRun) -> None:
    """Send a message that gets no answer again and again."""
    while True:
        with suppress(ActorGone, TooSlow), trio.move_on_after(0.3):
            await daemon.gateway.start_run(OPERATOR, command)


async def list_kinds(daemon: Daemon) -> set[str]:
    found = await daemon.incidents.list_page(OPERATOR, IncidentFilter())
    return {each.key.partition(":")[0] for each in found[0]}


async def test_a_daemon_outlives_a_queue_that_crashes_four_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queue comes back after pauses, does its tasks, and runs notice nothing."""
    cycle, left = task_queue.cycle, 5

    async def fragile(parts: Any) -> Any:
        nonlocal left
        left -= 1
        if left > 0:
            raise ValueError("a bug in the queue")
        return await cycle(parts)

    monkeypatch.setattr(task_queue, "cycle", fragile)
    async with living(tmp_path) as daemon:
        started = await daemon.gateway.start_run(OPERATOR, StartRun(text="/say hello"))
        await daemon.gateway.wait_run(
            OPERATOR, started.run_id, until="terminal", timeout_s=WITHIN_S
        )
        task = await daemon.tasks.tasks.submit(
            OPERATOR, Submission(kind="prompt", payload={"text": "/say done"})
        )
        while (await daemon.tasks.tasks.get(OPERATOR, task.task_id)).state != "succeeded":
            await trio.lowlevel.checkpoint()
        shown = {each.id: each for each in daemon.snapshot().children}
        assert (4, 1) == (shown["background"].restarts, shown["work"].incarnation)
        assert "actor_crashes" in await list_kinds(daemon)


async def test_a_daemon_sets_a_poisonous_session_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other sessions live, its messages are refused, and resolving its incident lets it go on."""
    submit, poison = session_actor._SessionActor._submit, True

    def fragile(self: Any, message: Any) -> None:
        if poison and message.command.session_key == "ill" and message.command.text == "poison":
            raise ValueError("a bug in a session")
        submit(self, message)

    monkeypatch.setattr(session_actor._SessionActor, "_submit", fragile)
    async with living(tmp_path) as daemon:
        start = daemon.gateway.start_run
        await start(OPERATOR, StartRun(text="/say hello", session_key="ill"))
        with pytest.raises(IllegalState, match="set aside"):
            await repeat(daemon, StartRun(text="poison", session_key="ill"))
        other = await start(OPERATOR, StartRun(text="/say hello", session_key="well"))
        await daemon.gateway.wait_run(OPERATOR, other.run_id, until="terminal", timeout_s=WITHIN_S)
        page, _ = await daemon.incidents.list_page(OPERATOR, IncidentFilter())
        (found,) = [each for each in page if each.key.startswith("session_set_aside")]
        poison = False
        await daemon.incidents.resolve(OPERATOR, found.incident_id, "mended")
        again = await start(OPERATOR, StartRun(text="poison", session_key="ill"))
        await daemon.gateway.wait_run(OPERATOR, again.run_id, until="terminal", timeout_s=WITHIN_S)
        assert [1] == [each.incarnation for each in daemon.snapshot().children if each.id == "work"]
