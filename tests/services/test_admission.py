"""Suspension: new runs are refused until somebody resumes, whatever happens to the process."""

from pathlib import Path

import pytest

from palyra.core.journal.records import Role
from palyra.core.suspension import Suspension
from palyra.errors import Forbidden, Suspended, Unavailable
from palyra.services.upkeep.admission import Admission
from palyra.store.files.suspension import FILE_NAME, SuspensionFile
from tests.services.memory_kit import caller
from tests.tools.web.internet import here

ROOT = caller("root", "operator")
SINCE_MS = 1_767_225_600_000


def open_admission(data: Path) -> Admission:
    """The admission of a daemon that has just started."""
    return Admission(SuspensionFile(data), lambda: SINCE_MS, here)


async def test_a_suspension_survives_a_restart_and_ends_with_resume(tmp_path: Path) -> None:
    """The refusal names the operator, the time and the reason; after the end there is no trace."""
    admission = open_admission(tmp_path)
    admission.check()  # the control: nothing is suspended
    await admission.suspend(ROOT, "upgrade")
    again = open_admission(tmp_path)
    with pytest.raises(Suspended, match=r"by root since 2026-01-01 00:00:00 UTC: upgrade"):
        again.check()
    woken: list[bool] = []
    again.on_resumed = lambda: woken.append(True)
    await again.resume(ROOT)
    again.check()
    open_admission(tmp_path).check()
    assert [True] == woken


async def test_the_first_suspension_stays(tmp_path: Path) -> None:
    """A second one changes neither operator nor reason; a second resume ends nothing."""
    admission = open_admission(tmp_path)
    first = await admission.suspend(ROOT, "upgrade")
    assert first == await admission.suspend(caller("eve", "operator"), "other")
    assert first == await admission.resume(ROOT)
    assert await admission.resume(ROOT) is None


@pytest.mark.parametrize("role", ["client", "person", "approver", "observer"])
async def test_only_operators_suspend_and_resume(tmp_path: Path, role: Role) -> None:
    """Others are refused, and nothing changes."""
    admission = open_admission(tmp_path)
    with pytest.raises(Forbidden):
        await admission.suspend(caller("ann", role), "")
    admission.check()
    await admission.suspend(ROOT, "")
    with pytest.raises(Forbidden):
        await admission.resume(caller("ann", role))
    with pytest.raises(Suspended):
        admission.check()


async def test_a_damaged_file_is_a_suspension(tmp_path: Path) -> None:
    """Fail closed: whoever suspended the daemon is not overruled by a disk; resume repairs it."""
    await open_admission(tmp_path).suspend(ROOT, "")
    (tmp_path / FILE_NAME).write_bytes(b"{")
    admission = open_admission(tmp_path)
    with pytest.raises(Suspended, match="is damaged"):
        admission.check()
    await admission.resume(ROOT)
    open_admission(tmp_path).check()


async def test_what_cannot_be_stored_holds_until_the_end(tmp_path: Path) -> None:
    """A full disk is an error for the operator and no reason to take runs."""
    admission = open_admission(tmp_path / "missing")
    with pytest.raises(Unavailable):
        await admission.suspend(ROOT, "")
    with pytest.raises(Suspended):
        admission.check()


def test_without_a_reason_none_is_named() -> None:
    """The phrase ends with the time."""
    assert "suspended by ann since 1970-01-01 00:00:00 UTC" == (
        Suspension(by="ann", since_ms=0).describe()
    )
