"""Marks of the paths and hosts that a call names."""

import pytest

from palyra.core.marks import call_path_marks, host_marks

HOSTS = {
    "": set(),
    "example.org": set(),
    "93.184.216.34": set(),
    "169.254.169.254": {"metadata"},
    "metadata.google.internal.": {"metadata"},
    "fd00:ec2::254": {"metadata"},
    "[fd00:ec2::254]": {"metadata"},
    "127.0.0.1": {"internal"},
    "[::1]": {"internal"},
    "10.1.2.3": {"internal"},
    "0x7f.1": {"odd"},
    "2130706433": {"odd"},
    "a b": {"odd"},
}


@pytest.mark.parametrize("host", HOSTS)
def test_hosts(host: str) -> None:
    """A host is marked by its spelling; what needs a resolver is not."""
    assert HOSTS[host] == host_marks(host)


PATHS: dict[tuple[str, ...], set[str]] = {
    (): set(),
    ("src/a", "b"): set(),
    ("src/a", ".ssh/x"): {"private"},
    ("/etc/x",): {"outside"},
    ("/home/x/.aws/y",): {"outside", "private"},
    ("../.ssh",): {"outside", "private"},
    ("/srv/palyra",): {"outside", "state"},
    ("/srv/./palyra/a", ".git/x"): {"outside", "state", "configuration"},
    ("/srv/palyra2",): {"outside"},
}


@pytest.mark.parametrize("paths", PATHS)
def test_paths(paths: tuple[str, ...]) -> None:
    """The marks of all paths together; the daemon's places are known to it alone."""
    assert PATHS[paths] == call_path_marks(paths, ["/srv/palyra/"])
