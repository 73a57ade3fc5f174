"""Speed of the console: first paint, a tape of 100 000 events, a token on its way to the screen, 1 000 open runs.

Prints one JSON line; `load` is the machine's load average before and after.  Milliseconds are medians in Chromium against a real daemon on this machine.
`open_ms` is from the change of the address to the rows of the tape, read and painted; `end_ms`,
`jump_ms` and `search_ms` are from the key to the row.  `token_ms` is from the arrival of a message with
a piece of text to the frame after it was put on the page; the way through the daemon is in
`bench/stream.py`.  `paint_ms` is the browser's first contentful paint of a reload, `now_ms` the time to the first line of Now.
`open_runs_cpu` is the share of one core that the page's main thread takes by its CPU clock while Now is in sight and that many
runs are open.  Needs `pip install -e .[browser]` and Chromium.
"""

import json
import os
import shutil
import statistics
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

from palyra.client import blocking
from tests.console.long_tape import NEEDLE, RUN, fill
from tests.e2e.daemon_process import DaemonProcess

LENGTH = 100_000
ROUNDS = 7
TOKENS = 200
OPEN_RUNS = 1_000
WATCHED_S = 20
SIZE: Any = {"width": 1280, "height": 800}

# Seconds until a row of that seq is there, read, and a frame has gone by.
REACH = """async ([seq, act]) => {
    const frame = () => new Promise((done) => requestAnimationFrame(done));
    const began = performance.now();
    act.startsWith("#") ? (location.hash = act) : null;
    for (;;) {
        const list = document.querySelector("tape-list");
        if (list?.querySelector(`#row-${seq} .seq`) && !list.querySelector(".waiting")) break;
        await frame();
        if (performance.now() - began > 20_000) throw new Error(`no row ${seq}`);
    }
    await frame();
    return performance.now() - began;
}"""
# Milliseconds from the navigation to the first contentful paint, and to the first line of Now.
PAINT = """async () => {
    const heading = () => document.querySelector(".now h1");
    while (!heading()) await new Promise((done) => requestAnimationFrame(done));
    const now = performance.now();
    return [performance.getEntriesByName("first-contentful-paint")[0].startTime, now];
}"""
# Notes the arrival of text at the socket, and the frame after it was appended.
WATCH = """
window.tokens = [];
let arrived;
const Plain = WebSocket;
window.WebSocket = class extends Plain {
    constructor(...given) {
        super(...given);
        this.addEventListener("message", ({data}) => {
            if (data.includes('"kind":"text"') && data.includes('"delta"')) arrived ??= performance.now();
        });
    }
};
new MutationObserver((changes) => {
    if (arrived === undefined || !changes.some(({target}) => target.parentElement?.matches?.("live-text"))) return;
    const from = arrived;
    arrived = undefined;
    requestAnimationFrame(() => window.tokens.push(performance.now() - from));
}).observe(document, {characterData: true, subtree: true});
"""


def measure(page: Page, client: blocking.BlockingClient) -> dict[str, float]:
    """Return the medians."""
    took: dict[str, list[float]] = {"open": [], "end": [], "jump": [], "search": []}
    for at in range(ROUNDS):
        page.evaluate("location.hash = '#/now'")
        page.get_by_role("heading", level=1).wait_for()
        took["open"].append(page.evaluate(REACH, [0, f"#/run/{RUN}?view=raw"]))
        to_end = f"#/run/{RUN}/seq/{LENGTH - 1}?view=raw"
        took["end"].append(page.evaluate(REACH, [LENGTH - 1, to_end]))
        seq = 20_011 + 9_000 * at
        took["jump"].append(page.evaluate(REACH, [seq, f"#/run/{RUN}/seq/{seq}?view=raw"]))
        [hit, *_] = client.find_in_tape(RUN, text=NEEDLE).hits
        search = f"#/run/{RUN}?view=raw&q={NEEDLE.replace(' ', '%20')}"
        took["search"].append(page.evaluate(REACH, [hit.seq, search]))
    found = {f"{name}_ms": round(statistics.median(times), 1) for name, times in took.items()}
    run = client.start_run(f"Stream\n/delay 20\n/tokens {TOKENS}")
    page.evaluate("(to) => { location.hash = to; }", f"#/run/{run.run_id}")
    client.wait_run(run.run_id)
    tokens = sorted(page.evaluate("window.tokens"))
    found["token_ms"] = round(statistics.median(tokens), 1)
    found["token_p99_ms"] = round(tokens[int(len(tokens) * 0.99) - 1], 1)
    found["tokens"] = len(tokens)
    found["rows"] = page.get_by_role("option").count()
    return found


def measure_paint(page: Page) -> dict[str, float]:
    """Return the medians of reloads."""
    rounds = []
    for _ in range(ROUNDS):
        page.reload()
        rounds.append(page.evaluate(PAINT))
    paint, now = (statistics.median(times) for times in zip(*rounds, strict=True))
    return {"paint_ms": round(paint, 1), "now_ms": round(now, 1)}


def measure_open_runs(page: Page, client: blocking.BlockingClient) -> dict[str, float]:
    """Return the share of a core while so many runs are open, and how many are."""
    for _ in range(OPEN_RUNS):
        client.start_run("Wait\n/delay 3600000\n/say late")
    page.evaluate("location.hash = '#/now'")
    page.get_by_text("1 000 runs are open").or_(page.get_by_text("runs are open")).first.wait_for()
    metrics = page.context.new_cdp_session(page)
    metrics.send("Performance.enable", {"timeDomain": "threadTicks"})

    def busy_s() -> float:
        found = metrics.send("Performance.getMetrics")["metrics"]
        return float(next(each["value"] for each in found if each["name"] == "TaskDuration"))

    before = busy_s()
    page.wait_for_timeout(WATCHED_S * 1_000)
    share = (busy_s() - before) / WATCHED_S
    return {"open_runs": OPEN_RUNS, "open_runs_cpu": round(share, 4)}


def main() -> None:
    load = [os.getloadavg()[0]]
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        daemon = DaemonProcess(Path(name))
        daemon.home.mkdir(parents=True)
        fill(daemon.home, LENGTH)
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        try:
            daemon.start()
            page = browser.new_page(viewport=SIZE)
            page.add_init_script(WATCH)
            page.add_init_script(f"localStorage.setItem('palyra /', {json.dumps(daemon.token)})")
            page.goto(f"http://127.0.0.1:{daemon.port}/#/now")
            with blocking.connect(daemon.ws_url, token=daemon.token, timeout_s=60) as client:
                found = measure_paint(page) | measure(page, client)
                found |= measure_open_runs(page, client)
                load.append(os.getloadavg()[0])
                print(json.dumps({"load": load} | found))
        finally:
            browser.close()
            daemon.end()


if __name__ == "__main__":
    main()
