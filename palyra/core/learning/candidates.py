"""Candidates: statements that a run may teach, from the first sight to the item of memory.

A candidate has evidence: the words of an event, verbatim.  Its score decides about its first state
against two thresholds of its kind, in basis points: below the first it is `suppressed` and waits for
more evidence; below the second it is `proposed` and waits for a person; above, it is applied by
itself if the mode is `auto`, the person has ordered it (`core.context.sense.is_order`), the rules
have found it, no sign speaks against it, it says nothing about what the agent may do or where it sends
things, and every text of the run was trusted.  Where a model reads as
well, both have to have found it, and an order is not needed.  A procedure is never applied by itself; applied, it is a tool
(`core.learning.procedures`).

    from        action      to
    proposed    applied     applied     a person accepts it, or the second threshold is reached
    proposed    rejected    rejected
    proposed    edited      proposed
    suppressed  proposed    proposed    more evidence has raised the score
    suppressed  applied     applied
    suppressed  rejected    rejected
    suppressed  edited      proposed    a person who edits it wants it
    applied     undone      undone      the memory is as before
    applied     superseded  superseded  a later one corrects it
    superseded  restored    applied     that correction was undone
    applied     withdrawn   proposed    a procedure failed twice in a row: a person decides again
    rejected    undone      proposed
    undone      applied     applied

Every other action is refused.  What was rejected or undone is not proposed again.
"""

import re
from typing import Literal

import msgspec

from palyra.core.journal.procedure import Procedure
from palyra.core.journal.records import (
    CandidateAction,
    CandidateChange,
    CandidateKind,
    CandidateRecord,
    CandidateState,
    Evidence,
)
from palyra.core.memory.items import hash_text
from palyra.errors import IllegalState

MAX_EVIDENCE = 8
MAX_CHANGES = 100
FULL_BPS = 10_000
AGAIN_BPS = 1_000  # for each further run that states it
Mode = Literal["off", "review", "auto"]

TRANSITIONS: dict[tuple[CandidateState, CandidateAction], CandidateState] = {
    ("proposed", "applied"): "applied",
    ("proposed", "rejected"): "rejected",
    ("proposed", "edited"): "proposed",
    ("suppressed", "proposed"): "proposed",
    ("suppressed", "applied"): "applied",
    ("suppressed", "rejected"): "rejected",
    ("suppressed", "edited"): "proposed",
    ("applied", "undone"): "undone",
    ("applied", "superseded"): "superseded",
    ("superseded", "restored"): "applied",
    ("applied", "withdrawn"): "proposed",
    ("rejected", "undone"): "proposed",
    ("undone", "applied"): "applied",
}

# Actions of a person, by the name of the method that asks for them.
_VERBS: dict[CandidateAction, str] = {
    "applied": "accept", "edited": "edit", "rejected": "reject", "undone": "undo",
}  # fmt: skip


class Thresholds(msgspec.Struct, frozen=True):
    """Scores of one kind, in basis points, from which it is proposed, and applied by itself."""

    review_bps: int
    auto_bps: int | None  # None: never


class LearningRules(msgspec.Struct, frozen=True, kw_only=True):
    """Mode and thresholds that decide about a candidate; the defaults are the design's."""

    mode: Mode = "off"
    fact: Thresholds = Thresholds(7_500, 9_000)
    preference: Thresholds = Thresholds(8_000, 9_200)
    procedure: Thresholds = Thresholds(8_500, None)

    def of(self, kind: CandidateKind) -> Thresholds:
        """Return the thresholds of a kind."""
        return {"fact": self.fact, "preference": self.preference, "procedure": self.procedure}[kind]


def key_of(kind: CandidateKind, text: str) -> str:
    """Return what two candidates for the same statement have in common."""
    return f"{kind}:{hash_text(text)}"


def is_sampled(run_id: str, sample_bps: int) -> bool:
    """True if a run is in a sample of `sample_bps` of 10 000 runs; a larger one includes a smaller.

    The id decides alone, so a run that is continued after a restart gets the same answer.
    """
    return int(hash_text(run_id), 16) % FULL_BPS < sample_bps


MODEL_SIGN = "model"  # the sign of a model's claim, which makes a candidate reviewable
ASKED = "asked"  # the sign of an order to remember, without which nothing applies itself
FRAMED = "framed"  # the sign that something else begins or ends the line; repetitions count


def is_reviewable(rules: LearningRules, kind: CandidateKind, score_bps: int) -> bool:
    """True if a person is asked about a candidate with this score."""
    return score_bps >= rules.of(kind).review_bps


def has_doubt(signals: dict[str, int]) -> bool:
    """True if a sign speaks against the statement: then no number of signs for it is enough."""
    return min(signals.values(), default=0) < 0


