"""The newest lines of the log: bounded, numbered, and followed without losing count."""

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from palyra.core.journal.records import Role
from palyra.core.log_lines import LogLevel, LogLine
from palyra.errors import Forbidden
from palyra.services.upkeep.log_history import MAX_LINE_CHARS, MAX_LINES, PAGE_BYTES, LogHistory
from tests.services.memory_kit import caller

ROOT = caller("root", "operator")


def history(*levels: str) -> LogHistory:
    """One line of each level, whose text is its number."""
    made = LogHistory()
    for number, level in enumerate(levels, 1):
        made.add(number, level, str(number))
    return made


async def read(
    made: LogHistory,
    after: int | None = None,
    *,
    level: LogLevel = "debug",
    limit: int = 200,
    wait_s: float = 0,
) -> tuple[list[int], int, int]:
    """Numbers of the lines, the number to continue after, the number of missed lines."""
    lines, through, missed = await made.read(
        ROOT, after=after, level=level, limit=limit, wait_s=wait_s
    )
    return [each.number for each in lines], through, missed


async def test_the_newest_lines_of_a_level() -> None:
    """Without a number the newest, in their order; below the level nothing."""
    made = history("info", "error", "debug", "warning", "info")
    assert ([4, 5], 5, 0) == await read(made, limit=2)
    assert ([2, 4], 5, 0) == await read(made, level="warning")
    assert ([], 0, 0) == await read(LogHistory())


async def test_pages_follow_each_other() -> None:
    """Each line once, also of a level with long gaps."""
    made = history("info", "error", "info", "info", "error", "info")
    assert ([1, 2], 2, 0) == await read(made, 0, limit=2)
    assert ([3, 4], 4, 0) == await read(made, 2, limit=2)
    assert ([2], 2, 0) == await read(made, 0, level="error", limit=1)
    assert ([5], 6, 0) == await read(made, 2, level="error", limit=2)


async def test_a_reader_waits_for_the_next_line(autojump_clock: MockClock) -> None:
    """It gets the line when there is one, and an empty page at the end of its patience."""
    made, got = history("info"), list[tuple[list[int], int, int]]()

    async def follow() -> None:
        got.append(await read(made, 1, level="error", wait_s=60))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(follow)
        await wait_all_tasks_blocked()
        made.add(2, "info", "not for this reader")
        made.add(3, "error", "for this reader")
    assert [([3], 3, 0)] == got
    started = trio.current_time()
    assert ([], 3, 0) == await read(made, 3, wait_s=60)
    assert trio.current_time() - started == pytest.approx(60)


async def test_what_is_no_longer_kept_is_counted() -> None:
    """The history is bounded in lines and in their length; a late reader learns what it missed."""
    made = LogHistory()
    for number in range(MAX_LINES + 7):
        made.add(number, "info", "x" * (MAX_LINE_CHARS + 1))
    lines, _, missed = await made.read(ROOT, after=2, level="debug", limit=500, wait_s=0)
    assert (5, 8) == (missed, lines[0].number)
    assert {MAX_LINE_CHARS} == {len(each.text) for each in lines}
    assert PAGE_BYTES >= sum(len(each.text) for each in lines) > PAGE_BYTES - MAX_LINE_CHARS


async def test_a_number_of_an_earlier_instance_starts_at_the_first_line() -> None:
    """Numbers begin at 1 after a restart, so a larger one is of another instance."""
    assert ([1, 2], 2, 0) == await read(history("info", "info"), 77)


async def test_an_unknown_level_is_info() -> None:
    """Libraries may have levels of their own."""
    made = history("notset")
    lines, _, _ = await made.read(ROOT, after=None, level="debug", limit=1, wait_s=0)
    assert [LogLine(number=1, at_ms=1, level="info", text="1")] == lines


@pytest.mark.parametrize("role", ["client", "person", "approver", "observer"])
async def test_the_log_is_for_operators(role: Role) -> None:
    """It names every principal."""
    with pytest.raises(Forbidden):
        await history("info").read(
            caller("ann", role), after=None, level="debug", limit=1, wait_s=0
        )
