"""Exit code of a run, computed from its events; `palyra run` and `palyra runs wait` share it."""

from dataclasses import dataclass

from palyra.cli.command.errors import CANCELLED, DONE, FAILED, OVER_BUDGET, PARTIAL
from palyra.client import Client, RunView
from palyra.core.journal.records import TERMINAL
from palyra.core.tape import events as ev

PAGE_ROWS = 500


@dataclass(slots=True)
class RunExit:
    """Fold of a run's events to an exit code.

    - DONE: the run answered, no call was denied, and no call was rejected in the last turn with
      calls.
    - PARTIAL: any other `run.done`.
    - OVER_BUDGET: a budget ended the run.
    - CANCELLED: the run was cancelled.
    - FAILED: any other failure, or no end yet.
    """

    run_id: str | None = None
    code: int = FAILED
    was_denied: bool = False
    was_rejected: bool = False  # a call of the last turn with calls; the model did not repair it

    def note(self, event: ev.Event | None) -> None:
        """Apply one event of the run."""
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
    """Read the run's tape and return its exit code; DONE for a run that has not ended."""
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
