"""The screen Rules: what would be decided, which grants hold, who may connect; revoked by keyboard."""

import re
from typing import Any

import pytest

from palyra.client import blocking
from palyra.errors import Forbidden
from tests.console.conftest import OpenPage, looks
from tests.console.hands import asked_to_write, check_access, expect, tab_to
from tests.console.wire import Wire
from tests.e2e.daemon_process import DaemonProcess

HOSTILE = "<img src=x onerror=alert(1)>\u202etxt"
EXPLAIN = "#/rules/explain?tool=write_file&args=%7B%22path%22%3A%22notes%2Fa.md%22%2C%22content%22%3A%22x%22%7D"


def grant(operator: blocking.BlockingClient, path: str) -> str:
    """A grant that writes this file for a quarter of an hour; its id."""
    found = asked_to_write(operator, path)
    done = operator.resolve_approval(
        found.approval_id, "allow", found.digest, scope="timeboxed", ttl_ms=900_000
    )
    assert done.grant_id is not None
    return done.grant_id


def test_rules_are_explained_and_what_holds_is_revoked_by_keyboard(
    open_page: OpenPage, operator: blocking.BlockingClient, daemon: DaemonProcess
) -> None:
    """Keys explain a call, end a grant, and revoke a token, whose open connection ends."""
    kept = grant(operator, "notes/kept.md")
    token = operator.create_token(principal="ci", role="client", name="build")
    page = open_page("#/now")
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    page.keyboard.press("g")
    page.keyboard.press("p")
    expect(page.get_by_role("heading", name="Explain a verdict")).to_be_visible()
    page.keyboard.press("/")
    expect(page.get_by_label("Tool")).to_be_focused()
    page.keyboard.type("shell")
    page.keyboard.press("Escape")
    tab_to(page, page.get_by_label("Arguments, a JSON object"))
    page.keyboard.type('{"command": "git -c core.pager=x log"}')
    page.keyboard.press("Enter")
    verdict = page.get_by_role("region", name="Verdict")
    expect(verdict.get_by_role("heading", level=1)).to_contain_text("ask: a person decides")
    expect(verdict).to_contain_text("default/ask")
    expect(verdict).to_contain_text("high")
    page.reload()  # the question is the address
    expect(verdict.get_by_role("heading", level=1)).to_contain_text("ask: a person decides")

    page.keyboard.press("]")
    revoke = page.get_by_role("button", name="Revoke write_file notes/kept.md")
    tab_to(page, revoke)
    page.keyboard.press("Enter")
    assert kept in {each.grant_id for each in operator.list_grants()}  # asked once more
    expect(page.get_by_role("button", name="Revoke it: press again write_file")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_text("No grant is in force.")).to_be_visible()
    assert kept not in {each.grant_id for each in operator.list_grants()}

    page.keyboard.press("[")
    page.keyboard.press("[")  # round, to the tokens
    with blocking.connect(daemon.ws_url, token=token.token, timeout_s=30) as client:
        client.ping()
        tab_to(page, page.get_by_role("button", name="Revoke build of ci"))
        page.keyboard.press("Enter")
        expect(page.get_by_role("button", name="Revoke it: press again build")).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.get_by_role("row", name="build")).to_have_count(0)
        with pytest.raises(Forbidden):
            client.ping()


def test_verdicts_have_their_words_and_errors_their_remedy(open_page: OpenPage) -> None:
    """Allow, ask and deny are said with the policy that decides; bad arguments are named before any call."""
    page = open_page("#/rules/__proto__")  # no tab: the first one
    expect(page.get_by_role("heading", name="Explain a verdict")).to_be_visible()
    page.goto(f"{page.url.split('#')[0]}{EXPLAIN}")
    verdict = page.get_by_role("region", name="Verdict")
    expect(verdict).to_contain_text("Wider ones hold for")
    expect(verdict).to_contain_text("notes/a.md")
    expect(page.get_by_label("Tool")).to_have_value("write_file")
    for path, says in (("/etc/shadow", "deny: it does not run"), ("README.md", "allow: it runs")):
        page.get_by_label("Tool").fill("read_file")
        page.get_by_label("Arguments, a JSON object").fill(f'{{"path": "{path}"}}')
        page.keyboard.press("Enter")
        expect(verdict.get_by_role("heading", level=1)).to_contain_text(says)
    page.get_by_label("Arguments, a JSON object").fill("[1]")
    page.keyboard.press("Enter")
    expect(verdict).to_contain_text("invalid_params")
    expect(verdict).to_contain_text("one JSON object")
    page.get_by_label("Tool").fill("nothing_like_it")
    page.get_by_label("Arguments, a JSON object").fill("{}")
    page.keyboard.press("Enter")
    expect(verdict).to_contain_text("nothing_like_it")


