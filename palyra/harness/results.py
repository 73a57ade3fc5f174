"""Output directory of a bench: its plan, the started runs, the results and the tapes.

    bench.json       the plan; written first, durably, and compared by each later command
    started.jsonl    a line before a run is requested, and a line with its id afterwards
    results.jsonl    a line for each finished case
    tapes/RUN.ndjson the sealed export of the run's tape
    summary.json     figures over all results; replaced atomically at the end of each command
    daemon/          the data of the local daemon, if there is one
    workspace/       the workspace of the local daemon's tools
    bench.lock       locked by the command that uses the directory

Theory: a result is appended only after its tape is in place, so a result implies a tape.  Tapes and
lines are not flushed one by one; after a power failure a result can lack its tape or a case its
result.  Both are fetched from the daemon again.  Only bench.json cannot be restored, because it
contains the bench id, from which the idempotency keys of the runs are derived.  It is therefore
written durably before anything else.
"""

import fcntl
import os
import secrets
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from palyra.errors import Conflict, InvalidParams
from palyra.harness.jsonl import FILE_MODE, LineLog, cannot_write, write_whole
from palyra.harness.outcome import CaseResult

MANIFEST, LOCK, STARTED, RESULTS = "bench.json", "bench.lock", "started.jsonl", "results.jsonl"
TAPES, SUMMARY, DAEMON, WORKSPACE = "tapes", "summary.json", "daemon", "workspace"
DIRECTORY_MODE = 0o700

Unit = tuple[str, int]  # id of a case, number of the repeat


class BenchPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings that determine the results; a directory contains results of one plan only."""

    file_sha256: str
    model: str | None
    approval: str
    seed: int
    daemon: str  # "own", "url:ADDRESS" or "home:DIRECTORY"
    scripts_sha256: str | None = None
    config_sha256: str | None = None


class ResultsManifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Content of bench.json."""

    format: int = 1
    bench_id: str  # part of every idempotency key, so that another directory repeats all runs
    file: str
    plan: BenchPlan


class ResultsStart(msgspec.Struct, frozen=True, kw_only=True):
    """Line of started.jsonl; without a run id the run is about to be requested."""

    id: str
    repeat: int
    at_ms: int
    run_id: str | None = None


@dataclass(slots=True)
class ResultsDirectory:
    """Output directory that is locked by this process."""

    path: Path
    manifest: ResultsManifest
    finished: set[Unit] = field(default_factory=set)
    started: dict[Unit, ResultsStart] = field(default_factory=dict)  # cases without a result
    torn: dict[str, Unit] = field(default_factory=dict)  # run id -> result without a complete tape
    _results: LineLog = field(init=False)
    _started: LineLog = field(init=False)

    def __post_init__(self) -> None:
        self._started = LineLog(self.path / STARTED, self._note_start)
        self._results = LineLog(self.path / RESULTS, self._note_result)

    def _note_start(self, line: bytes) -> None:
        start = msgspec.json.decode(line, type=ResultsStart)
        self.started[start.id, start.repeat] = start

    def _note_result(self, line: bytes) -> None:
        result = msgspec.json.decode(line, type=CaseResult)
        unit = result.id, result.repeat
        self.finished.add(unit)
        self.started.pop(unit, None)
        if result.run_id is not None and self._tape_size(result.run_id) != result.tape_bytes:
            self.torn[result.run_id] = unit

    def _tape_size(self, run_id: str) -> int:
        try:
            return self.tape(run_id).stat().st_size
        except FileNotFoundError:
            return -1

    def tape(self, run_id: str) -> Path:
        """Return the path of the run's tape."""
        return self.path / TAPES / f"{run_id}.ndjson"

    def note_start(self, start: ResultsStart) -> None:
        """Append a requested or an accepted run to started.jsonl.  Raises CannotWrite."""
        self._started.append(start)
        self.started[start.id, start.repeat] = start

    def keep_tape(self, run_id: str, export: bytes) -> None:
        """Write the exported tape of a run.  Raises CannotWrite."""
        write_whole(self.tape(run_id), export, is_synced=False)
        self.torn.pop(run_id, None)

    def keep_result(self, result: CaseResult) -> None:
        """Append the result of a finished case, whose tape is in place.  Raises CannotWrite."""
        self._results.append(result)
        self.finished.add((result.id, result.repeat))
        self.started.pop((result.id, result.repeat), None)

    def sync(self) -> None:
        """Flush started.jsonl and results.jsonl to the disk.  Raises CannotWrite."""
        self._started.sync()
        self._results.sync()

    def close(self) -> None:
        """Close started.jsonl and results.jsonl."""
        self._started.close()
        self._results.close()


