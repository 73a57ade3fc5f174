"""Incidents: reported at once, committed when possible, once, and bounded."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from palyra.actors.hub import Hub
from palyra.actors.incident_writer import keep_incidents
from palyra.core.access import Caller
from palyra.core.incident.incident import MAX_OPEN, IncidentReport, open_incident
from palyra.core.journal.changes import Change, IncidentFilter
from palyra.core.journal.idempotency import IdempotencyKey
from palyra.core.journal.records import IncidentRecord, Role
from palyra.errors import Conflict, DiskFull, Forbidden, NotFound
from palyra.net.protocol.jsonrpc import encode_notification
from palyra.services.upkeep.incidents import MAX_UNSAVED, RETRY_S, Incidents, report_opened
from palyra.wiring.host import new_id
from tests.actors.run.office_kit import SECRET, InlineJournal, now_ms, shared_redactor
from tests.store.memory.journal import MemoryJournal

ALARM = IncidentReport(
    domain="store", key="full", severity="error", summary="it is full", evidence={"error": "no"}
)
PASSING = msgspec.structs.replace(ALARM, resolves_itself=True)
FULL = DiskFull("the disk is full")


def caller(role: Role) -> Caller:
    return Caller(principal="ann", role=role, token_id=f"tok_{role}")


OPERATOR = caller("operator")


class Watcher:
    """A connection, and the incidents it is notified of."""

    def __init__(self, role: Role) -> None:
        self.caller = caller(role)
        self.heard: list[tuple[str, str, int]] = []

    def notify(self, message: bytes) -> None:
        notice = json.loads(message)
        assert SECRET.encode() not in message
        params = notice["params"]
        self.heard.append((notice["method"], params["key"], params["count"]))

    def hang_up(self, code: int, reason: str) -> None:
        raise AssertionError(f"{code} {reason}")


class Desk:
    """Incidents over a store, with recorded notifications."""

    def __init__(self, store: MemoryJournal) -> None:
        self.store = store
        self.hub = Hub(encode_notification)
        self.journal = InlineJournal(store, self.hub)
        self.ann = Watcher("operator")
        self.hub.attach(self.ann)
        self.book = Incidents(
            self.journal,
            self.hub,
            shared_redactor(),
            now_ms=now_ms,
            new_id=new_id,
        )

    def kept(self, **wanted: Any) -> list[IncidentRecord]:
        """The records of the store, newest first."""
        return self.store.list_incidents(IncidentFilter(**wanted))

    async def page(self, **wanted: Any) -> tuple[list[IncidentRecord], str | None]:
        return await self.book.list_page(OPERATOR, IncidentFilter(**wanted))


@asynccontextmanager
async def open_book(store: MemoryJournal) -> AsyncGenerator[Desk]:
    """A life of the book inside the block."""
    desk = Desk(store)
    desk.book.begin(store.open().incidents)
    async with trio.open_nursery() as nursery:
        await nursery.start(keep_incidents, desk.book)
        try:
            yield desk
        finally:
            nursery.cancel_scope.cancel()


@pytest.fixture
def store() -> MemoryJournal:
    return MemoryJournal()


async def settle() -> None:
    await trio.testing.wait_all_tasks_blocked()


def fill(desk: Desk) -> None:
    """The disk is full."""
    desk.journal.fail_with = FULL
    desk.journal.is_writable = False


def make_room(desk: Desk) -> None:
    desk.journal.fail_with = None
    desk.journal.is_writable = True


# --- what is found -------------------------------------------------------------------------------


async def test_an_alarm_is_reported_at_once_and_committed_soon(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """The reporter does not wait."""
    async with open_book(store) as desk:
        desk.book.report(ALARM)
        assert ([("incident.opened", "full", 1)], []) == (desk.ann.heard, desk.kept())
        await settle()
        (kept,) = desk.kept()
        assert ("full", "open", 1) == (kept.key, kept.state, desk.book.open_count)
        assert {"error": 1} == desk.book.severities


async def test_a_repeated_alarm_is_counted_and_reported_once(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Any number of times between two commits."""
    async with open_book(store) as desk:
        desk.book.report(ALARM)
        await settle()
        for _ in range(5):
            desk.book.report(ALARM)
        await settle()
        (kept,) = desk.kept()
        assert (6, 1) == (kept.count, desk.book.open_count)
        assert [("incident.opened", "full", 1), ("incident.updated", "full", 6)] == desk.ann.heard


