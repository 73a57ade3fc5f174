"""`palyra service`: units that systemd accepts, of the installation that prints them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from palyra.cli.service import render_unit
from tests.cli.command import palyra
from tests.optional import needs

pytestmark = pytest.mark.real


def verify(folder: Path, unit: str, *options: str) -> str:
    """What systemd finds wrong with a unit, as to the unit itself."""
    path = folder / "palyra.service"
    path.write_text(unit, "utf-8")
    done = subprocess.run(
        ["systemd-analyze", *options, "verify", "--recursive-errors=no", str(path)],
        capture_output=True, text=True, check=False,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), "XDG_RUNTIME_DIR": str(folder)},
    )  # fmt: skip
    return "\n".join(line for line in done.stderr.splitlines() if "palyra.service" in line)


async def test_the_unit_runs_the_installation_that_prints_it() -> None:
    """ExecStart is the program beside the interpreter; a user's daemon has the home of the commands."""
    beside = Path(sys.executable).with_name("palyra")
    of_machine, of_user = await palyra("service"), await palyra("service", "--user")
    assert (0, 0) == (of_machine.code, of_user.code)
    assert f"\nExecStart={beside} serve --home /var/lib/" in of_machine.out
    assert f"\nExecStart={beside} serve --workspace " in of_user.out
    assert "\nDelegate=yes\n" in of_machine.out


def test_a_path_is_quoted_as_systemd_reads_it() -> None:
    """Blanks are quoted, and specifiers are not expanded."""
    unit = render_unit(Path('/opt/my 100%/"x"/palyra'), is_user=True)
    assert '\nExecStart="/opt/my 100%%/\\"x\\"/palyra" serve ' in unit


@needs("systemd-analyze")
@pytest.mark.parametrize("is_user", [True, False])
def test_systemd_accepts_the_unit(tmp_path: Path, *, is_user: bool) -> None:
    """Every setting is known; the control is a unit with one that is not."""
    unit = render_unit(Path("/bin/true"), is_user=is_user)
    options = ("--user",) if is_user else ()
    assert not verify(tmp_path, unit, *options)
    assert "ProtectEverything" in verify(
        tmp_path, unit.replace("UMask=", "ProtectEverything="), *options
    )


@needs("systemd-analyze")
def test_the_unit_of_the_machine_is_hardened(tmp_path: Path) -> None:
    """Its exposure is what `systemd-analyze` calls OK; without the hardening it is not."""
    path = tmp_path / "palyra.service"

    def is_exposed_less_than(threshold: int, unit: str) -> bool:
        path.write_text(unit, "utf-8")
        done = subprocess.run(
            ["systemd-analyze", "security", "--offline=true", f"--threshold={threshold}", str(path)],
            capture_output=True, check=False,
        )  # fmt: skip
        return done.returncode == 0

    unit = render_unit(Path("/bin/true"), is_user=False)
    assert is_exposed_less_than(40, unit)
    bare = unit.partition("# Hardening")[0] + "[Install]\nWantedBy=multi-user.target\n"
    assert not is_exposed_less_than(40, bare)
