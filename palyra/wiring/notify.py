"""Wiring of notices: their two addresses, the devices that ring, and the request that each gets."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

import msgspec
import trio

from palyra.actors.devices import Devices, ListTokens
from palyra.actors.notices import Addressee, Notices
from palyra.actors.run.approval import OpenApprovals
from palyra.config.load import Config
from palyra.core.notice import QuestionNotice
from palyra.core.outbound import Outbound, find_proxy
from palyra.core.ports import RunBlocking
from palyra.core.push import check_endpoint, make_claims, make_headers
from palyra.core.redaction.secret_references import is_reference, parse_reference
from palyra.errors import InvalidParams, NotFound, Rejected, Unavailable
from palyra.net.api.logins import Logins
from palyra.wiring.host import Host

ANSWER_S = 10.0
_AGAIN = frozenset({408, 425, 429})  # besides 5xx: may succeed later
_GONE = frozenset({404, 410})  # RFC 8030: the subscription has ended
_TAKEN, _MOVED, _BROKEN = 2, 3, 5  # classes of statuses

Render = Callable[[QuestionNotice], tuple[Mapping[str, str], bytes]]
# Sends headers and content to an address; returns the status of the answer.
Post = Callable[[str, Mapping[str, str], bytes], Awaitable[int]]


class KeyPair(Protocol):
    """See `PushKeyPair`."""

    public_key: str

    def sign(self, claims: Mapping[str, str | int]) -> str:
        """See `PushKeyPair.sign`."""


FindSecret = Callable[[str], Awaitable[str]]


def as_json(notice: QuestionNotice) -> tuple[Mapping[str, str], bytes]:
    """Render the request of a webhook."""
    return {"content-type": "application/json"}, msgspec.json.encode(notice)


def as_text(notice: QuestionNotice) -> tuple[Mapping[str, str], bytes]:
    """Render the request of an ntfy topic; a tap on the notification opens the link."""
    headers = {"content-type": "text/plain; charset=utf-8", "title": "Palyra", "click": notice.url}
    return headers, f"{notice.text}\n{notice.url}".encode()


RENDERED: Mapping[str, Render] = {"webhook": as_json, "topic": as_text}


class NotifyPart:
    """The notices as a part that follows the configuration."""

    def __init__(self, notices: Notices, devices: Devices) -> None:
        self._notices = notices
        self._devices = devices

    async def apply(self, config: Config) -> None:
        """Take up the addresses; an attempt under way ends at the address that it has."""
        configure(self._notices, config)
        self._devices.configure(config.notify.after_s)


def configure(notices: Notices, config: Config) -> None:
    """Take up the addresses.  Raises InvalidParams for one that is none."""
    given = {
        each: getattr(config.notify, each.name.partition(".")[2]) for each in notices.addressees
    }
    for addressee, address in given.items():
        check_setting(address, addressee.name)
    for addressee, address in given.items():
        addressee.configure(address, config.notify.after_s)


def build_notices(
    config: Config,
    host: Host,
    approvals: OpenApprovals,
    find_secret: FindSecret,
    find_console: Callable[[], str],
) -> Notices:
    """Build the notices.  Raises InvalidParams for an address that is none."""
    addressees = []
    for key, render in RENDERED.items():
        name = f"notify.{key}"
        sender = NoticeSender(name, render, find_secret, config.outbound, host.run_blocking)
        waiting = approvals.list_waiting
        addressees.append(Addressee(name, sender.send, waiting, find_console, host.random))
    notices = Notices(addressees)
    configure(notices, config)
    approvals.on_waiting = notices.wake
    return notices


def build_devices(
    config: Config,
    host: Host,
    approvals: OpenApprovals,
    list_tokens: ListTokens,
    find_logins: Callable[[], Logins],
) -> Devices:
    """Build the devices; `find_logins` returns their records' keeper, which is built later."""
    wake_others = approvals.on_waiting
    ringer = Ringer(
        tuple(config.notify.push_services),
        config.paths.data_dir / "keys",
        lambda: find_logins().address(),
        config.outbound,
        host,
    )
    devices = Devices(
        ring=ringer.ring,
        approvals=approvals,
        list_tokens=list_tokens,
        change=lambda *change: find_logins().set_push(*change),
        find_key=ringer.find_key,
        check=ringer.check,
        now_ms=host.now_ms,
        rng=host.random,
    )
    devices.configure(config.notify.after_s)

    def wake() -> None:
        wake_others()
        devices.wake()

    approvals.on_waiting = wake
    return devices


