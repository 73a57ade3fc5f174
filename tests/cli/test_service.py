"""`palyra service`: units that systemd accepts, of the installation that prints them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from palyra.cli.host.service import (
    READ,
    SEARCH,
    WRITE,
    Account,
    find_faults,
    read_settings,
    render_unit,
)
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
    of_user = await palyra("service", "--user")
    of_machine = render_unit(beside, is_user=False)
    assert 0 == of_user.code
    assert f"\nExecStart={beside} serve --workspace " in of_user.out
    assert f"\nExecStart={beside} serve --home /var/lib/" in of_machine
    assert "\nDelegate=yes\n" in of_machine


async def test_a_unit_that_could_not_start_is_refused() -> None:
    """Its own PrivateTmp hides the workspace; what is missing is named with a remedy."""
    refused = await palyra("service", "--workspace", "/tmp")  # noqa: S108 - nothing is written there
    assert (1, "") == (refused.code, refused.out)
    assert "hides" in refused.err
    assert "remedy: " in refused.err


SETTINGS = read_settings(render_unit(Path("/bin/true"), is_user=False))
OWN = Account(os.getuid(), frozenset())
STRANGER = Account(65_432, frozenset())


@pytest.mark.parametrize(
    ("path", "setting"),
    [
        ("/home/ann/venv/bin/palyra", "ProtectHome"),
        ("/root/.local/bin/palyra", "ProtectHome"),
        ("/run/user/1000/palyra", "ProtectHome"),
        ("/tmp/venv/bin/palyra", "PrivateTmp"),  # noqa: S108 - as above
        ("/var/tmp/venv", "PrivateTmp"),  # noqa: S108 - as above
        ("/dev/shm/venv", "PrivateDevices"),  # noqa: S108 - as above
    ],
)
def test_hidden_paths_are_faults(path: str, setting: str) -> None:
    """Each protection of the unit is compared with each path; a unit without it has no such fault."""
    (fault,) = find_faults(SETTINGS, [Path(path)], OWN, 0)
    assert f"{setting}=yes hides {path}" == fault
    bare = {name: value for name, value in SETTINGS.items() if name != setting}
    assert not [each for each in find_faults(bare, [Path(path)], OWN, 0) if "hides" in each]


def test_a_link_is_followed(tmp_path: Path) -> None:
    """An environment outside of the homes with a Python from a home cannot start."""
    link = tmp_path / "python"
    link.symlink_to("/home/ann/python/bin/python3")
    faults = [*find_faults({"ProtectHome": "yes"}, [link], OWN, READ)]
    assert "ProtectHome=yes hides /home/ann/python/bin/python3" in faults


def test_permissions_of_the_unit_s_user_are_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder that stops the user is named; the owner, a group and everybody have their own bits."""
    program = tmp_path / "opt" / "palyra"
    program.parent.mkdir()
    program.touch(0o755)
    group = Account(65_432, frozenset({program.stat().st_gid}))
    look = Path.stat

    def open_above(path: Path) -> os.stat_result:
        """Tests have a folder of their own, which is closed to others."""
        return look(path if path.is_relative_to(program.parent) else Path("/"))

    monkeypatch.setattr(Path, "stat", open_above)

    def faults(account: Account, bits: int) -> list[str]:
        return [*find_faults({"User": "palyra"}, [program], account, bits)]

    assert [] == faults(STRANGER, READ | SEARCH)
    assert [f"palyra may not use {program}"] == faults(STRANGER, WRITE)
    program.parent.chmod(0o710)
    assert [f"palyra may not use {program.parent}"] == faults(STRANGER, READ)
    assert [] == faults(group, READ)
    assert [] == faults(OWN, READ | WRITE)
    program.unlink()
    assert [f"palyra may not use {program}"] == faults(group, READ)


def test_the_unit_may_write_to_what_it_names() -> None:
    """Its data are below its StateDirectory; another workspace has ReadWritePaths."""
    name, home, workspace = (
        SETTINGS["StateDirectory"].split()[0],
        *SETTINGS["ExecStart"].split()[3::2],
    )
    assert all(Path(each).is_relative_to(f"/var/lib/{name}") for each in (home, workspace))
    named = render_unit(Path("/bin/true"), Path("/srv/my $5 100%"), is_user=False)
    assert '\nReadWritePaths="/srv/my $5 100%%"\n' in named
    assert '--workspace "/srv/my $$5 100%%"\n' in named


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
