"""What tests of screens do alike: move by keyboard, ask axe, start a run that asks a question.

A test module that imports this one is skipped where Playwright is missing, with the reason said once.
"""

import json
from typing import TYPE_CHECKING, Any

import pytest

from palyra.client import blocking
from tests.optional import reason_without

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from palyra.core.journal.records import ApprovalRecord

expect: Any = pytest.importorskip("playwright.sync_api", reason=reason_without("playwright")).expect
axe: Any = pytest.importorskip(
    "axe_playwright_python.sync_playwright", reason=reason_without("playwright")
)

IS_FOCUSED = "each => each === document.activeElement"


def tab_to(page: "Page", target: Any) -> None:
    """Move the focus to it with the tab key alone."""
    expect(target).to_be_visible()
    expect(target).to_be_enabled()
    for _ in range(200):
        if target.evaluate(IS_FOCUSED):
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"the tab key does not reach {target}")


def check_access(page: "Page") -> None:
    """Fail with axe's report if it finds a violation on the page as it is now."""
    found = axe.Axe().run(page)
    assert found.violations_count == 0, (page.url, found.generate_report())


def asked(operator: blocking.BlockingClient, text: str) -> "ApprovalRecord":
    """Start a run of that text, which asks a person; its question."""
    run = operator.start_run(text)
    operator.wait_run(run.run_id, until="attention")
    [found] = operator.list_approvals(run_id=run.run_id, pending_only=True)
    return found


def asked_to_write(
    operator: blocking.BlockingClient, path: str = "notes/plan.md", content: str = "x"
) -> "ApprovalRecord":
    """The question of a run that writes a file."""
    call = json.dumps({"path": path, "content": content})
    return asked(operator, f"Write\n/call write_file {call}")
