"""Logins of the web console: a one-use code is traded for a token of two halves.

Owns: the codes that wait (as digests, in memory), the count of wrong ones, and the lock under which
token records change.  Talks to: the journal.  Never: stores or logs a code or a half.

`console.link` makes a code, which reaches the browser in the fragment of a link: no server, proxy or
referrer sees a fragment.  The page trades it once for a login, which is a token record like any other:
it has a role, is listed, and is revoked like one.  Its token is the two halves together:

    cookie half  HttpOnly cookie; scripts cannot read it, and the browser sends it by itself
    page half    in the reply, kept in localStorage, sent in `connect {token}`

Cookies do not know ports (RFC 6265 section 8.5), so a page of another port of the same host makes
the browser send the cookie half here, but cannot read the storage of this origin; a script that
steals the storage lacks the cookie half.  Neither half opens anything alone.

A login ends `slide_ms` after its last use, and `LONGEST_MS` after it was made.
"""

import hmac
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import msgspec
import trio

from palyra.core.access import Caller
from palyra.core.ids import NewId
from palyra.core.journal.changes import Change
from palyra.core.journal.records import Role, TokenRecord
from palyra.core.ports import Journal, NowMs
from palyra.errors import IllegalState, NotFound, RateLimited, Unauthenticated
from palyra.net.api.tokens import (
    PAGE_HALF_PREFIX,
    PREFIX,
    REFUSED,
    Authenticate,
    digest_token,
    join_halves,
    new_token,
    token_record,
)

FindAddress = Callable[[], str]

CODE_LIFE_S = 120.0
MAX_CODES = 16  # the oldest is dropped for the next
MAX_WRONG = 5  # codes in `CLOSED_S`; then no code is accepted for as long
CLOSED_S = 60.0
SLIDE_MS = 12 * 3_600_000
LONGEST_MS = 7 * 24 * 3_600_000
SLIDE_STEPS = 12  # a login is extended, with a commit, when so much of its time has passed
MAX_COOKIES = 4  # of one name: pages of other ports can add some
NAME = "web console"


@dataclass(frozen=True, slots=True)
class LoginCode:
    """A login that a code will make; the code itself is not kept."""

    sha256: str
    principal: str
    role: Role
    slide_ms: int
    made_s: float  # the loop's clock, and that of the wall: a suspended machine stops the first
    made_ms: int


@dataclass(frozen=True, slots=True)
class Login:
    """A new login with its secrets; sent to the browser and kept nowhere."""

    record: TokenRecord
    cookie_half: str
    page_half: str

    def __repr__(self) -> str:
        """Without the halves."""
        return f"Login({self.record.token_id})"


