"""The embedder of the memory: chosen by the configuration and the files of MiniLM, and named."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from palyra.config.load import Config
from palyra.config.paths import Paths
from palyra.config.sections import MemoryConfig
from palyra.errors import Unavailable
from palyra.models.minilm import files
from palyra.wiring.host import Host
from palyra.wiring.runs import build_memory_embedder, view_embedder
from tests.services.memory_kit import run_inline

MINILM, INSTALL = "minilm/all-MiniLM-L6-v2", "palyra models install minilm"
WITHOUT_PROVIDER: Any = SimpleNamespace(memory=None)


def build(home: Path, wanted: str) -> Any:
    config = Config(
        paths=Paths(config_file=home / "palyra.toml", data_dir=home),
        memory=MemoryConfig(embedder=wanted),
    )
    host = Host(run_blocking=run_inline)
    return build_memory_embedder(config, host, WITHOUT_PROVIDER, SimpleNamespace())  # type: ignore[arg-type]


def write_files(home: Path, *sizes: int | None) -> None:
    files.folder(home).mkdir(parents=True, exist_ok=True)
    for file, size in zip(files.FILES, sizes, strict=True):
        if size is not None:
            with (files.folder(home) / file.name).open("wb") as written:
                written.truncate(size)


@pytest.mark.parametrize(
    ("wanted", "sizes", "in_use", "reason"),
    [
        ("auto", (None, None), "hashed", INSTALL),
        ("hashed", (10, None), "hashed", ""),
        ("minilm", (None, None), None, "does not exist"),
        ("auto", (None, files.VOCABULARY.size), None, "model.safetensors does not exist"),
        ("auto", (files.WEIGHTS.size, 0), None, "vocab.txt has 0 bytes instead of"),
        ("minilm", (files.WEIGHTS.size - 1, files.VOCABULARY.size), None, "model.safetensors has"),
        ("auto", (files.WEIGHTS.size, files.VOCABULARY.size), "minilm", ""),
    ],
)
def test_the_embedder_in_use_is_named(
    tmp_path: Path,
    wanted: str,
    sizes: tuple[int | None, int | None],
    in_use: str | None,
    reason: str,
) -> None:
    """A damaged MiniLM is not replaced; each difference from what is wanted has its reason."""
    write_files(tmp_path, *sizes)
    embedder = build(tmp_path, wanted)
    view = view_embedder(wanted, embedder)
    assert (wanted, in_use) == (view.configured, view.in_use)
    assert reason in view.reason
    assert bool(reason) == bool(view.reason)
    if in_use is None:
        assert INSTALL in view.reason
        assert MINILM == embedder.name


async def test_other_bytes_are_named_once_they_are_read(tmp_path: Path) -> None:
    """Files of the right size and other bytes fail with the first text, and the reason is kept."""
    write_files(tmp_path, files.WEIGHTS.size, files.VOCABULARY.size)
    embedder = build(tmp_path, "auto")
    with pytest.raises(Unavailable):
        await embedder.embed_question("ann", ["boat"])
    view = view_embedder("auto", embedder)
    assert view.in_use is None
    assert "another SHA-256" in view.reason
