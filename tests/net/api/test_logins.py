"""Logins of the console: codes used once and in time, two halves, sliding expiry, revocation."""

import msgspec
import pytest
import trio
import trio.testing

from palyra.core.access import Caller
from palyra.core.journal.changes import Change
from palyra.errors import RateLimited, Unauthenticated, Unavailable
from palyra.net.api.logins import (
    CLOSED_S,
    CODE_LIFE_S,
    LONGEST_MS,
    MAX_CODES,
    MAX_COOKIES,
    MAX_WRONG,
    SLIDE_MS,
    Login,
)
from tests.net.api.fake_services import Daemon, open_daemon

Clock = trio.testing.MockClock
HOUR_MS = 3_600_000


def make_code(daemon: Daemon, role: str = "operator") -> str:
    """A code of the operator's."""
    assert role in {"operator", "observer"}
    logins = daemon.backend.logins
    return logins.make_code(principal="root", role="operator" if role == "operator" else "observer")


async def log_in(daemon: Daemon, role: str = "operator") -> Login:
    """A login, as the page gets it."""
    return await daemon.backend.logins.redeem(make_code(daemon, role))


async def pass_time(daemon: Daemon, seconds: float) -> None:
    """Let both clocks run."""
    for _ in range(10):
        daemon.now_ms += round(seconds * 100)
        await trio.sleep(seconds / 10)


async def test_a_link_logs_in_once(autojump_clock: Clock) -> None:
    """An operator's link carries a code for one login with the role that was asked for."""
    async with open_daemon() as daemon:
        daemon.backend.logins.address = lambda: "http://127.0.0.1:7467/"
        operator = await daemon.connect("tok-operator")
        made = await operator.call("console.link", role="approver", principal="eve")
        address, _, code = made["url"].partition("#login=")
        assert "http://127.0.0.1:7467/" == address
        assert daemon.now_ms + CODE_LIFE_S * 1000 == made["expires_ms"]
        login = await daemon.backend.logins.redeem(code)
        assert ("eve", "approver") == (login.record.principal, login.record.role)
        with pytest.raises(Unauthenticated):
            await daemon.backend.logins.redeem(code)


async def test_both_halves_connect_and_neither_does_alone(autojump_clock: Clock) -> None:
    """The half of the page and that of the cookie connect together; each alone is refused alike."""
    async with open_daemon() as daemon:
        login, other = await log_in(daemon), await log_in(daemon)
        page, cookie = login.page_half, (login.cookie_half,)
        refused = []
        for token, halves in [
            (page, ()),
            (None, cookie),
            (login.cookie_half, cookie),
            (page, (other.cookie_half,)),
            (other.page_half, cookie),
            (page, ("",)),
            (page, (page,)),
            (page, ("x",) * MAX_COOKIES + cookie),
        ]:
            params = {} if token is None else {"token": token}
            error = await daemon.dial(cookie_halves=halves).fail("connect", **params)
            refused.append(error["data"]["code"])
        assert {"unauthenticated"} == set(refused)
        for halves in (cookie, ("planted", *cookie)):  # the control
            welcome = await daemon.dial(cookie_halves=halves).call("connect", token=page)
            assert ("root", "operator") == (welcome["principal"], welcome["role"])


async def test_a_token_needs_no_cookie(autojump_clock: Clock) -> None:
    """Cookies of a browser change nothing for a client with a token of its own."""
    async with open_daemon() as daemon:
        login = await log_in(daemon)
        peer = daemon.dial(cookie_halves=(login.cookie_half,))
        assert "ann" == (await peer.call("connect", token="tok-ann"))["principal"]


async def test_a_late_code_is_refused(autojump_clock: Clock) -> None:
    """A code lives two minutes, by the wall's clock as well as by the loop's."""
    async with open_daemon() as daemon:
        late, suspended, set_back = (make_code(daemon) for _ in range(3))
        await pass_time(daemon, CODE_LIFE_S - 1)
        await daemon.backend.logins.redeem(make_code(daemon))  # the control
        daemon.now_ms += 60_000  # the machine was suspended: the loop's clock stood still
        with pytest.raises(Unauthenticated):
            await daemon.backend.logins.redeem(suspended)
        daemon.now_ms -= 600_000  # somebody sets the clock back
        await pass_time(daemon, 2)
        for code in (late, set_back):
            with pytest.raises(Unauthenticated):
                await daemon.backend.logins.redeem(code)


