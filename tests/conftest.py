"""Settings shared by the whole suite."""

import importlib
import os
import sys
import warnings
from contextlib import suppress
from pathlib import Path

import pytest
import structlog
from hypothesis import settings

from tests.examples import examples
from tests.optional import MISSING, fold_skips

ROOT = Path(__file__).parents[1]
# A failed check of a helper says what it saw.  Here, before any other package can import them.
for helper in ("daemon_process", "people", "tapes", "wire"):
    pytest.register_assert_rewrite(f"tests.e2e.{helper}")

# What a terminal may show is decided by these, and a suite is started from every kind of place.
os.environ["TERM"] = "xterm-256color"
for name in ("NO_COLOR", "COLUMNS", "LINES"):
    os.environ.pop(name, None)

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


def pytest_collection(session: pytest.Session) -> None:
    """Import this worker's share of the test modules first, so that the others find them compiled.

    In a fresh clone each worker would rewrite the assertions of all modules at the same time as every
    other one, which takes longer than a tenth of the tests.  A module that cannot be imported is
    reported when it is collected.
    """
    worker, config = os.environ.get("PYTEST_XDIST_WORKER"), session.config
    is_whole = config.args_source == pytest.Config.ArgsSource.TESTPATHS
    if worker is None or sys.dont_write_bytecode or not is_whole:
        return
    paths = sorted(Path(__file__).parent.rglob("test_*.py"))
    first, step = int(worker.removeprefix("gw")), int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    with warnings.catch_warnings(action="error"):
        for path in paths[first::step]:
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            with suppress(Exception, pytest.skip.Exception):
                importlib.import_module(name)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say why tests were skipped: by reason, not by place, or missing programs would go unseen."""
    skipped = terminalreporter.stats.get("skipped", [])
    for line in fold_skips(report.longrepr[2] for report in skipped):
        is_missing = MISSING in line
        terminalreporter.write_line(line, yellow=True, bold=is_missing)
