"""Screenshots of the console for the documents: `make shots` writes docs/pictures again.

A real daemon with the scripted model works on a small project; what is seen is what it did.  Each
screen is taken in both themes.  Pillow, where it is installed, makes the files a third as large; what
is kept in the repository has to be made with it.
"""

import importlib
import itertools
import json
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from palyra.client import blocking
from tests.e2e.daemon_process import DaemonProcess, running

if TYPE_CHECKING:
    from playwright.sync_api import Page

FOLDER = Path(__file__).parents[2] / "docs/pictures"
SIZE = {"width": 1280, "height": 800}
THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
SCREENS = ("now", "inbox", "run", "session", "health")
PICTURES = tuple(f"console-{screen}-{theme}.png" for screen in SCREENS for theme in THEMES)
MOST_BYTES = 120_000

SETTINGS = """[usage]
budgets = [{id = "day", metric = "usd_micros", window = "day", hard = 5_000_000}]
prices = [{model = "scripted", input = "$3.00", output = "$15.00"}]

[healing]
sweep_ms = 200
stuck_ms = 3000

[models]
scripts = "scripts.json"
"""
BEFORE = '''"""How many requests one token may make."""

PER_SECOND = 20
BURST = 40


def is_allowed(count: int, burst: int = BURST) -> bool:
    """Whether this request may go on."""
    return count < burst
'''
AFTER = BEFORE.replace("BURST = 40", "BURST = 60  # the importer sends 55 at once").replace(
    "count < burst", "count <= burst"
)
ASKS = "Where is the rate limit decided, and why does the importer hit it?"
RAISES = "Raise the burst so that the importer fits, and say why in the file"
SCRIPTS: dict[str, list[dict[str, Any]]] = {
    ASKS: [
        {
            "text": "I look for the limit first.",
            "calls": [
                {"tool": "search_text", "arguments": {"query": "BURST", "glob": "**/*.py"}},
                {"tool": "read_file", "arguments": {"path": "gateway/limits.py"}},
                {"tool": "read_file", "arguments": {"path": "gateway/importer.toml"}},
            ],
        },
        {
            "text": "`is_allowed` in **gateway/limits.py** decides it:\n\n"
            "- a token may make `PER_SECOND = 20` requests a second,\n"
            "- and `BURST = 40` at once.\n\n"
            "The importer opens with 55 requests, so the last 15 are refused and tried again a second later."
        },
    ],
    RAISES: [
        {
            "text": "The importer needs 55; I set 60 and note the reason beside it.",
            "calls": [
                {
                    "tool": "write_file",
                    "arguments": {"path": "gateway/limits.py", "content": AFTER},
                }
            ],
        },
        {"text": "Done: `BURST` is 60."},
    ],
    "Summarise the incidents of May": [{"fail": {"class": "quota"}}],
    "Watch the nightly build and report what breaks": [
        {"calls": [{"tool": "list_dir", "arguments": {"path": "gateway"}}]},
        {"delay_ms": 3_600_000, "text": "late"},
    ],
    "Compare the two retry policies": [{"delay_ms": 3_600_000, "text": "late"}],
    "Prepare the release notes": [
        {
            "calls": [
                {
                    "tool": "ask_user",
                    "arguments": {
                        "question": "Which changes go in?",
                        "choices": ["only visible ones", "all of them"],
                    },
                }
            ]
        }
    ],
}


def furnish(daemon: DaemonProcess) -> None:
    """Write the project, the settings and what the model says."""
    project = daemon.workspace / "gateway"
    project.mkdir(parents=True)
    (project / "limits.py").write_text(BEFORE, encoding="utf-8")
    (project / "importer.toml").write_text("batch = 55\nretry_s = 1\n", encoding="utf-8")
    daemon.home.mkdir(parents=True, mode=0o700)
    scripts = [{"contains": text, "turns": turns} for text, turns in SCRIPTS.items()]
    (daemon.home / "scripts.json").write_text(json.dumps({"scripts": scripts}), encoding="utf-8")
    settings = SETTINGS.replace("scripts.json", str(daemon.home / "scripts.json"))
    (daemon.home / "palyra.toml").write_text(settings, encoding="utf-8")


def work(client: blocking.BlockingClient) -> dict[str, str]:
    """Let the daemon work until each screen has something to say; the address of each."""
    with client.notices() as news:
        _, raises, *others = SCRIPTS
        first = client.start_run(ASKS)
        client.wait_run(first.run_id)
        for text in others:
            client.start_run(text)
        edit = client.start_run(raises, session_id=first.session_id)
        client.wait_run(edit.run_id, until="attention")
        opened = next(each for each in news if each.method == "incident.opened")
    [question] = client.list_approvals(run_id=edit.run_id, pending_only=True)
    events = client.read_tape(first.run_id).events
    read = next(each.seq for each in events if each.kind == "tool.attested")
    return {
        "now": "#/now",
        "inbox": f"#/inbox/{question.approval_id}",
        "run": f"#/run/{first.run_id}/seq/{read}",
        "session": f"#/session/{first.session_id}",
        "health": f"#/health/incidents/{opened.params['incident_id']}",
    }


def take(page: "Page", address: str, path: Path) -> None:
    """Save what that address shows, when all of it was read."""
    page.goto(address)
    page.reload()
    page.locator("h1").first.wait_for()
    for loading in (".skeleton", ".waiting"):
        page.locator(loading).first.wait_for(state="detached")
    page.wait_for_load_state("networkidle")
    page.screenshot(path=path, animations="disabled")
    try:
        pillow = importlib.import_module("PIL.Image")
    except ImportError:
        return
    with pillow.open(path) as picture:
        few = picture.convert("RGB").quantize(  # keeps rare colours, as that of one word
            256, method=pillow.Quantize.MAXCOVERAGE, dither=pillow.Dither.NONE
        )
    few.save(path, optimize=True)


def main() -> None:
    """Take all pictures."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415  (an extra)

    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        furnish(DaemonProcess(Path(name)))
        with (
            running(Path(name)) as daemon,
            blocking.connect(daemon.ws_url, token=daemon.token, timeout_s=60) as client,
            sync_playwright() as playwright,
        ):
            addresses = work(client)
            chromium = shutil.which("chromium") or shutil.which("chromium-browser")
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            settings: Any = {"viewport": SIZE}
            page = browser.new_context(**settings).new_page()
            page.add_init_script(f"localStorage.setItem('palyra /', '{daemon.token}')")
            for screen, theme in itertools.product(SCREENS, THEMES):
                path = FOLDER / f"console-{screen}-{theme}.png"
                page.emulate_media(color_scheme=theme)
                take(page, f"http://127.0.0.1:{daemon.port}/{addresses[screen]}", path)
                print(f"{path.name}: {path.stat().st_size} bytes")  # noqa: T201
            browser.close()


if __name__ == "__main__":
    main()
