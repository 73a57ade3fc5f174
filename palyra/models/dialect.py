"""What an adapter needs to know of a provider's protocol; one dialect a module.

Names of tools as providers allow them: letters, digits, `_` and `-`, at most 64.

The catalogue also has names like `mcp:files.read`; they are spelt differently on the wire and
translated back.  Deterministic, so that the prefix of a prompt stays what it was.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import msgspec

from palyra.core.model.messages import ModelRequest, UserMessage
from palyra.models.turn_builder import TurnBuilder

Body = dict[str, Any]
Names = Mapping[str, str]
NO_JSON = msgspec.Raw(b"null")  # a part of an event that is not there
JSON_ONLY = "Answer with one JSON object and nothing else."  # APIs want the word said


class Reader(Protocol):
    """One streamed answer, event by event."""

    def take(self, data: str) -> bool:
        """Take the data of one event; True when it was the last one.

        Raises ModelFailure for an error inside the stream, and for what cannot be read.
        """

    @property
    def is_whole(self) -> bool:
        """Whether the answer had its end, should the connection end now."""


def most_tokens(request: ModelRequest, configured: int) -> int:
    """How long the answer may be: the smaller of both bounds; 0: as long as the model likes."""
    wanted = request.sampling.max_output_tokens or 0
    return min(wanted, configured) if wanted and configured else wanted or configured


def sampled(request: ModelRequest) -> Body:
    """How the answer is to be picked, as all dialects call it."""
    sampling = request.sampling
    wanted = {"temperature": sampling.temperature, "top_p": sampling.top_p}
    return {name: value for name, value in wanted.items() if value is not None}


class Shown(NamedTuple):
    """A picture as it is sent."""

    media_type: str
    data: str  # base64

    @property
    def url(self) -> str:
        """All of it."""
        return f"data:{self.media_type};base64,{self.data}"


def show(message: UserMessage, pictures: Mapping[str, str]) -> tuple[list[Shown], str]:
    """The message's pictures that there are, and its text, which tells of those that are gone."""
    shown = [
        Shown(picture.media_type, pictures[picture.artifact])
        for picture in message.pictures
        if picture.artifact in pictures
    ]
    gone = len(message.pictures) - len(shown)
    if not gone:
        return shown, message.text
    return shown, f"{message.text}\n\n[{gone} of its pictures are not shown any more]".lstrip()


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a provider is asked and how it answers."""

    path: str  # below the base URL
    headers: Callable[[str], dict[str, str]]  # authentication and version, of a key or ""
    body: Callable[[ModelRequest, str, Names, int], Body]  # model, spellings, most tokens (0: any)
    reader: Callable[[TurnBuilder], Reader]
    default_tokens: int = 0  # of an answer nobody limits; 0: as many as the model likes

    def most_tokens(self, request: ModelRequest, configured: int) -> int:
        """What the body says of the answer's length; 0: nothing."""
        return most_tokens(request, configured) or self.default_tokens


MAX_CHARS = 64
_FOREIGN = re.compile(r"[^a-zA-Z0-9_-]")


def wire_names(names: Iterable[str]) -> dict[str, str]:
    """The provider's spelling by the catalogue's; all different."""
    spelt: dict[str, str] = {}
    taken: set[str] = set()
    for name in sorted(names, key=lambda name: (not _is_plain(name), name)):
        wire = _FOREIGN.sub("_", name) if len(name) <= MAX_CHARS else _marked(name, 0)
        tries = 0
        while wire in taken:  # only what a foreign name is spelt like
            tries += 1
            wire = _marked(name, tries)
        spelt[name] = wire
        taken.add(wire)
    return spelt


def _is_plain(name: str) -> bool:
    """Whether a provider takes it as it is: those come first, and keep their names."""
    return len(name) <= MAX_CHARS and not _FOREIGN.search(name)


def _marked(name: str, tries: int) -> str:
    mark = hashlib.sha256(f"{name}{' ' * tries}".encode()).hexdigest()[:8]
    return f"{_FOREIGN.sub('_', name)[: MAX_CHARS - 9]}_{mark}"
