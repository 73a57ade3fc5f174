"""The conversation of a request, converted to the input of a run.

The last message of the user is the run's text.  The messages before it are the conversation that the
run inherits; their pictures are sent with the text.  System and developer messages become the
caller's instructions, in order.  Results of the client's tools are untrusted external content: they
are fenced, and searched for prompt injections.

A client sends its history again with each request, so an item of it that runs do not support must
not end the conversation: the item is left out, or a line in brackets takes its place, and the answer
names it (`palyra.ignored`).
"""

from base64 import b64decode
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import chain
from types import MappingProxyType
from typing import Any

import msgspec

from palyra.core.model.images import IMAGE, MAX_PICTURE_BYTES, MAX_PICTURES, check_picture
from palyra.core.model.messages import (
    AssistantMessage,
    Message,
    ProposedCall,
    ToolMessage,
    UserMessage,
)
from palyra.core.model.picture_files import BrokenPicture
from palyra.core.session.commands import InheritedConversation
from palyra.core.session.fork import InheritedView, given
from palyra.core.text.excerpt import truncate_safely
from palyra.core.text.visible import pluralize
from palyra.core.trust.injection_scan import find_injections
from palyra.errors import InvalidParams, TooLarge
from palyra.net.http.compat.params import MAX_PLACES

Attachment = dict[str, Any]
SHOWN_URL_CHARS = 256
TEXT_TYPES = frozenset({"application/json", "application/xml", "application/yaml"})  # besides text/
# Of the messages before the last one, as JSON: a session encodes and redacts them in one step.
MAX_BEFORE_BYTES = 8_388_608


class ChatInput(msgspec.Struct, frozen=True, kw_only=True):
    """The input of a run, made from the messages of a request."""

    instructions: str = ""
    before: tuple[Message, ...] = ()
    results: tuple[ToolMessage, ...] = ()  # at the end of the conversation
    text: str = ""
    attachments: tuple[Attachment, ...] = ()  # of the last message
    shown_before: tuple[Attachment, ...] = ()  # with the messages before it
    is_continued: bool = False  # the session holds the messages before
    held: InheritedView | None = None  # a stored conversation that `before` begins with
    ignored: tuple[str, ...] = ()  # places of the request that were left out

    def with_ignored(self, places: tuple[str, ...]) -> "ChatInput":
        """Return the input with more places that were left out."""
        every = tuple(dict.fromkeys((*places, *self.ignored)))[:MAX_PLACES]
        return msgspec.structs.replace(self, ignored=every)

    @property
    def branch(self) -> InheritedConversation | None:
        """The conversation to inherit; None if there is none, or the session holds it."""
        if self.is_continued:
            return None
        messages = (*self.before, *self.results)
        return given(messages, self.held) if messages else None

    @property
    def pictures(self) -> tuple[Attachment, ...]:
        """The newest pictures, to be sent with the text, without those that the session holds."""
        before = () if self.is_continued else self.shown_before
        return (*before, *self.attachments)[-MAX_PICTURES:]


class Conversation:
    """Builder of a `ChatInput`, message by message."""

    def __init__(self, called: Mapping[str, str] = MappingProxyType({})) -> None:
        """Start with the tools of earlier calls, by call id."""
        self._instructions: list[str] = []
        self._messages: list[Message] = []
        self._shown: list[tuple[Attachment, ...]] = []  # with each message
        self._tools = dict(called)
        self._ignored: dict[str, None] = {}

    def content(self) -> "Content":
        """Return the builder of a message's content."""
        return Content(self.ignore)

    def ignore(self, place: str) -> None:
        """Name a place of the request that is left out; at most MAX_PLACES are named."""
        if len(self._ignored) < MAX_PLACES:
            self._ignored[place] = None

    def add_system(self, text: str) -> None:
        """Add instructions of the caller, at any place of the conversation."""
        if text.strip():
            self._instructions.append(text)

    def add_user(self, text: str, attachments: tuple[Attachment, ...] = ()) -> None:
        """Add a message of the user."""
        self._add(UserMessage(text), attachments)

    def add_assistant(self, text: str, calls: tuple[ProposedCall, ...] = ()) -> None:
        """Add text and calls of the model."""
        self._tools.update((call.call_id, call.tool) for call in calls)
        last = self._messages[-1] if self._messages else None
        if isinstance(last, AssistantMessage) and not last.calls:  # text and calls in two messages
            self._messages[-1] = AssistantMessage(last.text + text, calls)
        elif isinstance(last, AssistantMessage) and not text:
            self._messages[-1] = AssistantMessage(last.text, (*last.calls, *calls))
        else:
            self._add(AssistantMessage(text, calls))

    def add_result(
        self,
        call_id: str,
        output: str,
        field: str,
        *,
        attachments: tuple[Attachment, ...] = (),
        is_error: bool = False,
    ) -> None:
        """Add the result of a client's tool.  Raises InvalidParams for an unknown call."""
        name = self._tools.get(call_id)
        if not name:
            raise InvalidParams(
                f"{field}: no earlier call has the id {truncate_safely(call_id, 64)!r}",
                field=field,
            )
        _check_size(len(output), field)  # before it is scanned
        if attachments:
            attachments = tuple({**each, "call_id": call_id} for each in attachments)
            shown = f"[{pluralize(len(attachments), 'picture')}]"
            output = f"{output}\n{shown}".strip()
        findings = tuple(map(str, find_injections(output)))
        status = "failed" if is_error else "succeeded"
        self._add(
            ToolMessage(call_id, name, status, output, "external_untrusted", findings), attachments
        )

    def _add(self, message: Message, attachments: tuple[Attachment, ...] = ()) -> None:
        self._messages.append(message)
        self._shown.append(attachments)

    def finish(self, field: str) -> ChatInput:
        """Return the input.

        Raises InvalidParams unless a message of the user, or results, come last; TooLarge if the
        messages before them are too large for a run.
        """
        messages, shown = list(self._messages), list(self._shown)
        text = ""
        attachments: tuple[Attachment, ...] = ()
        if messages and isinstance(question := messages[-1], UserMessage):
            text, attachments = question.text, shown.pop()
            messages.pop()
            if not (text.strip() or attachments):
                raise InvalidParams(f"{field}: the last user message is empty", field=field)
        results: list[ToolMessage] = []
        while messages and isinstance(last := messages[-1], ToolMessage):
            results.insert(0, last)
            messages.pop()
            attachments = (*shown.pop(), *attachments)
        if not (text or results or attachments):
            raise InvalidParams(
                f"{field}: the last message must be a user message or a tool result", field=field
            )
        _check_size(sum(len(msgspec.json.encode(each)) for each in (*messages, *results)), field)
        return ChatInput(
            instructions="\n\n".join(self._instructions),
            before=tuple(messages),
            results=tuple(results),
            text=text,
            attachments=attachments,
            shown_before=tuple(chain.from_iterable(shown)),
            ignored=tuple(self._ignored),
        )


