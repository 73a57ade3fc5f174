"""A daemon under load for a long time stays as small and as quick as it was."""

from functools import partial
from pathlib import Path

import pytest
import trio

from tests.faults.soak import soak

pytestmark = [pytest.mark.real, pytest.mark.slow]
MINUTES = 30.0


@pytest.mark.timeout(2_400)
def test_a_daemon_of_fifty_sessions_does_not_grow(tmp_path: Path) -> None:
    """Memory, descriptors, the write-ahead log and the bytes of a run are flat for half an hour."""
    found = trio.run(partial(soak, tmp_path, minutes=MINUTES, sessions=50, seed=1))
    assert [] == found["problems"], found
    assert found["runs"] > 1_000