async def test_a_resolved_finding_is_not_opened_again_by_another_look(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Neither in this life nor in the next; other evidence under the key is another incident."""
    changed = msgspec.structs.replace(ALARM, evidence={"error": "other"})
    async with open_book(store) as desk:
        for _ in range(3):
            await desk.book.report_finding(ALARM)
        await settle()
        (kept,) = desk.kept()
        assert 3 == kept.count
        await desk.book.resolve(OPERATOR, kept.incident_id, "seen")
        await desk.book.report_finding(ALARM)
        await settle()
    async with open_book(store) as desk:
        await desk.book.report_finding(ALARM)
        await settle()
        assert [("resolved", 3)] == [(each.state, each.count) for each in desk.kept()]
        await desk.book.report_finding(changed)
        await settle()
        assert ["open", "resolved"] == sorted(each.state for each in desk.kept())


def test_a_start_names_each_critical_incident_that_is_open(store: MemoryJournal) -> None:
    """One warning for each, and none for what is less bad."""
    desk = Desk(store)
    grave = msgspec.structs.replace(ALARM, severity="critical", key="grave")
    kept = (
        open_incident(ALARM, "inc_1", 1),
        open_incident(grave, "inc_2", 1),
    )
    report = msgspec.structs.replace(store.open(), incidents=kept)
    with capture_logs() as logged:
        report_opened(desk.book, report)
    warned = [line["incident_id"] for line in logged if line["log_level"] == "warning"]
    assert ["inc_2"] == warned


async def test_a_cleared_incident_is_resolved_once(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """A later alarm opens another one; clearing an unknown key does nothing."""
    async with open_book(store) as desk:
        desk.book.clear("full", "nothing was wrong")
        desk.book.report(PASSING)
        desk.book.clear("full", "there is room")
        desk.book.clear("full", "there is room")
        desk.book.report(PASSING)
        await settle()
        newest, oldest = desk.kept()
        assert ("open", "resolved", "palyra", "there is room") == (
            newest.state,
            oldest.state,
            oldest.by,
            oldest.reason,
        )
        assert newest.incident_id != oldest.incident_id
        assert ["incident.opened", "incident.resolved", "incident.opened"] == [
            method for method, *_ in desk.ann.heard
        ]


async def test_an_open_alarm_can_be_queried(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Until it is resolved by anyone; above the limit its domain's incident counts."""
    async with open_book(store) as desk:
        assert not desk.book.is_reported("full")
        found = desk.book.report(PASSING)
        assert desk.book.is_reported("full")
        await desk.book.resolve(OPERATOR, found.incident_id, "it was seen to")
        assert not desk.book.is_reported("full")
        assert not desk.book._found  # nothing is remembered of what is over
        for number in range(MAX_OPEN):
            desk.book.report(msgspec.structs.replace(ALARM, key=f"k{number}"))
        assert desk.book.is_reported("full")


async def test_one_log_line_an_incident_at_its_severity(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """A repeated alarm is counted, not logged again."""
    with capture_logs() as lines:
        async with open_book(store) as desk:
            for severity in ("warning", "error", "critical"):
                alarm = msgspec.structs.replace(ALARM, key=severity, severity=severity)
                desk.book.report(alarm)
                desk.book.report(alarm)
    assert [("warning", "warning"), ("error", "error"), ("critical", "critical")] == [
        (line["log_level"], line["key"]) for line in lines
    ]


async def test_no_secret_is_reported_logged_or_stored(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Neither from an error nor from an operator's reason."""
    leaky = msgspec.structs.replace(
        ALARM, summary=f"refused {SECRET}", evidence={"error": f"no {SECRET}"}
    )
    with capture_logs() as lines:
        async with open_book(store) as desk:
            found = desk.book.report(leaky)
            await settle()
            await desk.book.resolve(OPERATOR, found.incident_id, f"it was {SECRET}")
    assert SECRET not in f"{lines} {desk.kept()}"  # `ann` looks for herself
    assert "redacted" in desk.kept()[0].reason


async def test_only_roles_that_read_incidents_are_notified(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Operators and observers, because incidents name runs of all principals."""
    async with open_book(store) as desk:
        others = {role: Watcher(role) for role in ("observer", "approver", "client")}
        for watcher in others.values():
            desk.hub.attach(watcher)
        desk.book.report(ALARM)
        assert {"observer": 1, "approver": 0, "client": 0} == {
            role: len(watcher.heard) for role, watcher in others.items()
        }


# --- bounds --------------------------------------------------------------------------------------


async def test_more_than_there_is_room_for_share_an_incident_a_domain(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Nothing passes unnoticed, and nothing grows for ever."""
    async with open_book(store) as desk:
        for number in range(MAX_OPEN + 20):
            domain = "run" if number % 2 else "store"
            desk.book.report(msgspec.structs.replace(ALARM, key=f"k{number}", domain=domain))
        await settle()
        assert MAX_OPEN + 2 == desk.book.open_count
        shared = [each for each in desk.kept(limit=5_000) if each.key.startswith("more:")]
        assert {("more:run", 10), ("more:store", 10)} == {(each.key, each.count) for each in shared}
        desk.book.report(msgspec.structs.replace(ALARM, key="k0"))
        await settle()
        (known,) = [each for each in desk.kept(limit=5_000) if each.key == "k0"]
        assert 2 == known.count


async def test_the_queue_of_a_full_disk_is_bounded(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Resolved incidents are dropped, the oldest first; open ones are kept."""
    async with open_book(store) as desk:
        fill(desk)
        desk.book.report(msgspec.structs.replace(ALARM, key="lasting"))
        for _ in range(MAX_UNSAVED + 10):
            desk.book.report(PASSING)
            desk.book.clear("full", "for a moment")
        make_room(desk)
        await trio.sleep(2 * RETRY_S)
        kept = desk.kept(limit=5_000)
        assert (MAX_UNSAVED, "lasting") == (len(kept), kept[-1].key)


# --- a disk that is full -------------------------------------------------------------------------


async def test_an_incident_waits_for_room(store: MemoryJournal, autojump_clock: MockClock) -> None:
    """Operators see it all the same, and it is committed once, by itself, as it ended."""
    async with open_book(store) as desk:
        fill(desk)
        found = desk.book.report(PASSING)
        await trio.sleep(60 * RETRY_S)
        assert [] == desk.kept()
        assert ([found], None) == await desk.page()
        assert found == await desk.book.get(OPERATOR, found.incident_id)
        desk.book.clear("full", "there is room")
        assert [] == (await desk.page(states=("open",)))[0]
        make_room(desk)
        await trio.sleep(2 * RETRY_S)
        (kept,) = desk.kept()
        assert ("resolved", "there is room") == (kept.state, kept.reason)


async def test_a_journal_that_refuses_is_left_alone(
    store: MemoryJournal, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says itself when it takes writes again."""
    async with open_book(store) as desk:
        fill(desk)
        asked = list[Change]()
        monkeypatch.setattr(desk.journal, "append", asked.append)
        desk.book.report(ALARM)
        await trio.sleep(10 * RETRY_S)
        assert [] == asked


async def test_a_change_during_the_commit_is_committed_again(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """The committed record is outdated."""
    async with open_book(store) as desk:
        desk.journal.hold = True
        desk.book.report(ALARM)
        await settle()
        desk.book.report(ALARM)
        desk.journal.release()
        await settle()
        assert [2] == [each.count for each in desk.kept()]


async def test_a_constantly_changing_incident_delays_no_other(
    store: MemoryJournal, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It moves to the end of the queue."""
    monkeypatch.setattr("palyra.services.upkeep.incidents.MAX_BATCH", 1)
    desk = Desk(store)
    desk.book.begin(store.open().incidents)
    for key in ("busy", "quiet", "busy"):
        desk.book.report(msgspec.structs.replace(ALARM, key=key))
    assert await desk.book.save()
    assert ["quiet"] == [each.key for each in desk.kept()]


async def test_a_refused_commit_is_tried_again(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Also where the journal is only about to notice that it refuses."""
    async with open_book(store) as desk:
        desk.journal.fail_with = FULL
        desk.book.report(ALARM)
        await trio.sleep(10 * RETRY_S)
        assert [] == desk.kept()
        desk.journal.fail_with = None
        await trio.sleep(2 * RETRY_S)
        assert ["full"] == [each.key for each in desk.kept()]


async def test_an_end_in_the_journal_is_accepted(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """A conflicting record is dropped instead of retried for ever."""
    async with open_book(store) as desk:
        desk.journal.fail_with = Conflict("the incident is resolved; its end stands")
        desk.book.report(ALARM)
        await settle()
        desk.journal.fail_with = None
        await trio.sleep(10 * RETRY_S)
        assert [] == desk.kept()


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({}, ["k6", "k5", "k4", "k3", "k2", "k1", "k0"]),
        ({"states": ("open",)}, ["k6", "k5", "k4", "k3", "k1", "k0"]),
        ({"states": ("resolved",)}, ["k2"]),
        ({"domain": "run"}, []),
    ],
)
async def test_pages_hold_together_whatever_is_committed(
    store: MemoryJournal, autojump_clock: MockClock, wanted: dict[str, Any], expected: list[str]
) -> None:
    """Each incident once, newest first, in its newest state, over as many pages as it takes."""
    async with open_book(store) as desk:
        for number in range(4):
            desk.book.report(msgspec.structs.replace(PASSING, key=f"k{number}"))
        await settle()
        fill(desk)
        for number in range(4, 7):
            desk.book.report(msgspec.structs.replace(PASSING, key=f"k{number}"))
        desk.book.clear("k2", "over")
        for limit in range(1, 9):
            page, cursor = await desk.page(limit=limit, **wanted)
            seen = [each.key for each in page]
            while cursor is not None:
                page, cursor = await desk.page(limit=limit, before=cursor, **wanted)
                assert len(page) <= limit
                seen += [each.key for each in page]
            assert expected == seen


@pytest.mark.parametrize("is_found_before", [True, False])
async def test_a_page_includes_concurrent_commits(
    store: MemoryJournal, autojump_clock: MockClock, *, is_found_before: bool
) -> None:
    """Before or after the read of the journal."""
    async with open_book(store) as desk:
        read = desk.journal.read
        fill(desk)

        async def read_slowly(query: Any) -> Any:
            found = await read(query)
            if not is_found_before:
                desk.book.report(ALARM)
                return found
            make_room(desk)
            await trio.sleep(2 * RETRY_S)
            assert 1 == len(desk.kept())
            return found

        desk.journal.read = read_slowly  # type: ignore[method-assign]  # a slow disk
        if is_found_before:
            desk.book.report(ALARM)
        assert ["full"] == [each.key for each in (await desk.page())[0]]


# --- lives ---------------------------------------------------------------------------------------


async def test_open_incidents_survive_a_restart(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """They stay open and are counted on."""
    async with open_book(store) as desk:
        desk.book.report(ALARM)
        await settle()
    async with open_book(store) as desk:
        assert 1 == desk.book.open_count
        desk.book.report(ALARM)
        desk.book.end_start()
        await settle()
        (kept,) = desk.kept()
        assert (2, "open") == (kept.count, kept.state)
        assert [("incident.updated", "full", 2)] == desk.ann.heard


async def test_a_start_resolves_incidents_that_it_does_not_find(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Found ones stay open, and so do those that only a person resolves."""
    async with open_book(store) as desk:
        for key in ("passed", "lasting"):
            desk.book.report(msgspec.structs.replace(PASSING, key=key))
        desk.book.report(msgspec.structs.replace(ALARM, key="serious"))
        await settle()
    async with open_book(store) as desk:
        desk.book.report(msgspec.structs.replace(PASSING, key="lasting"))
        desk.book.end_start()
        await settle()
        assert {"passed": "resolved", "lasting": "open", "serious": "open"} == {
            each.key: each.state for each in desk.kept()
        }


async def test_uncommitted_incidents_survive_a_crash_of_the_journal(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """They are newer than the journal's records."""
    async with open_book(store) as desk:
        desk.book.report(ALARM)
        desk.book.report(msgspec.structs.replace(PASSING, key="short"))
        await settle()
        fill(desk)
        desk.book.report(ALARM)
        desk.book.clear("short", "over")
        desk.book.begin(store.open().incidents)
        assert 1 == desk.book.open_count
        make_room(desk)
        await trio.sleep(2 * RETRY_S)
        assert {("full", 2, "open"), ("short", 1, "resolved")} == {
            (each.key, each.count, each.state) for each in desk.kept()
        }


async def test_an_uncommitted_end_ends_no_later_incident(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """The journal was reopened and has found the same again."""
    async with open_book(store) as desk:
        fill(desk)
        old = desk.book.report(PASSING)
        desk.book.clear("full", "there is room")
        newer = msgspec.structs.replace(old, incident_id=f"{old.incident_id}1")
        desk.book.begin([newer])
        assert 1 == desk.book.open_count


async def test_a_restart_of_the_journal_repeats_its_findings(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """It counts as a start, although the daemon did not end."""
    async with open_book(store) as desk:
        found = desk.book.report(PASSING)
        await settle()
        desk.book.begin([found])
        desk.book.end_start()
        assert 0 == desk.book.open_count


async def test_a_record_may_be_committed_with_what_it_is_about(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """The book commits it as well; it is the same incident."""
    async with open_book(store) as desk:
        found = desk.book.report(ALARM)
        await desk.journal.commit(Change(records=(found,)))
        assert [found] == desk.kept()
        await settle()
        assert [found] == desk.kept()


# --- operators -----------------------------------------------------------------------------------


async def test_an_operator_ends_an_incident_once(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """It is committed when the answer comes; who is second gets the first end."""
    async with open_book(store) as desk:
        found = desk.book.report(ALARM)
        ended = await desk.book.resolve(OPERATOR, found.incident_id, "made room")
        assert [ended] == desk.kept()
        assert ("resolved", "ann", "made room") == (ended.state, ended.by, ended.reason)
        assert ended == await desk.book.resolve(OPERATOR, found.incident_id, "me too")
        assert (0, 1) == (
            desk.book.open_count,
            [method for method, *_ in desk.ann.heard].count("incident.resolved"),
        )


async def test_the_receipt_comes_with_the_end(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """In one change: no crash can leave one without the other."""
    async with open_book(store) as desk:
        found = desk.book.report(ALARM)
        key = IdempotencyKey(principal="ann", key="k", body_sha256="00")
        ended = await desk.book.resolve(OPERATOR, found.incident_id, "done", key)
        receipt = store.find_receipt("ann", "k", now_ms=0)
        assert receipt is not None
        assert ended == msgspec.json.decode(receipt.result, type=IncidentRecord)


async def test_an_uncommitted_end_is_not_reported_as_success(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """The operator gets an error and may repeat it; the end is committed later as well."""
    async with open_book(store) as desk:
        found = desk.book.report(ALARM)
        await settle()
        fill(desk)
        with pytest.raises(DiskFull):
            await desk.book.resolve(OPERATOR, found.incident_id, "made room")
        assert ["open"] == [each.state for each in desk.kept()]
        make_room(desk)
        ended = await desk.book.resolve(OPERATOR, found.incident_id, "once more")
        assert ("made room", [ended]) == (ended.reason, desk.kept())


async def test_an_end_is_decided_although_its_client_disconnects(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """It is committed or refused."""
    async with open_book(store) as desk, trio.open_nursery() as nursery:
        found = desk.book.report(ALARM)
        await settle()
        desk.journal.hold = True
        ended = list[IncidentRecord]()

        async def end() -> None:
            ended.append(await desk.book.resolve(OPERATOR, found.incident_id, "made room"))

        nursery.start_soon(end)
        await settle()
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            await settle()
            assert [] == ended
            desk.journal.release()
            await settle()
    assert ["resolved"] == [each.state for each in ended] == [each.state for each in desk.kept()]


async def test_an_unknown_incident_is_not_found(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """For reading and for resolving."""
    async with open_book(store) as desk:
        with pytest.raises(NotFound, match="no incident 'inc_x'"):
            await desk.book.get(OPERATOR, "inc_x")
        with pytest.raises(NotFound, match="no incident 'inc_x'"):
            await desk.book.resolve(OPERATOR, "inc_x", "why not")


@pytest.mark.parametrize("role", ["observer", "approver", "client"])
async def test_only_operators_end_incidents(
    store: MemoryJournal, autojump_clock: MockClock, role: Role
) -> None:
    """Observers may look; the others may not even that."""
    async with open_book(store) as desk:
        found = desk.book.report(ALARM)
        with pytest.raises(Forbidden, match="incidents:write"):
            await desk.book.resolve(caller(role), found.incident_id, "hm")
        if role == "observer":
            assert found == await desk.book.get(caller(role), found.incident_id)
            return
        with pytest.raises(Forbidden, match="incidents:read"):
            await desk.book.get(caller(role), found.incident_id)
        with pytest.raises(Forbidden, match="incidents:read"):
            await desk.book.list_page(caller(role), IncidentFilter())