class Content:
    """Text and pictures of one message or result, part by part."""

    def __init__(self, ignore: Callable[[str], None]) -> None:
        """`ignore` takes the places that are left out."""
        self._texts: list[str] = []
        self._pictures: list[Attachment] = []
        self._ignore = ignore

    @property
    def text(self) -> str:
        """The text, a part a line."""
        return "\n".join(filter(None, self._texts))

    @property
    def pictures(self) -> tuple[Attachment, ...]:
        """The pictures, in order."""
        return tuple(self._pictures)

    def say(self, text: str | None) -> None:
        """Add a part that is text."""
        self._texts.append(text or "")

    def show(self, data: str, place: str) -> None:
        """Add a picture, given as base64; of a damaged or too large one only a line.  Blocks."""
        if len(data) > MAX_PICTURE_BYTES * 4 // 3:
            self.leave_out(place, f"a picture of more than {MAX_PICTURE_BYTES} bytes")
            return
        try:
            found = check_picture(b64decode(data, validate=True))
        except BrokenPicture as broken:
            self.leave_out(place, f"a picture that cannot be shown ({broken.message})")
        except ValueError:
            self.leave_out(place, "a picture that is no base64")
        else:
            self._pictures.append({"type": IMAGE, "media_type": found.media_type, "data": data})

    def show_url(self, url: str, place: str) -> None:
        """Add the picture of a `data:` URL; of another URL only a line, as nothing is fetched."""
        if (known := _of_data_url(url)) is None:
            self.leave_out(place, f"a picture at {truncate_safely(url, SHOWN_URL_CHARS)}")
        else:
            self.show(known[1], place)

    def read_file(self, media_type: str, data: str, name: str, place: str) -> None:
        """Add the text of a document, given as base64; of one that is no text only a line."""
        kind = media_type.partition(";")[0].strip().lower()
        if kind.startswith("text/") or kind in TEXT_TYPES:
            with suppress(ValueError):
                self.say(f"{name}\n{b64decode(data, validate=True).decode()}".strip())
                return
        size = f"{len(data) * 3 // 4} bytes" if data else "without its bytes"
        self.leave_out(place, f"a document {name}, {kind or 'of no type'}, {size}")

    def read_file_url(self, url: str, name: str, place: str) -> None:
        """Add the document of a `data:` URL."""
        self.read_file(*(_of_data_url(url) or ("", "")), name, place)

    def leave_out(self, place: str, what: str) -> None:
        """Add a line in place of a part, and name its place."""
        self._ignore(place)
        self._texts.append(f"[{what}, left out here]")


def _of_data_url(url: str) -> tuple[str, str] | None:
    """Return the media type and the base64 of a `data:` URL (RFC 2397), None for another one."""
    head, comma, data = url.partition(",")
    scheme, colon, kind = head.partition(":")
    if scheme.lower() != "data" or not (comma and colon) or not kind.lower().endswith(";base64"):
        return None
    return kind[: -len(";base64")], data


def _check_size(size: int, field: str) -> None:
    if size > MAX_BEFORE_BYTES:
        raise TooLarge(
            f"{field}: {size} bytes of conversation before the last message; the limit is "
            f"{MAX_BEFORE_BYTES}: leave out the oldest messages, or send only new messages in a session",
            field=field,
        )


def parse_arguments(text: str) -> Any:  # noqa: ANN401 - a JSON value
    """Return a call's arguments, decoded from a JSON string; the string itself if it is not JSON."""
    try:
        return msgspec.json.decode(text) if text.strip() else {}
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return text
