"""The tape: the append-only events of one run.

A row is stored and hashed (`core.journal.hash_chain`); its `data` decodes to an event
(`core.tape.events`).
"""

import msgspec


class TapeRow(msgspec.Struct, frozen=True, gc=False):
    """One committed or about-to-be-committed event.  `data` is the event's JSON, redacted."""

    run_id: str
    session_id: str
    seq: int  # dense from 0 within the run
    at_ms: int
    kind: str
    principal: str
    redacted: bool  # True if redaction changed the payload
    data: bytes


MAX_PAYLOAD_BYTES = 262_144  # one event; larger content belongs in an artifact
