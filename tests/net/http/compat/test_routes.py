"""Rate and number of concurrent requests of a token, with an ASGI app on virtual time."""

from http import HTTPStatus
from typing import Any
from urllib.parse import unquote

import msgspec
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked
from werkzeug.routing import Map

from palyra.net.api.rate_limit import ConnectionLimits
from palyra.net.http.compat import routes
from palyra.net.http.compat.routes import CompatApp
from palyra.net.http.compat.sources import CompatSources
from tests.net.api.fake_services import Daemon, open_daemon


class Asker:
    """Asks one daemon's app."""

    def __init__(self, daemon: Daemon) -> None:
        self._app = CompatApp(CompatSources(backend=daemon.backend, models={}), Map())

    async def ask(
        self,
        path: str = "/v1/models",
        body: bytes | None = b"",
        token: str = "tok-ann",
        method: str = "",
        headers: tuple[tuple[str, str], ...] = (),
    ) -> tuple[int, str]:
        """Status and code of the answer; a body that is None never comes."""
        said: list[Any] = []
        scope: Any = {
            "method": method or ("POST" if body or body is None else "GET"), "path": unquote(path),
            "raw_path": path.encode(), "query_string": b"",
            "headers": [
                (name.encode(), value.encode())
                for name, value in (("authorization", f"Bearer {token}"), *headers)
                if value
            ],
        }  # fmt: skip
        is_read = False

        async def receive() -> Any:
            nonlocal is_read
            if is_read or body is None:
                await trio.sleep_forever()
            is_read = True
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(event: Any) -> None:
            await trio.lowlevel.checkpoint()
            said.append(event)

        await self._app(scope, receive, send)
        text = b"".join(each.get("body", b"") for each in said)
        answer = msgspec.json.decode(text)
        return said[0]["status"], answer.get("error", {}).get("code", "")


REFUSED = (HTTPStatus.TOO_MANY_REQUESTS, "rate_limit_exceeded")


async def test_so_many_a_second(autojump_clock: MockClock) -> None:
    """Each token for itself; later there are more."""
    async with open_daemon(ConnectionLimits(requests_per_s=2, burst=2)) as daemon:
        asker = Asker(daemon)
        assert [200, 200] == [(await asker.ask())[0] for _ in range(2)]
        assert REFUSED == await asker.ask()
        assert 200 == (await asker.ask(token="tok-bob"))[0]
        await trio.sleep_until(trio.current_time() + 0.5)
        assert 200 == (await asker.ask())[0]
        assert REFUSED == await asker.ask()


