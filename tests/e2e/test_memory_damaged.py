"""A real daemon whose MiniLM is damaged."""

from pathlib import Path

import pytest

from palyra.models.minilm import files
from tests.cli.command import palyra
from tests.e2e.daemon_process import DaemonProcess

pytestmark = pytest.mark.real


async def test_a_damaged_embedder_is_a_problem_with_its_remedy(tmp_path: Path) -> None:
    """Status, doctor and log name it; searches use words and say so; the files alone tell the doctor."""
    daemon = DaemonProcess(tmp_path)
    folder = files.folder(daemon.home)
    folder.mkdir(parents=True, mode=0o700)
    (folder / files.WEIGHTS.name).write_bytes(b"cut")
    daemon.start()
    try:
        async with daemon.connect() as client:
            status = await client.status()
            assert status.embedder is not None
            assert ("auto", None) == (status.embedder.configured, status.embedder.in_use)
            (problem,) = [each for each in status.problems if "embedder" in each]
            assert "model.safetensors has 3 bytes" in problem
            await client.add_memory("The staging port is 8080")
            found = await client.search_memories("staging port")
            assert ("lexical", 1) == (found.mode, len(found.hits))
            assert found.degraded
        shown = await palyra("status", home=daemon.home)
        assert "auto fails, searches use words only" in shown.out
        doctor = await palyra("doctor", "--json", home=daemon.home)
        checks = {check["name"]: check for check in doctor.json["checks"]}
        assert ("fail", "fail") == (checks["memory"]["verdict"], checks["daemon"]["verdict"])
        assert "palyra models install minilm" in checks["memory"]["remedy"]
        assert "memory.embedder" in checks["daemon"]["remedy"]
    finally:
        daemon.stop()
    assert "palyra models install minilm" in daemon.said
