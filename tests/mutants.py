# ruff: noqa: T201 - a program that prints
"""Change one place of the package at a time and see whether a test fails.

    python -m tests.mutants --seed 7 --count 60
    python -m tests.mutants --floor services --kind slice --kind return --all --until mirror

A sample is drawn evenly over the floors and, within a floor, over the kinds of change.  Each mutant
is tried in a copy of the checkout, never in the checkout itself.  The tests of `--tests` (default:
those of all floors) run once to see which of them execute which lines; `--map` keeps that for the
next time.  Then each mutant meets the tests that execute its statement (`tests/mutant_runs.py`):

1. `mirror`: those of the folder that mirrors the module's, of the file named like it first;
2. `importers`: the others, the quick ones of every file first, for half a minute;
3. `e2e`: with `--until e2e`, a list of suites with real daemons (`--e2e NAME`).

A mutant of a module's own constants needs new imports, so its mirror runs in a process of its own,
followed by the tests whose imports lead to the module, the nearest first.

A failure counts only if the same test passes without the change.  A mutant that no test can tell
from the original is listed with its reason in `tests/mutants.toml` and not run.  Prints a line for
each mutant, the survivors and a table; the exit code is 1 if one survived.
"""

import argparse
import ast
import importlib.util
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import pairwise
from pathlib import Path

import msgspec

from tests import layers
from tests.mutant_runs import Mutant, Verdict

ROOT = Path(__file__).parents[1]
EQUIVALENT = ROOT / "tests" / "mutants.toml"
FLOORS = ("core", "services", "store", "actors", "net")
STAGES = ("mirror", "importers", "e2e")
LIMITS_S = {"mirror": 300, "importers": 300, "e2e": 900}  # a stage that is cut found nothing
TEST_LIMIT_S = 60  # a test that takes longer hangs: mirrors take 3 s at most
MOST_IMPORTERS = 24  # files: farther ones see the module through many others
NICE = 10
SUITES = (
    "approvals",
    "calls",
    "chat",
    "checkpoints",
    "context",
    "memory",
    "openapi",
    "purge",
    "responses",
    "restart",
    "tasks",
)
# Names of numbers, as CONTRIBUTING.md has them end; text and tuples are added, too.
NUMBER = re.compile(r"(^|_)(ms|s|ns|bytes|tokens|chars|bps|seq|count|index|offset|total|place)$")


class _Source:
    """A module with the offset of each of its nodes."""

    def __init__(self, path: str, source: bytes) -> None:
        self.path = path
        self.source = source
        self.tree = ast.parse(source)
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def start(self, node: ast.expr | ast.stmt) -> int:
        return self._starts[node.lineno - 1] + node.col_offset

    def end(self, node: ast.expr | ast.stmt) -> int:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._starts[node.end_lineno - 1] + node.end_col_offset

    def text(self, node: ast.expr | ast.stmt) -> str:
        return self.source[self.start(node) : self.end(node)].decode()

    def nodes(self, node: ast.AST, names: tuple[str, ...] = ()) -> Iterator[tuple[ast.AST, str]]:
        """Each node with the name of its function.

        Left out: annotations, and what is inside of an f-string, whose places Python 3.11 gets wrong.
        """
        for name, value in ast.iter_fields(node):
            if name in {"annotation", "returns", "decorator_list"}:
                continue
            children = value if isinstance(value, list) else [value]
            for child in children:
                if not isinstance(child, ast.AST) or _is_left_out(child):
                    continue
                inner = names
                if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                    inner = (*names, child.name)
                yield child, ".".join(inner)
                yield from self.nodes(child, inner)

    @cached_property
    def statements(self) -> dict[int, tuple[int, int]]:
        """For each line first and last one of the statement it is in, or of the statement's head."""
        found = {}
        for node in ast.walk(self.tree):  # the outer ones first
            if isinstance(node, ast.stmt):
                first, last = _lines(node)
                found.update(dict.fromkeys(range(first, last + 1), (first, last)))
        return found


def _is_left_out(node: ast.AST) -> bool:
    if not isinstance(node, ast.Subscript):
        return isinstance(node, ast.JoinedStr)
    name = node.value.attr if isinstance(node.value, ast.Attribute) else ""
    name = node.value.id if isinstance(node.value, ast.Name) else name
    return name in {"Literal", "Annotated"}


