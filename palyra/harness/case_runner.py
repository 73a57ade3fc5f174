"""Execution of one case: send its message, wait for the run, fetch the tape, build the result.

Theory: a case and a repeat have one idempotency key, derived from the bench id, the hash of the
input file, the case's id and the repeat.  Every attempt sends the same request with the same key,
so however often the harness or the daemon crashes, the daemon accepts one run.  The order of writes
is: a line in started.jsonl, the request, a second line with the run id, the tape, the result.  After
a crash the first missing step is repeated.  The daemon forgets a key after RECEIPT_TTL_MS; a case
that was requested longer ago, without a known run id, is therefore an error.
"""

import hashlib
import time
from dataclasses import dataclass

import msgspec

from palyra.client import Client, RunOptions, RunView, export_run
from palyra.core.journal.records import RECEIPT_TTL_MS, TERMINAL
from palyra.core.tape.events import Budget
from palyra.core.text.canonical_json import sha256_hex
from palyra.errors import Conflict, IllegalState, InvalidParams, NotFound, Rejected, TooLarge
from palyra.harness.cases import Approval, Case
from palyra.harness.connections import PacedConnection
from palyra.harness.outcome import REFUSED, CaseResult, find_missed, read_facts
from palyra.harness.results import STARTED, ResultsDirectory, ResultsStart

KEY_AGE_MS = RECEIPT_TTL_MS - 3_600_000  # one hour less, for differences between the clocks
FRAME_BYTES = 1_024  # upper bound of a request without its parameters

# Errors that concern one case only; any other error concerns all cases and ends the command.
REFUSALS = (InvalidParams, NotFound, Conflict, IllegalState, TooLarge)


@dataclass(frozen=True, slots=True)
class CaseRun:
    """One repeat of one case."""

    case: Case
    repeat: int
    seed: int


@dataclass(frozen=True, slots=True)
class Performer:
    """Executor of single cases, with the defaults of the command."""

    directory: ResultsDirectory
    model: str | None  # for cases without a model
    approval: Approval  # for cases without an approval mode

    async def perform(self, lane: PacedConnection, work: CaseRun) -> CaseResult:
        """Execute one case and return its result; the tape is then in place.

        Raises errors that concern more than this case.
        Cancellation: the run continues at the daemon; the next attempt finds it.
        """
        try:
            run_id = await self._start(lane, work)
        except REFUSALS as error:
            return _refused(work, error)
        try:
            view = await self._wait(lane, work, run_id)
        except NotFound as error:
            raise _other_daemon(error) from None
        export = await fetch_tape(lane, run_id)
        self.directory.keep_tape(run_id, export.encode())
        return _conclude(work, view, export)

    async def _start(self, lane: PacedConnection, work: CaseRun) -> str:
        """Start the run of the case, or find the one of an earlier attempt; return its id.

        Cancellation: the run may have been accepted; the next attempt gets the same run.
        """
        unit = work.case.id, work.repeat
        before = self.directory.started.get(unit)
        if before is not None and before.run_id is not None:
            return before.run_id
        if before is None:
            self.directory.note_start(ResultsStart(id=unit[0], repeat=unit[1], at_ms=_now_ms()))
        else:
            self._require_known_key(before)
        options = self._options(work)
        size_bytes = _measure(lane.client, work, options)
        started = await lane.ask(
            lambda client: client.start_run(work.case.text, **options), size_bytes
        )
        self.directory.note_start(
            ResultsStart(id=unit[0], repeat=unit[1], at_ms=_now_ms(), run_id=started.run_id)
        )
        return started.run_id

    def _require_known_key(self, before: ResultsStart) -> None:
        if _now_ms() - before.at_ms > KEY_AGE_MS:
            raise Rejected(
                f"case {before.id!r} was asked for when the harness or its machine died, more than "
                "23 hours ago, and the daemon may have forgotten its key: look in `palyra runs "
                f"list`; to run it again, remove its line from {self.directory.path / STARTED}"
            )

    def _options(self, work: CaseRun) -> RunOptions:
        """Return the options of the run; equal in every attempt, as idempotency requires."""
        case = work.case
        approval = case.approval or self.approval
        options: RunOptions = {
            "idempotency_key": self._key("run", case.id, work.repeat),
            "approval_mode": "deny" if approval == "deny" else "ask",
            "budget": Budget(**msgspec.structs.asdict(case.budget)),
            "json_mode": case.json_mode,
            "agent": case.agent,
            "model": case.model or self.model,
        }
        if case.session is not None:
            options["session_key"] = self._key("session", case.session, work.repeat)
        return options

    def _key(self, kind: str, name: str, repeat: int) -> str:
        manifest = self.directory.manifest
        parts = [kind, manifest.bench_id, manifest.plan.file_sha256, name, repeat]
        return f"bench-{hashlib.sha256(msgspec.json.encode(parts)).hexdigest()}"

    async def _wait(self, lane: PacedConnection, work: CaseRun, run_id: str) -> RunView:
        """Wait for the end of the run; with approval mode "allow", allow its approvals."""
        if (work.case.approval or self.approval) != "allow":
            return await lane.ask(lambda client: client.wait_run(run_id))
        while True:
            view = await lane.ask(lambda client: client.wait_run(run_id, until="attention"))
            if view.state in TERMINAL:
                return view
            await _allow(lane, run_id)


