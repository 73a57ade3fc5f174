"""Reading of recorded decisions for suggested rules: complete or not at all, one at a time."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
import trio

from palyra.core.access import Caller
from palyra.core.journal.changes import RunFilter, TapePage
from palyra.core.journal.records import RunRecord
from palyra.core.journal.tape_row import TapeRow
from palyra.core.policy.recorded import PolicyEvidence, RecordedCall
from palyra.core.policy.request import PolicyRequest
from palyra.core.policy.suggestion import exact_candidate
from palyra.core.policy.views import SuggestionList
from palyra.core.tape import events as ev
from palyra.errors import Overloaded, TooLarge
from palyra.services.learning import suggestions
from palyra.services.learning.suggestions import RuleSuggestions, find_wrong
from palyra.tools.policy.cedar import CedarPolicy
from palyra.tools.policy.suggested_files import SuggestedPolicyFiles
from tests.tools.policy.suggestion_kit import shell

OPERATOR = Caller(principal="operator", role="operator", token_id="t")


def a_tape(run_id: str, code: str = "approved", argv: str = "pytest") -> list[TapeRow]:
    """A run with one call of `argv`, answered by a person."""
    is_allowed = code == "approved"
    events: list[ev.Event] = [
        ev.RunAccepted(principal="ann", session_id="ses_1", agent="default", model="m"),
        ev.ToolProposed(call_id="c", tool="shell", arguments=argv, digest="d", tool_class="effect"),
        ev.ApprovalResolved(
            approval_id="a", call_id="c", decision="allow" if is_allowed else "deny", scope="once",
            by="ann", reason="",
        ),
        ev.ToolDecided(
            call_id="c", verdict="allow" if is_allowed else "deny", reason_code=code, reason="",
            policies=(), policy_version="v",
        ),
        ev.RunDone(reason="answered"),
    ]  # fmt: skip
    return [
        TapeRow(run_id, "ses_1", seq, seq, event.KIND, "ann", False, ev.encode_event(event))  # noqa: FBT003 - a row's field
        for seq, event in enumerate(events)
    ]


class FakeTapes:
    """Journal and store of some tapes, newest last."""

    def __init__(self, *tapes: list[TapeRow]) -> None:
        self._tapes = {rows[0].run_id: rows for rows in tapes}
        self.gate = trio.Event()
        self.gate.set()

    async def read(self, query: Callable[[Any], Any]) -> Any:
        await self.gate.wait()
        return query(self)

    def list_runs(self, wanted: RunFilter) -> list[RunRecord]:
        ids = sorted(self._tapes, reverse=True)
        left = [run_id for run_id in ids if wanted.before is None or run_id < wanted.before]
        return [
            RunRecord(
                run_id=run_id, session_id="ses_1", principal="ann", agent="default", model="m",
                state="done", created_ms=1, head_seq=4,
            )
            for run_id in left[: wanted.limit]
        ]  # fmt: skip

    def read_tape(self, run_id: str, *, after_seq: int, limit: int) -> TapePage:
        rows = self._tapes[run_id][after_seq + 1 :][:limit]
        return TapePage(rows=rows, head_seq=4, floor_seq=0, next_after_seq=None, size_bytes=0)


class FakeGate:
    """Reads calls of `shell`, whose arguments are one word here."""

    @staticmethod
    def read_recorded(call: RecordedCall) -> PolicyEvidence | None:
        if call.arguments == "gone":
            return None
        return shell(call.arguments, "-q", run=call.run_id, decided=call.decided)


async def inline(fn: Callable[..., Any], *args: Any) -> Any:  # noqa: RUF029 - the port's signature
    return fn(*args)


def a_service(folder: Path, *tapes: list[TapeRow]) -> tuple[RuleSuggestions, FakeTapes]:
    stored = FakeTapes(*tapes)
    service = RuleSuggestions(
        cast("Any", stored),
        cast("Any", FakeGate()),
        CedarPolicy(folder),
        SuggestedPolicyFiles(folder),
        run_blocking=cast("Any", inline),
        now_ms=lambda: 7,
    )
    return service, stored


def found(listed: SuggestionList) -> list[str]:
    return [each.title for each in listed.suggestions]


async def test_every_page_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers on different pages speak for one rule, and a denial on the last page against it."""
    monkeypatch.setattr(suggestions, "PAGE_RUNS", 2)
    allowed = [a_tape(f"run_{number}") for number in range(2, 6)]
    service, _ = a_service(tmp_path, *allowed)
    assert ["shell: pytest -q"] == found(await service.suggest(OPERATOR))
    service, _ = a_service(tmp_path, a_tape("run_1", "denied_by_person"), *allowed)
    listed = await service.suggest(OPERATOR)
    assert ([], 4, 1) == (found(listed), listed.proof.allowed, listed.proof.denied)


async def test_a_call_that_cannot_be_read_stops_rules_for_its_tool(tmp_path: Path) -> None:
    """No rule is suggested for a tool with a call that the rules cannot see any more."""
    allowed = [a_tape(f"run_{number}") for number in range(3)]
    service, _ = a_service(tmp_path, *allowed, a_tape("run_9", "denied_by_person", "gone"))
    listed = await service.suggest(OPERATOR)
    assert ([], 1) == (found(listed), listed.proof.unreadable)


async def test_a_part_of_the_decisions_proves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With more runs than can be compared the request fails."""
    monkeypatch.setattr(suggestions, "PAGE_RUNS", 1)
    monkeypatch.setattr(suggestions, "MAX_RUNS", 2)
    service, _ = a_service(tmp_path, *(a_tape(f"run_{number}") for number in range(4)))
    with pytest.raises(TooLarge, match="at most 2"):
        await service.suggest(OPERATOR)


async def test_one_request_at_a_time_reads_the_tapes(tmp_path: Path) -> None:
    """A second request is refused while the first one reads, and served afterwards."""
    service, stored = a_service(tmp_path, a_tape("run_1"))
    stored.gate = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(service.suggest, OPERATOR)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(Overloaded):
            await service.suggest(OPERATOR)
        stored.gate.set()
    assert found(await service.suggest(OPERATOR)) == []


class FakeTrial:
    """Rules of which one permits something, and a note of those that were tried together."""

    def __init__(self, wrong: str) -> None:
        self.wrong = wrong
        self.tried: list[list[str]] = []

    def find_permits(
        self, rules: Sequence[str], requests: Iterable[PolicyRequest]
    ) -> Iterator[frozenset[str]]:
        self.tried.append([*rules])
        return (frozenset({self.wrong} & {*rules}) for _ in requests)


def test_every_candidate_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """In batches, whatever their number; a wrong one in any of them is found."""
    monkeypatch.setattr(suggestions, "_BATCH", 2)
    plain = exact_candidate(shell("a", run="run_1"))
    evidence = [shell("rm", run="run_2", decided="denied")]
    for count in range(1, 6):
        names = [f"rule_{number}" for number in range(count)]
        candidates = [msgspec.structs.replace(plain, cedar=name) for name in names]
        for name in names:
            policy = FakeTrial(name)
            assert {name} == find_wrong(cast("Any", policy), evidence, candidates)
            assert names == [each for batch in policy.tried for each in batch]
            assert max(map(len, policy.tried)) <= 2
