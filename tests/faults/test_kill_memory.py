"""kill -9 of a daemon while items are stored and forgotten, at named points and between them."""

import random
from itertools import count
from pathlib import Path
from unittest.mock import patch

import pytest
import trio

from palyra.client import Client, reconnecting
from palyra.core.memory.items import MAX_IMPORT
from palyra.net.protocol.results import MemoryStatement
from tests.faults.crash_points import CrashAt
from tests.faults.kill_daemon import QUICK
from tests.faults.mortal_daemon import MortalDaemon

pytestmark = [pytest.mark.real]
WITHIN_S = 240.0
STEPS, KILLS, LOOK_S = 60, 3, 0.02


class Expected:
    """The expected memory by acknowledged requests: word to id."""

    def __init__(self) -> None:
        self.kept: dict[str, str] = {}
        self.gone: list[str] = []
        self.kills = 0
        self.is_over = False


async def use(client: Client, expected: Expected, rng: random.Random) -> None:
    """Store, import and forget until the daemon was killed often enough.

    Every request is repeated until it is answered.
    """
    for step in count():
        if step >= STEPS and expected.kills >= KILLS:
            break
        word = f"word{step}x"
        if expected.kept and rng.random() < 0.4:
            old = rng.choice(sorted(expected.kept))
            await client.forget_memories(expected.kept.pop(old))
            expected.gone.append(old)
        elif rng.random() < 0.2:
            words = [f"{word}{n}" for n in range(5)]
            items = [MemoryStatement(text=f"{each} was said", session_id="ses_1", at_ms=step * 10 + n)
                     for n, each in enumerate(words)]  # fmt: skip
            done = await client.import_memories(items)
            assert 5 == done.added <= MAX_IMPORT
            expected.kept |= dict(zip(words, done.memory_ids, strict=True))
        else:
            added = await client.add_memory(f"{word} is a statement", kind="fact")
            assert "added" == added.disposition
            expected.kept[word] = added.memory_id
    expected.is_over = True


async def kill_often(daemon: MortalDaemon, expected: Expected, rng: random.Random) -> None:
    """Start the next daemon whenever one has died, by its own hand or from outside."""
    while True:
        with trio.move_on_after(0.3 + rng.random()):
            while daemon.is_alive() and not expected.is_over:  # noqa: ASYNC110 - a process sends no event
                await trio.sleep(LOOK_S)
        if expected.is_over:
            break
        await trio.to_thread.run_sync(daemon.kill)
        expected.kills += 1
        point = rng.choice(
            ["before a commit", "committed, nobody told", "one pending commit settled"]
        )
        daemon.crash = CrashAt(point, rng.randint(5, 30)) if rng.random() < 0.6 else None
        while True:
            try:
                await trio.to_thread.run_sync(daemon.start)
                break
            except AssertionError:
                daemon.crash = None


async def check(client: Client, expected: Expected) -> None:
    """Rows, text index and answers by id agree with what was acknowledged."""
    listed: dict[str, str] = {}
    cursor: str | None = None
    while True:
        page = await client.list_memories(limit=500, cursor=cursor)
        listed |= {item.text.split()[0]: item.memory_id for item in page.items}
        cursor = page.next_cursor
        if cursor is None:
            break
    assert expected.kept == listed
    for word, memory_id in expected.kept.items():
        hits = (await client.search_memories(f"what is {word}?", limit=1)).hits
        assert [memory_id] == [hit.memory_id for hit in hits], word
    for word in expected.gone:
        hits = (await client.search_memories(word, limit=100)).hits
        assert all(word != hit.text.split()[0] for hit in hits), word
    assert len(expected.kept) == (await client.get_memory_status()).items
    assert (await client.verify_tape()).breaks == 0


@pytest.mark.parametrize("seed", [1])
def test_acknowledged_items_survive_kills(tmp_path: Path, seed: int) -> None:
    """After kills each stored item is there once, and each forgotten one is gone."""
    rng = random.Random(seed)
    daemon = MortalDaemon(tmp_path, PALYRA_SERVER__REQUESTS_PER_S="100000")
    expected = Expected()

    async def storm() -> None:
        with trio.fail_after(WITHIN_S):
            await trio.to_thread.run_sync(daemon.start)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(kill_often, daemon, expected, rng)
                async with daemon.follow() as client:
                    await use(client, expected, rng)
            if not daemon.is_alive():
                daemon.crash = None
                await trio.to_thread.run_sync(daemon.kill)
                await trio.to_thread.run_sync(daemon.start)
            async with daemon.connect() as client:
                await check(client, expected)

    with patch.object(reconnecting, "BACKOFF", QUICK):
        try:
            trio.run(storm)
        finally:
            daemon.end()
    assert expected.kept
    assert expected.gone
