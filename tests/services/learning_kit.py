"""Learning over a real journal, with runs that are put on their tapes."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from palyra.core.journal.changes import CandidateFilter, Change
from palyra.core.journal.records import CandidateRecord, MemoryRecord, Usage
from palyra.core.learning.candidates import LearningRules, Mode
from palyra.core.model.messages import Delta, ModelRequest, ModelTurn
from palyra.core.tape.events import Event, MessageReceived, RunAccepted, ToolCompleted, encode_event
from palyra.services.learning.candidates import Learning
from palyra.services.learning.procedures import Procedures
from tests.services.memory_kit import ANN, MemoryKit, run_inline
from tests.store.kit import row, run, token


class Papers:
    """Workspace documents that record what they are given."""

    def __init__(self) -> None:
        self.writes = True
        self.entries: dict[str, str] = {}

    async def apply(self, _document: str, _block: str, entries: Any, *, principal: str) -> None:
        assert principal in {"ann", "bob"}
        self.entries = dict(entries)


class Budgets:
    """Budgets that admit everything."""

    def now_ms(self) -> int:
        return 1

    async def admit_payer(self, *_: object) -> None:
        return None

    def settle_payer(self, *_: object) -> None: ...

    def charge(self, *_: object) -> Any:
        return type("Charge", (), {"cost_usd_micros": 0})()


class Liar:
    """A model that answers with a given text, or with what a function makes of the request."""

    name = "liar"
    provider = "test"

    def __init__(self, answer: str | Callable[[ModelRequest], str]) -> None:
        self.answer = answer
        self.requests: list[ModelRequest] = []

    async def stream(self, request: ModelRequest, _: Callable[[Delta], None]) -> ModelTurn:
        assert request.is_background
        self.requests.append(request)
        text = self.answer if isinstance(self.answer, str) else self.answer(request)
        return ModelTurn(text=text, calls=(), finish_reason="stop", usage=Usage())


class LearningKit(MemoryKit):
    """Learning over the memory, with runs put on tapes."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.papers = Papers()
        operator = token("tok_ann", principal="ann", role="operator")
        assert [None] == self.store.commit([Change(records=(operator,))])
        self.procedures = Procedures(
            self.journal,
            run_blocking=run_inline,
            now_ms=self.clock,
            new_id=self.memories.new_id,
        )
        self.model: Liar | None = None
        self.runs = 0

    def learning(self, mode: Mode = "review") -> Learning:
        return Learning(
            self.journal,
            self.memories,
            self.papers,  # type: ignore[arg-type]  # what learning needs of them
            self.memories.redactor,
            rules=LearningRules(mode=mode),
            model=lambda: "liar",
            models={} if self.model is None else {"liar": self.model},  # type: ignore[dict-item]
            budgets=Budgets(),  # type: ignore[arg-type]
            procedures=self.procedures,
            run_blocking=run_inline,
            now_ms=self.clock,
            new_id=self.memories.new_id,
        )

    def say(self, *messages: str, is_tainted: bool = False, state: str = "done") -> str:
        """Put a run with these messages on its tape; its id."""
        events: list[Event] = [MessageReceived(text=text) for text in messages]
        if is_tainted:
            outside = ToolCompleted(
                call_id="c", status="succeeded", output="", trust="external_untrusted"
            )
            events.append(outside)
        return self.record(events, state=state)

    def record(self, later: Sequence[Event], *, principal: str = "ann", **fields: Any) -> str:
        """Put a run that ended on its tape, with these events after its acceptance; its id."""
        self.runs += 1
        run_id = f"run_{self.runs}"
        accepted = RunAccepted(principal=principal, session_id="ses_a", agent="default", model="m")
        events = [accepted, *later]
        rows = tuple(
            row(run_id, seq, kind=event.KIND, data=encode_event(event), session_id="ses_a",
                principal=principal)
            for seq, event in enumerate(events)
        )  # fmt: skip
        record = run(
            run_id,
            len(rows) - 1,
            **{"state": "done", "principal": principal, "session_id": "ses_a", **fields},
        )
        assert [None] == self.store.commit([Change(rows=rows, records=(record,))])
        return run_id

    async def candidates(self, **wanted: Any) -> list[CandidateRecord]:
        return await self.learning().list_candidates(
            ANN, CandidateFilter(**{"principal": None, **wanted})
        )

    def items(self) -> list[MemoryRecord]:
        found = [self.store.find_memory(f"mem_{number:04}") for number in range(1, 60)]
        return [item for item in found if item is not None]
