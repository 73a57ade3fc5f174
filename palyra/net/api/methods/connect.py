"""connect: authentication of the client, and the features granted to it."""

from typing import Annotated

import msgspec

from palyra.config.parts import PARTS, find_missing, list_installed
from palyra.core.access import Caller
from palyra.errors import IllegalState, Unauthenticated
from palyra.net.api.logins import authenticate_halves
from palyra.net.api.method import Backend, Method, MethodCall, at_once
from palyra.net.api.tokens import PAGE_HALF_PREFIX
from palyra.net.protocol.notifications import FEATURES
from palyra.net.protocol.params import Params
from palyra.net.protocol.results import Declined, Welcome
from palyra.net.server.transport import Peer

Word = Annotated[str, msgspec.Meta(max_length=128)]


class ClientInfo(Params, frozen=True, kw_only=True):
    """Name and version of the client, for logs."""

    name: Word
    version: Word = ""


class Connect(Params, frozen=True, kw_only=True):
    """The first request; the token is left out when the upgrade carried it."""

    token: str | None = None
    client: ClientInfo | None = None
    want: tuple[Word, ...] = ()

    def __repr__(self) -> str:
        """Without the token."""
        return f"Connect(client={self.client!r}, want={self.want!r})"


async def identify(params: Connect, peer: Peer, backend: Backend) -> Caller:
    """Return the authenticated caller.  Raises Unauthenticated."""
    if peer.caller is not None:
        return peer.caller
    token = params.token or peer.bearer
    if token is None:
        raise Unauthenticated("connect needs a token, here or as Authorization: Bearer")
    if token.startswith(PAGE_HALF_PREFIX):
        return await authenticate_halves(token, peer.cookie_halves, backend.authenticate)
    return await backend.authenticate(token)


def welcome(caller: Caller, params: Connect, backend: Backend) -> Welcome:
    """The reply to `connect`."""
    has = (*FEATURES, *list_installed())
    missing: dict[str, str] = {part.extra: find_missing(part.extra) for part in PARTS}
    return Welcome(
        principal=caller.principal,
        role=caller.role,
        scopes=tuple(sorted(caller.scopes)),
        granted=tuple(feature for feature in has if feature in params.want),
        declined=tuple(
            Declined(feature=feature, reason=missing.get(feature, "unknown to this version"))
            for feature in params.want
            if feature not in has
        ),
        state=backend.state(),
    )


def connect_again(_call: MethodCall, _params: Connect) -> Welcome:
    raise IllegalState("this connection is already connected")


METHODS = (Method("connect", Connect, Welcome, None, at_once(connect_again)),)
