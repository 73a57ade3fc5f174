"""`POST /v1/console/login`: trade the code of a link for the two halves of a login.

The checks stand in this order: the request comes from a page of this daemon, it is JSON, and the
code is right.  A page of another origin is therefore refused before its code counts as a wrong one.
"""

from http import HTTPStatus
from typing import cast
from urllib.parse import urlsplit

import msgspec
from hypercorn.typing import HTTPScope
from quart import Response, request
from werkzeug.exceptions import UnsupportedMediaType

from palyra.errors import Forbidden, InvalidParams
from palyra.net.api.logins import LONGEST_MS, Logins
from palyra.net.http.late import HttpSources
from palyra.net.server.request_head import (
    RequestHead,
    cookie_name,
    is_own_page,
    without_default_port,
)

MAX_CODE_CHARS = 128
API_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
API_PATH = "/v1/"  # the cookie is sent to the protocol and to nothing else


class LoginRequest(msgspec.Struct, frozen=True):
    """Body of the request."""

    code: str

    def __repr__(self) -> str:
        """Without the code."""
        return "LoginRequest()"


class LoginAnswer(msgspec.Struct, frozen=True):
    """Body of the answer: the half that the page keeps."""

    token: str
    role: str
    expires_ms: int | None

    def __repr__(self) -> str:
        """Without the half."""
        return f"LoginAnswer({self.role})"


class ConsoleLoginPage:
    """The route of the login."""

    def __init__(self, sources: HttpSources, logins: Logins) -> None:
        self._names = sources.names
        self._logins = logins

    async def log_in(self) -> Response:
        """Answer with half of the login, and set the other one as a cookie.

        Raises Forbidden, InvalidParams, Unauthenticated, RateLimited, Unavailable.
        """
        names, head = self._names(), read_head(cast("HTTPScope", request.scope))
        if not is_own_page(head, names):
            raise Forbidden("only a page of this daemon can log in: open the link in a browser")
        if request.mimetype != "application/json":
            raise UnsupportedMediaType
        login = await self._logins.redeem(_read_code(cast("bytes", await request.get_data())))
        answer = LoginAnswer(login.page_half, login.record.role, login.record.expires_ms)
        response = Response(
            msgspec.json.encode(answer), HTTPStatus.OK, API_HEADERS, content_type="application/json"
        )
        (origin,) = head.values(b"origin")
        is_public = without_default_port(origin.decode("latin-1")) == names.public_origin
        base = urlsplit(self._logins.address()).path.rstrip("/") if is_public else ""
        response.set_cookie(
            cookie_name(names),
            login.cookie_half,
            max_age=LONGEST_MS // 1000,
            path=base + API_PATH,
            secure=origin.startswith(b"https://"),
            httponly=True,
            samesite="Strict",
        )
        return response


def _read_code(body: bytes) -> str:
    """Return the code.  Raises InvalidParams, which does not show the body."""
    try:
        code = msgspec.json.decode(body, type=LoginRequest).code
    except (msgspec.DecodeError, UnicodeDecodeError):
        code = ""
    if not 0 < len(code) <= MAX_CODE_CHARS:
        raise InvalidParams('the body is not of the form {"code": "…"}', field="code")
    return code


def read_head(scope: HTTPScope) -> RequestHead:
    """Return the request in the form that the checks take."""
    target = scope["raw_path"] + b"?" + scope["query_string"]
    version = scope["http_version"].encode()
    return RequestHead(scope["method"].encode(), target, tuple(scope["headers"]), version)
