"""The life of a run, and its state: everything the daemon knows of it, rebuilt from its tape.

    accepted ----> in_progress ----> done
        |               |
        `---------------`----------> failed | cancelled

- `accepted`: the first event is on the tape.  The run waits in its session's queue and collects
  messages; a fork first inherits a conversation.
- `in_progress` has four parts, which follow from the other fields.  *Model call open*
  (`turn_is_open`): a request is out.  *Calls open*: the turn proposed calls and not all are
  attested; each call has a life of its own (`core.run.call`).  *Between turns*: neither; the next
  turn starts or the run ends.  *Question pending* (`question`): a person is asked about
  something other than a tool call; today that a budget stopped the model call.
- `done`, `failed` and `cancelled` are terminal: no event follows.  An answer can only be given
  between turns; a failure or a cancel can come at any time, once every proposed call is attested.

A steering message and a restart may come at any time before the end.  A restart closes an open
model call; the run asks again with the next attempt.

`RUN_TRANSITIONS` is the drawing as data: for each kind of event the states it is legal in, and the
state after it.  What a table cannot say (turn, attempt, ids) is in the rules of `core.run.fold`.
"""

from collections.abc import Iterable

import msgspec

from palyra.core.journal.records import TERMINAL, RunState, Usage
from palyra.core.model.messages import (
    AssistantMessage,
    GuidanceMessage,
    Message,
    ToolMessage,
    UserMessage,
)
from palyra.core.policy.gate import ApprovalSubject
from palyra.core.run.call import Call
from palyra.core.run.loop_guard import LoopGuard
from palyra.core.tape import events as ev
from palyra.core.tape.events import Compaction
from palyra.core.trust.labels import Trust

DENIED_BY_PERSON = "denied_by_person"
ABORTED = "aborted"  # reason code of the verdict on a call that waited when its run ended
RULES_CHANGED = "rules"  # `by` of a question withdrawn because the rules changed


_ACCEPTED: frozenset[RunState] = frozenset({"accepted"})
_STARTED: frozenset[RunState] = frozenset({"in_progress"})
_LIVE = _ACCEPTED | _STARTED

# kind of event -> (states it is legal in, state after it; None: unchanged)
RUN_TRANSITIONS: dict[type[ev.Event], tuple[frozenset[RunState], RunState | None]] = {
    ev.ConversationInherited: (_ACCEPTED, None),
    ev.MessageReceived: (_ACCEPTED, None),
    ev.RunStarted: (_ACCEPTED, "in_progress"),
    ev.RoutePlanned: (_STARTED, None),
    ev.RouteChanged: (_STARTED, None),
    ev.ContextCompacted: (_STARTED, None),
    ev.ContextAssembled: (_STARTED, None),
    ev.TurnStarted: (_STARTED, None),
    ev.TurnCompleted: (_STARTED, None),
    ev.TurnFailed: (_STARTED, None),
    ev.BudgetExceeded: (_STARTED, None),
    ev.ToolProposed: (_STARTED, None),
    ev.ToolRejected: (_STARTED, None),
    ev.ApprovalRequested: (_STARTED, None),
    ev.ApprovalResolved: (_STARTED, None),
    ev.ToolDecided: (_STARTED, None),
    ev.ToolStarted: (_STARTED, None),
    ev.ToolCompleted: (_STARTED, None),
    ev.ToolAttested: (_STARTED, None),
    ev.AnswerRejected: (_STARTED, None),
    ev.GuardWarned: (_STARTED, None),
    ev.GuardBlocked: (_STARTED, None),
    ev.MessageCompleted: (_STARTED, None),
    ev.SteerReceived: (_LIVE, None),
    ev.RunRecovered: (_LIVE, None),
    ev.RunDone: (_STARTED, "done"),
    ev.RunFailed: (_LIVE, "failed"),
    ev.RunCancelled: (_LIVE, "cancelled"),
}


class Question(msgspec.Struct, frozen=True, gc=False):
    """A pending approval request."""

    approval_id: str
    subject: ApprovalSubject
    call_id: str = ""  # of the call, if that is the subject