async def _allow(lane: PacedConnection, run_id: str) -> None:
    """Allow every pending approval of the run; answers of other clients are kept."""
    asked = await lane.ask(lambda client: client.list_approvals(run_id=run_id, pending_only=True))
    for one in asked:
        approval_id, digest = one.approval_id, one.digest
        try:
            await lane.ask(
                lambda client, approval_id=approval_id, digest=digest: client.resolve_approval(  # type: ignore[misc]  # bound now
                    approval_id, "allow", digest, reason="allowed by the case"
                )
            )
        except (Conflict, IllegalState):
            continue


async def fetch_tape(lane: PacedConnection, run_id: str) -> str:
    """Fetch the sealed export of the run's tape.  Raises Rejected if the run is unknown."""
    try:
        return await lane.ask(lambda client: export_run(client, run_id))
    except NotFound as error:
        raise _other_daemon(error) from None


def _measure(client: Client, work: CaseRun, options: RunOptions) -> int:
    """Return an upper bound of the request's size in bytes.

    Raises TooLarge above the daemon's limit, because the daemon would close the connection.
    """
    size_bytes = len(msgspec.json.encode({"text": work.case.text, **options})) + FRAME_BYTES
    limit_bytes = client.hello.limits.max_message_bytes
    if size_bytes > limit_bytes:
        raise TooLarge(f"a request of {size_bytes} bytes; the daemon takes {limit_bytes}")
    return size_bytes


def _refused(work: CaseRun, error: Rejected) -> CaseResult:
    return CaseResult(
        id=work.case.id,
        repeat=work.repeat,
        seed=work.seed,
        run_id=None,
        state=REFUSED,
        reason=f"{error.code}: {error.message}",
        met=None if work.case.expect is None else False,
    )


def _conclude(work: CaseRun, view: RunView, export: str) -> CaseResult:
    facts = read_facts(export)
    expected = work.case.expect
    missed = () if expected is None else find_missed(expected, facts.answer, view.reason)
    return CaseResult(
        id=work.case.id,
        repeat=work.repeat,
        seed=work.seed,
        run_id=view.run_id,
        session_id=view.session_id,
        state=view.state,
        reason=view.reason,
        answer=facts.answer,
        met=None if expected is None else not missed,
        missed=missed,
        model=view.model,
        usage=view.usage,
        cost_usd_micros=view.cost_usd_micros,
        unpriced_calls=view.unpriced_calls,
        turns=view.turns,
        tool_calls=view.tool_calls,
        created_ms=view.created_ms,
        started_ms=view.started_ms,
        finished_ms=view.finished_ms,
        took_ms=None if view.finished_ms is None else view.finished_ms - view.created_ms,
        tape_sha256=sha256_hex(export.encode()),
        tape_bytes=len(export.encode()),
        catalogue_hash=facts.catalogue_hash,
        policy_version=facts.policy_version,
    )


def _other_daemon(error: NotFound) -> Rejected:
    return Rejected(
        f"{error.message}: is this the daemon that the results come from?  Start that one, "
        "or name another directory with --out"
    )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
