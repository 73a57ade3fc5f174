"""write_file and apply_patch as the model and the rules meet them."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from palyra.actors.kernel.threads import run_sync
from palyra.core.model.messages import ProposedCall
from palyra.core.policy.gate import CheckedCall, policy_request, validate
from palyra.core.tool.checkpoints import CheckpointFilter
from palyra.core.tool.spec import CallFacts, ToolCall, ToolFailure
from palyra.tools.files.checkpoints import Checkpoints
from palyra.tools.files.workspace import Workspace
from palyra.tools.files.write import (
    MAX_WRITE_BYTES,
    apply_patch_spec,
    patch_facets,
    write_facets,
    write_tools,
)
from palyra.tools.policy.cedar import CedarPolicy
from palyra.tools.toolbox import ThreadTool, Tool, Toolbox
from tests.core.policy.tool_samples import FACTS, a_catalogue
from tests.rows import every_row
from tests.store.memory.files import MemoryCheckpoints


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    """A workspace with a few files."""
    root = tmp_path / "work"
    (root / "src").mkdir(parents=True)
    (root / "src" / "a.py").write_text("one\ntwo\n")
    (root / "b.txt").write_text("b\n")
    opened = Workspace(root)
    yield opened
    opened.close()


@pytest.fixture
def store() -> MemoryCheckpoints:
    """Where checkpoints are kept."""
    return MemoryCheckpoints()


@pytest.fixture
def tools(workspace: Workspace, store: MemoryCheckpoints) -> dict[str, Tool]:
    """Both tools by name."""
    numbers = iter(range(99))
    checkpoints = Checkpoints(
        workspace, store, lambda: 7, lambda prefix: f"{prefix}_{next(numbers)}"
    )
    return {tool.spec.name: tool for tool in write_tools(workspace, checkpoints.keep_for)}


def a_call(tool: str, **arguments: Any) -> ToolCall:
    """An allowed call."""
    return ToolCall(
        call_id="call_1", run_id="run_1", session_id="ses_1", principal="ann", tool=tool,
        tool_version="1", arguments=arguments,
    )  # fmt: skip


def run(tools: dict[str, Tool], name: str, **arguments: Any) -> str:
    """The tool's output."""
    tool = tools[name]
    assert isinstance(tool, ThreadTool)
    return tool.run(a_call(name, **arguments)).text


def look(tools: dict[str, Tool], name: str, **arguments: Any) -> dict[str, str]:
    """The inspection before an approval."""
    inspect = tools[name].inspect
    assert inspect is not None
    return dict(inspect(a_call(name, **arguments)).operands)


def sections(*lines: str) -> str:
    """A patch."""
    return "\n".join(["*** Begin Patch", *lines, "*** End Patch"])


CHANGE = sections(
    "*** Update File: src/a.py", "-two", "+zwei", "*** Add File: src/new/c.py", "+c",
    "*** Delete File: b.txt",
)  # fmt: skip


# --- write_file ----------------------------------------------------------------------------------


def test_the_output_of_a_write(workspace: Workspace, tools: dict[str, Tool]) -> None:
    """It distinguishes new and replaced files; sizes are bytes."""
    said = run(tools, "write_file", path="./new/a.txt", content="é")
    assert said == "wrote 2 bytes to ./new/a.txt, a new file"
    said = run(tools, "write_file", path="new/a.txt", content="")
    assert said == "wrote 0 bytes to new/a.txt, replacing 2 bytes"
    assert (workspace.root / "new/a.txt").read_bytes() == b""


def test_a_write_keeps_the_byte_order_mark(workspace: Workspace, tools: dict[str, Tool]) -> None:
    """A file that began with one still does, and a file without one gets none."""
    file = workspace.root / "b.txt"
    file.write_bytes(b"\xef\xbb\xbfb\n")
    said = run(tools, "write_file", path="b.txt", content="c\n")
    assert said == "wrote 2 bytes to b.txt, replacing 5 bytes; its byte order mark is kept"
    assert file.read_bytes() == b"\xef\xbb\xbfc\n"
    run(tools, "write_file", path="b.txt", content="\ufeffd\n")
    assert file.read_bytes() == b"\xef\xbb\xbfd\n"
    run(tools, "write_file", path="src/a.py", content="one\n")
    assert (workspace.root / "src/a.py").read_bytes() == b"one\n"


