"""Headers of a request: options of its run, and the handling of its body."""

import threading
from typing import Any

import msgspec
import pytest

from palyra.core.access import Caller
from palyra.core.redaction.redactor import Redactor
from palyra.errors import InvalidParams
from palyra.net.http.compat import headers
from palyra.net.http.compat.chat import ChatRequest
from palyra.net.http.compat.errors import Encoded
from palyra.net.http.compat.http_exchange import INLINE_BYTES, HttpExchange
from palyra.net.http.compat.routes import HttpCall
from palyra.net.http.compat.run_request import Extension
from palyra.net.http.compat.sources import CompatSources
from tests.net.api.fake_services import open_daemon
from tests.rows import every_row

ANN = Caller(principal="ann", role="operator", token_id="tok_ann")


def exchange(body: bytes = b"", **said: str) -> HttpExchange:
    """A request with those headers."""
    told = [(name.replace("_", "-").encode(), value.encode()) for name, value in said.items()]
    scope: Any = {
        "method": "POST",
        "path": "/v1/x",
        "raw_path": b"/v1/x",
        "query_string": b"",
        "headers": told,
    }

    async def receive() -> Any:  # noqa: RUF029 - as ASGI has it
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(_event: Any) -> None:  # noqa: RUF029 - as ASGI has it
        raise AssertionError("nothing is answered")

    return HttpExchange(scope, receive, send, lambda data: (data, False))


@every_row(
    ("word", "wanted"),
    [("true", True), ("TRUE", True), ("1", True), ("false", False), ("0", False)],
)
def test_a_switch_is_on_or_off(word: str, wanted: bool) -> None:  # noqa: FBT001 - a case
    """The member of the request wins over it."""
    asked = exchange(x_palyra_cancel_on_disconnect=word)
    request = ChatRequest(model="m", messages=())
    assert wanted == headers.with_headers(request, asked).palyra.cancel_on_disconnect
    said = msgspec.structs.replace(request, palyra=Extension(cancel_on_disconnect=not wanted))
    assert said == headers.with_headers(said, asked)


@every_row("word", ["yes", "on", "", "truthy"])
def test_another_word_switches_nothing(word: str) -> None:
    """It is refused: a run that is not cancelled costs, one that is may be missed."""
    asked = exchange(x_palyra_cancel_on_disconnect=word)
    with pytest.raises(InvalidParams):
        headers.with_headers(ChatRequest(model="m", messages=()), asked)


@pytest.mark.parametrize("name", ["x_palyra_approval_mode", "x_palyra_cancel_on_disconnect"])
def test_the_member_wins_over_the_header(name: str) -> None:
    """Whatever the header says, as long as it is something."""
    own = Extension(approval_mode="ask", cancel_on_disconnect=False)
    request = ChatRequest(model="m", messages=(), palyra=own)
    word = {"x_palyra_approval_mode": "deny", "x_palyra_cancel_on_disconnect": "true"}[name]
    assert request == headers.with_headers(request, exchange(b"", **{name: word}))


@pytest.mark.parametrize("name", ["x_palyra_approval_mode", "x_palyra_cancel_on_disconnect"])
async def test_a_header_that_is_not_ascii_is_refused(name: str) -> None:
    """An ignored key would make the repeated request another run."""
    with pytest.raises(InvalidParams, match="ASCII"):
        headers.with_headers(ChatRequest(model="m", messages=()), exchange(b"", **{name: "é"}))
    request = ChatRequest(model="m", messages=())
    with pytest.raises(InvalidParams, match="ASCII"):
        await headers.find_key(
            exchange(idempotency_key="é"), ANN, request, 1, lambda data: (data, False)
        )


@pytest.mark.parametrize("text", ["hello", "x" * INLINE_BYTES])
async def test_a_large_request_is_digested_in_a_thread(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """The loop is not held up; the digest is the same wherever it is made."""
    seen: list[int] = []
    digest = headers._digest

    def note(path: str, request: Any) -> str:
        seen.append(threading.get_ident())
        return digest(path, request)

    monkeypatch.setattr(headers, "_digest", note)
    message = {"role": "user", "content": text}
    body = msgspec.json.encode({"model": "m", "messages": [message]})
    request = msgspec.json.decode(body, type=ChatRequest)
    asked = exchange(idempotency_key="once")
    key = await headers.find_key(asked, ANN, request, len(body), Redactor([]).redact_bytes)
    assert key is not None
    assert digest("/v1/x", request) == key.body_sha256
    assert (len(body) <= INLINE_BYTES) == (seen == [threading.get_ident()])


async def test_a_body_is_freed_once_it_is_decoded() -> None:
    """A run may be long; the size of the body is still known."""
    body = b'{"model": "m", "messages": []}'
    async with open_daemon() as daemon:
        sources = CompatSources(backend=daemon.backend, models={})
        call = HttpCall(sources, ANN, exchange(), "", body, len(body))
        assert "m" == (await call.decode(ChatRequest)).model
    assert (b"", len(body)) == (call.body, call.size_bytes)


async def test_the_same_request_may_be_streamed() -> None:
    """The form of the answer is not part of the request's identity."""
    asked = exchange(idempotency_key="k")
    request = ChatRequest(model="m", messages=())
    streamed = msgspec.structs.replace(request, stream=True)
    other = msgspec.structs.replace(request, n=1)
    keys = [
        await headers.find_key(asked, ANN, each, 1, Redactor([]).redact_bytes)
        for each in (request, streamed, other)
    ]
    assert keys[0] == keys[1] != keys[2]


async def test_a_compressed_body_is_refused() -> None:
    """Its inflated size is unknown."""
    with pytest.raises(Encoded):
        await exchange(b"x", content_encoding="gzip").read_body(9)
    assert b"x" == await exchange(b"x", content_encoding="identity").read_body(9)
