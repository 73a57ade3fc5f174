"""The workspace's walls: what is opened lies inside, whatever the path says.

Every attempt has its control: the same target opened plainly, without the walls, succeeds.
"""

import os
import re
import shutil
import socket
import stat
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from palyra.core.tool.checkpoints import Content
from palyra.core.tool.spec import ToolFailure
from palyra.errors import InvalidParams
from palyra.tools.files import syscalls
from palyra.tools.files.changes import Changes
from palyra.tools.files.cleanup import sweep
from palyra.tools.files.read import list_dir, read_file
from palyra.tools.files.walk import WorkspaceWalk
from palyra.tools.files.workspace import Workspace, refusal, usable

SECRET = "outside"
MAX_RACES = 100_000
ENOUGH_RACES = 300  # opens that met the folder, and as many that met the link


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder next to the workspace, with a secret in it."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret").write_text(SECRET)
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The workspace's folder, with one file and one folder."""
    folder = tmp_path / "workspace"
    (folder / "sub").mkdir(parents=True)
    (folder / "a.txt").write_text("inside")
    (folder / "sub" / "b.txt").write_text("below")
    return folder


@pytest.fixture(params=["openat2", "nofollow"])
def workspace(request: pytest.FixtureRequest, root: Path) -> Iterator[Workspace]:
    """The workspace, with each of the two methods of confinement."""
    opened = Workspace(root, use_openat2=False if request.param == "nofollow" else None)
    if opened.enforcement != request.param:
        pytest.skip("this kernel has no openat2")
    yield opened
    opened.close()


def names(folder: Path) -> list[str]:
    """The entries of a folder."""
    return sorted(entry.name for entry in folder.iterdir())


def read(workspace: Workspace, path: str) -> str:
    """The text of a file, read through the workspace."""
    with workspace.open_file(path) as fd:
        return os.read(fd, 1000).decode()


def put(workspace: Workspace, path: str, data: bytes) -> None:
    """Write a file through the workspace."""
    changes = Changes(workspace)
    key = usable(path)
    changes.look(key)
    changes.make({key: Content(data)})


def refused(workspace: Workspace, path: str) -> None:
    """Reading, listing and writing that path are all refused, in the same words."""
    with pytest.raises(ToolFailure) as reading:
        read(workspace, path)
    with pytest.raises(ToolFailure) as listing, workspace.open_folder(path):
        pass
    with pytest.raises(ToolFailure) as writing:
        put(workspace, path, b"overwritten")
    words = {failure.value.message for failure in (reading, listing, writing)}
    assert {refusal(path).message} == words


@pytest.mark.parametrize("path", ["a.txt", "./a.txt", "sub/b.txt", "sub//b.txt", "sub/./b.txt"])
def test_inside_files_are_read(workspace: Workspace, root: Path, path: str) -> None:
    """The workspace reads what a plain open reads."""
    assert (root / path).read_text() == read(workspace, path)


@pytest.mark.parametrize("path", ["", ".", "sub"])
def test_folders_inside_are_listed(workspace: Workspace, root: Path, path: str) -> None:
    """The root and folders below it can be listed."""
    with workspace.open_folder(path) as fd:
        assert names(root / path) == sorted(os.listdir(fd))  # noqa: PTH208 - of a descriptor


@pytest.mark.parametrize("path", ["../outside/secret", "sub/../../outside/secret", "sub/../a.txt"])
def test_no_way_up(workspace: Workspace, root: Path, outside: Path, path: str) -> None:
    """`..` is refused wherever it leads."""
    assert outside.is_dir()
    assert (root / path).read_text()
    refused(workspace, path)


def test_no_absolute_path(workspace: Workspace, root: Path, outside: Path) -> None:
    """An absolute path is refused, also one that points inside."""
    assert (outside / "secret").read_text() == SECRET
    refused(workspace, str(outside / "secret"))
    refused(workspace, str(root / "a.txt"))


