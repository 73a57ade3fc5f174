"""Settings shared by the tests of actors."""

from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs


# ruff: ignore[pytest-fixture-autouse] - no test of an actor wants its crashes rendered
@pytest.fixture(autouse=True)
def quiet_logs() -> Iterator[None]:
    """Crashes on purpose are not rendered: structlog's default shows each frame with its locals."""
    with capture_logs():
        yield
