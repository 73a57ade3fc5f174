"""The tools of the memory: search it, store in it, delete from it, search earlier conversations.

A call reaches what its run may recall: the items of its principal, its channel and its session, or
of its session alone, as its agent is set.  What a search returns has the lowest label of its items.
What a run stores has the lowest label of all that its model has read; after external text the gate
asks a person first (`core.policy.gate`), and text that came from the memory is not stored again.
"""

from datetime import UTC, datetime
from typing import get_args

from palyra.core.journal.changes import MemoryFilter, MemoryPlace, SaidText
from palyra.core.journal.records import ItemScope, Lineage, MemoryKind
from palyra.core.memory.items import MemoryDraft, MemoryHit, RecallUse
from palyra.core.ports import MemoryFinder, MemoryKeeper
from palyra.core.text.visible import pluralize
from palyra.core.tool.spec import (
    MEMORY_READ,
    MEMORY_WRITE,
    ToolCall,
    ToolFailure,
    ToolOutput,
    ToolSpec,
)
from palyra.core.trust.labels import lowest
from palyra.errors import PalyraError
from palyra.tools.toolbox import AsyncTool, OnOutput, Tool

MAX_HITS, DEFAULT_HITS = 20, 8
RETAINED_BPS = 8_000  # confidence in a statement that a model makes
QUERY_CHARS = 1_000
_QUERY = {"type": "string", "minLength": 1, "maxLength": QUERY_CHARS}
_LIMIT = {"type": "integer", "minimum": 1, "maximum": MAX_HITS,
          "description": f"How many; {DEFAULT_HITS} if left out."}  # fmt: skip

SEARCH = ToolSpec(
    name="memory_search",
    version="1",
    description="Search the memory: facts, preferences, decisions and notes of earlier work.",
    parameters={
        "type": "object",
        "properties": {
            "query": {**_QUERY, "description": "A question or some words."},
            "limit": _LIMIT,
            "kinds": {
                "type": "array",
                "items": {"type": "string", "enum": list(get_args(MemoryKind))},
                "maxItems": 6,
                "description": "Only these kinds.",
            },
        },
        "required": ["query"],
    },
    tool_class="read_only_safe",
    risk="low",
    capabilities=(MEMORY_READ,),
    deadline_s=10.0,
    excerpt_bytes=16_384,
    executor="async",
    enforcement="principal",
)
RETAIN = ToolSpec(
    name="memory_retain",
    version="1",
    description=(
        "Store one statement in the memory, so that later conversations can recall it. Make it "
        "whole by itself: names instead of pronouns, dates instead of today. Not for secrets."
    ),
    parameters={
        "type": "object",
        "properties": {
            "text": {"type": "string", "minLength": 1, "maxLength": 4_096,
                     "description": "The statement."},
            "kind": {"type": "string", "enum": ["fact", "preference", "procedure", "decision", "note"],
                     "description": "note if left out."},
            "tags": {"type": "array", "items": {"type": "string", "maxLength": 64}, "maxItems": 8},
            "scope": {"type": "string", "enum": list(get_args(ItemScope)),
                      "description": "Where it is recalled: principal, everywhere, if left out."},
            "transient": {"type": "boolean",
                          "description": "True for the state of a running system: kept for a day."},
            "supersedes": {"type": "string", "maxLength": 64,
                           "description": "Id of the item that this statement corrects."},
        },
        "required": ["text"],
    },
    tool_class="effect",
    risk="low",
    capabilities=(MEMORY_WRITE,),
    deadline_s=20.0,
    is_idempotent=True,
    never_coerced=("text", "supersedes"),
    executor="async",
    enforcement="principal",
)  # fmt: skip
FORGET = ToolSpec(
    name="memory_forget",
    version="1",
    description="Delete items of the memory for good, by the ids that memory_search gives.",
    parameters={
        "type": "object",
        "properties": {
            "memory_ids": {
                "type": "array",
                "items": {"type": "string", "minLength": 1, "maxLength": 64},
                "minItems": 1,
                "maxItems": 20,
            },
        },
        "required": ["memory_ids"],
    },
    tool_class="effect",
    risk="medium",
    capabilities=(MEMORY_WRITE,),
    deadline_s=20.0,
    never_coerced=("memory_ids",),
    executor="async",
    enforcement="principal",
)
SESSIONS = ToolSpec(
    name="session_search",
    version="1",
    description=(
        "Search earlier conversations, and the part of this one that a summary replaces: messages, "
        "answers, outputs of tools."
    ),
    parameters={
        "type": "object",
        "properties": {
            "query": {**_QUERY, "description": "Some words of the text."},
            "limit": _LIMIT,
        },
        "required": ["query"],
    },
    tool_class="read_only_safe",
    risk="low",
    capabilities=(MEMORY_READ,),
    deadline_s=10.0,
    excerpt_bytes=16_384,
    executor="async",
    enforcement="principal",
)


