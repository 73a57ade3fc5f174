"""The tape: the append-only events of one run.

A row is what is stored and hashed (`core.chain`); an event (`core.events`) is what a row's `data`
decodes to.
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
    redacted: bool  # whether redaction changed the payload
    data: bytes


MAX_PAYLOAD_BYTES = 262_144  # one event; larger content belongs in an artifact