class Run(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """State of a run; rebuilt by folding `apply` over its tape."""

    run_id: str
    state: RunState
    accepted: ev.RunAccepted
    created_ms: int
    next_seq: int
    started_ms: int | None = None
    finished_ms: int | None = None
    messages: int = 0  # received
    turn: int = 0
    attempt: int = 0  # of the current turn
    model: str = ""  # in use
    left: tuple[str, ...] = ()  # models replaced in this turn
    spent_attempts: int = 0  # of the current turn, with earlier models or prompts
    compacted: Compaction | None = None  # parts left out of the prompt, since it was too large
    turn_is_open: bool = False
    calls: tuple[Call, ...] = ()  # of the last turn, in the model's order
    transcript: tuple[Message, ...] = ()
    inherited: int = 0  # leading messages from another run, or from the caller
    is_given: bool = False  # True: the caller supplied the whole conversation
    history: tuple[str, ...] = ()  # earlier runs of the session in the prompt
    steers: tuple[UserMessage, ...] = ()  # received, not yet shown to the model
    guidance: tuple[str, ...] = ()  # of the daemon, not yet shown to the model
    finish_reason: str = ""
    continuations: int = 0  # consecutive turns that continued a cut text
    rejections: int = 0  # texts rejected as answers
    progress: LoopGuard = LoopGuard()
    asked_model: str = ""  # of the last model call
    asked_provider: str = ""
    input_tokens: int = 0  # estimate for the last model call
    exceeded: ev.BudgetExceeded | None = None  # the budget that stopped the last model call
    question: Question | None = None  # pending, about something other than a tool call
    lifted: frozenset[str] = frozenset()  # budgets lifted by an approval
    usage: Usage = Usage()
    cost_usd_micros: int = 0
    unpriced_calls: int = 0  # model calls whose cost is not known
    tool_calls: int = 0
    is_tainted: bool = False  # a text with findings has reached the conversation
    input_trust: Trust = "trusted_local"  # lowest label of the texts in the prompts so far
    denied: frozenset[tuple[str, str]] = frozenset()  # (tool, digest) denied by a person
    recoveries: int = 0  # since the last completed turn or call
    attestation_head: str = ""  # SHA-256 of the last attestation, hex
    reason: str | None = None
    last_ms: int = 0  # of the last event
    asked_ms: int | None = None  # since when an approval is pending
    people_ms: int = 0  # spent waiting for approvals, up to the last answer
    down_ms: int = 0  # between the last event before a restart and the first after it

    @property
    def is_terminal(self) -> bool:
        """True if the run has ended."""
        return self.state in TERMINAL

    @property
    def pending_approvals(self) -> int:
        """Number of pending approval requests."""
        asking = [call for call in self.calls if call.phase == "asking"]
        return len(asking) + (self.question is not None)

    def find_question(self, approval_id: str) -> Question | None:
        """Return the pending approval request with that id."""
        if self.question is not None and self.question.approval_id == approval_id:
            return self.question
        call = self.find_asking(approval_id)
        return None if call is None else Question(approval_id, "tool_call", call.call_id)

    @property
    def is_cut(self) -> bool:
        """True if the last turn is a text that stopped at the model's output limit."""
        last = self.transcript[-1] if self.transcript else None
        return (
            self.finish_reason == "length"
            and not (self.calls or self.steers or self.guidance or self.turn_is_open)
            and isinstance(last, AssistantMessage)
            and bool(last.text.strip())
        )

    @property
    def output_cap(self) -> int | None:
        """The caller's own limit on the tokens of a turn."""
        brief = self.accepted.brief
        return None if brief is None else brief.sampling.max_output_tokens

    def continues(self, attempt: int) -> bool:
        """True if the next turn, or that attempt at the open one, continues a cut text."""
        return self.is_cut if attempt == 1 else self.continuations > 0

    def spent_ms(self, *, with_people: bool = False) -> int:
        """Return how long the daemon has worked on the run, up to its last event.

        Downtime does not count; waiting for approvals counts only `with_people`.
        """
        if self.started_ms is None:
            return 0
        waiting_ms = 0 if self.asked_ms is None else self.last_ms - self.asked_ms
        idle_ms = 0 if with_people else self.people_ms + waiting_ms
        return max(0, self.last_ms - self.started_ms - self.down_ms - idle_ms)

    def find_call(self, call_id: str) -> Call | None:
        """Return the call of the current turn with that id."""
        return next((call for call in self.calls if call.call_id == call_id), None)

    def find_asked(self, call_id: str) -> Call | None:
        """Return an earlier call whose answered approval also covers this one."""
        return next(
            (c for c in self.calls if c.answer and c.call_id != call_id and call_id in c.covers),
            None,
        )

    def find_asking(self, approval_id: str) -> Call | None:
        """Return the call that waits for that approval."""
        return next(
            (c for c in self.calls if c.approval_id == approval_id and c.phase == "asking"), None
        )


def transcript_with_results(run: Run) -> tuple[Message, ...]:
    """Return the conversation of the next turn: results in the model's order, guidance, steers."""
    results = (
        ToolMessage(call.call_id, call.tool, call.status, call.output, call.trust, call.findings)
        for call in run.calls
    )
    return (
        *run.transcript,
        *results,
        *(GuidanceMessage(text) for text in run.guidance),
        *run.steers,
    )


def has_findings(messages: Iterable[Message]) -> bool:
    """True if a tool result among the messages has findings of the injection scanner."""
    return any(isinstance(message, ToolMessage) and message.findings for message in messages)
