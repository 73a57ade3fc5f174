"""The daemon's programs, as the configuration has them."""

import pytest

from palyra.errors import InvalidParams
from palyra.processset import read_hosts


def test_hosts_have_one_form() -> None:
    """Sorted and once each; a port where it is not one of the two usual ones."""
    found = read_hosts(
        ["PyPI.org", "localhost:9000", "pypi.org.", "pypi.org:443", "bücher.example"]
    )
    assert ("localhost:9000", "pypi.org", "xn--bcher-kva.example") == found
    assert () == read_hosts([])


@pytest.mark.parametrize("entry", ["", "a b", "https://pypi.org", "u@pypi.org", "127.1", "a:0"])
def test_what_is_no_host_is_refused(entry: str) -> None:
    """With the setting it stands in."""
    with pytest.raises(InvalidParams, match=r"sandbox\.hosts"):
        read_hosts([entry])
