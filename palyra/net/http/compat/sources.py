"""What the HTTP surface works with, made by the composition root; imports nothing heavy.

Who goes on from a response first: requests that follow the same one take turns to begin.

Whether a response is still the last one of its session must hold until the run that follows it
has begun; else two of them would share a session, and one would see what the other was told.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

import trio

from palyra.core.ports import EmbeddingService, LanguageModel
from palyra.net.api.backend import Backend


class ResponseTurns:
    """One lock for each run that is followed just now."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, trio.Lock] = WeakValueDictionary()

    def of(self, run_id: str) -> trio.Lock:
        """To be held from the look at the session to the start of the run."""
        return self._locks.setdefault(run_id, trio.Lock())


@dataclass(frozen=True, slots=True)
class CompatSources:
    """The daemon's services, and the models it has by name; of some only a few are listed."""

    backend: Backend
    models: Mapping[str, LanguageModel]
    embeddings: EmbeddingService | None = None
    turns: ResponseTurns = field(default_factory=ResponseTurns)
