"""What a hostile page, another port, a false name, a reader of logs and a thief of one half can do: nothing.

Each test has a control that shows that the same thing succeeds for the one who may.
"""

from collections.abc import Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from palyra.client import blocking
from palyra.errors import Unauthenticated
from tests.console.logins import ask, log_in
from tests.console.other_port import other_port
from tests.e2e.daemon_process import DaemonProcess, running
from tests.optional import reason_without

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

Operator = blocking.BlockingClient
pytestmark = pytest.mark.real
LOGIN_PATH = "/v1/console/login"
TRY_EVAL = """() => new Promise((done) => setTimeout(() => {
  try { eval("globalThis.ran = true"); done("ran"); } catch (error) { done(error.name); }
}))"""
TRY_MARKUP = """() => {
  try { document.body.innerHTML = "<b>x</b>"; return "ran"; } catch (error) { return error.name; }
}"""
TRY_SCRIPT = """() => {
  const script = document.createElement("script");
  try { script.textContent = "globalThis.inline = true"; } catch { return "refused"; }
  document.head.append(script);
  return globalThis.inline ? "ran" : "refused";
}"""
# All that a page of another port can try: read, write, connect, embed and import.
TRY_FROM_OUTSIDE = """async ({port, code}) => {
  const base = `http://127.0.0.1:${port}`;
  const outcome = (attempt) => attempt.then((told) => told, () => "refused");
  const post = (type, mode) => fetch(`${base}/v1/console/login`, {
    method: "POST", mode, credentials: "include", headers: {"Content-Type": type},
    body: JSON.stringify({code}),
  }).then((answer) => mode === "no-cors" ? "sent unread" : `read ${answer.status}`);
  const socket = (protocols) => new Promise((done) => {
    const ws = new WebSocket(`ws://127.0.0.1:${port}/v1/ws`, protocols);
    ws.onopen = () => done("open");
    ws.onerror = () => done("refused");
  });
  const element = (name, address) => new Promise((done) => {
    const node = Object.assign(document.createElement(name), {src: address, type: "module"});
    node.onload = () => done("loaded");
    node.onerror = () => done("refused");
    document.body.append(node);
  });
  const page = await fetch(base, {mode: "no-cors"}).then((answer) => answer.type, () => "refused");
  return {
    json: await outcome(post("application/json", "cors")),
    form: await outcome(post("text/plain", "no-cors")),
    read: await outcome(fetch(base).then(() => "read")),
    page,
    socket: await socket(["palyra.v1"]),
    script: await element("script", `${base}/console/x/main.js`),
    picture: await element("img", base),
  };
}"""


@pytest.fixture
def code(operator: Operator) -> Callable[[], str]:
    """Make a code of the operator's."""
    return lambda: operator.make_console_link().url.partition("#login=")[2]


@pytest.fixture(scope="module")
def anchor(browser: "Browser", daemon: DaemonProcess) -> Generator["Page"]:
    """A page beside the console, in whose profile the tests log in one after another."""
    made = browser.new_context()
    page = made.new_page()
    page.goto(f"http://127.0.0.1:{daemon.port}/healthz")
    yield page
    made.close()


@pytest.fixture
def context(anchor: "Page") -> Generator["BrowserContext"]:
    """A browser without any login."""
    yield anchor.context
    for page in anchor.context.pages:
        if page != anchor:
            page.close()
    anchor.context.clear_cookies()
    anchor.evaluate("localStorage.clear()")


def is_live(page: "Page") -> None:
    """Wait until the page is connected."""
    expect(page.locator(".lamp b")).to_have_text("live")


def wants_login(page: "Page") -> None:
    """Wait until the page asks for a login."""
    expect(page.get_by_role("heading", level=1)).to_have_text("This page needs a login link")


def expect(what: Any) -> Any:
    """Playwright's assertion."""
    return pytest.importorskip("playwright.sync_api", reason=reason_without("playwright")).expect(
        what
    )


# --- without a browser


