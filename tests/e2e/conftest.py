"""One daemon for all tests of a module that do not break it."""

from collections.abc import Generator

import pytest

from tests.e2e.daemon_process import DaemonProcess, running


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Generator[DaemonProcess]:
    """A real daemon with the default configuration, but for the rate of requests."""
    base = tmp_path_factory.mktemp("daemon")
    with running(base) as process:
        yield process
