"""Every screen in one look, with something on it; the tests of a screen look at more of it, and are slow."""

from palyra.client import blocking
from tests.console.conftest import PHONE, OpenPage
from tests.console.hands import asked_to_write, check_access, expect


def test_axe_finds_no_violation(open_page: OpenPage, operator: blocking.BlockingClient) -> None:
    """On a phone in the dark, each screen passes axe."""
    question = asked_to_write(operator)
    memory = operator.add_memory("The build takes four minutes", kind="fact").memory_id
    page = open_page("#/now", size=PHONE, scheme="dark")
    start = page.url.split("#")[0]
    for address in (
        "now",
        f"inbox/{question.approval_id}",
        "runs",
        f"run/{question.run_id}/seq/1?open=1",
        "sessions",
        f"session/{question.session_id}",
        "tasks/new",
        f"memory/{memory}",
        "documents",
        "usage?budget=new",
        "health",
        "rules/tokens",
    ):
        page.goto(f"{start}#/{address}")
        expect(page.locator("main h1").first).to_be_attached()
        expect(page.locator(".loading")).to_have_count(0)
        check_access(page)
