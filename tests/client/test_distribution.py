"""`palyra-client`: the clients alone, under a name of their own and without the daemon's packages."""

import json
import subprocess
import sys
import tomllib
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from tests.e2e.daemon_process import running
from tests.rows import every_row

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "clients/python"
# A module is imported from the copy, from Python, or from a package that is named.
ONLY = """
import sys
tree, allowed = sys.argv[1], {*sys.argv[2].split(","), *sys.stdlib_module_names, "palyra_client"}
class Only:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] not in allowed:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Only)
sys.path.insert(0, tree)
home = sys.argv[3]
"""
ASYNCIO = """
import asyncio, json
from palyra_client import RunOptions, TapeEvent, aio, errors
async def main():
    async with aio.connect(home=home) as client:
        started = await client.start_run("hello")
        async with client.events(started.run_id) as items:
            kinds = [item.kind async for item in items if isinstance(item, TapeEvent)]
        try:
            await client.get_run("run_01890a5d-ac96-774b-bcce-b302099a8057")
        except errors.NotFound as error:
            print(json.dumps([kinds[0], kinds[-1], type(error).__module__]))
asyncio.run(main())
"""
BLOCKING = """
import json
from palyra_client import TapeEvent, blocking, errors
with blocking.connect(home=home) as client:
    started = client.start_run("hello")
    with client.events(started.run_id) as items:
        kinds = [item.kind for item in items if isinstance(item, TapeEvent)]
    try:
        client.get_run("run_01890a5d-ac96-774b-bcce-b302099a8057")
    except errors.NotFound as error:
        print(json.dumps([kinds[0], kinds[-1], type(error).__module__]))
"""
TRIO = """
import json
import trio
from palyra_client import TapeEvent, connect, errors
async def main():
    async with connect(home=home) as client:
        started = await client.start_run("hello")
        async with client.events(started.run_id) as items:
            kinds = [item.kind async for item in items if isinstance(item, TapeEvent)]
        try:
            await client.get_run("run_01890a5d-ac96-774b-bcce-b302099a8057")
        except errors.NotFound as error:
            print(json.dumps([kinds[0], kinds[-1], type(error).__module__]))
trio.run(main)
"""
OF_TRIO = "trio,trio_websocket,attr,attrs,sortedcontainers,idna,outcome,sniffio"


def load_tool() -> ModuleType:
    """The module that copies; it is in a folder of its own, as hatchling wants it."""
    spec = spec_from_file_location("client_tree", FOLDER / "client_tree.py")
    assert spec is not None
    assert spec.loader is not None
    tool = module_from_spec(spec)
    spec.loader.exec_module(tool)
    return tool


TOOL = load_tool()


def read_project(folder: Path) -> dict[str, list[str]]:
    """The dependencies of a project; those of its extra for trio too."""
    project = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
    return {
        "required": project["dependencies"],
        "trio": project.get("optional-dependencies", {}).get("trio", []),
    }


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("client")
    TOOL.write_tree(folder)
    return folder


def run_alone(
    tree: Path, program: str, *, packages: str = "", home: Path = Path()
) -> subprocess.CompletedProcess[str]:
    """Run a program with the copy and its declared packages alone."""
    declared = [line.partition(">")[0] for line in read_project(FOLDER)["required"]]
    allowed = ",".join(filter(None, (*declared, packages)))
    return subprocess.run(
        [sys.executable, "-I", "-c", ONLY + program, str(tree), allowed, str(home)],
        capture_output=True,
        text=True,
        check=False,
    )


def test_only_what_clients_need_is_copied() -> None:
    """No floor of the daemon, and no module that starts one."""
    floors = {path.parts[1] for path in TOOL.find_modules()}
    assert {"__init__.py", "client", "config", "core", "errors.py", "net"} == floors
    names = {path.as_posix() for path in TOOL.find_modules()}
    assert {"palyra/client/aio.py", "palyra/client/dial.py"} <= names
    assert [] == [
        name
        for name in names
        if name.startswith("palyra/net/")
        and not name.startswith(("palyra/net/protocol/", "palyra/net/__init__"))
    ]
    assert "palyra/config/load.py" not in names


def test_the_copy_is_a_whole_package(tree: Path) -> None:
    """Every folder is a package; types, their marker and the licence are there, renamed too."""
    package = tree / "palyra_client"
    folders = {path.parent for path in package.rglob("*.py")}
    assert [] == [folder for folder in folders if not (folder / "__init__.py").is_file()]
    assert {"py.typed", "LICENSE", "__init__.pyi"} <= {path.name for path in package.iterdir()}
    stub = (package / "client" / "__init__.pyi").read_text("utf-8")
    assert "from palyra_client.client.dial import connect" in stub


@every_row(
    ("text", "renamed"),
    [
        ("import palyra\n", "import palyra_client\n"),
        ("from palyra import errors\n", "from palyra_client import errors\n"),
        ("    from palyra.core import ids\n", "    from palyra_client.core import ids\n"),
        ('"aio": "palyra.client.aio",', '"aio": "palyra_client.client.aio",'),
        ('FILE_NAME = "palyra.toml"', 'FILE_NAME = "palyra.toml"'),
        ('PROTOCOL = "palyra.v1"', 'PROTOCOL = "palyra.v1"'),
        ("start one with `palyra up`", "start one with `palyra up`"),
    ],
)
def test_only_the_package_is_renamed(text: str, renamed: str) -> None:
    """Files, the protocol and the command keep their names."""
    assert renamed == TOOL.rename(text)


def test_ranges_are_those_of_the_daemon() -> None:
    """A package that both need is wanted in the same versions."""
    own, daemons = read_project(FOLDER), read_project(ROOT)["required"]
    assert {*own["required"], *own["trio"]} <= {*daemons}


@pytest.mark.real
def test_it_imports_what_it_declares(tree: Path) -> None:
    """The control: without one of the declared packages the import fails."""
    assert 0 == run_alone(tree, "from palyra_client import aio, blocking").returncode
    declared = [line.partition(">")[0] for line in read_project(FOLDER)["required"]]
    hide = f"allowed -= {{{declared[0]!r}}}\n"
    without = run_alone(tree, f"{hide}from palyra_client import aio, blocking")
    assert f"No module named {declared[0]!r}" in without.stderr


@pytest.mark.real
def test_trio_is_optional_and_named(tree: Path) -> None:
    """Who asks for the client for trio without trio reads what to install."""
    done = run_alone(tree, "import palyra_client; palyra_client.connect")
    assert "needs trio: install palyra-client[trio], or use aio or blocking" in done.stderr


@pytest.mark.real
def test_each_client_talks_to_a_daemon(tree: Path, tmp_path: Path) -> None:
    """Calls, a stream and a typed error, for asyncio, without a loop, and for trio."""
    with running(tmp_path) as daemon:
        for program, packages in ((ASYNCIO, ""), (BLOCKING, ""), (TRIO, OF_TRIO)):
            done = run_alone(tree, program, packages=packages, home=daemon.home)
            assert not done.stderr
            first, last, module = json.loads(done.stdout)
            assert ("run.accepted", "run.done", "palyra_client.errors") == (
                first,
                last,
                module,
            )
