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
- `done`, `failed` and `cancelled` are terminal: only the undo of the run's changes of files and a
  purge follow, which change nothing of the run.  An answer can only be given
  between turns; a failure or a cancel can come at any time, once every proposed call is attested.

A steering message and a restart may come at any time before the end.  A restart closes an open
model call; the run asks again with the next attempt.

`apply(run, event, at_ms)` is the only way a run changes, live, in recovery and in replay.  Whether
an event is legal is decided in two stages:

1. `RUN_TRANSITIONS`, the drawing as data, by the state of the run and, for an event about a call,
   `CALL_TRANSITIONS` (`core.run.call`) by the phase of the call.
2. The rule of the event by what a table cannot say: matching turn, attempt or approval id, and
   whether the run is between two turns.

A rule returns the fields of the run that change; `apply` replaces them all at once together with
the state.  So an illegal event raises InvariantBroken before anything has changed.  This is the
hottest path of the daemon: one rule and one new struct for an event.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, cast

import msgspec

from palyra.core.journal.records import (
    TERMINAL,
    Charge,
    RunRecord,
    RunState,
    SessionMode,
    Usage,
)
from palyra.core.model.images import Picture, recorded_pictures, sort_pictures
from palyra.core.model.messages import (
    AssistantMessage,
    GuidanceMessage,
    Message,
    ToolMessage,
    UserMessage,
)
from palyra.core.model.summary import Summary
from palyra.core.policy.gate import ApprovalSubject, find_subject
from palyra.core.run.call import CALL_TRANSITIONS, CLOSED, Call, DelegatedRun
from palyra.core.run.loop_guard import LoopGuard, clear_findings, observe, reset_counts
from palyra.core.tape import events as ev
from palyra.core.tape.events import Compaction
from palyra.core.text.references import has_references
from palyra.core.text.tokens import FACTOR, LEARN_FROM_TOKENS, learn_factor
from palyra.core.trust.labels import Trust, lowest
from palyra.errors import Damaged, InvariantBroken

COMPACTION = "compaction"  # origin of a run that only summarises its session
RESTORE = "restore"  # origin of a run that only gives a branch its conversation
DENIED_BY_PERSON = "denied_by_person"
ABORTED = "aborted"  # reason code of the verdict on a call that waited when its run ended
RULES_CHANGED = "rules"  # `by` of a question withdrawn because the rules changed


_ACCEPTED: frozenset[RunState] = frozenset({"accepted"})
_STARTED: frozenset[RunState] = frozenset({"in_progress"})
_LIVE = _ACCEPTED | _STARTED
_ENDED: frozenset[RunState] = frozenset({"done", "failed", "cancelled"})

# kind of event -> (states it is legal in, state after it; None: unchanged)
RUN_TRANSITIONS: dict[type[ev.Event], tuple[frozenset[RunState], RunState | None]] = {
    ev.ConversationInherited: (_ACCEPTED, None),
    ev.MessageReceived: (_ACCEPTED, None),
    ev.RunStarted: (_ACCEPTED, "in_progress"),
    ev.ContextGathered: (_STARTED, None),
    ev.RoutePlanned: (_STARTED, None),
    ev.RouteChanged: (_STARTED, None),
    ev.ContextCompacted: (_STARTED, None),
    ev.CompactionApplied: (_STARTED, None),
    ev.CompactionSkipped: (_STARTED, None),
    ev.ContextAssembled: (_STARTED, None),
    ev.TurnStarted: (_STARTED, None),
    ev.TurnCompleted: (_STARTED, None),
    ev.TurnFailed: (_STARTED, None),
    ev.ItemRefused: (_STARTED, None),
    ev.BudgetExceeded: (_STARTED, None),
    ev.ToolProposed: (_STARTED, None),
    ev.ToolRejected: (_STARTED, None),
    ev.ApprovalRequested: (_STARTED, None),
    ev.ApprovalResolved: (_STARTED, None),
    ev.ToolDecided: (_STARTED, None),
    ev.ToolStarted: (_STARTED, None),
    ev.ToolCompleted: (_STARTED, None),
    ev.DelegationStarted: (_STARTED, None),
    ev.DelegationEnded: (_STARTED, None),
    ev.ToolAttested: (_STARTED, None),
    ev.AnswerRejected: (_STARTED, None),
    ev.TodosChanged: (_STARTED, None),
    ev.GuardWarned: (_STARTED, None),
    ev.GuardBlocked: (_STARTED, None),
    ev.MessageCompleted: (_STARTED, None),
    ev.SteerReceived: (_LIVE, None),
    ev.RunRecovered: (_LIVE, None),
    ev.RunDone: (_STARTED, "done"),
    ev.RunFailed: (_LIVE, "failed"),
    ev.RunCancelled: (_LIVE, "cancelled"),
    ev.RunUndone: (_ENDED, None),
}


