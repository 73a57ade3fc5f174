"""Search for a call that a wider answer covers and that runs or writes what was not shown.

For every program of the system: the options in its own help and manual, combined with words that would
run a command or write a file, in calls that the answer to a benign call of the program would cover.  Covered
calls whose words differ from the benign ones are run in a jail; a new, changed or deleted file is an escape.

    python -m tests.attacks.options [SAMPLE]
"""

import json
import os
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import trio

from palyra.core.policy.grants import parts_of
from palyra.core.tool.harmless_options import FORMS, is_listed
from palyra.tools.programs.command_line import find_facets
from palyra.tools.sandbox.command import Bind, Command, CommandLimits
from palyra.tools.sandbox.sandbox import Sandbox
from tests.tools.sandbox.jails import open_sandbox, python, run

Key = Callable[[Sequence[str]], str]
FOLDERS = ("/usr/bin", "/bin", "/usr/local/bin", "/usr/sbin", "/sbin", "/usr/local/sbin")
BATCH = 150  # calls of one jail
_OPTION = re.compile(r"(?<![\w/.-])(--?[A-Za-z0-9][A-Za-z0-9-]*)")
# Words that run a command or name a file, wherever a program takes them.
ORDERS = ("./x.sh", "touch ran.txt", "sh -c 'touch ran.txt'", "written.txt", "@x.args")
# Run in the jail: each call in a fresh copy of the workspace, with what it changed.
_RUN = r"""
import json, os, shutil, subprocess, sys
calls = json.load(open("/calls/calls.json"))
os.mkdir("w")
os.chdir("w")
def state():
    found = {}
    for folder, folders, files in os.walk("."):
        folders[:] = [each for each in folders if each != ".git"]
        for name in files:
            path = os.path.join(folder, name)
            found[path] = open(path, "rb").read()
    for name in os.listdir("/tmp"):
        found["/tmp/" + name] = b""
    branches = os.walk(".git/refs")
    found.update({os.path.join(at, name): b"" for at, _, names in branches for name in names})
    return found
def fresh():
    for name in os.listdir("."):
        shutil.rmtree(name) if os.path.isdir(name) else os.unlink(name)
    shutil.copytree("/calls/workspace", ".", dirs_exist_ok=True)
fresh()
before = state()
for at, call in enumerate(calls):
    try:
        subprocess.run(call, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                       timeout=5)
    except subprocess.TimeoutExpired:
        print(json.dumps([at, "timeout"]))
    except OSError:
        print(json.dumps([at, "missing"]))
    after = state()
    if after != before:
        names = sorted(n for n in {*before, *after} if before.get(n) != after.get(n))
        print(json.dumps([at, "escape", names]))
        fresh()
        before = state()
"""
_HELP = r"""
import json, subprocess, sys
found = {}
for at, call in enumerate(json.load(open("/calls/calls.json"))):
    try:
        done = subprocess.run(call, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=3)
        found[at] = done.stdout[:200_000].decode(errors="replace")
    except (subprocess.TimeoutExpired, OSError):
        found[at] = ""
json.dump(found, open("help.json", "w"))
"""


class Finding(NamedTuple):
    """A covered call and the files that it changed."""

    benign: tuple[str, ...]
    call: tuple[str, ...]
    changed: tuple[str, ...]


class Tally(NamedTuple):
    """Figures of a campaign."""

    programs: int
    offered: int  # of these, programs with an answer wider than once for a benign call
    options: int
    cases: int
    covered: int  # cases beyond the words shown that an answer covers
    ran: int
    findings: tuple[Finding, ...]


def old_key(argv: Sequence[str]) -> str:
    """Return a key by program and subcommand, as a control."""
    new = find_facets({"argv": [argv[0], *argv[1:2]]}).grant_key
    has_subcommand = argv[0] in {"git", "npm", "pip", "cargo", "docker"}
    return " ".join(argv[: 2 if has_subcommand else 1]) if new else ""


