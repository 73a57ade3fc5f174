"""The card of a question: nothing by accident, nothing unseen, and the truth after the answer.

Each refusal has its control beside it: the same card answers as soon as the cause of the refusal is gone.
"""

import json
from typing import TYPE_CHECKING, Any

from palyra.client import blocking
from tests.console.conftest import PHONE, OpenPage, looks
from tests.console.hands import asked, asked_to_write, check_access, expect
from tests.console.wire import Wire

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from palyra.core.journal.records import ApprovalRecord


LONG_LINES = 420


def ask(
    operator: blocking.BlockingClient, path: str = "notes/plan.md", lines: int = 3
) -> "ApprovalRecord":
    """Start a run that asks about a file of so many lines; its question."""
    return asked_to_write(operator, path, "".join(f"line {at}\n" for at in range(lines)))


def state_of(operator: blocking.BlockingClient, question: "ApprovalRecord") -> str:
    """What has become of it."""
    return str(operator.get_approval(question.approval_id).state)


def deny(operator: blocking.BlockingClient, question: "ApprovalRecord") -> None:
    """Deny it beside the page."""
    operator.resolve_approval(question.approval_id, "deny", question.digest)


def arm(page: "Page", key: str = "a") -> None:
    """Arm by keyboard, as soon as the card accepts it."""
    word = {"a": "allow", "d": "deny"}[key]
    expect(page.get_by_role("article")).to_be_focused()
    expect(page.locator(f".card .decide .button:has(kbd:text-is('{key}'))")).to_be_enabled()
    while page.locator("article.card").get_attribute("data-armed") != word:
        page.keyboard.press(key)


def answered(page: "Page") -> Any:
    """The words on an answered card."""
    return expect(page.locator(".card .answer .calm-word"))


def test_a_deny_takes_its_reason_along(
    open_page: OpenPage, operator: blocking.BlockingClient
) -> None:
    """Reason, d and Enter deny, by keys alone; letters in the reason answer nothing."""
    question = ask(operator)
    page = open_page(f"#/inbox/{question.approval_id}")
    expect(page.get_by_role("article")).to_be_focused()
    page.keyboard.press("r")
    expect(page.get_by_label("Reason of a deny")).to_be_focused()
    page.keyboard.type("a day too d early")
    page.keyboard.press("Enter")
    assert state_of(operator, question) == "pending"
    page.keyboard.press("Escape")
    arm(page, "d")
    page.keyboard.press("Enter")
    answered(page).to_have_text("Denied by operator")
    assert operator.get_approval(question.approval_id).reason == "a day too d early"


def test_only_real_and_deliberate_keys_answer(
    open_page: OpenPage, operator: blocking.BlockingClient
) -> None:
    """Early, repeated, synthetic and other keys answer nothing; the same keys of a person do."""
    question = ask(operator)
    page = open_page(f"#/inbox/{question.approval_id}", prepare=lambda page: page.clock.install())
    card = page.locator("article.card")
    expect(card).to_be_focused()
    expect(page.locator(".file")).to_be_visible()
    arm(page)

    page.keyboard.press("y")  # any other key disarms
    expect(card).not_to_have_attribute("data-armed", "allow")
    page.keyboard.press("Enter")
    synthetic = """(keys) => {
        const card = document.querySelector("article.card");
        for (const key of keys) card.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true}));
    }"""
    page.evaluate(synthetic, ["a", "Enter", "d", "Enter"])
    expect(card).not_to_have_attribute("data-armed", "allow")

    page.keyboard.down("a")  # armed by the first press
    page.keyboard.down("Enter")
    answered(page).to_have_text("Allowed once by operator")
    second = ask(operator, "notes/second.md")
    page.goto(f"{page.url.split('#')[0]}#/inbox/{second.approval_id}")
    expect(card).to_contain_text("notes/second.md")
    for _ in range(40):  # both keys are held: these are repeats
        page.keyboard.down("a")
        page.keyboard.down("Enter")
    page.keyboard.up("a")
    page.keyboard.up("Enter")
    assert state_of(operator, second) == "pending"

    arm(page)
    page.keyboard.press("Enter")
    answered(page).to_have_text("Allowed once by operator")
    assert state_of(operator, second) == "allowed"