def test_a_code_logs_in_once(daemon: DaemonProcess, code: Callable[[], str]) -> None:
    """The second one to come with a code is refused; the cookie is closed to scripts and other sites."""
    given = code()
    first, second = log_in(daemon, given), log_in(daemon, given)
    assert (200, 401) == (first.status, second.status)
    cookie = first.headers["set-cookie"]
    assert cookie.startswith(f"palyra_{daemon.port}=")
    for word in ("HttpOnly", "SameSite=Strict", "Path=/v1/"):
        assert word in cookie.split("; ")
    assert "Domain" not in cookie
    assert "no-store" == first.headers["cache-control"]
    assert first.cookie not in first.body
    assert "set-cookie" not in second.headers
    assert given not in second.body


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": None},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "http://evil.example"},
        {"Origin": "https://127.0.0.1"},
        {"Sec_Fetch_Site": "same-site"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Host": "evil.example"},
        {"Host": None},
    ],
)
def test_only_the_own_page_logs_in(
    daemon: DaemonProcess, code: Callable[[], str], headers: dict[str, str | None]
) -> None:
    """A request from elsewhere is refused before its code is looked at; then the own page uses it."""
    given = code()
    refused = log_in(daemon, given, **headers)
    assert refused.status in {400, 403}
    assert "set-cookie" not in refused.headers
    assert given not in refused.body
    assert 200 == log_in(daemon, given).status


def test_a_login_is_a_json_post(daemon: DaemonProcess, code: Callable[[], str]) -> None:
    """What a form or a link can send changes nothing, and a code in an address is refused unseen."""
    given = code()
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        assert 415 == log_in(daemon, given, Content_Type=kind).status
    assert 405 == ask(daemon, "GET", LOGIN_PATH).status
    for path in (f"{LOGIN_PATH}?code={given}", f"/?login={given}", f"/{given}"):
        refused = ask(daemon, "GET", path)
        assert 400 == refused.status
        assert given not in refused.body
    for body in (
        "",
        "[]",
        "{}",
        '{"code": 1}',
        '{"code": ""}',
        "\udcff".encode(errors="replace").decode(),
    ):
        own = {"Origin": f"http://127.0.0.1:{daemon.port}", "Content_Type": "application/json"}
        assert 400 == ask(daemon, "POST", LOGIN_PATH, body, **own).status
    assert 200 == log_in(daemon, given).status


def test_a_false_name_gets_nothing(daemon: DaemonProcess) -> None:
    """A name that DNS was made to point here sees neither the page nor a file of it."""
    index = ask(daemon, "GET", "/", Accept="text/html")
    assert 200 == index.status
    script = index.body.partition('src="')[2].partition('"')[0]
    assert 200 == ask(daemon, "GET", f"/{script}").status
    for path in ("/", f"/{script}"):
        assert 403 == ask(daemon, "GET", path, Host=f"evil.example:{daemon.port}").status


def test_the_half_of_the_page_is_no_token(daemon: DaemonProcess, code: Callable[[], str]) -> None:
    """Neither half is a bearer token for a client or for a page of HTTP."""
    login = log_in(daemon, code())
    page, cookie = login.fields["token"], login.cookie
    for half in (page, cookie):
        with pytest.raises(Unauthenticated), blocking.connect(daemon.ws_url, token=half):
            pass
        assert 401 == ask(daemon, "GET", "/metrics", Authorization=f"Bearer {half}").status
    assert 200 == ask(daemon, "GET", "/metrics", Authorization=f"Bearer {daemon.token}").status


def test_no_secret_is_in_any_file(daemon: DaemonProcess, operator: Operator) -> None:
    """Neither log, journal nor tape has a code or a half, also when a model is told one."""
    link = operator.make_console_link()
    given = link.url.partition("#login=")[2]
    login = log_in(daemon, given)
    late = operator.make_console_link().url
    told = operator.start_run(f"open {late}")
    operator.wait_run(told.run_id)
    exported = str(operator.export_tape(told.run_id))
    secrets = [given, login.cookie, login.fields["token"], late.partition("#login=")[2]]
    token_id = next(each.token_id for each in operator.list_tokens() if each.name == "web console")
    paths = [path for path in Path(daemon.home).rglob("*") if path.is_file()]
    contents = {path: path.read_bytes() for path in [*paths, daemon.log]}
    assert any(token_id.encode() in data for data in contents.values())  # the control
    for secret in secrets:
        assert [] == [path for path, data in contents.items() if secret.encode() in data]
        assert secret not in exported


