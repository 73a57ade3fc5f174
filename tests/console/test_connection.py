"""The lamp: what the page says and refuses while the daemon is gone, and after it is another one."""

import signal
from collections.abc import Generator
from typing import Any

import pytest

from tests.console.conftest import OpenPage
from tests.e2e.daemon_process import DaemonProcess, running

expect: Any = pytest.importorskip("playwright.sync_api").expect


@pytest.fixture
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Generator[DaemonProcess]:
    """A daemon of its own: it is stopped here."""
    with running(tmp_path_factory.mktemp("lamp")) as process:
        yield process


def test_a_daemon_that_hangs_up(open_page: OpenPage, daemon: DaemonProcess) -> None:
    """Live, then stale with the time, with answers refused; what was known stays in view."""
    page = open_page("#/now", tolerates=("WebSocket connection",))
    lamp = page.locator(".lamp")
    heading = page.get_by_role("heading", level=1)
    expect(lamp).to_contain_text("live")
    expect(heading).to_have_text("Nothing waits and nothing is wrong.")
    daemon.signal(signal.SIGKILL)
    daemon.wait()
    expect(lamp).to_contain_text("stale since")
    expect(page.get_by_text("until then nothing can be answered")).to_be_visible()
    expect(heading).to_have_text("Nothing waits and nothing is wrong.")
    expect(page.locator(".now.dim")).to_be_visible()


def test_a_page_without_a_login(open_page: OpenPage) -> None:
    """It says what makes one; a token that the daemon does not know says so, too."""
    page = open_page("#/now", token="pal_unknown")
    expect(page.get_by_role("heading", name="This page needs a login link")).to_be_visible()
    expect(page.get_by_role("alert").filter(has_text="token")).to_be_visible()
