"""console.*: links that log a browser in to the web console, and the end of such a login."""

from typing import Annotated

import msgspec

from palyra.core.journal.records import ConsoleRole
from palyra.core.text.names import check_new_name
from palyra.net.api.logins import CODE_LIFE_S, LONGEST_MS, SLIDE_MS
from palyra.net.api.method import Method, MethodCall, check_no_secret
from palyra.net.api.methods.token import Name, show_token
from palyra.net.protocol.params import NoParams, Params
from palyra.net.protocol.results import ConsoleLink, Token

MIN_SLIDE_MS = 60_000


class ConsoleLogin(Params, frozen=True, kw_only=True):
    """A login that a link will make; by default one of the caller's own principal."""

    role: ConsoleRole = "operator"
    principal: Name | None = None
    ttl_ms: Annotated[int, msgspec.Meta(ge=MIN_SLIDE_MS, le=LONGEST_MS)] = SLIDE_MS


async def link(call: MethodCall, params: ConsoleLogin) -> ConsoleLink:
    """Make a link.  It has no idempotency key: its secret must not be kept with a receipt."""
    backend, principal = call.backend, params.principal or call.caller.principal
    if params.principal is not None:
        check_no_secret(call, principal=principal)
        tokens = await backend.journal.read(lambda store: store.list_tokens())
        check_new_name(principal, [each.principal for each in tokens], field="principal")
    code = backend.logins.make_code(principal=principal, role=params.role, slide_ms=params.ttl_ms)
    return ConsoleLink(
        url=backend.logins.make_link(code),
        principal=principal,
        role=params.role,
        expires_ms=backend.now_ms() + round(CODE_LIFE_S * 1000),
    )


async def log_out(call: MethodCall, _params: NoParams) -> Token:
    record = await call.backend.logins.log_out(call.caller)
    call.then(lambda: call.backend.hub.revoke(record.token_id))
    return show_token(record)


METHODS = (
    Method("console.link", ConsoleLogin, ConsoleLink, "tokens:write", link, is_exact=True),
    Method("console.logout", NoParams, Token, None, log_out, is_read=False),
)
