"""Tests against mutants, in forks of one process that has imported and collected everything.

Used by `tests/mutants.py`: runs in a copy of the checkout.  A first fork runs every test and records
which of them execute which lines of the package.  Then each mutant has a fork, in which the functions
that it changes get new code, and the tests that execute its lines run until one fails.  A mutant that
changes more than the bodies of functions (constants of a module, defaults of arguments) would need
new imports; it is left to the caller.

A failure counts only if the test passes in a fork without the change.
"""

import gc
import json
import os
import select
import signal
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, TextIO

import coverage
import msgspec
import pytest

TEST_LIMIT_S = 60  # a test that takes longer hangs
MOST_SPENT_S = 30.0  # of the tests of a mutant, as long as they took without it
LIMIT_S = 600.0  # of the tests of a mutant, against hanging


class Mutant(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a file and the text to put in its place; offsets are bytes."""

    path: str
    line: int
    lines: tuple[int, int]  # of the statement, or of its head
    function: str
    kind: str
    start: int
    end: int
    before: str
    after: str

    def __str__(self) -> str:
        place = f"{self.path}:{self.line} {self.function}"
        return f"{place}: {_one_line(self.before)} → {_one_line(self.after)}"

    @property
    def floor(self) -> str:
        return self.path.split("/")[1]

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Name of the mutant that stays when lines move."""
        return self.path, self.function, _one_line(self.before), _one_line(self.after)

    def apply(self, source: bytes) -> bytes:
        """Return the file with the change; the lines after it keep their numbers."""
        missing = self.before.count("\n") - self.after.count("\n")
        after = self.after + "\n" * missing
        return source[: self.start] + after.encode() + source[self.end :]


class Verdict(msgspec.Struct, frozen=True):
    """The tests that execute a mutant, and the first that fails."""

    number: int  # of the mutant
    tests: int = 0  # None of them: no test executes it
    killer: str = ""
    is_deferred: bool = False  # more than the bodies of functions changes


def _one_line(text: str) -> str:
    return " ".join(text.split())


@dataclass
class Map:
    """Which tests execute which lines, kept for one state of the package."""

    folder: Path
    package: str  # its SHA-256
    failed: set[str] = field(default_factory=set)
    spent_s: dict[str, float] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path) -> "Map":
        digest = sha256()
        for path in sorted(Path("palyra").rglob("*.py")):
            digest.update(path.read_bytes())
        map_ = cls(folder, digest.hexdigest())
        place = folder / "tests.json"
        if place.exists():
            told = json.loads(place.read_text(encoding="utf-8"))
            if told["package"] == map_.package:
                return replace(map_, failed=set(told["failed"]), spent_s=told["spent_s"])
            (folder / "tests.coverage").unlink()
        return map_

    def write(self) -> None:
        told = {"package": self.package, "failed": sorted(self.failed), "spent_s": self.spent_s}
        (self.folder / "tests.json").write_text(json.dumps(told), encoding="utf-8")

    def read_lines(self) -> dict[str, dict[int, set[str]]]:
        """Return the tests by file and line; the copies may have had several places."""
        data = coverage.CoverageData(str(self.folder / "tests.coverage"))
        data.read()
        lines: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
        for name in data.measured_files():
            path = f"palyra/{name.rpartition('/palyra/')[2]}"
            for line, tests in data.contexts_by_lineno(name).items():
                lines[path][line].update(tests)
        return lines


class Runs:
    """A plugin that does everything in place of the run of the tests."""

    def __init__(self, mutants: Sequence[Mutant], kept: Path, out: TextIO) -> None:
        self._mutants = mutants
        self._kept = kept
        self._out = out
        self._failed: list[str] = []
        self._spent_s: dict[str, float] = defaultdict(float)
        self._passing: dict[str, bool] = {}  # without a change

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._spent_s[report.nodeid] += report.duration
        if report.failed:
            self._failed.append(report.nodeid)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        map_ = self._make_map(session)
        lines, functions = map_.read_lines(), _find_functions()
        items = {item.nodeid: item for item in session.items}
        for number, mutant in enumerate(self._mutants):
            changes = _changes(mutant)
            if changes is None or not _fits(changes, functions[mutant.path]):
                verdict = Verdict(number, is_deferred=True)
            else:
                first, last = mutant.lines
                of_file = lines[mutant.path]
                found = {test for at in range(first, last + 1) for test in of_file[at]}
                chosen = [items[test] for test in _choose(mutant, found & items.keys(), map_)]
                killer = self._find_killer(session, chosen, changes, functions[mutant.path])
                verdict = Verdict(number, tests=len(found), killer=killer)
            self._out.write(msgspec.json.encode(verdict).decode() + "\n")
            self._out.flush()
        return True

    def _find_killer(
        self,
        session: pytest.Session,
        items: list[pytest.Item],
        changes: Sequence[CodeType],
        functions: Sequence[FunctionType],
    ) -> str:
        """Return the first test that fails because of the changes; '' if none does."""
        while items:
            killer = self._run(session, items, changes, functions)
            test = next((each for each in items if each.nodeid == killer), None)
            if test is None:  # none failed, or one that ended the process
                return killer
            if killer not in self._passing:
                self._passing[killer] = not self._run(session, [test])
            if self._passing[killer]:
                return killer
            items = [each for each in items if each is not test]
        return ""

    def _make_map(self, session: pytest.Session) -> "Map":
        """Run the tests that the kept map does not have in a fork; return the map of all."""
        map_ = Map.read(self._kept)
        new = [item for item in session.items if item.nodeid not in map_.spent_s]

        def run() -> None:
            traced = coverage.Coverage(
                data_file=str(self._kept / "tests.coverage"),
                config_file=False,
                include=["*/palyra/*"],
                messages=False,
            )
            traced.load()
            traced.start()
            for item, following in _with_next(new):
                traced.switch_context(item.nodeid)
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            traced.stop()
            traced.save()
            map_.failed |= set(self._failed)
            map_.spent_s |= self._spent_s
            map_.write()

        if new:
            _fork(run, limit_s=24 * 3600)
            map_ = Map.read(self._kept)
        session.items = [item for item in session.items if item.nodeid not in map_.failed]
        return map_

    def _run(
        self,
        session: pytest.Session,
        items: Sequence[pytest.Item],
        changes: Sequence[CodeType] = (),
        functions: Sequence[FunctionType] = (),
    ) -> str:
        """Return the first test that fails in a fork with the changes; '' if none does."""

        def run() -> str:
            _patch(changes, functions)
            for item, following in _with_next(items):
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                if self._failed:
                    with suppress(BaseException):
                        session._setupstate.teardown_exact(None)
                    return self._failed[0]
            return ""

        return _fork(run, LIMIT_S)


