"""The instants of a schedule, and the firings that are due.

A schedule has one timing: `cron` (five fields, in a time zone), `every` (a period from an anchor) or
`at` (one instant).  Its instants are a function of the timing alone, so a restart finds the same
ones.  `handled_ms` is the newest instant that was decided about, fired or left out.  Only later
instants count, so a clock that is set back a little fires nothing twice.

A clock that was far ahead leaves a `handled_ms` in the future.  Believed, it would stop the schedule until
that time, so `set_back` gives it up: the next instant is one after now.  The key of a firing still
keeps an instant from firing twice.  The same happens if it is the present clock that is wrong, and
behind; then the given up time becomes the past again, and the instants missed up to it
(`believed_ms`) were handled before.

An instant is missed if it is noticed more than `MISSED_MS` late, for instance after a restart.  The
policy decides about missed instants: `skip` fires none, `once` the newest, `all` the newest
`MAX_CAUGHT_UP`.  An instant that is not missed always fires.  Only the newest instants are
looked up, by bisection: years of pause cost some milliseconds of a thread, a sweep some tenths of one.

The key of a firing is schedule and instant (`firing_key`).  The task that a firing submits carries
it, and the store refuses a second task with the same key.

A local time that a change of the clocks skips or repeats is treated as Debian's cron does
(cron(8)): an expression with fixed hours fires once that day, one with a star follows real time.

Pure: the time zone comes in as an object, since its rules are read from files.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import islice
from typing import Literal, assert_never

import msgspec
from cronsim import CronSim, CronSimError

from palyra.core.journal.records import (
    AHEAD_MS,
    At,
    Cron,
    Every,
    MissedPolicy,
    OverlapPolicy,
    ScheduleRecord,
    Timing,
)
from palyra.errors import InvalidParams

Overlap = Literal["submit", "leave_out", "replace"]

MIN_EVERY_MS = 30_000
MISSED_MS = 60_000  # an instant noticed later was missed
MAX_CAUGHT_UP = 3
MAX_CRON_CHARS = 200


class Due(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The instants to fire now, oldest first, and the newest that is decided about."""

    fire: tuple[int, ...]
    handled_ms: int


def check_timing(timing: Timing, zone: tzinfo, now_ms: int) -> None:
    """Raise InvalidParams for a timing that is malformed or has no instant after now."""
    match timing:
        case Every() if timing.period_ms < MIN_EVERY_MS:
            raise InvalidParams(
                f"every {timing.period_ms} ms: the shortest period is {MIN_EVERY_MS} ms",
                field="every_ms",
            )
        case Cron():
            _parse(timing, now_ms, zone)
        case _:
            pass
    if next(upcoming(timing, zone, now_ms), None) is None:
        raise InvalidParams(
            f"the schedule has no instant after {now_ms}: choose a later one", field="timing"
        )


