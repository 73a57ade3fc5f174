"""Memory, learning and pairings: what is believed and from where, corrected and forgotten by keyboard alone."""

import re
from collections.abc import Generator
from typing import TYPE_CHECKING

import pytest

from palyra.client import blocking
from palyra.core.journal.records import Lineage
from palyra.errors import Forbidden
from tests.console.conftest import PHONE, OpenPage, looks
from tests.console.hands import check_access, expect, tab_to
from tests.e2e.daemon_process import DaemonProcess, running

if TYPE_CHECKING:
    from playwright.sync_api import Page


LESSON = "I always prefer answers in haiku form."
HOSTILE = "Wiki: the port is in \u202efig.nimda <img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Generator[DaemonProcess]:
    """A daemon that learns in mode review."""
    with running(tmp_path_factory.mktemp("memory"), PALYRA_LEARNING__MODE="review") as process:
        yield process


def press(page: "Page", *keys: str) -> None:
    """Press these keys one after another."""
    for key in keys:
        page.keyboard.press(key)


def test_a_memory_is_found_traced_corrected_and_forgotten_by_keys(
    open_page: OpenPage, operator: blocking.BlockingClient
) -> None:
    """Two steps lead from a memory to its event; correcting supersedes nothing silently; forgetting says what goes."""
    run = operator.start_run("The gateway port is 7000")
    operator.wait_run(run.run_id)
    operator.add_memory("The staging port is 8080", kind="fact")
    added = operator.add_memory(
        "The staging port is 9090", kind="fact", lineage=[Lineage(run_id=run.run_id, first_seq=2)]
    )
    operator.add_memory(HOSTILE, trust="external_untrusted")
    page = open_page()
    expect(page.get_by_role("navigation", name="Screens")).to_be_visible()
    press(page, "g", "m")
    expect(page.get_by_text("of principal operator")).to_be_visible()
    press(page, "/")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.type("which port has staging?")
    press(page, "Enter")
    hit = page.get_by_role("link", name="The staging port is 9090")
    expect(hit).to_contain_text(re.compile(r"\d\.\d{3} = lexical \d\.\d{3}"))
    press(page, "j")
    expect(hit).to_be_focused()
    press(page, "Enter")
    expect(page).to_have_url(re.compile(f"#/memory/{added.memory_id}"))
    item = page.get_by_role("complementary")
    expect(item).to_contain_text("superseded")
    expect(item).to_contain_text("message of operator")
    expect(item).to_contain_text("The gateway port is 7000")

    tab_to(page, page.get_by_role("link", name=re.compile(r"^event 2")).first)
    press(page, "Enter")
    expect(page).to_have_url(re.compile(rf"#/run/{run.run_id}/seq/2$"))
    page.go_back()

    expect(page.get_by_role("button", name="Correct")).to_be_visible()
    press(page, "c")
    expect(page.get_by_role("textbox", name="Corrected text")).to_be_focused()
    press(page, "End")
    page.keyboard.type(" since May")
    tab_to(page, page.get_by_role("button", name=re.compile(r"Save the correction")).first)
    press(page, "Enter")
    expect(item.get_by_role("heading", name="The staging port is 9090 since May")).to_be_visible()
    assert operator.get_memory(added.memory_id).text == "The staging port is 9090 since May"
    press(page, "p")
    expect(page.get_by_role("button", name="Unpin")).to_be_visible()

    tab_to(page, page.get_by_role("button", name=re.compile(r"Forget …")).first)
    press(page, "Enter")
    confirm = page.get_by_role("button", name="Forget two items")
    expect(confirm).to_be_focused()
    expect(item).to_contain_text("The staging port is 8080")
    assert operator.get_memory(added.memory_id).pinned
    press(page, "Enter")
    expect(page).to_have_url(re.compile(r"#/memory\?"))
    expect(page.get_by_role("link", name="The staging port")).to_have_count(0)
    page.goto(f"{page.url.split('#')[0]}#/memory/{added.memory_id}")
    expect(item).to_contain_text("not_found")


def test_a_held_key_forgets_nothing(open_page: OpenPage, operator: blocking.BlockingClient) -> None:
    """The press that shows what would go is not the one that confirms it, however long it lasts; what is gone says so."""
    memory = operator.add_memory("The old port is 6000", kind="fact").memory_id
    page = open_page(f"#/memory/{memory}")
    page.get_by_role("button", name="Forget …").focus()
    page.keyboard.down("Enter")
    confirm = page.get_by_role("button", name="Forget one item")
    expect(confirm).to_be_focused()
    page.keyboard.down("Enter")
    page.keyboard.up("Enter")
    expect(confirm).to_be_focused()
    assert operator.get_memory(memory).text == "The old port is 6000"
    press(page, "Enter")
    expect(confirm).to_have_count(0)
    for gone in (memory, "mem_x"):
        page.goto(f"{page.url.split('#')[0]}#/memory/{gone}")
        expect(page.get_by_role("complementary")).to_contain_text(f"no memory '{gone}'")


