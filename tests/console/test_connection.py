"""The lamp: what the page says and refuses while the daemon is gone, and after it is another one."""

import signal
from collections.abc import Generator
from typing import TYPE_CHECKING

import pytest

from tests.console.conftest import OpenPage
from tests.console.hands import expect
from tests.console.wire import Wire
from tests.e2e.daemon_process import DaemonProcess, running

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Generator[DaemonProcess]:
    """A daemon of this module: the last test kills it."""
    with running(tmp_path_factory.mktemp("lamp")) as process:
        yield process


def hold_back(page: "Page", screen: str) -> "list[Route]":
    """Leave requests for the file of a screen without an answer; these requests."""
    asked: list[Route] = []

    def keep(route: "Route") -> None:
        asked.append(route)

    page.route(f"**/screens/{screen}.js", keep)
    return asked


def test_a_screen_that_is_first_opened_without_the_daemon(open_page: OpenPage) -> None:
    """Bars while nothing answers, then words; it opens by itself once the page has connected again."""
    wire = Wire()
    page = open_page("#/runs", prepare=wire, tolerates=("Failed to load resource",))
    asked = hold_back(page, "usage")
    expect(page.get_by_text("No run yet")).to_be_visible()
    page.keyboard.press("g")
    page.keyboard.press("u")
    expect(page.get_by_role("img", name="loading")).to_be_visible()
    page.keyboard.press("PageDown")  # a key of the screen that was left

    wire.hold()
    wire.drop()
    expect(page.locator(".lamp")).to_contain_text("stale since")
    asked.pop().abort()
    expect(page.get_by_text("The daemon does not answer.")).to_be_visible()
    page.unroute("**/screens/usage.js")
    wire.release()
    expect(page.get_by_role("heading", name="Usage")).to_be_visible()


def test_a_screen_that_was_left_before_it_came(open_page: OpenPage) -> None:
    """Its failure is not shown on the screen that a person went to instead."""
    page = open_page("#/runs", tolerates=("Failed to load resource",))
    asked = hold_back(page, "tasks")
    page.keyboard.press("g")
    page.keyboard.press("t")
    expect(page.get_by_role("img", name="loading")).to_be_visible()
    page.keyboard.press("g")
    page.keyboard.press("n")
    heading = page.get_by_role("heading", level=1)
    expect(heading).to_have_text("Nothing waits and nothing is wrong.")
    with page.expect_event("requestfailed"):
        asked.pop().abort()
    page.evaluate("new Promise((done) => setTimeout(done))")
    expect(heading).to_have_text("Nothing waits and nothing is wrong.")


def test_a_page_without_a_login(open_page: OpenPage) -> None:
    """It says what makes one; a token that the daemon does not know says so, too."""
    page = open_page("#/now", token="pal_unknown")
    expect(page.get_by_role("heading", name="This page needs a login link")).to_be_visible()
    expect(page.get_by_role("alert").filter(has_text="token")).to_be_visible()


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
