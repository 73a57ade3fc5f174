"""The operands: the calls of the open turn as the model really wrote them.

Owns: arguments before redaction, in memory only; the tape has them redacted.
Written by: one run actor.  Never: survives a restart; what held a secret is proposed again.
"""

from collections.abc import Iterable
from typing import Any

from palyra.actors.tool_call import Gate
from palyra.core.context import Prefix
from palyra.core.prompt import ProposedCall
from palyra.core.run_state import Run
from palyra.core.run_steps import Preparation


class Operands:
    """Unredacted arguments of one run's calls: as proposed, then as coerced by intake."""

    __slots__ = ("_arguments", "_gate", "_prefix", "_proposed")

    def __init__(self, gate: Gate, prefix: Prefix) -> None:
        self._gate = gate
        self._prefix = prefix
        self._proposed: dict[str, ProposedCall] = {}
        self._arguments: dict[str, Any] = {}

    def keep(self, calls: Iterable[ProposedCall]) -> None:
        """Remember what a turn proposed, instead of the turn before."""
        self._proposed = {call.call_id: call for call in calls}

    def prepare(self, run: Run, named: ProposedCall) -> Preparation:
        """Intake and gate of one call, on what the model really wrote."""
        prepared = self._gate.prepare(run, self._proposed.get(named.call_id, named), self._prefix)
        self._arguments[named.call_id] = prepared.arguments
        return prepared

    def take(self, call_id: str, recorded: Any) -> Any:  # noqa: ANN401 - a JSON value
        """The arguments as gated, once; after a restart those that are `recorded`."""
        return self._arguments.pop(call_id, recorded)