async def test_wrong_codes_close_the_login_for_a_minute(autojump_clock: Clock) -> None:
    """After five wrong codes the right one waits for a minute, and is not used up."""
    async with open_daemon() as daemon:
        logins, good = daemon.backend.logins, make_code(daemon)
        for number in range(MAX_WRONG):
            with pytest.raises(Unauthenticated):
                await logins.redeem(f"wrong {number}")
        with pytest.raises(RateLimited) as closed:
            await logins.redeem(good)
        assert closed.value.retry_after_ms == CLOSED_S * 1000
        await pass_time(daemon, CLOSED_S)
        await logins.redeem(good)


async def test_rare_mistakes_do_not_close_the_login(autojump_clock: Clock) -> None:
    """Wrong codes count together only within a minute."""
    async with open_daemon() as daemon:
        for _ in range(3 * MAX_WRONG):
            with pytest.raises(Unauthenticated):
                await daemon.backend.logins.redeem("wrong")
            await pass_time(daemon, CLOSED_S / 2)


async def test_codes_are_bounded(autojump_clock: Clock) -> None:
    """Of too many codes the oldest is dropped."""
    async with open_daemon() as daemon:
        first, *_, last = [make_code(daemon) for _ in range(MAX_CODES + 1)]
        with pytest.raises(Unauthenticated):
            await daemon.backend.logins.redeem(first)
        await daemon.backend.logins.redeem(last)


async def test_no_secret_is_kept(autojump_clock: Clock) -> None:
    """Neither a code nor a half is in the store, in the list of tokens, or in a representation."""
    async with open_daemon() as daemon:
        code = make_code(daemon)
        kept = repr(vars(daemon.backend.logins))
        login = await daemon.backend.logins.redeem(code)
        operator = await daemon.connect("tok-operator")
        listed = await operator.call("token.list")
        shown = f"{kept} {login!r} {daemon.store.tokens} {daemon.store.receipts} {listed}"
        assert "web console" in shown
        for secret in (code, login.cookie_half, login.page_half):
            assert secret not in shown


async def test_a_login_lasts_while_it_is_used(autojump_clock: Clock) -> None:
    """An open page extends its login; one that is closed has twelve hours left."""
    async with open_daemon() as daemon:
        login = await log_in(daemon)
        peer = daemon.dial(cookie_halves=(login.cookie_half,))
        await peer.call("connect", token=login.page_half)
        for _ in range(36):
            daemon.now_ms += HOUR_MS
            await trio.sleep(HOUR_MS / 1000)
        assert await peer.call("ping")
        left_ms = daemon.store.tokens[login.record.sha256].expires_ms or 0
        assert SLIDE_MS // 2 <= left_ms - daemon.now_ms <= SLIDE_MS
        peer.transport.to_daemon.close()
        daemon.now_ms += SLIDE_MS + 1
        late = daemon.dial(cookie_halves=(login.cookie_half,))
        await late.fail("connect", token=login.page_half)


