"""The counted work of a run is the one that `bench/calls.json` expects."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXPECTED = json.loads((ROOT / "bench/calls.json").read_bytes())
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The benchmark as a module."""
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    return importlib.import_module("calls")


@pytest.mark.real
@pytest.mark.skipif(VERSION not in EXPECTED, reason="calls.json has no table for this Python")
def test_run_costs_what_the_table_says() -> None:
    """No counter of a run is more than 3 % away from `bench/calls.json`."""
    # A process of its own: what pytest and hypothesis have patched would be counted.
    environ = {name: value for name, value in os.environ.items() if "COV" not in name}
    counted = subprocess.run(
        [sys.executable, "bench/calls.py", "--check"],
        cwd=ROOT,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert 0 == counted.returncode, counted.stdout + counted.stderr


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ({"commits": 2.05, "events": 16}, []),
        ({"commits": 2.1, "events": 16}, ["  1 at once: commits: 2 -> 2.1 (+5.0%)"]),
        ({"commits": 1.9, "events": 16}, ["  1 at once: commits: 2 -> 1.9 (-5.0%)"]),
        ({"commits": 2}, ["  1 at once: events: 16 -> 0 (-100.0%)"]),
        (
            {"commits": 2, "events": 16, "hashes": 1},
            ["  1 at once: hashes: 0 -> 1 (new)"],
        ),
    ],
)
def test_moved_rows_are_named(
    calls: ModuleType, found: dict[str, float], expected: list[str]
) -> None:
    """Each row that moved by more than the tolerance, came or went has a line, and no other."""
    assert expected == calls.find_moves({"1": {"commits": 2, "events": 16}}, {"1": found})