def test_keys_before_the_card_stood_still_are_refused(
    open_page: OpenPage, operator: blocking.BlockingClient
) -> None:
    """With the clock of the page held, no number of keys arms; half a second later the first one does."""
    question = ask(operator)
    page = open_page("#/inbox", prepare=lambda page: page.clock.install())
    expect(page.locator(".file")).to_be_visible()
    page.clock.pause_at(page.evaluate("Date.now() / 1000 + 2"))
    other = ask(operator, "notes/other.md")
    page.evaluate(f"location.hash = '#/inbox/{other.approval_id}'")
    while not page.locator(".file", has_text="notes/other.md").count():
        page.clock.run_for(20)
    page.clock.run_for(40)
    for _ in range(5):
        page.keyboard.press("a")
        page.keyboard.press("Enter")
    page.clock.run_for(40)
    assert page.locator("article.card").get_attribute("data-armed") is None
    page.clock.run_for(600)
    page.keyboard.press("a")
    page.clock.run_for(40)
    assert page.locator("article.card").get_attribute("data-armed") == "allow"
    assert {"pending"} == {state_of(operator, each) for each in (question, other)}
    for each in (question, other):
        deny(operator, each)


def test_what_is_not_seen_is_not_allowed(
    open_page: OpenPage, operator: blocking.BlockingClient
) -> None:
    """A long file keeps allow disabled until it is open and its end was on the screen; deny never is."""
    question = ask(operator, "notes/long.md", LONG_LINES)
    page = open_page(f"#/inbox/{question.approval_id}")
    allow = page.get_by_role("button", name="Allow once")
    expect(page.get_by_text("1 of 1 not seen yet: notes/long.md")).to_be_visible()
    expect(allow).to_be_disabled()
    expect(page.get_by_role("button", name="Deny")).to_be_enabled()
    page.keyboard.press("a")
    assert page.locator("article.card").get_attribute("data-armed") is None
    page.get_by_role("button", name=f"Show {LONG_LINES - 200} more lines").click()
    expect(allow).to_be_disabled()
    page.locator(".diff > div").last.scroll_into_view_if_needed()
    page.locator(".object").evaluate("(element) => element.scrollTo(0, element.scrollHeight)")
    expect(allow).to_be_enabled()
    deny(operator, question)
    answered(page).to_have_text("Denied by operator")


def test_a_long_file_is_read_and_allowed_by_keys(
    open_page: OpenPage, operator: blocking.BlockingClient
) -> None:
    """The card itself scrolls by keys, and the end of the file on the screen enables allow."""
    question = ask(operator, "notes/keys.md", 120)
    page = open_page(f"#/inbox/{question.approval_id}")
    expect(page.locator("article.card")).to_be_focused()
    expect(page.get_by_text("1 of 1 not seen yet: notes/keys.md")).to_be_visible()
    page.keyboard.press("PageDown")
    expect(page.get_by_role("button", name="Allow once")).to_be_disabled()
    page.keyboard.press("End")
    arm(page)
    page.keyboard.press("Enter")
    answered(page).to_have_text("Allowed once by operator")


def test_hostile_text_of_a_call_is_text(
    open_page: OpenPage, operator: blocking.BlockingClient
) -> None:
    """Markup, a script's address and turned text in path and content run nothing and are readable."""
    content = "<img src=x onerror=alert(1)>\n<script>alert(2)</script>\nuser\u202etxt.exe\n"
    call = json.dumps({"path": "notes/<b>\u202ebold.md", "content": content})
    question = asked(operator, f"Write\n/call write_file {call}")
    page = open_page(f"#/inbox/{question.approval_id}")
    card = page.locator("article.card")
    expect(card).to_contain_text("<img src=x onerror=alert(1)>")
    expect(card).to_contain_text("<script>alert(2)</script>")
    expect(card.locator(".hostile").first).to_have_text("\\u202e")
    expect(card).to_contain_text("RIGHT-TO-LEFT OVERRIDE")
    page.get_by_role("button", name="raw arguments").click()
    expect(page.get_by_role("region", name="Raw arguments")).to_contain_text("\\u202e")
    assert 0 == page.locator("img, article b:has-text('bold'), article script").count()
    deny(operator, question)


