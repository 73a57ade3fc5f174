"""A daemon without numpy, faiss and wasmtime: what works, and what it says about the rest."""

import json
import os
from collections.abc import Generator
from pathlib import Path

import pytest
import trio

from palyra.errors import Unavailable
from tests.e2e.daemon_process import DaemonProcess
from tests.e2e.wire import open_wire
from tests.forked import ForkedProcess, Setting, run_forked
from tests.parts import hide_parts

pytestmark = pytest.mark.real
VECTORS, WASM = "pip install 'palyra[vectors]'", "pip install 'palyra[wasm]'"


class WithoutParts(DaemonProcess):
    """The process."""

    def _begin(self, environment: dict[str, str], streams: tuple[int, int, int]) -> ForkedProcess:
        return ForkedProcess(self.arguments(), Setting(environment, streams, before=hide_parts))


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Generator[WithoutParts]:
    process = WithoutParts(tmp_path_factory.mktemp("daemon"))
    try:
        process.start()
        yield process
    finally:
        process.end()


async def test_the_memory_is_searched_by_words_and_says_so(daemon: WithoutParts) -> None:
    """Items and conversations are found; mode, reason and embedder name the missing part."""
    async with daemon.connect() as client:
        await client.add_memory("The deploy port is 8080", kind="fact")
        found = await client.search_memories("which deploy port?")
        assert ["The deploy port is 8080"] == [hit.text for hit in found.hits]
        status = await client.get_memory_status()
        system = await client.status()
    assert "lexical" == found.mode == status.mode
    assert VECTORS in (found.degraded or "")
    assert status.embedder is not None
    assert ("words", True) == (status.embedder.in_use, VECTORS in status.embedder.reason)
    assert () == system.problems
    assert {VECTORS, WASM} == {each for each in (VECTORS, WASM) if each in "".join(system.absent)}


async def test_a_wanted_part_is_declined_with_its_remedy(daemon: WithoutParts) -> None:
    """The hello does not list it, and `connect` says how to get it."""
    async with open_wire(daemon.port) as wire:
        hello = await wire.named("hello")
        assert ["batch"] == hello["features"]
        reply = await wire.call("connect", token=daemon.token, want=["vectors", "batch"])
    assert ["batch"] == reply["granted"]
    (declined,) = reply["declined"]
    assert ("vectors", True) == (declined["feature"], VECTORS in declined["reason"])


async def test_a_skill_cannot_be_installed(daemon: WithoutParts, tmp_path: Path) -> None:
    """The refusal of a package names the extra, as does the compiler of its text."""
    kept = {"PALYRA_HOME": str(daemon.home), "PATH": os.environ["PATH"]}
    folder, package, key = (str(tmp_path / name) for name in ("hello", "hello.zip", "key"))
    build = ("skills", "build", folder, "--out", package)
    await run_forked(("skills", "init", folder), kept)
    refused = await run_forked(build, kept, before=hide_parts)
    assert (1, True) == (refused.code, WASM.encode() in refused.err)
    await run_forked(build, kept)
    await run_forked(("skills", "sign", package, "--key", key, "--create"), kept)
    async with daemon.connect() as client:
        sha256 = await client.upload_skill(await trio.Path(package).read_bytes())
        with pytest.raises(Unavailable, match="wasmtime is not installed"):
            await client.install_skill(sha256)


async def test_the_doctor_names_the_missing_parts(daemon: WithoutParts) -> None:
    """It warns about the memory and fails for nothing: the parts are a choice."""
    kept = {"PALYRA_HOME": str(daemon.home), "PATH": os.environ["PATH"]}
    done = await run_forked(("doctor", "--json"), kept, before=hide_parts)
    checks = {each["name"]: each for each in json.loads(done.out)["checks"]}
    assert "pip install 'palyra[vectors,wasm]'" == checks["parts"]["remedy"]
    assert "warn" == checks["memory"]["verdict"]
    assert VECTORS in checks["memory"]["detail"]
    assert [] == [name for name, each in checks.items() if each["verdict"] == "fail"]