def _lines(node: ast.stmt) -> tuple[int, int]:
    """First and last line of a statement, of its head if it has a body."""
    body = getattr(node, "body", None)
    last = body[0].lineno - 1 if body else node.end_lineno or node.lineno
    return node.lineno, max(node.lineno, last)


Change = tuple[int, int, str]  # start, end, the text in its place


def _slices(module: _Source, node: ast.AST) -> Iterator[Change]:
    bounds = [node.lower, node.upper] if isinstance(node, ast.Slice) else []
    for bound in filter(None, bounds):
        text = module.text(bound)
        text = text if isinstance(bound, ast.Name | ast.Attribute) else f"({text})"
        for sign in "+-":
            yield module.start(bound), module.end(bound), f"{text} {sign} 1"


def _returns(module: _Source, node: ast.AST) -> Iterator[Change]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        for inner in _own(node):
            if isinstance(inner, ast.Return) and inner is not node.body[-1]:
                yield module.start(inner), module.end(inner), "pass"


def _own(function: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function without those of the functions inside of it."""
    for child in ast.iter_child_nodes(function):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield child
            yield from _own(child)


def _booleans(module: _Source, node: ast.AST) -> Iterator[Change]:
    match node:
        case ast.Return(value=ast.Constant(value=bool() as value) as told):
            yield module.start(told), module.end(told), str(not value)
        case _:
            pass


_BOUNDS = {ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">")}


def _comparisons(module: _Source, node: ast.AST) -> Iterator[Change]:
    if isinstance(node, ast.Compare):
        for (left, right), kind in zip(
            pairwise([node.left, *node.comparators]), node.ops, strict=True
        ):
            if type(kind) in _BOUNDS:
                yield _operator(module, left, right, *_BOUNDS[type(kind)])


def _operator(module: _Source, left: ast.expr, right: ast.expr, old: str, new: str) -> Change:
    between = module.source[module.end(left) : module.start(right)].decode()
    code = re.sub(r"#.*", lambda comment: " " * len(comment[0].encode()), between)
    start = module.end(left) + len(code[: code.index(old)].encode())
    return start, start + len(old), new


def _connectives(module: _Source, node: ast.AST) -> Iterator[Change]:
    if isinstance(node, ast.BoolOp):
        old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        start, end = module.start(node), module.end(node)
        text, shift = module.source[start:end], 0
        for left, right in pairwise(node.values):
            first, last, _ = _operator(module, left, right, old, new)
            text = text[: first - start + shift] + new.encode() + text[last - start + shift :]
            shift += len(new) - len(old)
        yield start, end, text.decode()


def _sums(module: _Source, node: ast.AST) -> Iterator[Change]:
    if isinstance(node, ast.BinOp):
        if isinstance(node.op, ast.Sub):
            yield _operator(module, node.left, node.right, "-", "+")
        elif isinstance(node.op, ast.Add) and (_is_number(node.left) or _is_number(node.right)):
            yield _operator(module, node.left, node.right, "+", "-")


def _is_number(node: ast.expr) -> bool:
    match node:
        case ast.Constant(value=value):
            return isinstance(value, int | float)
        case ast.Call(func=ast.Name(id="len" | "sum" | "max" | "min")):
            return True
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return bool(NUMBER.search(name.lower()))
        case ast.BinOp():
            return _is_number(node.left) or _is_number(node.right)
        case _:
            return False


def _constants(module: _Source, node: ast.AST) -> Iterator[Change]:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        for value in (node.value + 1, node.value - 1):
            yield module.start(node), module.end(node), str(value) if value >= 0 else f"({value})"


def _shields(module: _Source, node: ast.AST) -> Iterator[Change]:
    match node:
        case ast.keyword(arg="shield", value=ast.Constant(value=True) as value):
            yield module.start(value), module.end(value), "False"
        case _:
            pass


def _negations(module: _Source, node: ast.AST) -> Iterator[Change]:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield module.start(node), module.end(node), f"({module.text(node.operand)})"


KINDS: dict[str, Callable[[_Source, ast.AST], Iterator[Change]]] = {
    "slice": _slices,
    "return": _returns,
    "boolean": _booleans,
    "comparison": _comparisons,
    "connective": _connectives,
    "sum": _sums,
    "constant": _constants,
    "shield": _shields,
    "negation": _negations,
}


def find_mutants(path: str, source: bytes, kinds: Iterable[str] = tuple(KINDS)) -> list[Mutant]:
    """Every mutant of a file, in the order of the text."""
    module = _Source(path, source)
    found = []
    for node, function in module.nodes(module.tree):
        for kind in kinds:
            for start, end, after in KINDS[kind](module, node):
                line = source.count(b"\n", 0, start) + 1
                mutant = Mutant(
                    path=path,
                    line=line,
                    lines=module.statements[line],
                    function=function,
                    kind=kind,
                    start=start,
                    end=end,
                    before=source[start:end].decode(),
                    after=after,
                )
                found.append(mutant)
    return sorted(found, key=lambda each: (each.start, each.kind, each.after))


def sample(mutants: Sequence[Mutant], floors: Sequence[str], count: int, seed: int) -> list[Mutant]:
    """`count` mutants, evenly over the floors and within a floor over the kinds."""
    rng = random.Random(seed)
    drawn = []
    for number, floor in enumerate(floors):
        share = count // len(floors) + (number < count % len(floors))
        heaps = [
            [each for each in mutants if each.floor == floor and each.kind == kind]
            for kind in KINDS
        ]
        for heap in heaps:
            rng.shuffle(heap)
        rng.shuffle(heaps)
        of_floor: list[Mutant] = []
        while len(of_floor) < share and any(heaps):
            of_floor += [heap.pop() for heap in heaps if heap]
        drawn += of_floor[:share]
    return drawn


def read_equivalent(path: Path = EQUIVALENT) -> dict[tuple[str, str, str, str], str]:
    """Keys of the mutants that change nothing a test could see, with the reason for each."""
    rows = tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]
    return {
        (row["path"], row["function"], row["before"], row["after"]): row["reason"] for row in rows
    }


@cache
def _importers() -> dict[str, set[str]]:
    """For each file of the package and the tests, the files that import it."""
    files = [*layers.read_modules(ROOT / "palyra"), *layers.read_modules(ROOT / "tests")]
    split = sum(1 for _ in (ROOT / "palyra").rglob("*.py"))
    paths = {}
    for number, module in enumerate(files):
        path = f"{'palyra' if number < split else 'tests'}/{module.path}"
        dotted = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        paths[dotted] = path
    found: dict[str, set[str]] = {path: set() for path in paths.values()}
    for own, module in zip(paths.values(), files, strict=True):
        for _, name in layers.imports(module):
            target = paths.get(name) or paths.get(name.rpartition(".")[0])
            if target is not None:
                found[target].add(own)
    return found


def _distances(path: str) -> dict[str, int]:
    """How many imports each test file is away from a module."""
    seen, waiting = {path: 0}, deque([path])
    while waiting:
        near = waiting.popleft()
        for far in _importers().get(near, ()):
            if far not in seen:
                seen[far] = seen[near] + 1
                waiting.append(far)
    return {
        each: far
        for each, far in seen.items()
        if each.startswith("tests/") and each.rpartition("/")[2].startswith("test_")
    }


def plan(path: str, stage: str, suites: Sequence[str]) -> list[str]:
    """The test files of a stage for a module, in the order they run."""
    folder, _, name = path.removeprefix("palyra/").rpartition("/")
    name = name.removesuffix(".py")
    distances = _distances(path)
    if stage == "e2e":
        return [f"tests/e2e/test_{suite}.py" for suite in suites]

    def order(test: str) -> tuple[bool, int, str]:
        is_named = test.rpartition("/")[2].startswith(f"test_{name}")
        return not is_named, distances.get(test, sys.maxsize), test

    mirror = {
        test.relative_to(ROOT).as_posix() for test in (ROOT / "tests" / folder).glob("test_*.py")
    }
    mirror = {test for test in mirror if test in distances or not order(test)[0]}
    if stage == "mirror":
        return sorted(mirror, key=order)
    others = {test for test in distances if not test.startswith(("tests/e2e/", "tests/simulate/"))}
    return sorted(others - mirror, key=order)[:MOST_IMPORTERS]


@dataclass
class Copy:
    """A copy of the checkout in which tests run; other programs find the package there, too."""

    root: Path
    kept: Path  # the map of tests and lines
    passing: dict[str, bool] = field(default_factory=dict)

    @classmethod
    def make(cls, root: Path, kept: Path) -> "Copy":
        listed = subprocess.run(
            ["git", "ls-files", "-coz", "--exclude-standard"],
            cwd=ROOT,
            check=True,
            capture_output=True,
        )
        for name in listed.stdout.decode().split("\0"):
            if (ROOT / name).is_file():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, root / name)
        kept.mkdir(parents=True, exist_ok=True)
        return cls(root, kept)

    @property
    def environment(self) -> dict[str, str]:
        """Examples are the same in each run, and other programs import this copy."""
        return {**os.environ, "PYTHONPATH": str(self.root), "CI": "1"}

    def write(self, path: str, source: bytes) -> None:
        """Write a module; its compiled form may have the same size and the same second."""
        (self.root / path).write_bytes(source)
        Path(importlib.util.cache_from_source(str(self.root / path))).unlink(missing_ok=True)

    def run_tests(self, tests: Sequence[str], limit_s: float, without: Iterable[str] = ()) -> str:
        """Return the first test that fails, or '' when all pass or the time is over."""
        words = [sys.executable, "-m", "tests.survivors", sys.executable, "-m", "pytest", "-qx"]
        words += ["-p", "no:cacheprovider", "-p", "no:xdist", f"--timeout={TEST_LIMIT_S}"]
        words += ["--tb=no", "--no-header", *(f"--deselect={each}" for each in without), *tests]
        process = subprocess.Popen(
            words,
            cwd=self.root,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        try:
            output, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGTERM)
            process.communicate()
            return ""
        failed = re.search(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE)
        if failed is not None:
            return failed[1]
        # 5: no test was left.  1 without a test: a process was left behind, which proves nothing.
        return "" if process.returncode in {0, 1, 5} else f"exit {process.returncode}"

    def find_killer(self, mutant: Mutant, tests: Sequence[str], limit_s: float) -> str:
        """Return the test that fails because of the mutant; '' if none does."""
        source = (ROOT / mutant.path).read_bytes()
        broken: list[str] = []
        while tests:
            self.write(mutant.path, mutant.apply(source))
            killer = self.run_tests(tests, limit_s, broken)
            self.write(mutant.path, source)
            if not killer or self._passes(killer):
                return killer
            broken.append(killer)
        return ""

    def _passes(self, test: str) -> bool:
        """True if a test passes without any change.  A run that named no test is believed."""
        if "::" not in test:
            return True
        if test not in self.passing:
            self.passing[test] = not self.run_tests([test], LIMITS_S["e2e"])
        return self.passing[test]


@dataclass(frozen=True)
class Result:
    mutant: Mutant
    verdict: str  # a stage, "equivalent" or "survived"
    why: str = ""

    def __str__(self) -> str:
        return f"{self.verdict:10} {self.mutant}{f'  [{self.why}]' if self.why else ''}"

    def append_to(self, file: Path) -> None:
        row = {"key": self.mutant.key, "verdict": self.verdict, "why": self.why}
        with file.open("a", encoding="utf-8") as out:
            out.write(json.dumps(row, ensure_ascii=False) + "\n")


def run_mirrors(
    mutants: Sequence[Mutant], copy: Copy, tests: Sequence[str]
) -> Iterator[tuple[Mutant, Verdict]]:
    """Run all mutants in forks of one process."""
    words = [sys.executable, "-m", "tests.survivors", sys.executable, "-m", "tests.mutant_runs"]
    process = subprocess.Popen(
        [*words, str(copy.kept), *tests],
        cwd=copy.root,
        env=copy.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(msgspec.json.encode(mutants))
    process.stdin.close()
    for line in process.stdout:
        verdict = msgspec.json.decode(line, type=Verdict)
        yield mutants[verdict.number], verdict
    process.wait()


def judge(
    mutants: Sequence[Mutant], copy: Copy, tests: Sequence[str], until: str, suites: Sequence[str]
) -> Iterator[Result]:
    """Run the stages of each mutant until one fails."""
    left: list[tuple[Mutant, bool]] = []
    for mutant, verdict in run_mirrors(mutants, copy, tests):
        if verdict.killer:
            folder = mutant.path.rpartition("/")[0].replace("palyra", "tests", 1)
            is_near = verdict.killer.startswith(f"{folder}/") or "::" not in verdict.killer
            yield Result(mutant, "mirror" if is_near else "importers", verdict.killer)
        elif verdict.is_deferred or until == "e2e":
            left.append((mutant, verdict.is_deferred))
        else:
            yield Result(mutant, "survived", f"{verdict.tests} tests execute it")
    stages = STAGES[: STAGES.index(until) + 1]
    for mutant, is_deferred in left:
        for stage in stages if is_deferred else ("e2e",):
            killer = copy.find_killer(mutant, plan(mutant.path, stage, suites), LIMITS_S[stage])
            if killer:
                yield Result(mutant, stage, killer)
                break
        else:
            yield Result(mutant, "survived")


def table(results: Sequence[Result], group: Callable[[Mutant], str]) -> Iterator[str]:
    """Rows of Markdown: how many each stage killed, and the rate without equivalents."""
    yield "| | mutants | mirror | importers | e2e | equivalent | survived | rate |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    for name in [*dict.fromkeys(group(each.mutant) for each in results), "all"]:
        count = Counter(each.verdict for each in results if name in {group(each.mutant), "all"})
        real = count.total() - count["equivalent"]
        rate = f"{(real - count['survived']) / real:.0%}" if real else ""
        cells = [count[each] for each in (*STAGES, "equivalent", "survived")]
        yield f"| {name} | {count.total()} | {' | '.join(map(str, cells))} | {rate} |"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--floor", action="append", choices=FLOORS, help="repeatable; default: all")
    parser.add_argument("--kind", action="append", choices=KINDS, help="repeatable; default: all")
    parser.add_argument(
        "--file", action="append", help="only these, as palyra/services/memory/items.py"
    )
    parser.add_argument("--all", action="store_true", help="every mutant instead of a sample")
    parser.add_argument("--until", choices=STAGES, default=STAGES[1], help="the last stage to run")
    parser.add_argument("--e2e", action="append", help="a suite by its name, as memory")
    parser.add_argument("--list", action="store_true", help="print the mutants and run nothing")
    parser.add_argument(
        "--map", type=Path, help="folder that keeps which tests execute which lines"
    )
    parser.add_argument("--tests", action="append", help="folders or files; default: all floors")
    parser.add_argument("--again", type=Path, help="only the survivors in a file of --json")
    parser.add_argument("--json", type=Path, help="append each result to this file as a line")
    given = parser.parse_args(arguments)
    floors = given.floor or FLOORS
    paths = given.file or [
        path.relative_to(ROOT).as_posix()
        for floor in floors
        for path in sorted((ROOT / "palyra" / floor).rglob("*.py"))
    ]
    mutants = [
        each
        for path in paths
        for each in find_mutants(path, (ROOT / path).read_bytes(), given.kind or KINDS)
    ]
    if given.again is not None:
        rows = map(json.loads, given.again.read_text(encoding="utf-8").splitlines())
        survived = {tuple(row["key"]) for row in rows if row["verdict"] == "survived"}
        mutants = [each for each in mutants if each.key in survived]
    elif not given.all:
        mutants = sample(mutants, floors, given.count, given.seed)
    if given.list:
        print(*mutants, sep="\n")
        return 0
    os.nice(NICE)
    equivalent = read_equivalent()
    results = [
        Result(each, "equivalent", equivalent[each.key])
        for each in mutants
        if each.key in equivalent
    ]
    wanted = [each for each in mutants if each.key not in equivalent]
    tests = given.tests or [f"tests/{floor}" for floor in FLOORS]
    with tempfile.TemporaryDirectory(prefix="palyra-mutants-") as folder:
        copy = Copy.make(Path(folder), (given.map or Path(folder) / "map").resolve())
        for result in judge(wanted, copy, tests, given.until, given.e2e or SUITES):
            results.append(result)
            print(f"{len(results)}/{len(mutants)} {result}", flush=True)
            if given.json is not None:
                result.append_to(given.json)
    survivors = [each for each in results if each.verdict == "survived"]
    print("", f"{len(survivors)} survived:", *survivors, "", sep="\n")
    print(*table(results, lambda each: each.floor), "", sep="\n")
    print(*table(results, lambda each: each.kind), sep="\n")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
