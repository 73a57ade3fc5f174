"""Admission to the daemon: names, origins, handshakes, tokens."""

from http import HTTPStatus

from palyra.net.server.request_head import (
    HttpRefusal,
    Names,
    RequestHead,
    UpgradeRequest,
    check_request,
    check_upgrade,
    cookie_name,
    find_bearer,
    find_cookies,
    is_loopback,
    is_own_host,
    is_own_page,
)
from tests.rows import every_row

OWN = Names(7420)
CONFIGURED = Names(
    7420,
    hosts=frozenset({"palyra.example", "box.lan:8080"}),
    origins=frozenset({"https://palyra.example", "http://app.example:3000"}),
)
HANDSHAKE = {
    "host": "localhost:7420",
    "upgrade": "websocket",
    "connection": "Upgrade",
    "sec-websocket-version": "13",
    "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
}


def request(*headers: tuple[str, str], target: str = "/v1/ws", method: str = "GET") -> RequestHead:
    pairs = tuple((name.encode(), value.encode("latin-1")) for name, value in headers)
    return RequestHead(method.encode(), target.encode(), pairs)


def handshake(*extra: tuple[str, str], without: str = "", **options: str) -> RequestHead:
    headers = [pair for pair in HANDSHAKE.items() if pair[0] != without]
    return request(*headers, *extra, **options)


def status(verdict: UpgradeRequest | HttpRefusal | None) -> int | None:
    return verdict.status.value if isinstance(verdict, HttpRefusal) else None


@every_row(
    "host",
    [
        "localhost:7420",
        "LOCALHOST:7420",
        "127.0.0.1:7420",
        "127.8.9.10:7420",
        "[::1]:7420",
        "localhost",
        "127.0.0.1",
        "[::1]",
    ],
)
def test_loopback_names_are_ours(host: str) -> None:
    """A name of this machine is served, unless its port is another one."""
    assert None is check_request(request(("host", host)), OWN)


@every_row(
    "host",
    [
        "evil.example:7420",
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "192.168.0.2",
        "[::]",
        "localhost.evil.example:7420",
        "127.0.0.1.evil.example:7420",
        "evil-localhost:7420",
        "notlocalhost:7420",
        "localhost.:7420",
        "localhost:7421",
        "localhost:80",
        "localhost:",
        "localhost:07420x",
        "localhost:7420:7420",
        "localhost:99999",
        "localhost:7420@evil.example",
        "user@localhost:7420",
        "localhost:7420/",
        "localhost:7420, evil.example",
        "0.0.0.0:7420",
        "127.1:7420",
        "2130706433:7420",
        "0x7f.0.0.1:7420",
        "[::ffff:127.0.0.1]:7420",
        "[::]:7420",
        "::1:7420",
        "192.168.0.2:7420",
        "palyra.example",
        "l\u00f6calhost:7420",
        "",
    ],
)
def test_other_names_are_refused(host: str) -> None:
    """A name that may mean another machine, or another port, is 403: DNS rebinding ends here."""
    verdict = check_request(request(("host", host)), OWN)
    assert HTTPStatus.FORBIDDEN == status(verdict)


@every_row(
    ("expected", "host"),
    [
        (True, "palyra.example"),
        (True, "palyra.example:443"),
        (True, "box.lan:8080"),
        (False, "box.lan"),
        (False, "box.lan:7420"),
        (False, "sub.palyra.example"),
        (False, "palyra.example.evil.example"),
        (True, "localhost:7420"),
    ],
)
def test_configured_names(*, expected: bool, host: str) -> None:
    """A name without a port allows any port, one with a port only that port."""
    assert expected == is_own_host(host, CONFIGURED)


def test_port_80_may_be_left_out() -> None:
    """On port 80 a Host header without a port is the daemon's own."""
    assert is_own_host("localhost", Names(80))


def test_missing_or_repeated_host_is_refused() -> None:
    """There must be exactly one Host header."""
    assert HTTPStatus.FORBIDDEN == status(check_request(request(), OWN))
    twice = request(("host", "localhost:7420"), ("host", "localhost:7420"))
    assert HTTPStatus.FORBIDDEN == status(check_request(twice, OWN))


@every_row("name", ["localhost", "127.0.0.1", "127.255.255.254", "[::1]"])
def test_loopback(name: str) -> None:
    """These can only mean this machine."""
    assert is_loopback(name)


