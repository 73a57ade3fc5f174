"""Several workspaces: a call and a checkpoint find the folder that they belong to, or none."""

import threading
from pathlib import Path

import msgspec
import pytest

from palyra.core.tool.checkpoints import CheckpointFilter, Content
from palyra.core.tool.spec import ToolCall, ToolFailure, ToolOutput
from palyra.core.tool.targets import CallTargets
from palyra.errors import Conflict, IllegalState, InvalidParams
from palyra.tools.files.changes import Changes
from palyra.tools.files.checkpoints import Checkpoints
from palyra.tools.files.read import file_tools
from palyra.tools.files.workspace import Workspace
from palyra.tools.files.workspaces import (
    PerWorkspace,
    WorkspaceCheckpoints,
    Workspaces,
    open_workspaces,
    tools_by_workspace,
)
from palyra.tools.files.write import write_tools
from palyra.tools.toolbox import InlineTool, ThreadTool, Toolbox
from tests.actors.run.office_kit import inline_blocking
from tests.core.policy.tool_samples import a_spec
from tests.store.memory.files import MemoryCheckpoints

CALL = ToolCall(
    call_id="call_1", run_id="run_1", session_id="ses_1", principal="ann", tool="read_file",
    tool_version="1", arguments={"path": "a"},
)  # fmt: skip
THERE = msgspec.structs.replace(CALL, workspace="site")


class World:
    """Two workspaces, each with a file of its name, and their checkpoints in one store."""

    def __init__(self, base: Path) -> None:
        self.roots = {name: base / name for name in ("default", "site")}
        for name, root in self.roots.items():
            root.mkdir()
            (root / "a").write_text(name)
        self.workspaces = open_workspaces(self.roots, [])
        self.store = MemoryCheckpoints()
        numbers = iter(range(99))
        self.checkpoints = WorkspaceCheckpoints(
            {
                name: Checkpoints(
                    each, self.store, lambda: 7, lambda kind: f"{kind}_{next(numbers)}"
                )
                for name, each in self.workspaces.items()
            }
        )

    def write(self, call: ToolCall, text: bytes) -> None:
        """Write the file as a call in its workspace does."""
        kept = self.checkpoints.by_name[call.workspace]
        changes = Changes(kept.workspace)
        changes.look("a")
        changes.make({"a": Content(text)}, kept.keep_for(call))

    def texts(self) -> list[str]:
        """The file in each workspace."""
        return [(root / "a").read_text() for root in self.roots.values()]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_tool_works_in_the_workspace_of_its_call(world: World) -> None:
    """Also its targets; a call of an unknown workspace fails and reaches no folder."""
    tools = {each.spec.name: each for each in tools_by_workspace(world.workspaces, file_tools)}
    read = tools["read_file"]
    assert isinstance(read, ThreadTool)
    assert ["default", "site"] == [read.run(call).text for call in (CALL, THERE)]
    with pytest.raises(ToolFailure, match="'gone' of this session is not configured"):
        read.run(msgspec.structs.replace(CALL, workspace="gone"))
    written = tools_by_workspace(
        world.checkpoints.by_name, lambda kept: write_tools(kept.workspace, kept.keep_for)
    )
    write = next(each for each in written if each.spec.name == "write_file")
    assert write.targets is not None
    asked = msgspec.structs.replace(
        THERE, tool="write_file", arguments={"path": "a", "content": "b"}
    )
    (target,) = write.targets(asked).files
    assert target.before is not None
    assert b"site" == target.before.data
    with pytest.raises(ToolFailure, match="not configured"):
        write.targets(msgspec.structs.replace(asked, workspace="gone"))


def test_what_one_place_lacks_the_combination_lacks() -> None:
    """A tool without an inspection and without targets keeps having none; others are asked."""

    def run(_call: ToolCall) -> ToolOutput:
        raise AssertionError("it is not run")

    plain = InlineTool(a_spec("plain"), run)
    (combined,) = tools_by_workspace({"default": 1, "site": 2}, lambda _place: [plain])
    assert (combined.inspect, combined.targets) == (None, None)

    def build(place: str) -> list[InlineTool]:
        def find_targets(_call: ToolCall) -> CallTargets:
            return CallTargets(address=place)

        return [InlineTool(plain.spec, plain.run, targets=find_targets)]

    (combined,) = tools_by_workspace({"default": "one", "site": "two"}, build)
    assert combined.targets is not None
    assert ["one", "two"] == [combined.targets(call).address for call in (CALL, THERE)]


async def test_a_tool_of_one_workspace_refuses_the_others() -> None:
    """As the tools of an MCP server that works in one; its own workspace is the control."""
    runs: list[str] = []
    spec = a_spec("theirs", workspace="site")

    def run(call: ToolCall) -> object:
        runs.append(call.workspace)
        raise ToolFailure("it ran")

    box = Toolbox([InlineTool(spec, run)], inline_blocking)  # type: ignore[arg-type]  # it only raises
    for call, why in ((CALL, "works in the workspace 'site' alone"), (THERE, "it ran")):
        asked = msgspec.structs.replace(call, tool="theirs", tool_version=spec.version)
        with pytest.raises(ToolFailure, match=why):
            await box.execute(asked, lambda _piece: None)
    assert ["site"] == runs


