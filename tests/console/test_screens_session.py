"""Session and Sessions: a conversation is begun, continued, steered and answered in the page, by keys alone."""

import json
from base64 import b64decode
from pathlib import Path
from typing import TYPE_CHECKING

from palyra.client import blocking
from tests.console.conftest import OpenPage, looks
from tests.console.hands import asked_to_write, check_access, expect
from tests.console.wire import Wire
from tests.e2e.daemon_process import DaemonProcess

if TYPE_CHECKING:
    from playwright.sync_api import Page


HOSTILE = (
    "<img src=x onerror=alert(1)> \u202efdp.exe [x](javascript:alert(1)) [y](https://a.example/)"
)
PIXEL = b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)


def write(page: "Page", text: str) -> None:
    """Write a message with `c`, and send it by keys."""
    page.keyboard.press("c")
    field = page.get_by_role("textbox", name="Message")
    expect(field).to_be_focused()
    page.keyboard.insert_text(text)
    expect(page.get_by_role("button", name="Send")).to_be_enabled()
    page.keyboard.press("Control+Enter")
    expect(field).to_have_value("")
    page.keyboard.press("Escape")


def begin(operator: blocking.BlockingClient, text: str) -> tuple[str, str]:
    """Start a run beside the page; its run and its session."""
    run = operator.start_run(text)
    return run.run_id, run.session_id


def test_from_nothing_to_the_first_approved_change(
    open_page: OpenPage, daemon: DaemonProcess
) -> None:
    """A new user is led from the empty page to a written file, with buttons and keys that are in sight."""
    page = open_page("#/now")
    page.get_by_role("link", name="Write the first message").click()
    page.get_by_role("button", name="Try it: have it write a file").click()
    expect(page.get_by_role("textbox", name="Message")).to_be_focused()
    page.keyboard.press("Control+Enter")
    question = page.get_by_role("group", name="Question write_file")
    expect(question).to_contain_text("hello.md")
    question.get_by_role("link", name="Review").click()
    card = page.get_by_role("article", name="Question write_file")
    expect(card).to_be_focused()
    expect(page.get_by_role("button", name="Allow once")).to_be_enabled()
    while card.get_attribute("data-armed") != "allow":
        page.keyboard.press("a")
    page.keyboard.press("Enter")
    page.get_by_role("link", name="The conversation").click()
    expect(page.get_by_role("article", name="Answer of default")).to_contain_text(
        "I wrote hello.md."
    )
    expect(page.locator("strong").filter(has_text="hello.md")).to_be_visible()
    assert (daemon.workspace / "hello.md").read_text().startswith("# Hello")


def test_a_message_of_another_page_and_the_stream_of_its_answer_appear(
    open_page: OpenPage, operator: blocking.BlockingClient
) -> None:
    """Two pages and a program share one conversation; a page that comes late sees the whole answer at its end."""
    run, session = begin(operator, "First\n/say one")
    operator.wait_run(run)
    one, two = open_page(f"#/session/{session}"), open_page(f"#/session/{session}")
    for page in (one, two):
        expect(page.get_by_role("article", name="Answer of default")).to_contain_text("one")
    write(one, "Slowly\n/delay 40\n/tokens 60\n/say **end**")
    expect(two.locator(".message.live")).to_be_visible()
    for page in (one, two):
        expect(page.get_by_role("article", name="Answer of default").last).to_contain_text(
            "end", timeout=30_000
        )
        expect(page.locator(".message.live")).to_have_count(0)
        expect(page.get_by_role("article").last).to_contain_text("answered")
    texts = [page.get_by_role("article").last.inner_text() for page in (one, two)]
    assert texts[0] == texts[1]
    started = operator.start_run("From a program\n/say three", session_id=session)
    operator.wait_run(started.run_id)
    for page in (one, two):
        expect(page.get_by_role("article", name="Answer of default").last).to_contain_text("three")
    expect(one.locator("#say p").filter(has_text="default answers: three")).to_have_count(1)


