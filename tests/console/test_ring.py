"""Ring on this device: the switch in the inbox, and the worker that it registers.

Chromium without a window has no push service, so what the browser's own part would answer is stubbed;
permission, worker, policies and the daemon are real.
"""

from palyra.client import blocking
from tests.console.conftest import PHONE, OpenPage
from tests.console.hands import expect
from tests.console.wire import Wire
from tests.e2e.daemon_process import DaemonProcess

ENDPOINT = "https://fcm.googleapis.com/fcm/send/abc"
STUB = """
let kept = null;
PushManager.prototype.getSubscription = async () => kept;
PushManager.prototype.subscribe = async function ({applicationServerKey, userVisibleOnly}) {
  if (!userVisibleOnly || applicationServerKey.length !== 65) throw new Error("bad options");
  kept = {endpoint: "ENDPOINT", options: {applicationServerKey: applicationServerKey.buffer},
    unsubscribe: async () => { kept = null; return true; }};
  return kept;
};
""".replace("ENDPOINT", ENDPOINT)


def script(permission: str) -> str:
    """Stub the push service, and what the person says to the browser's question."""
    return f"""{STUB}
Object.defineProperty(Notification, "permission", {{get: () => "{permission}"}});
Notification.requestPermission = async () => "{permission}";
"""


def test_the_switch_registers_the_worker(
    open_page: OpenPage, operator: blocking.BlockingClient, daemon: DaemonProcess
) -> None:
    """On: the worker runs for the page's folder alone and keeps nothing, and the daemon has the address; off: it has not."""
    page = open_page(
        "#/inbox", prepare=lambda page: page.add_init_script(script("granted")), size=PHONE
    )
    line = page.locator(".ring")
    expect(line).to_contain_text("This device does not ring")
    line.get_by_role("button", name="ring on this device").click()
    expect(line).to_contain_text("This device rings")
    assert ENDPOINT == operator.get_push_key().endpoint
    worker = page.evaluate(
        """async () => { const {active, scope} = await navigator.serviceWorker.ready;
        return {address: active.scriptURL, scope, kept: await caches.keys()}; }"""
    )
    base = f"http://127.0.0.1:{daemon.port}/"
    assert {"address": f"{base}console-worker.js", "scope": base, "kept": []} == worker
    line.get_by_role("button", name="do not ring").click()
    expect(line).to_contain_text("This device does not ring")
    assert not operator.get_push_key().endpoint


def test_what_is_not_possible_is_said(
    open_page: OpenPage, operator: blocking.BlockingClient
) -> None:
    """Blocked by the browser, and no push in it; neither has a button."""
    line = open_page("#/inbox", prepare=Wire(script("denied"))).locator(".ring")
    expect(line).to_contain_text("The browser blocks notifications")
    expect(line.get_by_role("button")).to_have_count(0)
    nothing = Wire("delete globalThis.PushManager")
    without = open_page("#/inbox", prepare=nothing).locator(".ring")
    expect(without).to_contain_text("needs https or loopback")
    expect(without.get_by_role("button")).to_have_count(0)
    assert not operator.get_push_key().endpoint


def test_a_push_is_shown_as_fixed_words(open_page: OpenPage) -> None:
    """The worker shows "A question waits", whatever a push contains; it intercepts and keeps nothing."""
    page = open_page("#/inbox", prepare=Wire(script("granted")))
    source = page.evaluate("async () => (await fetch('console-worker.js')).text()")
    assert '{ body: "A question waits"' in source
    for word in ('"fetch"', "caches", "event.data", "indexedDB", "importScripts"):
        assert word not in source
