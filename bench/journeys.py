"""Amount of code on three journeys through the daemon: files, functions and lines.

Prints the files of each journey and one JSON line.  Dynamic: the functions that ran, from a profile
of one run in a warm daemon, started by a client process over a loopback WebSocket.  Static: the
dynamic files and those whose names the executed functions mention.  Lines are whole files, and
those of the executed functions alone.

- `message`: a client's frame, the accepted run, its commit, up to the first request to the model.
- `tool_call`: the model's proposal, the gate, the execution, up to the append of the attested row;
  the journal and the tool's own code are not counted.
- `append`: the last step of a run, its rows, the commit on disk, up to the journal's answer.

No journey includes the actor kernel (`KERNEL`), which is on each of them, or periodic work (the
clock of the loop is held).
"""

import ast
import json
import logging
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Self

import structlog
import trio
from _calls import PALYRA
from calls import StandingClock, fix_coin

from palyra.client import connect
from palyra.config.load import load
from palyra.daemon import Daemon
from palyra.store.files.data_directory import DataDirectory
from palyra.store.journal.keys import KeyRing

TEXT = '/call echo {"text": "hello"}'
TOKEN = "x" * 43
WARM_UP = 3
KERNEL = frozenset(
    f"actors/kernel/{name}.py"
    for name in ("mailbox", "reply", "child", "supervisor", "dynamic", "threads")
)
CONNECTION = ("net/", "operations/runs.py")  # its own requests go on beside a call and an append
TOOL = frozenset({"tools/demo_tools.py"})  # the tool that the run calls
Function = tuple[str, str]  # file below palyra/ and qualified name


@dataclass(frozen=True, slots=True)
class Journey:
    """Calls between two marks in the trace of a run, without files that start with `without`.

    `begin` is None for the start of the trace; `number` is the index of its call that counts.
    """

    name: str
    begin: Function | None
    number: int  # 0 is the first, -1 the last
    end: Function
    without: tuple[str, ...] = ()


MODEL = ("models/scripted/model.py", "Scripted.stream")
JOURNEYS = (
    Journey("message", None, 0, MODEL),
    Journey(
        "tool_call",
        ("core/run/decide.py", "turn_completed"),
        0,
        ("core/tool/attestation.py", "seal_attestation"),
        ("store/", "actors/journal", *CONNECTION, *TOOL),
    ),
    Journey(
        "append",
        ("actors/run/actor.py", "_RunActor.emit"),
        -1,
        ("actors/journal/actor.py", "_Incarnation._acknowledge"),
        CONNECTION,
    ),
)


class Trace:
    """Ordered trace of all calls of palyra's functions in all threads."""

    def __init__(self) -> None:
        self.codes: list[CodeType] = []

    def __enter__(self) -> Self:
        threading.setprofile(self._hook)
        sys.setprofile(self._hook)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _hook(self, frame: FrameType, event: str, _arg: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(PALYRA)):
            self.codes.append(frame.f_code)


def function_of(code: CodeType) -> Function:
    return str(Path(code.co_filename).relative_to(PALYRA)), code.co_qualname


def cut(trace: Iterable[CodeType], journey: Journey) -> set[CodeType]:
    """Return the functions executed on the journey; fail if a mark has been renamed."""
    codes = list(trace)
    functions = [function_of(code) for code in codes]
    begins = [at for at, function in enumerate(functions) if function == journey.begin]
    assert begins or journey.begin is None, f"{journey.name}: {journey.begin} did not run"
    begin = begins[journey.number] if begins else 0
    ends = [at for at in range(begin, len(functions)) if functions[at] == journey.end]
    assert ends, f"{journey.name}: {journey.end} did not run"
    left_out = (*KERNEL, *journey.without)
    return {
        code
        for code, (file, _) in zip(codes[begin : ends[0] + 1], functions[begin:], strict=False)
        if not file.startswith(left_out)
    }


# --- one traced run ------------------------------------------------------------------------------


