"""Settings shared by the whole suite."""

import os

import pytest
import structlog
from hypothesis import settings

from tests.examples import examples
from tests.optional import MISSING, fold_skips

# A failed check of a helper says what it saw.  Here, before any other package can import them.
for helper in ("daemon_process", "people", "tapes", "wire"):
    pytest.register_assert_rewrite(f"tests.e2e.{helper}")

# The default renders tracebacks with all local variables: it took half the time of some tests.
structlog.configure(
    processors=[
        structlog.stdlib.add_log_level,
        structlog.processors.format_exc_info,
        structlog.processors.KeyValueRenderer(key_order=["event"]),
    ]
)

# With CI set hypothesis loads its own profile: derandomised, no deadline, no example database.
# At a desk examples stay random, but a loaded machine must not fail a test by its deadline.
# Tests that name no number of examples make do with fewer than its hundred, as those of `examples`.
settings.register_profile("desk", deadline=None)
if "CI" not in os.environ:
    settings.load_profile("desk")
settings.register_profile("ours", settings(), max_examples=examples(160))
settings.load_profile("ours")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say why tests were skipped: by reason, not by place, or missing programs would go unseen."""
    skipped = terminalreporter.stats.get("skipped", [])
    for line in fold_skips(report.longrepr[2] for report in skipped):
        is_missing = MISSING in line
        terminalreporter.write_line(line, yellow=True, bold=is_missing)
