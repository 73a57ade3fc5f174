"""Tasks, schedules and documents: what comes next is seen before it is made, what changes before it changes."""

import re

from palyra.client import blocking
from tests.console.conftest import OpenPage, looks
from tests.console.hands import check_access, expect
from tests.e2e.daemon_process import DaemonProcess

FAR_MS = 4_000_000_000_000
HOSTILE = "Later \u202e<img src=x onerror=alert(1)>"
DOCUMENT = """# Notes

This line is yours.

<!-- palyra:begin facts -->
- The tests run with make check
- Deploys go out on Tuesdays
<!-- palyra:end facts -->
"""


def test_a_task_is_found_paused_and_cancelled(
    open_page: OpenPage, operator: blocking.BlockingClient
) -> None:
    """The list names each task by its message; pausing and cancelling are of the committed state."""
    task = operator.submit_task("prompt", {"text": HOSTILE}, not_before_ms=FAR_MS)
    done = operator.submit_task("prompt", {"text": "Say hello"})
    page = open_page()
    expect(page.get_by_role("navigation", name="Screens")).to_be_visible()
    page.keyboard.press("g")
    page.keyboard.press("t")
    expect(page.get_by_role("link", name="succeeded Say hello")).to_be_visible()
    page.get_by_role("combobox", name="State").select_option("queued")
    expect(page).to_have_url(re.compile(r"state=queued"))
    row = page.get_by_role("link", name="queued Later")
    expect(row).to_contain_text("\\u202e<img src=x onerror=alert(1)>")
    expect(page.get_by_role("link", name="Say hello")).to_have_count(0)
    page.keyboard.press("Escape")
    row.press("Enter")
    side = page.get_by_role("complementary")
    side.get_by_role("button", name="Pause").press("Enter")
    expect(side.get_by_role("button", name="Resume")).to_be_visible()
    assert operator.get_task(task.task_id).state == "paused"
    side.get_by_role("button", name="Cancel the task").focus()
    page.keyboard.down("Enter")
    really = side.get_by_role("button", name="Really cancel the task")
    expect(really).to_be_visible()
    page.keyboard.down("Enter")  # a held key is one press
    page.keyboard.up("Enter")
    expect(really).to_be_visible()
    assert operator.get_task(task.task_id).state == "paused"
    really.press("Enter")
    expect(side).to_contain_text("cancelled")
    assert operator.get_task(task.task_id).state == "cancelled"
    page.goto(f"{page.url.split('#')[0]}#/tasks/{done.task_id}")
    run = operator.get_task(done.task_id).run_id
    expect(side.get_by_role("link", name="run …")).to_have_attribute("href", f"#/run/{run}")


def test_what_is_not_there_is_said(open_page: OpenPage) -> None:
    """An address of no task and of no schedule has `not_found` beside the list."""
    page = open_page("#/tasks/tsk_x")
    side = page.get_by_role("complementary")
    expect(side).to_contain_text("not_found")
    expect(side).to_contain_text("no task 'tsk_x'")
    page.goto(f"{page.url.split('#')[0]}#/tasks/sch_x")
    expect(side).to_contain_text("no schedule 'sch_x'")


def test_a_schedule_is_seen_before_it_is_added(
    open_page: OpenPage, operator: blocking.BlockingClient
) -> None:
    """The form shows ten times of a cron and the reason of a wrong one; the added schedule has the same times."""
    page = open_page("#/tasks")
    expect(page.get_by_text("nothing is submitted by itself")).to_be_visible()
    page.keyboard.press("+")
    side = page.get_by_role("complementary")
    expect(side.get_by_role("textbox", name="Name")).to_be_focused()
    page.keyboard.type("nightly")
    side.get_by_role("textbox", name="Message of each run").fill("tidy up")
    cron = side.get_by_role("textbox", name="Cron")
    cron.fill("nonsense")
    expect(side.get_by_role("alert")).to_contain_text("nonsense")
    expect(side.get_by_role("button", name="Add the schedule")).to_be_disabled()
    cron.fill("30 2 * * *")
    side.get_by_role("textbox", name="Zone").fill("Europe/Berlin")
    times = side.get_by_role("region", name="It would fire at").get_by_role("listitem")
    expect(times).to_have_count(10)
    expect(times.first).to_contain_text("02:30")
    foreseen = operator.preview_schedule(cron="30 2 * * *", zone="Europe/Berlin").instants
    side.get_by_role("button", name="Add the schedule").press("Enter")
    expect(side.get_by_role("heading", name="nightly")).to_be_visible()
    [added] = operator.list_schedules()
    assert foreseen == operator.next_instants(added.schedule_id).instants
    expect(side.get_by_role("region", name="Next times").get_by_role("listitem")).to_have_count(10)

    side.get_by_role("button", name="Pause").press("Enter")
    expect(side).to_contain_text("no instant fires")
    assert operator.get_schedule(added.schedule_id).paused
    side.get_by_role("button", name="Resume").press("Enter")
    expect(side.get_by_role("button", name="Pause")).to_be_visible()
    side.get_by_role("button", name="Run now").press("Enter")
    expect(page).to_have_url(re.compile(r"#/tasks/tsk_"))
    expect(side.get_by_role("heading", name="tidy up")).to_be_visible()
    expect(side).to_contain_text("succeeded")
    page.goto(f"{page.url.split('#')[0]}#/tasks/{added.schedule_id}")
    side.get_by_role("button", name="Remove the schedule").press("Enter")
    side.get_by_role("button", name="Really remove").press("Enter")
    expect(page.get_by_text("nothing is submitted by itself")).to_be_visible()
    assert [] == operator.list_schedules()


