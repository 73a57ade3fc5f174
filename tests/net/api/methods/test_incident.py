"""incident.* on the wire, and the incident of a failed verification."""

from typing import Any

import pytest
import trio.testing

from palyra.core.journal.changes import ChainViolation, IncidentFilter, VerifyReport
from tests.net.api.fake_services import open_daemon

Clock = trio.testing.MockClock
OPERATOR = "tok-operator"


async def test_a_page_is_asked_for_and_shown(autojump_clock: Clock) -> None:
    """States, domain, cursor and limit are passed on; optional members that say nothing are not."""
    async with open_daemon() as daemon:
        peer = await daemon.connect(OPERATOR)
        page = await peer.call(
            "incident.list", states=["open", "escalated"], domain="store", cursor="inc_9", limit=7
        )
        wanted = IncidentFilter(
            states=("open", "escalated"), domain="store", before="inc_9", limit=7
        )
        assert [("list", "root", wanted)] == daemon.incidents.asked
        (shown,) = page["incidents"]
        assert ("inc_1", "open", 3, {"error": "disk full"}, True) == (
            shown["incident_id"],
            shown["state"],
            shown["count"],
            shown["evidence"],
            shown["resolves_itself"],
        )
        assert not {"resolved_ms", "by", "reason", "attempts"} & shown.keys()
        assert (["checkpoint_wal"] * 3, "the write-ahead log") == (
            shown["remedies"],
            shown["may_change"],
        )
        assert "inc_1" == page["next_cursor"]


@pytest.mark.parametrize(
    ("method", "params", "field"),
    [
        ("incident.list", {"states": ["closed"]}, "states"),
        ("incident.list", {"states": ["open"] * 5}, "states"),
        ("incident.list", {"domain": "weather"}, "domain"),
        ("incident.list", {"limit": 501}, "limit"),
        ("incident.get", {}, "incident_id"),
        ("incident.resolve", {"incident_id": "inc_1"}, "reason"),
        ("incident.resolve", {"incident_id": "inc_1", "reason": ""}, "reason"),
        ("incident.resolve", {"incident_id": "inc_1", "reason": "x" * 1_001}, "reason"),
    ],
)
async def test_invalid_requests_are_refused(
    autojump_clock: Clock, method: str, params: dict[str, Any], field: str
) -> None:
    """No service is called."""
    async with open_daemon() as daemon:
        peer = await daemon.connect(OPERATOR)
        error = (await peer.fail(method, **params))["data"]
        assert ("invalid_params", True) == (error["code"], field in error["message"])
        assert [] == daemon.incidents.asked


async def test_ending_an_incident_twice_with_one_key_is_one_end(autojump_clock: Clock) -> None:
    """The same answer, and nothing further is done."""
    async with open_daemon() as daemon:
        peer = await daemon.connect(OPERATOR)
        given = {"incident_id": "inc_1", "reason": "made room", "idempotency_key": "k"}
        first = await peer.call("incident.resolve", **given)
        assert first == await peer.call("incident.resolve", **given)
        assert ("resolved", "root", "made room") == (first["state"], first["by"], first["reason"])
        assert 1 == len(daemon.incidents.asked)


async def test_an_observer_cannot_resolve_an_incident(autojump_clock: Clock) -> None:
    """The request is refused before a service is called."""
    async with open_daemon() as daemon:
        peer = await daemon.connect("tok-observer")
        await peer.call("incident.get", incident_id="inc_1")
        daemon.incidents.asked.clear()
        error = await peer.fail("incident.resolve", incident_id="inc_1", reason="hm")
        assert ("forbidden", []) == (error["data"]["code"], daemon.incidents.asked)


async def test_a_break_found_by_a_verification_is_an_incident(
    autojump_clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any caller's verification, of any part, opens it; an intact chain opens none."""
    found = ChainViolation(
        kind="edited", position=2, run_id="run_1", seq=1, detail="it does not fit"
    )
    async with open_daemon() as daemon:
        peer = await daemon.connect(OPERATOR)
        await peer.call("tape.verify")
        assert [] == daemon.incidents.alarms
        broken = VerifyReport(
            checked_events=2,
            checked_roots=0,
            through_position=2,
            signed_through_position=0,
            first_break=found,
            breaks=1,
        )
        monkeypatch.setattr(daemon.store, "verify", lambda _run_id=None: broken)
        await peer.call("tape.verify")
        (alarm,) = daemon.incidents.alarms
        assert ("chain_broken:edited:2", "run_1", 1) == (
            alarm.key,
            alarm.evidence["run_id"],
            alarm.evidence["seq"],
        )
