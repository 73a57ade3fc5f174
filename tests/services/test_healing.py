"""Modes, and the remedies of services."""

from types import SimpleNamespace
from typing import Any

import pytest

from palyra.core.access import Caller
from palyra.core.incident.kinds import chain_broken
from palyra.core.journal.changes import ChainViolation, Change, VerifyReport
from palyra.core.journal.records import Role
from palyra.core.model.circuit_breaker import OPEN_MS, CircuitBreaker, end_call, trip
from palyra.errors import DiskFull, Forbidden
from palyra.services.upkeep.healing import DOMAINS, HealingModes, checkpoint_wal, reverify_journal


def caller(role: Role) -> Caller:
    return Caller(principal="ann", role=role, token_id=f"tok_{role}")


BREAK = ChainViolation(kind="edited", position=3, run_id="run_1", seq=2, detail="it differs")
OTHER = ChainViolation(kind="missing", position=9, run_id="run_1", seq=7, detail="it is gone")


def report(*found: ChainViolation, breaks: int | None = None) -> VerifyReport:
    return VerifyReport(
        checked_events=3,
        checked_roots=1,
        through_position=3,
        signed_through_position=3,
        first_break=found[0] if found else None,
        breaks=len(found) if breaks is None else breaks,
        found=found,
    )


KEY = chain_broken(BREAK, report(BREAK)).key


class Desk:
    """A journal with the result of its verification, and the keys that were cleared."""

    def __init__(self, found: VerifyReport, refusal: DiskFull | None = None) -> None:
        self.found = found
        self.refusal = refusal
        self.cleared: list[str] = []
        self.steps: list[str] = []

    async def read(self, query: Any) -> Any:
        return query(SimpleNamespace(verify=lambda: self.found))

    async def commit(self, change: Change) -> None:
        self.steps.append("commit")
        assert Change() == change
        if self.refusal is not None:
            raise self.refusal

    def clear(self, key: str, _reason: str) -> None:
        self.cleared.append(key)


@pytest.mark.parametrize(
    ("found", "cleared"),
    [
        (report(), [KEY]),
        (report(OTHER), [KEY]),
        (report(BREAK), []),
        (report(OTHER, BREAK), []),
        (report(OTHER, breaks=2), []),  # the second might be the one
    ],
)
async def test_a_break_is_cleared_only_if_it_is_not_found_again(
    found: VerifyReport, cleared: list[str]
) -> None:
    """A verification that finds it, or does not describe all breaks, leaves the incident open."""
    desk: Any = Desk(found)
    outcome = await reverify_journal(desk, desk, KEY)
    assert cleared == desk.cleared
    assert ("still broken" in outcome) == (not cleared)


async def test_a_checkpoint_is_requested_before_the_write_that_wakes_the_writer() -> None:
    """A write that is refused all the same is the outcome, not a failure."""
    desk: Any = Desk(report())
    assert "requested" in await checkpoint_wal(desk, lambda: desk.steps.append("request"))
    assert ["request", "commit"] == desk.steps
    full: Any = Desk(report(), DiskFull("the disk is full"))
    assert "the disk is full" in await checkpoint_wal(full, lambda: None)


def test_modes_are_read_by_roles_of_incidents_and_set_by_operators() -> None:
    """A domain or all of them; a role without the scope changes nothing."""
    modes = HealingModes("observe_only", {"run": "auto"})
    assert dict.fromkeys(DOMAINS, "observe_only") | {"run": "auto"} == modes.read(
        caller("observer")
    )
    with pytest.raises(Forbidden):
        modes.change(caller("observer"), "auto", None)
    with pytest.raises(Forbidden):
        modes.read(caller("client"))
    assert "auto" == modes.change(caller("operator"), "auto", "store")["store"]
    assert "observe_only" == modes.mode("memory")
    assert {"disabled"} == set(modes.change(caller("operator"), "disabled", None).values())


def test_the_pace_follows_the_modes() -> None:
    """5 s while a domain is in mode auto, 15 s otherwise, and the configured one before both."""
    modes = HealingModes()
    assert 15 == modes.sweep_s
    modes.change(caller("operator"), "auto", "edge")
    assert 5 == modes.sweep_s
    assert 1 == HealingModes("auto", sweep_s=1.0).sweep_s


def test_a_tripped_breaker_refuses_until_its_time_and_closes_with_a_success() -> None:
    """As after repeated failures."""
    tripped = trip(CircuitBreaker(), 1_000)
    assert not tripped.admits(1_000 + OPEN_MS - 1)
    assert tripped.admits(1_000 + OPEN_MS)
    assert CircuitBreaker() == end_call(tripped, None, 1_000 + OPEN_MS)