async def test_a_long_body_counts_for_several(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anybody reads what it says."""
    monkeypatch.setattr(routes, "UNIT_BYTES", 100)
    body = msgspec.json.encode({"model": "none", "input": "x" * 300})
    async with open_daemon(ConnectionLimits(requests_per_s=10, burst=5)) as daemon:
        asker = Asker(daemon)
        found = [await asker.ask("/v1/embeddings", body) for _ in range(2)]
    assert [(HTTPStatus.NOT_FOUND, "model_not_found"), REFUSED] == found


async def test_so_many_at_once(autojump_clock: MockClock) -> None:
    """A request whose body does not come holds its place, until it is given up."""
    async with open_daemon(ConnectionLimits(max_inflight=1)) as daemon:
        asker = Asker(daemon)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(asker.ask, "/v1/chat/completions", None)
            await wait_all_tasks_blocked()
            assert REFUSED == await asker.ask()
            assert 200 == (await asker.ask(token="tok-bob"))[0]
        assert 200 == (await asker.ask())[0]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses", "/v1/messages"])
async def test_a_parameter_that_is_not_known_is_ignored(
    autojump_clock: MockClock, path: str
) -> None:
    """The next release of a client has some; one of our own options is an error."""
    async with open_daemon() as daemon:
        asker = Asker(daemon)
        for given in (b'{"colour": 1}', b'{"colour": null}', b'{"palyra": {"session_id": 1}}'):
            status, code = await asker.ask(path, given)
            assert (400, "invalid_params") == (status, code)


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/v1/models", (HTTPStatus.OK, "")),
        ("GET", "/v1/models/", (HTTPStatus.NOT_FOUND, "not_found")),
        ("GET", "/v1/models/a/b", (HTTPStatus.OK, "")),
        ("GET", "/v1/models/a%2Fb", (HTTPStatus.OK, "")),
        ("GET", "/v1/models/%61", (HTTPStatus.OK, "")),
        ("GET", "/v1%2fmodels", (HTTPStatus.NOT_FOUND, "not_found")),
        ("GET", "/v1/models%2Fa", (HTTPStatus.NOT_FOUND, "not_found")),
        ("GET", "/v1/%6dodels", (HTTPStatus.NOT_FOUND, "not_found")),
        ("POST", "/v1/messages%2fcount_tokens", (HTTPStatus.NOT_FOUND, "not_found")),
        ("POST", "/v1/responses/a%2fcancel", (HTTPStatus.NOT_FOUND, "not_found")),
        ("get", "/v1/models", (HTTPStatus.METHOD_NOT_ALLOWED, "method_not_allowed")),
        ("GET", "/v1/responses/a/b", (HTTPStatus.NOT_FOUND, "not_found")),
        ("HEAD", "/v1/models", (HTTPStatus.METHOD_NOT_ALLOWED, "method_not_allowed")),
        ("OPTIONS", "/v1/models", (HTTPStatus.METHOD_NOT_ALLOWED, "method_not_allowed")),
        ("PUT", "/v1/responses/a", (HTTPStatus.METHOD_NOT_ALLOWED, "method_not_allowed")),
    ],
)
async def test_a_request_is_routed_by_path_and_method(
    autojump_clock: MockClock, method: str, path: str, expected: tuple[HTTPStatus, str]
) -> None:
    """An unknown path is a 404 and a known one with another method a 405; ids of models have slashes."""
    async with open_daemon() as daemon:
        assert expected == await Asker(daemon).ask(path, method=method)


@pytest.mark.parametrize(
    "name",
    [
        "authorization", "x-api-key", "content-type", "content-encoding", "idempotency-key",
        "x-palyra-approval-mode", "x-palyra-cancel-on-disconnect", "x-palyra-unknown",
    ],
)  # fmt: skip
@pytest.mark.parametrize("second", ["tok-ann", "other"])
async def test_a_header_with_one_value_occurs_once(
    autojump_clock: MockClock, name: str, second: str
) -> None:
    """A repeated one is refused, even with equal values: programs differ in which of them counts."""
    twice = ((name, "tok-ann"), (name, second))
    async with open_daemon() as daemon:
        asker = Asker(daemon)
        assert (HTTPStatus.BAD_REQUEST, "invalid_params") == await asker.ask(headers=twice)
        assert (HTTPStatus.OK, "") == await asker.ask(headers=(("accept", "a"), ("accept", "b")))


async def test_two_credentials_name_one_token(autojump_clock: MockClock) -> None:
    """A bearer token with another `x-api-key` is refused; equal or empty ones are not."""
    async with open_daemon() as daemon:
        asker = Asker(daemon)
        refused = (HTTPStatus.BAD_REQUEST, "invalid_params")
        assert refused == await asker.ask(headers=(("x-api-key", "tok-bob"),))
        assert refused == await asker.ask(token="tok-\u00e4nn", headers=(("x-api-key", "tok-bob"),))
        assert (HTTPStatus.OK, "") == await asker.ask(headers=(("x-api-key", "tok-ann"),))
        assert (HTTPStatus.OK, "") == await asker.ask(headers=(("x-api-key", " "),))
        assert (HTTPStatus.OK, "") == await asker.ask(token="", headers=(("x-api-key", "tok-ann"),))