def test_a_huge_content_is_refused(workspace: Workspace, tools: dict[str, Tool]) -> None:
    """Limit and size are named, and nothing is written; the limit itself is allowed."""
    with pytest.raises(ToolFailure, match=f"{MAX_WRITE_BYTES + 1} bytes"):
        run(tools, "write_file", path="a", content="x" * (MAX_WRITE_BYTES + 1))
    assert not (workspace.root / "a").exists()
    run(tools, "write_file", path="a", content="x" * MAX_WRITE_BYTES)
    assert (workspace.root / "a").stat().st_size == MAX_WRITE_BYTES


def test_a_replaced_file_is_inspected(tools: dict[str, Tool]) -> None:
    """An approval is for the file that was there; an invalid path is refused at once."""
    digest = hashlib.sha256(b"b\n").hexdigest()
    assert {"b.txt": digest} == look(tools, "write_file", path="./b.txt", content="x")
    assert {"none": "missing"} == look(tools, "write_file", path="none", content="x")
    for path in ("../x", ".env", ".git/config", "src"):
        with pytest.raises(ToolFailure, match=r"may not be used|is a folder"):
            look(tools, "write_file", path=path, content="x")


# --- apply_patch ---------------------------------------------------------------------------------


def test_a_patch_says_what_it_did(workspace: Workspace, tools: dict[str, Tool]) -> None:
    """Every file in the patch's order."""
    assert run(tools, "apply_patch", patch=CHANGE) == (
        "done:\nupdated src/a.py, 8 to 9 bytes\ncreated src/new/c.py, 2 bytes\ndeleted b.txt"
    )
    assert (workspace.root / "src/a.py").read_text() == "one\nzwei\n"
    assert (workspace.root / "src/new/c.py").read_text() == "c\n"
    assert not (workspace.root / "b.txt").exists()


def test_a_dry_run_is_judged_as_a_read() -> None:
    """It may run where the patch itself asks; in places for secrets neither may."""
    policy = CedarPolicy()
    secret = CHANGE.replace("b.txt", ".env")
    cases = ((CHANGE, False, "ask"), (CHANGE, True, "allow"), (secret, True, "deny"))
    for patch, is_dry, expected in cases:
        arguments = {"patch": patch, "dry_run": is_dry}
        call = ProposedCall(call_id="call_1", tool="apply_patch", arguments=arguments)
        admitted = validate(
            call, a_catalogue(apply_patch_spec("walls")), lambda _, given: patch_facets(given)
        )
        assert isinstance(admitted, CheckedCall)
        assert expected == policy.decide(policy_request(admitted, FACTS)).answer
        assert is_dry == (admitted.spec.tool_class == "read_only_safe")


def test_a_dry_run_changes_nothing(
    workspace: Workspace, tools: dict[str, Tool], store: MemoryCheckpoints
) -> None:
    """It says the same, and no checkpoint is made."""
    assert run(tools, "apply_patch", patch=CHANGE, dry_run=True).startswith(
        "this would be done:\nup"
    )
    assert (workspace.root / "src/a.py").read_text() == "one\ntwo\n"
    assert (workspace.root / "b.txt").exists()
    assert [] == store.list(CheckpointFilter())


