"""Names that differ in their Unicode form only: one name to every tool that takes a path."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from palyra.core.policy.gate import policy_request
from palyra.core.tool.checkpoints import CheckpointFilter
from palyra.core.tool.spec import ToolCall, ToolFailure
from palyra.tools.files.checkpoints import Checkpoints
from palyra.tools.files.read import file_tools
from palyra.tools.files.search import search_tools
from palyra.tools.files.workspace import Workspace
from palyra.tools.files.write import patch_facets, write_facets, write_tools
from palyra.tools.policy.cedar import CedarPolicy
from palyra.tools.toolbox import ThreadTool, Tool
from tests.core.policy.tool_samples import FACTS, an_admitted
from tests.store.memory.files import MemoryCheckpoints

# Forms of one name: a singleton, Latin, stacked marks, Hangul, kana.
PAIRS = [
    ("\u212a.txt", "K.txt"),  # a name of ASCII is asked for as it is
    ("\xfc.txt", "u\u0308.txt"),
    ("\u1ed9.txt", "o\u0302\u0323.txt"),
    ("o\u0323\u0302.txt", "\xf4\u0323.txt"),
    ("\ud55c.txt", "\u1112\u1161\u11ab.txt"),
    ("\u304c/\u3071.txt", "\u304b\u3099/\u306f\u309a.txt"),
]
NFC, NFD = PAIRS[1]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Folder of the workspace, beside another folder with a secret."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.txt").write_text("the secret")
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def store() -> MemoryCheckpoints:
    """Store of the checkpoints."""
    return MemoryCheckpoints()


@pytest.fixture
def checkpoints(root: Path, store: MemoryCheckpoints) -> Iterator[Checkpoints]:
    """The workspace's checkpoints."""
    workspace = Workspace(root)
    numbers = iter(range(99))
    yield Checkpoints(workspace, store, lambda: 7, lambda kind: f"{kind}_{next(numbers)}")
    workspace.close()


@pytest.fixture
def tools(checkpoints: Checkpoints) -> dict[str, Tool]:
    """All tools of files, by name."""
    workspace = checkpoints.workspace
    every = [
        *file_tools(workspace), *search_tools(workspace), *write_tools(workspace, checkpoints.keep_for),
    ]  # fmt: skip
    return {tool.spec.name: tool for tool in every}


def put(root: Path, path: str, text: str) -> None:
    """Write a file plainly, under exactly this name."""
    (root / path).parent.mkdir(exist_ok=True)
    (root / path).write_text(text)


def run(tools: dict[str, Tool], name: str, **arguments: Any) -> str:
    """Return the text of a call's output."""
    tool = tools[name]
    assert isinstance(tool, ThreadTool)
    return tool.run(call(name, **arguments)).text


def call(name: str, **arguments: Any) -> ToolCall:
    """Return an allowed call."""
    return ToolCall(
        call_id="c", run_id="r", session_id="s", principal="me", tool=name, tool_version="1",
        arguments=arguments,
    )  # fmt: skip


def files(root: Path) -> list[str]:
    """Return the exact names of all files."""
    return sorted(
        os.path.relpath(os.path.join(folder, name), root)  # noqa: PTH118 - exact bytes
        for folder, _, names in os.walk(root)
        for name in names
    )


@pytest.mark.parametrize(("asked", "there"), [*PAIRS, *((b, a) for a, b in PAIRS[1:])])
def test_a_file_is_found_by_either_form(
    root: Path, tools: dict[str, Tool], there: str, asked: str
) -> None:
    """Every tool finds the file by the other form of its name, and a write makes no second one."""
    put(root, there, "one\n")
    assert run(tools, "read_file", path=asked) == "one\n"
    assert run(tools, "glob", pattern=asked) == there
    assert run(tools, "glob", pattern=asked.replace("txt", "*")) == run(tools, "glob", pattern="**")
    assert run(tools, "search_text", query="one", path=asked).endswith(":1:one")
    assert run(tools, "search_text", query="one", glob=asked).endswith(":1:one")
    folder = asked.rpartition("/")[0]
    assert ".txt  4 bytes" in run(tools, "list_dir", path=folder)
    assert "replacing 4 bytes" in run(tools, "write_file", path=asked, content="two\n")
    patch = f"*** Begin Patch\n*** Update File: {asked}\n-two\n+three\n*** End Patch"
    assert "updated" in run(tools, "apply_patch", patch=patch)
    assert [there] == files(root)
    assert (root / there).read_text() == "three\n"


def test_other_names_stay_apart(root: Path, tools: dict[str, Tool]) -> None:
    """Control: names that differ in more than the form are different names."""
    for name in ("u.txt", "\xfb.txt", "\xdc.txt", "\ufb01.txt", "K.txt"):
        put(root, name, name)
    for asked in (NFC, NFD, "fi.txt", "\u1e30.txt"):
        with pytest.raises(ToolFailure, match="no such file"):
            run(tools, "read_file", path=asked)
    assert "a new file" in run(tools, "write_file", path=NFD, content="new")
    assert "u\u0308.txt" in files(root)