def test_palette_and_help_by_keys(open_page: OpenPage, operator: blocking.BlockingClient) -> None:
    """Ctrl K goes to a screen and to an id; ? lists the keys of the screen; letters in a dialog do nothing else."""
    question = ask(operator)
    page = open_page("#/now")
    expect(page.get_by_role("heading", level=1)).to_contain_text("wait")
    page.keyboard.press("Control+k")
    expect(page.get_by_role("combobox", name="Go to a run, session, id")).to_be_focused()
    page.keyboard.type(question.approval_id)
    page.keyboard.press("Enter")
    expect(page.locator("article.card")).to_be_focused()
    page.keyboard.press("?")
    help_ = page.get_by_role("dialog", name="Keys")
    expect(help_).to_contain_text("Arm deny")
    page.keyboard.press("d")
    page.keyboard.press("Escape")
    expect(help_).to_have_count(0)
    assert page.locator("article.card").get_attribute("data-armed") is None
    page.keyboard.press("g")
    page.keyboard.press("n")
    expect(page).to_have_url(page.url.split("#")[0] + "#/now")
    deny(operator, question)


def test_a_question_of_the_model_is_answered_by_keys(
    open_page: OpenPage, operator: blocking.BlockingClient
) -> None:
    """A choice by its number, any text by the field: the model gets the words; without them nothing is armed."""

    def asks(**arguments: Any) -> "ApprovalRecord":
        return asked(operator, f"Ask\n/call ask_user {json.dumps(arguments)}")

    chosen = asks(question="Which port?", choices=["8080", "9090\u202e", "a third"])
    page = open_page(f"#/inbox/{chosen.approval_id}")
    expect(page.get_by_role("article")).to_be_focused()
    expect(page.locator(".obstacle")).to_contain_text("Choose one of the answers")
    page.keyboard.press("a")
    assert page.locator("article.card").get_attribute("data-armed") is None
    page.keyboard.press("2")
    expect(page.get_by_role("radio", name="9090")).to_be_checked()
    arm(page)
    page.keyboard.press("Enter")
    answered(page).to_have_text("Answered by operator")
    assert operator.get_approval(chosen.approval_id).reason == "9090\u202e"

    free = asks(question="Which name?")
    page.goto(f"{page.url.split('#')[0]}#/inbox/{free.approval_id}")
    expect(page.get_by_role("region", name="question")).to_contain_text("Which name?")
    expect(page.get_by_role("article", name=free.approval_id[-8:])).to_be_focused()
    page.keyboard.press("r")
    page.keyboard.type("a d <b>Ada</b>")
    page.keyboard.press("Escape")
    arm(page)
    page.keyboard.press("Enter")
    answered(page).to_have_text("Answered by operator")
    assert operator.get_approval(free.approval_id).reason == "a d <b>Ada</b>"


def test_a_word_of_a_command_stays_one_column(
    open_page: OpenPage, operator: blocking.BlockingClient
) -> None:
    """Hostile characters of a word are spelled out in its place; none looks like the number of another word."""
    call = json.dumps({"argv": ["ls", "a\u202eb c", "d"]})
    question = asked(operator, f"Ask\n/call shell {call}")
    page = open_page(f"#/inbox/{question.approval_id}")
    words = page.locator(".words li")
    expect(words).to_have_text(["ls", r"a\u202eb c", "d"])
    lefts = "(all) => all.map((each) => each.firstElementChild.getBoundingClientRect().left)"
    assert 1 == len(set(words.evaluate_all(lefts)))
    deny(operator, question)


def test_a_form_of_the_model_is_filled_in_by_keys(
    open_page: OpenPage, operator: blocking.BlockingClient
) -> None:
    """Required fields hold the answer back; the model gets the values with their types."""
    form = {
        "type": "object",
        "properties": {
            "days": {"type": "integer", "minimum": 1},
            "where": {"type": "string", "enum": ["here", "there"]},
            "note": {"type": "string"},
            "constructor": {"type": "string"},
        },
        "required": ["days", "where"],
    }
    text = f"Ask\n/call ask_user {json.dumps({'question': 'How?', 'form': form})}"
    question = asked(operator, text)
    page = open_page(f"#/inbox/{question.approval_id}")
    expect(page.locator(".file").first).to_be_visible()
    expect(page.get_by_role("article")).to_be_focused()
    page.keyboard.press("End")
    expect(page.locator(".obstacle")).to_contain_text("Fill in: days, where.")
    page.keyboard.press("r")
    expect(page.get_by_label("days")).to_be_focused()
    expect(page.get_by_label("constructor")).to_have_value("")
    page.keyboard.type("3")
    page.keyboard.press("Tab")
    page.get_by_label("where").select_option("there")
    page.get_by_role("article").focus()
    arm(page)
    page.keyboard.press("Enter")
    answered(page).to_have_text("Answered by operator")
    kept = json.loads(operator.get_approval(question.approval_id).reason or "")
    assert kept == {"days": 3, "where": "there"}


