"""The operands: the calls of the open turn as the model really wrote them.

Owns: arguments before redaction, in memory only; the tape has them redacted.
Written by: one run actor.  Never: survives a restart; what held a secret is proposed again.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from palyra.core.access import Caller
from palyra.core.approval import ResolveApproval
from palyra.core.context.assembly import Prefix
from palyra.core.model.messages import ProposedCall
from palyra.core.policy.request import PolicyDecision
from palyra.core.policy.validation import CheckedCall, ValidatedCall, is_light
from palyra.core.ports import RunBlocking
from palyra.core.run.call import Call
from palyra.core.run.environment import GatedCall
from palyra.core.run.state import Run
from palyra.core.tool.spec import Preflight
from palyra.services.gate import Gate


class CallArguments:
    """Unredacted arguments of one run's calls: as proposed, then as coerced by intake.

    Beside them what a look found that the call would meet, which may hold secrets as well.
    """

    __slots__ = (
        "_arguments", "_find_end", "_inspections", "_prefix", "_proposed", "_taken", "gate",
    )  # fmt: skip

    def __init__(self, gate: Gate, prefix: Prefix, find_end: Callable[[], str]) -> None:
        """`find_end`: why the run's model will not be asked again; "" when it may be."""
        self.gate = gate
        self._find_end = find_end
        self._prefix = prefix
        self._proposed: dict[str, ProposedCall] = {}
        self._arguments: dict[str, Any] = {}
        self._inspections: dict[str, Preflight] = {}
        self._taken: dict[str, ValidatedCall] = {}

    async def take_in(self, calls: Sequence[ProposedCall], run_blocking: RunBlocking) -> None:
        """Intake of a turn that nobody has heard of yet: in a thread, unless it is short.

        Cancellation: not heard while it is in a thread.
        """
        if is_light(calls, self._prefix.catalogue):
            return
        take_in = partial(self.gate.take_in, prefix=self._prefix)
        taken = await run_blocking(lambda: [take_in(call) for call in calls])
        self._taken.update((each.proposal.call_id, each) for each in taken)

    async def reload(self, run: Run, run_blocking: RunBlocking) -> None:
        """The same after a restart, for the calls as the tape has them."""
        self.keep(map(self._written, run.calls))
        await self.take_in(tuple(self._proposed.values()), run_blocking)

    def keep(self, calls: Iterable[ProposedCall]) -> None:
        """Remember what a turn proposed, instead of the turn before."""
        self._proposed = {call.call_id: call for call in calls}
        self._taken = {
            call_id: taken
            for call_id, taken in self._taken.items()
            if taken.proposal is self._proposed.get(call_id)
        }
        self._arguments.clear()
        self._inspections.clear()

    def note(self, call_id: str, seen: Preflight) -> None:
        """Remember what a look at the call has found."""
        self._inspections[call_id] = seen

    def evaluate(self, run: Run, call: Call) -> GatedCall:
        """Intake and gate of one call, on what the model really wrote."""
        gated = self.gate.evaluate(
            run,
            self._taken_in(self._written(call)),
            self._prefix,
            self._inspections.get(call.call_id),
            find_twins=partial(self._find_twins, run),
            end=self._find_end(),
        )
        self._arguments[call.call_id] = gated.arguments
        return gated

    def _written(self, call: ProposedCall | Call) -> ProposedCall:
        """The call as the model wrote it; after a restart as the tape has it."""
        return self._proposed.get(call.call_id) or ProposedCall(
            call_id=call.call_id, tool=call.tool, arguments=call.arguments
        )

    def _find_twins(self, run: Run, admitted: CheckedCall) -> tuple[str, ...]:
        """Later calls of the turn that are the same."""
        ids = [call.call_id for call in run.calls]
        later = run.calls[ids.index(admitted.call_id) + 1 :]
        same = [self._written(call) for call in later if call.tool == admitted.spec.name]
        others = [self._taken_in(call).result for call in same]
        return tuple(
            other.call_id
            for other in others
            if isinstance(other, CheckedCall) and other.proposal == admitted.proposal
        )

    def _taken_in(self, written: ProposedCall) -> ValidatedCall:
        """Its intake, once for all that asks: a turn with many calls looks at each for its twins."""
        known = self._taken.get(written.call_id)
        if known is None or known.proposal != written:  # ids may come again, in another turn
            known = self._taken[written.call_id] = self.gate.take_in(written, self._prefix)
        return known

    def find(self, call_id: str, recorded: Any) -> Any:  # noqa: ANN401 - a JSON value
        """The arguments as gated; after a restart those that are `recorded`."""
        return self._arguments.get(call_id, recorded)

    def judge_answer(
        self, run: Run, caller: Caller, answer: ResolveApproval
    ) -> PolicyDecision | None:
        """Whether the rules let the caller answer the question about a call so.

        None for one that the run has stopped asking: it takes no answer, and will say so.
        """
        call = run.find_asking(answer.approval_id)
        if call is None:
            return None
        asked = self._taken_in(self._written(call))
        return self.gate.judge_answer(run, asked, self._prefix, caller, answer)
