"""The vocabulary of `core.run`: what a run hears (inputs), wants done (effects) and may ask for.

Effects are frozen data; the run actor performs them, each only after the events of the same step
are committed where the effect says so (`wire, tape, act`).
"""

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from palyra.core.ids import NewId
from palyra.core.incident.incident import IncidentReport
from palyra.core.journal.records import ApprovalScope, Charge
from palyra.core.model.messages import FailureClass, ModelRequest, ModelTurn, ProposedCall
from palyra.core.model.route_plan import Leaving, RouteChange, RoutePlan
from palyra.core.policy.gate import Allow, Deny, NeedsApproval
from palyra.core.run.answer import AnswerDefect, find_flaw
from palyra.core.run.call import Call
from palyra.core.run.state import Run
from palyra.core.tape.events import BudgetExceeded, Compaction, ContextAssembled
from palyra.core.tool.arguments import Refused
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

# --- what a step may ask for ---------------------------------------------------------------------


class GatedCall(_Data, frozen=True, kw_only=True):
    """Intake and gate of one proposed call."""

    digest: str  # SHA-256 of the canonical arguments
    tool_class: str
    arguments: Any  # after coercion
    verdict: Refused | Allow | Deny | NeedsApproval
    coercions: tuple[str, ...] = ()
    execution_digest: str = ""  # SHA-256 of the canonical execution object
    executor: str = "none"
    enforcement: str = "none"
    may_rerun: bool = False
    path_key: str | None = None
    inspects: bool = False  # first look at what the call would meet, then prepare it again
    inspection: Any = None  # what it would meet, to be shown
    twins: tuple[str, ...] = ()  # later calls of the turn that are the same


class RunLimits(_Data, frozen=True, kw_only=True):
    """Bounds of a run, from the configuration."""

    wall_ms: int = 900_000
    wall_counts_approvals: bool = False  # whether the wall clock goes on while a person is asked
    approval_ms: int = 900_000
    max_turns: int = 256
    model_retries: int = 2
    max_recoveries: int = 3
    max_parallel: int = 4


class RunEnvironment(_Data, frozen=True, kw_only=True):
    """Everything impure or foreign that a step needs, as values and functions."""

    now_ms: Callable[[], int]
    new_id: NewId
    redact: Callable[[bytes], tuple[bytes, bool]]
    sign: Callable[[bytes], bytes]
    prepare: Callable[[Run, ProposedCall], GatedCall]  # intake and gate
    assemble: Callable[[Run, int, int], tuple[ContextAssembled, ModelRequest]]  # turn, attempt
    jitter_ms: Callable[[int], int]  # back-off before attempt n
    provider: Callable[[str], str]  # whose a model is
    limits: RunLimits
    plan_route: Callable[[Run], RoutePlan | None] = lambda _run: None
    # Who takes over: `may_retry` says that the model now in use could still be asked again.
    change_route: Callable[[Run, Leaving, bool], RouteChange | None] = (
        lambda _run, _leaving, _may_retry: None
    )
    compact: Callable[[Run], Compaction | None] = lambda _run: None  # what can be left out
    is_stale: Callable[[Call], bool] = lambda _call: False  # judged under rules that hold no more
    judge: Callable[[Run], AnswerDefect | None] = find_flaw  # the last turn's text as an answer
    has_lapsed: Callable[[Call], bool] = lambda _call: False  # allowed on a grant that has ended
