"""The screen Now: the first line is the answer, and a question is answered from there by keys alone."""

from palyra.client import blocking
from tests.console.conftest import PHONE, OpenPage
from tests.console.hands import expect

WRITE = '/call write_file {"path": "notes/plan.md", "content": "# Plan\\n\\n- one\\n"}'
HOSTILE = "Pay <img src=x onerror=alert(1)> Rechnung\u202efdp.exe"
ARMED = "article.card[data-armed=allow]"


def test_calm_then_a_question(open_page: OpenPage, operator: blocking.BlockingClient) -> None:
    """A calm daemon says so in one line; a question takes that line, is announced, and has the count."""
    page = open_page("#/now")
    heading = page.get_by_role("heading", level=1)
    expect(heading).to_have_text("Nothing waits and nothing is wrong.")
    expect(page).to_have_title("Now · palyra")

    run = operator.start_run(f"Write a plan\n{WRITE}")

    expect(heading).to_contain_text("One question waits. It ends in")
    expect(page).to_have_title("(1) Now · palyra")
    expect(page.locator("#say p").filter(has_text="write_file")).to_have_count(1)
    expect(page.get_by_role("row").filter(has_text="Write a plan")).to_contain_text(
        "awaiting_approval"
    )
    fits = "document.documentElement.scrollHeight <= innerHeight && scrollY === 0"
    assert page.evaluate(fits)
    expect(page.get_by_role("heading", name="Waiting for you")).to_be_in_viewport()
    expect(page.get_by_role("heading", name="Went wrong in 24 h")).to_be_in_viewport()

    # Answered by four keys: review, arm, confirm.
    page.keyboard.press("Enter")
    card = page.get_by_role("article")
    expect(card).to_be_focused()
    expect(card).to_contain_text("# Plan")
    button = page.get_by_role("button", name="Allow once")
    expect(button).to_be_enabled()
    page.keyboard.press("a")
    while not page.locator(ARMED).count():  # the card has to stand still for half a second
        page.keyboard.press("a")
    page.keyboard.press("Enter")
    expect(card).to_contain_text("Allowed once by operator")
    assert operator.wait_run(run.run_id).state == "done"


def test_what_went_wrong_and_hostile_text(
    open_page: OpenPage, operator: blocking.BlockingClient
) -> None:
    """A failed run is named with its reason; hostile text of a message runs nothing and is spelled out."""
    failed = operator.start_run("Ask too much\n/fail quota")
    operator.wait_run(failed.run_id)
    operator.start_run(f"{HOSTILE}\n/delay 600000\n/say late")
    page = open_page("#/now", size=PHONE)
    expect(page.get_by_role("region", name="Went wrong in 24 h")).to_contain_text("Run failed")
    row = page.get_by_role("row").filter(has_text="Rechnung")
    expect(row).to_contain_text("<img src=x onerror=alert(1)>")
    expect(row.locator(".hostile")).to_have_text("\\u202e")
    expect(row.locator(".hostile")).to_have_attribute("title", "RIGHT-TO-LEFT OVERRIDE")
    assert page.locator("img").count() == 0


def test_what_a_role_may_not_see_is_not_called_well(
    open_page: OpenPage, operator: blocking.BlockingClient
) -> None:
    """Without the scope for incidents and models, none is denied; an observer, who has it, reads that nothing is wrong."""
    ada = operator.create_token(principal="ada", role="person", name="ada").token
    page = open_page("#/now", token=ada)
    expect(page.get_by_role("heading", level=1)).to_have_text(
        "No question waits. Of the runs that this role may see, none went wrong in 24 h."
    )
    expect(page.get_by_text("This role may not see incidents.")).to_be_visible()
    expect(page.get_by_text("incidents are not for this role")).to_be_visible()
    expect(page.get_by_text("Nothing went wrong.")).to_have_count(0)
