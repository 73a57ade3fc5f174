"""The inputs and the effects of a run.

Effects are frozen data; the run actor performs them, each only after the events of the same step
are committed where the effect says so (`wire, tape, act`).
"""

from typing import Any, Literal

import msgspec

from palyra.core.incident.incident import IncidentReport
from palyra.core.journal.records import ApprovalScope, Charge
from palyra.core.model.messages import FailureClass, ModelRequest, ModelTurn
from palyra.core.tape.events import BudgetExceeded, SteerReceived
from palyra.core.tool.spec import OutcomeStatus
from palyra.core.trust.labels import Trust


class _Data(msgspec.Struct, frozen=True, kw_only=True):
    pass


# --- inputs --------------------------------------------------------------------------------------


class Begin(_Data, frozen=True, kw_only=True):
    """The session gave the run its turn, with what was said in it before."""

    instance_id: str
    history: tuple[str, ...] = ()
    history_is_cut: bool = False
    is_tainted: bool = False


class Resume(_Data, frozen=True, kw_only=True):
    """The daemon restarted, or the run's actor crashed: go on from the tape."""

    abandoned: Charge | None = None  # the model call that was under way, estimated
    is_put_off: bool = False  # the journal refused its writes: no attempt of the run's own


class TurnFinished(_Data, frozen=True, kw_only=True):
    """The model answered."""

    turn: int
    attempt: int
    result: ModelTurn


class TurnFailedInput(_Data, frozen=True, kw_only=True):
    """The model did not answer; `had_output` forbids a retry."""

    turn: int
    attempt: int
    failure_class: FailureClass
    detail: str
    had_output: bool
    retry_after_ms: int | None = None  # what the provider asks for, at least
    charge: Charge | None = None  # what it took all the same
    was_asked: bool = True  # False: nothing was tried, so there was no call


class BudgetRefused(_Data, frozen=True, kw_only=True):
    """The model was not called: a budget does not allow it."""

    exceeded: BudgetExceeded
    approval_id: str = ""  # of the question, where it may be put to somebody


class ApprovalAnswered(_Data, frozen=True, kw_only=True):
    """A person, a deadline or a rule answered the prompt."""

    approval_id: str
    decision: Literal["allow", "deny"]
    scope: ApprovalScope
    by: str
    reason: str
    ttl_ms: int | None = None  # of a timeboxed answer


class CallInspected(_Data, frozen=True, kw_only=True):
    """What a call would meet was looked at; `failure` says why it could not run."""

    call_id: str
    failure: str = ""


class RulesChanged(_Data, frozen=True, kw_only=True):
    """Other rules are in force: what was asked under the old ones is judged again."""


class GoOn(_Data, frozen=True, kw_only=True):
    """Others have had their turn: gate the calls that are still to be gated."""


class CallEnded(_Data, frozen=True, kw_only=True):
    """A started call came to its end.  `output` is redacted, as it will stand on the tape."""

    call_id: str
    status: OutcomeStatus
    output: str
    raw_sha256: str  # of the output before redaction and excerpt
    took_ms: int = 0  # since it was started; measured, so that no jump of the wall clock is in it
    error: str | None = None
    is_truncated: bool = False
    executor: str = "none"
    enforcement: str = "none"
    artifact: str | None = None  # where the whole output is, when `output` is only an excerpt
    trust: Trust = "trusted_local"
    findings: tuple[str, ...] = ()  # what the scanner for injected instructions found in it


class Steer(_Data, frozen=True, kw_only=True):
    """A word to the run under way."""

    text: str
    by: str
    attachments: tuple[dict[str, Any], ...] = ()

    @property
    def event(self) -> SteerReceived:
        """The message as its event."""
        return SteerReceived(text=self.text, by=self.by, attachments=self.attachments)


class Cancel(_Data, frozen=True, kw_only=True):
    """Stop; the actor has already stopped every child when it passes this on."""

    reason: str
    by: str
    abandoned: Charge | None = None  # the model call that was under way


class Expire(_Data, frozen=True, kw_only=True):
    """The wall clock ran out; children are stopped as for Cancel."""

    wall_ms: int
    abandoned: Charge | None = None  # the model call that was under way


Input = (
    Begin
    | Resume
    | TurnFinished
    | TurnFailedInput
    | BudgetRefused
    | ApprovalAnswered
    | CallInspected
    | RulesChanged
    | GoOn
    | CallEnded
    | Steer
    | Cancel
    | Expire
)

# --- effects -------------------------------------------------------------------------------------


class CallModel(_Data, frozen=True, kw_only=True):
    """Ask the model, after a pause.  May start before its events are committed: it only costs."""

    request: ModelRequest
    delay_ms: int


class AskPerson(_Data, frozen=True, kw_only=True):
    """Put the prompt before people, once it is committed."""

    approval_id: str


class Inspect(_Data, frozen=True, kw_only=True):
    """Look at what the call would meet, before anybody is asked about it."""

    call_id: str


class Execute(_Data, frozen=True, kw_only=True):
    """Run the call, once `tool.started` (or the recovery that repeats it) is committed."""

    call_id: str
    approval_digest: str | None
    covers: tuple[str, ...] = ()  # calls that the approval is for, when there are several


class ReportIncident(_Data, frozen=True, kw_only=True):
    """Record something that must not pass unnoticed, together with the events of the step."""

    alarm: IncidentReport


class Yield(_Data, frozen=True, kw_only=True):
    """Let others have their turn; the run then hears GoOn."""


Effect = CallModel | AskPerson | Inspect | Execute | ReportIncident | Yield
