"""The client for JavaScript in Node, against a real daemon; the scenarios are in the `.mjs` files."""

import json
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from palyra import __version__
from palyra.net.api.methods.table import METHODS
from palyra.net.api.schema import MethodSchema, describe_protocol
from tests.e2e.daemon_process import DaemonProcess
from tests.optional import needs

FOLDER = Path(__file__).parents[2] / "clients/typescript"
SCENARIOS = Path(__file__).with_name("node_client.mjs")
PURE = Path(__file__).with_name("node_subscription.mjs")
NAME = re.compile(r"(?m)^  async (\w+)\(")
LIMIT_S = 120
BY_NAME = """
import { connect, PalyraError } from "palyra-client";
import { childDaemon, localDaemon } from "palyra-client/node";
console.log([connect, PalyraError, childDaemon, localDaemon].map((each) => typeof each).join());
"""


def run(command: list[str], folder: Path | None = None) -> str:
    """Output of a command that ends with 0."""
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert 0 == done.returncode, done.stdout + done.stderr
    return done.stdout


@pytest.mark.real
@needs("node")
def test_each_scenario_passes(daemon: DaemonProcess, tmp_path: Path) -> None:
    """Calls, runs, approvals, lost connections, signals, bounds, and a daemon as a child."""
    paths = [FOLDER, daemon.home, tmp_path, sys.executable]
    said = run(["node", str(SCENARIOS), *map(str, paths)])
    assert NAME.findall(SCENARIOS.read_text("utf-8")) == said.split()


@pytest.mark.real
@needs("node")
def test_a_subscription_loses_and_repeats_nothing() -> None:
    """Gaps, duplicates, discarded events and full buffers, with made-up notifications."""
    said = run(["node", str(PURE), str(FOLDER)])
    assert NAME.findall(PURE.read_text("utf-8")) == said.split()


@pytest.mark.real
@needs("node")
@needs("npm")
def test_the_package_is_usable_by_name(tmp_path: Path) -> None:
    """What `npm pack` makes has both modules, their types, and the licence."""
    run(["npm", "pack", "--pack-destination", str(tmp_path), "--silent"], FOLDER)
    (packed,) = tmp_path.glob("palyra-client-*.tgz")
    with tarfile.open(packed) as archive:
        archive.extractall(tmp_path, filter="data")
    package = tmp_path / "node_modules" / "palyra-client"
    package.parent.mkdir()
    (tmp_path / "package").rename(package)
    assert {"LICENSE", "README.md", "client.d.ts", "node.d.ts", "palyra.d.ts"} <= {
        path.name for path in package.iterdir()
    }
    (tmp_path / "program.mjs").write_text(BY_NAME, "utf-8")
    assert "function,function,function,function" == run(["node", "program.mjs"], tmp_path).strip()


@pytest.mark.real
@needs("node")
def test_an_older_node_is_refused_at_the_import() -> None:
    """The message names the version that is needed and the one that runs."""
    program = (
        'Object.defineProperty(process, "versions", { value: { node: "20.9.0" } });'
        f"await import({json.dumps((FOLDER / 'client.js').as_uri())})"
        ".catch((error) => console.log(error.message));"
    )
    said = run(["node", "--input-type=module", "--eval", program])
    assert "palyra-client needs Node 22 or newer, and this is Node 20.9.0" == said.strip()


def test_its_version_is_the_daemons() -> None:
    """In the package and in what the client says of itself."""
    package = json.loads((FOLDER / "package.json").read_text("utf-8"))
    assert __version__ == package["version"]
    assert f'export const VERSION = "{__version__}";' in (FOLDER / "client.js").read_text("utf-8")


def test_every_method_with_a_key_gets_one() -> None:
    """A mutation that is not listed would not be sent again after a lost connection."""
    text = (FOLDER / "client.js").read_text("utf-8")
    listed = re.search(r"const KEYED = new Set\(\[\n(.*?)\]\);", text, re.DOTALL)
    assert listed is not None
    described = describe_protocol(METHODS)

    def takes_key(method: MethodSchema) -> bool:
        name = method.params.get("$ref", "").rpartition("/")[2]
        params = described.schemas[name] if name else method.params
        return "idempotency_key" in params.get("properties", {})

    keyed = [name for name, method in described.methods.items() if takes_key(method)]
    assert "".join(f'  "{name}",\n' for name in keyed) == listed[1]
