"""One daemon for all tests of a module that do not break it."""

from collections.abc import Generator

import pytest

for helper in ("daemon_process", "people", "tapes", "wire"):
    pytest.register_assert_rewrite(f"tests.e2e.{helper}")  # a failed check says what it saw

from tests.e2e.daemon_process import DaemonProcess, running  # noqa: E402 - after the line above


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Generator[DaemonProcess]:
    """A real daemon with the default configuration, but for the rate of requests."""
    base = tmp_path_factory.mktemp("daemon")
    with running(base, PALYRA_SERVER__REQUESTS_PER_S="100000") as process:
        yield process