def test_a_checkpoint_goes_back_where_it_was_made(world: World) -> None:
    """Restore, rewind, follow and undo change that workspace alone."""
    history = world.checkpoints
    world.write(THERE, b"new")
    (kept,) = history.list(CheckpointFilter())
    assert kept == history.find(kept.checkpoint_id)
    assert ["left"] == [each.standing for each in history.follow([kept])]
    assert history.restore(kept, "before", is_forced=False).files == ("a",)
    assert ["default", "site"] == world.texts()
    world.write(THERE, b"new")
    newest = history.list(CheckpointFilter())[0]
    assert history.rewind([newest], is_forced=False, is_dry=False).files == ("a",)
    assert ["default", "site"] == world.texts()
    world.write(THERE, b"new")
    (followed,) = history.follow(made := [history.list(CheckpointFilter())[0]])
    assert history.undo(made, {"a"}, {"a": followed.now_sha256}) is not None
    assert ["default", "site"] == world.texts()
    assert 0 < history.drop_session("ses_1")


def test_a_checkpoint_of_no_configured_workspace(world: World) -> None:
    """It is refused with the remedy, as is a mixture of two workspaces; without any there is nothing."""
    world.write(CALL, b"new")
    world.write(THERE, b"new")
    there, here = world.checkpoints.list(CheckpointFilter())
    alone = WorkspaceCheckpoints({"default": world.checkpoints.by_name["default"]})
    with pytest.raises(IllegalState, match=r"add it to tools\.workspaces"):
        alone.restore(there, "before", is_forced=True)
    with pytest.raises((IllegalState, Conflict)):
        world.checkpoints.rewind([here, there], is_forced=True, is_dry=False)
    assert ["new", "new"] == world.texts()
    assert [] == list(world.checkpoints.follow([]))


@pytest.mark.parametrize("inner", ["site/inner", "site", "."])
def test_workspaces_that_overlap(tmp_path: Path, inner: str) -> None:
    """One inside of another is refused, whichever is named first, also by a link; beside is fine."""
    (tmp_path / "site" / "inner").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / inner)
    (tmp_path / "beside").mkdir()
    outer, found = tmp_path / "site", tmp_path / "link"
    for one, other in ((outer, found), (found, outer)):
        with pytest.raises(InvalidParams, match="overlap"):
            open_workspaces({"default": one, "more": other}, [])
    opened = open_workspaces({"default": outer, "more": tmp_path / "beside"}, [])
    assert ["default", "more"] == list(opened)


def test_a_workspace_that_cannot_be_opened(tmp_path: Path) -> None:
    """The error has the name; the daemon's own folder is refused for each of them."""
    (tmp_path / "site").mkdir()
    (tmp_path / "data").mkdir()
    with pytest.raises(
        InvalidParams, match=r"'more': the workspace .* cannot be opened .*path of 'more'"
    ):
        open_workspaces({"default": tmp_path / "site", "more": tmp_path / "none"}, [])
    with pytest.raises(InvalidParams, match=r"'more': .*keeps for itself"):
        open_workspaces(
            {"default": tmp_path / "site", "more": tmp_path / "data"}, [tmp_path / "data"]
        )


def test_workspaces_stay_apart_for_links(world: World) -> None:
    """A link from one workspace into another is refused as any other link is."""
    (world.roots["site"] / "link").symlink_to(world.roots["default"] / "a")
    tools = tools_by_workspace(world.workspaces, file_tools)
    read = next(each for each in tools if each.spec.name == "read_file")
    assert isinstance(read, ThreadTool)
    asked = msgspec.structs.replace(THERE, arguments={"path": "link"})
    with pytest.raises(ToolFailure, match="may not be used"):
        read.run(asked)
    assert isinstance(world.workspaces["site"], Workspace)


def test_a_place_has_one_object() -> None:
    """A thread that asks for it while another one builds it gets the same object."""
    others: list[object] = []
    threads: list[threading.Thread] = []

    def build(_place: str) -> object:
        if not threads:
            threads.append(threading.Thread(target=lambda: others.append(made["a"])))
            threads[0].start()
            threads[0].join()
        return object()

    made = PerWorkspace({"a": "place"}, build)
    first = made["a"]
    assert [first, first] == [made["a"], *others]


@pytest.mark.parametrize("view", ["values", "items", "keys"])
def test_a_workspace_that_goes_while_they_are_listed_ends_no_list(world: World, view: str) -> None:
    """A thread goes through one state of the workspaces, and of what was made for them only what stays."""
    workspaces = Workspaces(world.roots, [])
    made = PerWorkspace(workspaces, lambda place: place.root.name)
    listed, parts = iter(getattr(workspaces, view)()), iter(getattr(made, view)())
    next(listed)
    next(parts)
    workspaces.replace({"default": world.roots["default"]})
    assert 1 == len(list(listed))
    assert (1 if view == "keys" else 0) == len(list(parts))
    assert ["default"] == list(workspaces)
    assert [("default", "default")] == list(made.items())


def test_changed_workspaces_are_opened_and_the_others_stay(world: World) -> None:
    """A name with another path is another workspace; what cannot be opened changes nothing."""
    workspaces = Workspaces(world.roots, [])
    default, site = workspaces.values()
    with pytest.raises(InvalidParams, match="cannot be opened"):
        workspaces.replace({"default": world.roots["default"], "gone": Path("/no/such/folder")})
    with pytest.raises(InvalidParams, match="overlap"):
        workspaces.replace({**world.roots, "same": world.roots["site"]})
    assert [default, site] == list(workspaces.values())
    (other := world.roots["site"].parent / "other").mkdir()
    workspaces.replace({"default": world.roots["default"], "site": other})
    assert default is workspaces["default"]
    assert other == workspaces["site"].root