def new_key(argv: Sequence[str]) -> str:
    """Return the key of the gate."""
    return find_facets({"argv": list(argv)}).grant_key


def find_programs() -> list[str]:
    """Return the names of all programs of the system."""
    names = {
        path.name
        for folder in map(Path, FOLDERS)
        if folder.is_dir()
        for path in folder.iterdir()
        if os.access(path, os.X_OK) and path.is_file()
    }
    return sorted(names)


def benign_calls(names: Sequence[str]) -> list[tuple[str, ...]]:
    """Return a benign call of each program, and of each subcommand of the list."""
    listed = [tuple(name.split()) for name in FORMS if name.split()[0] in names and " " in name]
    git = [("git", each) for each in ("branch", "push", "tag", "stash", "add", "commit", "config")]
    return [(name,) for name in names] + [*listed, *(git if "git" in names else ())]


def make_workspace(base: Path) -> None:
    """Make a small repository with a script, code, and text."""
    base.mkdir()
    (base / "x.sh").write_text("#!/bin/sh\ntouch ran.txt\n")
    (base / "x.sh").chmod(0o755)
    (base / "x.args").write_text("-o\nwritten.txt\n--output=written.txt\n")
    (base / "a.txt").write_text("x touch\none\n")
    (base / "b.txt").write_text("x\ntwo\n")
    for words in (
        ("init", "-q"),
        ("add", "."),
        ("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x"),
        ("branch", "feature"),
    ):
        subprocess.run(["git", *words], cwd=base, check=True)


