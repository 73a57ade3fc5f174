"""Driving cases: order within sessions, how many at once, what is left out, how it stops."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import msgspec
import pytest
import trio
from trio.testing import MockClock

from palyra.client import Client, RunOptions
from palyra.core.session.commands import Started
from palyra.errors import Forbidden, Rejected
from palyra.harness.case_runner import KEY_AGE_MS, CaseRun, Performer
from palyra.harness.cases import Case, check_input
from palyra.harness.connections import PacedConnection
from palyra.harness.driver import Drive, InputSelection
from palyra.harness.outcome import CaseResult
from palyra.harness.results import ResultsDirectory, ResultsStart, open_directory
from tests.harness.results import FILE, PLAN, result

TAKES_S = 1.0


class FakePerformer:
    """Every case takes a second; what began and ended is noted."""

    def __init__(self, directory: ResultsDirectory) -> None:
        self.directory = directory
        self.began: list[tuple[str, int]] = []
        self.at_once = 0
        self.most_at_once = 0

    async def perform(self, _lane: PacedConnection, work: CaseRun) -> CaseResult:
        self.began.append((work.case.id, work.repeat))
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await trio.sleep(TAKES_S)
        finally:
            self.at_once -= 1
        if work.case.text == "forbidden":
            raise Forbidden("not yours")
        return result(work.case.id, repeat=work.repeat, seed=work.seed, run_id=None)


@asynccontextmanager
async def dial() -> AsyncGenerator[Client]:
    await trio.lowlevel.checkpoint()
    with trio.CancelScope():
        yield cast("Client", None)


def write_cases(directory: Path, cases: list[Case]) -> Path:
    path = directory / "cases.jsonl"
    path.write_bytes(b"".join(msgspec.json.encode(plain(case)) + b"\n" for case in cases))
    return path


def plain(case: Case) -> dict[str, object]:
    return {
        name: value
        for name, value in msgspec.to_builtins(case).items()
        if value is not None and name != "budget"
    }


class Stage:
    """A drive over these cases with a fake performer."""

    def __init__(
        self, path: Path, cases: list[Case], *, repeat: int = 1, limit: int | None = None
    ) -> None:
        file = write_cases(path, cases)
        self._opening = open_directory(path / "out", FILE, PLAN)
        self.directory = self._opening.__enter__()
        self.fake = FakePerformer(self.directory)
        extent = InputSelection(file, check_input(file), repeat, 10, limit)
        self.drive = Drive(extent, cast("Performer", self.fake), lambda _: None)

    def close(self) -> None:
        self._opening.__exit__(None, None, None)


def case(case_id: str, session: str | None = None, text: str = "x") -> Case:
    return Case(id=case_id, text=text, session=session)


async def test_so_many_at_once_and_no_more(tmp_path: Path, autojump_clock: MockClock) -> None:
    """Ten cases, four at once: three seconds, and each case once."""
    stage = Stage(tmp_path, [case(f"c{n}") for n in range(10)])
    began_s = trio.current_time()
    await stage.drive.run(dial, 4)
    stage.close()
    assert (4, 10) == (stage.fake.most_at_once, len(set(stage.fake.began)))
    assert 3 * TAKES_S == pytest.approx(trio.current_time() - began_s)
    assert (10, 10) == (stage.drive.tally.done, stage.drive.tally.total)


async def test_a_session_is_in_file_order_and_repeats_are_apart(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Cases of one session never overlap; other sessions and repeats run concurrently."""
    stage = Stage(tmp_path, [case("a", "s"), case("b", "s"), case("c"), case("d", "s")], repeat=2)
    began_s = trio.current_time()
    await stage.drive.run(dial, 8)
    stage.close()
    for repeat in (0, 1):
        order = [name for name, number in stage.fake.began if number == repeat]
        assert ["a", "b", "d"] == [name for name in order if name != "c"]
    assert 3 * TAKES_S == pytest.approx(trio.current_time() - began_s)


async def test_finished_and_unwanted_cases_are_left_out(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """A case with a result is counted but not run; cases over the limit are not read."""
    stage = Stage(tmp_path, [case("a"), case("b"), case("c")], repeat=2, limit=2)
    stage.directory.keep_result(result("a", run_id=None))
    await stage.drive.run(dial, 2)
    stage.close()
    assert {("b", 0), ("a", 1), ("b", 1)} == set(stage.fake.began)
    assert (4, 4, 3) == (
        stage.drive.tally.done,
        stage.drive.tally.total,
        stage.drive.tally.new,
    )


async def test_what_concerns_all_stops_all(tmp_path: Path, autojump_clock: MockClock) -> None:
    """A refusal that no other case would escape ends the drive; what was finished is kept."""
    stage = Stage(tmp_path, [case("a"), case("b", text="forbidden"), case("c"), case("d")])
    with pytest.RaisesGroup(Forbidden, flatten_subgroups=True):
        await stage.drive.run(dial, 1)
    stage.close()
    assert [("a", 0), ("b", 0)] == stage.fake.began
    assert {("a", 0)} == stage.directory.finished


async def test_cancel_leaves_whole_files(tmp_path: Path, autojump_clock: MockClock) -> None:
    """Stopped in the middle, the results there are can be taken up again."""
    stage = Stage(tmp_path, [case(f"c{n}") for n in range(6)])
    with trio.move_on_after(2.5 * TAKES_S):
        await stage.drive.run(dial, 1)
    stage.close()
    with open_directory(tmp_path / "out", FILE, PLAN) as again:
        assert {("c0", 0), ("c1", 0)} == again.finished


# --- one case ---


class FakeClient:
    """Accepts runs by key and notes the keys."""

    def __init__(self) -> None:
        self.keys: list[str] = []

    async def start_run(self, _text: str, **options: object) -> Started:
        await trio.lowlevel.checkpoint()
        self.keys.append(str(options["idempotency_key"]))
        return Started(run_id="run_1", session_id="ses_1", seq=0, disposition="started")


def test_keys_are_one_for_each_unit_and_bench(tmp_path: Path) -> None:
    """The same case, repeat and directory give the same key; anything else another one."""
    keys: list[str] = []
    for name in ("one", "one", "two"):
        with open_directory(tmp_path / name, FILE, PLAN) as directory:
            performer = Performer(directory, None, "deny")
            for case_id, repeat in (("a", 0), ("a", 1), ("b", 0)):
                options: RunOptions = performer._options(CaseRun(case(case_id), repeat, 0))
                keys.append(options["idempotency_key"])
    assert keys[:3] == keys[3:6]
    assert 6 == len(set(keys))
    assert max(map(len, keys)) <= 128


async def test_an_old_start_without_a_run_is_not_repeated(tmp_path: Path) -> None:
    """If the daemon may have forgotten the key, the bench stops with the remedy."""
    with open_directory(tmp_path, FILE, PLAN) as directory:
        directory.note_start(ResultsStart(id="a", repeat=0, at_ms=1))
        performer = Performer(directory, None, "deny")
        client = FakeClient()
        with pytest.raises(Rejected, match=r"started\.jsonl") as caught:
            await performer.perform(
                PacedConnection(cast("Client", client)), CaseRun(case("a"), 0, 0)
            )
        assert "23 hours" in caught.value.message
        assert [] == client.keys
    assert KEY_AGE_MS == 23 * 3_600_000
