"""The result of a replay."""

import msgspec


class Divergence(msgspec.Struct, frozen=True, kw_only=True):
    """The first difference between tape and replay; values are JSON, redacted and truncated."""

    seq: int
    kind: str  # on the tape; empty behind its end
    field: str  # `attestation.output_sha256`; `kind` when another event follows
    expected: str  # on the tape
    found: str  # in the replay


class ReplayReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Result of a replay.

    The digests are SHA-256 over kind, time and payload of every event up to the first divergence,
    that one included: equal exactly when the run matched.
    """

    run_id: str
    matched: bool
    strict: bool
    events: int  # of the tape
    recorded_digest: str
    replayed_digest: str
    first_divergence: Divergence | None = None
    unjudged: tuple[
        int, ...
    ] = ()  # seqs of proposals that a strict replay could not evaluate again
