"""What the HTTP surface works with, made by the composition root; imports nothing heavy."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from palyra.core.ports import EmbeddingService, LanguageModel
from palyra.net.compat.turns import Turns
from palyra.net.services import Services


@dataclass(frozen=True, slots=True)
class CompatSources:
    """The daemon's services, and the models it has by name; of some only a few are listed."""

    services: Services
    models: Mapping[str, LanguageModel]
    embeddings: EmbeddingService | None = None
    turns: Turns = field(default_factory=Turns)