def test_an_earlier_version_of_a_document_is_compared_and_restored(
    open_page: OpenPage, daemon: DaemonProcess, operator: blocking.BlockingClient
) -> None:
    """Blocks are marked, a version is shown against the present, and restoring says before what it changes."""
    path = daemon.workspace / "MEMORY.md"
    path.write_text(DOCUMENT)
    operator.sync_document("MEMORY.md")
    path.write_text(path.read_text().replace("make check", "make \u202etest"))
    operator.sync_document("MEMORY.md")
    page = open_page("#/documents")
    page.get_by_role("link", name="MEMORY.md").press("Enter")
    expect(page.get_by_role("heading", name="Managed block facts")).to_be_visible()
    expect(page.get_by_text("make \\u202etest")).to_be_visible()
    side = page.get_by_role("complementary")
    side.get_by_role("link", name="version 1").press("Enter")
    region = page.get_by_role("region", name="Version 1 against version 2")
    expect(region.get_by_role("insertion")).to_have_text("check")
    expect(region).not_to_contain_text("Tuesdays")
    side.get_by_role("button", name="Restore version 1").press("Enter")
    expect(side).to_contain_text("One entry changes")
    assert "test" in path.read_text()
    confirm = side.get_by_role("button", name="Restore version 1")
    expect(confirm).to_be_focused()
    confirm.press("Enter")
    expect(side.get_by_role("link", name="version 3")).to_be_visible()
    assert "make check" in path.read_text()
    path.write_text(path.read_text().replace("Tuesdays", "Mondays"))
    side.get_by_role("button", name="Adopt edits").press("Enter")
    expect(side.locator("del")).to_have_text("Tuesdays")
    side.get_by_role("button", name="Adopt the edits").press("Enter")
    expect(side.get_by_role("link", name="version 4")).to_be_visible()


def test_a_role_without_the_scope_is_told_so(
    open_page: OpenPage, operator: blocking.BlockingClient
) -> None:
    """What a token may not read is named; it changes nothing either."""
    approver = operator.create_token(principal="eve", role="approver", name="eve").token
    for address, scope in (("#/tasks", "tasks:read"), ("#/documents", "documents:read")):
        page = open_page(address, token=approver)
        expect(page.get_by_text("forbidden", exact=True)).to_be_visible()
        expect(page.get_by_text(scope)).to_be_visible()


@looks
def test_axe_finds_no_violation(
    open_page: OpenPage,
    operator: blocking.BlockingClient,
    daemon: DaemonProcess,
    scheme: str,
    size: dict[str, int],
) -> None:
    """Tasks, a task, a new schedule and documents pass axe."""
    (daemon.workspace / "MEMORY.md").write_text(DOCUMENT)
    operator.sync_document("MEMORY.md")
    task = operator.submit_task("prompt", {"text": HOSTILE}, not_before_ms=FAR_MS)
    for address, shown in (
        ("#/tasks", "none waits"),
        (f"#/tasks/{task.task_id}", "Cancel the task"),
        ("#/tasks/new", "It would fire at"),
        ("#/documents/MEMORY.md", "Managed block"),
    ):
        page = open_page(address, size=size, scheme=scheme)
        expect(page.get_by_text(shown).first).to_be_visible()
        check_access(page)
