"""Artifacts that were changed on the disk."""

import hashlib
from pathlib import Path

import pytest

from palyra.core.tool.artifacts import Artifact
from palyra.errors import Unavailable
from palyra.store.files.artifacts import FileArtifacts
from palyra.store.files.retention import FolderBounds

pytestmark = pytest.mark.real

SESSION = "ses_01890000-0000-7000-8000-000000000001"
DATA = b"a long output"
DIGEST = hashlib.sha256(DATA).hexdigest()


@pytest.fixture
def artifacts(tmp_path: Path) -> FileArtifacts:
    """A store with one artifact."""
    store = FileArtifacts(tmp_path, FolderBounds(1_000_000, 1_000_000, lambda: 0))
    artifact = Artifact(
        artifact=DIGEST,
        session_id=SESSION,
        run_id="run_1",
        call_id="call_1",
        tool="shell",
        size_bytes=len(DATA),
        created_ms=0,
        trust="trusted_local",
    )
    store.put(artifact, DATA)
    return store


@pytest.mark.parametrize("at", [0, 5, -1])
@pytest.mark.parametrize("look", ["read", "sample"])
def test_each_flipped_byte_is_found(
    artifacts: FileArtifacts, tmp_path: Path, at: int, look: str
) -> None:
    """In the description as in the content, by a read as by a sample; an intact one is not named."""
    artifacts.check_sample(9)
    assert artifacts.find(SESSION, DIGEST[:12]) is not None
    assert not artifacts.damaged
    path = tmp_path / SESSION / DIGEST
    content = bytearray(path.read_bytes())
    content[at] ^= 0x80
    path.write_bytes(content)
    if look == "read":
        with pytest.raises(Unavailable, match="from a backup"):
            artifacts.find(SESSION, DIGEST[:12])
    else:
        artifacts.check_sample(9)
    assert {DIGEST: str(path)} == artifacts.damaged


def test_a_deleted_artifact_is_not_damaged(artifacts: FileArtifacts, tmp_path: Path) -> None:
    """Deleting is what retention does."""
    (tmp_path / SESSION / DIGEST).unlink()
    artifacts.check_sample(9)
    assert artifacts.find(SESSION, DIGEST) is None
    assert not artifacts.damaged


def test_a_folder_that_cannot_be_listed_has_no_sample(
    artifacts: FileArtifacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sample is taken the next time; a listing says what is wrong."""

    def refuse(_path: Path) -> list[str]:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("os.listdir", refuse)
    artifacts.check_sample(9)
    assert not artifacts.damaged