async def trace_run(home: Path, clock: StandingClock, trace: Trace) -> list[CodeType]:
    """Return the calls of a warm daemon for one run of a client in another process."""
    (home / "workspace").mkdir()
    overrides = {"tools.workspace": str(home / "workspace"), "server.port": 0}
    config = load(home=home / "home", overrides=overrides, environ={})
    with DataDirectory(config.paths.data_dir) as data:
        served = Daemon(config, keys=KeyRing.open(data.keys), operator_token=TOKEN)
        edge = served.build_edge()
        await edge.binding.prepare()
        async with trio.open_nursery() as nursery:
            await nursery.start(served.run, [edge.child_spec()])
            await served.wait_ready()
            url = f"{edge.binding.url.replace('http', 'ws', 1)}/v1/ws"
            command = [sys.executable, __file__, "--client", url]
            client = await trio.lowlevel.open_process(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            for _ in range(WARM_UP):
                await one_run(served, client)
            clock.hold()
            trace.codes.clear()
            await one_run(served, client)
            codes = list(trace.codes)
            clock.is_held = False
            client.terminate()
            await client.wait()
            served.stop("traced")
    return codes


async def one_run(served: Daemon, client: trio.Process) -> None:
    """Have the client start a run, and wait until its end is committed."""
    assert client.stdin is not None
    assert client.stdout is not None
    await client.stdin.send_all(b"\n")
    run_id = (await client.stdout.receive_some()).decode().strip()
    run = served.registry.runs.get(run_id)
    while run is not None and not run.is_ended:
        await run.wait_change()


async def run_client(url: str) -> None:
    """Start a run for every line of standard input and print its id."""
    async with connect(url, token=TOKEN, name="bench") as client:
        while await trio.to_thread.run_sync(sys.stdin.readline):
            started = await client.start_run(TEXT)
            print(started.run_id, flush=True)


# --- the code that ran ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Source:
    """One file: its lines, its functions by first line, and the targets of its imported names."""

    lines: int
    functions: Mapping[int, ast.AST]
    imported: dict[str, str]  # name to file below palyra/


@cache
def read_source(file: str) -> Source:
    text = (PALYRA / file).read_text(encoding="utf-8")
    nodes = list(ast.walk(ast.parse(text)))
    functions = {
        min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)]): node
        for node in nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    imported = {
        alias.asname or alias.name: found
        for node in nodes
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
        if (found := find_file(node.module, alias.name)) is not None
    }
    return Source(text.count("\n"), functions, imported)


def find_file(module: str, name: str) -> str | None:
    """Return the file below palyra/ that `from module import name` reads; None for other packages."""
    top, *folders = module.split(".")
    if top != PALYRA.name:
        return None
    base = Path(*folders)
    places = (
        base / f"{name}.py",
        base.with_suffix(".py") if folders else base,
        base / "__init__.py",
    )
    return next((str(place) for place in places if (PALYRA / place).is_file()), None)


def mentioned_files(code: CodeType) -> set[str]:
    """Return the files of the names that a function mentions, including annotations."""
    source = read_source(function_of(code)[0])
    node = source.functions.get(code.co_firstlineno)
    names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)} if node else set()
    return {source.imported[name] for name in names & source.imported.keys()}


def function_lines(codes: Iterable[CodeType]) -> int:
    """Count the lines of the executed functions; an inner function is part of the outer one."""
    lines: set[tuple[str, int]] = set()
    for code in codes:
        file = function_of(code)[0]
        node = read_source(file).functions.get(code.co_firstlineno)
        last = getattr(node, "end_lineno", code.co_firstlineno)
        lines |= {(file, line) for line in range(code.co_firstlineno, last + 1)}
    return len(lines)


def measure(codes: set[CodeType], journey: Journey) -> tuple[dict[str, int], dict[str, int]]:
    """Return the figures of a journey, and its files with the functions executed in each."""
    files: dict[str, int] = {}
    for code in codes:
        file = function_of(code)[0]
        files[file] = files.get(file, 0) + 1
    left_out = (*KERNEL, *journey.without)
    static = {file for code in codes for file in mentioned_files(code)} | files.keys()
    static = {file for file in static if not file.startswith(left_out)}
    figures = {
        "files": len(files),
        "functions": len(codes),
        "lines": sum(read_source(file).lines for file in files),
        "function_lines": function_lines(codes),
        "static_files": len(static),
        "static_lines": sum(read_source(file).lines for file in static),
    }
    return figures, files | dict.fromkeys(static - files.keys(), 0)


def main() -> None:
    """Trace one run and print its journeys."""
    if sys.argv[1:2] == ["--client"]:
        trio.run(run_client, sys.argv[2])
        return
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    clock = StandingClock()
    fix_coin("heads")
    with tempfile.TemporaryDirectory() as home, Trace() as trace:
        codes = trio.run(trace_run, Path(home), clock, trace, clock=clock)
    result: dict[str, dict[str, int]] = {}
    for journey in JOURNEYS:
        figures, files = measure(cut(codes, journey), journey)
        result[journey.name] = figures
        print(journey.name, *(f"{name} {value:,}" for name, value in figures.items()), sep="  ")
        for file in sorted(files):
            ran = f"{files[file]} functions" if files[file] else "mentioned"
            print(f"  {file:40} {ran:>14} {read_source(file).lines:6} lines")
    print(json.dumps({"bench": "journeys", **result}))


if __name__ == "__main__":
    main()
