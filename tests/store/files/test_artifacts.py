"""Artifacts that were changed on the disk."""

import hashlib
import os
from functools import partial
from pathlib import Path

import pytest

from palyra.core.tool.artifacts import Artifact
from palyra.errors import Unavailable
from palyra.store.files.artifacts import FileArtifacts
from palyra.store.files.retention import EVICTED, FolderBounds

pytestmark = pytest.mark.real

DAY_MS = 86_400_000
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
    assert {DIGEST: (str(path), "damaged on the disk")} == artifacts.damaged


def test_a_deleted_artifact_is_not_damaged(artifacts: FileArtifacts, tmp_path: Path) -> None:
    """To a sample; a read asks the tapes."""
    (tmp_path / SESSION / DIGEST).unlink()
    artifacts.check_sample(9)
    assert artifacts.find(SESSION, DIGEST) is None
    assert not artifacts.damaged


@pytest.mark.parametrize("name", [DIGEST, DIGEST[:16]])
def test_the_absence_of_an_artifact_is_explained(tmp_path: Path, name: str) -> None:
    """It expired, made room, is missing, or never was; only a missing one is damage."""
    now_ms = 40 * DAY_MS
    tapes: dict[str, tuple[str, int]] = {}
    bounds = FolderBounds(1_000, 30 * DAY_MS, lambda: now_ms)
    store = FileArtifacts(tmp_path, bounds, lambda session, _name: tapes.get(session))
    explain = partial(store.explain_absence, SESSION, name)
    assert f"the session has no artifact {name!r}" == explain()
    tapes[SESSION] = DIGEST, 9 * DAY_MS
    assert f"the artifact {DIGEST} expired on 1970-02-09 by retention" in explain()
    assert not store.damaged
    tapes[SESSION] = DIGEST, now_ms
    path = tmp_path / SESSION / DIGEST
    assert (
        f"the file of the artifact {DIGEST} is missing: restore {path} from a backup" == explain()
    )
    assert {DIGEST: (str(path), "missing")} == store.damaged
    assert "no artifact" in store.explain_absence("ses_1", name)


@pytest.mark.parametrize(
    ("bounds", "why"),
    [
        ((0, DAY_MS), "expired on 1970-01-11 by retention (retention.artifacts_days)"),
        ((9, 0), "made room on 1970-01-11 by retention (retention.artifacts_mib)"),
    ],
)
def test_a_sweep_is_remembered(
    artifacts: FileArtifacts, tmp_path: Path, bounds: tuple[int, int], why: str
) -> None:
    """With its day and its bound, until the session is removed; the list is no artifact."""
    os.utime(tmp_path / SESSION / DIGEST, (0, 0))
    store = FileArtifacts(tmp_path, FolderBounds(*bounds, lambda: 10 * DAY_MS))
    assert 1 == store.sweep(is_dry=True).files
    assert f"the session has no artifact {DIGEST!r}" == store.explain_absence(SESSION, DIGEST)
    assert 1 == store.sweep().files
    assert why in store.explain_absence(SESSION, DIGEST[:16])
    assert (0, None) == (store.count_session(SESSION), store.find(SESSION, ""))
    with (tmp_path / SESSION / EVICTED).open("ab") as file:
        file.write(b"\xff\n1 2\n1 2 3 4\na b days\n")
    assert why in store.explain_absence(SESSION, DIGEST)
    assert 0 == store.sweep().files
    assert 0 == store.drop_session(SESSION)
    assert not (tmp_path / SESSION).exists()


def test_a_folder_that_cannot_be_listed_has_no_sample(
    artifacts: FileArtifacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sample is taken the next time; a listing says what is wrong."""

    def refuse(_path: Path) -> list[str]:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("os.listdir", refuse)
    artifacts.check_sample(9)
    assert not artifacts.damaged