def test_two_files_of_one_name_are_ambiguous(root: Path, tools: dict[str, Tool]) -> None:
    """Both are read by their exact names, with a note; a third form and every write are refused."""
    first, second, third = "\u1ed9.txt", "o\u0323\u0302.txt", "\xf4\u0323.txt"
    put(root, first, "first")
    put(root, second, "second")
    note = r"'o\u0323\u0302.txt', '\u1ed9.txt' differ in their Unicode form only"
    assert run(tools, "read_file", path=first) == f"first\n[{note}]"
    assert run(tools, "read_file", path=second) == f"second\n[{note}]"
    with pytest.raises(ToolFailure, match=f"ambiguous: {re.escape(note)}"):
        run(tools, "read_file", path=third)
    for path in (first, second, third):
        with pytest.raises(ToolFailure, match="rename or remove all but one"):
            run(tools, "write_file", path=path, content="lost?")
    assert "Unicode form" in run(tools, "list_dir")
    assert "Unicode form" in run(tools, "glob", pattern="*")
    assert ("first", "second") == ((root / first).read_text(), (root / second).read_text())


def test_one_patch_has_one_name(root: Path, tools: dict[str, Tool]) -> None:
    """A patch that creates a file in one form updates it in the other."""
    patch = f"*** Begin Patch\n*** Add File: {NFC}\n+one\n*** Update File: {NFD}\n-one\n+two\n*** End Patch"
    run(tools, "apply_patch", patch=patch)
    assert [NFC] == files(root)
    assert (root / NFC).read_text() == "two\n"


def test_a_checkpoint_follows_the_name(
    root: Path, tools: dict[str, Tool], checkpoints: Checkpoints, store: MemoryCheckpoints
) -> None:
    """A restore finds a file that was renamed to the other form, and makes no second one."""
    put(root, NFD, "before")
    run(tools, "write_file", path=NFC, content="after")
    kept = store.list(CheckpointFilter())[0]
    assert [NFD] == [file.path for file in kept.files]
    (root / NFD).rename(root / NFC)
    checkpoints.restore(kept, "before", is_forced=False)
    assert [NFC] == files(root)
    assert (root / NFC).read_text() == "before"


def test_the_other_form_opens_no_door(root: Path, tools: dict[str, Tool]) -> None:
    """A link or hard link of an equal name is refused, as is the other form of a protected name."""
    secret = root.parent / "outside" / "secret.txt"
    (root / NFD).symlink_to(secret)
    (root / "a\u0308").symlink_to(secret.parent)
    (root / "o\u0308.txt").hardlink_to(secret)
    put(root, ".ssh/\xe4", "key")
    for path in (NFC, "\xe4/secret.txt", "\xf6.txt", ".ssh/a\u0308", "x/../\xe4/secret.txt"):
        with pytest.raises(ToolFailure, match="may not be used"):
            run(tools, "read_file", path=path)
        with pytest.raises(ToolFailure, match="may not be used"):
            run(tools, "write_file", path=path, content="lost?")
    assert (root / NFD).read_text() == "the secret"  # control: without the confinement it opens


def test_a_swapped_name_is_not_written(
    root: Path, tools: dict[str, Tool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link that takes the name after it was resolved is refused."""
    put(root, NFD, "one")
    resolve = Workspace.resolve

    def then_swap(self: Workspace, path: str, *, for_write: bool = False) -> str:
        found = resolve(self, path, for_write=for_write)
        (root / NFD).unlink(missing_ok=True)
        (root / NFD).symlink_to(root.parent / "outside" / "secret.txt")
        return found

    monkeypatch.setattr(Workspace, "resolve", then_swap)
    for name, arguments in (("read_file", {}), ("write_file", {"content": "lost?"})):
        with pytest.raises(ToolFailure, match="may not be used"):
            run(tools, name, path=NFC, **arguments)
    assert (root.parent / "outside" / "secret.txt").read_text() == "the secret"


# --- rules and grants ----------------------------------------------------------------------------


@pytest.mark.parametrize("written", [NFC, NFD])
@pytest.mark.parametrize("asked", [NFC, NFD])
def test_a_rule_holds_for_either_form(tmp_path: Path, written: str, asked: str) -> None:
    """A forbid about a file denies it in both forms, and no other file."""
    folder = tmp_path / "policies"
    folder.mkdir()
    (folder / "mine.cedar").write_text(
        "permit (principal, action, resource);\n"
        f'forbid (principal, action, resource) when {{ context.paths.contains("{written}") }};\n'
    )
    policy = CedarPolicy(folder)
    assert () == policy.problems
    answers = [
        policy.decide(
            policy_request(an_admitted({"path": path}, path_argument="path"), FACTS)
        ).answer
        for path in (asked, "u.txt")
    ]
    assert ["deny", "allow"] == answers


@pytest.mark.parametrize("principal", ["j\xf6rg", "jo\u0308rg"])
def test_a_rule_about_a_principal_still_holds(tmp_path: Path, principal: str) -> None:
    """The text of the rules is read in NFC, and so is every name that they are compared with."""
    (tmp_path / "mine.cedar").write_text(
        "permit (principal, action, resource);\n"
        f'forbid (principal == Principal::"{principal}", action, resource);\n'
    )
    policy = CedarPolicy(tmp_path)
    request = policy_request(an_admitted(), FACTS)
    answers = [
        policy.decide(msgspec.structs.replace(request, principal=name, owner=name)).answer
        for name in (principal, "jorg")
    ]
    assert ["deny", "allow"] == answers


def test_a_grant_holds_for_either_form() -> None:
    """A grant of a write covers the file in both forms, and no other file."""
    keys = {write_facets({"path": path}).grant_key for path in (NFC, NFD)}
    assert {NFC} == keys
    patch = "*** Begin Patch\n*** Delete File: {}\n*** End Patch"
    assert NFC == patch_facets({"patch": patch.format(NFD)}).grant_key
    assert NFC != write_facets({"path": "u.txt"}).grant_key
