"""Ways out of the workspace, tried through every file tool; and races that plain checks lose.

Each attack has its control: without the walls the same path leads to the secret.
"""

import os
import stat
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from palyra.core.tool.spec import ToolCall, ToolFailure, ToolOutput
from palyra.tools.files.checkpoints import Checkpoints
from palyra.tools.files.read import file_tools
from palyra.tools.files.search import search_tools
from palyra.tools.files.workspace import Workspace
from palyra.tools.files.write import write_tools
from palyra.tools.toolbox import ThreadTool
from tests.store.memory.files import MemoryCheckpoints

SECRET = "the-secret-of-the-house"


class World:
    """A workspace, a secret outside it, and every file tool."""

    def __init__(self, base: Path, *, use_openat2: bool | None) -> None:
        self.outside = base / "outside"
        self.root = base / "work"
        self.outside.mkdir()
        (self.outside / "secret").write_text(SECRET)
        (self.root / "sub").mkdir(parents=True)
        (self.root / "a.txt").write_text("inside\n")
        self.workspace = Workspace(self.root, use_openat2=use_openat2)
        keep = Checkpoints(
            self.workspace, MemoryCheckpoints(), lambda: 0, lambda p: f"{p}_1"
        ).keep_for
        made = [
            *file_tools(self.workspace),
            *search_tools(self.workspace),
            *write_tools(self.workspace, keep),
        ]
        self.tools = {tool.spec.name: tool for tool in made if isinstance(tool, ThreadTool)}

    def call(self, tool: str, **arguments: Any) -> ToolOutput:
        """The tool's result."""
        return self.tools[tool].run(
            ToolCall(
                call_id="c", run_id="r", session_id="s", principal="p", tool=tool,
                tool_version="1", arguments=arguments,
            )
        )  # fmt: skip

    def attempts(self, path: str) -> dict[str, Callable[[], ToolOutput]]:
        """Every tool that takes a path, on that one."""
        section = f"*** Begin Patch\n*** Update File: {path}\n-{SECRET}\n+gone\n*** End Patch"
        move = f"*** Begin Patch\n*** Update File: a.txt\n*** Move to: {path}\n*** End Patch"
        diff = f'--- "a/{_quoted(path)}"\n+++ "b/{_quoted(path)}"\n@@ -1 +1 @@\n-{SECRET}\n+gone\n'
        return {
            "read": lambda: self.call("read_file", path=path),
            "list": lambda: self.call("list_dir", path=path),
            "glob": lambda: self.call("glob", pattern="**", path=path),
            "search": lambda: self.call("search_text", query=SECRET, path=path),
            "write": lambda: self.call("write_file", path=path, content="overwritten"),
            "patch": lambda: self.call("apply_patch", patch=section),
            "move": lambda: self.call("apply_patch", patch=move),
            "diff": lambda: self.call("apply_patch", patch=diff),
        }


def _quoted(path: str) -> str:
    """As git writes a name with odd characters."""
    return "".join(f"\\{byte:03o}" for byte in os.fsencode(path))