@every_row(
    ("host", "origin"),
    [
        ("localhost:7420", "http://localhost:7420"),
        ("127.0.0.1:7420", "http://127.0.0.1:7420"),
        ("[::1]:7420", "http://[::1]:7420"),
        ("palyra.example", "http://palyra.example"),
        ("palyra.example:80", "http://palyra.example"),
        ("palyra.example", "https://palyra.example"),
        ("localhost:7420", "https://palyra.example:443"),
        ("localhost:7420", "http://app.example:3000"),
        ("localhost:7420", "HTTP://APP.EXAMPLE:3000"),
    ],
)
def test_own_and_listed_origins_pass(host: str, origin: str) -> None:
    """A page of the daemon itself, or of a listed origin, may talk to it."""
    assert None is check_request(request(("host", host), ("origin", origin)), CONFIGURED)


@every_row(
    "origin",
    [
        "null",
        "",
        "http://evil.example",
        "http://localhost",
        "http://localhost:74200",
        "http://localhost:80",
        "http://localhost:7421",
        "https://localhost:7420",
        "http://127.0.0.1:7420",
        "http://localhost:7420.evil.example",
        "http://evil.localhost:7420",
        "http://localhost:7420/",
        "http://localhost:7420 http://evil.example",
        "http://localhost:7420, http://evil.example",
        "http://user@localhost:7420",
        "https://palyra.example.evil.example",
        "https://evilpalyra.example",
        "http://app.example",
        "file://",
        "localhost:7420",
        "ws://localhost:7420",
    ],
)
def test_other_origins_are_refused(origin: str) -> None:
    """Any other page, look-alikes and `null` included, is 403."""
    verdict = check_request(request(("host", "localhost:7420"), ("origin", origin)), CONFIGURED)
    assert HTTPStatus.FORBIDDEN == status(verdict)


@every_row(
    ("expected", "origin"),
    [(None, "http://localhost:7420"), (403, "http://localhost"), (403, "http://localhost:3000")],
)
def test_a_host_without_a_port_makes_no_other_page_ours(expected: int | None, origin: str) -> None:
    """Our own pages have our port, whatever `Host` leaves out."""
    verdict = check_request(request(("host", "localhost"), ("origin", origin)), OWN)
    assert expected == status(verdict)


def test_two_origins_are_refused() -> None:
    """A second Origin header is 403, even when both are ours."""
    own = ("origin", "http://localhost:7420")
    verdict = check_request(request(("host", "localhost:7420"), own, own), OWN)
    assert HTTPStatus.FORBIDDEN == status(verdict)


def test_refusal_names_the_setting_and_not_much_of_the_value() -> None:
    """The response names the setting, and repeats at most 100 escaped characters."""
    verdict = check_request(request(("host", "\x1b]0;" + "x" * 500)), OWN)
    assert verdict is not None
    assert "server.allowed_hosts" in verdict.text
    assert verdict.text.isprintable()
    assert len(verdict.text) < 250


@every_row(
    "query",
    ["token=pal_1", "TOKEN=", "a=b&access_token=pal_1", "%74oken=pal_1", "api_key=x", "key=x"],
)
def test_token_in_the_url_is_refused(query: str) -> None:
    """A URL with a token field is refused, and the value is not repeated."""
    verdict = check_request(request(("host", "localhost:7420"), target=f"/v1/ws?{query}"), OWN)
    assert verdict is not None
    assert HTTPStatus.BAD_REQUEST == verdict.status
    assert "pal_1" not in verdict.text


def test_endless_query_is_refused() -> None:
    """A query of very many fields is not taken apart."""
    target = "/?" + "a=b&" * 1_000
    verdict = check_request(request(("host", "localhost:7420"), target=target), OWN)
    assert HTTPStatus.BAD_REQUEST == status(verdict)


@every_row(
    ("expected", "values"),
    [
        (None, []),
        ("pal_x", ["Bearer pal_x"]),
        ("pal_x", ["bearer   pal_x "]),
        (None, ["Basic cGFsX3g="]),
        (None, ["Bearer"]),
        (None, ["Bearer "]),
        (None, ["Bearer t\u00f6ken"]),
    ],
)
def test_bearer(expected: str | None, values: list[str]) -> None:
    """The token of a Bearer header; other schemes are no token."""
    assert expected == find_bearer(request(*(("authorization", value) for value in values)))


def test_two_tokens_are_refused() -> None:
    """Two Authorization headers are ambiguous."""
    twice = [("authorization", "Bearer a"), ("authorization", "Bearer b")]
    assert HTTPStatus.BAD_REQUEST == status(check_upgrade(handshake(*twice), OWN))


def test_good_handshake_is_admitted() -> None:
    """Without Origin and with a token: a program, not a page."""
    head = handshake(("authorization", "Bearer pal_x"))
    assert UpgradeRequest("pal_x", None) == check_upgrade(head, OWN)


