"""A long tape on the screen of a run: what is not in sight is neither read nor in the document."""

from collections.abc import Generator

import pytest

from palyra.client import blocking
from tests.console.conftest import OpenPage
from tests.console.hands import expect
from tests.console.long_tape import FAILURES_EVERY, NEEDLE, NEEDLE_TURN, RUN, fill
from tests.console.wire import Wire
from tests.e2e.daemon_process import DaemonProcess

pytestmark = pytest.mark.slow  # the tape alone takes ten seconds to write
LENGTH = 100_000
MOST_ROWS = 80
MOST_READS = 4  # a view lies on two of the 500 pages; a frame may show one more view on the way
FIRST_FAILURE = 2 + 7 * (FAILURES_EVERY - 1) + 5
NEEDLE_SEQ = 2 + 7 * (NEEDLE_TURN - 1) + 1


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Generator[DaemonProcess]:
    """A daemon whose journal has the long tape."""
    process = DaemonProcess(tmp_path_factory.mktemp("long"))
    process.home.mkdir(parents=True, exist_ok=True)
    fill(process.home, LENGTH)
    try:
        process.start()
        yield process
    finally:
        process.end()


def test_a_tape_of_100_000_events(open_page: OpenPage, operator: blocking.BlockingClient) -> None:
    """It opens with two pages and the outline; end, jump, failure and search read what they show."""
    assert operator.get_run(RUN).head_seq == LENGTH - 1
    wire = Wire()
    page = open_page(f"#/run/{RUN}?view=raw", prepare=wire)
    rows = page.get_by_role("option")
    expect(page.locator("#row-0")).to_contain_text("run.accepted")
    expect(page.locator(".waiting")).to_have_count(0)
    assert len(wire.params_of("tape.read")) <= 3
    assert rows.count() <= MOST_ROWS

    def shows(seq: int, text: str) -> None:
        """Check the row, and that little was read for it."""
        before = len(wire.params_of("tape.read"))
        chosen = page.locator(f"#row-{seq}")
        expect(chosen).to_be_in_viewport()
        expect(chosen).to_contain_text(text)
        assert len(wire.params_of("tape.read")) - before <= MOST_READS
        assert rows.count() <= MOST_ROWS

    page.keyboard.press("End")
    shows(LENGTH - 1, "run.done")
    page.keyboard.press(":")
    page.keyboard.type("50000")
    page.keyboard.press("Enter")
    shows(50_000, str(50_000))
    page.keyboard.press("Home")
    shows(0, "run.accepted")
    page.keyboard.press("e")
    shows(FIRST_FAILURE, "failed")
    expect(page.get_by_role("complementary", name="Inspector")).to_contain_text("read_file")
    page.keyboard.press("/")
    page.keyboard.type(NEEDLE)
    page.keyboard.press("Enter")
    shows(NEEDLE_SEQ, NEEDLE)
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page.get_by_role("listbox", name="Events")).to_be_visible()
    shows(NEEDLE_SEQ, "turn.completed")
    page.keyboard.press("v")  # the story
    expect(page.get_by_role("listbox", name="Story")).to_be_visible()
    shows(NEEDLE_SEQ, NEEDLE)


def test_scrolling_through_keeps_the_place(open_page: OpenPage) -> None:
    """Rows that turn out higher than expected do not move the one at the top of the story."""
    page = open_page(f"#/run/{RUN}/seq/{NEEDLE_SEQ}")
    chosen = page.locator(f"#row-{NEEDLE_SEQ}")
    expect(chosen).to_contain_text(NEEDLE)
    expect(chosen).to_be_in_viewport()
    tape = page.locator("tape-list")
    for _ in range(6):
        tape.evaluate("(list) => list.scrollBy(0, -list.clientHeight)")
        page.evaluate(FRAMES)
        expect(page.locator(".waiting")).to_have_count(0)
        top = tape.evaluate(TOP_ROW)
        page.evaluate(FRAMES)
        assert top == tape.evaluate(TOP_ROW)
    assert page.get_by_role("option").count() <= MOST_ROWS


FRAMES = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
TOP_ROW = """(list) => {
    const top = list.getBoundingClientRect().top;
    const row = [...list.querySelectorAll("[role=option]")].find((each) => each.getBoundingClientRect().bottom > top + 1);
    return [row.id, Math.round(row.getBoundingClientRect().top - top)];
}"""