# Words about what the agent may do and where it sends things.  An item that widens this is read by every
# later run, so a person sees it first, also if it was ordered; one that narrows it waits as well.
_ABOUT_RIGHTS = re.compile(
    r"\b(?:approv|permi(?:t|ssion)|allow|authori[sz]|confirm|consent|sandbox|sudo\b|polic(?:y|ies)\b|"
    r"bypass|you (?:may|can) \w|(?:without|no need|never|don'?t|stop) (?:\w+ ){0,2}ask|"
    r"genehmig|freigab|freigeb|freigegeben|erlaub|bestätig|berechtig|zustimm|darfst\b|dürfen\b|"
    r"ohne (?:\w+ ){0,2}(?:zu fragen|(?:nach|rück)frage)|frag\w* (?:\w+ ){0,2}nicht|nicht (?:\w+ ){0,2}frag)"
    r"|@|://|\bwww\.",
    re.IGNORECASE,
)


def may_apply(
    rules: LearningRules, candidate: CandidateRecord, *, is_read_twice: bool = False
) -> bool:
    """True if a candidate becomes an item of memory without a person.

    `is_read_twice`: a model reads the runs as well, and has to agree with the rules.
    """
    auto_bps = rules.of(candidate.kind).auto_bps
    return (
        rules.mode == "auto"
        and auto_bps is not None
        and candidate.score_bps >= auto_bps
        and candidate.source in ({"both"} if is_read_twice else {"rules", "both"})
        and (is_read_twice or ASKED in candidate.signals)
        and MODEL_SIGN not in candidate.signals
        and not (candidate.corrects and candidate.source != "rules")
        and candidate.trust == "trusted_local"
        and not has_doubt(candidate.signals)
        and FRAMED not in candidate.signals
        and _ABOUT_RIGHTS.search(candidate.text) is None
        and candidate.state in {"proposed", "suppressed"}
    )


def step(
    candidate: CandidateRecord,
    action: CandidateAction,
    *,
    by: str,
    now_ms: int,
    **fields: object,
) -> CandidateRecord:
    """Return the next revision after an action.  Raises IllegalState for one that is not allowed."""
    after = TRANSITIONS.get((candidate.state, action))
    if after is None:
        actions = {name for state, name in TRANSITIONS if state == candidate.state}
        possible = [verb for name, verb in _VERBS.items() if name in actions]
        raise IllegalState(
            f"{candidate.candidate_id} is {candidate.state} and cannot be {action}; "
            f"possible: {', '.join(possible) or 'nothing'}"
        )
    return _revise(candidate, action, after, by=by, now_ms=now_ms, fields=fields)


def see_again(
    candidate: CandidateRecord, evidence: Evidence, *, score_bps: int, now_ms: int
) -> CandidateRecord | None:
    """Return the revision with more evidence; None if that changes nothing.

    Only another run counts: a sentence that is repeated in one run proves nothing new.
    """
    if candidate.state not in {"proposed", "suppressed"}:
        return None
    if len(candidate.evidence) >= MAX_EVIDENCE or any(
        known.run_id == evidence.run_id for known in candidate.evidence
    ):
        return None
    signals = {**candidate.signals, "again": AGAIN_BPS * len(candidate.evidence)}
    fields: dict[str, object] = {
        "evidence": (*candidate.evidence, evidence),
        "score_bps": min(
            FULL_BPS, max(score_bps, candidate.score_bps - candidate.signals.get("again", 0))
            + signals["again"],
        ),
        "signals": signals,
    }  # fmt: skip
    return _revise(candidate, "seen", candidate.state, by="", now_ms=now_ms, fields=fields)


def show_steps(
    candidate: CandidateRecord, procedure: Procedure, *, now_ms: int, **fields: object
) -> CandidateRecord:
    """Return the revision with other proofs, steps or uses of its procedure; the state stays."""
    return msgspec.structs.replace(
        candidate,
        **fields,
        procedure=procedure,
        revision=candidate.revision + 1,
        changed_ms=now_ms,
    )


def _revise(
    candidate: CandidateRecord,
    action: CandidateAction,
    state: CandidateState,
    *,
    by: str,
    now_ms: int,
    fields: dict[str, object],
) -> CandidateRecord:
    before = candidate.text if action == "edited" else None
    line = CandidateChange(action=action, state=state, by=by, at_ms=now_ms, text=before)
    return msgspec.structs.replace(
        candidate,
        **fields,
        state=state,
        revision=candidate.revision + 1,
        changed_ms=now_ms,
        changes=(*candidate.changes, line)[-MAX_CHANGES:],
    )
