"""Context sources: texts gathered for a prompt in addition to the conversation.

A source is a file of the project, a resolved reference of a message, a recalled memory or a summary.
It is gathered outside of the decision (`actors.run.gather`) and recorded on the tape as
`context.gathered`, so a resumed run and a replay use the same text.
"""

from typing import Literal, NamedTuple

import msgspec

from palyra.core.audience import Audience
from palyra.core.trust.labels import Trust

# What a gathered text is to the prompt; `core.context.layers` ranks them.
SourceLayer = Literal["preferences", "project_files", "summary", "recalled", "references"]


class ContextSource(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """One gathered text, or the reason why there is none."""

    name: str  # the reference, the path of the file or the id of the memory
    kind: str = ""  # of the reference or of the memory
    text: str = ""
    error: str = ""  # why there is no text
    note: str = ""  # about the text: how much of it was cut, and where
    trust: Trust = "workspace"
    findings: tuple[str, ...] = ()  # of the injection scanner


class RecallScope(msgspec.Struct, frozen=True, kw_only=True):
    """Whose memories are searched, and for which prompt."""

    audience: Audience
    run_id: str = ""  # "": a preview
    limit: int | None = None  # items; None: as many as the memory packs
    is_explicit: bool = False  # the user asked for it with `@memory:`


class MemorySources(NamedTuple):
    """Memories of one layer of a prompt."""

    sources: tuple[ContextSource, ...] = ()
    left_out: int = 0  # items over the budget of the layer