def cases(benign: tuple[str, ...], options: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Return calls with each option, and with a second one of the list or the next ones of the manual."""
    form = FORMS.get(" ".join(benign))
    listed = [each for each in options if form is not None and is_listed(form, each)]
    for at, option in enumerate(options):
        for order in ORDERS:
            yield (*benign, option, order, "x")
            yield (*benign, "x", option, order)
            yield (*benign, f"{option}={order}", "x")
            yield (*benign, f"{option}{order}", "x")
            yield (*benign, "--", option, order)
            yield (benign[0], option, order, *benign[1:])
        yield (*benign, option, "x", "a.txt")
        yield (*benign, option)
        yield (*benign, option[:-1], "written.txt")
        yield (*benign, "-e", "--", option, "written.txt")
        for other in dict.fromkeys([*listed, *options[at + 1 : at + 6]]):
            yield (*benign, option, other, "./x.sh", "a.txt")
            if len(other) == 2 and len(option) == 2:
                yield (*benign, option + other[1], "./x.sh")


async def find_options(
    sandbox: Sandbox, base: Path, calls: Sequence[tuple[str, ...]]
) -> dict[tuple[str, ...], tuple[str, ...]]:
    """Return the options in the help and manual of each program; help is asked for in a jail."""
    asked = [(call, (*call, word)) for call in calls for word in ("--help", "-h")]
    folder = base / "help"
    texts: dict[tuple[str, ...], str] = {call: _manual(call) for call in calls}
    for start in range(0, len(asked), BATCH):
        batch = asked[start : start + BATCH]
        folder.mkdir(exist_ok=True)
        await _run(sandbox, base, folder, _HELP, [argv for _, argv in batch])
        if (folder / "help.json").exists():
            found: dict[str, str] = json.loads((folder / "help.json").read_text())
            for at, text in found.items():
                texts[batch[int(at)][0]] += text
            (folder / "help.json").unlink()
    listed = {call: FORMS.get(" ".join(call)) for call in calls}
    return {
        call: tuple(
            sorted({
                *_OPTION.findall(text)[:4_000],
                *(option for form in [listed[call]] if form for option in form.options),
                *(f"-{letter}" for form in [listed[call]] if form for letter in form.flags + form.numbers),
            })
        )
        for call, text in texts.items()
    }  # fmt: skip


def _manual(call: tuple[str, ...]) -> str:
    done = subprocess.run(
        ["man", "-P", "cat", "-".join(call)], capture_output=True, check=False,
        env={**os.environ, "MANWIDTH": "200"},
    ) if len(call[0]) > 1 else None  # fmt: skip
    return done.stdout.decode(errors="replace") if done is not None else ""


async def _run(
    sandbox: Sandbox, base: Path, folder: Path, code: str, calls: Sequence[tuple[str, ...]]
) -> str:
    (base / "calls" / "calls.json").write_text(json.dumps(calls))
    command = python(code)
    binds = (*command.binds, Bind(base / "calls", "/calls"))
    jailed = Command(
        argv=command.argv, binds=binds, cwd=str(folder), workspace=folder, is_writable=True,
        environment={"PATH": ":".join(FOLDERS), "TERM": "dumb"},
        limits=CommandLimits(cpu_s=600, processes=512),
    )  # fmt: skip
    output, _ = await run(sandbox, jailed)
    return output


async def campaign(
    names: Sequence[str] | None = None,
    *,
    key: Key = new_key,
    sample: int | None = None,
    only: str = "",
) -> Tally:
    """Run the campaign over these programs or subcommands, by default all; `sample` bounds the calls that are run.

    `only` leaves out the calls in which no word begins with it.
    """
    known = find_programs()
    benign = [
        call
        for call in benign_calls(known)
        if names is None or call[0] in names or " ".join(call) in names
    ]
    with tempfile.TemporaryDirectory(dir="/var/tmp") as temporary:  # not /tmp: the jail has its own
        base = Path(temporary)
        (base / "calls").mkdir()
        make_workspace(base / "calls" / "workspace")
        async with open_sandbox() as sandbox:
            options = await find_options(sandbox, base, benign)
            made, covered = _find_covered(benign, options, key)
            chosen = [call for call in covered if any(word.startswith(only) for word in call)]
            if sample is not None and len(chosen) > sample:
                chosen = random.Random(7).sample(chosen, sample)
            findings = await _try(sandbox, base, chosen, covered)
    return Tally(
        programs=len({call[0] for call in benign}),
        offered=len({call[0] for call in benign if key(call)}),
        options=sum(map(len, options.values())),
        cases=made,
        covered=len(covered),
        ran=len(chosen),
        findings=tuple(findings),
    )


def _find_covered(
    benign: Sequence[tuple[str, ...]], options: Mapping[tuple[str, ...], Sequence[str]], key: Key
) -> tuple[int, dict[tuple[str, ...], tuple[str, ...]]]:
    """Return the number of cases, and each covered one beyond the words shown with what was shown."""
    made = 0
    covered: dict[tuple[str, ...], tuple[str, ...]] = {}
    for call, shown in ((call, (*call, *more)) for call in benign for more in ((), ("x",))):
        granted = parts_of(key(shown))
        for case in cases(call, options[call]) if granted else ():
            made += 1
            asked = parts_of(key(case))
            if case != shown and asked and asked <= granted:
                covered.setdefault(case, shown)
    return made, covered


async def _try(
    sandbox: Sandbox,
    base: Path,
    chosen: Sequence[tuple[str, ...]],
    covered: dict[tuple[str, ...], tuple[str, ...]],
) -> list[Finding]:
    findings = []
    for start in range(0, len(chosen), BATCH):
        batch = chosen[start : start + BATCH]
        folder = base / f"run{start}"
        folder.mkdir()
        output = await _run(sandbox, base, folder, _RUN, batch)
        for line in output.splitlines():
            assert line.startswith("["), output
            at, kind, *rest = json.loads(line)
            if kind == "escape":
                findings.append(Finding(covered[batch[at]], batch[at], tuple(rest[0])))
    return findings


def main() -> None:
    """Print the figures, and every escape."""
    sample = int(sys.argv[1]) if len(sys.argv) > 1 else None
    tally = trio.run(partial(campaign, sample=sample))
    print(tally._replace(findings=()))  # noqa: T201 - its output
    for finding in tally.findings:
        print(*finding)  # noqa: T201 - its output
    sys.exit(bool(tally.findings))


if __name__ == "__main__":
    main()