def test_a_lost_connection_costs_no_text_and_doubles_none(
    open_page: OpenPage, operator: blocking.BlockingClient
) -> None:
    """While an answer arrives the page loses its connection: it says so, keeps the draft, and ends with the answer whole."""
    run, session = begin(operator, "First\n/say one")
    operator.wait_run(run)
    wire = Wire()
    page = open_page(f"#/session/{session}", prepare=wire)
    field = page.get_by_role("textbox", name="Message")
    expect(page.get_by_role("article", name="Answer of default")).to_contain_text("one")
    started = operator.start_run("Long\n/delay 30\n/tokens 80\n/say end", session_id=session)
    expect(page.locator(".message.live")).to_be_visible()
    field.fill("my draft")
    wire.drop()
    operator.wait_run(started.run_id)
    expect(page.get_by_role("article", name="Answer of default").last).to_contain_text("end")
    expect(page.locator(".message.live")).to_have_count(0)
    expect(field).to_have_value("my draft")
    expect(page.get_by_role("article", name="Answer of default")).to_have_count(2)
    expect(page.get_by_role("article", name="Message of operator")).to_have_count(2)
    while len(wire.params_of("connect")) < 2:
        page.wait_for_timeout(10)
    page.reload()
    expect(field).to_have_value("my draft")


def test_steer_queue_and_cancel(open_page: OpenPage, operator: blocking.BlockingClient) -> None:
    """While a run answers, a message steers it or waits its turn, as chosen; the queue is paused, ordered and emptied."""
    run, session = begin(operator, "Work\n/delay 600000\n/say late")
    page = open_page(f"#/session/{session}")
    expect(page.get_by_role("button", name="Cancel …")).to_be_visible()
    write(page, "Mind the umlauts")
    expect(page.get_by_role("article").filter(has_text="Mind the umlauts")).to_contain_text(
        "while it worked"
    )
    page.get_by_label("While a run answers").select_option("followup")
    for text in ("second\n/say 2", "third\n/say 3"):
        write(page, text)
    side = page.get_by_role("complementary", name="About this session")
    expect(side.get_by_role("button", name="Drop: third")).to_be_visible()
    side.get_by_role("button", name="Earlier: third").click()
    expect(side.get_by_role("listitem").first).to_contain_text("third")
    side.get_by_role("button", name="Drop: second").click()
    expect(side.get_by_role("button", name="Drop: second")).to_have_count(0)
    side.get_by_role("button", name="Pause").click()
    expect(side).to_contain_text("Paused")
    page.get_by_role("button", name="Cancel …").click()
    page.get_by_role("button", name="Really cancel").click()
    expect(page.get_by_role("log")).to_contain_text("Cancelled by operator")
    assert operator.wait_run(run).state == "cancelled"
    side.get_by_role("button", name="Go on").click()
    expect(page.get_by_role("article", name="Answer of default").last).to_contain_text("3")


def test_a_question_of_the_model_is_answered_in_place(
    open_page: OpenPage, operator: blocking.BlockingClient
) -> None:
    """A choice by keys is the answer; the other page sees at once that it was given."""
    asked = json.dumps({"question": "Which one?", "choices": ["short", "long"]})
    run, session = begin(operator, f"Ask\n/call ask_user {asked}\n/then\n/say Thanks")
    page, other = open_page(f"#/session/{session}"), open_page(f"#/session/{session}")
    form = page.get_by_role("form", name="Question of default")
    expect(form).to_contain_text("Which one?")
    expect(other.get_by_role("form", name="Question of default")).to_be_visible()
    page.keyboard.press("n")
    expect(page.get_by_role("radio", name="short")).to_be_focused()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    for each in (page, other):
        expect(each.get_by_role("form", name="Question of default")).to_have_count(0)
        expect(each.get_by_role("article", name="Answer of default").last).to_contain_text("Thanks")
    [approval] = operator.list_approvals(run_id=run)
    assert (approval.state, approval.reason) == ("allowed", "long")