def read_results(path: Path) -> Iterator[CaseResult]:
    """Yield the complete results of an output directory, in file order.

    Raises InvalidParams for a directory without readable results, and for an invalid line.
    """
    results = path / RESULTS
    try:
        with results.open("rb") as file:
            whole = (each for each in enumerate(file, 1) if each[1].endswith(b"\n"))
            yield from (_decode_result(results, number, line) for number, line in whole)
    except OSError as error:
        raise InvalidParams(
            f"{results} cannot be read: {error.strerror}: name a directory of `palyra bench run`"
        ) from None


_RESULT = msgspec.json.Decoder(CaseResult)


def _decode_result(path: Path, number: int, line: bytes) -> CaseResult:
    try:
        return _RESULT.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidParams(f"{path}, line {number}: {error}") from None


@contextmanager
def open_directory(path: Path, file: Path, plan: BenchPlan) -> Generator[ResultsDirectory]:
    """Create or reopen the output directory and lock it for the length of the block.

    Raises Conflict if another command has locked it, InvalidParams if it contains other files or
    results of another plan, and CannotWrite if it cannot be created.
    """
    try:
        path.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(path, error) from None
    _require_ours(path)
    with _locked(path):
        manifest = find_manifest(path) or _new_manifest(path, file, plan)
        _require_same(path, manifest.plan, plan)
        (path / TAPES).mkdir(mode=DIRECTORY_MODE, exist_ok=True)
        directory = ResultsDirectory(path, manifest)
        try:
            yield directory
        finally:
            directory.close()


def _require_ours(path: Path) -> None:
    names = {entry.name for entry in path.iterdir()}
    if names - {LOCK, f".{MANIFEST}.draft"} and MANIFEST not in names:
        raise InvalidParams(
            f"{path} contains other files and no {MANIFEST}: name a new or empty directory with --out"
        )


@contextmanager
def _locked(path: Path) -> Generator[None]:
    try:
        descriptor = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    except OSError as error:
        raise cannot_write(path / LOCK, error) from None
    try:
        _lock(descriptor, path)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, path: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Conflict(f"another command uses {path}: wait for its end") from None


def find_manifest(path: Path) -> ResultsManifest | None:
    """Read bench.json; None for a directory without one.  Raises InvalidParams if it is invalid."""
    file = path / MANIFEST
    try:
        return msgspec.json.decode(file.read_bytes(), type=ResultsManifest)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidParams(f"{file} cannot be used: {error}: begin in another directory") from None


def _new_manifest(path: Path, file: Path, plan: BenchPlan) -> ResultsManifest:
    manifest = ResultsManifest(bench_id=secrets.token_hex(8), file=str(file), plan=plan)
    text = msgspec.json.format(msgspec.json.encode(manifest)) + b"\n"
    write_whole(path / MANIFEST, text, is_synced=True)
    _sync_names(path)
    return manifest


def _sync_names(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


WORDS = {
    "file_sha256": "the input file is not the one",
    "model": "--model is not the one",
    "approval": "--approval is not the one",
    "seed": "--seed is not the one",
    "daemon": "the daemon is not the one",
    "scripts_sha256": "the scripts are not the ones",
    "config_sha256": "the configuration is not the one",
}


def _require_same(path: Path, before: BenchPlan, now: BenchPlan) -> None:
    for name, words in WORDS.items():
        then, given = getattr(before, name), getattr(now, name)
        if then != given:
            raise InvalidParams(
                f"{words} that the results in {path} were made with ({then}, now {given}): "
                "put it back to go on, or name another directory with --out",
                field=name,
            )
