"""Time of previews, and answers that an ordinary fix of eight calls takes with each preset.

Prints one JSON line.  Milliseconds are medians of CPU time in one thread, without the event loop: the
daemon makes a preview in a worker thread.  `redact_ms` is the part of a text that the redactor has not
seen before; the others are of texts that it has.  `worst` is the slowest input that the bounds let
through.
"""

import json
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from palyra.core.journal.records import ApprovalRecord
from palyra.core.preview.call import MAX_LINES, build_preview
from palyra.core.preview.text import render_preview
from palyra.core.redaction.redactor import Redactor
from palyra.core.tool.checkpoints import Content
from palyra.core.tool.targets import CallTargets, FileTarget
from palyra.tools.policy.cases import CaseTable, PolicyCase, run_cases
from palyra.tools.policy.presets import write_preset

LINES = 5_000
ROUNDS = 9
TESTS: dict[str, Any] = {"argv": ["python3", "-m", "unittest", "-q"], "cwd": "src"}
PATCH: dict[str, Any] = {"patch": "*** Begin Patch\n*** Delete File: src/calc.py\n*** End Patch\n"}
FIX: list[tuple[str, dict[str, Any]]] = [
    ("read_file", {"path": "src/calc.py"}),
    ("search_text", {"query": "add"}),
    ("read_file", {"path": "src/test_calc.py"}),
    ("apply_patch", PATCH),
    ("shell", TESTS),
    ("apply_patch", PATCH),
    ("shell", TESTS),
    ("shell", {"argv": ["git", "diff", "--stat"]}),
]


def main() -> None:
    """Measure and print."""
    old = [f"    value_{at} = compute({at}, other)  # step {at % 13}" for at in range(LINES)]
    inputs = {
        "few_changes": [line if at % 100 else f"{line} changed" for at, line in enumerate(old)],
        "each_third": [line if at % 3 else f"{line} changed" for at, line in enumerate(old)],
        "replaced": [f"new line {at}" for at in range(LINES)],
    }
    cases = {name: (old, new) for name, new in inputs.items()}
    cases["worst"] = (["x"] * LINES, ["x", "y"] * (LINES // 2))
    found: dict[str, Any] = {"python": platform.python_version(), "lines": LINES}
    for name, (before, after) in cases.items():
        for limit in (400, MAX_LINES):
            found[f"{name}_{limit}_ms"] = median_ms(_previewer(before, after, limit))
    text = "\n".join(old)
    fresh = (f"{text}{at}" for at in range(ROUNDS))
    found["redact_ms"] = median_ms(lambda: Redactor(()).redact_text(next(fresh)))
    found["answers"] = {name: answers(name) for name in ("none", "coding", "locked")}
    print(json.dumps(found))


def _previewer(before: list[str], after: list[str], limit: int) -> Callable[[], object]:
    record = ApprovalRecord(
        approval_id="apr_1", run_id="run_1", session_id="s", call_id="c", principal="p",
        tool="apply_patch", risk="medium", summary="", arguments=msgspec.Raw(b"{}"), digest="",
        scopes=("once",), policy_reason="", requested_ms=0, expires_ms=1,
    )  # fmt: skip
    sides = ["".join(f"{line}\n" for line in side).encode() for side in (before, after)]
    targets = CallTargets((FileTarget("a.py", *(Content(side, 0o644) for side in sides)),))
    redactor = Redactor(())

    def make() -> object:
        preview = build_preview(record, targets, redact=redactor.redact_text, max_lines=limit)
        return msgspec.json.encode(preview), render_preview(preview, 120) if limit == 400 else None

    return make


def answers(preset: str) -> int:
    """Return the answers that the fix takes: grants of a session answer equal keys."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if preset != "none":
            write_preset(folder, "coding" if preset == "coding" else "locked")
        rows = tuple(
            PolicyCase(name=str(at), tool=tool, arguments=given, expect="ask")
            for at, (tool, given) in enumerate(FIX)
        )
        outcomes = run_cases(folder, CaseTable(case=rows))
    asked = [row for row, outcome in zip(FIX, outcomes, strict=True) if outcome.found == "ask"]
    patches = {tool for tool, _ in asked if tool == "apply_patch"}  # one folder, one grant
    programs = [given for tool, given in asked if tool == "shell"]
    runners = [given for given in programs if given["argv"][0] != "git"]  # no grant covers these
    return len(patches) + len(runners) + bool(len(programs) > len(runners))


def median_ms(action: Callable[[], object]) -> float:
    """Return the median CPU time of a call."""
    took = []
    for _ in range(ROUNDS):
        began = time.thread_time()
        action()
        took.append((time.thread_time() - began) * 1e3)
    return round(statistics.median(took), 1)


if __name__ == "__main__":
    main()
