"""`palyra bench run` with real processes: stopped, killed and taken up again."""

import os
import random
import resource
import signal
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from palyra.cli.tape import verify_file
from palyra.client import connect
from palyra.harness.results import DAEMON, RESULTS, STARTED, read_results
from palyra.net.protocol.discovery import find_discovery
from tests.cli.command import environment, palyra
from tests.e2e.daemon_process import DaemonProcess, running
from tests.forked import ForkedProcess, Setting, run_forked

pytestmark = pytest.mark.real

LOOK_EVERY_S = 0.01
WITHIN_S = 120.0  # a bound against hanging, not a promise
CASES = 32
KILLS = 4
MOST_RUNS = 500


def write_cases(path: Path, cases: Sequence[dict[str, Any]]) -> Path:
    path.write_bytes(b"".join(msgspec.json.encode(case) + b"\n" for case in cases))
    return path


def mixed_cases(count: int) -> list[dict[str, Any]]:
    """Runs that answer at once, take a while, ask a person, and belong together.

    Nothing is expected of those that write: killed in the middle of it, they end as partial.
    """
    texts = [
        '/call echo {"text": "x"}',
        '/call sleep {"seconds": 0.05}\n/then\n/say slept',
        '/call write_file {"path": "n%d.txt", "content": "x"}\n/then\n/say written',
    ]
    cases: list[dict[str, Any]] = []
    for number in range(count):
        text = texts[number % len(texts)]
        case = {"id": f"c{number}", "text": text % number if "%d" in text else text}
        expected = {} if "%d" in text else {"expect": {"reason": "answered"}}
        cases.append({**case, **expected, "approval": "allow"})
        if number % 10 == 0:
            cases[-1]["session"] = "shared"
    return cases


class Harness:
    """The command, run again and again over the same directory."""

    def __init__(self, directory: Path, cases: Path, home: Path, *arguments: str) -> None:
        self.out = directory / "out"
        self.home = home
        self.arguments = ["bench", "run", str(cases), "--out", str(self.out), *arguments]

    @property
    def results(self) -> int:
        """The number of cases with a result."""
        path = self.out / RESULTS
        return path.read_bytes().count(b"\n") if path.exists() else 0

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[ForkedProcess]:
        """The command as a process, killed at the end of the block unless it has ended."""
        begun = ForkedProcess(self.arguments, Setting(environment(self.home), (0, 1, 2)))
        with begun.until_killed() as process, trio.fail_after(WITHIN_S):
            yield process

    async def reach(self, results: int, process: ForkedProcess) -> None:
        """Wait for so many results, or the command's end."""
        while self.results < results and process.poll() is None:  # noqa: ASYNC110 - another process's file
            await trio.sleep(LOOK_EVERY_S)


async def list_runs(home: Path) -> list[str]:
    """Every run of the daemon at `home`."""
    token = (home / "keys" / "operator.token").read_text(encoding="ascii").strip()
    async with connect(home=home, token=token) as client:
        page = await client.list_runs(limit=MOST_RUNS)
    assert page.next_cursor is None
    return [run.run_id for run in page.runs]


def check_complete(out: Path, cases: int, runs: Sequence[str]) -> None:
    """Each case has one result, each run one case, and each tape proves itself."""
    results = list(read_results(out))
    assert sorted(f"c{number}" for number in range(cases)) == sorted(one.id for one in results)
    assert sorted(runs) == sorted(str(one.run_id) for one in results)
    assert {"done"} == {one.state for one in results}
    assert False not in {one.met for one in results}
    for one in results:
        assert one.run_id is not None
        tape = out / "tapes" / f"{one.run_id}.ndjson"
        assert (one.tape_bytes, None) == (tape.stat().st_size, verify_file(tape, None).problem)