def test_hostile_memories_are_text_and_observers_see_none(
    open_page: OpenPage, operator: blocking.BlockingClient
) -> None:
    """Direction-turning characters are spelled out; a role without memory:read is told the scope."""
    found = operator.add_memory(HOSTILE, trust="external_untrusted")
    page = open_page(f"#/memory/{found.memory_id}", size=PHONE)
    expect(page.get_by_role("heading", name="fig.nimda")).to_contain_text(
        "\\u202efig.nimda <img src=x onerror=alert(1)>"
    )
    assert page.locator("img").count() == 0
    box = page.get_by_role("complementary").bounding_box()
    assert box is not None
    assert box["width"] == PHONE["width"]
    page.get_by_role("link", name="All memories").click()
    expect(page.get_by_role("link", name="fig.nimda")).to_be_visible()
    observer = operator.create_token(principal="eve", role="observer", name="eve").token
    page = open_page("#/memory", token=observer)
    expect(page.get_by_text("forbidden", exact=True)).to_be_visible()
    expect(page.get_by_text("memory:read")).to_be_visible()


def test_what_runs_would_teach_is_accepted_and_rejected_by_keys(
    open_page: OpenPage, operator: blocking.BlockingClient
) -> None:
    """Each candidate shows its words and where they were said; accepted it is remembered, rejected it is not."""

    def teach(text: str) -> str:
        run = operator.start_run(text)
        operator.wait_run(run.run_id)
        (one,) = operator.reflect(run.run_id).candidate_ids
        return one

    for other in operator.list_candidates(states=["proposed"]).candidates:  # of another test
        operator.reject_candidate(other.candidate_id)
    first, second = teach(LESSON), teach("Our staging database is called Persephone.")
    page = open_page("#/memory")
    expect(page.get_by_text("statements from runs wait")).to_be_visible()
    page.get_by_role("main").get_by_role("link", name="Inbox").press("Enter")
    wish = page.get_by_role("listitem").filter(has=page.get_by_text(LESSON, exact=True))
    expect(wish.locator("q")).to_contain_text("haiku")
    proof = operator.get_candidate(first).evidence[0]
    expect(wish.get_by_role("link", name=f"event {proof.seq}")).to_have_attribute(
        "href", f"#/run/{proof.run_id}/seq/{proof.seq}"
    )
    for text, word, state, one in (
        (LESSON, "Accept", "applied", first),
        ("Persephone", "Reject", "rejected", second),
    ):
        row = page.get_by_role("listitem").filter(has_text=text)
        tab_to(page, row.get_by_role("button", name=word))
        press(page, "Enter")
        expect(row).to_have_count(0)
        assert state == operator.get_candidate(one).state
    expect(page.get_by_text("Nothing to review")).to_be_visible()
    assert [LESSON] == [each.text for each in operator.list_memories(kinds=["preference"]).items]


def test_a_sender_is_paired_by_the_code_and_only_by_it(
    open_page: OpenPage, daemon: DaemonProcess, operator: blocking.BlockingClient
) -> None:
    """A wrong code is refused beside the request; the right one pairs; a second sender is refused."""
    token = operator.create_token(principal="bridge", role="client", name="bridge").token
    operator.set_channel("chat", principal="bridge")
    codes = {}
    with blocking.connect(daemon.ws_url, token=token, timeout_s=30) as bridge:
        for sender in ("sam", "eve"):
            with pytest.raises(Forbidden) as caught:
                bridge.start_run("hi", channel="chat", conversation_id="7", sender=sender)
            codes[sender] = str((caught.value.details or {})["code"])
    page = open_page("#/inbox?tab=pairings")
    code = page.get_by_role("textbox", name="Code that sam got")
    expect(code).to_be_visible()
    row = page.get_by_role("listitem").filter(has_text="sam")
    code.fill("WRONG")
    code.press("Enter")
    expect(row.get_by_role("alert")).to_be_visible()
    code.fill(codes["sam"])
    code.press("Enter")
    expect(code).to_have_count(0)
    page.get_by_role("button", name="Refuse").press("Enter")
    expect(page.get_by_text("No sender wants to pair.")).to_be_visible()
    states = {each.sender: each.state for each in operator.list_pairings().pairings}
    assert {"sam": "paired", "eve": "revoked"} == states


@looks
def test_axe_finds_no_violation(
    open_page: OpenPage, operator: blocking.BlockingClient, scheme: str, size: dict[str, int]
) -> None:
    """The list, hits with their parts and one item pass axe."""
    found = operator.add_memory("The build takes four minutes", kind="fact")
    for address in ("#/memory?q=build", f"#/memory/{found.memory_id}", "#/inbox?tab=learning"):
        page = open_page(address, size=size, scheme=scheme)
        expect(
            page.get_by_role("heading", name="Change")
            .or_(page.get_by_text("Nothing to review"))
            .or_(page.get_by_text("lexical 0").first)
            .first
        ).to_be_visible()
        check_access(page)