class Question(msgspec.Struct, frozen=True, gc=False):
    """A pending approval request."""

    approval_id: str
    subject: ApprovalSubject
    call_id: str = ""  # of the call, if that is the subject


class RunClock(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """When a run began and ended, and the time between that is not its own."""

    created_ms: int
    started_ms: int | None = None
    finished_ms: int | None = None
    asked_ms: int | None = None  # since when at least one approval is pending
    people_ms: int = 0  # spent waiting for people, up to the last answer or end of a delegated run
    down_ms: int = 0  # between the last event before a restart and the first after it


class RunCosts(msgspec.Struct, frozen=True, gc=False):
    """Usage and cost of a run's model calls, and of the runs it delegated that have ended."""

    usage: Usage = Usage()
    usd_micros: int = 0
    unpriced_calls: int = 0  # model calls whose cost is not known
    delegated_usage: Usage = Usage()
    delegated_usd_micros: int = 0


class AskedModel(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The last model call of a run: the model, and the size of its prompt."""

    model: str = ""
    provider: str = ""
    input_tokens: int = 0  # estimate
    factor_bps: int = FACTOR  # that the estimate includes


class PromptCuts(msgspec.Struct, frozen=True, gc=False):
    """The parts of history and conversation that a run's prompts leave out."""

    compacted: Compaction | None = None  # left out, since the prompt was too large
    omitted: int = 0  # leading messages of history and conversation
    pruned: int = 0  # leading messages of the conversation whose outputs may be stubs
    weighed_tokens: int = 0  # of the prompt at the last compaction, applied or skipped


class Run(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """State of a run; rebuilt by folding `apply` over its tape."""

    run_id: str
    state: RunState
    accepted: ev.RunAccepted
    next_seq: int
    last_ms: int  # of the last event
    clock: RunClock
    costs: RunCosts = RunCosts()
    asked: AskedModel = AskedModel()
    cuts: PromptCuts = PromptCuts()
    messages: int = 0  # received
    turn: int = 0
    attempt: int = 0  # of the current turn
    model: str = ""  # in use
    left: tuple[str, ...] = ()  # models replaced in this turn
    spent_attempts: int = 0  # of the current turn, with earlier models or prompts
    summary: Summary | None = None  # replaces the messages it covers
    turn_is_open: bool = False
    calls: tuple[Call, ...] = ()  # of the last turn, in the model's order
    transcript: tuple[Message, ...] = ()
    inherited: int = 0  # leading messages from another run, or from the caller
    is_given: bool = False  # True: the caller supplied the whole conversation
    history: tuple[str, ...] = ()  # earlier runs of the session in the prompt
    has_references: bool = False  # in a user message, not gathered yet
    is_gathered: bool = False  # the sources of the whole run are
    sources: tuple[ev.ContextGathered, ...] = ()  # of the whole run
    refused: tuple[str, ...] = ()  # items that a provider refused, as kind:name
    todos: tuple[ev.Todo, ...] = ()  # the model's list, at first that of the run before
    mode: SessionMode = "ask"  # of the session when the run started; its prompts are made for it
    good_tokens: int = 0  # of the last prompt that was answered
    token_bps: dict[str, int] = {}  # measured ratio of real to estimated tokens, by model
    steers: tuple[UserMessage, ...] = ()  # received, not yet shown to the model
    guidance: tuple[str, ...] = ()  # of the daemon, not yet shown to the model
    finish_reason: str = ""
    continuations: int = 0  # consecutive turns that continued a cut text
    rejections: int = 0  # texts rejected as answers
    progress: LoopGuard = LoopGuard()
    exceeded: ev.BudgetExceeded | None = None  # the budget that stopped the last model call
    question: Question | None = None  # pending, about something other than a tool call
    lifted: frozenset[str] = frozenset()  # budgets lifted by an approval
    tool_calls: int = 0
    is_tainted: bool = False  # a text with findings has reached the conversation
    input_trust: Trust = "trusted_local"  # lowest label of the texts in the prompts so far
    denied: frozenset[tuple[str, str]] = frozenset()  # (tool, digest) denied by a person
    recoveries: int = 0  # since the last completed turn or call
    attestation_head: str = ""  # SHA-256 of the last attestation, hex
    reason: str | None = None

    @property
    def trust(self) -> Trust:
        """Lowest label of what the run has read; the senders of a channel are other people."""
        words: Trust = "trusted_local" if self.accepted.channel is None else "external_untrusted"
        return lowest((self.input_trust, words))

    @property
    def is_terminal(self) -> bool:
        """True if the run has ended."""
        return self.state in TERMINAL

    @property
    def pending_approvals(self) -> int:
        """Number of pending approval requests."""
        asking = [call for call in self.calls if call.phase == "asking"]
        return len(asking) + (self.question is not None)

    @property
    def is_executing(self) -> bool:
        """True if a call has been started and has no outcome."""
        return any(call.phase == "started" for call in self.calls)

    @property
    def awaits_children(self) -> bool:
        """True if delegated runs are open and nothing else of the run has been started."""
        started = [call for call in self.calls if call.phase == "started"]
        return bool(started) and all(
            call.delegated is not None and not call.delegated.is_ended for call in started
        )

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
        clock = self.clock
        if clock.started_ms is None:
            return 0
        waiting_ms = 0 if clock.asked_ms is None else self.last_ms - clock.asked_ms
        idle_ms = 0 if with_people else clock.people_ms + waiting_ms
        return max(0, self.last_ms - clock.started_ms - clock.down_ms - idle_ms)

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
        return next((c for c in self.calls if c.approval_id == approval_id and _waits(c)), None)

    def to_record(self) -> RunRecord:
        """Return the run as `run.get` shows it."""
        return RunRecord(
            run_id=self.run_id,
            session_id=self.accepted.session_id,
            state=self.state,
            principal=self.accepted.principal,
            agent=self.accepted.agent,
            model=self.model,
            created_ms=self.clock.created_ms,
            started_ms=self.clock.started_ms,
            finished_ms=self.clock.finished_ms,
            head_seq=self.next_seq - 1,
            usage=self.costs.usage,
            cost_usd_micros=self.costs.usd_micros,
            unpriced_calls=self.costs.unpriced_calls,
            turns=self.turn,
            tool_calls=self.tool_calls,
            pending_approvals=self.pending_approvals,
            reason=self.reason,
            parent_run_id=self.accepted.parent_run_id,
            depth=self.accepted.depth,
            attempts=self.recoveries,
            is_tainted=self.is_tainted,
        )


def own_messages(run: Run) -> Iterator[UserMessage]:
    """Yield the user messages of this run in the order in which the model gets them."""
    for message in run.transcript[run.inherited :]:
        if isinstance(message, UserMessage):
            yield message
    yield from run.steers


def find_unresolved(run: Run) -> tuple[tuple[int, str], ...]:
    """Return number and text of the user messages whose references are not gathered yet.

    The task of a delegated run was written by a model, so its references are plain text.
    """
    return tuple(
        (number, message.text)
        for number, message in enumerate(own_messages(run))
        if not message.references
        and has_references(message.text)
        and not (number == 0 and run.accepted.depth)
    )


def transcript_with_results(run: Run) -> tuple[Message, ...]:
    """Return the conversation of the next turn: results in the model's order, guidance, steers."""
    results = (
        ToolMessage(
            call.call_id,
            call.tool,
            call.status,
            call.output,
            call.trust,
            call.findings,
            call.artifact,
            call.pictures,
        )
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


# --- the fold of a tape --------------------------------------------------------------------------

Changes = dict[str, Any]  # fields of Run and their new values
Rule = Callable[[Run, Any, int], Changes]  # the state before, the event, its time

_RULES: dict[type[ev.Event], Rule] = {}
_replace = msgspec.structs.replace


def begin(run_id: str, event: ev.RunAccepted, at_ms: int) -> Run:
    """Return the state after `run.accepted`, the first event of every tape."""
    return Run(
        run_id=run_id,
        state="accepted",
        accepted=event,
        model=event.model,
        last_ms=at_ms,
        clock=RunClock(created_ms=at_ms),
        next_seq=1,
        is_tainted=event.delegation is not None and event.delegation.is_tainted,
        input_trust="trusted_local" if event.delegation is None else event.delegation.input_trust,
    )


def apply(run: Run, event: ev.Event, at_ms: int) -> Run:
    """Return the state after one more event.  Raises InvariantBroken if it is illegal."""
    kind = type(event)
    row = RUN_TRANSITIONS.get(kind)
    if row is None or run.state not in row[0]:
        raise _illegal(run, event)
    changes = _RULES[kind](run, event, at_ms)
    return _replace(
        run, **changes, state=row[1] or run.state, next_seq=run.next_seq + 1, last_ms=at_ms
    )


def fold(run_id: str, rows: Sequence[tuple[str, int, bytes]]) -> Run:
    """Return the state after a whole tape of (kind, at_ms, data).  Raises InvariantBroken."""
    if not rows or rows[0][0] != ev.RunAccepted.KIND:
        raise InvariantBroken(f"the tape of {run_id} does not begin with run.accepted")
    kind, at_ms, data = rows[0]
    run = begin(run_id, cast("ev.RunAccepted", ev.decode_event(kind, data)), at_ms)
    for kind, at_ms, data in rows[1:]:
        run = apply(run, ev.decode_event(kind, data), at_ms)
    return run


@contextmanager
def reading_tape(run_id: str) -> Generator[None]:
    """Raise what a stored tape breaks as Damaged: other events of the tape, and other runs, go on."""
    try:
        yield
    except (InvariantBroken, LookupError, TypeError, ValueError) as error:
        text = error.message if isinstance(error, InvariantBroken) else repr(error)
        raise Damaged(f"the tape of {run_id} cannot be replayed: {text}") from error


def _illegal(run: Run, event: ev.Event) -> InvariantBroken:
    return InvariantBroken(
        f"{event.KIND} is not possible: {run.run_id} is {run.state}, turn {run.turn} "
        f"{'open' if run.turn_is_open else 'closed'}, calls {[call.phase for call in run.calls]}"
    )


def _require(condition: bool, run: Run, event: ev.Event) -> None:  # noqa: FBT001 - an assertion
    """Raise InvariantBroken unless the condition holds."""
    if not condition:
        raise _illegal(run, event)


def _rule(kind: type[ev.Event]) -> Callable[[Rule], Rule]:
    """Register a function as the rule for a kind of event."""

    def register(function: Rule) -> Rule:
        _RULES[kind] = function
        return function

    return register


def _waits(call: Call) -> bool:
    return call.phase == "asking" and not call.answer


def _is_attested(calls: Sequence[Call]) -> bool:
    return all(call.phase == "attested" for call in calls)


def is_between_turns(run: Run) -> bool:
    """True if the run has started, no model call is open and every call of the turn has ended."""
    return run.state == "in_progress" and not run.turn_is_open and _is_attested(run.calls)


# --- before the run starts -----------------------------------------------------------------------


@_rule(ev.ConversationInherited)
def _conversation_inherited(run: Run, event: ev.ConversationInherited, _at_ms: int) -> Changes:
    transcript = (*run.transcript, *event.messages)
    return {
        "inherited": len(transcript),
        "transcript": transcript,
        "summary": event.summary or run.summary,
        "is_given": not event.run_id,
        "is_tainted": run.is_tainted or event.is_tainted or has_findings(event.messages),
    }


@_rule(ev.MessageReceived)
def _message_received(run: Run, event: ev.MessageReceived, _at_ms: int) -> Changes:
    """Add the results that came with the message, and the message unless only results came.

    Pictures of results come with the message, also those of results that the run has inherited.
    """
    before = (*run.transcript, *event.results)
    pictures: tuple[Picture, ...] = ()
    shown: Mapping[str, tuple[Picture, ...]] = {}
    if event.attachments:
        calls = {each.call_id for each in before if isinstance(each, ToolMessage)}
        pictures, shown = sort_pictures(event.attachments, calls)
        before = tuple(_show_in_result(each, shown) for each in before)
    has_message = bool(event.text or pictures) or not (event.results or shown)
    said = (UserMessage(event.text, pictures),) if has_message else ()
    return {
        "messages": run.messages + 1,
        "transcript": (*before, *said),
        "has_references": run.has_references
        or (not run.accepted.depth and has_references(event.text)),
        "is_tainted": run.is_tainted or has_findings(event.results),
    }


def _show_in_result(message: Message, shown: Mapping[str, tuple[Picture, ...]]) -> Message:
    if not isinstance(message, ToolMessage) or message.call_id not in shown:
        return message
    return msgspec.structs.replace(message, pictures=shown[message.call_id])


@_rule(ev.RunStarted)
def _run_started(run: Run, event: ev.RunStarted, at_ms: int) -> Changes:
    _require(bool(run.transcript), run, event)
    return {
        "history": event.history,
        "token_bps": event.token_bps,
        "refused": event.refused,
        "mode": event.mode,
        "todos": event.todos,
        "is_tainted": run.is_tainted or event.is_tainted,
        "clock": _replace(run.clock, started_ms=at_ms),
    }


# --- the model: route, context, turns ------------------------------------------------------------


@_rule(ev.RoutePlanned)
def _route_planned(run: Run, event: ev.RoutePlanned, _at_ms: int) -> Changes:
    _require(run.attempt == 0, run, event)
    return {"model": event.uses}


@_rule(ev.RouteChanged)
def _route_changed(run: Run, event: ev.RouteChanged, _at_ms: int) -> Changes:
    is_new = event.from_model == run.model and event.model not in run.left
    _require(not run.turn_is_open and is_new, run, event)
    return {
        "model": event.model, "left": (*run.left, run.model), "spent_attempts": run.attempt,
    }  # fmt: skip


@_rule(ev.ContextCompacted)
def _context_compacted(run: Run, event: ev.ContextCompacted, _at_ms: int) -> Changes:
    is_here = event.turn == run.turn and event.through <= len(run.transcript)
    _require(not run.turn_is_open and is_here, run, event)
    return {"cuts": _replace(run.cuts, compacted=event), "spent_attempts": run.attempt}


@_rule(ev.CompactionApplied)
def _compaction_applied(run: Run, event: ev.CompactionApplied, _at_ms: int) -> Changes:
    summary = event.summary
    _require(is_between_turns(run), run, event)
    weighed = event.input_tokens - summary.before_tokens + summary.after_tokens
    # Messages are counted from the first that is left: none of those is omitted.
    cuts = _replace(run.cuts, compacted=None, omitted=0, weighed_tokens=weighed)
    return {"summary": summary, "cuts": cuts}


@_rule(ev.CompactionSkipped)
def _compaction_skipped(run: Run, event: ev.CompactionSkipped, _at_ms: int) -> Changes:
    _require(is_between_turns(run), run, event)
    return {"cuts": _replace(run.cuts, weighed_tokens=event.input_tokens)}


@_rule(ev.ContextAssembled)
def _context_assembled(run: Run, event: ev.ContextAssembled, _at_ms: int) -> Changes:
    _require(not run.turn_is_open, run, event)
    budget = event.budget
    factor_bps = FACTOR if budget is None else budget.factor_bps
    asked = _replace(run.asked, input_tokens=event.input_tokens, factor_bps=factor_bps)
    changes: Changes = {"asked": asked}
    if budget is not None:
        changes["cuts"] = _replace(run.cuts, omitted=budget.omitted, pruned=budget.pruned)
    known = run.input_trust
    others = [
        segment["trust"]
        for segment in event.segments
        if "trust" in segment and segment["trust"] != known
    ]
    if others:
        changes["input_trust"] = lowest((known, *others))
    return changes


@_rule(ev.ContextGathered)
def _context_gathered(run: Run, event: ev.ContextGathered, _at_ms: int) -> Changes:
    """Keep a source of the whole run, or attach references to their user message."""
    _require(is_between_turns(run), run, event)
    is_tainted = run.is_tainted or any(source.findings for source in event.sources)
    if event.message is None:
        return {"is_gathered": True, "is_tainted": is_tainted, "sources": (*run.sources, event)}
    found = next(islice(own_messages(run), event.message, None), None)
    _require(found is not None and bool(event.sources), run, event)
    resolved = _replace(cast("UserMessage", found), references=event.sources)
    changes: Changes = {
        "transcript": tuple(resolved if each is found else each for each in run.transcript),
        "steers": tuple(resolved if each is found else each for each in run.steers),
    }
    left = find_unresolved(_replace(run, **changes))
    return {"is_tainted": is_tainted, "has_references": bool(left), **changes}


@_rule(ev.TurnStarted)
def _turn_started(run: Run, event: ev.TurnStarted, _at_ms: int) -> Changes:
    """Open the next attempt at the same turn, or the next turn once every call is attested."""
    asked: Changes = {
        "asked": _replace(run.asked, model=event.model, provider=event.provider),
        "exceeded": None,
        "attempt": event.attempt,
        "turn_is_open": True,
    }
    if event.turn == run.turn and event.attempt == run.attempt + 1:
        return asked
    is_next = event.turn == run.turn + 1 and event.attempt == 1
    _require(is_next and event.continues == run.is_cut and is_between_turns(run), run, event)
    return asked | {
        "turn": event.turn,
        "left": (),
        "spent_attempts": 0,
        "calls": (),
        "steers": (),
        "guidance": (),
        "continuations": run.continuations + 1 if event.continues else 0,
        "transcript": transcript_with_results(run),
    }


@_rule(ev.TurnCompleted)
def _turn_completed(run: Run, event: ev.TurnCompleted, _at_ms: int) -> Changes:
    """Close the turn; a text that continues a cut one is joined with it."""
    _require(run.turn_is_open and event.turn == run.turn, run, event)
    transcript: tuple[Message, ...]
    if run.continuations:
        *before, last = run.transcript
        start = cast("AssistantMessage", last)  # or the turn would not have continued it
        text = start.text + event.text
        turns = start.turns + 1
        transcript = (*before, AssistantMessage(text, event.calls, turns, event.thought))
    else:
        said = AssistantMessage(event.text, event.calls, thought=event.thought)
        transcript = (*run.transcript, said)
    cost = None if event.is_unpriced else event.cost_usd_micros
    return (
        _charge(run, Charge(usage=event.usage, cost_usd_micros=cost))
        | _learn(run, event)
        | {
            "turn_is_open": False,
            "finish_reason": event.finish_reason,
            "recoveries": 0,
            "good_tokens": run.asked.input_tokens,
            "transcript": transcript,
            "calls": tuple(
                Call(call_id=call.call_id, tool=call.tool, arguments=call.arguments)
                for call in event.calls
            ),
        }
    )


def _learn(run: Run, event: ev.TurnCompleted) -> Changes:
    """Compare the provider's count of input tokens with the estimate."""
    asked = run.asked
    if asked.input_tokens < LEARN_FROM_TOKENS:
        return {}
    factor_bps = learn_factor(asked.factor_bps, asked.input_tokens, event.usage.input_tokens)
    if factor_bps == run.token_bps.get(asked.model, FACTOR):
        return {}
    return {"token_bps": run.token_bps | {asked.model: factor_bps}}


@_rule(ev.TurnFailed)
def _turn_failed(run: Run, event: ev.TurnFailed, _at_ms: int) -> Changes:
    _require(run.turn_is_open and event.turn == run.turn, run, event)
    return _charge(run, event.charge) | {"turn_is_open": False}


@_rule(ev.ItemRefused)
def _item_refused(run: Run, event: ev.ItemRefused, _at_ms: int) -> Changes:
    names = [f"{event.item}:{name}" for name in (event.name, *event.also)]
    is_new = event.turn == run.turn and not set(names) & set(run.refused)
    _require(not run.turn_is_open and is_new, run, event)
    return {"refused": (*run.refused, *names), "spent_attempts": run.attempt}


def _charge(run: Run, charge: Charge | None) -> Changes:
    """Add the usage and the cost of one model call."""
    if charge is None:
        return {}
    costs = _replace(
        run.costs,
        usage=run.costs.usage.plus(charge.usage),
        usd_micros=run.costs.usd_micros + (charge.cost_usd_micros or 0),
        unpriced_calls=run.costs.unpriced_calls + (charge.cost_usd_micros is None),
    )
    return {"costs": costs}


@_rule(ev.BudgetExceeded)
def _budget_exceeded(run: Run, event: ev.BudgetExceeded, _at_ms: int) -> Changes:
    _require(run.turn_is_open and event.turn == run.turn, run, event)
    return {"turn_is_open": False, "exceeded": event}


# --- tool calls ----------------------------------------------------------------------------------


def _advance(
    run: Run,
    event: Any,  # noqa: ANN401 - every event about a call
    verdict: str = "",
    **fields: Any,  # noqa: ANN401 - fields of Call, checked by replace
) -> tuple[Call, ...]:
    """Return the run's calls with one of them moved on as `CALL_TRANSITIONS` says."""
    legal, phase = CALL_TRANSITIONS[type(event), verdict]
    calls, call_id = list(run.calls), event.call_id
    for index, call in enumerate(calls):
        if call.call_id == call_id and call.phase in legal:
            calls[index] = _replace(call, phase=phase, **fields)
            return tuple(calls)
    raise _illegal(run, event)


@_rule(ev.ToolProposed)
def _tool_proposed(run: Run, event: ev.ToolProposed, _at_ms: int) -> Changes:
    calls = _advance(
        run,
        event,
        arguments=event.arguments,
        digest=event.digest,
        tool_class=event.tool_class,
        may_rerun=event.may_rerun,
        path_key=event.path_key,
        executor=event.executor,
        enforcement=event.enforcement,
    )
    return {"calls": calls, "tool_calls": run.tool_calls + 1}


@_rule(ev.ToolRejected)
def _tool_rejected(run: Run, event: ev.ToolRejected, _at_ms: int) -> Changes:
    text = f"{event.reason}\n{event.repair_hint}".rstrip()
    return {"calls": _advance(run, event, status="rejected", output=text)}


_NO_APPROVAL: Changes = {
    "approval_id": None, "approval_digest": "", "approval_expires_ms": 0, "covers": (),
}  # fmt: skip


@_rule(ev.ApprovalRequested)
def _approval_requested(run: Run, event: ev.ApprovalRequested, at_ms: int) -> Changes:
    subject = find_subject(event)
    since_ms = run.clock.asked_ms
    asked = _replace(run.clock, asked_ms=at_ms if since_ms is None else since_ms)
    if subject == "budget":
        _require(run.exceeded is not None and run.clock.asked_ms is None, run, event)
        return {"question": Question(event.approval_id, subject), "clock": asked}
    calls = _advance(
        run,
        event,
        approval_id=event.approval_id,
        approval_digest=event.digest,
        approval_expires_ms=event.expires_ms,
        covers=event.covers,
        policy_version=event.policy_version,
    )
    return {"calls": calls, "clock": asked}


@_rule(ev.ApprovalResolved)
def _approval_resolved(run: Run, event: ev.ApprovalResolved, at_ms: int) -> Changes:
    """Close an approval request; the time until the last answer is not the run's own."""
    question, clock = run.find_question(event.approval_id), run.clock
    if question is None or question.call_id != event.call_id or clock.asked_ms is None:
        raise _illegal(run, event)
    waited: Changes = {}
    if not any(_waits(call) and call.call_id != event.call_id for call in run.calls):
        people_ms = clock.people_ms + max(0, at_ms - clock.asked_ms)
        waited = {"clock": _replace(clock, asked_ms=None, people_ms=people_ms)}
    if question.subject == "budget":
        exceeded = cast("ev.BudgetExceeded", run.exceeded)  # or it could not have been asked
        lifted = {exceeded.budget_id} if event.decision == "allow" else set()
        return waited | {"question": None, "lifted": run.lifted | lifted}
    if event.decision == "abort":
        fields = _NO_APPROVAL if event.by == RULES_CHANGED else {}
    else:
        fields = {"answer": event.decision, "answered_by": event.by}
    return waited | {"calls": _advance(run, event, event.decision, **fields)}


@_rule(ev.ToolDecided)
def _tool_decided(run: Run, event: ev.ToolDecided, _at_ms: int) -> Changes:
    """Record the verdict, and the approval of an equal call that also covers this one."""
    fields: Changes = {"policy_version": event.policy_version}
    if event.approval_id is not None:
        asked = run.find_asked(event.call_id)
        _require(asked is not None and asked.approval_id == event.approval_id, run, event)
        fields |= {name: getattr(asked, name) for name in _NO_APPROVAL}
    if event.verdict == "allow":
        return {"calls": _advance(run, event, "allow", grant_id=event.grant_id, **fields)}
    calls = _advance(run, event, "deny", status="denied", output=event.reason, **fields)
    if event.reason_code != DENIED_BY_PERSON:
        return {"calls": calls}
    call = cast("Call", run.find_call(event.call_id))
    return {"calls": calls, "denied": run.denied | {(call.tool, call.digest)}}


@_rule(ev.ToolStarted)
def _tool_started(run: Run, event: ev.ToolStarted, at_ms: int) -> Changes:
    calls = _advance(
        run,
        event,
        started_ms=at_ms,
        executor=event.executor,
        enforcement=event.enforcement,
        batch=event.batch,
    )
    return {"calls": calls}


@_rule(ev.ToolCompleted)
def _tool_completed(run: Run, event: ev.ToolCompleted, _at_ms: int) -> Changes:
    shown = event.output if event.error is None else f"{event.output}{event.error}"
    calls = _advance(
        run,
        event,
        status=event.status,
        output=shown,
        trust=event.trust,
        findings=event.findings,
        artifact=event.artifact,
        pictures=event.pictures,
    )
    return {
        "calls": calls,
        "recoveries": run.recoveries if event.status == "unknown" else 0,
        "is_tainted": run.is_tainted or bool(event.findings),
    }


@_rule(ev.DelegationStarted)
def _delegation_started(run: Run, event: ev.DelegationStarted, _at_ms: int) -> Changes:
    call = run.find_call(event.call_id)
    _require(call is not None and call.delegated is None, run, event)
    delegated = DelegatedRun(run_id=event.run_id, budget=event.budget)
    return {"calls": _advance(run, event, delegated=delegated)}


@_rule(ev.DelegationEnded)
def _delegation_ended(run: Run, event: ev.DelegationEnded, _at_ms: int) -> Changes:
    """Settle the share of the delegated run: its usage replaces the reserved budget.

    The time in which delegated runs asked a person is not the run's own.
    """
    call = run.find_call(event.call_id)
    delegated = None if call is None else call.delegated
    is_open = delegated is not None and not delegated.is_ended
    _require(is_open and delegated is not None and delegated.run_id == event.run_id, run, event)
    ended = _replace(cast("DelegatedRun", delegated), is_ended=True)
    costs = _replace(
        run.costs,
        delegated_usage=run.costs.delegated_usage.plus(event.usage),
        delegated_usd_micros=run.costs.delegated_usd_micros + event.cost_usd_micros,
    )
    return {
        "calls": _advance(run, event, delegated=ended),
        "costs": costs,
        "clock": _replace(run.clock, people_ms=run.clock.people_ms + event.people_ms),
    }


@_rule(ev.ToolAttested)
def _tool_attested(run: Run, event: ev.ToolAttested, _at_ms: int) -> Changes:
    """Record the attestation; after the last one of a turn the loop guard sees the turn."""
    attested = run.find_call(event.call_id)
    delegated = None if attested is None else attested.delegated
    _require(delegated is None or delegated.is_ended, run, event)
    status = str(event.attestation.get("status", ""))
    digest = str(event.attestation.get("output_sha256", ""))
    calls = _advance(run, event, status=status, output_sha256=digest)
    changes: Changes = {"calls": calls, "attestation_head": event.digest}
    if _is_attested(calls):
        changes["progress"] = observe(run.progress, calls)
    return changes


# --- between turns, and the end ------------------------------------------------------------------


@_rule(ev.SteerReceived)
def _steer_received(run: Run, event: ev.SteerReceived, _at_ms: int) -> Changes:
    message = UserMessage(event.text, recorded_pictures(event.attachments))
    return {
        "steers": (*run.steers, message),
        "has_references": run.has_references or has_references(event.text),
        "progress": reset_counts(run.progress),
    }


@_rule(ev.AnswerRejected)
def _answer_rejected(run: Run, event: ev.AnswerRejected, _at_ms: int) -> Changes:
    _require(is_between_turns(run) and run.turn > 0 and not run.calls, run, event)
    return {"guidance": (*run.guidance, event.guidance), "rejections": run.rejections + 1}


@_rule(ev.TodosChanged)
def _todos_changed(run: Run, event: ev.TodosChanged, _at_ms: int) -> Changes:
    _require(any(call.phase == "completed" for call in run.calls), run, event)
    return {"todos": event.todos}


@_rule(ev.GuardWarned)
def _guard_warned(run: Run, event: ev.GuardWarned, _at_ms: int) -> Changes:
    _require(is_between_turns(run) and bool(run.calls), run, event)
    return {"guidance": (*run.guidance, event.guidance), "progress": clear_findings(run.progress)}


@_rule(ev.GuardBlocked)
def _guard_blocked(run: Run, event: ev.GuardBlocked, _at_ms: int) -> Changes:
    _require(is_between_turns(run) and bool(run.calls), run, event)
    return {}


@_rule(ev.MessageCompleted)
def _message_completed(run: Run, event: ev.MessageCompleted, _at_ms: int) -> Changes:
    _require(is_between_turns(run), run, event)
    return {}


@_rule(ev.RunRecovered)
def _run_recovered(run: Run, event: ev.RunRecovered, at_ms: int) -> Changes:
    """Abandon an open turn; downtime counts unless the run had not started or was waiting."""
    _require(event.attempt - run.recoveries in {0, 1}, run, event)
    clock = run.clock
    stood_still = clock.started_ms is None or clock.asked_ms is not None
    down_ms = clock.down_ms + (0 if stood_still else max(0, at_ms - run.last_ms))
    return _charge(run, event.abandoned) | {
        "recoveries": event.attempt,
        "turn_is_open": False,
        "clock": _replace(clock, down_ms=down_ms),
    }


@_rule(ev.RunDone)
def _run_done(run: Run, event: ev.RunDone, at_ms: int) -> Changes:
    _require(is_between_turns(run), run, event)
    return {"clock": _replace(run.clock, finished_ms=at_ms), "reason": event.reason}


@_rule(ev.RunFailed)
def _run_failed(run: Run, event: ev.RunFailed, at_ms: int) -> Changes:
    _require(all(call.phase in CLOSED for call in run.calls), run, event)
    reason = f"{event.failure_class}: {event.reason}"
    clock = _replace(run.clock, finished_ms=at_ms)
    return _charge(run, event.abandoned) | {"clock": clock, "reason": reason}


@_rule(ev.RunCancelled)
def _run_cancelled(run: Run, event: ev.RunCancelled, at_ms: int) -> Changes:
    _require(all(call.phase in CLOSED for call in run.calls), run, event)
    clock = _replace(run.clock, finished_ms=at_ms)
    return _charge(run, event.abandoned) | {"clock": clock, "reason": event.reason}


@_rule(ev.RunUndone)
def _run_undone(_run: Run, _event: ev.RunUndone, _at_ms: int) -> Changes:
    return {}
