"""The environment of a run: everything impure or configured that a decision may ask for.

`decide(run, input, env)` is deterministic except for the answers of `env`.  Two classes implement
`RunEnvironment`:

- `actors.run.environment.LiveEnvironment` asks the clock, the gate, the context assembly and the
  model router.  There is one object per run actor, bound when the actor starts.
- `core.replay.recorded_environment.RecordedEnvironment` answers from the tape of the run.  Its
  strict subclass asks the environment of today for everything that the configuration decides.

A decision may be computed twice for one step (`core.run.step`), so no method may count its
calls or reserve anything.  No method waits: the longest, `evaluate`, takes about 0.3 ms.
"""

from typing import Any, Protocol

import msgspec

from palyra.core.ids import Prefix
from palyra.core.model.messages import FailureClass, ModelRequest
from palyra.core.model.route_plan import Leaving, RouteChange, RoutePlan
from palyra.core.policy.gate import Allow, Deny, NeedsApproval
from palyra.core.run.answer import AnswerDefect
from palyra.core.run.call import Call
from palyra.core.run.inputs import Gather
from palyra.core.run.state import Run
from palyra.core.tape.events import (
    Compaction,
    ContextAssembled,
    DelegationStarted,
    ItemRefused,
)
from palyra.core.tool.arguments import Refused


class RunLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of a run, from the configuration."""

    wall_ms: int = 900_000
    wall_counts_approvals: bool = False  # True: the wall clock runs while an approval is pending
    approval_ms: int = 900_000
    max_turns: int = 256
    model_retries: int = 2
    max_recoveries: int = 3
    max_parallel: int = 4


class GatedCall(msgspec.Struct, frozen=True, kw_only=True):
    """Result of validating one proposed call and evaluating it against the rules."""

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
    inspects: bool = False  # inspect the call's targets first, then evaluate it again
    inspection: Any = None  # result of that inspection, shown with the approval request
    duplicates: tuple[str, ...] = ()  # ids of later calls of the turn with equal tool and arguments


class TapeEnvironment(Protocol):
    """The needs of a step that only records events: the time and the redactor."""

    def now_ms(self) -> int:
        """Return the time of the step, Unix milliseconds."""
        ...

    def redact(self, data: bytes, /) -> tuple[bytes, bool]:
        """Replace the secrets in a JSON document; True if there were any."""
        ...


class RunEnvironment(TapeEnvironment, Protocol):
    """The facts that the decisions of one run may request."""

    @property
    def limits(self) -> RunLimits:
        """Bounds of the run."""
        ...

    def new_id(self, prefix: Prefix, /) -> str:
        """Return a fresh id that starts with `prefix` and an underscore."""
        ...

    def sign(self, digest: bytes, /) -> bytes:
        """Sign the digest of an attestation with the daemon's key."""
        ...

    def evaluate(self, run: Run, call: Call, /) -> GatedCall:
        """Validate the call's arguments, evaluate the rules and return the verdict on the call."""
        ...

    def is_stale(self, run: Run, call: Call, /) -> bool:
        """Return True if the rules, or the session's mode, have changed what `call` may do."""
        ...

    def has_lapsed(self, call: Call, /) -> bool:
        """Return True if the grant that `call` was allowed by has ended."""
        ...

    def assemble(
        self, run: Run, turn: int, attempt: int, /
    ) -> tuple[ContextAssembled, ModelRequest]:
        """Build the model request of that turn and attempt, with the event that describes it."""
        ...

    def summary_is_due(self, run: Run, input_tokens: int, /) -> bool:
        """Return True if the conversation should be summarised before that prompt is sent."""
        ...

    def find_sources(self, run: Run, /) -> Gather | None:
        """Return what has to be gathered before the next turn; None if nothing is missing."""
        ...

    def check_answer(self, run: Run, /) -> AnswerDefect | None:
        """Find what is wrong with the last turn's text as the run's answer; None if nothing is."""
        ...

    def provider(self, model: str, /) -> str:
        """Return the name of the model's provider."""
        ...

    def jitter_ms(self, attempt: int, /) -> int:
        """Return the backoff before the attempt after `attempt`, milliseconds."""
        ...

    def plan_route(self, run: Run, /) -> RoutePlan | None:
        """Choose the model of a run that starts; None if there is only one candidate."""
        ...

    def change_route(self, run: Run, leaving: Leaving, /, *, may_retry: bool) -> RouteChange | None:
        """Choose the model that takes over after `leaving`; None if none does.

        `may_retry` is True if the model in use may be asked again.
        """
        ...

    def plan_delegation(self, run: Run, call: Call, /) -> DelegationStarted:
        """Name the run that the call delegates to, and its share of the budget."""
        ...

    def find_refused(
        self, run: Run, failure_class: FailureClass, detail: str, /, *, may_retry: bool
    ) -> ItemRefused | Compaction | None:
        """Return the part of the last prompt that may be why the provider refused it all, or None.

        `may_retry` is True if the same prompt may be sent again.
        """
        ...

    def compact(self, run: Run, /) -> Compaction | None:
        """Plan what to leave out of a prompt that was too large; None if nothing can be."""
        ...