async def test_a_login_outlasts_a_journal_that_refuses(
    autojump_clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An extension that was refused is tried again while the login holds, and ends it otherwise."""
    async with open_daemon() as daemon:
        logins, is_broken = daemon.backend.logins, False
        extend = logins.extend

        async def refused(caller: Caller) -> int | None:
            if is_broken:
                raise Unavailable("the disk is busy")
            return await extend(caller)

        monkeypatch.setattr(logins, "extend", refused)
        login = await log_in(daemon)
        peer = daemon.dial(cookie_halves=(login.cookie_half,))
        await peer.call("connect", token=login.page_half)
        for hour in range(1, 20):
            is_broken = hour in {6, 7}  # half of its time has passed
            await pass_time(daemon, HOUR_MS / 1000)
        assert await peer.call("ping")
        is_broken = True
        for _ in range(19):
            await pass_time(daemon, HOUR_MS / 1000)
        assert (4403, "token expired") == await peer.read_to_end()


async def test_no_login_lasts_longer_than_a_week(autojump_clock: Clock) -> None:
    """A page that is never closed has to log in again, and is told by the code of a revocation."""
    async with open_daemon() as daemon:
        login = await log_in(daemon)
        peer = daemon.dial(cookie_halves=(login.cookie_half,))
        await peer.call("connect", token=login.page_half)
        made_ms = daemon.now_ms
        while daemon.now_ms <= made_ms + LONGEST_MS:
            daemon.now_ms += HOUR_MS
            await trio.sleep(HOUR_MS / 1000)
        assert (4403, "token expired") == await peer.read_to_end()
        assert made_ms + LONGEST_MS == daemon.store.tokens[login.record.sha256].expires_ms


async def test_revoking_closes_the_page(autojump_clock: Clock) -> None:
    """A revoked login loses its connections and opens no other, and no extension brings it back."""
    async with open_daemon() as daemon:
        login = await log_in(daemon)
        operator = await daemon.connect("tok-operator")
        peer = daemon.dial(cookie_halves=(login.cookie_half,))
        await peer.call("connect", token=login.page_half)
        caller = await daemon.backend.authenticate(f"{login.cookie_half}.{login.page_half}")
        await operator.call("token.revoke", token_id=login.record.token_id)
        assert 4403 == (await peer.read_to_end())[0]
        daemon.now_ms += SLIDE_MS // 2
        await daemon.backend.logins.extend(caller)
        again = daemon.dial(cookie_halves=(login.cookie_half,))
        error = await again.fail("connect", token=login.page_half)
        assert "unauthenticated" == error["data"]["code"]


async def test_a_login_that_ends_meanwhile_keeps_no_other_one_ringing(
    autojump_clock: Clock,
) -> None:
    """Who is forgotten rings nowhere, also if one of the logins was revoked at the same time."""
    async with open_daemon() as daemon:
        logins, journal = daemon.backend.logins, daemon.backend.journal
        tokens = [(await log_in(daemon)).record.token_id for _ in range(2)]
        for each in tokens:
            await logins.set_push(each, "https://push.example/1")
        ended = msgspec.structs.replace(await logins.find(tokens[0]), revoked_ms=1, push="")
        async with trio.open_nursery() as nursery, logins._changing:
            nursery.start_soon(logins.forget_pushes, "root")
            await trio.testing.wait_all_tasks_blocked()
            await journal.commit(Change(records=(ended,)))
        assert ["", ""] == [(await logins.find(each)).push for each in tokens]


async def test_logging_out_ends_the_own_login_alone(autojump_clock: Clock) -> None:
    """`console.logout` revokes the login of its connection; a plain token has none."""
    async with open_daemon() as daemon:
        login, other = await log_in(daemon, "observer"), await log_in(daemon, "observer")
        peer = daemon.dial(cookie_halves=(login.cookie_half,))
        await peer.call("connect", token=login.page_half)
        assert login.record.token_id == (await peer.call("console.logout"))["token_id"]
        assert 4403 == (await peer.read_to_end())[0]
        left = daemon.dial(cookie_halves=(other.cookie_half,))
        assert await left.call("connect", token=other.page_half)
        plain = await daemon.connect("tok-operator")
        assert "illegal_state" == (await plain.fail("console.logout"))["data"]["code"]


@pytest.mark.parametrize("token", ["tok-ann", "tok-person", "tok-approver", "tok-observer"])
async def test_only_operators_make_links(autojump_clock: Clock, token: str) -> None:
    """A link is a token: no other role makes one, and a login of another role neither."""
    async with open_daemon() as daemon:
        peer = await daemon.connect(token)
        assert "forbidden" == (await peer.fail("console.link"))["data"]["code"]
        login = await log_in(daemon, "observer")
        page = daemon.dial(cookie_halves=(login.cookie_half,))
        await page.call("connect", token=login.page_half)
        assert "forbidden" == (await page.fail("console.link"))["data"]["code"]


@pytest.mark.parametrize(
    "params",
    [
        {"role": "client"},
        {"role": "root"},
        {"ttl_ms": 1},
        {"ttl_ms": LONGEST_MS + 1},
        {"principal": ""},
    ],
)
async def test_a_link_has_a_known_role_and_a_bounded_life(
    autojump_clock: Clock, params: dict[str, object]
) -> None:
    """Programs have tokens, not links; a login lasts from a minute to a week."""
    async with open_daemon() as daemon:
        operator = await daemon.connect("tok-operator")
        error = await operator.fail("console.link", **params)
        assert "invalid_params" == error["data"]["code"]