class Logins:
    """The codes, and the token records of logins."""

    def __init__(self, journal: Journal, *, now_ms: NowMs, new_id: NewId) -> None:
        self._journal = journal
        self._now_ms = now_ms
        self._new_id = new_id
        self._codes: list[LoginCode] = []
        self._wrong = 0
        self._wrong_since_s = -math.inf
        self._closed_until_s = -math.inf
        self._changing = trio.Lock()  # else an extension could undo a revocation
        # Address of the page, with a slash at its end; set by the edge, which knows the port later.
        self.address: FindAddress = lambda: "http://127.0.0.1/"

    def make_code(self, *, principal: str, role: Role, slide_ms: int = SLIDE_MS) -> str:
        """Return a code for one login within `CODE_LIFE_S`."""
        code = new_token()  # has the form of a token, so it is redacted wherever it might appear
        made = LoginCode(
            digest_token(code), principal, role, slide_ms, trio.current_time(), self._now_ms()
        )
        self._codes = [*self._codes[1 - MAX_CODES :], made]
        return code

    def make_link(self, code: str) -> str:
        """Return the link that carries the code."""
        return f"{self.address()}#login={code}"

    async def redeem(self, code: str) -> Login:
        """Trade a code for a login, committed.

        Raises Unauthenticated for a wrong, used or expired code, and RateLimited after too many.
        Cancellation: the code is used; a login may exist whose halves are lost.
        """
        now_s = trio.current_time()
        if now_s < self._closed_until_s:
            raise RateLimited(
                f"{MAX_WRONG} wrong codes: logging in is closed for a minute",
                retry_after_ms=math.ceil((self._closed_until_s - now_s) * 1000),
            )
        made = self._take(code, now_s)
        if made is None:
            self._count_wrong(now_s)
            raise Unauthenticated(
                "the code is unknown, used or expired: `palyra console` prints another"
            )
        now_ms = self._now_ms()
        cookie_half, page_half = new_token(), PAGE_HALF_PREFIX + new_token().removeprefix(PREFIX)
        record = msgspec.structs.replace(
            token_record(
                join_halves(cookie_half, page_half),
                token_id=self._new_id("tok"),
                principal=made.principal,
                role=made.role,
                name=NAME,
                now_ms=now_ms,
            ),
            expires_ms=now_ms + made.slide_ms,
            slide_ms=made.slide_ms,
        )
        await self._journal.commit(Change(records=(record,)))
        return Login(record, cookie_half, page_half)

    def _take(self, code: str, now_s: float) -> LoginCode | None:
        """Remove the code, and all that have expired, and return what it logs in."""
        oldest_ms = self._now_ms() - CODE_LIFE_S * 1000
        digest = digest_token(code)
        alive = [
            made
            for made in self._codes
            if now_s - made.made_s <= CODE_LIFE_S and made.made_ms >= oldest_ms
        ]
        found = [made for made in alive if hmac.compare_digest(made.sha256, digest)]
        self._codes = [made for made in alive if made not in found]
        return found[0] if found else None

    def _count_wrong(self, now_s: float) -> None:
        if now_s - self._wrong_since_s > CLOSED_S:
            self._wrong, self._wrong_since_s = 0, now_s
        self._wrong += 1
        if self._wrong >= MAX_WRONG:
            self._closed_until_s = now_s + CLOSED_S
            self._wrong_since_s = -math.inf

    # --- the records ---

    async def find(self, token_id: str) -> TokenRecord:
        """Return the record of a token.  Raises NotFound."""
        tokens = await self._journal.read(lambda store: store.list_tokens())
        for record in tokens:
            if record.token_id == token_id:
                return record
        raise NotFound(f"no token {token_id!r}", field="token_id")

    async def extend(self, caller: Caller) -> int | None:
        """Extend a login that is in use; return when it expires, None if it does not.

        Commits only when a part of its time has passed.  Raises NotFound.
        Cancellation: may be extended.
        """
        if caller.slide_ms is None:
            return caller.expires_ms
        async with self._changing:
            record, now_ms = await self.find(caller.token_id), self._now_ms()
            if record.expires_ms is None or record.revoked_ms is not None:
                return record.expires_ms
            until_ms = min(now_ms + caller.slide_ms, record.created_ms + LONGEST_MS)
            if until_ms - record.expires_ms < caller.slide_ms // SLIDE_STEPS:
                return record.expires_ms
            extended = msgspec.structs.replace(record, expires_ms=until_ms)
            await self._journal.commit(Change(records=(extended,)))
            return until_ms

    async def revoke(self, token_id: str) -> TokenRecord:
        """Revoke a token of any kind, committed; a repeat changes nothing.  Raises NotFound.

        Cancellation: may be revoked.
        """
        async with self._changing:
            record = await self.find(token_id)
            if record.revoked_ms is None:
                record = msgspec.structs.replace(record, revoked_ms=self._now_ms(), push="")
                await self._journal.commit(Change(records=(record,)))
            return record

    async def set_push(self, token_id: str, endpoint: str, former: str = "") -> None:
        """Replace where a browser of this token rings, committed; with `former` only if it rings there.

        Raises NotFound, and IllegalState for a revoked token.  Cancellation: may be replaced.
        """
        async with self._changing:
            record = await self.find(token_id)
            if record.revoked_ms is not None:
                raise IllegalState("this login has ended")
            if record.push != endpoint and former in {"", record.push}:
                record = msgspec.structs.replace(record, push=endpoint)
                await self._journal.commit(Change(records=(record,)))

    async def forget_pushes(self, principal: str) -> None:
        """Remove where browsers of this principal ring.  Cancellation: may be removed."""
        tokens = await self._journal.read(lambda store: store.list_tokens())
        for each in tokens:
            if each.principal == principal and each.push:
                with suppress(IllegalState, NotFound):  # it has ended meanwhile, and rings nowhere
                    await self.set_push(each.token_id, "")

    async def log_out(self, caller: Caller) -> TokenRecord:
        """Revoke the login of this caller.  Raises IllegalState if it has connected otherwise."""
        if caller.slide_ms is None:
            raise IllegalState(
                "this connection is no login of the console: revoke its token instead"
            )
        return await self.revoke(caller.token_id)


async def authenticate_halves(
    page_half: str, cookie_halves: tuple[str, ...], authenticate: Authenticate
) -> Caller:
    """Return the caller of a login from its half in `connect` and those in cookies.

    Raises Unauthenticated, with the same text whichever half is wrong or missing.
    """
    for cookie_half in cookie_halves[:MAX_COOKIES]:
        try:
            return await authenticate(join_halves(cookie_half, page_half))
        except Unauthenticated:
            continue
    raise Unauthenticated(REFUSED)
