"""The screen Health: what is wrong, since when, and what would be done about it; by keyboard alone."""

import re
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

from palyra.client import blocking
from tests.console.conftest import OpenPage, looks
from tests.console.hands import check_access, expect, tab_to
from tests.console.wire import Wire
from tests.e2e.daemon_process import DaemonProcess, running

if TYPE_CHECKING:
    from playwright.sync_api import Page


PACE = {"PALYRA_HEALING__SWEEP_MS": "100", "PALYRA_HEALING__STUCK_MS": "500"}
HOUR_MS = 3_600_000
HOSTILE = "<img src=x onerror=alert(1)>\u202etxt"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Generator[DaemonProcess]:
    """A daemon that finds a run stuck after half a second."""
    with running(tmp_path_factory.mktemp("health"), **PACE) as process:
        yield process


@pytest.fixture(scope="module")
def stuck(operator: blocking.BlockingClient) -> str:
    """The incident of a run that makes no progress."""
    with operator.notices() as news:
        operator.start_run("Wait\n/delay 600000\n/say late")
        opened = next(each for each in news if each.method == "incident.opened")
    return str(opened.params["incident_id"])


def trouble() -> Wire:
    """A wire on which an actor restarts and incidents of a day are told, with hostile names."""
    wire = Wire()
    wire.change_result = {"system.tree": _crash, "incident.list": _day}
    return wire


def _crash(reply: dict[str, Any]) -> dict[str, Any]:
    """The actor of the MCP servers restarts, with a full mailbox."""
    [services] = [each for each in reply["result"]["children"] if each["id"] == "services"]
    [actor] = [each for each in services["children"] if each["id"] == "mcp"]
    actor |= {"state": "starting", "incarnation": 3, "restarts": 2, "last_crash": HOSTILE}
    actor |= {"last_crash_age_ms": 41_000, "mailbox_depth": 212, "mailbox_peak": 256}
    actor |= {"mailbox_capacity": 256}
    return reply


def _day(reply: dict[str, Any]) -> dict[str, Any]:
    """Copies of the incident at other times, in other domains."""
    [first, *_] = reply["result"]["incidents"]
    opened = first["opened_ms"]
    other = {"severity": "warning", "state": "resolved", "by": "palyra", "reason": HOSTILE}
    reply["result"]["incidents"] = [
        first,
        first
        | {"incident_id": "inc_1", "domain": "edge", "key": f"edge:{HOSTILE}", "count": 4}
        | {"opened_ms": opened - 9 * HOUR_MS, "resolved_ms": opened - 5 * HOUR_MS}
        | {"summary": HOSTILE, "evidence": {"name": HOSTILE, "size": 1234567}}
        | other,
        first
        | {"incident_id": "inc_2", "opened_ms": opened - 2 * HOUR_MS, "resolved_ms": opened}
        | other,
    ]
    return reply


def test_trouble_is_understood_and_resolved_by_keyboard(
    open_page: OpenPage, operator: blocking.BlockingClient, stuck: str
) -> None:
    """Keys go to the incident, its remedy and what that would change, the tree, and resolve it."""
    page = open_page("#/now")
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    page.keyboard.press("g")
    page.keyboard.press("h")
    inspector = page.get_by_role("complementary", name="Incident")
    expect(inspector.get_by_role("heading", name="run_stuck")).to_be_visible()
    expect(page.get_by_role("heading", level=1).first).to_contain_text("incident is open")
    page.keyboard.press("j")
    expect(page).to_have_url(re.compile(r"#/health/incidents/inc_"))
    expect(inspector).to_contain_text("observe_only for run")
    expect(inspector).to_contain_text("resume_run")
    expect(inspector).to_contain_text("one run")
    expect(inspector).to_contain_text("0 of 3")

    # The tree: only what is not well, found by name, opened and left.
    page.keyboard.press("/")
    page.keyboard.type("turn")
    page.keyboard.press("Enter")
    row = page.get_by_role("row", name="turn")
    expect(row).to_contain_text("model")
    page.keyboard.press("Escape")
    tab_to(page, page.get_by_role("row", name="daemon"))
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    actor = page.get_by_role("complementary", name="Actor")
    expect(actor.get_by_role("heading", name="turn")).to_be_visible()
    expect(actor).to_contain_text("It has not crashed")

    page.goto(f"{page.url.split('#')[0]}#/health/incidents/{stuck}")
    expect(inspector).to_contain_text("run_stuck")
    page.keyboard.press("r")
    expect(page.get_by_label("Reason, which is recorded")).to_be_focused()
    page.keyboard.type("seen; it waits by design")
    page.keyboard.press("Enter")
    expect(inspector).to_contain_text("by operator: seen; it waits by design")
    assert operator.get_incident(stuck).state == "resolved"


def test_a_mode_is_set_where_its_reach_is_shown(
    open_page: OpenPage, operator: blocking.BlockingClient, stuck: str
) -> None:
    """The button names the domain; its mode is then the daemon's; an observer cannot press it."""
    assert stuck
    wire = trouble()
    wire.change_result["incident.list"] = lambda reply: _reopened(_day(reply))
    page = open_page("#/health", prepare=wire)
    button = page.get_by_role("button", name="Attempt remedies of run")
    tab_to(page, button)
    page.keyboard.press("Enter")
    expect(page.get_by_role("complementary")).to_contain_text("auto for run")
    assert operator.healing_mode().modes["run"] == "auto"
    operator.healing_mode(mode="observe_only")

    observer = operator.create_token(principal="eve", role="observer", name="eve").token
    page = open_page("#/health", token=observer, prepare=wire)
    expect(page.get_by_role("button", name="Attempt remedies of run")).to_be_disabled()
    expect(page.get_by_text("This role lacks the scope incidents:write")).to_be_visible()


