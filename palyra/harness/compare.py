"""Comparison of two output directories, whose results are paired by case id and repeat."""

import statistics
from collections.abc import Sequence
from pathlib import Path

import msgspec

from palyra.harness.outcome import CaseResult
from palyra.harness.results import Unit, read_results


class Side(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Fields of a result that are compared, kept small because both directories are in memory."""

    state: str
    reason: str | None
    met: bool | None
    cost_usd_micros: int
    unpriced_calls: int
    took_ms: int | None
    tokens: int
    answer_hash: int


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """One case in both directories; differences are the second value minus the first."""

    id: str
    repeat: int
    met: tuple[bool | None, bool | None]
    state: tuple[str, str]
    reason: tuple[str | None, str | None]
    is_same_answer: bool
    cost_usd_micros: int
    is_unpriced: bool = (
        False  # calls of either run have no price, so that the difference is unknown
    )
    took_ms: int | None
    tokens: int

    @property
    def is_changed(self) -> bool:
        """True if the outcome differs; time and cost are ignored, as they always vary a little."""
        return any(one != other for one, other in (self.met, self.state, self.reason)) or (
            not self.is_same_answer
        )


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of one directory, over the cases that both contain."""

    met: int
    unmet: int
    cost_usd_micros: int
    unpriced_calls: int
    tokens: int
    median_took_ms: float | None


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a comparison: all pairs, and the cases of only one directory."""

    pairs: list[Pair]
    only_first: list[Unit]
    only_second: list[Unit]
    lost: int  # pairs whose expectations were met in the first directory only
    won: int  # pairs whose expectations were met in the second directory only
    first: Figures
    second: Figures


def compare(first: Path, second: Path) -> Comparison:
    """Compare two output directories.  Raises InvalidParams if one has no readable results."""
    before, after = _read(first), _read(second)
    both = [unit for unit in before if unit in after]
    pairs = [_pair(unit, before[unit], after[unit]) for unit in both]
    return Comparison(
        pairs=pairs,
        only_first=[unit for unit in before if unit not in after],
        only_second=[unit for unit in after if unit not in before],
        lost=sum(pair.met[0] is True and pair.met[1] is not True for pair in pairs),
        won=sum(pair.met[1] is True and pair.met[0] is not True for pair in pairs),
        first=_figures([before[unit] for unit in both]),
        second=_figures([after[unit] for unit in both]),
    )


def _read(path: Path) -> dict[Unit, Side]:
    return {(result.id, result.repeat): _side(result) for result in read_results(path)}


def _side(result: CaseResult) -> Side:
    return Side(
        state=result.state,
        reason=result.reason,
        met=result.met,
        cost_usd_micros=result.cost_usd_micros,
        unpriced_calls=result.unpriced_calls,
        took_ms=result.took_ms,
        tokens=result.usage.input_tokens + result.usage.output_tokens,
        answer_hash=hash(result.answer),
    )


def _pair(unit: Unit, one: Side, other: Side) -> Pair:
    is_timed = one.took_ms is not None and other.took_ms is not None
    return Pair(
        id=unit[0],
        repeat=unit[1],
        met=(one.met, other.met),
        state=(one.state, other.state),
        reason=(one.reason, other.reason),
        is_same_answer=one.answer_hash == other.answer_hash,
        cost_usd_micros=other.cost_usd_micros - one.cost_usd_micros,
        is_unpriced=bool(one.unpriced_calls or other.unpriced_calls),
        took_ms=(other.took_ms or 0) - (one.took_ms or 0) if is_timed else None,
        tokens=other.tokens - one.tokens,
    )


def _figures(sides: Sequence[Side]) -> Figures:
    took_ms = [side.took_ms for side in sides if side.took_ms is not None]
    return Figures(
        met=sum(side.met is True for side in sides),
        unmet=sum(side.met is False for side in sides),
        cost_usd_micros=sum(side.cost_usd_micros for side in sides),
        unpriced_calls=sum(side.unpriced_calls for side in sides),
        tokens=sum(side.tokens for side in sides),
        median_took_ms=statistics.median(took_ms) if took_ms else None,
    )
