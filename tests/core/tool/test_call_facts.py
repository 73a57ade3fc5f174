"""Marks of the paths and hosts that a call names."""

from palyra.core.tool.hosts import host_marks
from palyra.core.tool.paths import call_path_marks, read_paths
from tests.rows import every_row

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


@every_row("host", HOSTS)
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
    ("//srv/palyra",): {"outside", "state"},
    ("/opt", "/srv/palyra/a", "/x"): {"outside", "state"},
    ("a/../.git/x",): {"outside"},
}


@every_row("paths", PATHS)
def test_paths(paths: tuple[str, ...]) -> None:
    """The marks of all paths together; the daemon's places are known to it alone."""
    assert PATHS[paths] == call_path_marks(read_paths(paths), ["/srv/palyra/"])


def test_paths_are_read_once() -> None:
    """Inside are the normal ones, each once; one path alone is told as such."""
    facts = read_paths(("b", "./a", "a", "/etc", "b/"))
    assert ("a", "b") == facts.inside
    assert facts.single is None
    assert read_paths(("./a",)).single == "a"
    assert read_paths(("/a",)).single is None