def test_subprotocol_is_ours_or_none() -> None:
    """Our subprotocol is chosen when offered; others alone are refused by name."""
    offered = handshake(("sec-websocket-protocol", "chat, palyra.v1"))
    assert UpgradeRequest(None, "palyra.v1") == check_upgrade(offered, OWN)
    foreign = check_upgrade(handshake(("sec-websocket-protocol", "chat")), OWN)
    assert isinstance(foreign, HttpRefusal)
    assert HTTPStatus.BAD_REQUEST == foreign.status
    assert "palyra.v1" in foreign.text


@every_row(
    ("expected", "head"),
    [
        (HTTPStatus.METHOD_NOT_ALLOWED, handshake(method="POST")),
        (HTTPStatus.UPGRADE_REQUIRED, handshake(without="sec-websocket-version")),
        (
            HTTPStatus.UPGRADE_REQUIRED,
            handshake(("sec-websocket-version", "8"), without="sec-websocket-version"),
        ),
        (HTTPStatus.BAD_REQUEST, handshake(without="sec-websocket-key")),
        (HTTPStatus.BAD_REQUEST, handshake(("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="))),
        (
            HTTPStatus.BAD_REQUEST,
            handshake(("sec-websocket-key", "short=="), without="sec-websocket-key"),
        ),
        (HTTPStatus.BAD_REQUEST, handshake(("transfer-encoding", "chunked"))),
        (HTTPStatus.BAD_REQUEST, handshake(("content-length", "5"))),
        (HTTPStatus.FORBIDDEN, handshake(("origin", "http://evil.example"))),
        (HTTPStatus.FORBIDDEN, handshake(without="host")),
    ],
)
def test_bad_handshake_is_refused(expected: int, head: RequestHead) -> None:
    """Each fault of a handshake has its own status."""
    assert expected == status(check_upgrade(head, OWN))


def test_a_wrong_version_gets_the_supported_one() -> None:
    """RFC 6455 section 4.4: the response to another version names the supported one."""
    verdict = check_upgrade(handshake(without="sec-websocket-version"), OWN)
    assert isinstance(verdict, HttpRefusal)
    assert (("Sec-WebSocket-Version", "13"),) == verdict.headers


OWN_PAGE = ("origin", "http://localhost:7420")


@every_row(
    ("expected", "headers"),
    [
        (True, [OWN_PAGE]),
        (True, [OWN_PAGE, ("sec-fetch-site", "same-origin")]),
        (False, []),
        (False, [("origin", "http://localhost:7421")]),
        (False, [("origin", "http://127.0.0.1:7420")]),
        (False, [("origin", "http://localhost:7420.evil.example")]),
        (False, [("origin", "null")]),
        (False, [OWN_PAGE, OWN_PAGE]),
        (False, [OWN_PAGE, ("sec-fetch-site", "same-site")]),
        (False, [OWN_PAGE, ("sec-fetch-site", "cross-site")]),
        (False, [OWN_PAGE, ("sec-fetch-site", "none")]),
    ],
)
def test_only_a_page_of_this_daemon_is_its_own(
    *, expected: bool, headers: list[tuple[str, str]]
) -> None:
    """The page has the origin that was asked, and the browser agrees where it says anything."""
    names = Names(7420)
    assert expected is is_own_page(request(("host", "localhost:7420"), *headers), names)


def test_an_allowed_origin_is_no_own_page() -> None:
    """Pages of `allowed_origins` may connect with a token, and may not log in."""
    names = Names(
        7420,
        origins=frozenset({"http://localhost:5173", "https://palyra.example"}),
        hosts=frozenset({"palyra.example"}),
        public_origin="https://agent.example",
    )
    foreign = request(("host", "localhost:7420"), ("origin", "http://localhost:5173"))
    assert check_request(foreign, names) is None
    assert not is_own_page(foreign, names)
    behind_tls = request(("host", "palyra.example"), ("origin", "https://palyra.example"))
    rewritten = request(("host", "localhost:7420"), ("origin", "https://agent.example"))
    rebound = request(("host", "evil.example:7420"), ("origin", "http://evil.example:7420"))
    assert is_own_page(behind_tls, names)
    assert is_own_page(rewritten, names)
    assert not is_own_page(rebound, names)


def test_cookies_of_the_own_port_are_found() -> None:
    """All values of the name are returned, whatever else is in the jar; other ports have other names."""
    jar = request(
        ("cookie", "a=1; palyra_7420=x; palyra_7421=y; xpalyra_7420=z"),
        ("cookie", 'palyra_7420="; palyra_7420=w=; =; palyra_7420'),
    )
    assert ("x", '"', "w=", "") == find_cookies(jar, cookie_name(Names(7420)))
    assert UpgradeRequest(None, None, ("x",)) == check_upgrade(
        handshake(("cookie", "palyra_7420=x")), OWN
    )
