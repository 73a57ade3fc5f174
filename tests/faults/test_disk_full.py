"""A full disk under a whole daemon."""

from typing import Any

import pytest

from tests.faults.disk_full import file_limit, run_case, small_disk

pytestmark = [pytest.mark.real]

EX_TEMPFAIL = 75


def on_a_small_disk(*, is_killed: bool) -> dict[str, Any]:
    """Run the case on a small disk; skip the test where mounting is not allowed."""
    try:
        return run_case(small_disk(), is_killed=is_killed)
    except PermissionError:
        pytest.skip("no right to mount a small disk here")


def test_full_file_system() -> None:
    """On a full disk writes are refused, reads work, and freed space ends it without a restart.

    Only the first refusal comes from a daemon that reports itself writable.
    """
    figures = on_a_small_disk(is_killed=False)
    assert figures["acknowledged"] > 3
    assert 1 == figures["refused_while_writable"]


def test_killed_on_a_full_file_system() -> None:
    """A daemon that cannot write exits with 75, and starts when it can."""
    figures = on_a_small_disk(is_killed=True)
    assert EX_TEMPFAIL == figures["start_without_space"]
    assert figures["acknowledged"] > 3


def test_files_that_may_not_grow() -> None:
    """The same where it is the size of a file that is limited."""
    assert run_case(file_limit())["acknowledged"] > 3