async def test_kills_of_harness_and_daemon_lose_and_repeat_nothing(tmp_path: Path) -> None:
    """Whatever of the two is killed, and when: in the end one result and one run for each case."""
    rng = random.Random(7)
    cases = write_cases(tmp_path / "cases.jsonl", mixed_cases(CASES))
    with running(tmp_path) as daemon:
        harness = Harness(tmp_path, cases, daemon.home, "--concurrency", "12")
        for number in range(KILLS):
            async with harness.running() as process:
                await harness.reach(rng.randrange(1, CASES // KILLS) + harness.results, process)
                await kill(daemon if number % 2 else None)
                await harness.reach(rng.randrange(1, 8) + harness.results, process)
        async with harness.running() as process:
            assert 0 == await process.ended()
        check_complete(harness.out, CASES, await list_runs(daemon.home))


async def kill(daemon: DaemonProcess | None) -> None:
    """Kill the daemon, if it is its turn, and start the next."""
    if daemon is not None:
        await daemon.restart()


@pytest.mark.slow
async def test_own_daemon_ends_and_restarts_with_the_harness(tmp_path: Path) -> None:
    """Kills of the harness and of its daemon: one run for each case, and no process left."""
    rng = random.Random(11)
    cases = write_cases(tmp_path / "cases.jsonl", mixed_cases(CASES))
    harness = Harness(tmp_path, cases, tmp_path / "nobody", "--concurrency", "12")
    home = harness.out / DAEMON
    for number in range(KILLS - 2):
        async with harness.running() as process:
            await harness.reach(rng.randrange(1, CASES // KILLS) + harness.results, process)
            found = find_discovery(home)
            if number % 2 and found is not None:
                os.kill(found.pid, signal.SIGKILL)
                await harness.reach(rng.randrange(2, 8) + harness.results, process)
    async with harness.running() as process:
        assert 0 == await process.ended()
    assert find_discovery(home) is None
    daemon = DaemonProcess(tmp_path / "later")
    daemon.home = home
    try:
        await trio.to_thread.run_sync(daemon.start)
        check_complete(harness.out, CASES, await list_runs(home))
    finally:
        daemon.end()


@pytest.mark.slow
async def test_interrupt_stops_in_order_and_can_be_resumed(tmp_path: Path) -> None:
    """SIGINT: exit code 130, a summary of the results, no daemon left; then it resumes."""
    cases = write_cases(tmp_path / "cases.jsonl", mixed_cases(CASES))
    harness = Harness(tmp_path, cases, tmp_path / "nobody", "--concurrency", "4")
    async with harness.running() as process:
        await harness.reach(10, process)
        process.send_signal(signal.SIGINT)
        assert 130 == await process.ended()
    summary = msgspec.json.decode((harness.out / "summary.json").read_bytes())
    assert (False, harness.results) == (summary["is_complete"], summary["results"])
    assert find_discovery(harness.out / DAEMON) is None
    async with harness.running() as process:
        assert 0 == await process.ended()
    assert CASES == harness.results


async def test_lost_files_are_found_again_by_their_keys(tmp_path: Path) -> None:
    """Without starts, results and tapes, as a power cut may leave them, nothing runs twice."""
    cases = write_cases(tmp_path / "cases.jsonl", mixed_cases(12))
    with running(tmp_path) as daemon:
        harness = Harness(tmp_path, cases, daemon.home)
        async with harness.running() as process:
            assert 0 == await process.ended()
        lines = (harness.out / RESULTS).read_bytes().splitlines(keepends=True)
        (harness.out / RESULTS).write_bytes(b"".join(lines[:6]))
        (harness.out / STARTED).unlink()
        tapes = sorted((harness.out / "tapes").iterdir())
        contents = [tape.read_bytes() for tape in tapes]
        for tape in tapes[::2]:
            tape.write_bytes(b"")
        async with harness.running() as process:
            assert 0 == await process.ended()
        check_complete(harness.out, 12, await list_runs(daemon.home))
        assert contents == [tape.read_bytes() for tape in tapes]


async def test_default_rate_is_kept_without_an_error(tmp_path: Path) -> None:
    """With the daemon's default rate 60 at once get through, and nothing is refused for good."""
    runs = 150
    expected = {"contains": "You said"}
    cases: list[dict[str, Any]] = [
        {"id": f"c{number}", "text": "hello", "expect": expected} for number in range(runs)
    ]
    path = write_cases(tmp_path / "cases.jsonl", cases)
    with running(tmp_path, PALYRA_SERVER__REQUESTS_PER_S="100") as daemon:
        harness = Harness(tmp_path, path, daemon.home, "--concurrency", "60")
        async with harness.running() as process:
            assert 0 == await process.ended()
        check_complete(harness.out, runs, await list_runs(daemon.home))


async def test_exit_code_and_summary_include_failures(tmp_path: Path) -> None:
    """Unmet expectations, refused cases and denied calls are counted, and the code is 4."""
    cases: list[dict[str, Any]] = [
        {"id": "met", "text": "/say yes", "expect": {"equals": "yes"}},
        {"id": "unmet", "text": "/say no", "expect": {"equals": "yes"}},
        {"id": "refused", "text": "x", "model": "nobody's"},
        {"id": "huge", "text": "x" * 1_100_000},
        {"id": "denied", "text": '/call write_file {"path": "n", "content": "x"}'},
    ]
    path = write_cases(tmp_path / "cases.jsonl", cases)
    out = tmp_path / "out"
    command = ("--json", "bench", "run", str(path), "--out", str(out), "--repeat", "2")
    with running(tmp_path) as daemon:
        ran = await palyra(*command, home=daemon.home)
    assert 4 == ran.code, ran.err
    assert ran.json == msgspec.json.decode((out / "summary.json").read_bytes())
    assert {"done": 6, "refused": 4} == ran.json["states"]
    assert (2, 2, 6) == (ran.json["met"], ran.json["unmet"], ran.json["unchecked"])
    by_id = {(one.id, one.repeat): one for one in read_results(out)}
    assert "nobody's" in (by_id["refused", 0].reason or "")
    assert (by_id["huge", 0].reason or "").startswith("too_large")
    assert (0, 1) == (by_id["met", 0].seed, by_id["met", 1].seed)
    assert not (daemon.workspace / "n").exists()


async def test_changed_input_is_refused_with_the_remedy(tmp_path: Path) -> None:
    """Another file, or another model, over the same results: nothing runs."""
    path = write_cases(tmp_path / "cases.jsonl", [{"id": "c0", "text": "a"}])
    out = tmp_path / "out"
    command = ("bench", "run", str(path), "--out", str(out))
    with running(tmp_path) as daemon:
        assert 0 == (await palyra(*command, home=daemon.home)).code
    other_model = await palyra(*command, "--model", "other")
    write_cases(path, [{"id": "c0", "text": "b"}])
    other_file = await palyra(*command)
    for refused in (other_model, other_file):
        assert 2 == refused.code
        assert "another directory with --out" in refused.err
    assert 1 == len(list(read_results(out)))


async def test_compare_finds_what_was_lost(tmp_path: Path) -> None:
    """The same cases with other scripts: the comparison names what is no longer met."""
    path = write_cases(
        tmp_path / "cases.jsonl",
        [
            {"id": "a", "text": "weather", "expect": {"contains": "rain"}},
            {"id": "b", "text": "/say x", "expect": {"equals": "x"}},
        ],
    )
    for name, text in (("one", "It rains."), ("two", "Sunshine.")):
        script = {"contains": "weather", "turns": [{"text": text}]}
        scripts = tmp_path / f"{name}.json"
        scripts.write_bytes(msgspec.json.encode({"scripts": [script]}))
        out = str(tmp_path / name)
        ran = await palyra("bench", "run", str(path), "--out", out, "--scripts", str(scripts))
        assert (0 if name == "one" else 4) == ran.code, ran.err
    arguments = ("bench", "compare", str(tmp_path / "one"), str(tmp_path / "two"))
    shown = await palyra(*arguments)
    assert (4, True) == (shown.code, "yes → no" in shown.out)
    found = await palyra("--json", *arguments)
    assert (1, 0, ["a", "b"]) == (
        found.json["lost"],
        found.json["won"],
        sorted(pair["id"] for pair in found.json["pairs"]),
    )


async def test_replay_matches_what_was_recorded_and_finds_what_was_changed(tmp_path: Path) -> None:
    """All runs match, offline and strictly; a changed tape is unusable and named."""
    path = write_cases(tmp_path / "cases.jsonl", mixed_cases(6))
    out = tmp_path / "out"
    assert 0 == (await palyra("bench", "run", str(path), "--out", str(out))).code
    for mode in ((), ("--strict",)):
        replayed = await palyra("--json", "bench", "replay", str(out), *mode)
        assert 0 == replayed.code, replayed.err
        assert (6, []) == (replayed.json["matched"], replayed.json["exceptions"])
    tape = next((out / "tapes").iterdir())
    tape.write_bytes(tape.read_bytes().replace(b"answered", b"Answered"))
    replayed = await palyra("bench", "replay", str(out))
    assert (1, True) == (replayed.code, tape.stem in replayed.out)


async def test_full_disk_stops_the_command_until_there_is_space(tmp_path: Path) -> None:
    """The command ends with the reason; afterwards no case is run twice."""
    cases = write_cases(tmp_path / "cases.jsonl", mixed_cases(40))
    limit = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (16_384, 16_384))
    with running(tmp_path) as daemon:
        harness = Harness(tmp_path, cases, daemon.home)
        with trio.fail_after(WITHIN_S):
            full = await run_forked(harness.arguments, environment(daemon.home), before=limit)
        assert 1 == full.code, full.err
        assert b"results.jsonl cannot be written" in full.err
        assert 0 < harness.results < 40
        async with harness.running() as process:
            assert 0 == await process.ended()
        check_complete(harness.out, 40, await list_runs(daemon.home))


async def test_deadline_stops_in_order(tmp_path: Path) -> None:
    """After the deadline the code is 4 and the rest is left for the next time."""
    slow = {"id": "c0", "text": '/call sleep {"seconds": 60}'}
    cases = write_cases(tmp_path / "cases.jsonl", [slow, {"id": "c1", "text": "hello"}])
    with running(tmp_path) as daemon:
        ran = await palyra(
            *("--json", "bench", "run", str(cases), "--out", str(tmp_path / "out")),
            *("--deadline", "1"),
            home=daemon.home,
        )
        assert (4, True) == (ran.code, "run the same command to continue" in ran.err)
        assert (False, 1) == (ran.json["is_complete"], ran.json["results"])


async def test_options_for_an_own_daemon_need_one(tmp_path: Path) -> None:
    """--workspace with a running daemon is refused; --own starts a separate one."""
    cases = write_cases(tmp_path / "cases.jsonl", [{"id": "c0", "text": "hello"}])
    with running(tmp_path) as daemon:
        command = ("bench", "run", str(cases), "--workspace", str(daemon.workspace), "--out")
        refused = await palyra(*command, str(tmp_path / "a"), home=daemon.home)
        assert (2, True) == (refused.code, "--own" in refused.err)
        taken = await palyra(*command, str(tmp_path / "b"), "--own", home=daemon.home)
        assert 0 == taken.code, taken.err
        assert [] == await list_runs(daemon.home)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (
            b'{"id": "a", "text": "x"}\n{"id": "a", "text": "y"}\n',
            "line 2: the id 'a' is used twice",
        ),
        (b'{"id": "a", "text": "x"}\n{"id": "b", "txet": "y"}\n', "line 2"),
        (b"", "holds no case"),
    ],
)
async def test_wrong_input_starts_nothing(tmp_path: Path, content: bytes, problem: str) -> None:
    """Exit code 2, the line and the problem; no directory is made and no daemon started."""
    cases = tmp_path / "cases.jsonl"
    cases.write_bytes(content)
    ran = await palyra("bench", "run", str(cases), "--out", str(tmp_path / "out"))
    assert (2, True) == (ran.code, problem in ran.err)
    assert not (tmp_path / "out").exists()


async def test_results_of_another_daemon_are_noticed(tmp_path: Path) -> None:
    """If the daemon's data is missing, runs are not silently repeated."""
    path = write_cases(tmp_path / "cases.jsonl", [{"id": "c0", "text": "hello"}])
    out = tmp_path / "out"
    command = ("bench", "run", str(path), "--out", str(out))
    with running(tmp_path) as daemon:
        assert 0 == (await palyra(*command, home=daemon.home)).code
        daemon.stop()
        (out / RESULTS).write_bytes(b"")
        daemon.home.rename(tmp_path / "gone")
        daemon.start()
        ran = await palyra(*command, home=daemon.home)
    assert (1, True) == (ran.code, "is this the daemon that the results come from" in ran.err)
