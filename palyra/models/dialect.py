"""What an adapter needs to know of a provider's protocol; one dialect a module."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from palyra.core.prompt import ModelRequest
from palyra.models.turn_builder import TurnBuilder

Body = dict[str, Any]
Names = Mapping[str, str]
NO_JSON = msgspec.Raw(b"null")  # a part of an event that is not there


class Reader(Protocol):
    """One streamed answer, event by event."""

    def take(self, data: str) -> bool:
        """Take the data of one event; True when it was the last one.

        Raises ModelFailure for an error inside the stream, and for what cannot be read.
        """

    @property
    def is_whole(self) -> bool:
        """Whether the answer had its end, should the connection end now."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a provider is asked and how it answers."""

    path: str  # below the base URL
    headers: Callable[[str], dict[str, str]]  # authentication and version, of a key or ""
    body: Callable[[ModelRequest, str, Names, int], Body]  # model, spellings, most tokens (0: any)
    reader: Callable[[TurnBuilder], Reader]
