"""A long tape, written into the journal of a home whose daemon has not started yet."""

from collections.abc import Iterator
from itertools import count, islice, starmap
from pathlib import Path

from palyra.core.journal.changes import Change
from palyra.core.journal.records import RunRecord, SessionRecord, Usage
from palyra.core.journal.tape_row import TapeRow
from palyra.core.tape import events as ev
from palyra.store.journal.keys import KeyRing
from palyra.store.sqlite.journal import SqliteJournal

RUN = "run_01a20000-0000-7000-8000-000000000001"
SESSION = "ses_01a20000-0000-7000-8000-000000000001"
BEGAN_MS = 1_795_000_000_000
EVENTS_A_TURN = 7
FAILURES_EVERY = 1_000  # turns
NEEDLE_TURN = 9_000
NEEDLE = "needle in the hay"
USAGE = Usage(input_tokens=900, output_tokens=20)


def events() -> Iterator[ev.Event]:
    """A message, then turns of one call each, without an end."""
    yield ev.RunAccepted(principal="operator", session_id=SESSION, agent="scout", model="scripted")
    yield ev.MessageReceived(text="Look at everything", by="operator")
    for turn in count(1):
        call_id = f"call_{turn}"
        proposed = ev.ToolProposed(
            call_id=call_id,
            tool="read_file",
            arguments={"path": f"src/file_{turn}.py"},
            digest="5f0c",
            tool_class="read_only",
        )
        yield ev.TurnStarted(turn=turn, attempt=1, provider="scripted", model="scripted")
        text = NEEDLE if turn == NEEDLE_TURN else f"I look at file {turn}."
        yield ev.TurnCompleted(
            turn=turn, text=text, calls=(), finish_reason="tool_calls", usage=USAGE
        )
        yield proposed
        yield ev.ToolDecided(
            call_id=call_id,
            verdict="allow",
            reason_code="permit",
            reason="permitted",
            policies=("default/harmless",),
            policy_version="1",
        )
        yield ev.ToolStarted(call_id=call_id, executor="thread", enforcement="none", batch=turn)
        yield ev.ToolCompleted(
            call_id=call_id,
            status="failed" if turn % FAILURES_EVERY == 0 else "succeeded",
            output="x" * 120,
            duration_ms=3,
        )
        yield ev.ToolAttested(call_id=call_id, attestation={}, digest="5f0c", signature="00")


def fill(home: Path, length: int) -> None:
    """Write a finished run of so many events; 100 000 take some seconds."""
    store = SqliteJournal(
        home / "journal.sqlite3", KeyRing.open(home / "keys"), now_ms=lambda: BEGAN_MS
    )
    store.open()
    tape = enumerate([*islice(events(), length - 1), ev.RunDone(reason="answered")])
    while rows := tuple(starmap(_row, islice(tape, 2000))):
        store.commit([Change(rows=rows)])
    run = RunRecord(
        run_id=RUN,
        session_id=SESSION,
        state="done",
        principal="operator",
        agent="scout",
        model="scripted",
        created_ms=BEGAN_MS,
        started_ms=BEGAN_MS,
        finished_ms=BEGAN_MS + length,
        head_seq=length - 1,
        reason="answered",
    )
    session = SessionRecord(
        session_id=SESSION,
        principal="operator",
        key=None,
        created_ms=BEGAN_MS,
        updated_ms=BEGAN_MS,
    )
    store.commit([Change(records=(session, run))])
    store.seal()
    store.close()


def _row(seq: int, event: ev.Event) -> TapeRow:
    return TapeRow(
        RUN,
        SESSION,
        seq,
        BEGAN_MS + seq,
        event.KIND,
        "operator",
        redacted=False,
        data=ev.encode_event(event),
    )