def test_tolerance_is_reported(tools: dict[str, Tool]) -> None:
    """The model is told where the patch did not match exactly."""
    patch = "--- a/src/a.py\n+++ b/src/a.py\n@@ -7 +7 @@\n-two\n+zwei\n"
    assert run(tools, "apply_patch", patch=patch).endswith("note: src/a.py: line 7 is at 2")
    same = sections("*** Update File: b.txt", "*** Move to: ./b.txt")
    assert run(tools, "apply_patch", patch=same) == "done:\nunchanged b.txt"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (("*** Update File: src/a.py", "-three", "+x"), "the patch, line 6, column 1: src/a.py has no"),
        (("*** Update File: none", "+x"), "line 5, column 1: none: there is no such file"),
        (("*** Update File: ../x", "+x"), "is no path in the workspace"),
        (("*** Add File: .ssh/id", "+x"), r"\.ssh/id may not be used"),
        (("*** Update File: b.txt", "*** Move to: .git/hooks/pre-commit"), "may not be used"),
        (("*** Add File: .env", "+x"), r"\.env may not be used"),
        (("*** Update File: src", "+x"), "src is a folder"),
        (("*** Update File: bin", "+x"), "bin is a binary file; only text is patched"),
        (("*** Update File: link", "+x"), "link may not be used"),
        (("*** Update File: large", "+x"), "a file of more than 2097152 is not changed"),
    ],
)  # fmt: skip
def test_an_inapplicable_patch_is_refused(
    workspace: Workspace, tools: dict[str, Tool], lines: tuple[str, ...], said: str
) -> None:
    """It is refused before an approval and again at execution; no file changes."""
    (workspace.root / "bin").write_bytes(b"a\0b")
    (workspace.root / "link").symlink_to("b.txt")
    (workspace.root / "large").write_bytes(b"x" * 2_097_153)
    patch = sections("*** Update File: src/a.py", "-one", "+eins", *lines)
    for act in (look, run):
        with pytest.raises(ToolFailure, match=said):
            act(tools, "apply_patch", patch=patch)
    assert (workspace.root / "src/a.py").read_text() == "one\ntwo\n"


def test_the_files_a_patch_fits_are_looked_at(tools: dict[str, Tool]) -> None:
    """An approval is for the files as they were, also for those that were not there."""
    assert look(tools, "apply_patch", patch=CHANGE) == {
        "src/a.py": hashlib.sha256(b"one\ntwo\n").hexdigest(),
        "src/new/c.py": "missing",
        "b.txt": hashlib.sha256(b"b\n").hexdigest(),
    }


def test_a_patch_of_renames_stays_within_its_bound(tools: dict[str, Tool]) -> None:
    """Each rename touches two files."""
    pairs = [
        (f"*** Add File: f{n}", f"*** Update File: f{n}", f"*** Move to: g{n}") for n in range(32)
    ]
    inside = sections(*(line for pair in pairs for line in pair))
    assert "created g31, 0 bytes" in run(tools, "apply_patch", patch=inside, dry_run=True)
    renames = "".join(
        f"diff --git a/f{n} b/g{n}\nrename from f{n}\nrename to g{n}\n" for n in range(33)
    )
    for n in range(33):
        run(tools, "write_file", path=f"f{n}", content="x")
    with pytest.raises(ToolFailure, match="touches 66 files, at most 64"):
        run(tools, "apply_patch", patch=renames)


# --- what the rules see --------------------------------------------------------------------------


def test_every_path_reaches_the_rules() -> None:
    """Inside and outside, private and configuration; renames count twice."""
    patch = sections(
        "*** Update File: src/a.py", "*** Move to: ../../etc/passwd", "*** Add File: .ssh/id", "+x",
        "*** Delete File: .git/config",
    )  # fmt: skip
    found = patch_facets({"patch": patch})
    assert ("src/a.py", "../../etc/passwd", ".ssh/id", ".git/config") == found.paths
    assert not found.grant_key
    assert CallFacts() == patch_facets({"patch": "no patch"})
    diff = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-b\n+c\n"
    assert CallFacts(paths=("x",), grant_key="x") == patch_facets({"patch": diff})


