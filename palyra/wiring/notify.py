"""Wiring of notices: their two addresses, and the request that each gets."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

import msgspec
import trio

from palyra.actors.notices import Addressee, Notices
from palyra.actors.run.approval import OpenApprovals
from palyra.config.load import Config
from palyra.core.notice import QuestionNotice
from palyra.core.outbound import Outbound, find_proxy
from palyra.core.ports import RunBlocking
from palyra.core.redaction.secret_references import is_reference, parse_reference
from palyra.errors import InvalidParams, Rejected, Unavailable
from palyra.wiring.host import Host

ANSWER_S = 10.0
_AGAIN = frozenset({408, 425, 429})  # besides 5xx: may succeed later
_TAKEN, _MOVED, _BROKEN = 2, 3, 5  # classes of statuses

Render = Callable[[QuestionNotice], tuple[Mapping[str, str], bytes]]
# Sends headers and content to an address; returns the status of the answer.
Post = Callable[[str, Mapping[str, str], bytes], Awaitable[int]]
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

    def __init__(self, notices: Notices) -> None:
        self._notices = notices

    async def apply(self, config: Config) -> None:
        """Take up the addresses; an attempt under way ends at the address that it has."""
        configure(self._notices, config)


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
        proxy = find_proxy(self.outbound, address)
        post = await self.run_blocking(_open, self.outbound, proxy)
        status = 0
        with trio.move_on_after(ANSWER_S):
            status = await post(address, *self.render(notice))
        if not status:
            raise Unavailable(f"no answer within {ANSWER_S:g} s")
        if status // 100 == _TAKEN:
            return
        remedy = ": name the address that it redirects to" if status // 100 == _MOVED else ""
        kind = Unavailable if status in _AGAIN or status // 100 == _BROKEN else Rejected
        raise kind(f"the answer was HTTP {status}{remedy}")


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
