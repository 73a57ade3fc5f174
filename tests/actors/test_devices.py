"""Browsers that ring, in virtual time: for whom, how often, and when no longer."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, cast

import msgspec
import pytest
import trio
from trio.testing import MockClock

from palyra.actors.devices import Devices
from palyra.actors.notices import ATTEMPTS
from palyra.core.access import Caller
from palyra.core.journal.records import Role, TokenRecord
from palyra.core.push import MAX_DEVICES
from palyra.errors import IllegalState, InvalidParams, NotFound, PalyraError, Rejected, Unavailable

AFTER_S, LONG_S, NOW_MS = 5.0, 10_000.0, 1_000_000
PHONE = "https://push.example/phone"


def token(
    token_id: str, *, role: Role = "person", principal: str = "ann", **more: Any
) -> TokenRecord:
    """A login that rings, unless `push` is given as ""."""
    return TokenRecord(
        token_id=token_id, sha256=token_id, principal=principal, role=role, name="n", created_ms=1,
        **{"push": PHONE, **more},
    )  # fmt: skip


class House:
    """Waiting questions by id with their principals, the tokens, and the push service."""

    def __init__(self, *tokens: TokenRecord) -> None:
        self.tokens = {each.token_id: each for each in tokens}
        self.waiting: dict[str, str] = {}
        self.fails: list[PalyraError] = []
        self.unread: list[PalyraError] = []  # failures of the next reads of the records
        self.rang: list[str] = []
        self.tried: list[float] = []
        self.began_s = trio.current_time()
        self.now_ms = NOW_MS
        self.devices = Devices(
            ring=self._ring,
            approvals=cast("Any", self),
            list_tokens=self._list_tokens,
            change=self._change,
            find_key=self._find_key,
            check=self._check,
            now_ms=lambda: self.now_ms,
            rng=lambda: 1.0,
        )
        self.devices.configure(AFTER_S)

    def list_waiting(self, caller: Caller) -> list[str]:
        """As `OpenApprovals.list_waiting`."""
        return [each for each, owner in self.waiting.items() if caller.sees(owner)]

    async def _ring(self, endpoint: str) -> None:
        await trio.lowlevel.checkpoint()
        self.tried.append(trio.current_time() - self.began_s)
        if self.fails:
            raise self.fails.pop(0)
        self.rang.append(endpoint)

    async def _list_tokens(self) -> list[TokenRecord]:
        await trio.lowlevel.checkpoint()
        if self.unread:
            raise self.unread.pop(0)
        return list(self.tokens.values())

    async def _change(self, token_id: str, endpoint: str, former: str) -> None:
        await trio.lowlevel.checkpoint()
        record = self.tokens[token_id]
        if former in {"", record.push}:
            self.tokens[token_id] = msgspec.structs.replace(record, push=endpoint)

    @staticmethod
    def _check(endpoint: str) -> None:
        if not endpoint.startswith("https://push.example/"):
            raise InvalidParams("foreign", field="endpoint")

    @staticmethod
    async def _find_key() -> str:
        await trio.lowlevel.checkpoint()
        return "key"

    def ask(self, approval_id: str, owner: str = "ann") -> None:
        """A question begins to wait."""
        self.waiting[approval_id] = owner
        self.devices.wake()


@asynccontextmanager
async def home(*tokens: TokenRecord) -> AsyncGenerator[House]:
    """A house whose devices ring inside the block."""
    made = House(*tokens)
    async with trio.open_nursery() as nursery:
        await nursery.start(made.devices.run)
        await trio.testing.wait_all_tasks_blocked()
        try:
            yield made
        finally:
            nursery.cancel_scope.cancel()


async def test_a_device_rings_once_for_what_its_login_may_answer(autojump_clock: MockClock) -> None:
    """After the configured time; a person's device not for others, an operator's for all."""
    own = token("tok_a", push="https://push.example/ann")
    all_of_it = token("tok_b", role="operator", principal="boss", push="https://push.example/boss")
    async with home(own, all_of_it) as house:
        house.ask("apr_1", "bob")
        await trio.sleep(LONG_S)
        assert ["https://push.example/boss"] == house.rang
        house.ask("apr_2", "ann")
        await trio.sleep(LONG_S)
    assert ["https://push.example/ann", "https://push.example/boss"] == sorted(house.rang[1:])
    assert AFTER_S == house.tried[0]


async def test_a_failure_is_repeated_and_bounded(autojump_clock: MockClock) -> None:
    """With growing waits, only while the question waits; one that stays a failure once."""
    async with home(token("tok_a")) as house:
        house.fails = [Unavailable("down"), Unavailable("down")]
        house.ask("apr_1")
        await trio.sleep(AFTER_S + 1)
        assert ["push tok_a: down"] == house.devices.problems
        await trio.sleep(LONG_S)
        assert [AFTER_S, AFTER_S + 2, AFTER_S + 6] == house.tried
        assert not house.devices.problems
        house.fails, house.tried = [Unavailable("down")] * 100, []
        house.ask("apr_2")
        await trio.sleep(LONG_S)
        assert ATTEMPTS == len(house.tried)
        house.fails, house.tried = [Rejected("no")] * 100, []
        house.ask("apr_3")
        await trio.sleep(LONG_S)
        assert 1 == len(house.tried)
        house.fails, house.tried = [Unavailable("down")], []
        house.ask("apr_4")
        await trio.sleep(AFTER_S + 1)
        house.waiting.clear()
        await trio.sleep(LONG_S)
    assert 1 == len(house.tried)


async def test_a_device_that_is_gone_is_forgotten(autojump_clock: MockClock) -> None:
    """Its address leaves the record, nothing rings again, and no problem stays."""
    async with home(token("tok_a")) as house:
        house.fails = [NotFound("the answer was HTTP 410")]
        house.ask("apr_1")
        await trio.sleep(LONG_S)
        assert not house.tokens["tok_a"].push
        house.ask("apr_2")
        await trio.sleep(LONG_S)
        assert not house.devices.problems
    assert 1 == len(house.tried)


@pytest.mark.parametrize("end", [{"revoked_ms": 1}, {"expires_ms": NOW_MS}, {"push": ""}])
async def test_an_ended_login_does_not_ring(end: dict[str, Any], autojump_clock: MockClock) -> None:
    """Also if it ends while its device waits to ring; the control lives on."""
    async with home(token("tok_a")) as house:
        house.ask("apr_1")
        await trio.sleep(LONG_S)
        assert [PHONE] == house.rang
        house.tokens["tok_a"] = msgspec.structs.replace(house.tokens["tok_a"], **end)
        house.ask("apr_2")
        await trio.sleep(LONG_S)
        assert not house.devices.problems
    assert [PHONE] == house.rang


async def test_a_login_has_one_device(autojump_clock: MockClock) -> None:
    """The next subscription takes the place of the first; an end is one at once."""
    async with home(token("tok_a", push="")) as house:
        devices = house.devices
        await devices.subscribe("tok_a", "https://push.example/1")
        assert "https://push.example/1" == await devices.find("tok_a")
        await devices.subscribe("tok_a", "https://push.example/2")
        house.ask("apr_1")
        await trio.sleep(LONG_S)
        assert ["https://push.example/2"] == house.rang
        await devices.unsubscribe("tok_a")
        assert not await devices.find("tok_a")
        house.ask("apr_2")
        await trio.sleep(LONG_S)
        with pytest.raises(InvalidParams, match="foreign"):
            await devices.subscribe("tok_a", "https://elsewhere.example/2")
    assert ["https://push.example/2"] == house.rang


async def test_records_that_cannot_be_read_are_read_again(autojump_clock: MockClock) -> None:
    """However often, the devices that are known ring, and a new one does once it was read."""
    async with home(token("tok_a"), token("tok_b", push="")) as house:
        await house.devices.subscribe("tok_b", "https://push.example/new")
        house.unread = [Unavailable("the disk is busy")] * 100
        await trio.sleep(LONG_S)
        house.ask("apr_1")
        await trio.sleep(LONG_S)
    assert ["https://push.example/new", PHONE] == sorted(house.rang)


async def test_devices_are_bounded(autojump_clock: MockClock) -> None:
    """One more is refused, until a login has ended; a device may be replaced at the bound."""
    full = [token(f"tok_{each}") for each in range(MAX_DEVICES)]
    async with home(*full, token("tok_new", push="")) as house:
        with pytest.raises(IllegalState, match=f"{MAX_DEVICES} devices ring"):
            await house.devices.subscribe("tok_new", PHONE)
        await house.devices.subscribe("tok_1", "https://push.example/other")
        house.tokens["tok_1"] = msgspec.structs.replace(house.tokens["tok_1"], revoked_ms=1)
        await house.devices.subscribe("tok_new", PHONE)