def memory_tools(finder: MemoryFinder, keeper: MemoryKeeper) -> list[Tool]:
    """Return the four tools over one memory."""
    calls = _Calls(finder, keeper)
    return [
        AsyncTool(SEARCH, calls.search),
        AsyncTool(RETAIN, calls.retain),
        AsyncTool(FORGET, calls.forget),
        AsyncTool(SESSIONS, calls.search_sessions),
    ]


class _Calls:
    """The functions of the tools.  Raises ToolFailure for what the memory refuses."""

    def __init__(self, finder: MemoryFinder, keeper: MemoryKeeper) -> None:
        self._finder = finder
        self._keeper = keeper

    async def search(self, call: ToolCall, _on_output: OnOutput) -> ToolOutput:
        """Return the hits as lines, and record them as given to the run.  Cancellation: nothing."""
        place, query = _place(call), call.arguments["query"]
        wanted = MemoryFilter(
            principal=call.principal,
            now_ms=0,
            kinds=tuple(call.arguments.get("kinds", ())),
            limit=call.arguments.get("limit", DEFAULT_HITS),
        )
        try:
            found = await self._finder.search_in(place, query, wanted)
        except PalyraError as error:
            raise ToolFailure(error.message) from error
        use = RecallUse(
            run_id=call.run_id,
            session_id=call.session_id,
            principal=call.principal,
            way="tool",
            question=query,
        )
        self._finder.note_use(use, found.hits)
        lines = [_render(hit) for hit in found.hits] or ["nothing found"]
        if found.degraded:
            lines.append(f"[degraded: {found.degraded}]")
        return ToolOutput(text="\n".join(lines), trust=lowest(hit.item.trust for hit in found.hits))

    async def retain(self, call: ToolCall, _on_output: OnOutput) -> ToolOutput:
        """Store a statement.  Cancellation: it may have been stored; a repetition updates it."""
        place, given = _place(call), call.arguments
        scope: ItemScope = given.get("scope", "session" if place.only_session else "principal")
        draft = MemoryDraft(
            text=given["text"],
            kind=given.get("kind", "note"),
            tags=tuple(given.get("tags", ())),
            scope=scope,
            channel=place.channel,
            session_id=call.session_id,
            confidence_bps=RETAINED_BPS,
            is_transient=given.get("transient", False),
            supersedes=given.get("supersedes"),
            lineage=(Lineage(run_id=call.run_id),),
            source="tool",
            trust=call.trust,
        )
        if place.only_session and scope != "session":
            raise ToolFailure("the memory of this run is limited to its session: use scope session")
        try:
            done = await self._keeper.retain(draft, place)
        except PalyraError as error:
            raise ToolFailure(error.message) from error
        corrected = f", in place of {done.superseded}" if done.superseded else ""
        return ToolOutput(
            text=f"{done.disposition}: {done.memory_id}{corrected}", trust="trusted_local"
        )

    async def forget(self, call: ToolCall, _on_output: OnOutput) -> ToolOutput:
        """Delete items.  Cancellation: they may have been deleted."""
        try:
            gone = await self._keeper.forget_in(_place(call), call.arguments["memory_ids"])
        except PalyraError as error:
            raise ToolFailure(error.message) from error
        return ToolOutput(
            text=f"{pluralize(len(gone.memory_ids), 'item')} forgotten", trust="trusted_local"
        )

    async def search_sessions(self, call: ToolCall, _on_output: OnOutput) -> ToolOutput:
        """Return texts of earlier conversations.  Cancellation: nothing."""
        try:
            found = await self._finder.search_said(
                _place(call),
                call.arguments["query"],
                run_id=call.run_id,
                limit=call.arguments.get("limit", DEFAULT_HITS),
            )
        except PalyraError as error:
            raise ToolFailure(error.message) from error
        lines = [_render_said(said) for said in found.texts] or ["nothing found"]
        if found.degraded:
            lines.append(f"[degraded: {found.degraded}]")
        trust = lowest(("mixed", *(said.trust for said in found.texts)))
        return ToolOutput(text="\n".join(lines), trust=trust)


def _place(call: ToolCall) -> MemoryPlace:
    """Return the place of the run.  Raises ToolFailure for an agent without a memory."""
    place = call.audience.place
    if place is None:
        raise ToolFailure("this agent has no memory (its memory_scope is none)")
    return place


def _render(hit: MemoryHit) -> str:
    item = hit.item
    source = f"earlier than {hit.later}: " if hit.later else ""
    source += f"{item.author}: " if item.author else ""
    return (
        f"{item.memory_id} [{item.kind}, {_date(item.at_ms)}, {hit.score:.3f}] {source}{item.text}"
    )


def _render_said(said: SaidText) -> str:
    """Return a text with its place; only the first line of an entry begins at the margin."""
    speaker = "user" if said.is_user else "assistant"
    if said.is_output:
        speaker = f"tool output [{said.trust}]"
    text = said.text.replace("\n", "\n  ")
    return f"{_date(said.at_ms)} {said.session_id} {speaker}: {text}"


def _date(at_ms: int) -> str:
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d}"
