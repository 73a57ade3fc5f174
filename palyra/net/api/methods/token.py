"""token.*: bearer tokens of clients.  Operators only."""

from typing import Annotated

import msgspec

from palyra.core.journal.changes import Change
from palyra.core.journal.records import Role, TokenRecord
from palyra.core.ports import JournalStore
from palyra.core.text.names import check_new_name
from palyra.net.api.method import Duration, Id, Method, MethodCall, Mutation, check_no_secret
from palyra.net.api.tokens import new_token, token_record
from palyra.net.protocol.params import NAME, NoParams
from palyra.net.protocol.results import Token, TokenList

# Names are stored and shown verbatim: they must be printable and hold no secret.
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=128), NAME]


class TokenCreate(Mutation, frozen=True, kw_only=True):
    """A new token of a principal."""

    principal: Name
    role: Role
    name: Name
    ttl_ms: Duration | None = None  # None: until revoked


class TokenRevoke(Mutation, frozen=True, kw_only=True):
    """One token."""

    token_id: Id


async def create(call: MethodCall, params: TokenCreate) -> Token:
    token, now_ms = new_token(), call.backend.now_ms()
    check_no_secret(call, principal=params.principal, name=params.name)
    tokens = await call.backend.journal.read(_list_tokens)
    known = [each.principal for each in tokens]
    check_new_name(params.principal, known, field="principal")
    record = token_record(
        token,
        token_id=call.backend.new_id("tok"),
        principal=params.principal,
        role=params.role,
        name=params.name,
        now_ms=now_ms,
    )
    if params.ttl_ms is not None:
        record = msgspec.structs.replace(record, expires_ms=now_ms + params.ttl_ms)
    shown = await call.once(Token, lambda: _commit(call, record))
    is_new = (
        shown.token_id == record.token_id
    )  # otherwise the recorded result of an earlier request
    return msgspec.structs.replace(shown, token=token) if is_new else shown


async def _commit(call: MethodCall, record: TokenRecord) -> Token:
    await call.backend.journal.commit(Change(records=(record,)))
    return show_token(record)


async def list_(call: MethodCall, _params: NoParams) -> TokenList:
    records = await call.backend.journal.read(_list_tokens)
    return TokenList(tokens=[show_token(record) for record in records])


def _list_tokens(store: JournalStore) -> list[TokenRecord]:
    return store.list_tokens()


async def revoke(call: MethodCall, params: TokenRevoke) -> Token:
    await call.backend.logins.find(params.token_id)
    shown = await call.once(Token, lambda: _revoke(call, params.token_id))
    call.then(lambda: call.backend.hub.revoke(params.token_id))
    return shown


async def _revoke(call: MethodCall, token_id: str) -> Token:
    return show_token(await call.backend.logins.revoke(token_id))


def show_token(record: TokenRecord) -> Token:
    return Token(
        token_id=record.token_id,
        principal=record.principal,
        role=record.role,
        name=record.name,
        created_ms=record.created_ms,
        expires_ms=record.expires_ms,
        revoked_ms=record.revoked_ms,
        slide_ms=record.slide_ms,
    )


METHODS = (
    Method("token.create", TokenCreate, Token, "tokens:write", create, is_exact=True),
    Method("token.list", NoParams, TokenList, "tokens:read", list_),
    Method("token.revoke", TokenRevoke, Token, "tokens:write", revoke),
)
