"""The inputs and the effects of a run, as frozen data.

An input is decided by `core.run.decide`; the effects of the step are performed by the run actor.
An effect that touches the world waits for the commit of the events of its step (wire, tape, act).
"""

from typing import Any, Literal

import msgspec

from palyra.core.incident.incident import IncidentReport
from palyra.core.journal.records import ApprovalScope, Charge, SessionMode
from palyra.core.model.images import Picture
from palyra.core.model.messages import FailureClass, ModelRequest, ModelTurn
from palyra.core.tape.events import (
    BudgetExceeded,
    CompactionApplied,
    CompactionSkipped,
    CompactionTrigger,
    ContextGathered,
    SteerReceived,
    Todo,
)
from palyra.core.tool.spec import DelegatedEnd, OutcomeStatus
from palyra.core.trust.labels import Trust


class _Data(msgspec.Struct, frozen=True, kw_only=True):
    pass


# --- inputs --------------------------------------------------------------------------------------


class Begin(_Data, frozen=True, kw_only=True):
    """The session starts the run, with the history of the session."""

    instance_id: str
    history: tuple[str, ...] = ()
    history_is_cut: bool = False
    is_tainted: bool = False
    token_bps: dict[str, int] = {}
    refused: tuple[str, ...] = ()
    mode: SessionMode = "ask"
    todos: tuple[Todo, ...] = ()


class Gathered(_Data, frozen=True, kw_only=True):
    """The texts that `Gather` asked for, in the order in which they were asked for."""

    events: tuple[ContextGathered, ...]


class Resume(_Data, frozen=True, kw_only=True):
    """Resume from the tape after a restart of the daemon or of the run's actor."""

    abandoned: Charge | None = None  # the open model call, estimated
    is_put_off: bool = False  # True: the journal refused writes; the attempt does not count


class TurnFinished(_Data, frozen=True, kw_only=True):
    """The model answered."""

    turn: int
    attempt: int
    result: ModelTurn


class TurnFailedInput(_Data, frozen=True, kw_only=True):
    """The model call failed."""

    turn: int
    attempt: int
    failure_class: FailureClass
    detail: str
    is_final: bool = False  # another attempt would fail as well
    retry_after_ms: int | None = None  # shortest wait the provider demands
    charge: Charge | None = None  # cost of the failed call
    was_asked: bool = True  # False: the request was never sent
    refused_tools: tuple[str, ...] = ()  # found to be why the provider refused the request


class BudgetRefused(_Data, frozen=True, kw_only=True):
    """A budget forbids the model call, which was not made."""

    exceeded: BudgetExceeded
    approval_id: str = ""  # for an approval request; "": none may be made


class ApprovalAnswered(_Data, frozen=True, kw_only=True):
    """Answer to an approval request, by a person, a deadline or a grant."""

    approval_id: str
    decision: Literal["allow", "deny"]
    scope: ApprovalScope
    by: str
    reason: str
    ttl_ms: int | None = None  # of a timeboxed answer


class CallInspected(_Data, frozen=True, kw_only=True):
    """The inspection of a call's targets ended; `failure` says why the call cannot run."""

    call_id: str
    failure: str = ""


class RulesChanged(_Data, frozen=True, kw_only=True):
    """The rules changed: questions asked under the old ones are evaluated again."""


class Summarised(_Data, frozen=True, kw_only=True):
    """The outcome of Summarise: an event to record."""

    event: CompactionApplied | CompactionSkipped


class GoOn(_Data, frozen=True, kw_only=True):
    """Continue after a Yield: evaluate the calls that are still named."""


class CallEnded(_Data, frozen=True, kw_only=True):
    """A started call ended.  `output` is redacted, as on the tape."""

    call_id: str
    status: OutcomeStatus
    output: str
    raw_sha256: str  # of the output before redaction and excerpt
    took_ms: int = 0  # duration, by the monotonic clock
    error: str | None = None
    is_truncated: bool = False
    executor: str = "none"
    enforcement: str = "none"
    artifact: str | None = None  # name of the whole output, if `output` is an excerpt
    trust: Trust = "trusted_local"
    findings: tuple[str, ...] = ()  # of the injection scanner
    pictures: tuple[Picture, ...] = ()
    delegated: DelegatedEnd | None = None  # the end of the run that the call delegated to


class Steer(_Data, frozen=True, kw_only=True):
    """Steering message to an open run."""

    text: str
    by: str
    attachments: tuple[dict[str, Any], ...] = ()

    @property
    def event(self) -> SteerReceived:
        """The message as its event."""
        return SteerReceived(text=self.text, by=self.by, attachments=self.attachments)


class Cancel(_Data, frozen=True, kw_only=True):
    """Cancel the run; the actor has stopped every child before."""

    reason: str
    by: str
    abandoned: Charge | None = None  # the open model call, estimated


class Expire(_Data, frozen=True, kw_only=True):
    """The wall clock limit passed; every child is stopped, as for Cancel."""

    wall_ms: int
    abandoned: Charge | None = None  # the open model call, estimated


Input = (
    Begin
    | Gathered
    | Resume
    | TurnFinished
    | TurnFailedInput
    | BudgetRefused
    | ApprovalAnswered
    | CallInspected
    | RulesChanged
    | Summarised
    | GoOn
    | CallEnded
    | Steer
    | Cancel
    | Expire
)

# --- effects -------------------------------------------------------------------------------------


class CallModel(_Data, frozen=True, kw_only=True):
    """Call the model after a pause.  May start before the commit: a repeat only costs money."""

    request: ModelRequest
    delay_ms: int


class Summarise(_Data, frozen=True, kw_only=True):
    """Summarise the older part of the conversation; the run then gets Summarised."""

    trigger: CompactionTrigger
    input_tokens: int  # of the prompt without the new summary


class Gather(_Data, frozen=True, kw_only=True):
    """Gather texts for the prompt of the next turn, each within a deadline."""

    messages: tuple[tuple[int, str], ...] = ()  # user messages with references: number and text
    is_first: bool = False  # also what belongs to the whole run: project files, memories


class AskPerson(_Data, frozen=True, kw_only=True):
    """Publish the approval request once it is committed."""

    approval_id: str


class Inspect(_Data, frozen=True, kw_only=True):
    """Inspect the targets of the call before an approval is requested."""

    call_id: str


class Execute(_Data, frozen=True, kw_only=True):
    """Run the call, once `tool.started` (or the recovery that repeats it) is committed."""

    call_id: str
    approval_digest: str | None
    covers: tuple[str, ...] = ()  # ids of all calls that the approval is for, if several


class ReportIncident(_Data, frozen=True, kw_only=True):
    """Record an incident together with the events of the step."""

    alarm: IncidentReport


class Yield(_Data, frozen=True, kw_only=True):
    """Yield to the event loop; the run then gets GoOn."""


Effect = Gather | CallModel | Summarise | AskPerson | Inspect | Execute | ReportIncident | Yield