@pytest.mark.parametrize("name", ["link", "-rf", "--", "sub/link"])
def test_no_link_to_a_file(workspace: Workspace, root: Path, outside: Path, name: str) -> None:
    """A symbolic link is not followed, whatever its name, even if it stays inside."""
    (root / name).symlink_to(outside / "secret")
    (root / "inner").symlink_to("a.txt")
    assert (root / name).read_text() == SECRET
    refused(workspace, name)
    refused(workspace, "inner")


def test_no_link_to_a_folder(workspace: Workspace, root: Path, outside: Path) -> None:
    """A symbolic link on the way is not followed."""
    (root / "door").symlink_to(outside)
    assert (root / "door" / "secret").read_text() == SECRET
    refused(workspace, "door")
    refused(workspace, "door/secret")


def test_outside_looks_the_same_whether_it_exists(
    workspace: Workspace, root: Path, outside: Path
) -> None:
    """The error does not reveal what exists outside."""
    (root / "door").symlink_to(outside)
    (root / "there").symlink_to(outside / "secret")
    (root / "nowhere").symlink_to(outside / "missing")
    for path in ["door/secret", "door/missing", "there", "nowhere", "../outside/secret", "../no"]:
        refused(workspace, path)
    assert (outside / "secret").read_text() == SECRET


def test_no_second_name(workspace: Workspace, root: Path, outside: Path) -> None:
    """A file with a hard link elsewhere is refused."""
    (root / "twin").hardlink_to(outside / "secret")
    assert (root / "twin").read_text() == SECRET
    with pytest.raises(ToolFailure, match="may not be used"):
        read(workspace, "twin")
    with pytest.raises(ToolFailure, match="may not be used"):
        put(workspace, "twin", b"overwritten")
    assert (outside / "secret").read_text() == SECRET


