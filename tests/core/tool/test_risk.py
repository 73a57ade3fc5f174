"""Risk: at least what the capabilities say, raised by taint."""

import pytest

from palyra.core.tool.spec import Risk, compute_risk, is_sensitive
from tests.core.policy.tool_samples import a_spec
from tests.rows import every_row


@every_row(
    ("own", "capabilities", "plain", "tainted"),
    [
        ("low", (), "low", "low"),
        ("low", ("fs.read",), "low", "low"),
        ("low", ("fs.write",), "medium", "high"),
        ("low", ("network",), "medium", "critical"),
        ("low", ("process",), "high", "critical"),
        ("low", ("fs.read", "secret"), "high", "critical"),
        ("low", ("made.up",), "low", "medium"),
        ("medium", ("fs.read",), "medium", "medium"),
        ("critical", ("fs.write",), "critical", "critical"),
    ],
)
def test_risk(own: Risk, capabilities: tuple[str, ...], plain: Risk, tainted: Risk) -> None:
    """The highest of the tool's own risk and its capabilities', one up under taint."""
    spec = a_spec("probe", risk=own, capabilities=capabilities)
    found = compute_risk(spec, is_tainted=False), compute_risk(spec, is_tainted=True)
    assert (plain, tainted) == found


@every_row(
    ("tool_class", "capabilities"),
    [
        ("read_only_safe", ("fs.reads",)),
        ("read_only_safe", ("fs.read", "network")),
        ("path_scoped", ("fs.read",)),
        ("effect", ()),
    ],
)
def test_sensitive(tool_class: str, capabilities: tuple[str, ...]) -> None:
    """Everything is sensitive that is not known to be mere reading."""
    assert is_sensitive(a_spec("probe", tool_class=tool_class, capabilities=capabilities))


@pytest.mark.parametrize("capabilities", [(), ("fs.read",)])
def test_reading_is_not_sensitive(capabilities: tuple[str, ...]) -> None:
    """A tool that only reads the workspace, or not even that, is harmless."""
    assert not is_sensitive(a_spec("probe", capabilities=capabilities))
