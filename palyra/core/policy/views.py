"""Suggested rules and outcomes of approvals as clients see them."""

from typing import Literal

import msgspec

from palyra.core.journal.records import ApprovalScope


class Proof(msgspec.Struct, frozen=True, kw_only=True):
    """Recorded decisions that every suggested rule was evaluated on, by what became of the call."""

    decisions: int = 0
    allowed: int = 0
    covered: int = 0
    denied: int = 0
    unanswered: int = 0
    never_asked: int = 0
    tainted: int = 0  # of all these
    unreadable: int = 0  # whose tool is gone or changed: no rule for such a tool is suggested
    purged_runs: int = 0  # their decisions are not recorded any more
    refused: int = 0  # candidates that would have allowed one of the wrong calls


class PastCall(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded call that a suggested rule would have allowed."""

    run_id: str
    call_id: str
    summary: str
    at_ms: int


class RuleSuggestion(msgspec.Struct, frozen=True, kw_only=True):
    """A rule to choose, with the calls that it would have allowed."""

    suggestion_id: str
    title: str
    principal: str
    agent: str
    tool: str
    answers: int  # that it would have given: equal calls of a run count once
    runs: int
    cedar: str
    calls: tuple[PastCall, ...]  # at most `SHOWN_CALLS`, in order


class RuleFor(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The narrowest rule for the call of an approval, or why there is none."""

    approval_id: str
    refused: str = ""  # why no rule is offered, and what would work
    suggestion_id: str = ""
    title: str = ""
    cedar: str = ""
    reach: tuple[
        PastCall, ...
    ] = ()  # recorded calls that it would have allowed, at most `SHOWN_CALLS`
    calls: int = 0  # all of them
    asked: int = 0  # of these, calls that a person was asked about
    file: str = ""  # that has the rule, once it is written


class AppliedSuggestion(msgspec.Struct, frozen=True, kw_only=True):
    """A suggested rule in a file of its own among the user policies."""

    suggestion_id: str
    file: str
    cedar: str
    applied_ms: int
    is_edited: bool = False  # the file is not as it was written


class SuggestionList(msgspec.Struct, frozen=True, kw_only=True):
    """Suggested rules, the largest first, with the proof that holds for each."""

    suggestions: tuple[RuleSuggestion, ...]
    proof: Proof
    applied: tuple[AppliedSuggestion, ...] = ()


class Resolved(msgspec.Struct, frozen=True, kw_only=True):
    """The recorded outcome; `won` is True for the answer that made it."""

    decision: Literal["allow", "deny", "abort"]
    scope: ApprovalScope
    by: str
    resolved_ms: int
    won: bool
    run_id: str
    seq: int | None = None  # of `approval.resolved`; None when it was settled before
    grant_id: str | None = None  # of the grant that the answer made