@dataclass(frozen=True, slots=True)
class NoticeSender:
    """Sends notices to the address of one setting."""

    setting: str
    render: Render
    find_secret: FindSecret
    outbound: Outbound
    run_blocking: RunBlocking

    async def send(self, address: str, notice: QuestionNotice) -> None:
        """Send one request, through the proxy of its address; the body of the answer is not read.

        Redirects are not followed.  Raises Unavailable for what may succeed later, else Rejected; no
        message contains the address.  Cancellation: the receiver may have the notice.
        """
        if is_reference(address):
            address = await self.find_secret(address)
            check_address(address, self.setting)
        request = self.render(notice)
        check_taken(await send_post(address, request, self.outbound, self.run_blocking))


async def send_post(
    address: str,
    request: tuple[Mapping[str, str], bytes],
    outbound: Outbound,
    run_blocking: RunBlocking,
) -> int:
    """Send headers and content through the proxy of the address, and return the status.

    Raises Unavailable.  Cancellation: the receiver may have it.
    """
    post = await run_blocking(_open, outbound, find_proxy(outbound, address))
    with trio.move_on_after(ANSWER_S):
        return await post(address, *request)
    raise Unavailable(f"no answer within {ANSWER_S:g} s")


def check_taken(status: int) -> None:
    """Raise Unavailable for a status that may change later, else Rejected, unless it is 2xx."""
    if status // 100 == _TAKEN:
        return
    remedy = ": name the address that it redirects to" if status // 100 == _MOVED else ""
    kind = Unavailable if status in _AGAIN or status // 100 == _BROKEN else Rejected
    raise kind(f"the answer was HTTP {status}{remedy}")


@dataclass(slots=True)
class Ringer:
    """Rings devices by requests without content."""

    services: tuple[str, ...]
    folder: Path  # of the key
    find_console: Callable[[], str]
    outbound: Outbound
    host: Host
    _pair: KeyPair | None = None

    def check(self, endpoint: str) -> str:
        """Return the origin of an address.  Raises InvalidParams for one of no known service."""
        return check_endpoint(endpoint, self.services)

    async def find_key(self) -> str:
        """Return the public key.  Raises Unavailable."""
        return (await self._open_pair()).public_key

    async def _open_pair(self) -> KeyPair:
        if self._pair is None:
            opened = await self.host.run_blocking(_open_key, self.folder)
            self._pair = self._pair or opened  # another one may have been first
        return self._pair

    async def ring(self, endpoint: str) -> None:
        """Ring one device.

        Raises NotFound for an address that is gone, Unavailable for what may succeed later, else
        Rejected; no message contains the address.  Cancellation: it may have rung.
        """
        origin, pair = self.check(endpoint), await self._open_pair()
        claims = make_claims(origin, self.find_console(), self.host.now_ms() // 1000)
        token = await self.host.run_blocking(pair.sign, claims)
        request = make_headers(token, pair.public_key), b""
        status = await send_post(endpoint, request, self.outbound, self.host.run_blocking)
        if status in _GONE:
            raise NotFound(f"the answer was HTTP {status}")
        check_taken(status)


def _open_key(folder: Path) -> KeyPair:
    """Import the signing code, which a daemon without devices does not need, and open the key."""
    from palyra.store.files.push_key import PushKeyPair  # noqa: PLC0415 - imports cryptography

    return PushKeyPair(folder)


def _open(outbound: Outbound, proxy: str) -> Post:
    """Import the HTTP client, which a daemon without addresses does not need, and open one."""
    from palyra.models.notice_post import NoticePost  # noqa: PLC0415 - imports httpx

    return NoticePost(outbound, proxy).send


def check_setting(text: str, field: str) -> None:
    """Raise InvalidParams for a setting that is neither an address nor a reference to one."""
    if is_reference(text):
        parse_reference(text)
    elif text:
        check_address(text, field)


def check_address(url: str, field: str) -> None:
    """Raise InvalidParams, without the address: it may be a secret itself."""
    try:
        parts = urlsplit(url)
        _ = parts.port
        is_address = parts.scheme in {"http", "https"} and bool(parts.hostname) and url.isascii()
    except ValueError:
        is_address = False
    if not is_address or not url.isprintable() or " " in url:
        why = "needs an address of http or https, or a reference to one, such as vault:NAME"
        raise InvalidParams(f"{field} {why}", field=field)
    if parts.username is not None or parts.password is not None:
        why = (
            "holds a credential: `palyra secrets set NAME` and name the whole address as vault:NAME"
        )
        raise InvalidParams(f"{field} {why}", field=field)