def _choose(mutant: Mutant, tests: Iterable[str], map_: Map) -> list[str]:
    """Return the nearest tests, the quick ones first and of every file some, as time permits."""
    folder = mutant.path.rpartition("/")[0].replace("palyra", "tests", 1)
    named = f"{folder}/test_{Path(mutant.path).stem}"
    rank: Counter[str] = Counter()
    ordered = []
    for test in sorted(tests, key=lambda each: (map_.spent_s[each], each)):
        file = test.partition("::")[0]
        rank[file] += 1
        place = (not test.startswith(named), not test.startswith(f"{folder}/"), rank[file])
        ordered.append((place, test))
    chosen, spent_s = [], 0.0
    for (_, is_other, _), test in sorted(ordered):
        spent_s += map_.spent_s[test]
        if is_other and spent_s > MOST_SPENT_S:
            break
        chosen.append(test)
    return chosen


def _with_next(items: Sequence[pytest.Item]) -> Iterator[tuple[pytest.Item, pytest.Item | None]]:
    return zip(items, [*items[1:], None], strict=True)


def _fork(run: Callable[[], str | None], limit_s: float) -> str:
    """Return what a fork of this process returns; a name for one that dies or is too late."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            os.close(ours)
            os.write(theirs, (run() or "").encode() or b"\0")
        finally:
            os._exit(0)
    os.close(theirs)
    try:
        is_ready = select.select([ours], [], [], limit_s)[0]
        told = os.read(ours, 4096) if is_ready else b"hangs"
    finally:
        os.close(ours)
        with suppress(ProcessLookupError):  # it may not have its own group yet
            os.killpg(pid, signal.SIGKILL)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return "dies" if not told else told.decode().strip("\0")


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _codes(each)


def _own(code: CodeType) -> tuple[Any, ...]:
    """What a code does itself, without the codes in it."""
    consts = tuple((type(each), each) for each in code.co_consts if not isinstance(each, CodeType))
    return code.co_code, repr(consts), code.co_names, code.co_exceptiontable


def _name(code: CodeType) -> tuple[str, int]:
    return code.co_qualname, code.co_firstlineno


def _changes(mutant: Mutant) -> list[CodeType] | None:
    """Return the new codes of functions; None if code that runs at the import changes."""
    source = Path(mutant.path).read_bytes()
    place = str(Path(mutant.path).resolve())
    old = list(_codes(compile(source, place, "exec")))
    new = list(_codes(compile(mutant.apply(source), place, "exec")))
    if len(old) != len(new):
        return None
    changed = [after for before, after in zip(old, new, strict=True) if _own(before) != _own(after)]
    is_body = [each.co_flags & 0x2 for each in changed]  # CO_NEWLOCALS: a function's
    if not changed or not all(is_body):
        return None
    inside = {id(each) for code in changed for each in _codes(code)}
    # The function at the outside holds the codes of those in it.
    return [code for code in new if code.co_flags & 0x2 and _holds(code, inside)]


def _holds(code: CodeType, wanted: set[int]) -> bool:
    return any(id(each) in wanted for each in _codes(code))


def _find_functions() -> dict[str, list[FunctionType]]:
    """Every function of the package that exists, by its file."""
    root = f"{Path.cwd()}/"
    found = defaultdict(list)
    for each in gc.get_objects():
        if type(each) is FunctionType and each.__code__.co_filename.startswith(root):
            found[each.__code__.co_filename.removeprefix(root)].append(each)
    return found


def _fits(changes: Sequence[CodeType], functions: Sequence[FunctionType]) -> bool:
    """True if the functions may have the new codes: the variables of their closures are the same."""
    named = {_name(code): code for code in changes}
    return all(
        function.__code__.co_freevars == named[name].co_freevars
        for function in functions
        if (name := _name(function.__code__)) in named
    )


def _patch(changes: Sequence[CodeType], functions: Sequence[FunctionType]) -> None:
    named = {_name(code): code for code in changes}
    for function in functions:
        code = named.get(_name(function.__code__))
        if code is not None:
            function.__code__ = code


def main() -> int:
    """Read the folder of the map and the tests from the arguments, mutants from standard input."""
    mutants = msgspec.json.decode(sys.stdin.buffer.read(), type=list[Mutant])
    out = os.fdopen(os.dup(1), "w")
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):
        os.dup2(null, stream)
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", f"--timeout={TEST_LIMIT_S}"]
    code = pytest.main(
        [*options, "--tb=no", *sys.argv[2:]], plugins=[Runs(mutants, Path(sys.argv[1]), out)]
    )
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