def upcoming(timing: Timing, zone: tzinfo, after_ms: int) -> Iterator[int]:
    """Yield the instants after a time, oldest first; those of a cron may be endless."""
    match timing:
        case At():
            yield from (timing.at_ms,) if timing.at_ms > after_ms else ()
        case Every():
            done = max(0, (after_ms - timing.anchor_ms) // timing.period_ms)
            at_ms = timing.anchor_ms + done * timing.period_ms
            while True:
                at_ms += timing.period_ms
                yield at_ms
        case Cron():
            yield from map(_to_ms, _parse(timing, after_ms, zone))
        case _:
            assert_never(timing)


def decide_due(
    timing: Timing,
    zone: tzinfo,
    *,
    handled_ms: int,
    now_ms: int,
    missed: MissedPolicy,
    believed_ms: int = 0,
) -> Due:
    """Decide which instants after `handled_ms`, up to and including now, fire.

    Missed ones up to `believed_ms` do not, once that time has come.
    """
    handled_before_ms = believed_ms if believed_ms <= now_ms else 0
    newest = list(islice(_until(timing, zone, handled_ms, now_ms), MAX_CAUGHT_UP))
    if not newest:
        return Due(fire=(), handled_ms=handled_ms)
    kept = {"skip": 0, "once": 1, "all": MAX_CAUGHT_UP}[missed]
    fire = [
        at_ms
        for place, at_ms in enumerate(newest)
        if now_ms - at_ms <= MISSED_MS or (place < kept and at_ms > handled_before_ms)
    ]
    return Due(fire=tuple(reversed(fire)), handled_ms=newest[0])


def decide_overlap(policy: OverlapPolicy, *, is_active: bool) -> Overlap:
    """Decide about a firing; `is_active` says that the task of an earlier one has not ended."""
    if not is_active or policy == "queue":
        return "submit"
    return "leave_out" if policy == "forbid" else "replace"


class Firing(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The decision about a schedule that is due."""

    schedule: ScheduleRecord  # its next revision
    submit: tuple[int, ...]  # instants, oldest first
    replaces: bool  # the tasks of earlier firings are cancelled


def decide_firing(
    schedule: ScheduleRecord, zone: tzinfo, *, is_active: bool, now_ms: int
) -> Firing:
    """Decide about every instant of the schedule up to now."""
    due = decide_due(
        schedule.timing,
        zone,
        handled_ms=schedule.handled_ms,
        now_ms=now_ms,
        missed=schedule.missed,
        believed_ms=schedule.believed_ms or 0,
    )
    submit = due.fire
    match decide_overlap(schedule.overlap, is_active=is_active):
        case "leave_out":
            submit = ()
        case "replace":
            submit = submit[-1:]
        case "submit" if schedule.overlap == "forbid":
            submit = submit[:1]
        case "submit" if schedule.overlap == "replace":
            submit = submit[-1:]
        case _:
            pass
    changed = msgspec.structs.replace(
        schedule,
        handled_ms=due.handled_ms,
        next_ms=next(upcoming(schedule.timing, zone, max(due.handled_ms, now_ms)), None),
        fired=schedule.fired + len(submit),
        left_out=schedule.left_out + len(due.fire) - len(submit),
        revision=schedule.revision + 1,
    )
    replaces = schedule.overlap == "replace" and is_active and bool(submit)
    return Firing(schedule=changed, submit=submit, replaces=replaces)


def is_ahead(schedule: ScheduleRecord, now_ms: int) -> bool:
    """True if the clock was ahead when the schedule was last decided about, added or resumed."""
    return schedule.handled_ms > now_ms + AHEAD_MS


def set_back(schedule: ScheduleRecord, zone: tzinfo, now_ms: int) -> ScheduleRecord:
    """Return the schedule with the instants after now; nothing is believed that `is_ahead`."""
    timing = schedule.timing
    if isinstance(timing, Every) and now_ms < timing.anchor_ms <= schedule.created_ms:
        periods = -((now_ms - timing.anchor_ms) // timing.period_ms)
        timing = msgspec.structs.replace(
            timing, anchor_ms=timing.anchor_ms - periods * timing.period_ms
        )
    is_over = schedule.is_paused or schedule.removed_ms is not None
    return msgspec.structs.replace(
        schedule,
        timing=timing,
        handled_ms=now_ms,
        believed_ms=max(schedule.handled_ms, schedule.believed_ms or 0),
        next_ms=None if is_over else next(upcoming(timing, zone, now_ms), None),
        revision=schedule.revision + 1,
    )


def firing_order(schedule: ScheduleRecord) -> tuple[int, str]:
    """Return the sort key of a principal's schedules that are due."""
    return schedule.next_ms or 0, schedule.schedule_id


def firing_key(schedule_id: str, at_ms: int) -> str:
    """Return the key that makes a firing unique."""
    return f"{schedule_id}@{at_ms}"


def _until(timing: Timing, zone: tzinfo, after_ms: int, until_ms: int) -> Iterator[int]:
    """Yield the instants with after_ms < instant <= until_ms, newest first."""
    match timing:
        case At():
            yield from (timing.at_ms,) if after_ms < timing.at_ms <= until_ms else ()
        case Every():
            count = (until_ms - timing.anchor_ms) // timing.period_ms
            last_ms = timing.anchor_ms + count * timing.period_ms
            floor_ms = max(after_ms, timing.anchor_ms)
            yield from range(last_ms, floor_ms, -timing.period_ms)
        case Cron():
            yield from _cron_until(timing, zone, after_ms, until_ms)
        case _:
            assert_never(timing)


def _cron_until(timing: Cron, zone: tzinfo, after_ms: int, until_ms: int) -> list[int]:
    """Return the newest `MAX_CAUGHT_UP` instants, newest first.

    Only read forwards: backwards the library finds other instants in the hour that a zone repeats.
    """
    first = list(islice(upcoming(timing, zone, after_ms), MAX_CAUGHT_UP + 1))
    found = [at_ms for at_ms in first if at_ms <= until_ms]
    if len(found) <= MAX_CAUGHT_UP:
        return found[::-1]
    newest = [_newest(timing, zone, found[0], until_ms)]
    while len(newest) < MAX_CAUGHT_UP:
        newest.append(_newest(timing, zone, found[0], newest[-1] - 1))
    return newest


def _newest(timing: Cron, zone: tzinfo, low_ms: int, until_ms: int) -> int:
    """Return the newest instant up to `until_ms` by bisection; `low_ms` is one of them."""
    high_ms = until_ms
    while low_ms < high_ms:
        middle_ms = (low_ms + high_ms) // 2
        at_ms = next(upcoming(timing, zone, middle_ms), None)
        if at_ms is not None and at_ms <= until_ms:
            low_ms = at_ms
        else:
            high_ms = middle_ms
    return low_ms


def _parse(timing: Cron, from_ms: int, zone: tzinfo) -> CronSim:
    fields = timing.expression.split()
    if len(fields) != 5 or len(timing.expression) > MAX_CRON_CHARS:  # noqa: PLR2004 - cron(5)
        raise InvalidParams(
            f"cron {timing.expression[:MAX_CRON_CHARS]!r}: write five fields, minute to weekday",
            field="cron",
        )
    start = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=from_ms)
    try:
        return CronSim(timing.expression, start.astimezone(zone))
    except CronSimError as error:
        raise InvalidParams(f"cron {timing.expression!r}: {error}", field="cron") from None


def _to_ms(moment: datetime) -> int:
    return round(moment.timestamp()) * 1_000
