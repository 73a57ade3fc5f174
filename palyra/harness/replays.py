"""Replay of the recorded runs of an output directory; no model is called and no tool executed.

There are two ways.  `replay_tapes` uses the stored tapes and needs no daemon.  `replay_strictly`
asks the daemon that executed the runs to decide them with its current rules, tool catalogue and
limits.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Literal

import msgspec

from palyra.core.redaction.redactor import Redactor
from palyra.core.replay.replay import Replay
from palyra.core.replay.report import Divergence
from palyra.core.tape.export import Forged, IsSigned, read_rows, verify_export
from palyra.core.text.canonical_json import sha256_hex
from palyra.errors import InvalidParams, InvariantBroken, Rejected
from palyra.harness.connections import PacedConnection
from palyra.harness.outcome import CaseResult
from palyra.harness.results import MANIFEST, TAPES, find_manifest, read_results
from palyra.harness.target import Target, reach_daemon

STEPS = 1_000


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """Result of the replay of one run."""

    id: str
    repeat: int
    run_id: str
    verdict: Literal["matches", "diverges", "unusable"]
    problem: str | None = None  # why the tape is unusable
    divergence: Divergence | None = None


class Replays(msgspec.Struct, frozen=True, kw_only=True):
    """Results of all replays of a directory; `exceptions` lists the runs that do not match."""

    strict: bool
    matched: int
    diverged: int
    unusable: int
    skipped: int  # cases that the daemon refused and that have no run
    exceptions: list[Replayed]

    @property
    def holds(self) -> bool:
        """True if every replayed run matches."""
        return not self.exceptions


def replay_tapes(
    out: Path, is_signed: IsSigned, key: bytes | None, on_replayed: Callable[[int], None]
) -> Replays:
    """Verify and replay every tape, one by one; `key` is the trusted public key, if there is one.

    `on_replayed` is called with the count after each.  Raises InvalidParams if `out` has no
    readable results.
    """
    tally = _Tally(strict=False)
    for result in read_results(out):
        if result.run_id is None:
            tally.skipped += 1
            continue
        tally.add(_replay_tape(out, result, result.run_id, is_signed, key))
        on_replayed(tally.count)
    return tally.sum_up()


def _replay_tape(
    out: Path, result: CaseResult, run_id: str, is_signed: IsSigned, key: bytes | None
) -> Replayed:
    try:
        content = (out / TAPES / f"{run_id}.ndjson").read_bytes()
        problem = _find_problem(content, result, is_signed, key)
        divergence = None if problem else _find_divergence(content)
    except OSError as error:
        problem, divergence = f"the tape cannot be read: {error.strerror}", None
    except (Forged, InvariantBroken) as error:
        problem, divergence = str(error), None
    return _judge(result, run_id, problem, divergence)


def _find_problem(
    content: bytes, result: CaseResult, is_signed: IsSigned, key: bytes | None
) -> str | None:
    """Return the reason why the tape is unusable; None if it is intact and that of the result."""
    verified = verify_export(content, is_signed, key)
    if verified.problem is not None:
        return verified.problem
    if sha256_hex(content) != result.tape_sha256:
        return "the tape is not the one that the result was made from"
    return None


def _find_divergence(content: bytes) -> Divergence | None:
    replay = Replay(read_rows(content), Redactor(()).redact_bytes)
    while replay.advance(STEPS):
        pass
    return replay.report().first_divergence


def _judge(
    result: CaseResult, run_id: str, problem: str | None, divergence: Divergence | None
) -> Replayed:
    verdict: Literal["matches", "diverges", "unusable"] = "matches"
    if problem is not None:
        verdict = "unusable"
    elif divergence is not None:
        verdict = "diverges"
    return Replayed(
        id=result.id,
        repeat=result.repeat,
        run_id=run_id,
        verdict=verdict,
        problem=problem,
        divergence=divergence,
    )


async def replay_strictly(
    out: Path, home: Path | None, on_replayed: Callable[[int], None]
) -> Replays:
    """Let the daemon of these results replay every run with its current rules.

    `on_replayed` is called with the count after each.  Raises InvalidParams if `out` has no
    readable results, and Unavailable (in a group) if the daemon cannot be reached.
    Cancellation: nothing has changed at the daemon.
    """
    manifest = find_manifest(out)
    if manifest is None:
        raise InvalidParams(f"{out} has no {MANIFEST}: name a directory of `palyra bench run`")
    tally = _Tally(strict=True)
    place = Target(daemon=manifest.plan.daemon, out=out, home=home)
    async with reach_daemon(place) as reached, reached.dial() as client:
        lane = PacedConnection(client)
        for result in read_results(out):
            if result.run_id is None:
                tally.skipped += 1
                continue
            tally.add(await _ask_daemon(lane, result, result.run_id))
            on_replayed(tally.count)
    return tally.sum_up()


async def _ask_daemon(lane: PacedConnection, result: CaseResult, run_id: str) -> Replayed:
    try:
        report = await lane.ask(lambda client: client.replay_run(run_id, strict=True))
    except Rejected as error:
        return _judge(result, run_id, error.message, None)
    return _judge(result, run_id, None, report.first_divergence)


class _Tally:
    """Accumulator of replay results."""

    def __init__(self, *, strict: bool) -> None:
        self.count = 0
        self.skipped = 0
        self._strict = strict
        self._exceptions: list[Replayed] = []

    def add(self, replayed: Replayed) -> None:
        self.count += 1
        if replayed.verdict != "matches":
            self._exceptions.append(replayed)

    def sum_up(self) -> Replays:
        diverged = sum(one.verdict == "diverges" for one in self._exceptions)
        return Replays(
            strict=self._strict,
            matched=self.count - len(self._exceptions),
            diverged=diverged,
            unusable=len(self._exceptions) - diverged,
            skipped=self.skipped,
            exceptions=self._exceptions,
        )
