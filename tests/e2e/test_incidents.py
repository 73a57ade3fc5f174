"""Incidents of a real daemon: reported, kept over a kill, counted, and resolved."""

from collections.abc import Generator
from pathlib import Path

import apsw
import pytest
import trio

from palyra.client import Client, Inbox
from palyra.net.protocol.results import IncidentView
from tests.cli.command import palyra
from tests.e2e.daemon_process import DaemonProcess, running

pytestmark = pytest.mark.real

WITHIN_S = 120.0  # a bound against hanging, not a promise
WHOLE = '@id("own") permit (principal, action, resource) when { false };'
BROKEN = "permit (principal"
EDITED = "DROP TRIGGER tape_is_never_updated; UPDATE tape SET data = x'7b7d' WHERE position = 2"


def save(file: Path, text: str) -> None:
    file.write_text(text, encoding="utf-8")


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    """A file of user policies, in order."""
    folder = tmp_path / "policies"
    folder.mkdir()
    file = folder / "own.cedar"
    save(file, WHOLE)
    return file


@pytest.fixture
def daemon(tmp_path: Path, policy: Path) -> Generator[DaemonProcess]:
    """A daemon of one test, with that file."""
    with running(tmp_path, PALYRA_POLICY__DIR=str(policy.parent)) as process:
        yield process


async def wait_news(inbox: Inbox, method: str) -> str:
    """The key of the next incident that is notified."""
    async for notice in inbox:
        if notice.method == method:
            return str(notice.params["key"])
    raise AssertionError("the connection ended")


async def listed(client: Client) -> dict[str, IncidentView]:
    return {each.key: each for each in (await client.list_incidents()).incidents}


async def test_an_incident_over_its_life(daemon: DaemonProcess, policy: Path) -> None:
    """Invalid policies are reported, survive a kill, are counted once more, and end with their repair."""
    with trio.fail_after(WITHIN_S):
        async with daemon.connect() as client, client.notices() as inbox:
            assert {} == await listed(client)
            save(policy, BROKEN)
            assert "policies_broken" == await wait_news(inbox, "incident.opened")
            first = (await listed(client))["policies_broken"]
            assert ("open", 1, "critical") == (first.state, first.count, first.severity)
            assert "own.cedar" in str(first.evidence["problem"])
            assert 1 == (await client.status()).open_incidents
            await client.resolve_session(session_key="later")  # what came before is committed
    await daemon.restart()
    with trio.fail_after(WITHIN_S):
        async with daemon.connect() as client, client.notices() as inbox:
            again = (await listed(client))["policies_broken"]
            assert (first.incident_id, "open", 2) == (again.incident_id, again.state, again.count)
            save(policy, WHOLE)
            assert "policies_broken" == await wait_news(inbox, "incident.resolved")
            ended = (await listed(client))["policies_broken"]
            assert ("resolved", "palyra") == (ended.state, ended.by)
    assert 1 == daemon.said.count("an incident is opened")


async def test_a_changed_journal_needs_an_operator(daemon: DaemonProcess) -> None:
    """The start finds it; the incident stays until an operator resolves it."""
    with trio.fail_after(WITHIN_S):
        async with daemon.connect() as client:
            await client.wait_run((await client.start_run("hello")).run_id)
    daemon.kill()
    with apsw.Connection(str(daemon.home / "journal.sqlite3")) as connection:
        connection.execute(EDITED)
    connection.close()
    daemon.start()
    shown = await palyra("incidents", "list", "--open", home=daemon.home)
    assert "the journal's chain is broken" in shown.out
    with trio.fail_after(WITHIN_S):
        async with daemon.connect() as client:
            (incident,) = (await listed(client)).values()
    assert ("chain_broken:edited:2", "open") == (incident.key, incident.state)
    said = await palyra("incidents", "resolve", incident.incident_id, "a drill", home=daemon.home)
    assert "was resolved by operator: a drill" in said.out
    await daemon.restart()
    with trio.fail_after(WITHIN_S):
        async with daemon.connect() as client:
            (kept,) = (await listed(client)).values()
            assert ("resolved", "a drill") == (kept.state, kept.reason)
            assert 0 == (await client.status()).open_incidents
