"""The screen Usage: what was spent, by whom, against which limit; a budget is changed by keyboard."""

import re
from collections.abc import Generator
from typing import Any

import pytest

from palyra.client import blocking
from tests.console.conftest import OpenPage, looks
from tests.console.hands import check_access, expect
from tests.console.wire import Wire
from tests.e2e.daemon_process import DaemonProcess, running

PRICES = """[[usage.prices]]
model = "scripted"
input = "$10.00"
output = "$10.00"

[[usage.budgets]]
id = "file"
metric = "tokens"
window = "month"
hard = 900000
"""
HOSTILE = "<img src=x onerror=alert(1)>\u202egpt"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Generator[DaemonProcess]:
    """A daemon that has a price for its model, and a budget in its file."""
    base = tmp_path_factory.mktemp("usage")
    (base / "home").mkdir(mode=0o700)
    (base / "home" / "palyra.toml").write_text(PRICES, encoding="utf-8")
    with running(base) as process:
        yield process


@pytest.fixture(scope="module")
def spent(operator: blocking.BlockingClient) -> int:
    """What two runs cost, in micro-dollars."""
    for text in ("/say one", "/say two"):
        operator.wait_run(operator.start_run(text).run_id)
    return operator.sum_usage().total.cost_usd_micros


def test_an_empty_ledger_says_what_would_be_here(open_page: OpenPage) -> None:
    """Without a call there is a sentence and the command that makes one."""
    page = open_page("#/usage")
    expect(page.get_by_text("No model was asked in the last 24 h.")).to_be_visible()
    expect(page.get_by_text("palyra run '/say hello'")).to_be_visible()


def test_spending_is_seen_and_a_budget_changed_by_keyboard(
    open_page: OpenPage, operator: blocking.BlockingClient, spent: int
) -> None:
    """Hours, models and agents have the ledger's sums; keys set a budget, change it and say what is wrong."""
    page = open_page("#/now")
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    page.keyboard.press("g")
    page.keyboard.press("u")
    cost = f"${spent / 1_000_000:.4f}"
    sums = page.get_by_role("region", name="Sums")
    expect(sums.get_by_role("row", name="scripted")).to_contain_text(cost)
    expect(sums.get_by_role("row", name="scripted")).to_contain_text("2 estimated")
    expect(page.get_by_role("img", name="Cost by hour, stacked by model")).to_be_visible()
    page.keyboard.press("t")
    expect(page.get_by_role("row").filter(has_text=re.compile(r"\d\d-\d\d"))).to_contain_text(cost)
    page.keyboard.press("]")
    expect(sums.get_by_role("row", name="default")).to_contain_text(cost)
    expect(page).to_have_url(re.compile(r"by=agent"))
    page.reload()
    expect(sums.get_by_role("row", name="default")).to_contain_text(cost)

    page.keyboard.press("b")
    expect(page.get_by_label("Name")).to_be_focused()
    page.keyboard.type("day")
    page.get_by_label("Limit, in dollars").focus()
    page.keyboard.type("2,5")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert").filter(has_text="2,5 is not an amount")).to_be_visible()
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.type("2.50")
    page.keyboard.press("Enter")
    row = page.get_by_role("row").filter(has_text="everything").filter(has_text="$2.50")
    expect(row).to_be_visible()
    [budget] = [each for each in operator.list_budgets() if each.budget_id == "day"]
    assert (budget.hard, budget.action, budget.window) == (2_500_000, "block", "day")

    change = page.get_by_role("link", name="Change day")
    change.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_label("Warns at, in dollars")).to_be_focused()
    page.keyboard.type("0.01")
    page.keyboard.press("Enter")
    expect(page.get_by_role("form")).to_have_count(0)
    [budget] = [each for each in operator.list_budgets() if each.budget_id == "day"]
    assert (budget.soft, budget.hard) == (10_000, 2_500_000)
    expect(page.get_by_text("Today, of $2.50")).to_be_visible()


def test_a_budget_is_deleted_by_two_presses_and_that_of_the_file_is_not(
    open_page: OpenPage, operator: blocking.BlockingClient
) -> None:
    """One press asks again; a budget of the configuration says where it is changed."""
    operator.set_budget("spare", hard=1000)
    page = open_page("#/usage?budget=spare")
    button = page.get_by_role("button", name="Delete …")
    button.focus()
    page.keyboard.press("Enter")
    assert "spare" in {each.budget_id for each in operator.list_budgets()}
    page.get_by_role("button", name="Delete it: press again").press("Enter")
    expect(page.get_by_role("form")).to_have_count(0)
    assert "spare" not in {each.budget_id for each in operator.list_budgets()}
    page = open_page("#/usage?budget=file")
    expect(page.get_by_text("It stands in palyra.toml")).to_be_visible()
    expect(page.get_by_role("button", name="Save")).to_be_disabled()
    page = open_page("#/usage?budget=never")
    expect(page.get_by_text("There is no budget never.")).to_be_visible()


def test_what_a_sum_leaves_out_is_said_and_names_run_nothing(
    open_page: OpenPage, spent: int
) -> None:
    """Unpriced calls stand in their row and in the sum; a hostile name is spelled out."""
    assert spent
    wire = Wire()

    def unpriced(reply: dict[str, Any]) -> dict[str, Any]:
        for each in (reply["result"]["total"], *reply["result"]["groups"]):
            each |= {"unpriced_calls": 7}
        for each in reply["result"]["groups"]:
            each |= {"key": HOSTILE}
        return reply

    wire.change_result["usage.summary"] = unpriced
    page = open_page("#/usage", prepare=wire)
    sums = page.get_by_role("region", name="Sums")
    expect(sums.get_by_text("7 unpriced: not in the sum")).to_have_count(2)
    expect(sums.locator(".hostile")).to_have_text("\\u202e")
    assert page.locator("main img").count() == 0


def test_an_observer_reads_and_a_refused_panel_names_its_scope(
    open_page: OpenPage, operator: blocking.BlockingClient, spent: int
) -> None:
    """Budgets are shown and cannot be set; a role without usage gets the scope in place of figures."""
    assert spent
    observer = operator.create_token(principal="eve", role="observer", name="eve").token
    page = open_page("#/usage", token=observer)
    expect(page.get_by_text("setting one needs usage:write")).to_be_visible()
    expect(page.get_by_role("region", name="Sums")).to_be_visible()
    approver = operator.create_token(principal="ann", role="approver", name="ann").token
    page = open_page("#/usage", token=approver)
    expect(page.get_by_text("usage:read").first).to_be_visible()


@looks
def test_axe_finds_no_violation(
    open_page: OpenPage, spent: int, scheme: str, size: dict[str, int]
) -> None:
    """Plot, table, accounts and form pass axe in both themes and at both widths."""
    assert spent
    page = open_page("#/usage?budget=new", size=size, scheme=scheme)
    expect(page.get_by_role("form")).to_be_visible()
    expect(page.get_by_role("region", name="Sums")).to_be_visible()
    check_access(page)
