"""Host functions of skills: log, fetch and secret, each limited by the skill's grants.

Grants are checked here, in the daemon, and not only in the worker.  A compromised worker can send
any request but obtains nothing beyond the grants of its skill.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated

import msgspec
from msgspec import Meta

from palyra.core.text.excerpt import truncate_safely
from palyra.errors import PalyraError
from palyra.tools.wasm.limits import LOG_BYTES
from palyra.tools.wasm.protocol import HostCall, HostReply
from palyra.tools.web.urls import parse_url

MAX_REQUEST_BYTES = 262_144


class FetchRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Argument of `fetch`."""

    url: str
    method: Annotated[str, Meta(pattern="^(GET|HEAD|POST|PUT|PATCH|DELETE)$")] = "GET"
    headers: dict[str, str] = {}
    body: str = ""


class FetchReply(msgspec.Struct, frozen=True, kw_only=True):
    """Result of `fetch`: one response; redirects are not followed."""

    status: int
    headers: dict[str, str]
    body: str
    is_cut: bool = False


Fetch = Callable[[FetchRequest], Awaitable[FetchReply]]  # raises PalyraError
FindSecret = Callable[[str], Awaitable[str | None]]


@dataclass(frozen=True, slots=True)
class HostFunctions:
    """Implementations of `fetch` and `secret`; None: unavailable in this daemon."""

    fetch: Fetch | None = None
    find_secret: FindSecret | None = None


class HostFunctionGate:
    """Serves the host functions of one call, within its grants."""

    def __init__(
        self, doors: HostFunctions, granted: tuple[str, ...], on_log: Callable[[str], None]
    ) -> None:
        self._doors = doors
        self._granted = frozenset(granted)
        self._on_log = on_log
        self._log_room = LOG_BYTES

    async def serve(self, call: HostCall) -> HostReply:
        """Return the reply, or a denial that ends the guest."""
        match call.function:
            case "log":
                return self._log(call.argument)
            case "fetch":
                return await self._fetch(call.argument)
            case "secret":
                return await self._secret(call.argument)
            case _:
                return HostReply(denied="there is no such function of the host")

    def _log(self, argument: bytes) -> HostReply:
        if "log" not in self._granted:
            return HostReply(denied="'log' is not granted")
        text = argument[: self._log_room].decode("utf-8", "replace")
        self._log_room -= len(argument[: self._log_room])
        if text:
            self._on_log(text + "\n")
        return HostReply()

    async def _fetch(self, argument: bytes) -> HostReply:
        try:
            request = _parse(argument)
            host = parse_url(request.url).host
        except PalyraError as error:
            return _problem(error.message)
        except ValueError as error:  # includes errors of msgspec and of UTF-8 decoding
            return _problem(f"fetch takes a JSON object with url: {error}")
        if f"fetch:{host}" not in self._granted:
            return HostReply(denied=f"'fetch:{host}' is not granted")
        if self._doors.fetch is None:
            return HostReply(denied="this daemon fetches nothing for skills")
        try:
            reply = await self._doors.fetch(request)
        except PalyraError as error:
            return _problem(error.message)
        return HostReply(reply=msgspec.json.encode(reply))

    async def _secret(self, argument: bytes) -> HostReply:
        name = argument[:256].decode("utf-8", "replace")
        if f"secret:{name}" not in self._granted:
            return HostReply(denied=f"'secret:{name[:64]}' is not granted")
        if self._doors.find_secret is None:
            return HostReply(denied="this daemon has no secrets for skills")
        value = await self._doors.find_secret(name)
        if value is None:
            return _problem(f"there is no secret {name!r}")
        return HostReply(reply=msgspec.json.encode({"value": value}))


def _parse(argument: bytes) -> FetchRequest:
    if len(argument) > MAX_REQUEST_BYTES:
        raise ValueError(f"a request of {len(argument)} bytes")
    return msgspec.json.decode(argument, type=FetchRequest)


def _problem(text: str) -> HostReply:
    """Return a reply with an error that the guest can handle."""
    return HostReply(reply=msgspec.json.encode({"error": truncate_safely(text, 500)}))