def test_a_budget_question_shows_the_account(
    open_page: OpenPage, operator: blocking.BlockingClient
) -> None:
    """The card has account, spent, limit and what the next call takes; allowing lifts it for this run."""
    operator.set_budget(
        "tiny", scope="session", metric="tokens", window="day", hard=900, action="ask"
    )
    try:
        question = asked(operator, "beyond")
    finally:
        operator.delete_budget("tiny")
    page = open_page(f"#/inbox/{question.approval_id}")
    facts = page.locator(".file")
    for shown in (f"session {question.session_id}", "0 tokens", "900 tokens", "takes at least"):
        expect(facts).to_contain_text(shown)
    arm(page)
    page.keyboard.press("Enter")
    answered(page).to_have_text("Lifted by operator")
    assert operator.wait_run(question.run_id).phase == "done"


def test_a_wider_scope_needs_a_stronger_gesture(
    open_page: OpenPage, operator: blocking.BlockingClient
) -> None:
    """For the session, the first Enter only goes to the amber button; the second one answers."""
    question = ask(operator, "notes/wide.md")
    page = open_page(f"#/inbox/{question.approval_id}")
    page.get_by_role("radio", name="session").check()
    page.locator("article.card").focus()
    arm(page)
    page.keyboard.press("Enter")
    confirm = page.get_by_role("button", name="Allow for this session")
    expect(confirm).to_be_focused()
    assert state_of(operator, question) == "pending"
    page.keyboard.press("Enter")
    answered(page).to_have_text("Allowed for the session by operator")


def test_the_loser_of_a_race_sees_whose_answer_counts(
    open_page: OpenPage, operator: blocking.BlockingClient
) -> None:
    """Somebody denies while this page, which has not been told yet, allows."""
    question = ask(operator)
    wire = Wire()
    page = open_page(f"#/inbox/{question.approval_id}", prepare=wire)
    arm(page)
    wire.hold()
    deny(operator, question)
    page.keyboard.press("Enter")
    while not wire.params_of("approval.resolve"):
        page.wait_for_timeout(10)
    wire.release()
    answered(page).to_have_text("Denied by operator")
    expect(page.locator(".card .answer")).to_contain_text("yours changed nothing")
    expect(page.locator("#say-now")).to_contain_text("Somebody answered before")


def test_a_digest_that_is_not_the_current_one_answers_nothing(
    open_page: OpenPage, operator: blocking.BlockingClient
) -> None:
    """The daemon refuses it, the card is read again and says so; the answer to the new state counts."""
    question = ask(operator)
    wire = Wire()
    wire.change_request["approval.resolve"] = lambda params: {**params, "digest": "0" * 64}
    page = open_page(f"#/inbox/{question.approval_id}", prepare=wire)
    arm(page)
    page.keyboard.press("Enter")
    expect(page.locator(".card .answer")).to_contain_text("digest_mismatch: nothing was answered")
    assert state_of(operator, question) == "pending"
    while len(wire.params_of("approval.preview")) < 2:  # it is read again
        page.wait_for_timeout(10)
    wire.change_request.clear()
    arm(page)
    page.keyboard.press("Enter")
    answered(page).to_have_text("Allowed once by operator")
    assert wire.params_of("approval.resolve")[-1]["digest"] == question.digest


