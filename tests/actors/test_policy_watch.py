"""The policy watch: valid changes take effect, invalid ones are reported."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
import trio

from palyra.actors.config_watch import POLL_S, policy_watch
from palyra.core.incident.kinds import POLICIES
from tests.actors.fake_alarms import FakeAlarms
from tests.actors.run.office_kit import inline_blocking


class FakeRules:
    """Rules whose next look a test decides."""

    def __init__(self) -> None:
        self.version, self.problems = "v1", tuple[str, ...]()
        self.next: tuple[str, tuple[str, ...]] = ("v1", ())
        self.looks = 0
        self.alarms = FakeAlarms()

    def refresh(self) -> None:
        self.looks += 1
        self.version, self.problems = self.next


@asynccontextmanager
async def watching() -> AsyncGenerator[tuple[FakeRules, list[str]]]:
    """A watch that runs inside the block, and the versions that it announced."""
    rules, told = FakeRules(), list[str]()
    async with trio.open_nursery() as nursery:
        await nursery.start(
            policy_watch,
            rules,
            inline_blocking,
            lambda: told.append(rules.version),
            rules.alarms,
        )
        try:
            yield rules, told
        finally:
            nursery.cancel_scope.cancel()


async def wait_look() -> None:
    """Until the watch has looked once more."""
    await trio.sleep(POLL_S * 1.5)


async def test_a_change_is_announced_once(autojump_clock: trio.abc.Clock) -> None:
    """Changed policies are announced, unchanged ones are not."""
    async with watching() as (rules, told):
        await wait_look()
        assert (told, rules.looks > 0) == ([], True)
        rules.next = ("v2", ())
        await wait_look()
        await wait_look()
        assert told == ["v2"]


async def test_invalid_policies_are_an_incident_until_they_are_valid(
    autojump_clock: trio.abc.Clock,
) -> None:
    """It is reported once for each new problem, and once at its end; nothing is evaluated again."""
    async with watching() as (rules, told):
        rules.next = ("v1", ("a: broken", "b: too"))
        await wait_look()
        await wait_look()
        rules.next = ("v1", ())
        await wait_look()
        await wait_look()
    assert told == []
    (raised,) = rules.alarms.raised
    assert ("critical", {"problem": "a: broken", "problems": 2}) == (
        raised.severity,
        raised.evidence,
    )
    assert [f"-{POLICIES}", POLICIES, f"-{POLICIES}"] == rules.alarms.told


async def test_files_that_are_broken_again_in_the_same_way_count_again(
    autojump_clock: trio.abc.Clock,
) -> None:
    """Each read of changed files is a finding of its own, also with the same words."""
    async with watching() as (rules, _):
        for _ in range(2):
            rules.next = ("v1", tuple(["a: broken"]))  # noqa: C409 - a tuple of its own, as after a read
            await wait_look()
            await wait_look()
    assert [POLICIES, POLICIES] == rules.alarms.told[-2:]


async def test_a_resolved_incident_of_still_invalid_policies_is_opened_again(
    autojump_clock: trio.abc.Clock,
) -> None:
    """At the next check, once."""
    async with watching() as (rules, _):
        rules.next = ("v1", ("a: broken",))
        await wait_look()
        rules.alarms.standing.clear()
        await wait_look()
        await wait_look()
        assert [f"-{POLICIES}", POLICIES, POLICIES] == rules.alarms.told


async def test_policies_that_are_invalid_at_the_start_are_reported(
    autojump_clock: trio.abc.Clock,
) -> None:
    """The report exists before the watch is ready."""
    rules = FakeRules()
    rules.problems = ("a: broken",)
    rules.next = ("v1", rules.problems)
    async with trio.open_nursery() as nursery:
        await nursery.start(policy_watch, rules, inline_blocking, lambda: None, rules.alarms)
        assert [POLICIES] == rules.alarms.told
        await wait_look()
        assert [POLICIES] == rules.alarms.told
        nursery.cancel_scope.cancel()


async def test_a_look_that_fails_is_the_supervisors_business(
    autojump_clock: trio.abc.Clock,
) -> None:
    """The watch crashes loudly instead of watching no more."""
    with pytest.RaisesGroup(OSError):
        async with watching() as (rules, _):
            rules.refresh = lambda: (_ for _ in ()).throw(OSError("disk"))  # type: ignore[method-assign]  # a failing look
            await wait_look()
