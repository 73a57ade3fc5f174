"""A conversation as a request tells it, brought into the form of a run.

The last message of the user is the run's text.  What stands before it is the conversation the run
goes on from; its pictures are shown with the text.  System and developer messages become the
caller's instructions, in order.  Results of the client's tools are a stranger's words: fenced, and
looked through for orders.
"""

from collections.abc import Mapping
from itertools import chain
from types import MappingProxyType
from typing import Any

import msgspec

from palyra.core.model.images import IMAGE, MAX_PICTURES
from palyra.core.model.messages import (
    AssistantMessage,
    Message,
    ProposedCall,
    ToolMessage,
    UserMessage,
)
from palyra.core.session.fork import InheritedConversation, given
from palyra.core.text.excerpt import truncate_safely
from palyra.core.trust.injection_scan import find_injections
from palyra.errors import InvalidParams, TooLarge
from palyra.net.http.compat.errors import Unsupported

Attachment = dict[str, Any]
# Of the messages before the last one, as JSON: a session encodes and redacts them in one step.
MAX_BEFORE_BYTES = 1_048_576


class ChatInput(msgspec.Struct, frozen=True, kw_only=True):
    """What a request says."""

    instructions: str = ""
    before: tuple[Message, ...] = ()
    results: tuple[ToolMessage, ...] = ()  # that the conversation ends with
    text: str = ""
    attachments: tuple[Attachment, ...] = ()  # of the last message
    shown_before: tuple[Attachment, ...] = ()  # with the messages before it
    is_continued: bool = False  # the session holds what came before

    @property
    def branch(self) -> InheritedConversation | None:
        """The conversation to go on from; None when there is none, or the session holds it."""
        if self.is_continued:
            return None
        messages = (*self.before, *self.results)
        return given(messages) if messages else None

    @property
    def pictures(self) -> tuple[Attachment, ...]:
        """What is shown with the text, the newest: nothing again that the session has kept."""
        before = () if self.is_continued else self.shown_before
        return (*before, *self.attachments)[-MAX_PICTURES:]


class Conversation:
    """Put together message by message."""

    def __init__(self, called: Mapping[str, str] = MappingProxyType({})) -> None:
        """`called`: the tools of calls that were made earlier, by the call's id."""
        self._instructions: list[str] = []
        self._messages: list[Message] = []
        self._shown: list[tuple[Attachment, ...]] = []  # with each message of the user
        self._tools = dict(called)

    def add_system(self, text: str) -> None:
        """Instructions of the caller, wherever they stand."""
        if text.strip():
            self._instructions.append(text)

    def add_user(self, text: str, attachments: tuple[Attachment, ...] = ()) -> None:
        """A person's words."""
        self._messages.append(UserMessage(text))
        self._shown.append(attachments)

    def add_assistant(self, text: str, calls: tuple[ProposedCall, ...] = ()) -> None:
        """The model's words, and what it called."""
        self._tools.update((call.call_id, call.tool) for call in calls)
        last = self._messages[-1] if self._messages else None
        if isinstance(last, AssistantMessage) and not last.calls:  # text and calls came apart
            self._messages[-1] = AssistantMessage(last.text + text, calls)
        elif isinstance(last, AssistantMessage) and not text:
            self._messages[-1] = AssistantMessage(last.text, (*last.calls, *calls))
        else:
            self._messages.append(AssistantMessage(text, calls))

    def add_result(
        self, call_id: str, output: str, field: str, *, tool: str = "", is_error: bool = False
    ) -> None:
        """What the client's tool returned.  Raises InvalidParams for a call that nobody made."""
        name = self._tools.get(call_id) or tool
        if not name:
            raise InvalidParams(
                f"{field}: no call before it has the id {truncate_safely(call_id, 64)!r}",
                field=field,
            )
        findings = tuple(map(str, find_injections(output)))
        status = "failed" if is_error else "succeeded"
        result = ToolMessage(call_id, name, status, output, "external_untrusted", findings)
        self._messages.append(result)

    def finish(self, field: str) -> ChatInput:
        """The whole.

        Raises InvalidParams unless a word of the user, or results, come last; TooLarge for more
        before them than a run takes.
        """
        messages, shown = list(self._messages), list(self._shown)
        text = ""
        attachments: tuple[Attachment, ...] = ()
        if messages and isinstance(word := messages[-1], UserMessage):
            text, attachments = word.text, shown.pop()
            messages.pop()
            if not (text.strip() or attachments):
                raise InvalidParams(f"{field}: the last message of the user is empty", field=field)
        results: list[ToolMessage] = []
        while messages and isinstance(last := messages[-1], ToolMessage):
            results.insert(0, last)
            messages.pop()
        if not (text or results or attachments):
            raise InvalidParams(
                f"{field}: a message of the user, or a tool's result, must come last", field=field
            )
        _check_size((*messages, *results), field)
        return ChatInput(
            instructions="\n\n".join(self._instructions),
            before=tuple(messages),
            results=tuple(results),
            text=text,
            attachments=attachments,
            shown_before=tuple(chain.from_iterable(shown)),
        )


def _check_size(messages: tuple[Message, ...], field: str) -> None:
    size = sum(len(msgspec.json.encode(message)) for message in messages)
    if size > MAX_BEFORE_BYTES:
        raise TooLarge(
            f"{field}: {size} bytes of conversation before the last message, the limit is "
            f"{MAX_BEFORE_BYTES}: leave out the oldest, or send what is new in a session",
            field=field,
        )


def picture_of_url(url: str, field: str) -> Attachment:
    """A picture from a `data:` URL.  Raises Unsupported for one that would have to be fetched."""
    head, comma, data = url.partition(",")
    scheme, colon, kind = head.partition(":")
    if scheme.lower() != "data" or not (comma and colon) or not kind.lower().endswith(";base64"):
        raise Unsupported(
            f"{field}: a picture comes as a data: URL in base64; nothing is fetched for a request",
            field=field,
        )
    return picture(kind[: -len(";base64")], data)


def picture(media_type: str, data: str) -> Attachment:
    """A picture as an attachment of a run; the daemon looks at its bytes itself."""
    return {"type": IMAGE, "media_type": media_type, "data": data}


def parse_arguments(text: str) -> Any:  # noqa: ANN401 - a JSON value
    """A call's arguments, which are JSON in a text; the text itself when they are none."""
    try:
        return msgspec.json.decode(text) if text.strip() else {}
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return text


def arguments_text(arguments: Any) -> str:  # noqa: ANN401 - a JSON value
    """A call's arguments as these APIs have them: JSON in a text."""
    return arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
