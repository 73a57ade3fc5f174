"""Summary of the older part of a session: what a compaction leaves in its place.

`core.context.session_compaction` makes and renders summaries; the tape stores them
(`compaction.applied`), so the fields may be added to but never renamed.
"""

import hashlib
from typing import Literal

import msgspec

from palyra.core.text.tokens import estimate_tokens
from palyra.core.trust.labels import Trust, is_from_outside

EntryKind = Literal[
    "pin",
    "request",
    "ask",
    "call",
    "step",
    "constraint",
    "convention",
    "preference",
    "decision",
    "fact",
    "finding",
    "remark",
    "file",
    "error",
]


# What may be worth more than its session.  Requests, steps, files and errors are about the work in hand.
DURABLE: frozenset[EntryKind] = frozenset(
    {"constraint", "convention", "preference", "decision", "fact"}
)


class Entry(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One entry of a ledger."""

    kind: EntryKind
    text: str  # verbatim; of a file its path
    run_id: str
    message: int  # index in that run's conversation
    by: Literal["user", "model", "tool"] = "user"
    detail: str = ""  # of a file its uses, of an error its call
    trust: Trust = "trusted_local"  # of what the model says: the lowest label that it had read

    @property
    def entry_id(self) -> str:
        """Id by content, equal for equal text of one kind: 12 hex digits."""
        return hashlib.sha256(f"{self.kind}\0{self.text}".encode()).hexdigest()[:12]

    @property
    def tokens(self) -> int:
        """Estimated tokens of the rendered entry."""
        return estimate_tokens(self.text) + estimate_tokens(self.detail) + 2


class SummaryLedger(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Entries in the order in which they were said."""

    entries: tuple[Entry, ...] = ()
    dropped: int = 0  # entries that did not fit, since the first compaction
    exceeded: dict[str, int] = {}  # of them those that were protected, by kind
    replaced: tuple[str, ...] = ()  # the latest statements that corrections removed
    lowest_trust: Trust = "trusted_local"  # lowest label of all texts before its end
    ahead: tuple[tuple[str, int], ...] = ()  # run and index of later messages, corrections applied

    @property
    def facts(self) -> tuple[Entry, ...]:
        """Durable statements of the user and the model, with run and message as evidence.

        Texts of tools, and the model's words after a text from outside, are none of them, so that no page becomes a memory by being summarised.
        """
        return tuple(
            each
            for each in self.entries
            if each.kind in DURABLE and each.by != "tool" and not is_from_outside(each.trust)
        )

    @property
    def tokens(self) -> int:
        """Estimated tokens of all entries."""
        return sum(entry.tokens for entry in self.entries)


class Covered(msgspec.Struct, frozen=True, gc=False):
    """A range of messages of one run's conversation, `first` and `last` included."""

    run_id: str
    first: int
    last: int


class Summary(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The text that replaces the covered messages in the prompt."""

    ledger: SummaryLedger
    narrative: str
    covers: tuple[Covered, ...]  # everything since the session began, oldest first
    before_tokens: int  # of the earlier summary and the newly covered messages
    after_tokens: int  # of the rendered summary
    is_drafted: bool = False  # a model wrote the narrative
    is_tainted: bool = False  # a covered text had injection findings
    refusals: tuple[str, ...] = ()  # why the model's draft was not taken

    def covered_of(self, run_id: str) -> int | None:
        """Return how many leading messages of a run are covered; None if it is not mentioned."""
        lasts = [each.last for each in self.covers if each.run_id == run_id]
        return max(lasts) + 1 if lasts else None