@pytest.fixture(params=["openat2", "nofollow"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """With each of the two methods of confinement."""
    made = World(tmp_path, use_openat2=False if request.param == "nofollow" else None)
    if made.workspace.enforcement != request.param:
        pytest.skip("this kernel has no openat2")
    yield made
    made.workspace.close()


def untouched(world: World) -> None:
    """Nothing outside has changed, and inside nothing but what was there."""
    assert [("secret", SECRET)] == [
        (path.name, path.read_text()) for path in world.outside.iterdir()
    ]
    assert (world.root / "a.txt").read_text() == "inside\n"


def outcome(attempt: Callable[[], ToolOutput]) -> str:
    """The result that a model sees."""
    try:
        return attempt().text
    except ToolFailure as failure:
        return failure.message


WAYS_OUT: dict[str, tuple[str, Callable[[World], object]]] = {
    "parent": ("../outside/secret", lambda _: None),
    "parent inside": ("sub/../../outside/secret", lambda _: None),
    "link": ("link", lambda w: (w.root / "link").symlink_to(w.outside / "secret")),
    "link of a dash": ("-rf", lambda w: (w.root / "-rf").symlink_to(w.outside / "secret")),
    "relative link": ("up", lambda w: (w.root / "up").symlink_to("../outside/secret")),
    "link to a folder": ("door/secret", lambda w: (w.root / "door").symlink_to(w.outside)),
    "link to the root": ("slash/proc/self/root/etc/passwd", lambda w: (w.root / "slash").symlink_to("/")),
    "magic link": ("self/root/etc/passwd", lambda w: (w.root / "self").symlink_to("/proc/self")),
    "hard link": ("twin", lambda w: (w.root / "twin").hardlink_to(w.outside / "secret")),
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS_OUT)
def test_no_tool_gets_out(world: World, way: str) -> None:
    """No tool shows, changes or confirms what lies outside; a plain open reads it."""
    path, prepare = WAYS_OUT[way]
    prepare(world)
    assert (world.root / path).read_text(), "the control: without walls the path leads somewhere"
    for name, attempt in world.attempts(path).items():
        said = outcome(attempt)
        assert SECRET not in said.replace(f"`{SECRET}`", ""), name
        assert "root:" not in said, name
    untouched(world)


@pytest.mark.parametrize("way", ["parent", "link", "link to a folder", "hard link"])
def test_outside_paths_get_one_message(world: World, way: str) -> None:
    """The message is the same whether the path exists or not."""
    path, prepare = WAYS_OUT[way]
    prepare(world)
    there = {name: outcome(attempt) for name, attempt in world.attempts(path).items()}
    if way == "hard link":
        (world.root / "twin").unlink()
        (world.root / "twin").symlink_to(world.outside / "none")
    else:
        (world.outside / "secret").unlink()
    gone = {name: outcome(attempt) for name, attempt in world.attempts(path).items()}
    same = {"read", "write", "patch", "move", "diff"}
    assert {name: there[name] for name in same} == {name: gone[name] for name in same}


@pytest.mark.parametrize("tool", ["read", "write", "patch", "search"])
@pytest.mark.parametrize("kind", ["fifo", "device", "absolute", "nul"])
def test_special_files_are_refused(world: World, kind: str, tool: str) -> None:
    """They are refused at once, without waiting for a writer."""
    path = {"absolute": str(world.root / "a.txt"), "nul": "a.txt\0.png"}.get(kind, kind)
    if kind == "fifo":
        os.mkfifo(world.root / "fifo")
    elif kind == "device":
        try:
            os.mknod(world.root / "device", stat.S_IFCHR | 0o666, os.makedev(1, 5))
        except PermissionError:
            pytest.skip("making a device needs privileges")
    with pytest.raises(ToolFailure):
        world.attempts(path)[tool]()
    untouched(world)


PRIVATE = [
    ".ssh/id_ed25519", ".aws/credentials", ".gnupg/secring.gpg", ".netrc", ".env", ".env.local",
    "sub/.env", ".git-credentials", ".kube/config", ".mozilla/firefox/key4.db",
    ".config/google-chrome/Default/Login Data", ".config/chromium/x", ".password-store/a.gpg",
    ".SSH/id", ".Env", "\uff0essh/id", ".\u017fsh/id", ".\uff45nv", ".env/nested",
]  # fmt: skip


@pytest.mark.parametrize("path", PRIVATE)
def test_places_for_secrets_are_closed(world: World, path: str) -> None:
    """Also in other cases and other forms of Unicode; there or not, the words are the same."""
    missing = {name: outcome(attempt) for name, attempt in world.attempts(path).items()}
    (world.root / path).parent.mkdir(parents=True, exist_ok=True)
    (world.root / path).write_text(SECRET)
    assert (world.root / path).read_text() == SECRET
    there = {name: outcome(attempt) for name, attempt in world.attempts(path).items()}
    assert missing == there
    assert all("may not be used" in said for said in there.values())
    for whole in (
        world.call("search_text", query=SECRET),
        world.call("glob", pattern=Path(path).name),
    ):
        assert path not in whole.text
    assert (world.root / path).read_text() == SECRET


@pytest.mark.parametrize("path", [".env.example", "sub/.env.sample", "environment", ".sshx"])
def test_example_files_are_readable(world: World, path: str) -> None:
    """Examples of private files may be shared."""
    (world.root / path).write_text("shown\n")
    assert world.call("read_file", path=path).text == "shown\n"


# --- races ---------------------------------------------------------------------------------------

SWAP = """
import os, sys
from palyra.tools.files.syscalls import swap
fd = os.open(sys.argv[1], os.O_RDONLY)
print("ready", flush=True)
while True:
    swap(fd, "spot", "door")
"""


@contextmanager
def swapping(root: Path) -> Generator[None]:
    """Meanwhile another process swaps a folder and a link to the outside, as fast as it can."""
    process = subprocess.Popen([sys.executable, "-c", SWAP, str(root)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    try:
        yield
    finally:
        process.kill()
        process.communicate()


def check_then_open(root: Path, path: str) -> str:
    """The unconfined way: check the path, then open it."""
    target = root / path
    if not target.resolve().is_relative_to(root.resolve()):
        return "refused"
    return target.read_text(encoding="utf-8")


def race(world: World, seconds: float, enough: int) -> dict[str, Counter[str]]:
    """The results of repeated attempts, by tool, and of the control."""
    (world.root / "spot").mkdir()
    (world.root / "spot" / "secret").write_text("inside")
    (world.root / "door").symlink_to(world.outside)
    seen = {name: Counter[str]() for name in ("read", "search", "write", "control")}
    attempts: dict[str, Callable[[], str]] = {
        "read": lambda: world.call("read_file", path="spot/secret").text,
        "search": lambda: world.call("search_text", query="s", path="spot").text,
        "write": lambda: world.call("write_file", path="spot/new", content="mine").text,
        "control": lambda: check_then_open(world.root, "spot/secret"),
    }
    ends = time.monotonic() + seconds
    with swapping(world.root):
        while time.monotonic() < ends and (not enough or _least(seen) < enough):
            for name, attempt in attempts.items():
                seen[name][_met(attempt)] += 1
    return seen


def _met(attempt: Callable[[], str]) -> str:
    try:
        said = attempt()
    except (ToolFailure, OSError):
        return "refused"
    return "leaked" if SECRET in said else "refused" if said == "refused" else "inside"


def _least(seen: dict[str, Counter[str]]) -> int:
    met = [min(seen[name]["inside"], seen[name]["refused"]) for name in ("read", "search", "write")]
    return min(*met, seen["control"]["leaked"])


def check_race(world: World, seen: dict[str, Counter[str]]) -> None:
    """Nothing of ours leaked or wrote outside, though it met both; the control did leak."""
    for name in ("read", "search", "write"):
        assert seen[name]["leaked"] == 0, seen
        assert min(seen[name]["inside"], seen[name]["refused"]) > 0, f"never close: {seen}"
    assert ["secret"] == [path.name for path in world.outside.iterdir()]
    assert seen["control"]["leaked"] > 0, f"the control never leaked: {seen}"


@pytest.mark.real
def test_a_race_finds_nothing_outside(world: World) -> None:
    """As long as it takes until the control has leaked."""
    check_race(world, race(world, 20.0, 3))


@pytest.mark.slow
@pytest.mark.real
@pytest.mark.parametrize("half", [1, 2])
def test_a_race_of_a_minute_finds_nothing_outside(world: World, half: int) -> None:
    """A minute against each method, in two halves."""
    assert half
    check_race(world, race(world, 30.0, 0))
