"""The output directory: what was done, what is under way, and what the command was.

    bench.json       what is run; written first, durably, and compared by each later command
    started.jsonl    a line before a run is asked for, a line with its id after
    results.jsonl    a line for each case that ended
    tapes/RUN.ndjson its tape, with proof
    summary.json     figures over all results; written whole at the end of each command
    daemon/          the data of the harness's own daemon, where it has one
    workspace/       what its tools may touch
    bench.lock       held by the command that works here

A result is appended after its tape is in place.  Everything but bench.json can be found again from
the daemon: what a power cut took from these files is asked for again.
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

Unit = tuple[str, int]  # a case's id and the repeat


class BenchPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What decides what a result means; a directory holds results of one plan only."""

    file_sha256: str
    model: str | None
    approval: str
    seed: int
    daemon: str  # "own", or where the one is that is used
    scripts_sha256: str | None = None
    config_sha256: str | None = None


class ResultsManifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """bench.json."""

    format: int = 1
    bench_id: str  # in every idempotency key: another directory runs everything anew
    file: str
    plan: BenchPlan


class ResultsStart(msgspec.Struct, frozen=True, kw_only=True):
    """A line of started.jsonl: without a run id, one is about to be asked for."""

    id: str
    repeat: int
    at_ms: int
    run_id: str | None = None


@dataclass(slots=True)
class ResultsDirectory:
    """An output directory that is locked for this process."""

    path: Path
    manifest: ResultsManifest
    finished: set[Unit] = field(default_factory=set)
    started: dict[Unit, ResultsStart] = field(default_factory=dict)  # without a result
    torn: dict[str, Unit] = field(default_factory=dict)  # run ids of results without a whole tape
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
        """Where the run's tape lies."""
        return self.path / TAPES / f"{run_id}.ndjson"

    def note_start(self, start: ResultsStart) -> None:
        """A run is asked for, or has been accepted.  Raises CannotWrite."""
        self._started.append(start)
        self.started[start.id, start.repeat] = start

    def keep_tape(self, run_id: str, export: bytes) -> None:
        """Put the tape in its place.  Raises CannotWrite."""
        write_whole(self.tape(run_id), export, is_synced=False)
        self.torn.pop(run_id, None)

    def keep_result(self, result: CaseResult) -> None:
        """The case has ended; its tape is in place.  Raises CannotWrite."""
        self._results.append(result)
        self.finished.add((result.id, result.repeat))
        self.started.pop((result.id, result.repeat), None)

    def sync(self) -> None:
        """Make results and starts durable.  Raises CannotWrite."""
        self._started.sync()
        self._results.sync()

    def close(self) -> None:
        """Give the files back."""
        self._started.close()
        self._results.close()


def read_results(path: Path) -> Iterator[CaseResult]:
    """The results in an output directory, one by one.  Raises InvalidParams for one without."""
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
    """The directory, made or taken up again, and locked until the block ends.

    Raises Conflict when another command works in it, InvalidParams when it holds something else
    or results of another plan, CannotWrite when it cannot be made.
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
            f"{path} holds other things and no {MANIFEST}: name a new or empty directory with --out"
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
        raise Conflict(f"another command works in {path}: wait for its end") from None


def find_manifest(path: Path) -> ResultsManifest | None:
    """What the directory is for; None for a new one.  Raises InvalidParams when it is broken."""
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
