"""How a run ended, as an exit code: the same for who watched it and for who waited."""

from dataclasses import dataclass

from palyra.cli.errors import CANCELLED, DONE, FAILED, OVER_BUDGET, PARTIAL
from palyra.client import Client, RunView
from palyra.core.journal.records import TERMINAL
from palyra.core.tape import events as ev

PAGE_ROWS = 500


@dataclass(slots=True)
class RunExit:
    """How a run ended, as an exit code."""

    run_id: str | None = None
    code: int = FAILED
    was_denied: bool = False
    was_rejected: bool = False  # in the last turn that called anything: the model gave up on it

    def note(self, event: ev.Event | None) -> None:
        """Take an event of the run into account."""
        match event:
            case ev.TurnCompleted(calls=calls) if calls:
                self.was_rejected = False
            case ev.ToolRejected():
                self.was_rejected = True
            case ev.ToolDecided(verdict="deny"):
                self.was_denied = True
            case ev.RunDone(reason=reason):
                whole = reason == "answered" and not (self.was_denied or self.was_rejected)
                self.code = DONE if whole else PARTIAL
            case ev.RunFailed(failure_class="budget_exceeded" | "budget_unpriced"):
                self.code = OVER_BUDGET
            case ev.RunCancelled():
                self.code = CANCELLED
            case _:
                pass


async def read_code(client: Client, run: RunView) -> int:
    """The exit code that the run's tape comes to; of a run that has not ended, that of no failure."""
    if run.state not in TERMINAL:
        return DONE
    ending = RunExit(run.run_id)
    cursor: int | None = -1
    while cursor is not None:
        page = await client.read_tape(run.run_id, cursor, limit=PAGE_ROWS)
        cursor = page.next_after_seq
        for event in page.events:
            ending.note(event.event)
    return ending.code