def test_too_many_wrong_codes_close_the_login(tmp_path: Path) -> None:
    """Guessing ends with 429 after five codes, for the right one as well."""
    with (
        running(tmp_path) as own,
        blocking.connect(own.ws_url, token=own.token, timeout_s=60) as client,
    ):
        given = client.make_console_link().url.partition("#login=")[2]
        statuses = [log_in(own, f"wrong {number}").status for number in range(6)]
        assert [401, 401, 401, 401, 401, 429] == statuses
        closed = log_in(own, given)
        assert (429, True) == (closed.status, 0 < int(closed.headers["retry-after"]) <= 60)


@pytest.mark.parametrize("port", ["", ":443"])
def test_a_login_at_the_public_address(tmp_path: Path, port: str) -> None:
    """Links begin with it, its page logs in, and the cookie is below its path and for TLS alone."""
    public = {"Host": "palyra.example", "Origin": "https://palyra.example"}
    address = f"https://palyra.example{port}/Agent"
    with (
        running(tmp_path, PALYRA_SERVER__PUBLIC_URL=f"{address}/") as own,
        blocking.connect(own.ws_url, token=own.token, timeout_s=60) as client,
    ):
        links = [client.make_console_link().url.split("#login=") for _ in range(3)]
        foreign = log_in(own, links[0][1], **public | {"Origin": "https://evil.example"})
        there, here = log_in(own, links[1][1], **public), log_in(own, links[2][1])
    assert {f"{address}/"} == {page for page, _ in links}
    assert (403, 200, 200) == (foreign.status, there.status, here.status)
    cookies = [each.headers["set-cookie"].split("; ") for each in (there, here)]
    assert [True, False] == ["Secure" in each for each in cookies]
    assert [True, False] == ["Path=/Agent/v1/" in each for each in cookies]


# --- in Chromium


def test_a_link_opens_the_page_and_leaves_no_trace(
    context: "BrowserContext", daemon: DaemonProcess, operator: Operator
) -> None:
    """The code is gone from the address and the history; the login survives a reload."""
    page = context.new_page()
    link = operator.make_console_link().url
    page.goto(link)
    is_live(page)
    assert "#login" not in page.url
    page.reload()
    is_live(page)
    assert "#login" not in page.evaluate("location.href")
    assert 0 == page.evaluate("document.cookie.length")
    (cookie,) = context.cookies(f"http://127.0.0.1:{daemon.port}/v1/ws")
    assert (True, "Strict", "/v1/") == (cookie["httpOnly"], cookie["sameSite"], cookie["path"])
    assert [] == context.cookies(f"http://127.0.0.1:{daemon.port}/")


def test_a_link_in_an_open_page_logs_in(
    context: "BrowserContext", daemon: DaemonProcess, operator: Operator
) -> None:
    """A link that is pasted into the tab of the console works, though only the fragment changes."""
    page = context.new_page()
    page.goto(f"http://127.0.0.1:{daemon.port}/#/now")
    wants_login(page)
    page.goto(operator.make_console_link().url)
    is_live(page)
    assert "#login" not in page.url


def test_another_port_can_do_nothing(
    context: "BrowserContext", daemon: DaemonProcess, operator: Operator
) -> None:
    """A page of another port reads, writes, connects and embeds nothing, with the cookie in the jar."""
    page = context.new_page()
    page.goto(operator.make_console_link().url)
    is_live(page)
    link = operator.make_console_link().url
    with other_port() as port:
        other = context.new_page()
        other.goto(f"http://127.0.0.1:{port}/")
        asked = {"port": daemon.port, "code": link.partition("#login=")[2]}
        found = other.evaluate(TRY_FROM_OUTSIDE, asked)
        assert {"refused"} == set(found.values()), found  # "form" was sent, and refused there
        assert "ran" == other.evaluate(TRY_EVAL)  # the control of the next test
        assert "ran" == other.evaluate(TRY_MARKUP)
    again = context.new_page()
    again.goto(link)  # the control: its code was not used
    is_live(again)


