"""`palyra incidents`: its requests and its output."""

from typing import Any

from tests.cli.command import palyra
from tests.cli.test_commands import INCIDENT
from tests.client.fake_daemon import fake_daemon

ENDED = {**INCIDENT, "state": "resolved", "resolved_ms": 3, "by": "owner", "reason": "made room"}


async def ask(*arguments: str, method: str, reply: Any) -> tuple[dict[str, Any], str]:
    """The command's requests, and its output."""
    async with fake_daemon() as daemon:
        daemon.reply_with(method, reply)
        ended = await palyra("incidents", *arguments, url=daemon.url)
        assert 0 == ended.code
        return dict(daemon.requests)[method], ended.out


async def test_a_list_has_filters_and_a_cursor() -> None:
    """Every option reaches the daemon; the output names the command for the next page."""
    asked, shown = await ask(
        "list", "--open", "--state", "resolved", "--domain", "store", "--limit", "7",
        "--after", "inc_9", method="incident.list",
        reply={"incidents": [INCIDENT], "next_cursor": "inc_1"},
    )  # fmt: skip
    assert {"open", "remediating", "escalated", "resolved"} == set(asked.pop("states"))
    assert {"domain": "store", "limit": 7, "cursor": "inc_9"} == asked
    assert "more: --after inc_1" in shown


async def test_a_complete_list_has_no_cursor() -> None:
    """Without options all incidents are requested."""
    asked, shown = await ask("list", method="incident.list", reply={"incidents": [INCIDENT]})
    assert not asked.get("states")
    assert "--after" not in shown


async def test_an_incident_is_shown_with_its_end() -> None:
    """The end is automatic, open, or by a principal with a reason."""
    _, passing = await ask("show", "inc_1", method="incident.get", reply=INCIDENT)
    assert "automatically, when its cause is gone" in passing
    lasting = {**INCIDENT, "resolves_itself": False}
    assert "ends" not in (await ask("show", "inc_1", method="incident.get", reply=lasting))[1]
    _, ended = await ask("show", "inc_1", method="incident.get", reply=ENDED)
    assert ("by owner: made room" in ended, "by itself" in ended) == (True, False)


async def test_a_remedy_is_shown_before_and_after_it_is_attempted() -> None:
    """The list and the incident have the one that auto would attempt, or the attempts so far."""
    stuck = {**INCIDENT, "domain": "run", "key": "run_stuck:run_1", "remedy": "resume_run"}
    stuck |= {"remedies": ["resume_run", "resume_run", "cancel_run"], "may_change": "one run"}
    tried = {**stuck, "attempts": 2, "remedied": "the run was resumed from its tape"}
    _, listed = await ask("list", method="incident.list", reply={"incidents": [stuck, tried]})
    assert "auto: resume_run" in listed
    assert "resume_run, 2 of 3" in listed
    _, proposed = await ask("show", "inc_1", method="incident.get", reply=stuck)
    assert "resume_run would be attempted" in proposed
    assert "one run" in proposed
    _, attempted = await ask("show", "inc_1", method="incident.get", reply=tried)
    assert "2 of 3" in attempted
    assert "the run was resumed from its tape" in attempted
    assert "would" not in attempted


async def test_an_end_is_asked_for_with_its_reason() -> None:
    """Once: the request has a key."""
    asked, shown = await ask(
        "resolve", "inc_1", "made room", method="incident.resolve", reply=ENDED
    )
    assert asked.pop("idempotency_key")
    assert {"incident_id": "inc_1", "reason": "made room"} == asked
    assert "inc_1 was resolved by owner: made room" in shown
