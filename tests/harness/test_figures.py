"""Summaries, comparisons and replays of directories of results."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from palyra.core.journal.records import Usage
from palyra.core.text.canonical_json import sha256_hex
from palyra.errors import InvalidParams
from palyra.harness.compare import compare
from palyra.harness.outcome import CaseResult
from palyra.harness.replays import replay_tapes
from palyra.harness.results import ResultsDirectory, open_directory
from palyra.harness.summary import Environment, Spread, spread, summarise
from tests.harness.results import FILE, PLAN, result
from tests.rows import every_row

ENVIRONMENT = Environment(daemon_version="1", catalogue_hash="c", policy_version=None)


def write(path: Path, results: Sequence[CaseResult]) -> Path:
    with open_directory(path, FILE, PLAN) as directory:
        keep(directory, results)
    return path


def keep(directory: ResultsDirectory, results: Sequence[CaseResult]) -> None:
    for one in results:
        directory.keep_result(one)


@every_row(
    ("figures", "expected"),
    [
        ([], Spread()),
        ([7], Spread(median=7, p90=7, most=7)),
        ([4, 1, 3, 2], Spread(median=2.5, p90=4, most=4)),
        (list(range(1, 11)), Spread(median=5.5, p90=9, most=10)),
        (list(range(1, 101)), Spread(median=50.5, p90=90, most=100)),
    ],
)
def test_spread_is_by_nearest_rank(figures: list[float], expected: Spread) -> None:
    """Median of the middle two, 90th percentile as a figure that occurred."""
    assert expected == spread(figures)


def test_summary_counts_everything(tmp_path: Path) -> None:
    """States, expectations, tokens, money, hashes and times are those of the results."""
    usage = Usage(input_tokens=10, output_tokens=2)
    timed = {"created_ms": 100, "finished_ms": 150, "took_ms": 50, "turns": 2, "usage": usage}
    with open_directory(tmp_path, FILE, PLAN) as directory:
        done = result("a", **timed, met=True, reason="answered", model="m", catalogue_hash="c1")
        failed = result("b", **{**timed, "finished_ms": 400, "took_ms": 300}, state="failed")
        refused = result("c", run_id=None, state="refused", reason="invalid_params: no", met=False)
        keep(directory, [done, failed, refused])
        summary = summarise(directory, 4, ENVIRONMENT)
    assert (False, 4, 3) == (summary.is_complete, summary.wanted, summary.results)
    assert {"done": 1, "failed": 1, "refused": 1} == summary.states
    assert {"answered": 1, "-": 1, "invalid_params: no": 1} == summary.reasons
    assert (1, 1, 1) == (summary.met, summary.unmet, summary.unchecked)
    assert (20, 4, 300) == (summary.input_tokens, summary.output_tokens, summary.span_ms)
    assert Spread(median=175, p90=300, most=300) == summary.took_ms
    assert (["m"], ["c1"], []) == (
        summary.models,
        summary.catalogue_hashes,
        summary.policy_versions,
    )
    assert msgspec.to_builtins(summary) == msgspec.json.decode(
        (tmp_path / "summary.json").read_bytes()
    )


def test_comparison_pairs_by_id_and_repeat(tmp_path: Path) -> None:
    """A comparison lists lost, won, changed, dearer, slower and unpaired cases."""
    first = write(
        tmp_path / "first",
        [
            result("lost", met=True, answer="x", took_ms=10),
            result("won", met=False, answer="x"),
            result("same", met=True, answer="x", cost_usd_micros=5),
            result("alone", repeat=0),
        ],
    )
    second = write(
        tmp_path / "second",
        [
            result("same", met=True, answer="x", cost_usd_micros=7),
            result("won", met=True, answer="y"),
            result("lost", met=False, answer="z", took_ms=40),
            result("alone", repeat=1),
        ],
    )
    found = compare(first, second)
    pairs = {pair.id: pair for pair in found.pairs}
    assert (1, 1) == (found.lost, found.won)
    assert ([("alone", 0)], [("alone", 1)]) == (found.only_first, found.only_second)
    assert {"lost": True, "won": True, "same": False} == {
        name: pair.is_changed for name, pair in pairs.items()
    }
    assert (30, None, 2) == (
        pairs["lost"].took_ms,
        pairs["won"].took_ms,
        pairs["same"].cost_usd_micros,
    )
    assert (2, 2) == (found.first.met, found.second.met)


def test_comparison_with_nothing_is_refused(tmp_path: Path) -> None:
    """A directory without results is named."""
    first = write(tmp_path / "first", [result()])
    with pytest.raises(InvalidParams, match="elsewhere"):
        compare(first, tmp_path / "elsewhere")


def test_replay_refuses_what_is_no_tape(tmp_path: Path) -> None:
    """A missing, torn or foreign tape is unusable, not a match; a refused case has none."""
    with open_directory(tmp_path, FILE, PLAN) as directory:
        directory.keep_tape("run_torn", b"{}\n")
        keep(directory, [result("torn", tape_sha256=sha256_hex(b"{}\n")), result("missing")])
        keep(directory, [result("refused", run_id=None, state="refused")])
    counted: list[int] = []
    found = replay_tapes(tmp_path, lambda *_: True, None, counted.append)
    assert (0, 0, 2, 1) == (found.matched, found.diverged, found.unusable, found.skipped)
    assert [1, 2] == counted
    assert not found.holds
