"""Cost of file tools: search against grep, find against find, writes against a raw write.

Prints one JSON line.  The tree is the installed packages of this interpreter, read once before, so
that all of it is in memory.  Ratios are of wall time in the same run.  grep and find are processes
without policy checks, exclusions and limits on output.

A second tree is a repository of 100 000 files, of which `.gitignore` leaves out 80 000; its peer is
ripgrep, which reads the same ignore files.  Both are measured in turn, so that a busy machine slows
both down, and the ratio is the median of the pairs.  Without ripgrep there is no figure, only a line
on stderr.
"""

import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from palyra.core.ports import CheckpointStore
from palyra.core.tool.spec import ToolCall
from palyra.store.files.checkpoints import FileCheckpoints
from palyra.store.files.retention import FolderBounds
from palyra.tools.files.checkpoints import Checkpoints
from palyra.tools.files.patch.apply import parse_patch
from palyra.tools.files.search import glob, search_text
from palyra.tools.files.workspace import Workspace
from palyra.tools.files.write import write_tools
from palyra.tools.toolbox import ThreadTool
from tests.store.memory.files import MemoryCheckpoints

ROUNDS = 7
QUERIES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "literal": ({"query": "def run_sync("}, ["-F", "def run_sync("]),
    "absent": ({"query": "no such text at all"}, ["-F", "no such text at all"]),
    "regex": ({"query": r"class \w+Handle\(", "regex": True}, ["-E", r"class \w+Handle\("]),
    "any_case": ({"query": "ENCODINGWARNING", "ignore_case": True}, ["-iF", "ENCODINGWARNING"]),
}
ID = "018f3c1e-5b7a-7bbb-8ccc-0123456789"


def median_ms(action: Callable[[], object], rounds: int = ROUNDS) -> float:
    """Return the median wall time of one call in milliseconds."""
    took = []
    for _ in range(rounds):
        began = time.perf_counter()
        action()
        took.append((time.perf_counter() - began) * 1e3)
    return round(statistics.median(took), 2)


def run(*command: str, cwd: Path) -> None:
    """Run a process and discard its output."""
    subprocess.run(command, cwd=cwd, stdout=subprocess.DEVNULL, check=False)


def searches(workspace: Workspace) -> dict[str, dict[str, float]]:
    """Measure each query with the tool and with grep (which has its own rule for binary files)."""
    grep, find = shutil.which("grep") or "grep", shutil.which("find") or "find"
    figures = {}
    for name, (arguments, words) in QUERIES.items():
        ours = median_ms(partial(search_text, workspace, {**arguments, "limit": 1000}))
        raw = median_ms(partial(run, grep, "-rnI", *words, ".", cwd=workspace.root))
        figures[name] = {"tool_ms": ours, "grep_ms": raw, "ratio": round(ours / raw, 2)}
    ours = median_ms(lambda: glob(workspace, {"pattern": "**/*.py"}))
    raw = median_ms(lambda: run(find, ".", "-type", "f", "-name", "*.py", cwd=workspace.root))
    figures["glob"] = {"tool_ms": ours, "find_ms": raw, "ratio": round(ours / raw, 2)}
    return figures


def make_repository(root: Path, kept: int = 20_000, ignored: int = 80_000) -> None:
    """Make a repository whose ignored files lie in one folder of packages."""
    for number in range(kept):
        folder = root / f"src/p{number // 200}/m{number % 200 // 20}"
        folder.mkdir(parents=True, exist_ok=True)
        text = f"import os\n\ndef run_{number}(x):\n    return x + {number}\n"
        (folder / f"file_{number}.py").write_text(text * 8)
    for number in range(ignored):
        folder = root / f"node_modules/lib{number // 100}/dist"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"i{number}.js").write_text("module.exports = 1;\n")
    (root / ".gitignore").write_text("node_modules/\n*.pyc\n__pycache__/\n/build/\n.venv\n*.log\n")
    (root / ".git").mkdir()  # without it ripgrep does not read .gitignore


