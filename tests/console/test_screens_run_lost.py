"""A run on the screen while connections and the daemon are lost: nothing is missing, nothing is there twice."""

import random
import socket
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from palyra.client import blocking
from tests.console.conftest import OpenPage
from tests.console.hands import expect
from tests.console.wire import Wire
from tests.e2e.daemon_process import DaemonProcess

if TYPE_CHECKING:
    from playwright.sync_api import Page


DISCONNECTS = 20
TURNS = 300  # more than there is time for: the test ends the run


class SamePort(DaemonProcess):
    """A daemon whose later lives are found where the first one was."""

    def __init__(self, base: Path) -> None:
        super().__init__(base)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.fixed = free.getsockname()[1]

    def arguments(self) -> list[str]:
        """The arguments of `palyra`."""
        *rest, _, workspace, folder = super().arguments()
        return [*rest, str(self.fixed), workspace, folder]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Generator[DaemonProcess]:
    """A daemon of this module: the last test kills it."""
    process = SamePort(tmp_path_factory.mktemp("lost"))
    try:
        process.start()
        yield process
    finally:
        process.end()


def shown(page: "Page") -> list[tuple[int, str]]:
    """Seq and kind of all rows of the raw view, from top to bottom."""
    tape = page.get_by_role("listbox", name="Events")
    found: dict[int, str] = {}
    length = 1
    while len(found) < length:
        page.wait_for_function(SCROLLED_TO, arg=len(found))
        rows = tape.locator("[role=option]")
        length = int(rows.first.get_attribute("aria-setsize") or 0)
        for key, kind in rows.evaluate_all(ROWS):
            assert found.setdefault(key, kind) == kind
    return sorted(found.items())


SCROLLED_TO = """(seq) => {
    const list = document.querySelector("tape-list");
    const isThere = list.querySelector(`#row-${seq}`) && !list.querySelector(".waiting");
    if (!isThere) list.scrollTo(0, 28 * seq);
    return isThere;
}"""
ROWS = (
    "(rows) => rows.map((row) => [Number(row.dataset.key), row.querySelector('.kind').textContent])"
)


def taped(operator: blocking.BlockingClient, run_id: str) -> list[tuple[int, str]]:
    """The same of the tape."""
    found: list[tuple[int, str]] = []
    after: int | None = -1
    while after is not None:
        page = operator.read_tape(run_id, after, limit=1_000)
        found += [(event.seq, event.kind) for event in page.events]
        after = page.next_after_seq
    return found


@pytest.mark.slow
def test_disconnects_lose_and_double_nothing(
    open_page: OpenPage, operator: blocking.BlockingClient, daemon: DaemonProcess
) -> None:
    """After disconnects at random events the page has each event of the tape once."""
    chance = random.Random(20)
    wire = Wire()

    def prepare(page: "Page") -> None:
        page.clock.install()
        wire(page)

    turns = ""
    for at in range(TURNS):  # each another call: the same one again would be a loop
        (daemon.workspace / f"d{at}").mkdir(exist_ok=True)
        turns += f'/delay 60\n/say a b c\n/call list_dir {{"path": "d{at}"}}\n/then\n'
    run = operator.start_run(f"Work\n{turns}/say Done.")
    page = open_page(f"#/run/{run.run_id}?view=raw", prepare=prepare, tolerates=("WebSocket is",))
    last = page.locator("[role=option]").last
    lamp = page.locator(".lamp")
    for _ in range(DISCONNECTS):
        expect(lamp).to_contain_text("live")
        seen = int(last.get_attribute("data-key") or 0)
        page.wait_for_function(
            "(seq) => document.querySelector('tape-list').rows.length > seq",
            arg=seen + chance.randrange(4),
        )
        page.clock.fast_forward(6_000)  # a connection that lasted: the next one is tried at once
        wire.drop()
        expect(lamp).not_to_contain_text("live")
        page.clock.run_for(1_000)
    assert operator.get_run(run.run_id).state == "in_progress"
    operator.cancel(run.run_id)
    expect(page.locator(".compose")).to_contain_text("Cancelled")
    page.keyboard.press("Home")
    assert taped(operator, run.run_id) == shown(page)


def test_a_killed_daemon(open_page: OpenPage, daemon: DaemonProcess) -> None:
    """Killed in the middle of a stream and started again, the page shows what the tape has."""
    with blocking.connect(daemon.ws_url, token=daemon.token, timeout_s=30) as operator:
        run = operator.start_run(
            "Stream\n/call list_dir {}\n/then\n/delay 20 1\n/tokens 400\n/say Done."
        )
    page = open_page(f"#/run/{run.run_id}", tolerates=("WebSocket connection",))
    expect(page.locator("live-text").first).to_contain_text("a b c")
    daemon.kill()
    expect(page.locator(".lamp")).to_contain_text("stale since")
    daemon.start()
    with blocking.connect(daemon.ws_url, token=daemon.token, timeout_s=60) as operator:
        assert operator.wait_run(run.run_id).state == "done"
        expect(page.locator(".compose")).to_contain_text("Done", timeout=30_000)
        expect(page.locator("live-text")).to_have_count(0)
        page.keyboard.press("v")
        page.keyboard.press("v")
        page.keyboard.press("Home")
        assert taped(operator, run.run_id) == shown(page)