def test_references_and_files_show_their_price_before_they_are_sent(
    open_page: OpenPage, operator: blocking.BlockingClient, daemon: DaemonProcess, tmp_path: Path
) -> None:
    """Each reference has its trust and its tokens, a broken one its reason; a text file goes along as code, a picture as one."""
    (daemon.workspace / "notes.md").write_text("word " * 200)
    for name, content in (
        ("a.txt", b"see @file:notes.md\n```\n"),
        ("p.png", PIXEL),
        ("b.bin", b"\0\xff"),
    ):
        (tmp_path / name).write_bytes(content)
    page = open_page("#/session/new")
    page.get_by_role("textbox", name="Message").fill(
        "Compare @file:notes.md and @file:nope.md please\n/say ok"
    )
    table = page.locator(".refs")
    expect(table.get_by_role("row", name="@file:notes.md")).to_contain_text("workspace")
    expect(table.get_by_role("row", name="@file:nope.md")).to_contain_text("no such file")
    expect(page.get_by_text("tokens with this message")).to_be_visible()
    page.get_by_label("Attach pictures or text files").set_input_files(
        [str(tmp_path / name) for name in ("a.txt", "p.png", "b.bin")]
    )
    files = page.get_by_role("list", name="Files")
    expect(files).to_contain_text("neither a picture")
    expect(page.get_by_role("button", name="Send")).to_be_disabled()
    page.get_by_role("button", name="Remove b.bin").click()
    page.get_by_role("button", name="Send").click()
    message = page.get_by_role("article", name="Message of operator")
    expect(message).to_contain_text("p.png, image/png")
    expect(message).to_contain_text("nope.md: no such file")
    [run] = operator.list_runs(session_id=page.url.rpartition("/")[2]).runs
    [sent] = [
        json.loads(event.data)
        for event in operator.read_tape(run.run_id).events
        if event.kind == "message.received"
    ]
    assert sent["text"].endswith("a.txt:\n````\nsee @file:notes.md\n```\n````")
    assert [each["type"] for each in sent["attachments"]] == ["image"]


def test_hostile_text_runs_nothing_and_links_ask_twice(
    open_page: OpenPage, operator: blocking.BlockingClient
) -> None:
    """Titles, messages, answers and calls are text; a link names its address and opens at the second click only."""
    call = json.dumps({"path": f"{HOSTILE}.md"})
    run, session = begin(operator, f"{HOSTILE}\n/say {HOSTILE}\n/call read_file {call}")
    operator.wait_run(run)
    page = open_page(f"#/session/{session}")
    answer = page.get_by_role("article", name="Answer of default").first
    expect(answer).to_contain_text("<img src=x onerror=alert(1)>")
    expect(answer.locator(".hostile").first).to_have_text("\\u202e")
    expect(answer).to_contain_text("(https://a.example/)")
    assert page.locator("main img").count() == 0
    assert [link.get_attribute("href") for link in answer.locator("a.link-out").all()] == [
        "https://a.example/"
    ]
    pages = len(page.context.pages)
    for how in ({"click_count": 2}, {"button": "middle"}, {"modifiers": ["Control"]}, {}):
        page.reload()
        answer.locator("a.link-out").click(**how)
        assert page.evaluate("document.querySelector('a.link-out').title").startswith("Click again")
        assert pages == len(page.context.pages)
    kerned = "[...document.body.querySelectorAll('*')].filter((e) => getComputedStyle(e).fontKerning !== 'none').map((e) => e.className)"
    assert [] == page.evaluate(kerned)  # a long line is laid out in linear time
    page.goto(page.url.split("#")[0] + "#/sessions")
    expect(page.get_by_role("link", name="onerror").first).to_be_visible()
    assert page.locator("main img").count() == 0