def test_the_page_runs_no_text(
    context: "BrowserContext", daemon: DaemonProcess, operator: Operator
) -> None:
    """The policy is on the page, and refuses eval, markup from text and inline scripts."""
    page = context.new_page()
    answer = page.goto(operator.make_console_link().url)
    is_live(page)
    assert answer is not None
    assert "script-src 'self'" in answer.headers["content-security-policy"]
    assert "EvalError" == page.evaluate(TRY_EVAL)
    assert "TypeError" == page.evaluate(TRY_MARKUP)
    assert "refused" == page.evaluate(TRY_SCRIPT)
    assert page.evaluate("globalThis.ran === undefined && globalThis.inline === undefined")


@pytest.mark.parametrize("half", ["cookie", "storage"])
def test_one_half_in_a_browser_opens_nothing(
    context: "BrowserContext", operator: Operator, half: str
) -> None:
    """The page asks for a login when either half is gone, and connects with both."""
    page = context.new_page()
    page.goto(operator.make_console_link().url)
    is_live(page)
    page.reload()
    is_live(page)  # the control
    if half == "cookie":
        page.evaluate("localStorage.clear()")
    else:
        context.clear_cookies()
    page.reload()
    wants_login(page)


def test_a_revoked_login_closes_its_page(context: "BrowserContext", operator: Operator) -> None:
    """Revoking ends the open page at once and no other one."""
    assert context.browser is not None
    kept, page = context.new_page(), context.browser.new_context().new_page()
    before = {each.token_id for each in operator.list_tokens()}
    page.goto(operator.make_console_link().url)
    is_live(page)
    (own,) = [each for each in operator.list_tokens() if each.token_id not in before]
    kept.goto(operator.make_console_link().url)
    is_live(kept)
    operator.revoke_token(own.token_id)
    wants_login(page)
    page.reload()
    wants_login(page)
    is_live(kept)
    page.context.close()


def test_a_pasted_link_logs_in(
    context: "BrowserContext", daemon: DaemonProcess, operator: Operator
) -> None:
    """The field takes the link of another machine, says why it refuses, and keeps nothing."""
    page = context.new_page()
    page.goto(f"http://127.0.0.1:{daemon.port}/#/inbox")
    wants_login(page)
    field = page.get_by_label("paste it here")
    for wrong, why in [
        ("http://127.0.0.1/", "is no link to a console"),
        (f"http://127.0.0.1/#login=pal_{'x' * 43}", "unknown, used or expired"),
    ]:
        field.fill(wrong)
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert").filter(has_text=why)).to_be_visible()
        expect(field).to_have_value("")
    field.fill(f" {operator.make_console_link().url}\n")
    page.keyboard.press("Enter")
    is_live(page)
    assert page.url.endswith("#/inbox")


def test_an_old_link_ends_no_login(context: "BrowserContext", operator: Operator) -> None:
    """A page that is logged in stays so when a used link is opened, whoever sent it."""
    page = context.new_page()
    link = operator.make_console_link().url
    page.goto(link)
    is_live(page)
    again = context.new_page()
    again.goto(link)
    is_live(again)
    assert "#login" not in again.url


def test_a_login_has_the_role_of_its_link(context: "BrowserContext", operator: Operator) -> None:
    """An observer's page is told its role, and the daemon refuses it what the role may not do."""
    page = context.new_page()
    page.goto(operator.make_console_link(role="observer", principal="oscar").url)
    is_live(page)
    expect(page.locator(".who")).to_contain_text("oscar, observer")
    token_id = next(each.token_id for each in operator.list_tokens() if each.principal == "oscar")
    page.get_by_role("button", name="log out").click()
    wants_login(page)
    (ended,) = [each for each in operator.list_tokens() if each.token_id == token_id]
    assert ended.revoked_ms is not None
