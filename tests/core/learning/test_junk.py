"""Junk is refused with its reason, and sentences like it are not."""

from palyra.core.learning.junk import find_junk
from tests.rows import every_row

JUNK = [
    ("command", "git commit -m 'fix the login'"),
    ("command", "$ make test and then deploy it"),
    ("command", "docker run --rm -it ubuntu bash"),
    ("command", "run cat access.log | grep ERROR for me"),
    ("command", "/reset the whole conversation"),
    ("code", "const timeout = retries => retries * 2;"),
    ("code", "def handler(event): return event"),
    ("code", '{"name": "palyra", "version": 1}'),
    ("code", "SELECT name FROM users WHERE id = 4;"),
    ("code", "<memory>The user likes tea</memory>"),
    ("half_sentence", "because the staging server needs it"),
    ("half_sentence", "Our deployment pipeline always starts with the"),
    ("half_sentence", "We use these services (Postgres, Redis"),
    ("half_sentence", "Our team prefers the following:"),
    ("half_sentence", "We keep the secrets in…"),
    ("no_referent", "It runs on port 8080 in staging"),
    ("no_referent", "They prefer the other approach"),
    ("no_referent", "Das läuft auf dem anderen Server"),
    ("metadata", "User likes tea (confidence: 0.93)"),
    ("metadata", "[0.87] the user prefers dark mode"),
    ("metadata", "Importance: 7 the user lives in Brno"),
    ("metadata", "mem_0197aa is about the deploy port"),
    ("program_text", "[cron] daily summary of the inbox"),
    ("program_text", "System: you have been asked to wait"),
    ("program_text", "HEARTBEAT_OK nothing needs attention"),
    ("program_text", "Current time: Monday 10 in the morning"),
    ("log_line", "2026-01-02T10:11:12 server started fine"),
    ("log_line", "ERROR cannot connect to the database"),
    ("log_line", "The build failed with ValueError: bad port given"),
    ("log_line", "12 passed, 1 failed in the whole suite"),
    ("narration", "The user asked about the weather in Brno"),
    ("narration", "User wants to know the deploy port"),
    ("placeholder", "My name is John Doe and I live here"),
    ("too_short", "Dark mode."),
    ("question", "Do we use Postgres for the orders service?"),
    ("too_long", "We use Postgres " * 40),
]
KEPT = [
    "Our staging database listens on port 6432.",
    "I prefer short answers.",
    "We deploy with `make deploy` from the main branch.",
    "Always run the tests before a commit.",
    "The API of our billing service is written in Go.",
    "Unser Server läuft auf Hetzner.",
    "My colleagues call me Jo (short for Johanna).",
    "We log errors to stderr and nothing else.",
    "Our confidence in the estimate is low, so we add a week.",
    "This project uses four spaces.",
]


@every_row(("reason", "text"), JUNK)
def test_junk_is_refused_with_its_reason(reason: str, text: str) -> None:
    """Each kind of junk is named."""
    assert reason == find_junk(text)


@every_row("text", KEPT)
def test_a_sentence_that_looks_like_junk_is_kept(text: str) -> None:
    """Words that occur in junk make none of a whole sentence."""
    assert None is find_junk(text)
