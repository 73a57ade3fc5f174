"""Bearer tokens: created here, shown once, stored as their SHA-256 only.

A token has 256 random bits, so a slow hash would add nothing.  The record is found by digest and
compared in constant time: neither the lookup nor the comparison leaks part of a valid token.
"""

import hashlib
import hmac
import secrets
from collections.abc import Awaitable, Callable

from palyra.actors.journal.actor import JournalHandle
from palyra.core.access import Caller, caller_of, is_alive
from palyra.core.ids import NewId
from palyra.core.journal.changes import Change
from palyra.core.journal.records import Role, TokenRecord
from palyra.core.ports import Journal, NowMs
from palyra.errors import Unauthenticated

Authenticate = Callable[[str], Awaitable[Caller]]  # raises Unauthenticated

PREFIX = "pal_"  # lets secret scanners recognise a token
PAGE_HALF_PREFIX = "pal_page_"  # of the half of a login that a page keeps
TOKEN_BYTES = 32
REFUSED = "the token is unknown, expired or revoked"


def new_token() -> str:
    """Create a token of 256 random bits."""
    return PREFIX + secrets.token_urlsafe(TOKEN_BYTES)


def digest_token(token: str) -> str:
    """The stored form of a token: its SHA-256 in hex."""
    return hashlib.sha256(token.encode()).hexdigest()


def join_halves(cookie_half: str, page_half: str) -> str:
    """The token of a login of the console, whose digest its record contains."""
    return f"{cookie_half}.{page_half}"


def token_record(
    token: str, *, token_id: str, principal: str, role: Role, name: str, now_ms: int
) -> TokenRecord:
    """Build the record of a token, which contains its digest only."""
    return TokenRecord(
        token_id=token_id,
        sha256=digest_token(token),
        principal=principal,
        role=role,
        name=name,
        created_ms=now_ms,
    )


async def admit_operator(
    token: str, journal: JournalHandle, *, new_id: NewId, now_ms: NowMs
) -> None:
    """Register the operator's token unless it is stored; its record is committed on return."""
    digest = digest_token(token)
    if await journal.find(lambda store: store.find_token(digest)) is None:
        # A record that does not decode is replaced: the owner of the data directory has the token.
        damaged = await journal.find(lambda store: store.find_token_id(digest))
        record = token_record(
            token,
            token_id=damaged or new_id("tok"),
            principal="operator",
            role="operator",
            name="operator",
            now_ms=now_ms(),
        )
        await journal.commit(Change(records=(record,)))


async def authenticate(token: str, journal: Journal, now_ms: NowMs) -> Caller:
    """Return the caller that the token identifies.

    Raises Unauthenticated, with the same text for an unknown, expired or revoked token.
    """
    digest = digest_token(token)
    record = await journal.find(lambda store: store.find_token(digest))
    if record is None or not _is_valid(record, digest, now_ms()):
        raise Unauthenticated(REFUSED)
    return caller_of(record)


def _is_valid(record: TokenRecord, digest: str, now_ms: int) -> bool:
    return hmac.compare_digest(record.sha256, digest) and is_alive(record, now_ms)