def ignoring(base: Path) -> dict[str, float] | None:
    """Measure a literal search in the repository with the tool and with ripgrep."""
    rg = shutil.which("rg")
    if rg is None:
        print("SKIPPED: search with ignore files: ripgrep is not installed", file=sys.stderr)
        return None
    root = base / "repository"
    make_repository(root)
    workspace = Workspace(root)
    query = "def run_77("
    pairs = [
        (
            median_ms(lambda: search_text(workspace, {"query": query}), 1),
            median_ms(lambda: run(rg, "-nF", query, cwd=root), 1),
        )
        for _ in range(2 * ROUNDS + 1)
    ]
    workspace.close()
    return {
        "tool_ms": round(statistics.median(ours for ours, _ in pairs), 1),
        "ripgrep_ms": round(statistics.median(raw for _, raw in pairs), 1),
        "ratio": round(statistics.median(ours / raw for ours, raw in pairs), 2),
        "ratio_of_best": round(min(ours for ours, _ in pairs) / min(raw for _, raw in pairs), 2),
    }


def raw_write(path: Path, data: bytes) -> None:
    """Replace a file durably, without any check."""
    draft = path.with_suffix(".draft")
    with draft.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


def changes(base: Path) -> dict[str, float]:
    """Measure writes of a 20 KB file with and without checkpoint, and a patch of ten files."""
    root = base / "work"
    root.mkdir()
    workspace = Workspace(root)
    numbers = iter(range(1_000_000))

    def tools(store: CheckpointStore) -> dict[str, ThreadTool]:
        keep = Checkpoints(
            workspace, store, lambda: 0, lambda p: f"{p}_{ID}{next(numbers) % 100:02}"
        )
        made = write_tools(workspace, keep.keep_for)
        return {tool.spec.name: tool for tool in made if isinstance(tool, ThreadTool)}

    kept = tools(FileCheckpoints(base / "kept", FolderBounds(1 << 30, 1 << 40, lambda: 0)))
    light = tools(MemoryCheckpoints())

    def write(with_tools: dict[str, ThreadTool]) -> None:
        text = f"{next(numbers)}\n" * 3_000
        with_tools["write_file"].run(call("write_file", path="a.txt", content=text))

    files = [f"f{number}.txt" for number in range(10)]
    for name in files:
        (root / name).write_text("".join(f"line {number}\n" for number in range(2_000)))

    def patch() -> None:
        mark = next(numbers)
        sections = "".join(
            f"*** Update File: {name}\n@@ line 999\n-{(root / name).read_text().splitlines()[1000]}\n+x{mark}\n"
            for name in files
        )
        text = f"*** Begin Patch\n{sections}*** End Patch"
        kept["apply_patch"].run(call("apply_patch", patch=text))

    raw = median_ms(lambda: raw_write(root / "raw.txt", b"x" * 20_000), 30)
    found = {
        "raw_write_ms": raw,
        "write_file_ms": median_ms(lambda: write(light), 30),
        "write_file_with_checkpoint_ms": median_ms(lambda: write(kept), 30),
        "patch_of_10_files_ms": median_ms(patch, 10),
        "parse_256_kib_patch_ms": median_ms(lambda: parse_patch(large_patch())),
    }
    found["checkpoint_ratio"] = round(found["write_file_with_checkpoint_ms"] / raw, 1)
    workspace.close()
    return found


def large_patch() -> str:
    """Return a patch close to the size limit."""
    hunk = "@@\n context\n-removed line of some length\n+added line of some length\n"
    return f"*** Begin Patch\n*** Update File: a\n{hunk * 900}*** End Patch".ljust(262_000)


def call(tool: str, **arguments: str) -> ToolCall:
    return ToolCall(
        call_id="c", run_id="r", session_id="s", principal="p", tool=tool, tool_version="1",
        arguments=arguments,
    )  # fmt: skip


def main() -> None:
    workspace = Workspace(Path(sysconfig.get_path("purelib")))
    files = [path for path in workspace.root.rglob("*") if path.is_file()]
    size_mb = sum(path.stat().st_size for path in files) / 1e6
    for path in files:
        path.read_bytes()
    with tempfile.TemporaryDirectory(prefix="palyra-bench-") as name:
        result = {
            "bench": "files",
            "tree_files": len(files),
            "tree_mb": round(size_mb),
            "search": searches(workspace),
            "ignoring": ignoring(Path(name)),
            "change": changes(Path(name)),
            "python": platform.python_version(),
            "cpus": os.cpu_count(),
        }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