def test_without_a_preview_only_deny_works(
    open_page: OpenPage, operator: blocking.BlockingClient
) -> None:
    """A preview that fails disables allow and says why; a preview that comes enables it."""
    question = ask(operator)
    wire = Wire()
    wire.change_result["approval.preview"] = lambda message: {
        "jsonrpc": "2.0",
        "id": message["id"],
        "error": {"code": -32000, "message": "lost", "data": {"code": "internal"}},
    }
    page = open_page(f"#/inbox/{question.approval_id}", prepare=wire)
    expect(page.get_by_text("The object cannot be shown")).to_be_visible()
    allow = page.get_by_role("button", name="Allow once")
    expect(allow).to_be_disabled()
    expect(page.get_by_role("button", name="Deny")).to_be_enabled()
    wire.change_result.clear()
    page.get_by_role("button", name="Try again").click()
    expect(allow).to_be_enabled()
    deny(operator, question)


def test_the_queue_changes_and_the_card_does_not(
    open_page: OpenPage, operator: blocking.BlockingClient
) -> None:
    """An answer goes to the question that is shown, whatever was first in the queue by then."""
    first, second = ask(operator, "notes/1.md"), ask(operator, "notes/2.md")
    page = open_page(f"#/inbox/{second.approval_id}")
    arm(page)
    deny(operator, first)
    expect(page.locator(".queue ul").first.get_by_text("notes/1.md")).to_have_count(0)
    expect(page.locator("article.card")).to_have_attribute("data-armed", "allow")
    page.keyboard.press("Enter")
    answered(page).to_have_text("Allowed once by operator")
    assert ["denied", "allowed"] == [state_of(operator, each) for each in (first, second)]


def test_a_double_tap_answers_nothing(
    open_page: OpenPage, operator: blocking.BlockingClient
) -> None:
    """The second tap of a double tap falls on Back; a tap on the confirmation elsewhere answers."""
    question = ask(operator)
    page = open_page(f"#/inbox/{question.approval_id}", size=PHONE)
    allow = page.get_by_role("button", name="Allow once")
    expect(allow).to_be_enabled()
    box = allow.bounding_box()
    while not page.locator("#confirm").count():
        allow.click()
    back = page.get_by_role("button", name="Back").bounding_box()
    assert box is not None
    assert back is not None
    assert back["x"] <= box["x"] + box["width"] / 2 <= back["x"] + back["width"]
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    expect(page.locator("#confirm")).to_have_count(0)
    assert state_of(operator, question) == "pending"
    allow.click()
    page.wait_for_timeout(350)  # a tap within 300 ms counts as a double tap
    page.locator("#confirm").click()
    answered(page).to_have_text("Allowed once by operator")


@looks
def test_axe_finds_no_violation(
    open_page: OpenPage, operator: blocking.BlockingClient, scheme: str, size: dict[str, int]
) -> None:
    """Now, the queue and a card with a diff pass axe in both themes and at both widths."""
    waiting = operator.list_approvals(pending_only=True)
    question = waiting[0] if waiting else ask(operator, "notes/axe.md")
    for address in ("#/now", "#/inbox", f"#/inbox/{question.approval_id}"):
        page = open_page(address, size=size, scheme=scheme)
        expect(page.get_by_text("notes/", exact=False).first).to_be_attached()
        if question.approval_id in address:
            expect(page.get_by_role("button", name="Allow once")).to_be_enabled()
        check_access(page)


def test_an_observer_reads_and_cannot_answer(
    open_page: OpenPage, operator: blocking.BlockingClient
) -> None:
    """Both answers are disabled with the scope that is missing; the same card of an approver answers."""
    question = ask(operator)
    observer = operator.create_token(principal="eve", role="observer", name="eve").token
    page = open_page(f"#/inbox/{question.approval_id}", token=observer)
    expect(page.get_by_text("This role lacks the scope approvals:write")).to_be_visible()
    expect(page.get_by_role("button", name="Allow once")).to_be_disabled()
    expect(page.get_by_role("button", name="Deny")).to_be_disabled()
    expect(page.get_by_role("article")).to_be_focused()
    page.keyboard.press("d")
    page.keyboard.press("Enter")
    assert state_of(operator, question) == "pending"
    approver = operator.create_token(principal="ann", role="approver", name="ann").token
    page = open_page(f"#/inbox/{question.approval_id}", token=approver)
    arm(page)
    page.keyboard.press("Enter")
    answered(page).to_have_text("Allowed once by ann")
    page.keyboard.press("g")
    page.keyboard.press("n")
    expect(page.get_by_role("heading", name="Open runs")).to_be_visible()
