"""Code blocks of the documents: found in Markdown, run as a reader would run them.

    ```python              the block is a script and must exit 0
    ```console   ```sh     each `$ palyra ...` line must exit 0, and the lines below it must
                           appear in its output in that order; `...` stands for any text
    ```js                  a module of Node that must exit 0, with `palyra-client` installed; skipped
                           without Node, which `test_docs` says
    ```python daemon       as the first, with a daemon running that the reader has started
    ```sh no-run           not run; the HTML comment directly above must say why
    ```console bubblewrap  not run where bubblewrap is not installed, which `test_docs` says
    ```console curl        `$ curl ...` lines are run as well; skipped like the one above

The blocks of one document share a home, a working directory and a daemon, so a document can
tell a story from top to bottom.  `$ eval "$(palyra env)"` sets variables for the blocks below it.
In a command `run_…` is the newest id of that kind that a command above it has printed, and the
comment `# exit code 6` at the end of a line is the status with which the command has to end.
They run in the environment of a reader who has followed the tour: an ordinary HOME, the folder of
`palyra` on PATH, a checkout as working directory, and no variable that no page has told to set.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from tests.forked import ForkedProcess, Setting, reading_pipe
from tests.optional import REMEDIES, is_installed

ROOT = Path(__file__).resolve().parent.parent
PALYRA = (sys.executable, "-m", "palyra")
SHELL_VARIABLES = ("PWD", "OLDPWD", "SHLVL", "_")  # that a shell sets by itself
SHELL_SIGNS = frozenset("|<>;&$*?#~`(){}\\\n")

EVAL = '$ eval "$(palyra '
SHELLS = frozenset({"console", "sh", "bash", "shell"})
SCRIPTS = {"python": (sys.executable, "py"), "js": ("node", "mjs")}  # what runs it, and its suffix
RUNNABLE = SHELLS | SCRIPTS.keys()

Started = ForkedProcess | subprocess.Popen[bytes]

# Packages of Node: ours, and one in the place of a plugin that needs Tauri.
PACKAGES = {
    "palyra-client": "clients/typescript",
    "@tauri-apps/plugin-shell": "tests/fakes/tauri_shell",
}

COMMAND_LIMIT_S = 60
DAEMON_START_LIMIT_S = 30
DAEMON_STOP_LIMIT_S = 20  # the drain's own grace is 10 s
POLL_S = 0.02

# A plural of one or two words right after `...`, as `re.escape` leaves it.
COUNTED = re.compile(r"^((?:\\ [a-z]+){1,2}?)s(?![a-z])")
# What a shell takes as it is: a text in single quotes, and a comment at the end.
PLAIN = re.compile(r"'[^']*'|\s#\s[^']*$")
EXIT_CODE = re.compile(r" # exit code (\d+)$")
ID = re.compile(r"\b([a-z]{3})_[0-9a-f-]{36}\b")
ANY_ID = re.compile(r"\b([a-z]{3})_…")
FENCE = re.compile(r"^(?P<indent> *)(?P<fence>`{3,}|~{3,})\s*(?P<info>[^`]*)$")


class BadBlock(Exception):
    """A block, or a command in it, that did not do what the document says."""


@dataclass(frozen=True, slots=True)
class Block:
    document: str
    line: int  # of the opening fence, from 1
    language: str
    words: frozenset[str]  # of the info string after the language
    text: str
    comment: str  # the HTML comment directly above, without its marks

    @property
    def place(self) -> str:
        return f"{self.document}:{self.line}"

    @property
    def is_runnable(self) -> bool:
        words = self.words | ({"no-run"} if self.missing_programs else set())
        return self.language in RUNNABLE and "no-run" not in words

    @property
    def missing_programs(self) -> list[str]:
        """Optional programs that it needs and that are not installed."""
        needed = self.words | ({"node"} if self.language == "js" else set())
        return sorted(each for each in needed & REMEDIES.keys() if not is_installed(each))

    @property
    def is_unjustified(self) -> bool:
        return self.language in RUNNABLE and "no-run" in self.words and not self.comment


@dataclass(frozen=True, slots=True)
class Step:
    """One command of a shell block and the output lines the document shows for it."""

    command: str
    expected: tuple[str, ...]
    status: int = 0


def find_blocks(document: str, markdown: str) -> list[Block]:
    """All fenced blocks in order, whatever their language."""
    lines = markdown.splitlines()
    blocks: list[Block] = []
    at = 0
    while at < len(lines):
        opening = FENCE.match(lines[at])
        if opening is None:
            at += 1
            continue
        end = _find_end(lines, at, opening["fence"])
        blocks.append(_block(document, lines, at, end, opening))
        at = end + 1
    return blocks


def _find_end(lines: Sequence[str], start: int, fence: str) -> int:
    """Index of the closing fence; the end of the document closes a fence left open."""
    closing = re.compile(rf" *{re.escape(fence[0])}{{{len(fence)},}}\s*")
    later = range(start + 1, len(lines))
    return next((at for at in later if closing.fullmatch(lines[at])), len(lines))


def _block(
    document: str, lines: Sequence[str], start: int, end: int, opening: re.Match[str]
) -> Block:
    language, *words = opening["info"].split() or [""]
    indent = len(opening["indent"])
    body = [line[min(indent, len(line) - len(line.lstrip())) :] for line in lines[start + 1 : end]]
    return Block(
        document=document,
        line=start + 1,
        language=language.lower(),
        words=frozenset(words),
        text="\n".join([*body, ""]),
        comment=_comment_above(lines[:start]),
    )


def _comment_above(lines: Sequence[str]) -> str:
    """Text of the HTML comment that ends on the last line that is not blank, or ''."""
    found = re.search(r"<!--((?:(?!-->).)*)-->\s*\Z", "\n".join(lines), re.DOTALL)
    return found[1].strip() if found else ""


def parse_steps(block: Block) -> list[Step]:
    """The commands of a shell block.

    Raises BadBlock for a command that is not `palyra`, and for a block without any: what is
    not run must be marked, or the reader takes it for tested.
    """
    steps: list[Step] = []
    starts = ("$ palyra ", EVAL, *(["$ curl "] if "curl" in block.words else []))
    for line in _join_continued(block.text.splitlines()):
        if line.startswith(starts):
            status = EXIT_CODE.search(line)
            steps.append(Step(line.removeprefix("$ "), (), int(status[1]) if status else 0))
        elif line.startswith("$ "):
            raise BadBlock(f"{block.place}: only palyra is run, not {line!r}: mark it no-run")
        elif steps and line.strip() and not line.startswith("# "):
            steps[-1] = replace(steps[-1], expected=(*steps[-1].expected, line.strip()))
    if not steps:
        raise BadBlock(f"{block.place}: no line starts with '$ palyra ': mark it no-run")
    return steps


def _join_continued(lines: Sequence[str]) -> list[str]:
    r"""Lines of a command that end in `\`, joined with the next one; output stays as it is."""
    joined: list[str] = []
    is_open = False
    for line in lines:
        if is_open:
            joined[-1] = joined[-1].removesuffix("\\") + line.strip()
        else:
            joined.append(line)
        is_open = joined[-1].startswith("$ ") and joined[-1].endswith("\\")
    return joined


def find_missing(expected: Sequence[str], output: str) -> str | None:
    """The first expected line that does not follow the ones before it; None when all do.

    What is counted by a `...` may be one: "... signed roots" is also "1 signed root".
    """
    lines = iter([line.strip() for line in output.splitlines()])
    for wanted in expected:
        first, *others = map(re.escape, wanted.split("..."))
        pattern = re.compile(".*".join([first, *(COUNTED.sub(r"\1s?", each) for each in others)]))
        # The iterator goes on where the last match stopped: order counts.
        if wanted != "..." and not any(pattern.fullmatch(line) for line in lines):
            return wanted
    return None


class Desk:
    """Where a document's blocks run: a reader's home, a checkout, `palyra` on the PATH."""

    def __init__(self, root: Path, palyra: Sequence[str] = PALYRA) -> None:
        """Lay it out below `root`; another `palyra` stands for the program in tests of this."""
        self.palyra = palyra
        self.workspace = root / "palyra"
        self._root = root
        self._variables: dict[str, str] = {}  # that the document has told the reader to set
        self._ids: dict[str, str] = {}  # the newest printed one, by the prefix of its kind
        self.workspace.mkdir(parents=True)
        (self.workspace / "README.md").write_bytes((ROOT / "README.md").read_bytes())
        (root / "blocks").mkdir()
        for package, folder in PACKAGES.items():
            installed = root / "node_modules" / package
            installed.parent.mkdir(parents=True, exist_ok=True)
            installed.symlink_to(ROOT / folder)
        if palyra is not PALYRA:
            self._write_program(root / "bin" / "palyra")

    def _write_program(self, path: Path) -> None:
        path.parent.mkdir()
        path.write_text(f'#!/bin/sh\nexec {shlex.join(self.palyra)} "$@"\n', encoding="utf-8")
        path.chmod(0o755)

    @property
    def data(self) -> Path:
        """Where the daemon keeps what is its own; the platform's place, as nothing else is said."""
        return self._root / ".local" / "share" / "palyra"

    @property
    def environment(self) -> dict[str, str]:
        """A reader's: nothing of the caller's but the search path and the locale."""
        path = [str(self._root / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]]
        return {
            "PATH": os.pathsep.join(path),
            "HOME": str(self._root),
            "LANG": "C.UTF-8",
            "NO_COLOR": "1",
            "COLUMNS": "120",
            **self._variables,
        }

    def run_block(self, block: Block) -> None:
        """Run it to its end.  Raises BadBlock with place, command and output when it fails."""
        if block.language in SCRIPTS:
            program, suffix = SCRIPTS[block.language]
            script = self._root / "blocks" / f"line_{block.line}.{suffix}"
            script.write_text(block.text, encoding="utf-8")
            self._run([program, str(script)], block.place)
            return
        for step in parse_steps(block):
            what = f"{block.place}: {step.command}"
            if step.command.startswith(EVAL.removeprefix("$ ")):
                self._set_variables(step.command, what)
                continue
            command = self._name_records(step.command, what)
            output = self._run_step(command, what, step.status)
            self._ids |= {found[1]: found[0] for found in ID.finditer(output)}
            missing = find_missing(step.expected, output)
            if missing is not None:
                raise BadBlock(f"{block.place}: {step.command}\nno line {missing!r} in\n{output}")

    def _set_variables(self, command: str, what: str) -> None:
        """What the command exports is in the environment of every block below."""
        script = f"{command}\nprintf '\\0'\nexec env -0"
        said, *shown = self._run(["/bin/sh", "-c", script], what).split("\0")
        now = dict(each.split("=", 1) for each in shown if each)
        before = self.environment.items() | {(name, now.get(name)) for name in SHELL_VARIABLES}
        self._variables |= (news := dict(now.items() - before))
        if not news:
            raise BadBlock(f"{what}\nit sets no variable:\n{said}")

    def _name_records(self, command: str, what: str) -> str:
        """The command with ids in the places of `run_…`."""
        unknown = {found[1] for found in ANY_ID.finditer(command)} - self._ids.keys()
        if unknown:
            raise BadBlock(f"{what}\nno command above prints an id of {sorted(unknown)}")
        return ANY_ID.sub(lambda found: self._ids[found[1]], command)

    def _run_step(self, command: str, what: str, status: int = 0) -> str:
        """A plain call of the real program needs no shell, and no interpreter of its own."""
        if self.palyra is not PALYRA or set(PLAIN.sub("", command)) & SHELL_SIGNS:
            return self._run(["/bin/sh", "-c", command], what, status)
        with Path(os.devnull).open("rb") as nothing, reading_pipe() as (output, write):
            arguments = shlex.split(command, comments=True)[1:]
            process = self._fork(arguments, (nothing.fileno(), write, write))
        with process.until_killed(), output:
            shown = output.read().decode(errors="replace")
            code = process.wait()
        if code != status:
            raise BadBlock(f"{what}\nexit status {code}\n{shown}")
        return shown

    def _fork(self, arguments: list[str], streams: tuple[int, int, int]) -> ForkedProcess:
        enter = partial(os.chdir, self.workspace)
        return ForkedProcess(arguments, Setting(self.environment, streams, before=enter))

    def _run(self, command: Sequence[str], what: str, status: int = 0) -> str:
        """Output of a command that exits with that status, both streams as they came."""
        with subprocess.Popen(
            command,
            cwd=self.workspace,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            encoding="utf-8",
            errors="replace",
        ) as process:
            output = _read_to_end(process, what)
        if process.returncode != status:
            raise BadBlock(f"{what}\nexit status {process.returncode}\n{output}")
        return output

    @contextmanager
    def daemon(self) -> Generator[None, None, None]:
        """A daemon of this reader: ready on entry, gone after exit.  Raises BadBlock if it fails."""
        arguments = ["serve", "--port", "0"]
        log = self._root / "daemon.log"
        with log.open("wb") as sink, Path(os.devnull).open("rb") as nothing:
            streams = (nothing.fileno(), sink.fileno(), sink.fileno())
            started = self._start(arguments, streams)
        with started as process, _stopping(process):
            if not _wait_ready(process, self.data / "daemon.json"):
                text = log.read_text(encoding="utf-8", errors="replace")
                command = shlex.join([*self.palyra, *arguments])
                raise BadBlock(f"the daemon did not start: {command}\n{text}")
            yield

    def _start(self, arguments: list[str], streams: tuple[int, int, int]) -> Started:
        """Start `palyra`: the real program needs no interpreter of its own."""
        if self.palyra is PALYRA:
            return self._fork(arguments, streams)
        stdin, stdout, stderr = streams
        return subprocess.Popen(
            [*self.palyra, *arguments],
            cwd=self.workspace,
            env=self.environment,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
        )


def _read_to_end(process: subprocess.Popen[str], what: str) -> str:
    try:
        return process.communicate(timeout=COMMAND_LIMIT_S)[0]
    except subprocess.TimeoutExpired as error:
        os.killpg(process.pid, signal.SIGKILL)  # the whole session, or a grandchild holds the pipe
        output = process.communicate()[0]
        raise BadBlock(f"{what}\nnot done after {COMMAND_LIMIT_S} s\n{output}") from error


def _wait_ready(process: Started, discovery: Path) -> bool:
    """True once the discovery file is there; False when the process ends or takes too long."""
    return _wait(
        lambda: discovery.exists() or process.poll() is not None, DAEMON_START_LIMIT_S
    ) and (discovery.exists())


@contextmanager
def _stopping(process: Started) -> Generator[None]:
    try:
        yield
    finally:
        _stop(process)


def _stop(process: Started) -> None:
    process.send_signal(signal.SIGTERM)
    if not _wait(lambda: process.poll() is not None, DAEMON_STOP_LIMIT_S):
        process.kill()
        process.wait()
        raise BadBlock(f"the daemon outlived SIGTERM by {DAEMON_STOP_LIMIT_S} s")


def _wait(is_done: Callable[[], bool], limit_s: float) -> bool:
    """Look until it is done; False when that takes too long."""
    for _ in range(int(limit_s / POLL_S)):
        if is_done():
            return True
        time.sleep(POLL_S)
    return is_done()
