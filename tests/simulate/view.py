"""One reader's view of one run, kept from the client library's items."""

from palyra.client.feed import EventsDiscarded, Item, Reset, TapeEvent
from palyra.core.journal.tape_row import TapeRow
from tests.simulate.oracle import Oracle
from tests.simulate.trace import InvariantFailed


class View:
    """The events after a cursor; each method raises InvariantFailed."""

    def __init__(self, run_id: str, after: int) -> None:
        self.run_id = run_id
        self.after = after  # where the present subscription began
        self._begin: int | None = None  # seq of the first event shown
        self._shown: list[TapeEvent] = []

    def __len__(self) -> int:
        return len(self._shown)

    def take(self, item: Item) -> None:
        """One item of the stream."""
        match item:
            case TapeEvent():
                self._append(item)
            case EventsDiscarded():
                self._cut(item.after_seq)
            case Reset():
                raise InvariantFailed("nothing kept is reset", f"{self.run_id} {item}")
            case _:
                pass

    def leave(self, cursor: int) -> None:
        """Drop events after `cursor`; another subscription continues there."""
        self.after = cursor
        self._cut(cursor)

    def compare(self, oracle: Oracle) -> None:
        """The stream has ended: what was shown is what is on the tape, to its end."""
        tape = oracle.tapes[self.run_id]
        if self._begin is None and self.after >= len(tape) - 1:
            return  # there was nothing left to show
        if self._begin is None or self._begin + len(self) != len(tape):
            text = f"{self.run_id}: {self._begin} + {len(self)}, not {len(tape)}"
            raise InvariantFailed("a stream ends with its run", text)
        for event, row in zip(self._shown, tape[self._begin :], strict=True):
            self._check(event, row)

    def _append(self, event: TapeEvent) -> None:
        if self._begin is None:
            self._begin = event.seq
        expected = self._begin + len(self)
        if event.seq != expected:
            text = f"{self.run_id}: {event.seq}, not {expected}; after {self.after}"
            raise InvariantFailed("a reader sees every event once", text)
        self._shown.append(event)

    def _cut(self, after: int) -> None:
        if self._begin is not None:
            del self._shown[max(0, after + 1 - self._begin) :]
        if not self._shown:
            self._begin = None

    def _check(self, event: TapeEvent, row: TapeRow) -> None:
        if (event.kind, event.at_ms, event.data) != (row.kind, row.at_ms, row.data):
            text = f"{self.run_id} {row.seq}: {event.kind}"
            raise InvariantFailed("a reader sees the tape", text)
