"""Control groups: made with their limits, counted, removed, and swept up after the dead."""

import os
import subprocess

import pytest

from palyra.tools.sandbox.cgroups import ControlGroups, Group, find_control_groups
from palyra.tools.sandbox.command import MIB, CommandLimits

pytestmark = pytest.mark.real


@pytest.fixture
def groups() -> ControlGroups:
    found = find_control_groups()
    if found is None:
        pytest.skip("this process may make no control groups")
    return found


def folders(group: Group) -> list[str]:
    """Where it still is."""
    return [
        group.name
        for folder in set(group._folders.values())
        if group.name in os.listdir(folder)  # noqa: PTH208 - a descriptor
    ]


def test_a_group_bounds_processes_and_says_so(groups: ControlGroups) -> None:
    """The limit that was hit is known afterwards, and the group can be removed."""
    group = groups.make(CommandLimits(processes=4, memory_bytes=64 * MIB))
    try:
        with subprocess.Popen(
            ["/bin/sh", "-c", "read go; for i in 1 2 3 4 5 6; do sleep 0 & done; wait"],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as process:
            group.add([process.pid])
            assert "" == group.find_limit()  # noqa: PLC1901 - a value of three
            process.communicate(b"go")
        assert "processes" == group.find_limit()
    finally:
        group.remove()
    assert [] == folders(group)


def test_the_groups_of_the_dead_are_swept_up(groups: ControlGroups) -> None:
    """Those of a process that is gone; not those of one that lives."""
    mine = groups.make(CommandLimits())
    with subprocess.Popen(["/bin/true"]) as gone:
        pass
    left = groups.find(f"palyra-{gone.pid}-0123abcd")
    left.set_up(CommandLimits())
    try:
        groups.sweep()
        assert [] == folders(left)
        assert folders(mine)
    finally:
        mine.remove()
        left.remove()
