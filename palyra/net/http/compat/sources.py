"""Services of the compat APIs, made by the composition root; imports nothing heavy.

Requests that continue the same response start their runs one after the other.  A request continues
in the session only if the response is its last one, and that must stay true until its run has
started: two runs in one session would otherwise see each other's messages.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

import trio

from palyra.core.ports import EmbeddingService, LanguageModel
from palyra.net.api.method import Backend


class ResponseTurns:
    """One lock for each response that is being continued."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, trio.Lock] = WeakValueDictionary()

    def of(self, run_id: str) -> trio.Lock:
        """Return the lock to hold from reading the session to the start of the run."""
        return self._locks.setdefault(run_id, trio.Lock())


@dataclass(frozen=True, slots=True)
class CompatSources:
    """The daemon's services, and its models by name; a provider may have models not listed here."""

    backend: Backend
    models: Mapping[str, LanguageModel]
    embeddings: EmbeddingService | None = None
    embedding_aliases: tuple[str, ...] = ()  # other names of the embedding model
    turns: ResponseTurns = field(default_factory=ResponseTurns)

    @property
    def embedding_names(self) -> tuple[str, ...]:
        """Names of the embedding model, its own first; () without one."""
        return () if self.embeddings is None else (self.embeddings.name, *self.embedding_aliases)
