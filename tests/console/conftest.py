"""The console in a real browser, against a real daemon with the scripted model.

One daemon for the tests of a module, and one Chromium for all that follow each other.  `open_page` opens
the console logged in and fails the test if the page reported an error.  What is looked at in both themes
and at both widths is slow (`looks`); `test_looks.py` has a look at each screen by default.
"""

import json
import shutil
from collections.abc import Callable, Generator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from palyra.client import blocking
from tests.console.wire import Wire
from tests.e2e.daemon_process import DaemonProcess, running
from tests.optional import reason_without

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
# Chromium says so for features that only other browsers know.
HARMLESS = ("Permissions-Policy",)
DESK = {"width": 1280, "height": 720}
PHONE = {"width": 390, "height": 844}
# What another page has kept is removed, once: a reload keeps what this one did.
BEGIN = """
if (!sessionStorage.getItem("begun")) localStorage.clear();
sessionStorage.setItem("begun", "yes");
localStorage.setItem("palyra /", %s);
"""
LOOKS = {
    "desk-light": (DESK, "light"),
    "phone-dark": (PHONE, "dark"),
    "desk-dark": (DESK, "dark"),
    "phone-light": (PHONE, "light"),
}


def looks(test: Any) -> Any:
    """Run the test in both themes at both widths, by `make console` alone."""
    each = [pytest.param(*look, id=name) for name, look in LOOKS.items()]
    return pytest.mark.slow(pytest.mark.parametrize(("size", "scheme"), each)(test))


class Chromium:
    """The Chromium of the system while it runs, and a profile in it that most pages share."""

    def __init__(self, playwright: Any) -> None:
        self.browser: Browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu", "--process-per-site"]
        )
        self.profile: BrowserContext = self.browser.new_context()
        self.anchor: Page | None = None

    def close(self) -> None:
        """End it with all its pages."""
        self.browser.close()

    def warm(self, port: int) -> None:
        """Keep a page of the console's site open.

        Its process serves the pages after it, with the console's scripts compiled: a new process for
        each page took two thirds of the time of an opening.
        """
        if self.anchor is None:
            self.anchor = self.profile.new_page()
            self.anchor.goto(f"http://127.0.0.1:{port}/healthz")


running_chromium: list[Chromium] = []  # one or none
chromium_end = ExitStack()


@pytest.fixture(scope="module")
def chromium() -> Chromium:
    """The one that runs, or a new one."""
    if not running_chromium:
        sync = pytest.importorskip("playwright.sync_api", reason=reason_without("playwright"))
        if CHROMIUM is None:
            pytest.skip(reason_without("chromium"))
        running_chromium.append(Chromium(chromium_end.enter_context(sync.sync_playwright())))
        chromium_end.callback(lambda: running_chromium.pop().close())
    return running_chromium[0]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, object, object]:
    """End Chromium before a test of another folder.

    Playwright's event loop counts as running in this thread, and tests of asyncio could not start one.
    """
    try:
        return (yield)
    finally:
        if nextitem is None or nextitem.path.parent != item.path.parent:
            chromium_end.close()


@pytest.fixture(scope="module")
def browser(chromium: Chromium) -> "Browser":
    """A browser for profiles of one's own."""
    return chromium.browser


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
def open_page(chromium: Chromium, daemon: DaemonProcess) -> Generator[OpenPage]:
    """Open the console at an address; its errors fail the test.

    A page with a clock of its own has a profile of its own, too.  In the others the last token counts, when
    pages opened earlier connect again.
    """
    faults: list[str] = []
    allowed = [*HARMLESS]
    apart: list[BrowserContext] = []
    opened: list[Page] = []
    chromium.warm(daemon.port)

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
        context = chromium.profile
        if not isinstance(prepare, Wire | None):
            context = chromium.browser.new_context()
            apart.append(context)
        page = context.new_page()
        opened.append(page)
        wanted: Any = size, scheme  # literal types of playwright
        page.set_viewport_size(wanted[0])
        page.emulate_media(color_scheme=wanted[1])
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda said: faults.append(said.text) if said.type == "error" else None)
        page.add_init_script(BEGIN % json.dumps(token or daemon.token))
        if prepare is not None:
            prepare(page)
        page.goto(f"http://127.0.0.1:{daemon.port}/{address}")
        return page

    yield open_at
    for page in opened:
        page.close()
    for context in apart:
        context.close()
    assert [] == [fault for fault in faults if not any(word in fault for word in allowed)]
