"""A real daemon rings browsers through a push service on loopback, which learns only that something waits."""

import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import apsw
import msgspec
import pytest
import trio
from cryptography.exceptions import InvalidSignature

from palyra.client import Client
from palyra.core.journal.records import ApprovalRecord
from palyra.errors import Forbidden, InvalidParams
from palyra.store.files.push_key import PushKeyPair
from tests.e2e.daemon_process import DaemonProcess, running
from tests.e2e.people import LOOK_S, ask_for, somebody, write_call
from tests.e2e.test_notices import Receiver, receiver
from tests.e2e.wire import WITHIN_S
from tests.vapid import read_claims

pytestmark = pytest.mark.real
CANARY = "canary-of-the-arguments-51c0"
SECRET = "opal4-canary-0f-a-device-77aa"  # in the address, which nobody else may learn


def heads(service: Receiver, path: str) -> list[dict[str, str]]:
    """The headers of the requests to that path; each request was without content."""
    found = []
    for head, body in service.requests:
        assert not body
        first, *lines = head.splitlines()
        if first == f"POST {path} HTTP/1.1":
            found.append({k.lower(): v for k, _, v in (line.partition(": ") for line in lines)})
    return found


@asynccontextmanager
async def ringing(tmp_path: Path) -> AsyncGenerator[tuple[Receiver, DaemonProcess]]:
    """A push service, and a daemon that takes its addresses; a question rings after a second."""
    async with receiver() as service:
        services = msgspec.json.encode([service.url]).decode()
        with running(
            tmp_path, PALYRA_NOTIFY__AFTER_S="1", PALYRA_NOTIFY__PUSH_SERVICES=services
        ) as daemon:
            yield service, daemon


async def wait_forgotten(client: Client) -> None:
    """Return when this login rings nowhere."""
    with trio.fail_after(WITHIN_S):
        while (await client.get_push_key()).endpoint:  # noqa: ASYNC110 - another process
            await trio.sleep(LOOK_S)


async def ring(client: Client, service: Receiver, text: str) -> ApprovalRecord:
    """Ask a question, wait for the next request, and answer."""
    before = len(service.requests)
    asked = await ask_for(client, write_call("a.txt", text))
    await service.wait(before + 1)
    await client.resolve_approval(asked.approval_id, "deny", asked.digest)
    return asked


async def test_the_service_learns_that_something_waits(tmp_path: Path) -> None:
    """A person's device rings for own questions: no content, and a signature of the daemon's key."""
    async with (
        ringing(tmp_path) as (service, daemon),
        somebody(daemon, "person", "ann") as ann,
        somebody(daemon, "person", "bob") as bob,
    ):
        key = await ann.get_push_key()
        assert not key.endpoint
        await ann.subscribe_push(f"{service.url}/{SECRET}")
        await bob.subscribe_push(f"{service.url}/bob")
        assert f"{service.url}/{SECRET}" == (await ann.get_push_key()).endpoint
        assert f"{service.url}/bob" == (await bob.get_push_key()).endpoint
        asked = await ring(ann, service, CANARY)
        assert SECRET not in daemon.said
    assert [] == heads(service, "/bob")
    [head] = heads(service, f"/{SECRET}")
    fixed = (head["urgency"], head["topic"], head["content-length"])
    assert ("high", "question", "0") == fixed
    assert int(head["ttl"]) > 0
    scheme, _, signed = head["authorization"].partition(" t=")
    token, _, public_key = signed.partition(", k=")
    assert ("vapid", key.public_key) == (scheme, public_key)
    claims = read_claims(token, public_key)
    assert {"aud", "exp", "sub"} == set(claims)
    assert service.url == claims["aud"]
    assert 0 < claims["exp"] - time.time() <= 24 * 3600
    with pytest.raises(InvalidSignature):  # the control: the key of another home
        read_claims(token, PushKeyPair(tmp_path / "other").public_key)
    said = str(service.requests) + str(claims)
    assert SECRET in said  # what is searched for would be found
    for kept in (CANARY, "write_file", "a.txt", asked.approval_id, asked.run_id, "ann"):
        assert kept not in said, kept


async def test_who_may_not_answer_does_not_ring(tmp_path: Path) -> None:
    """Nor does an address of no push service."""
    async with ringing(tmp_path) as (service, daemon):
        async with somebody(daemon, "client") as other:
            with pytest.raises(Forbidden):
                await other.subscribe_push(f"{service.url}/x")
        async with somebody(daemon, "approver") as approver:
            with pytest.raises(InvalidParams, match=r"notify\.push_services"):
                await approver.subscribe_push("https://intranet.example/x")


async def test_devices_outlive_a_restart_and_not_their_end(tmp_path: Path) -> None:
    """The records name them, the key is kept and private; an address that is gone is forgotten."""
    async with ringing(tmp_path) as (service, daemon):
        async with daemon.connect() as operator:
            key = await operator.get_push_key()
            await operator.subscribe_push(f"{service.url}/{SECRET}")
        daemon.stop()
        daemon.start()
        async with daemon.connect() as operator:
            assert key.public_key == (await operator.get_push_key()).public_key
            await ring(operator, service, "one")
            service.statuses = [410]
            await ring(operator, service, "two")
            await wait_forgotten(operator)
            assert not [each for each in (await operator.status()).problems if "push" in each]
        daemon.stop()
        assert 2 == len(heads(service, f"/{SECRET}"))
        assert 0o600 == (daemon.home / "keys/push.key").stat().st_mode & 0o777
        assert "HTTP 410" in daemon.said
        assert SECRET not in daemon.said


def stored(daemon: DaemonProcess) -> list[str]:
    """The secret if a record of a token has it."""
    with closing(apsw.Connection(str(daemon.home / "journal.sqlite3"))) as connection:
        rows = connection.execute("SELECT record FROM tokens").fetchall()
    return [SECRET for (record,) in rows if SECRET in str(record)]


async def test_a_device_is_forgotten_with_its_login(tmp_path: Path) -> None:
    """By a revocation, and by a purge of its principal; the control rings on."""
    services = '["http://127.0.0.1:1"]'
    with running(tmp_path, PALYRA_NOTIFY__PUSH_SERVICES=services) as daemon:
        address = f"http://127.0.0.1:1/{SECRET}"
        async with daemon.connect() as operator, somebody(daemon, "person", "ann") as ann:
            await ann.subscribe_push(address)
            await operator.purge_memory("bob", sessions=True)
            assert address == (await ann.get_push_key()).endpoint
            await operator.purge_memory("ann", sessions=True)
            assert not (await ann.get_push_key()).endpoint
            await ann.subscribe_push(address)
            await ann.unsubscribe_push()
            assert not (await ann.get_push_key()).endpoint
            await ann.subscribe_push(address)
            [login] = [each for each in await operator.list_tokens() if each.principal == "ann"]
            assert SECRET not in repr(login)
        daemon.stop()
        assert [SECRET] == stored(daemon)
        daemon.start()
        async with daemon.connect() as operator:
            await operator.revoke_token(login.token_id)
        daemon.stop()
        assert [] == stored(daemon)
