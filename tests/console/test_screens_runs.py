"""Runs: one table of all runs, windowed, filtered by its address, alive, and worked by keys."""

import json
import re
from collections.abc import Callable

import pytest

from palyra.client import blocking
from tests.console.conftest import OpenPage, looks
from tests.console.hands import check_access, expect

MANY = 230  # more than a page of the list
MOST_ROWS = 80
HOSTILE = "<img src=x onerror=alert(1)> Rechnung\u202efdp.exe"


@pytest.fixture(scope="module")
def runs(operator: blocking.BlockingClient) -> Callable[[str], str]:
    """Many short runs; starts another one, and waits for its end."""

    def run(text: str) -> str:
        started = operator.start_run(text)
        operator.wait_run(started.run_id)
        return started.run_id

    for at in range(MANY):
        last = operator.start_run(f"Receipt {at}\n/say ok")
    operator.wait_run(last.run_id)
    return run


@pytest.mark.slow
def test_many_runs_are_few_rows_in_the_page(
    open_page: OpenPage, runs: Callable[[str], str]
) -> None:
    """The page holds the rows in sight alone; scrolling reads older runs to the first one."""
    runs("Zero\n/say ok")
    page = open_page("#/runs")
    rows = page.locator("#runs tr[data-run]")
    expect(page.get_by_role("heading", level=1)).to_contain_text("The newest 20")
    expect(rows.first).to_contain_text("Zero")
    to_end = "each => each.scrollTo(0, each.scrollHeight)"
    page.locator("#runs").evaluate(to_end)
    expect(page.get_by_role("heading", level=1)).to_have_text(f"{MANY + 1} runs, 0 open.")
    page.locator("#runs").evaluate(to_end)
    expect(rows.filter(has_text="Receipt 0 ")).to_be_in_viewport()
    assert rows.count() <= MOST_ROWS
    page.keyboard.press("Home")
    expect(rows.first).to_be_in_viewport()
    expect(rows.first).to_have_class("selected")
    page.keyboard.press("End")
    expect(page.locator("#runs tr.selected")).to_contain_text("Receipt 0 ")
    expect(page.locator("#runs tr.selected")).to_be_in_viewport()


def test_a_run_comes_and_ends_without_a_reload(
    open_page: OpenPage, runs: Callable[[str], str], operator: blocking.BlockingClient
) -> None:
    """A run that begins stands first, its phase follows, and with a filter it goes when it fits no more."""
    runs("Before\n/say ok")
    page, open_ones = open_page("#/runs"), open_page("#/runs?open=1")
    expect(open_ones.get_by_text("No run fits")).to_be_visible()
    started = operator.start_run("Alive\n/delay 600000\n/say late")
    for each in (page, open_ones):
        expect(each.locator("#runs tr[data-run]").first).to_contain_text("Alive")
        expect(each.locator("#runs tr[data-run]").first).to_contain_text("in_progress")
    operator.cancel(started.run_id)
    expect(page.locator(f"#runs tr[data-run={started.run_id}]")).to_contain_text("cancelled")
    expect(open_ones.get_by_text("No run fits")).to_be_visible()


def test_filters_are_the_address_and_keys_open_a_failure(
    open_page: OpenPage, runs: Callable[[str], str]
) -> None:
    """Phase and text narrow the list, reload and back keep them; `e` finds the failure and Enter opens it."""
    failed = runs("Ask too much\n/fail quota")
    runs("Ask little\n/say ok")
    page = open_page("#/runs")
    expect(page.locator("#runs tr[data-run]").first).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type("ask ")
    expect(page.get_by_role("heading", level=1)).to_have_text("Two runs found.")
    page.keyboard.press("Escape")
    expect(page.get_by_role("searchbox")).to_have_value(re.compile(r"ask ?"))
    page.get_by_label("Phase").select_option("failed")
    expect(page.get_by_role("heading", level=1)).to_have_text("One run found.")
    page.reload()
    expect(page.get_by_label("Phase")).to_have_value("failed")
    expect(page.get_by_role("searchbox")).to_have_value("ask")
    page.go_back()
    expect(page.get_by_role("heading", level=1)).to_have_text("Two runs found.")
    page.locator("h1").click()
    page.keyboard.press("e")
    expect(page.locator("#runs tr.selected")).to_contain_text("quota")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**#/run/{failed}")


def test_children_stand_below_their_parent_and_hostile_titles_are_text(
    open_page: OpenPage, runs: Callable[[str], str]
) -> None:
    """A delegated run follows its parent; a title runs nothing and its hidden characters are spelled out."""
    call = json.dumps({"task": "Child work\n/say done"})
    runs(f"{HOSTILE} parent\n/call delegate {call}\n/then\n/say done")
    page = open_page("#/runs")
    rows = page.locator("#runs tr[data-run]")
    expect(rows.nth(0)).to_contain_text("<img src=x onerror=alert(1)>")
    expect(rows.nth(0).locator(".hostile").first).to_have_text("\\u202e")
    expect(rows.nth(1).locator("td.child")).to_contain_text("Child work")
    assert page.locator("main img").count() == 0


@looks
def test_axe_finds_no_violation(
    open_page: OpenPage, runs: Callable[[str], str], scheme: str, size: dict[str, int]
) -> None:
    """The full table and an empty result pass axe in both themes and at both widths; a phone scrolls its rows exactly, too."""
    runs("Last\n/say ok")
    page = open_page("#/runs", size=size, scheme=scheme)
    expect(page.locator("#runs tr[data-run]").first).to_contain_text("Last")
    page.keyboard.press("j")
    expect(page.locator("#runs tr.selected")).to_have_count(1)
    page.keyboard.press("PageDown")
    expect(page.locator("#runs tr.selected")).to_be_in_viewport()
    check_access(page)
    page = open_page("#/runs?q=nothing+has+this", size=size, scheme=scheme)
    expect(page.get_by_text("No run fits")).to_be_visible()
    check_access(page)
