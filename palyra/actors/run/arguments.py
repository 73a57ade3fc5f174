"""Unredacted arguments of the calls of the open turn.

The tape has the arguments redacted; the unredacted ones are kept here, in memory only, by one run
actor.  They do not survive a restart: a call whose arguments held a secret must be proposed again.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import msgspec

from palyra.core.access import Caller
from palyra.core.approval import ResolveApproval
from palyra.core.context.assembly import Prefix
from palyra.core.model.messages import ProposedCall
from palyra.core.policy.gate import NeedsApproval
from palyra.core.policy.request import PolicyDecision
from palyra.core.policy.validation import CheckedCall, ValidatedCall, is_light
from palyra.core.ports import RunBlocking
from palyra.core.run.call import Call
from palyra.core.run.environment import GatedCall
from palyra.core.run.state import Run
from palyra.core.tool.attestation import execution_digest
from palyra.core.tool.spec import Preflight, ToolCall
from palyra.services.gate import Gate


class CallArguments:
    """Arguments of one run's calls, as proposed and as coerced, with their inspections.

    Validations are cached by call id.  An inspection may hold secrets as well.
    """

    __slots__ = (
        "_arguments", "_find_end", "_inspections", "_prefix", "_proposed", "_validated", "gate",
    )  # fmt: skip

    def __init__(self, gate: Gate, prefix: Prefix, find_end: Callable[[], str]) -> None:
        """`find_end` returns why the model gets no further turn, or "" if it may."""
        self.gate = gate
        self._find_end = find_end
        self._prefix = prefix
        self._proposed: dict[str, ProposedCall] = {}
        self._arguments: dict[str, Any] = {}
        self._inspections: dict[str, Preflight] = {}
        self._validated: dict[str, ValidatedCall] = {}

    async def validate_ahead(
        self, calls: Sequence[ProposedCall], run_blocking: RunBlocking
    ) -> None:
        """Validate the calls of a turn before the run decides on it, in a thread unless light.

        Cancellation: the thread finishes first.
        """
        if is_light(calls, self._prefix.catalogue):
            return
        validate = partial(self.gate.validate, prefix=self._prefix)
        validated = await run_blocking(lambda: [validate(call) for call in calls])
        self._validated.update((each.proposal.call_id, each) for each in validated)

    async def reload(self, run: Run, run_blocking: RunBlocking) -> None:
        """Keep and validate the calls on the tape, after a restart."""
        self.keep(map(self._written, run.calls))
        await self.validate_ahead(tuple(self._proposed.values()), run_blocking)

    def keep(self, calls: Iterable[ProposedCall]) -> None:
        """Replace the calls of the previous turn by those of this one."""
        self._proposed = {call.call_id: call for call in calls}
        self._validated = {
            call_id: validated
            for call_id, validated in self._validated.items()
            if validated.proposal is self._proposed.get(call_id)
        }
        self._arguments.clear()
        self._inspections.clear()

    def note(self, call_id: str, seen: Preflight) -> None:
        """Keep the result of the call's inspection."""
        self._inspections[call_id] = seen

    def evaluate(self, run: Run, call: Call) -> GatedCall:
        """Evaluate one call with its unredacted arguments.

        A question is about the execution object: the call exactly as it would run, the rules'
        version, and all later calls of the turn that are equal to it, which one answer decides.
        """
        inspection = self._inspections.get(call.call_id)
        validated = self._validate(self._written(call))
        gated = self.gate.evaluate(run, validated, self._prefix, inspection, end=self._find_end())
        self._arguments[call.call_id] = gated.arguments
        if not isinstance(gated.verdict, NeedsApproval):
            return gated
        duplicates = self._find_duplicates(run, validated)
        executed = msgspec.structs.replace(self.tool_call(run, call), inspection=inspection)
        covers = (call.call_id, *duplicates)
        digest = execution_digest(executed, gated.verdict.version, covers)
        return msgspec.structs.replace(gated, execution_digest=digest, duplicates=duplicates)

    def tool_call(self, run: Run, call: Call) -> ToolCall:
        """Return the call as the executor gets it: arguments as gated or, after a restart, as taped."""
        spec = self.gate.find_spec(call.tool)
        return ToolCall(
            call_id=call.call_id,
            run_id=run.run_id,
            session_id=run.accepted.session_id,
            principal=run.accepted.principal,
            tool=call.tool,
            tool_version=spec.version if spec is not None else "",
            arguments=self._arguments.get(call.call_id, call.arguments),
            channel=run.accepted.channel,
            memory_scope=self._prefix.agent.memory_scope,
            trust=run.input_trust,
        )

    def _written(self, call: ProposedCall | Call) -> ProposedCall:
        """Return the call as proposed or, after a restart, as taped."""
        return self._proposed.get(call.call_id) or ProposedCall(
            call_id=call.call_id, tool=call.tool, arguments=call.arguments
        )

    def _find_duplicates(self, run: Run, validated: ValidatedCall) -> tuple[str, ...]:
        """Return the ids of later calls of the turn with the same tool and equal arguments."""
        proposal = validated.proposal
        ids = [call.call_id for call in run.calls]
        later = run.calls[ids.index(proposal.call_id) + 1 :]
        same = [self._written(call) for call in later if call.tool == proposal.tool]
        return tuple(
            other.call_id
            for other in same
            if self._validate(other).digest == validated.digest
            and isinstance(self._validate(other).result, CheckedCall)
        )

    def _validate(self, written: ProposedCall) -> ValidatedCall:
        """Validate the call once and cache the result; duplicate detection asks again."""
        known = self._validated.get(written.call_id)
        if known is None or known.proposal != written:  # another turn may reuse the id
            known = self._validated[written.call_id] = self.gate.validate(written, self._prefix)
        return known

    def judge_answer(
        self, run: Run, caller: Caller, answer: ResolveApproval
    ) -> PolicyDecision | None:
        """Decide if the rules permit the caller to give this answer about a call.

        None if no call waits for that approval.
        """
        call = run.find_asking(answer.approval_id)
        if call is None:
            return None
        asked = self._validate(self._written(call))
        return self.gate.judge_answer(run, asked, self._prefix, caller, answer)