def test_a_token_is_made_shown_once_and_forgotten(
    open_page: OpenPage, operator: blocking.BlockingClient, daemon: DaemonProcess
) -> None:
    """The secret of a new token connects, leaves with the tab, and a link of a login is made beside it."""
    page = open_page("#/rules/tokens")
    expect(page.get_by_role("form", name="Make a token")).to_be_visible()
    page.keyboard.press("c")
    page.keyboard.type("laptop")
    page.keyboard.press("Tab")
    page.keyboard.type("ann")
    page.keyboard.press("Enter")
    secret = page.locator("#made")
    expect(secret).to_contain_text("pal_")
    with blocking.connect(daemon.ws_url, token=secret.inner_text(), timeout_s=30) as client:
        assert (client.welcome.principal, client.welcome.role) == ("ann", "observer")
    assert secret.inner_text() not in page.url
    page.keyboard.press("Escape")
    page.keyboard.press("[")
    page.keyboard.press("]")
    expect(page.get_by_role("row", name="laptop")).to_contain_text("observer")
    expect(secret).to_have_count(0)
    page.get_by_role("button", name="Make a link").press("Enter")
    expect(secret).to_contain_text("#login=")
    assert "laptop" in {each.name for each in operator.list_tokens()}


def test_a_button_that_is_left_is_disarmed(
    open_page: OpenPage, operator: blocking.BlockingClient
) -> None:
    """The second press counts on the armed button alone, and never for a press that no person made."""
    token = operator.create_token(principal="ci", role="client", name="spare")
    page = open_page("#/rules/tokens")
    button = page.get_by_role("button", name="Revoke spare of ci")
    tab_to(page, button)
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.press("Shift+Tab")
    expect(button).to_be_focused()
    button.evaluate("each => (each.click(), each.click())")
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Revoke it: press again spare")).to_be_visible()
    [found] = [each for each in operator.list_tokens() if each.token_id == token.token_id]
    assert found.revoked_ms is None


def test_suggestions_skills_and_agents_show_hostile_words_as_text(
    open_page: OpenPage, operator: blocking.BlockingClient
) -> None:
    """What publishers, models and people named stands as text; what is empty says what would be here."""
    operator.create_agent("scout", instructions=f"Look around. {HOSTILE}")
    wire = Wire()
    page = open_page("#/rules/agents/scout", prepare=wire)
    expect(page.get_by_text("Look around.")).to_contain_text("<img src=x onerror=alert(1)>")
    expect(page.get_by_role("row", name="scout")).to_contain_text("1")
    page.keyboard.press("]")
    expect(page.get_by_text("palyra skills install FILE")).to_be_visible()
    wire.change_result["skill.list"] = _skills
    page.keyboard.press("[")
    page.keyboard.press("]")
    expect(page.get_by_role("row", name="img")).to_contain_text("quarantined")
    wire.change_result["policy.suggest"] = _suggestions
    page.keyboard.press("[")
    page.keyboard.press("[")
    rule = page.get_by_role("region", name="write_file")
    expect(rule).to_contain_text("12 answers in seven runs")
    expect(rule.locator(".hostile").first).to_have_text("\\u202e")
    assert page.locator("main img").count() == 0


def _skills(reply: dict[str, Any]) -> dict[str, Any]:
    """One skill whose publisher is hostile."""
    skill: dict[str, Any] = {
        "id": HOSTILE,
        "version": "1",
        "publisher": HOSTILE,
        "description": HOSTILE,
    }
    skill |= {"public_key": "k", "package_sha256": "00", "state": "quarantined", "tools": []}
    skill |= {"capabilities": [], "granted": [], "installed_ms": 1, "changed_ms": 1}
    return reply | {"result": {"skills": [skill | {"changed_by": "operator"}], "obstacle": ""}}


def _suggestions(reply: dict[str, Any]) -> dict[str, Any]:
    """One rule whose calls are hostile."""
    call: dict[str, Any] = {"run_id": "run_1", "call_id": "call_1", "summary": HOSTILE, "at_ms": 1}
    rule: dict[str, Any] = {
        "suggestion_id": "sug_1",
        "title": "write_file in notes/",
        "principal": "operator",
    }
    rule |= {"agent": "default", "tool": "write_file", "answers": 12, "runs": 7}
    rule |= {"cedar": f"permit({HOSTILE});", "calls": [call]}
    return reply | {"result": {"suggestions": [rule], "proof": {"decisions": 40}, "applied": []}}


def test_what_a_role_may_not_see_names_its_scope(
    open_page: OpenPage, operator: blocking.BlockingClient
) -> None:
    """Tokens are refused with the scope; grants are shown and cannot be revoked."""
    grant(operator, "notes/seen.md")
    observer = operator.create_token(principal="eve", role="observer", name="eve").token
    page = open_page("#/rules/tokens", token=observer)
    expect(page.get_by_text("tokens:read").first).to_be_visible()
    page = open_page("#/rules/grants", token=observer)
    expect(page.get_by_role("button", name="Revoke write_file notes/seen.md")).to_be_disabled()


@looks
def test_axe_finds_no_violation(
    open_page: OpenPage, operator: blocking.BlockingClient, scheme: str, size: dict[str, int]
) -> None:
    """Explain, grants, agents, skills, suggestions and tokens pass axe in both themes and at both widths."""
    grant(operator, f"notes/{scheme}-{size['width']}.md")
    wire = Wire()
    wire.change_result = {"skill.list": _skills, "policy.suggest": _suggestions}
    page = open_page(EXPLAIN, size=size, scheme=scheme, prepare=wire)
    expect(page.get_by_role("region", name="Verdict")).to_contain_text("ask: a person decides")
    for tab in ("explain", "grants", "suggestions", "agents", "skills", "tokens"):
        if tab != "explain":
            page.goto(f"{page.url.split('#')[0]}#/rules/{tab}")
            expect(page.locator(".rules-page > .pad h1")).to_have_text(re.compile(r"\.$"))
        check_access(page)