@every_row(
    ("path", "key"),
    [("src/a.py", "src/a.py"), ("./src//a.py", "src/a.py"), ("a", "a"), ("../a", ""), ("a\nb", "")],
)
def test_a_grant_is_for_the_files_shown(path: str, key: str) -> None:
    """The key of a write has its files, none of their folders; there is none outside."""
    assert CallFacts(paths=(path,), grant_key=key) == write_facets({"path": path})
    if "\n" not in path:
        assert patch_facets({"patch": sections(f"*** Add File: {path}", "+x")}).grant_key == key
    two = sections("*** Add File: src/a", "+x", "*** Add File: src/in/b", "+x")
    assert "src/a\nsrc/in/b" == patch_facets({"patch": two}).grant_key


@pytest.mark.parametrize(
    ("path", "rule"),
    [
        ("src/b.py", ""), ("../x", "outside"), ("/etc/passwd", "outside"), (".ssh/id", "private"),
        ("src/.env", "private"), (".git/hooks/pre-commit", "configuration"),
        ("AGENTS.md", "configuration"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("place", ["first", "last", "target"])
def test_no_policy_permits_a_path_outside(
    tmp_path: Path, tools: dict[str, Tool], path: str, rule: str, place: str
) -> None:
    """Whatever the user permits, at any place in the patch."""
    sections_of = {
        "first": (f"*** Add File: {path}", "+x", "*** Add File: ok", "+x"),
        "last": ("*** Add File: ok", "+x", f"*** Delete File: {path}"),
        "target": ("*** Update File: ok", f"*** Move to: {path}", "-x", "+y"),
    }
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "mine.cedar").write_text("permit (principal, action, resource);")
    toolbox = Toolbox(tools.values(), run_sync)
    patch = ProposedCall(
        call_id="call_1", tool="apply_patch", arguments={"patch": sections(*sections_of[place])}
    )
    admitted = validate(patch, toolbox.catalogue(), toolbox.facets)
    assert isinstance(admitted, CheckedCall)
    decision = CedarPolicy(tmp_path / "rules").decide(policy_request(admitted, FACTS))
    if rule:
        assert ("deny", True) == (decision.answer, any(rule in each for each in decision.policies))
    else:
        assert decision.answer == "allow"


# --- checkpoints ---------------------------------------------------------------------------------


def test_each_change_leaves_a_checkpoint(tools: dict[str, Tool], store: MemoryCheckpoints) -> None:
    """Whose, by which call, and every file before and after."""
    run(tools, "apply_patch", patch=CHANGE)
    (kept,) = store.list(CheckpointFilter())
    assert ("ckp_0", "ann", "ses_1", "run_1", "call_1", "apply_patch", 7) == (
        kept.checkpoint_id, kept.principal, kept.session_id, kept.run_id, kept.call_id, kept.tool,
        kept.created_ms,
    )  # fmt: skip
    contents = store.contents("ckp_0")
    sides = {
        file.path: tuple(
            None if side is None else contents[side.sha256] for side in (file.before, file.after)
        )
        for file in kept.files
    }
    assert sides == {
        "src/a.py": (b"one\ntwo\n", b"one\nzwei\n"), "src/new/c.py": (None, b"c\n"),
        "b.txt": (b"b\n", None),
    }  # fmt: skip


def test_a_failed_change_leaves_no_checkpoint(
    tools: dict[str, Tool], store: MemoryCheckpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change that did not happen cannot be undone."""

    def fail(*_: object) -> None:
        raise ToolFailure("no")

    monkeypatch.setattr("palyra.tools.files.changes._commit_one", fail)
    with pytest.raises(ToolFailure, match="no"):
        run(tools, "apply_patch", patch=CHANGE)
    assert [] == store.list(CheckpointFilter())


def test_the_specs_declare_writes(workspace: Workspace, tools: dict[str, Tool]) -> None:
    """Writes are not repeatable, and name their isolation."""
    for tool in tools.values():
        assert not tool.spec.may_rerun
        assert (tool.spec.enforcement, tool.spec.executor) == (workspace.enforcement, "thread")
        assert tool.spec.capabilities == ("fs.write",)
