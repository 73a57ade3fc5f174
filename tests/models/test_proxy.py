"""Models behind a real CONNECT proxy, with a certificate of an authority of the company's own."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
import trio

from palyra.config.sections import ModelProvider
from palyra.core.model.messages import ModelFailure, ModelTurn
from palyra.core.outbound import read_outbound
from palyra.errors import InvalidParams
from palyra.models.providers import Providers
from tests.actors.fake_alarms import FakeAlarms
from tests.models.model_kit import CHAT_EXPECTED, CHAT_TURN, KEY, REQUEST
from tests.models.provider import STREAM, Provider, sse
from tests.tools.web.certificates import Authority

pytestmark = pytest.mark.real
NAME = "provider.test"  # resolved by the proxy alone
WITHIN_S = 120.0  # a bound against hanging, not a promise


@dataclass
class Proxy:
    """Tunnels every CONNECT to one port of loopback, or refuses it."""

    target: int
    refusal: bytes = b""
    url: str = ""
    heads: list[bytes] = field(default_factory=list)

    async def serve(self, stream: trio.SocketStream) -> None:
        """One tunnel."""
        head = b""
        async with stream:
            while b"\r\n\r\n" not in head:
                head += await stream.receive_some()
            self.heads.append(head)
            if self.refusal:
                await stream.send_all(self.refusal)
                return
            async with await trio.open_tcp_stream("127.0.0.1", self.target) as inner:
                await stream.send_all(b"HTTP/1.1 200 Connection established\r\n\r\n")
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(copy, inner, stream)
                    await copy(stream, inner)
                    nursery.cancel_scope.cancel()


async def copy(source: trio.SocketStream, target: trio.SocketStream) -> None:
    """Pass bytes on until either side ends."""
    try:
        while piece := await source.receive_some():
            await target.send_all(piece)
    except trio.BrokenResourceError:
        return


class World:
    """A provider with TLS, a proxy in front of it, and an authority."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder)
        self.served = Provider(answers=[[STREAM + sse(*CHAT_TURN)] for _ in range(3)])
        self.proxy = Proxy(0)
        self.port = 0

    async def ask(self, environ: dict[str, str], **given: str) -> ModelTurn:
        """A turn of a provider that is configured so."""
        config = ModelProvider(
            **({"name": "x", "base_url": f"https://{NAME}/v1", "key": "env:K"} | given)  # type: ignore[arg-type]  # all texts
        )

        async def find(_reference: str) -> str:
            await trio.lowlevel.checkpoint()
            return KEY

        made = Providers(
            [config], find, new_id="{}_1".format, now_ms=lambda: 0, alarms=FakeAlarms(),
            outbound=read_outbound(environ),
        )  # fmt: skip
        try:
            with trio.fail_after(WITHIN_S):
                return await made.catalogue({})["x/big"].stream(REQUEST, lambda _: None)
        finally:
            await made.close()

    @property
    def environ(self) -> dict[str, str]:
        """The variables of a company's machine."""
        return {"HTTPS_PROXY": self.proxy.url, "SSL_CERT_FILE": str(self.authority.ca_file)}


@asynccontextmanager
async def company(folder: Path) -> AsyncGenerator[World]:
    """All of it, listening on loopback."""
    world = World(folder)
    context = world.authority.server_context(NAME)

    async def serve(stream: trio.SSLStream[trio.SocketStream]) -> None:
        try:
            await world.served.serve(stream)  # type: ignore[arg-type]  # used like a socket
        except trio.BrokenResourceError:  # a client that does not trust the certificate
            return

    async with trio.open_nursery() as nursery:
        secure = partial(trio.serve_ssl_over_tcp, host="127.0.0.1", https_compatible=True)
        (tls, *_) = await nursery.start(secure, serve, 0, context)
        world.port = tls.transport_listener.socket.getsockname()[1]
        world.proxy.target = world.port
        start = partial(trio.serve_tcp, host="127.0.0.1")
        (plain, *_) = await nursery.start(start, world.proxy.serve, 0)
        world.proxy.url = f"http://127.0.0.1:{plain.socket.getsockname()[1]}"
        yield world  # noqa: RUF075 - a failed test cancels it as well
        nursery.cancel_scope.cancel()


async def test_a_provider_is_reached_through_the_proxy(tmp_path: Path) -> None:
    """By variables or by settings of the provider; the proxy sees the name and nothing else."""
    async with company(tmp_path) as world:
        turn = await world.ask(world.environ)
        assert CHAT_EXPECTED.text == turn.text
        assert [f"CONNECT {NAME}:443 HTTP/1.1"] == [
            head.split(b"\r\n")[0].decode() for head in world.proxy.heads
        ]
        assert KEY in world.served.heads[0]
        assert KEY.encode() not in b"".join(world.proxy.heads)
        own = {"proxy": world.proxy.url, "ca_file": str(world.authority.ca_file)}
        assert CHAT_EXPECTED.text == (await world.ask({}, **own)).text
        assert 2 == len(world.proxy.heads)


async def test_an_unknown_authority_is_named_with_its_remedy(tmp_path: Path) -> None:
    """Without the setting no byte of the request leaves."""
    async with company(tmp_path) as world:
        with pytest.raises(
            ModelFailure, match=r"not trusted: .*issuer.*`network.ca_file`.*SSL_CERT_FILE"
        ):
            await world.ask({"HTTPS_PROXY": world.proxy.url})
        assert [] == world.served.heads


@pytest.mark.parametrize(
    ("refusal", "said"),
    [
        (b"HTTP/1.1 403 Forbidden\r\n\r\n", "403 Forbidden"),
        (b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "407 Proxy Authentication"),
    ],
)
async def test_a_refusal_of_the_proxy_is_named(tmp_path: Path, refusal: bytes, said: str) -> None:
    """With its place, without its password."""
    async with company(tmp_path) as world:
        world.proxy.refusal = refusal
        url = world.proxy.url.replace("://", "://user:hidden@")
        with pytest.raises(ModelFailure) as caught:
            await world.ask(world.environ | {"HTTPS_PROXY": url})
        assert "unavailable" == caught.value.failure_class
        assert (
            f"the proxy {url.rpartition('@')[2]} refused the connection: {said}"
            in caught.value.message
        )
        assert "hidden" not in caught.value.message
        assert b"proxy-authorization: basic" in world.proxy.heads[0].lower()


async def test_loopback_is_reached_directly(tmp_path: Path) -> None:
    """A local server is never sent to the proxy; a name that is not the certificate's is no lack of authorities."""
    async with company(tmp_path) as world:
        local = f"https://127.0.0.1:{world.port}/v1"
        with pytest.raises(ModelFailure, match=r"not valid for '127.0.0.1'\.?$"):
            await world.ask(world.environ, base_url=local)
        assert [] == world.proxy.heads


async def test_a_proxy_that_is_away_is_named(tmp_path: Path) -> None:
    """Not the provider, which may well be there."""
    async with company(tmp_path) as world:
        with pytest.raises(ModelFailure, match=r"cannot be reached through the proxy 127.0.0.1:1:"):
            await world.ask(world.environ | {"HTTPS_PROXY": "http://127.0.0.1:1"})


async def test_a_file_that_holds_no_authority_is_refused(tmp_path: Path) -> None:
    """At the start, with the name of the file."""
    for file in (tmp_path / "none.pem", Path(__file__)):
        with pytest.raises(InvalidParams, match=f"{file.name}.*PEM"):
            await World(tmp_path).ask({}, ca_file=str(file))