def _reopened(reply: dict[str, Any]) -> dict[str, Any]:
    """The first incident is open, whatever became of it."""
    reply["result"]["incidents"][0] |= {"state": "open", "resolved_ms": None}
    return reply


def test_lanes_table_and_hostile_names(open_page: OpenPage, stuck: str) -> None:
    """Lanes and table show the same incidents; a crash stands below its actor; names run nothing."""
    page = open_page(f"#/health/incidents/{stuck}", prepare=trouble())
    bars = page.get_by_role("group", name="edge").get_by_role("link")
    expect(bars).to_have_count(1)
    expect(bars).to_have_accessible_name(
        re.compile(r"edge, edge, warning, resolved, 4 times, for 4 h")
    )
    assert page.get_by_role("group", name="run").get_by_role("link").count() == 2
    page.keyboard.press("t")
    expect(page.get_by_role("table").first.get_by_role("row")).to_have_count(4)
    page.keyboard.press("w")
    grid = page.get_by_role("treegrid", name="Supervision tree")
    expect(grid.locator("tr[data-path]")).to_have_count(3)  # daemon, services, mcp
    expect(grid.locator(".crash")).to_contain_text("<img src=x onerror=alert(1)>")
    expect(grid.locator(".hostile").first).to_have_text("\\u202e")
    page.reload()
    expect(page.locator("tr[data-path]")).to_have_count(3)
    page.goto(f"{page.url.split('#')[0]}#/health/incidents/inc_1")
    inspector = page.get_by_role("complementary", name="Incident")
    expect(inspector.get_by_text("1\u2009234\u2009567")).to_be_visible()
    assert page.locator("main img").count() == 0


def test_a_changed_row_flashes_once_and_reading_ends_with_the_screen(
    open_page: OpenPage, stuck: str
) -> None:
    """The tree is read while it is in view; a row that changed flashes until the next look."""
    assert stuck
    wire = Wire()

    def prepare(page: "Page") -> None:
        wire(page)
        page.clock.install()

    page = open_page("#/health/tree", prepare=prepare)
    row = page.locator('tr[data-path="daemon/services/mcp"]')
    expect(row).to_contain_text("running")
    wire.change_result["system.tree"] = _crash
    page.clock.run_for(2_000)
    expect(row).to_contain_text("starting")
    expect(row).to_have_class(re.compile(r"flash"))
    page.clock.run_for(2_000)
    expect(row).not_to_have_class(re.compile(r"flash"))

    page.keyboard.press("m")  # models: the tree is not in view
    expect(page.get_by_role("row", name="scripted")).to_contain_text("closed")
    asked = len(wire.params_of("system.tree"))
    models = len(wire.params_of("model.list"))
    page.clock.run_for(10_000)
    assert asked == len(wire.params_of("system.tree"))
    assert len(wire.params_of("model.list")) > models


def test_a_large_tree_is_shown_by_pages_and_found_by_name(open_page: OpenPage) -> None:
    """Of a thousand actors a hundred are in the page; one is found with those above it."""
    wire = Wire()
    wire.change_result["system.tree"] = _thousand
    page = open_page("#/health/tree", prepare=wire)
    rows = page.locator("tr[data-path]")
    expect(rows).to_have_count(100)
    page.get_by_role("button", name="After").press("Enter")
    expect(page.get_by_text("Rows 101 to 200 of")).to_be_visible()
    expect(rows).to_have_count(100)
    page.keyboard.press("/")
    page.keyboard.type("run:run_999")
    page.keyboard.press("Enter")
    expect(rows).to_have_count(3)  # daemon, work, the run


def _thousand(reply: dict[str, Any]) -> dict[str, Any]:
    """A thousand runs below the actor of the work."""
    [work] = [each for each in reply["result"]["children"] if each["id"] == "work"]
    actor = {"state": "running", "incarnation": 1, "restarts": 0, "children": []}
    work["children"] = [{"id": f"run:run_{at}", **actor} for at in range(1_000)]
    return reply


def test_what_a_role_may_not_see_names_its_scope(
    open_page: OpenPage, operator: blocking.BlockingClient
) -> None:
    """One panel is refused and names the scope; an incident that never was says so."""
    token = operator.create_token(principal="cli", role="client", name="cli").token
    page = open_page("#/health", token=token, tolerates=("403",))
    expect(page.get_by_text("forbidden").first).to_be_visible()
    expect(page.get_by_text("incidents:read").first).to_be_visible()
    expect(page.get_by_role("heading", level=1)).to_have_text("Health")
    page = open_page("#/health/incidents/inc_01a21d2a-18cc-70a9-ac46-d0542e2350ae")
    expect(page.get_by_role("complementary", name="Incident")).to_contain_text("not_found")


@looks
def test_axe_finds_no_violation(
    open_page: OpenPage, stuck: str, scheme: str, size: dict[str, int]
) -> None:
    """Lanes, table, tree, inspector and models pass axe in both themes and at both widths."""
    page = open_page("#/health", size=size, scheme=scheme, prepare=trouble())
    start = page.url.split("#")[0]
    for address in ("health", f"health/incidents/{stuck}?as=table", "health/models"):
        page.goto(f"{start}#/{address}")
        place = {"health": "Supervision tree", "health/models": "Queues"}.get(address, "Evidence")
        expect(page.get_by_role("heading", name=place)).to_be_visible()
        check_access(page)
