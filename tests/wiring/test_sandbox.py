"""The daemon's programs, as the configuration has them."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from palyra.config.sections import SandboxConfig
from palyra.errors import InvalidParams
from palyra.tools.files.workspace import Workspace
from palyra.tools.sandbox.command import Level
from palyra.wiring.sandbox import read_hosts, surroundings_at
from tests.rows import every_row


def test_hosts_have_one_form() -> None:
    """Sorted and once each; a port where it is not one of the two usual ones."""
    found = read_hosts(
        ["PyPI.org", "localhost:9000", "pypi.org.", "pypi.org:443", "bücher.example"]
    )
    assert ("localhost:9000", "pypi.org", "xn--bcher-kva.example") == found
    assert () == read_hosts([])


@every_row("entry", ["", "a b", "https://pypi.org", "u@pypi.org", "127.1", "a:0"])
def test_an_invalid_host_is_refused(entry: str) -> None:
    """An invalid host is refused, and the error names its setting."""
    with pytest.raises(InvalidParams, match=r"sandbox\.hosts"):
        read_hosts([entry])


@pytest.mark.parametrize(
    ("level", "capabilities", "said"),
    [
        ("A", ("process", "network"), "network to example.com"),
        ("B", ("process", "shared_host"), "but at its top; HOME and TMPDIR"),
    ],
)
def test_granted_hosts_follow_from_the_sandbox_level(
    level: Level, capabilities: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    """Without namespaces no configured host is granted, and approvals show it."""
    sandbox: Any = SimpleNamespace(level=level, enforcement=f"{level}:walls")
    opened: Any = lambda *_: None  # noqa: E731 - never called
    around = surroundings_at(
        SandboxConfig(), Workspace(tmp_path), sandbox, open_egress=opened, granted=("example.com",)
    )
    assert (level, capabilities) == (around.level, around.capabilities)
    assert around.profile.startswith(f"{level}:walls; workspace writable")
    assert said in around.profile
    assert (level == "B") == around.profile.endswith("no network")
