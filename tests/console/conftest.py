"""The console in a real browser, against a real daemon with the scripted model.

One Chromium and one daemon for the tests of a module.  `open_page` opens the console logged in and
fails the test if the page reported an error.
"""

import json
import shutil
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

import pytest

from palyra.client import blocking
from tests.e2e.daemon_process import DaemonProcess, running
from tests.optional import reason_without

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
# Chromium says so for features that only other browsers know.
HARMLESS = ("Permissions-Policy",)
DESK = {"width": 1280, "height": 720}
PHONE = {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def browser() -> Generator["Browser"]:
    """The Chromium of the system.

    Not longer than for a module: Playwright's event loop counts as running in this thread, and tests of
    asyncio could not start one.
    """
    sync = pytest.importorskip("playwright.sync_api", reason=reason_without("playwright"))
    if CHROMIUM is None:
        pytest.skip(reason_without("chromium"))
    with sync.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Generator[DaemonProcess]:
    """A real daemon with the default configuration, but for the rate of requests."""
    with running(tmp_path_factory.mktemp("console")) as process:
        yield process


@pytest.fixture(scope="module")
def operator(daemon: DaemonProcess) -> Generator[blocking.BlockingClient]:
    """A client beside the page."""
    with blocking.connect(daemon.ws_url, token=daemon.token, timeout_s=30) as client:
        yield client


OpenPage = Callable[..., "Page"]


@pytest.fixture
def open_page(browser: "Browser", daemon: DaemonProcess) -> Generator[OpenPage]:
    """Open the console at an address; its errors fail the test."""
    faults: list[str] = []
    allowed = [*HARMLESS]
    contexts = []

    def open_at(
        address: str = "#/now",
        *,
        size: dict[str, int] = DESK,
        scheme: str = "light",
        token: str | None = None,
        prepare: Callable[["Page"], None] | None = None,
        tolerates: tuple[str, ...] = (),
    ) -> "Page":
        allowed.extend(tolerates)
        settings: dict[str, Any] = {"viewport": size, "color_scheme": scheme}
        context = browser.new_context(**settings)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda said: faults.append(said.text) if said.type == "error" else None)
        kept = json.dumps(token or daemon.token)
        page.add_init_script(f"localStorage.setItem('palyra /', {kept})")
        if prepare is not None:
            prepare(page)
        page.goto(f"http://127.0.0.1:{daemon.port}/{address}")
        return page

    yield open_at
    for context in contexts:
        context.close()
    assert [] == [fault for fault in faults if not any(word in fault for word in allowed)]
