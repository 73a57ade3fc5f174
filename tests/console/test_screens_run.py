"""The screen of a run: watched, steered and ended, searched, forked and undone, by keyboard alone."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palyra.cli.tape import is_signed
from palyra.client import blocking
from palyra.core.tape.export import verify_export
from tests.console.conftest import DESK, OpenPage, looks
from tests.console.hands import check_access, expect

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.e2e.daemon_process import DaemonProcess


LIVE = "Stream\n/say begin\n/call list_dir {}\n/then\n/delay 40\n/tokens 20000"
HOSTILE = "Pay <img src=x onerror=alert(1)> Rechnung\u202efdp.exe"


def write(path: str, content: str) -> str:
    """A call that writes a file."""
    return f"/call write_file {json.dumps({'path': path, 'content': content})}"


def finished(operator: blocking.BlockingClient, text: str) -> str:
    """A run of that message, its questions allowed; its id."""
    run = operator.start_run(text)
    while not operator.wait_run(run.run_id, until="attention").is_terminal:
        for each in operator.list_approvals(run_id=run.run_id, pending_only=True):
            operator.resolve_approval(each.approval_id, "allow", each.digest)
    return run.run_id


def row(page: "Page", text: str) -> Any:
    """The rows with that text."""
    return page.get_by_role("option").filter(has_text=text)


def is_selected(page: "Page", seq: int) -> None:
    """Wait until that row is the selected one, in sight."""
    chosen = page.locator(f"#row-{seq}")
    expect(chosen).to_have_attribute("aria-selected", "true")
    expect(chosen).to_be_in_viewport()


def test_watch_steer_and_cancel_a_run(
    open_page: OpenPage, operator: blocking.BlockingClient
) -> None:
    """A stream grows at the end of the story; a message steers it; a cancel shows the event that is committed."""
    run = operator.start_run(LIVE)
    page = open_page(f"#/run/{run.run_id}")
    live = page.locator("live-text").first
    expect(live).to_contain_text("a b c")
    expect(page.get_by_role("heading", name="Stream")).to_be_visible()
    expect(page.locator("#row-6")).to_contain_text("list_dir")
    page.keyboard.press("s")
    expect(page.get_by_label("Steer this run")).to_be_focused()
    page.keyboard.type("rather cancel c")
    page.keyboard.press("Enter")
    expect(
        page.locator(".composer-run").get_by_role("status").filter(has_text="Taken as event")
    ).to_be_visible()
    expect(row(page, "rather cancel c")).to_be_visible()

    page.keyboard.press("Escape")
    page.keyboard.press("c")
    expect(page.locator("#cancel-now")).to_be_focused()
    page.keyboard.press("Escape")  # any doubt, and nothing has happened
    expect(page.locator("#cancel-now")).to_have_count(0)
    assert operator.get_run(run.run_id).state == "in_progress"
    page.keyboard.press("c")
    expect(page.locator("#cancel-now")).to_be_focused()
    page.keyboard.press("Enter")

    end = operator.wait_run(run.run_id)
    said = page.locator(".compose").filter(has_text="Cancelled")
    expect(said).to_contain_text(f"The end is event {end.head_seq}, and it is committed.")
    expect(page.locator(".meta")).to_contain_text("cancelled")
    expect(row(page, "run.cancelled")).to_be_visible()
    expect(page.locator("live-text")).to_have_count(0)


def test_find_an_event_and_hand_on_its_address(
    open_page: OpenPage, operator: blocking.BlockingClient
) -> None:
    """Failure, approval, search, jump and address lead to the event; the address opens there again."""
    run_id = finished(
        operator,
        f'Look\n/call read_file {{"path": "gone.md"}}\n/then\n{write("notes/a.md", "needle")}\n/then\n/say Done.',
    )
    events = operator.read_tape(run_id).events
    failed = next(e.seq for e in events if b'"status":"failed"' in e.data)
    asked = next(e.seq for e in events if e.kind == "approval.requested")
    page = open_page(f"#/run/{run_id}")
    inspector = page.get_by_role("complementary", name="Inspector")
    expect(row(page, "gone.md").last).to_be_visible()

    page.keyboard.press("e")
    expect(page).to_have_url(f"{page.url.split('#')[0]}#/run/{run_id}/seq/{failed}")
    expect(inspector).to_contain_text("no such file")
    page.keyboard.press("p")
    expect(page).to_have_url(f"{page.url.split('#')[0]}#/run/{run_id}/seq/{asked}")
    expect(inspector).to_contain_text("allow once by operator")

    page.keyboard.press("/")
    page.keyboard.type("needle")
    page.keyboard.press("Enter")
    found = page.get_by_role("listbox", name="Found events")
    expect(found.get_by_role("option").first).to_contain_text("needle")
    expect(found.locator("mark").first).to_have_text("needle")
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    expect(page.get_by_role("listbox", name="Story")).to_be_visible()

    page.keyboard.press("v")
    page.keyboard.press("v")
    expect(page.get_by_role("listbox", name="Events")).to_be_visible()
    page.keyboard.press(":")
    page.keyboard.type(f"{failed}")
    page.keyboard.press("Enter")
    is_selected(page, failed)
    page.keyboard.press("j")
    is_selected(page, failed + 1)
    page.keyboard.press("k")

    other = open_page(page.url[page.url.index("#") :])
    is_selected(other, failed)
    expect(other.get_by_role("complementary", name="Inspector")).to_contain_text("no such file")


def test_undo_what_a_run_did_to_files(
    open_page: OpenPage, operator: blocking.BlockingClient, daemon: "DaemonProcess"
) -> None:
    """The undo shows what would change while nothing has; then the files are as before."""
    path = daemon.workspace / "notes" / "undo.md"
    path.parent.mkdir(exist_ok=True)
    path.write_text("before\n")
    change = write("notes/undo.md", "after\n")
    run_id = finished(operator, f"Change it\n{change}\n/then\n/say Done.")
    page = open_page(f"#/run/{run_id}?pane=files")
    inspector = page.get_by_role("complementary", name="Inspector")
    expect(inspector.locator(".diff .add")).to_contain_text("after")
    page.get_by_role("button", name="Undo …").focus()
    page.keyboard.press("Enter")
    confirm = page.get_by_role("button", name="Undo one file")
    expect(confirm).to_be_focused()
    expect(inspector).to_contain_text("one file would be as before this run: notes/undo.md.")
    assert path.read_text() == "after\n"
    page.keyboard.press("Enter")
    expect(inspector.get_by_role("status")).to_contain_text("Undone: notes/undo.md")
    assert path.read_text() == "before\n"
    expect(row(page, "run.undone")).to_be_visible()


def test_fork_a_run_before_the_mistake(
    open_page: OpenPage, operator: blocking.BlockingClient
) -> None:
    """A fork begins with what was said up to the selected event, and the page shows the new run."""
    run_id = finished(
        operator, "Think\n/say First thought.\n/call list_dir {}\n/then\n/say Mistake."
    )
    page = open_page(f"#/run/{run_id}")
    page.get_by_role("listbox").focus()
    page.keyboard.press("End")
    for _ in range(2):  # before the last turn
        page.keyboard.press("k")
    field = page.get_by_label("Message of the fork")
    expect(page.get_by_role("heading", name="list_dir")).to_be_visible()
    field.focus()
    page.keyboard.type("/say Better.")
    page.keyboard.press("Enter")
    expect(row(page, "Better.").last).to_be_visible()
    assert run_id not in page.url
    expect(page.get_by_text("was forked here")).to_be_visible()


def test_what_the_model_saw(open_page: OpenPage, operator: blocking.BlockingClient) -> None:
    """The context of the turn at the selection, by layer; another selection shows another turn."""
    run_id = finished(operator, "Look\n/call list_dir {}\n/then\n/say Done.")
    page = open_page(f"#/run/{run_id}?pane=context")
    inspector = page.get_by_role("complementary", name="Inspector")
    expect(inspector.get_by_role("heading", name="Turn 2")).to_be_visible()
    explained = operator.explain_context(run_id, 2)
    for segment in explained.segments:
        expect(inspector).to_contain_text(segment.layer)
    page.keyboard.press("Home")
    page.keyboard.press("j")
    expect(inspector.get_by_role("heading", name="Turn 1")).to_be_visible()


def test_proofs_of_a_run(
    open_page: OpenPage, operator: blocking.BlockingClient, tmp_path: Path
) -> None:
    """Its tape is intact, a replay matches, and the exported file is a tape as the daemon signed it."""
    run_id = finished(operator, "Prove\n/call list_dir {}\n/then\n/say Done.")
    page = open_page(f"#/run/{run_id}?pane=run")
    expect(page.locator(".meta").get_by_text("intact")).to_be_visible()
    page.get_by_role("button", name="Replay").click()
    expect(page.get_by_text("Replay matches")).to_be_visible()
    with page.expect_download() as saved:
        page.get_by_role("button", name="Export").click()
    assert saved.value.suggested_filename == f"{run_id}.ndjson"
    saved.value.save_as(tmp_path / "tape")
    report = verify_export((tmp_path / "tape").read_bytes(), is_signed, None)
    events = len(operator.read_tape(run_id).events)
    assert (None, events) == (report.problem, report.checked_events)


def test_hostile_text_of_a_run(open_page: OpenPage, operator: blocking.BlockingClient) -> None:
    """In message, answer, arguments, name and error hostile text is text, spelled out, in each view."""
    call = json.dumps({"path": HOSTILE})
    run_id = finished(operator, f"{HOSTILE}\n/call read_file {call}\n/then\n/say {HOSTILE}")
    for view in ("story", "calls", "raw"):
        page = open_page(f"#/run/{run_id}/seq/6?view={view}")
        inspector = page.get_by_role("complementary", name="Inspector")
        expect(inspector).to_contain_text("<img src=x onerror=alert(1)>")
        expect(inspector.locator(".hostile").first).to_have_text("\\u202e")
        assert page.locator("img").count() == 0
    page = open_page(f"#/run/{run_id}?q=Rechnung")
    expect(row(page, "\\u202e").first).to_be_visible()


def test_a_run_that_is_not_there(open_page: OpenPage) -> None:
    """An unknown run says so."""
    page = open_page("#/run/run_00000000-0000-7000-8000-000000000000")
    expect(page.get_by_text("not_found")).to_be_visible()


def test_an_observer_reads_a_run(open_page: OpenPage, operator: blocking.BlockingClient) -> None:
    """Steering names the scope that is missing; cancel, fork and undo are not offered."""
    run = operator.start_run(LIVE)
    observer = operator.create_token(principal="eve", role="observer", name="reads").token
    page = open_page(f"#/run/{run.run_id}/seq/1", token=observer)
    field = page.get_by_label("Steer this run")
    expect(field).to_be_disabled()
    expect(field).to_have_attribute("placeholder", "This role lacks the scope runs:write")
    expect(page.get_by_role("button", name="Cancel")).to_be_disabled()
    page.keyboard.press("c")
    expect(page.locator("#cancel-now")).to_have_count(0)
    expect(page.get_by_label("Message of the fork")).to_have_count(0)
    operator.cancel(run.run_id)


@looks
def test_axe_finds_no_violation(
    open_page: OpenPage, operator: blocking.BlockingClient, scheme: str, size: dict[str, int]
) -> None:
    """Timeline, inspector and panes pass axe in both themes and at both widths."""
    run_id = finished(
        operator,
        f'Look\n/call read_file {{"path": "gone.md"}}\n{write("notes/axe.md", "x")}\n/then\n/say Done.',
    )
    rests: tuple[str, ...] = ("/seq/6", "/seq/6?open=1", "?open=1&pane=run")
    if size == DESK:
        rests = ("/seq/6?pane=context", "?pane=files&view=raw")
    for rest in rests:
        page = open_page(f"#/run/{run_id}{rest}", size=size, scheme=scheme)
        expect(page.locator(".skeleton")).to_have_count(0)
        expect(page.locator(".waiting")).to_have_count(0)
        expect(page.locator(".meta, .inspector").first).to_be_attached()
        check_access(page)
