"""Dialect: the interface between the HTTP adapter and a provider's protocol, one module each.

A dialect builds the request body and reads the streamed answer.  It also translates tool names:
providers allow letters, digits, `_` and `-`, at most 64 characters, while the catalogue has names
like `mcp:files.read`.  The translation is deterministic, so the prompt prefix stays stable and the
provider's cache hits.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote

import msgspec

from palyra.core.model.messages import ModelRequest, ToolMessage, UserMessage
from palyra.models.sse import SseParser
from palyra.models.turn_builder import TurnBuilder

Body = dict[str, Any]
Names = Mapping[str, str]
NO_JSON = msgspec.Raw(b"null")  # an absent field of an event
JSON_ONLY = "Answer with one JSON object and nothing else."  # APIs want the word "JSON"


class Reader(Protocol):
    """Reader of one streamed answer, fed event by event."""

    def take(self, data: str) -> bool:
        """Apply the data of one event; return True after the last one.

        Raises ModelFailure for an error reported inside the stream and for unreadable data.
        """

    @property
    def is_whole(self) -> bool:
        """True if the answer is complete although the connection ended without a last event."""


def most_tokens(request: ModelRequest, configured: int) -> int:
    """Return the smaller of both output limits, in tokens; 0 for no limit."""
    wanted = request.sampling.max_output_tokens or 0
    return min(wanted, configured) if wanted and configured else wanted or configured


def sampled(request: ModelRequest) -> Body:
    """Return the sampling parameters that have the same names in all dialects."""
    sampling = request.sampling
    wanted = {"temperature": sampling.temperature, "top_p": sampling.top_p}
    return {name: value for name, value in wanted.items() if value is not None}


class Shown(NamedTuple):
    """An image in the form in which it is sent."""

    media_type: str
    data: str  # base64

    @property
    def url(self) -> str:
        """The image as a `data:` URL."""
        return f"data:{self.media_type};base64,{self.data}"


def show(
    message: UserMessage | ToolMessage, pictures: Mapping[str, str]
) -> tuple[list[Shown], str]:
    """Return the message's available images, and its text with a note for each missing one."""
    text = message.text if isinstance(message, UserMessage) else message.output
    shown = [
        Shown(picture.media_type, pictures[picture.artifact])
        for picture in message.pictures
        if picture.artifact in pictures
    ]
    gone = len(message.pictures) - len(shown)
    if not gone:
        return shown, text
    return shown, f"{text}\n\n[{gone} of its pictures are not shown any more]".lstrip()


def say_returned(message: ToolMessage) -> str:
    """Return the text in front of a tool's pictures where its result cannot hold them."""
    return f"[the daemon, not the user:] pictures that {message.tool} returned ({message.trust}):"


class StreamParser(Protocol):
    """Parser of the bytes of a streamed answer into the data of its events."""

    def feed(self, chunk: bytes) -> list[str]:
        """Return the data of the events that the chunk completes.  Raises ModelFailure."""

    def finish(self) -> str | None:
        """Return the data of a last event without its end, or None."""


# Takes the key, the address, the headers so far, the body and the time; returns more headers.
Sign = Callable[[str, str, Mapping[str, str], bytes, int], dict[str, str]]


@dataclass(frozen=True, slots=True)
class Dialect:
    """Description of a provider protocol: request building and answer reading."""

    path: str  # relative to the base URL; {model}: the name of the model
    headers: Callable[[str], dict[str, str]]  # authentication and version, from a key or ""
    body: Callable[[ModelRequest, str, Names, int], Body]  # model, names, max tokens (0: no limit)
    reader: Callable[[TurnBuilder], Reader]
    default_tokens: int = 0  # output limit if none is set; 0: the model's own
    media_type: str = "text/event-stream"
    parser: Callable[[], StreamParser] = SseParser
    embeddings: str = ""  # path of the embeddings, like `path`; "": the protocol has none
    rerank: str = ""  # likewise, of the re-ranking
    sign: Sign | None = None

    def most_tokens(self, request: ModelRequest, configured: int) -> int:
        """Return the output limit that the body sends, in tokens; 0 for none."""
        return most_tokens(request, configured) or self.default_tokens


def path_of(path: str, model: str) -> str:
    """Return the path with the model's name, of which no character can end its segment."""
    return path.format(model=quote(model, safe=""))


MAX_CHARS = 64
_FOREIGN = re.compile(r"[^a-zA-Z0-9_-]")


def wire_names(names: Iterable[str]) -> dict[str, str]:
    """Map each catalogue name to the provider's spelling; all spellings are distinct."""
    spelt: dict[str, str] = {}
    taken: set[str] = set()
    for name in sorted(names, key=lambda name: (not _is_plain(name), name)):
        wire = _FOREIGN.sub("_", name) if len(name) <= MAX_CHARS else _marked(name, 0)
        tries = 0
        while wire in taken:  # only translated names can collide
            tries += 1
            wire = _marked(name, tries)
        spelt[name] = wire
        taken.add(wire)
    return spelt


def _is_plain(name: str) -> bool:
    """True if a provider accepts the name unchanged.  Such names are assigned first."""
    return len(name) <= MAX_CHARS and not _FOREIGN.search(name)


def _marked(name: str, tries: int) -> str:
    mark = hashlib.sha256(f"{name}{' ' * tries}".encode()).hexdigest()[:8]
    return f"{_FOREIGN.sub('_', name)[: MAX_CHARS - 9]}_{mark}"
