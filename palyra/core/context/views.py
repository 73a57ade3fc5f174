"""The prompt of a turn and the references of a message, as clients see them."""

from collections.abc import Sequence
from typing import Any

import msgspec

from palyra.core.context.layers import LAYERS
from palyra.core.context.sources import render_gathered, render_message
from palyra.core.model.messages import UserMessage, message_tokens, source_tokens
from palyra.core.model.sources import ContextSource
from palyra.core.tape.events import ContextAssembled, ContextBudget, ContextGathered, TurnStarted
from palyra.core.text.tokens import estimate_tokens


class View(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of the views: members that have their default value are left out."""


class SegmentView(View, frozen=True, kw_only=True):
    """A segment of a prompt, kept or dropped."""

    layer: str
    tokens: int  # estimated
    kept: bool
    priority: int = 0  # 0: a layer that this version does not know
    protected: bool = False  # never dropped
    name: str = ""  # of the file, the reference or the memory
    why: str = ""  # it was dropped, or is absent
    note: str = ""
    trust: str = ""
    messages: int | None = None
    runs: int | None = None
    stubs: int | None = None  # tool outputs shown as stubs
    findings: tuple[str, ...] = ()  # of the injection scanner


class ContextExplained(View, frozen=True, kw_only=True):
    """The prompt of one turn, segment by segment."""

    run_id: str
    turn: int
    attempt: int
    model: str
    input_tokens: int  # of the whole prompt, corrected by `budget.factor_bps`
    segments: tuple[SegmentView, ...]
    budget: ContextBudget | None = None  # None: the model's window is not known
    memories: tuple[str, ...] = ()
    prefix_hash: str
    catalogue_hash: str


class ReferenceView(View, frozen=True, kw_only=True):
    """The text that a reference would add to a prompt."""

    reference: str
    kind: str
    tokens: int = 0
    chars: int = 0
    trust: str = ""
    note: str = ""
    error: str = ""  # why there is no text
    findings: tuple[str, ...] = ()


class ReferencePreview(View, frozen=True, kw_only=True):
    """The cost of a message with its references, before it is sent."""

    tokens: int  # of the message and everything gathered for it
    message_tokens: int
    references: tuple[ReferenceView, ...]
    project_files: tuple[ReferenceView, ...] = ()


_FIELDS = frozenset(SegmentView.__struct_fields__)


def explain_context(
    run_id: str, assembled: ContextAssembled, started: TurnStarted | None
) -> ContextExplained:
    """Return the explanation of a prompt from its events; None for a turn that was never asked."""
    return ContextExplained(
        run_id=run_id,
        turn=assembled.turn,
        attempt=0 if started is None else started.attempt,
        model="" if started is None else started.model,
        input_tokens=assembled.input_tokens,
        segments=tuple(_view_segment(segment) for segment in assembled.segments),
        budget=assembled.budget,
        memories=assembled.memories,
        prefix_hash=assembled.prefix_hash,
        catalogue_hash=assembled.catalogue_hash,
    )


def _view_segment(segment: dict[str, Any]) -> SegmentView:
    rank = LAYERS.get(segment["layer"])
    known = {name: value for name, value in segment.items() if name in _FIELDS}
    ranked = {} if rank is None else {"priority": rank.priority, "protected": rank.is_protected}
    return SegmentView(**{**known, "findings": tuple(segment.get("findings", ())), **ranked})


def preview_references(
    text: str, references: Sequence[ContextSource], files: Sequence[ContextSource]
) -> ReferencePreview:
    """Return the cost of a message; `text` is the message without its references."""
    own = estimate_tokens(text)
    message = render_message(UserMessage(text, (), tuple(references)), "", b"")
    gathered = ContextGathered(layer="project_files", sources=tuple(files))
    around = render_gathered(gathered, "", b"")
    tokens = message_tokens(message) if references else own
    return ReferencePreview(
        tokens=tokens + (0 if around is None else message_tokens(around)),
        message_tokens=own,
        references=tuple(map(_view_source, references)),
        project_files=tuple(map(_view_source, files)),
    )


def _view_source(source: ContextSource) -> ReferenceView:
    return ReferenceView(
        reference=source.name,
        kind=source.kind,
        tokens=source_tokens(source),
        chars=len(source.text),
        trust=source.trust if source.text else "",
        note=source.note,
        error=source.error,
        findings=source.findings,
    )
