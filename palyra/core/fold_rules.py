"""What the parts of the fold share: how a rule is written down, and what it may demand."""

from collections.abc import Callable
from typing import Any

from palyra.core import events as ev
from palyra.core.run_state import Run
from palyra.errors import InvariantBroken

Rule = Callable[[Run, Any, int], Run]  # the state before, the event, when it happened


RulesOf = dict[type[ev.Event], Rule]


def registrar(rules: RulesOf) -> Callable[[type[ev.Event]], Callable[[Rule], Rule]]:
    """A decorator that notes a function as the rule for a kind of event."""

    def rule(kind: type[ev.Event]) -> Callable[[Rule], Rule]:
        def note(function: Rule) -> Rule:
            rules[kind] = function
            return function

        return note

    return rule


def need(condition: bool, run: Run, event: ev.Event) -> None:  # noqa: FBT001 - an assertion
    """Raise InvariantBroken, saying how the run stands, unless that is so."""
    if not condition:
        raise InvariantBroken(
            f"{event.KIND} is not possible: {run.run_id} is {run.state}, turn {run.turn} "
            f"{'open' if run.turn_is_open else 'closed'}, calls "
            f"{[call.phase for call in run.calls]}"
        )


def is_attested(run: Run) -> bool:
    """Whether every call of the last turn has its end."""
    return all(call.phase == "attested" for call in run.calls)
