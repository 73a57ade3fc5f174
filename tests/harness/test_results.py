"""The output directory: taken up again, whole after a crash, never shared, never mixed."""

import resource
import signal
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from palyra.errors import Conflict, InvalidParams
from palyra.harness.jsonl import CannotWrite
from palyra.harness.results import (
    MANIFEST,
    RESULTS,
    STARTED,
    ResultsStart,
    open_directory,
    read_results,
)
from tests.harness.results import FILE, PLAN, result


@contextmanager
def file_limit(limit_bytes: int) -> Generator[None]:
    """No file grows beyond so many bytes, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_results_are_taken_up_again(tmp_path: Path) -> None:
    """The next command knows finished cases and cases in progress."""
    with open_directory(tmp_path / "out", FILE, PLAN) as first:
        for case_id in ("a", "b"):
            first.note_start(ResultsStart(id=case_id, repeat=0, at_ms=1))
        first.note_start(ResultsStart(id="b", repeat=0, at_ms=1, run_id="run_b"))
        first.keep_tape("run_a", b"tape\n")
        first.keep_result(result("a"))
        bench_id = first.manifest.bench_id
    with open_directory(tmp_path / "out", FILE, PLAN) as second:
        assert {("a", 0)} == second.finished
        assert {("b", 0): "run_b"} == {unit: one.run_id for unit, one in second.started.items()}
        assert {} == second.torn
        assert bench_id == second.manifest.bench_id


def test_torn_last_line_is_taken_back(tmp_path: Path) -> None:
    """Half a line at the end, as a crash leaves it, is cut off, and its case is not finished."""
    with open_directory(tmp_path, FILE, PLAN) as first:
        first.keep_tape("run_a", b"tape\n")
        first.keep_result(result("a"))
    whole = (tmp_path / RESULTS).read_bytes()
    (tmp_path / RESULTS).write_bytes(whole + whole[:-1].replace(b'"a"', b'"b"'))
    assert ["a"] == [one.id for one in read_results(tmp_path)]
    with open_directory(tmp_path, FILE, PLAN) as second:
        assert {("a", 0)} == second.finished
        assert whole == (tmp_path / RESULTS).read_bytes()


def test_missing_and_short_tapes_are_known(tmp_path: Path) -> None:
    """A finished case whose tape was lost in a power cut is reported by its run."""
    with open_directory(tmp_path, FILE, PLAN) as first:
        for case_id in ("a", "b", "c"):
            first.keep_tape(f"run_{case_id}", b"tape\n")
            first.keep_result(result(case_id))
        first.tape("run_a").unlink()
        first.tape("run_b").write_bytes(b"")
    with open_directory(tmp_path, FILE, PLAN) as second:
        assert {"run_a", "run_b"} == set(second.torn)
        second.keep_tape("run_a", b"tape\n")
        assert {"run_b"} == set(second.torn)


@pytest.mark.parametrize("name", [RESULTS, STARTED])
def test_broken_line_in_the_middle_is_refused(tmp_path: Path, name: str) -> None:
    """A line that no crash could have left is named, and nothing is changed."""
    with open_directory(tmp_path, FILE, PLAN):
        pass
    (tmp_path / name).write_bytes(b'{"id"}\n')
    with pytest.raises(InvalidParams, match="line 1"), open_directory(tmp_path, FILE, PLAN):
        pass
    assert b'{"id"}\n' == (tmp_path / name).read_bytes()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("file_sha256", "e" * 64),
        ("model", "other"),
        ("approval", "allow"),
        ("seed", 7),
        ("daemon", "home:/elsewhere"),
        ("scripts_sha256", "d" * 64),
        ("config_sha256", "c" * 64),
    ],
)
def test_another_plan_is_refused(tmp_path: Path, name: str, value: object) -> None:
    """A change of any setting that decides a result is refused, and the error names the remedy."""
    with open_directory(tmp_path, FILE, PLAN):
        pass
    other = msgspec.structs.replace(PLAN, **{name: value})
    with pytest.raises(InvalidParams, match="--out") as caught:  # noqa: SIM117 - one raises
        with open_directory(tmp_path, FILE, other):
            pass
    assert name == caught.value.field


def test_two_commands_do_not_share_a_directory(tmp_path: Path) -> None:
    """A second command in the same directory is refused with Conflict."""
    with (
        open_directory(tmp_path, FILE, PLAN),
        pytest.raises(Conflict),
        open_directory(tmp_path, FILE, PLAN),
    ):
        pass


def test_foreign_directory_is_left_alone(tmp_path: Path) -> None:
    """A directory that holds other things is refused and stays as it is."""
    (tmp_path / "thesis.txt").write_text("years of work", encoding="utf-8")
    with pytest.raises(InvalidParams), open_directory(tmp_path, FILE, PLAN):
        pass
    assert ["thesis.txt"] == [path.name for path in tmp_path.iterdir()]


def test_broken_manifest_is_refused(tmp_path: Path) -> None:
    """A bench.json that is none is an error, not a new beginning."""
    (tmp_path / MANIFEST).write_text("{}", encoding="utf-8")
    with pytest.raises(InvalidParams, match="another directory"):  # noqa: SIM117 - one raises
        with open_directory(tmp_path, FILE, PLAN):
            pass


@pytest.mark.real
def test_full_disk_leaves_whole_lines_and_tapes(tmp_path: Path) -> None:
    """A result or tape that does not fit is an error; what was there stays, nothing is torn."""
    with open_directory(tmp_path, FILE, PLAN) as directory:
        directory.keep_tape("run_a", b"tape\n")
        directory.keep_result(result("a"))
        before = (tmp_path / RESULTS).read_bytes()
        with file_limit(len(before) + 100):
            with pytest.raises(CannotWrite, match="same command"):
                directory.keep_result(result("b"))
            with pytest.raises(CannotWrite, match="same command"):
                directory.keep_tape("run_b", bytes(10_000))
        assert before == (tmp_path / RESULTS).read_bytes()
        assert {("a", 0)} == directory.finished
        assert ["run_a.ndjson"] == [path.name for path in (tmp_path / "tapes").iterdir()]
        directory.keep_result(result("b"))
    assert ["a", "b"] == [one.id for one in read_results(tmp_path)]


def test_directory_without_results_is_refused(tmp_path: Path) -> None:
    """Reading what is no output directory names the remedy."""
    with pytest.raises(InvalidParams, match="bench run"):
        list(read_results(tmp_path))
