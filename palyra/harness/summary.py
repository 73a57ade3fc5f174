"""Content of summary.json: figures over all results of an output directory."""

import math
import platform
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from palyra import __version__
from palyra.harness.jsonl import write_whole
from palyra.harness.outcome import CaseResult
from palyra.harness.results import SUMMARY, ResultsDirectory, read_results


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """Median, 90th percentile and maximum of some figures; all None without figures."""

    median: float | None = None
    p90: float | None = None
    most: float | None = None


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """Version, tool catalogue and policy of the daemon at the start of a command."""

    daemon_version: str
    catalogue_hash: str
    policy_version: str | None


class BenchSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Figures over all results of a directory; times in milliseconds."""

    is_complete: bool  # every case of the last command has a result
    wanted: int
    results: int
    states: dict[str, int]
    reasons: dict[str, int]  # at most the 20 most frequent
    met: int
    unmet: int
    unchecked: int  # results of cases without expectations
    took_ms: Spread
    turns: Spread
    tool_calls: int
    input_tokens: int
    output_tokens: int
    cost_usd_micros: int
    unpriced_calls: int = 0  # with unknown cost, which that sum leaves out
    span_ms: int | None  # from the first acceptance to the last end, pauses included
    models: list[str]
    catalogue_hashes: list[str]  # more than one: the tools changed between runs
    policy_versions: list[str]
    environment: Environment  # of the last command
    palyra_version: str = __version__
    python_version: str = platform.python_version()
    file: str
    file_sha256: str


MOST_REASONS = 20


def spread(figures: Sequence[float]) -> Spread:
    """Return median, 90th percentile (nearest rank) and maximum."""
    if not figures:
        return Spread()
    ranked = sorted(figures)
    rank = math.ceil(0.9 * len(ranked)) - 1
    return Spread(median=statistics.median(ranked), p90=ranked[rank], most=ranked[-1])


def summarise(directory: ResultsDirectory, wanted: int, environment: Environment) -> BenchSummary:
    """Compute the figures, write summary.json and return them.  Raises CannotWrite."""
    found = _Figures()
    found.add_all(read_results(directory.path))
    manifest = directory.manifest
    summary = BenchSummary(
        is_complete=found.results >= wanted,
        wanted=wanted,
        results=found.results,
        states=dict(found.states),
        reasons=dict(found.reasons.most_common(MOST_REASONS)),
        met=found.met[True],
        unmet=found.met[False],
        unchecked=found.met[None],
        took_ms=spread(found.took_ms),
        turns=spread(found.turns),
        tool_calls=found.totals["tool_calls"],
        input_tokens=found.totals["input_tokens"],
        output_tokens=found.totals["output_tokens"],
        cost_usd_micros=found.totals["cost_usd_micros"],
        unpriced_calls=found.totals["unpriced_calls"],
        span_ms=found.span_ms,
        models=sorted(found.models),
        catalogue_hashes=sorted(found.catalogue_hashes),
        policy_versions=sorted(found.policy_versions),
        environment=environment,
        file=manifest.file,
        file_sha256=manifest.plan.file_sha256,
    )
    text = msgspec.json.format(msgspec.json.encode(summary)) + b"\n"
    write_whole(directory.path / SUMMARY, text, is_synced=True)
    return summary


class _Figures:
    """Accumulator for one pass over the results."""

    def __init__(self) -> None:
        self.results = 0
        self.states: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()
        self.met: Counter[bool | None] = Counter()
        self.totals: Counter[str] = Counter()
        self.took_ms: list[float] = []
        self.turns: list[float] = []
        self.models: set[str] = set()
        self.catalogue_hashes: set[str] = set()
        self.policy_versions: set[str] = set()
        self._first_ms: int | None = None
        self._last_ms: int | None = None

    @property
    def span_ms(self) -> int | None:
        if self._first_ms is None or self._last_ms is None:
            return None
        return self._last_ms - self._first_ms

    def add_all(self, results: Iterable[CaseResult]) -> None:
        for result in results:
            self._count(result)
            self._note_time(result)
            for kinds, kind in (
                (self.models, result.model),
                (self.catalogue_hashes, result.catalogue_hash),
                (self.policy_versions, result.policy_version),
            ):
                if kind is not None:
                    kinds.add(kind)

    def _count(self, result: CaseResult) -> None:
        self.results += 1
        self.states[result.state] += 1
        self.reasons[result.reason or "-"] += 1
        self.met[result.met] += 1
        self.totals["tool_calls"] += result.tool_calls
        self.totals["input_tokens"] += result.usage.input_tokens
        self.totals["output_tokens"] += result.usage.output_tokens
        self.totals["cost_usd_micros"] += result.cost_usd_micros
        self.totals["unpriced_calls"] += result.unpriced_calls

    def _note_time(self, result: CaseResult) -> None:
        if result.created_ms is None or result.finished_ms is None or result.took_ms is None:
            return
        self.took_ms.append(result.took_ms)
        self.turns.append(result.turns)
        self._first_ms = min(self._first_ms or result.created_ms, result.created_ms)
        self._last_ms = max(self._last_ms or result.finished_ms, result.finished_ms)