def test_no_pipe(workspace: Workspace, root: Path) -> None:
    """A FIFO is refused at once, without waiting for a writer."""
    os.mkfifo(root / "pipe")
    fd = os.open(root / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    os.close(fd)
    with pytest.raises(ToolFailure, match="may not be used"):
        read(workspace, "pipe")
    with pytest.raises(ToolFailure, match="may not be used"):
        put(workspace, "pipe", b"")
    assert (root / "pipe").is_fifo()


def test_no_socket(workspace: Workspace, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A socket is refused."""
    monkeypatch.chdir(root)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        with pytest.raises(ToolFailure, match="may not be used"):
            read(workspace, "socket")


def test_no_device(workspace: Workspace, root: Path) -> None:
    """A device is refused."""
    try:
        os.mknod(root / "zero", stat.S_IFCHR | 0o666, os.makedev(1, 5))
        with (root / "zero").open("rb") as device:
            assert device.read(1) == b"\0"
    except PermissionError:
        pytest.skip("making or opening a device needs privileges")
    with pytest.raises(ToolFailure, match="may not be used"):
        read(workspace, "zero")


def test_no_nul(workspace: Workspace, root: Path) -> None:
    """A path does not end at a NUL."""
    assert (root / "a.txt").read_text() == "inside"
    refused(workspace, "a.txt\0.png")


@pytest.mark.parametrize("name", ["openat2", "nofollow"])
def test_no_magic_link(name: str) -> None:
    """The links of /proc that lead anywhere are not followed."""
    magic = Workspace(Path("/proc/self"), use_openat2=name == "openat2")
    assert Path("/proc/self/root/proc/self/comm").read_text("utf-8")
    assert read(magic, "comm") == Path("/proc/self/comm").read_text("utf-8")
    refused(magic, "root/proc/self/comm")
    refused(magic, "cwd")
    magic.close()


@pytest.mark.parametrize("path", [".ssh/id_rsa", ".env", "sub/.aws/credentials", ".ENV.local"])
def test_no_place_for_secrets(workspace: Workspace, root: Path, path: str) -> None:
    """Credentials are refused, in the same words whether they exist or not."""
    refused(workspace, path)
    (root / path).parent.mkdir(exist_ok=True)
    (root / path).write_text(SECRET)
    assert (root / path).read_text() == SECRET
    refused(workspace, path)


def test_configuration_is_read_but_not_written(workspace: Workspace, root: Path) -> None:
    """Git's configuration can be read and not changed."""
    (root / ".git").mkdir()
    (root / ".git" / "config").write_text("[core]")
    assert read(workspace, ".git/config") == "[core]"
    for path in [".git/config", ".git/hooks/pre-commit", ".vscode/tasks.json"]:
        with pytest.raises(ToolFailure, match="may not be used"):
            put(workspace, path, b"")
    assert (root / ".git" / "config").read_text() == "[core]"


def test_missing_is_missing(workspace: Workspace) -> None:
    """A missing file inside is reported as missing."""
    with pytest.raises(ToolFailure, match=r"none\.txt: no such file"):
        read(workspace, "none.txt")


def test_a_folder_is_not_a_file(workspace: Workspace) -> None:
    """Reading a folder says what to do instead."""
    with pytest.raises(ToolFailure, match="sub is a folder: list it"):
        read(workspace, "sub")


@pytest.mark.parametrize("path", ["", ".", "sub"])
def test_a_folder_is_not_overwritten(workspace: Workspace, root: Path, path: str) -> None:
    """A folder stays a folder."""
    with pytest.raises(ToolFailure, match=r"may not be used|is a folder"):
        put(workspace, path, b"")
    assert (root / path).is_dir()


@pytest.mark.real
def test_a_rename_race_finds_nothing_outside(
    workspace: Workspace, root: Path, outside: Path
) -> None:
    """While a folder and a link to the outside change places, no open reaches the outside."""
    (root / "spot").mkdir()
    (root / "spot" / "secret").write_text("inside")
    (root / "door").symlink_to(outside)
    assert (root / "door" / "secret").read_text() == SECRET
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            for source, target in [
                ("spot", "x"),
                ("door", "spot"),
                ("spot", "door"),
                ("x", "spot"),
            ]:
                (root / source).rename(root / target)

    swapper = threading.Thread(target=swap)
    swapper.start()
    seen = Counter[str]()
    try:
        while seen.total() < MAX_RACES and min(seen["inside"], seen["refused"]) < ENOUGH_RACES:
            try:
                seen[read(workspace, "spot/secret")] += 1
            except ToolFailure as failure:
                seen["refused" if "may not be used" in failure.message else "missing"] += 1
    finally:
        stop.set()
        swapper.join()
    assert seen.keys() <= {"inside", "refused", "missing"}
    assert min(seen["inside"], seen["refused"]) >= ENOUGH_RACES, "the race was never close"


# --- the root ------------------------------------------------------------------------------------


def test_some_roots_are_no_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The root folder, the home folder and whatever overlaps the daemon's own are refused."""
    data = tmp_path / "work" / "data"
    (data / "keys").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path))
    for root in [Path("/"), tmp_path, data, data.parent, data / "keys"]:
        with pytest.raises(InvalidParams, match="workspace") as refused:
            Workspace(root, keep_out=[data])
        assert "workspace" == refused.value.field  # so the command line adds no other remedy
    Workspace(data.parent, keep_out=[tmp_path / "elsewhere"]).close()


def test_a_root_that_is_missing_is_an_error(tmp_path: Path) -> None:
    """There is no workspace without its folder; the remedy is named."""
    with pytest.raises(InvalidParams, match="--workspace"):
        Workspace(tmp_path / "none")


def test_openat2_is_missed_where_it_fails(tmp_path: Path) -> None:
    """A descriptor that nothing can be opened from counts as a kernel without openat2."""
    fd = os.open(tmp_path, os.O_RDONLY)
    os.close(fd)
    assert not syscalls.is_supported(fd)


