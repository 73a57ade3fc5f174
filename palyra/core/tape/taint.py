"""The events of a tape that brought text with injection findings into its run."""

from collections.abc import Iterable

import msgspec

from palyra.core.journal.tape_row import TapeRow
from palyra.core.model.messages import ToolMessage
from palyra.core.tape import events as ev
from palyra.errors import Damaged, Purged

TAINTING = frozenset({
    ev.ToolProposed.KIND, ev.ToolCompleted.KIND, ev.ConversationInherited.KIND,
    ev.MessageReceived.KIND, ev.RunStarted.KIND, ev.ContextGathered.KIND,
})  # fmt: skip


class TaintSource(msgspec.Struct, frozen=True, kw_only=True):
    """An event that brought text with injection findings into the run."""

    seq: int
    kind: str
    findings: tuple[str, ...] = ()
    call_id: str = ""
    tool: str = ""
    trust: str = ""


def read_taint(rows: Iterable[TapeRow]) -> tuple[TaintSource, ...]:
    """Return the sources in the order of the tape; a damaged event is one.  Raises Purged."""
    tools: dict[str, str] = {}
    found: list[TaintSource] = []
    for row in rows:
        if row.kind not in TAINTING:
            continue
        try:
            event = ev.decode_event(row.kind, row.data)
        except Damaged:
            found.append(TaintSource(seq=row.seq, kind=row.kind, findings=("unreadable",)))
            continue
        if isinstance(event, ev.ToolProposed):
            tools[event.call_id] = event.tool
        else:
            found.extend(_sources(row.seq, event, tools))
    return tuple(found)


def brings_taint(kind: str, data: bytes) -> bool:
    """True if the event is a source: a damaged one is, and a purged one is not."""
    try:
        event = ev.decode_event(kind, data)
    except Purged:
        return False
    except Damaged:
        return True
    return any(_sources(0, event, {}))


def _sources(seq: int, event: ev.Event, tools: dict[str, str]) -> Iterable[TaintSource]:
    kind = event.KIND
    match event:
        case ev.ToolCompleted() if event.findings:
            yield TaintSource(
                seq=seq,
                kind=kind,
                findings=event.findings,
                call_id=event.call_id,
                tool=tools.get(event.call_id, ""),
                trust=event.trust,
            )
        case ev.MessageReceived():
            for result in event.results:
                if result.findings:
                    yield TaintSource(
                        seq=seq, kind=kind, findings=result.findings, call_id=result.call_id
                    )
        case ev.ContextGathered():
            for source in event.sources:
                if source.findings:
                    yield TaintSource(seq=seq, kind=kind, findings=source.findings)
        case ev.ConversationInherited() if event.is_tainted or any(
            isinstance(each, ToolMessage) and each.findings for each in event.messages
        ):
            yield TaintSource(seq=seq, kind=kind)
        case ev.RunStarted() if event.is_tainted:
            yield TaintSource(seq=seq, kind=kind)
        case _:
            pass