def test_the_mode_is_widened_by_two_acts_and_a_grant_is_revoked(
    open_page: OpenPage, operator: blocking.BlockingClient
) -> None:
    """`accept_edits` is confirmed on another button; a grant of the session is listed until it is revoked."""
    question = asked_to_write(operator, "notes/a.md")
    run, session = question.run_id, question.session_id
    operator.resolve_approval(question.approval_id, "allow", question.digest, scope="session")
    operator.wait_run(run)
    page = open_page(f"#/session/{session}")
    side = page.get_by_role("complementary", name="About this session")
    side.get_by_role("button", name="accept_edits", exact=True).click()
    assert operator.get_session(session).mode == "ask"
    side.get_by_role("button", name="Accept edits from now on").click()
    expect(page.get_by_text("mode accept_edits")).to_be_visible()
    assert operator.get_session(session).mode == "accept_edits"
    side.get_by_role("button", name="plan").click()
    expect(page.get_by_text("mode plan")).to_be_visible()
    side.get_by_role("button", name="Revoke write_file").click()
    expect(side.get_by_role("button", name="Revoke write_file")).to_have_count(0)
    page.keyboard.press("r")
    page.get_by_label("Title of the conversation").fill("Notes of May")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Notes of May")).to_be_visible()
    assert operator.get_session(session).title == "Notes of May"


def test_sessions_by_who_waits_for_whom(
    open_page: OpenPage, operator: blocking.BlockingClient
) -> None:
    """The roster is grouped, found by text in the address, opened and archived; the first line says whether somebody is needed."""
    asked = json.dumps({"question": "Why?"})
    begin(operator, f"Zebra asks\n/call ask_user {asked}")
    run, _ = begin(operator, "Zebra is done\n/say ok")
    operator.wait_run(run)
    page = open_page("#/sessions?q=zebra")
    expect(page.get_by_role("heading", level=1)).to_have_text("Two conversations found")
    expect(page.get_by_role("region", name="Needs you")).to_contain_text("Zebra asks")
    done = page.get_by_role("region", name="Done")
    expect(done).to_contain_text("Zebra is done")
    done.get_by_role("button", name="Archive").click()
    done.get_by_role("button", name="Really archive").click()
    expect(done).to_have_count(0)
    page.reload()
    expect(page.get_by_role("searchbox")).to_have_value("zebra")
    page.keyboard.press("Enter")
    expect(page.get_by_role("form", name="Question of default")).to_be_visible()
    page.get_by_label("Answer", exact=True).last.fill("Because")
    page.keyboard.press("Enter")
    page.go_back()
    expect(page.get_by_role("heading", level=1)).to_have_text("One conversation found")


def test_gone_forbidden_and_lost(open_page: OpenPage, operator: blocking.BlockingClient) -> None:
    """A session that is not there says so; an observer reads and cannot write, and is told the scope."""
    run, session = begin(operator, "Hello\n/say hi")
    operator.wait_run(run)
    page = open_page("#/session/ses_nothing")
    expect(page.locator(".talk")).to_contain_text("not_found")
    observer = operator.create_token(principal="eve", role="observer", name="reader").token
    page = open_page(f"#/session/{session}", token=observer)
    expect(page.get_by_role("article", name="Answer of default")).to_contain_text("hi")
    expect(page.get_by_text("lacks the scope runs:write")).to_be_visible()
    assert page.get_by_role("textbox", name="Message").count() == 0


@looks
def test_axe_finds_no_violation(
    open_page: OpenPage, operator: blocking.BlockingClient, scheme: str, size: dict[str, int]
) -> None:
    """A new and a full conversation with a question, and the roster, pass axe in both themes and at both widths."""
    asked = json.dumps({"question": "Why?", "choices": ["a", "b"]})
    text = f'Read @file:nope.md\n/say # Head\n/say | a | b |\n/say |---|---|\n/say | 1 | `x` |\n/call read_file {{"path": "nope.md"}}\n/call ask_user {asked}'
    run, session = begin(operator, text)
    operator.start_run("Behind", session_id=session)
    operator.wait_run(run, until="attention")
    for address, name in (
        (f"#/session/{session}", "Question of default"),
        ("#/session/new", "Composer"),
        ("#/sessions", ""),
    ):
        page = open_page(address, size=size, scheme=scheme)
        expect(
            page.get_by_role("form", name=name) if name else page.locator(".talks").first
        ).to_be_visible()
        check_access(page)