def test_an_endless_race_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An open that stays uncertain is refused after a few tries."""
    tries = []

    def uncertain(_fd: int, path: str, _flags: int) -> int:
        tries.append(path)
        raise BlockingIOError(11, "try again")

    opened = Workspace(root, use_openat2=True)
    monkeypatch.setattr(syscalls, "open_beneath", uncertain)
    with pytest.raises(ToolFailure, match="may not be used"):
        read(opened, "a.txt")
    assert (["a.txt"] * 8) == tries
    opened.close()


# --- a root that is taken away -------------------------------------------------------------------


def test_a_missing_root_is_an_error(workspace: Workspace, root: Path) -> None:
    """Every operation names the workspace and a remedy, instead of finding it empty."""
    shutil.rmtree(root)
    gone = f"the workspace {re.escape(str(root))} cannot be used: it is not there any more; .*make"
    for attempt in (
        lambda: list_dir(workspace, {}),
        lambda: read_file(workspace, {"path": "a.txt"}),
        lambda: workspace.look("a.txt"),
        lambda: workspace.read_link("a.txt"),
        lambda: Changes(workspace).look("new.txt"),
        lambda: list(WorkspaceWalk(workspace).files()),
    ):
        with pytest.raises(ToolFailure, match=gone):
            attempt()
    assert "cannot be used" in workspace.find_problem()
    assert 0 == sweep(workspace, 0.0)


def test_a_root_that_is_there_again_is_used(workspace: Workspace, root: Path) -> None:
    """The folder at the path is the workspace, never the one that was there before."""
    opened = len(list(Path("/proc/self/fd").iterdir()))
    for name in ("new", "newer"):
        root.rename(root.with_name(f"before-{name}"))
        root.mkdir()
        (root / name).write_text(name)
        assert f"{name}  {len(name)} bytes" == list_dir(workspace, {}).text
        changes = Changes(workspace)
        changes.look("made.txt")
        changes.make({"made.txt": Content(b"made")})
        assert ["made.txt", name] == names(root)
    assert not workspace.find_problem()
    assert opened == len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("above", [False, True])
def test_a_link_is_no_root(workspace: Workspace, root: Path, outside: Path, above: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """In the root's place or above it: no tool follows it, and the secret stays where it is."""
    if above:
        root.parent.rename(f"{root.parent}-moved")
        Path(f"{root.parent}-else", root.name).mkdir(parents=True)
        root.parent.symlink_to(f"{root.parent}-else")
    else:
        shutil.rmtree(root)
        root.symlink_to(outside)
    assert root.is_dir()
    with pytest.raises(ToolFailure, match="cannot be used: a link or another thing lies there"):
        list_dir(workspace, {})
    assert "a link or another thing" in workspace.find_problem()


def test_a_file_is_no_root(workspace: Workspace, root: Path) -> None:
    """Nor anything else but a folder."""
    shutil.rmtree(root)
    root.touch()
    with pytest.raises(ToolFailure, match="cannot be used: a link or another thing lies there"):
        list_dir(workspace, {})


def test_a_root_is_checked_again(root: Path) -> None:
    """A folder of the daemon may have been moved to its path."""
    kept = root.with_name("kept")
    workspace = Workspace(root, keep_out=[kept])
    shutil.rmtree(root)
    (root / "data").mkdir(parents=True)
    kept.symlink_to(root / "data")
    with pytest.raises(ToolFailure, match=r"cannot be used: .*overlaps"):
        list_dir(workspace, {})
    workspace.close()


def test_a_root_that_is_closed_is_a_problem(workspace: Workspace, root: Path) -> None:
    """To whom it belongs: programs act as its owner."""
    root.chmod(0)
    found = workspace.find_problem()
    root.chmod(0o755)
    assert f"the workspace {root} is closed to its owner (mode 0000): chmod u+rwx" in found
    assert not workspace.find_problem()
