"""Keys that are faster than the page, which each go on from where the one before has led, and slower ones."""

from palyra.client import blocking
from tests.console.conftest import OpenPage
from tests.console.hands import asked_to_write, expect
from tests.console.wire import Wire

FIELDS = (
    "input:is([type=search], [type=text], :not([type])):enabled:visible, textarea:enabled:visible"
)
# Draws the page again, as it does each second, and returns after that.
DRAW = """async () => {
    document.dispatchEvent(new Event("visibilitychange"));
    for (let frames = 0; frames < 2; frames++) await new Promise(requestAnimationFrame);
}"""
# The page is never told of another address, as if each key came before it could be.
DEAF = "addEventListener('hashchange', (event) => event.stopImmediatePropagation(), true)"


def test_a_second_key_goes_on_from_the_first(open_page: OpenPage) -> None:
    """Tabs, groups and toggles of an address add up, on a screen that keys have led to."""
    page = open_page("#/now", prepare=Wire(DEAF))
    start = page.url.split("#")[0]
    expect(page.locator(".lamp b")).to_have_text("live")
    for letter, screen, keys, leads_to in (
        ("u", "Usage", "] ]", "usage?by=principal"),
        ("u", "Usage", "t t", "usage"),
        ("u", "Usage", "b Escape", "usage"),
        ("p", "Rules", "] ]", "rules/suggestions"),
        ("p", "Rules", "] [", "rules/explain"),
        ("h", "Health", "m m", "health/incidents"),
        ("h", "Health", "w t", "health?only=unwell&as=table"),
        ("t", "Tasks", "+ Escape", "tasks"),
    ):
        page.keyboard.press("g")
        page.keyboard.press(letter)
        link = page.get_by_role("link", name=screen, exact=True)
        expect(link).to_have_attribute("aria-current", "page")
        expect(page.locator("main h1").first).to_be_attached()
        for key in keys.split():
            page.keyboard.press(key)
        expect(page).to_have_url(f"{start}#/{leads_to}")


def test_keys_on_a_run_add_up(open_page: OpenPage, operator: blocking.BlockingClient) -> None:
    """Views, rows and what opens them; failures, too, whose place the daemon has to be asked for."""
    calls = "\n/then\n".join('/call read_file {"path": "gone.md"}' for _ in range(3))
    run = operator.start_run(f"Look\n{calls}\n/then\n/say ok")
    operator.wait_run(run.run_id)
    failed = [hit.seq for hit in operator.find_in_tape(run.run_id, marks=["failure"]).hits]
    wire = Wire(DEAF)
    page = open_page(f"#/run/{run.run_id}", prepare=wire)
    expect(page.get_by_role("option").first).to_be_visible()
    for key in ("v", "v", "Home", "j", "j", "Enter"):
        page.keyboard.press(key)
    expect(page).to_have_url(f"{page.url.split('#')[0]}#/run/{run.run_id}/seq/2?view=raw&open=1")
    wire.hold()
    page.keyboard.press("e")
    page.keyboard.press("e")
    wire.release()
    expect(page).to_have_url(
        f"{page.url.split('#')[0]}#/run/{run.run_id}/seq/{failed[1]}?view=raw&open=1"
    )


def test_the_question_after_the_next(
    open_page: OpenPage, operator: blocking.BlockingClient
) -> None:
    """`n` twice is the third card."""
    first, _, third = [asked_to_write(operator, f"notes/{at}.md") for at in range(3)]
    page = open_page(f"#/inbox/{first.approval_id}", prepare=Wire(DEAF))
    expect(page.get_by_role("article", name="Question write_file")).to_be_focused()
    page.keyboard.press("n")
    page.keyboard.press("n")
    expect(page).to_have_url(f"{page.url.split('#')[0]}#/inbox/{third.approval_id}")


def test_what_is_typed_slowly_stays(open_page: OpenPage, operator: blocking.BlockingClient) -> None:
    """No field loses what is in it when the page is drawn before it was sent."""
    run = operator.start_run("Hello").run_id
    operator.wait_run(run)
    page = open_page("#/now")
    start = page.url.split("#")[0]
    for address, label in (
        ("memory", "Search the memory"),
        ("runs", "Find by title"),
        ("sessions", "Find a conversation"),
        ("session/new", "Message"),
        ("health", "Find an actor"),
        ("rules/explain", "Arguments, a JSON object"),
        ("rules/tokens", "Name"),
        ("usage?budget=new", "Limit, in dollars"),
        ("tasks/new", "Message of each run"),
        (f"run/{run}", "Search this tape, or : and a number"),
    ):
        page.goto(f"{start}#/{address}")
        expect(page.get_by_label(label, exact=True)).to_be_visible()
        for field in page.locator(FIELDS).all():
            field.fill("12")
            page.evaluate(DRAW)
            assert (address, "12") == (address, field.input_value())
