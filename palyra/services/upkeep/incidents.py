"""The incidents service: current problems, recorded so that they survive a restart.

Owns: the unresolved incidents, and the records that are not committed yet.
Talks to: the journal, the hub.  Called by: any part of the daemon that finds a problem, on the loop.
Never: blocks its caller, or remedies a problem.

Reporting is a plain call, as publishing is.  It creates the record and notifies operators in the
same step; the incident writer (`actors.incident_writer`) commits the record when the journal accepts
it.  While the disk is full the records wait here: one per incident, at most `MAX_UNSAVED`.  A problem
that is also an event on a tape is committed with that event as well
(docs/decisions/0023-incidents.md).
"""

from collections import Counter
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from itertools import islice

import msgspec
import structlog
import trio

from palyra.core.access import Caller
from palyra.core.healing.rules import PERIOD_MS, SWEPT, kind_of
from palyra.core.ids import NewId
from palyra.core.incident.incident import (
    KEPT_RESOLVED,
    MAX_OPEN,
    IncidentReport,
    cleaned,
    count_again,
    is_same_finding,
    is_wanted,
    merged,
    move,
    open_incident,
    resolve,
)
from palyra.core.incident.kinds import JOURNAL, chain_broken, journal_refuses, journal_restored
from palyra.core.journal.changes import Change, IncidentFilter, OpenReport
from palyra.core.journal.idempotency import IdempotencyKey, receipt_for
from palyra.core.journal.records import IncidentRecord, IncidentState, Record
from palyra.core.ports import Journal, Notifier, NowMs
from palyra.core.redaction.redactor import Redactor
from palyra.errors import ActorGone, Conflict, NotFound, Overloaded, Unavailable

log = structlog.get_logger("palyra.incidents")
DAEMON = "palyra"  # resolves incidents that are cleared
SCOPE = "incidents:read"
RETRY_S = 1.0  # after a refused commit
MAX_BATCH = 128
MAX_UNSAVED = 2 * MAX_OPEN  # all open ones, and as many resolved meanwhile


class Incidents:  # noqa: PLR0904 - three kinds of callers, each with some methods
    """The `IncidentReporter` of the daemon, and the queries of operators."""

    def __init__(
        self,
        journal: Journal,
        hub: Notifier,
        redactor: Redactor,
        *,
        now_ms: NowMs,
        new_id: NewId,
    ) -> None:
        self._journal = journal
        self._hub = hub
        self._redactor = redactor
        self._now_ms = now_ms
        self._new_id = new_id
        self._open: dict[str, IncidentRecord] = {}  # by key: all unresolved incidents
        self._unsaved: dict[
            str, IncidentRecord
        ] = {}  # by id: the newest version, until it is committed
        self._found: set[str] = set()  # keys of `_open` that were reported since the start
        # The last resolved incident of each key with attempts that still count, oldest first.
        self._treated: dict[str, IncidentRecord] = {}
        self._wake = trio.Event()
        # Called before an operator resolves an incident, which it may refuse.
        self.on_resolved: Callable[[IncidentRecord], object] = _unheard

    @property
    def open_count(self) -> int:
        """Number of unresolved incidents."""
        return len(self._open)

    @property
    def severities(self) -> Counter[str]:
        """Number of unresolved incidents by severity."""
        return Counter(incident.severity for incident in self._open.values())

    # --- for the parts that report

    def begin(self, unresolved: Iterable[IncidentRecord]) -> None:
        """Load the unresolved incidents of an opened journal; uncommitted ones are newer."""
        self._found.clear()
        self._open = {incident.key: incident for incident in unresolved}
        for incident in self._unsaved.values():
            self._note(incident)

    def end_start(self) -> None:
        """Clear incidents from before the restart that were not reported again since."""
        clearable = [
            each.key
            for each in self._open.values()
            if each.resolves_itself and kind_of(each.key) not in SWEPT  # cleared by the watchdog
        ]
        for key in clearable:
            if key not in self._found:
                self.clear(key, "it was not found again at a start of the daemon")

    def report(self, report: IncidentReport) -> IncidentRecord:
        """See `IncidentReporter.report`.  Commit the result with the events it belongs to, if any."""
        report = cleaned(report, self._redactor.redact_bytes)
        if report.key not in self._open and len(self._open) >= MAX_OPEN:
            report = merged(report)
        self._found.add(report.key)
        known, now_ms = self._open.get(report.key), self._now_ms()
        if known is not None:
            incident = count_again(known, report, now_ms)
        else:
            attempts = self._count_attempts(report.key, now_ms)
            incident = open_incident(report, self._new_id("inc"), now_ms, attempts)
            _log_opened(incident)
            self._notify("incident.opened", incident)
        self._keep(incident)
        return incident

    async def report_finding(self, alarm: IncidentReport) -> None:
        """Report what a look has found, unless that very finding was resolved by an operator.

        A look changes nothing: looking again at the same damage opens no other incident.
        """
        alarm = cleaned(alarm, self._redactor.redact_bytes)
        if alarm.key not in self._open:
            wanted = IncidentFilter(states=("resolved",), domain=alarm.domain, limit=KEPT_RESOLVED)
            kept = await self._journal.read(lambda store: store.list_incidents(wanted))
            known = (*self._unsaved.values(), *kept)
            if any(is_same_finding(each, alarm) for each in known):
                return
        self.report(alarm)

    def clear(self, key: str, reason: str) -> None:
        """See `IncidentReporter.clear`."""
        known = self._open.get(key)
        if known is not None:
            self._end(known, by=DAEMON, reason=reason)

    def forget(self, ids: AbstractSet[str]) -> None:
        """Resolve incidents about something that is purged, and leave their records unwritten."""
        for incident in [*self._open.values(), *self._unsaved.values()]:
            if not ids.isdisjoint(incident.evidence.values()):
                self.clear(incident.key, "what it is about was purged")
                self._unsaved.pop(incident.incident_id, None)

    def is_reported(self, key: str) -> bool:
        """See `IncidentReporter.is_reported`."""
        return key in self._open or len(self._open) >= MAX_OPEN  # else the shared one of its domain

    def _count_attempts(self, key: str, now_ms: int) -> int:
        """Return the attempts that count for a new incident of the key."""
        treated = self._treated.get(key)
        return treated.attempts if treated is not None and _counts(treated, now_ms) else 0

    def _note_treated(self, ended: IncidentRecord) -> None:
        """Keep the attempts of a resolved incident for their period, of the newest `KEPT_RESOLVED`."""
        if ended.attempts:
            self._treated.pop(ended.key, None)
            self._treated[ended.key] = ended
            if len(self._treated) > KEPT_RESOLVED:
                del self._treated[next(iter(self._treated))]

    # --- for the watchdog

    async def load_treated(self) -> list[str]:
        """Read the attempts that count from before a restart; return all keys that have some.

        Raises Unavailable.  Cancellation: nothing was read.
        """
        wanted = IncidentFilter(states=("resolved",), limit=KEPT_RESOLVED)
        now_ms = self._now_ms()
        for each in reversed(await self._journal.read(lambda store: store.list_incidents(wanted))):
            known = self._treated.get(each.key)
            if _counts(each, now_ms) and (known is None or known.incident_id < each.incident_id):
                self._note_treated(each)
        return list(self._treated)

    def find_open(self, key: str) -> IncidentRecord | None:
        """Return the unresolved incident of the key."""
        return self._open.get(key)

    def list_unresolved(self) -> list[IncidentRecord]:
        """List the unresolved incidents, in no order."""
        return list(self._open.values())

    def begin_attempt(self, key: str, remedy: str) -> None:
        """Record the start of an attempt of remediation, which counts from here on."""
        self._change(key, "remediating", remedy=remedy, remedied="")

    def end_attempt(self, key: str, outcome: str) -> None:
        """Record the outcome of an attempt; without effect on an incident resolved meanwhile."""
        known = self._open.get(key)
        if known is not None and known.state == "remediating":
            self._change(key, "open", remedied=self._redactor.redact_text(outcome)[0])

    def propose(self, key: str, remedy: str) -> None:
        """Record the remedy that healing would attempt in mode `auto`."""
        known = self._open.get(key)
        if known is not None:
            self._update(msgspec.structs.replace(known, remedy=remedy))

    def escalate(self, key: str, reason: str) -> None:
        """Leave an incident to the operators."""
        self._change(key, "escalated", remedied=reason)

    def _change(self, key: str, state: IncidentState, **changes: str) -> None:
        known = self._open.get(key)
        if known is not None:
            self._update(move(known, state, **changes))

    def _update(self, incident: IncidentRecord) -> None:
        self._notify("incident.updated", incident)
        self._keep(incident)

    # --- for operators

    async def list_page(
        self, caller: Caller, wanted: IncidentFilter
    ) -> tuple[list[IncidentRecord], str | None]:
        """Return a page, newest first, and the cursor of the next one."""
        caller.require(SCOPE)
        newer = dict(self._unsaved)
        kept = await self._journal.read(lambda store: store.list_incidents(wanted))
        floor = kept[-1].incident_id if len(kept) == wanted.limit else ""
        merged_in = {each.incident_id: each for each in kept}
        for each in (*newer.values(), *self._unsaved.values()):
            if each.incident_id >= floor:
                merged_in[each.incident_id] = each
        found = [each for _, each in sorted(merged_in.items(), reverse=True)]
        found = [each for each in found if is_wanted(each, wanted)]
        page = found[: wanted.limit]
        is_cut = len(found) > len(page)
        return page, page[-1].incident_id if is_cut else floor or None

    async def get(self, caller: Caller, incident_id: str) -> IncidentRecord:
        """Return one incident.  Raises NotFound."""
        caller.require(SCOPE)
        return await self._get(incident_id)

    async def resolve(
        self, caller: Caller, incident_id: str, reason: str, receipt: IdempotencyKey | None = None
    ) -> IncidentRecord:
        """Resolve the incident and commit that; a resolved one is returned unchanged.

        Raises NotFound, and Unavailable when the commit failed; it is then retried.
        """
        caller.require("incidents:write")
        incident = await self._get(incident_id)
        if incident.state != "resolved":
            reason = self._redactor.redact_text(reason)[0]
            self.on_resolved(incident)
            incident = self._end(incident, by=caller.principal, reason=reason)
        records: list[Record] = [incident]
        if receipt is not None:
            records.append(receipt_for(receipt, incident, self._now_ms()))
        with trio.CancelScope(shield=True):  # the outcome must be known; bounded by the disk
            await self._journal.commit(Change(records=tuple(records)))
        return incident

    async def _get(self, incident_id: str) -> IncidentRecord:
        open_ones = (each for each in self._open.values() if each.incident_id == incident_id)
        found = self._unsaved.get(incident_id) or next(open_ones, None)
        if found is None:  # committed and resolved: final
            found = await self._journal.find(lambda store: store.find_incident(incident_id))
        if found is None:
            raise NotFound(f"no incident {incident_id!r}", field="incident_id")
        return found

    # --- records

    def _end(self, incident: IncidentRecord, *, by: str, reason: str) -> IncidentRecord:
        self._found.discard(incident.key)
        ended = resolve(incident, by=by, reason=reason, now_ms=self._now_ms())
        self._note_treated(ended)
        log.info("an incident is resolved", key=ended.key, incident_id=ended.incident_id, by=by)
        self._notify("incident.resolved", ended)
        self._keep(ended)
        return ended

    def _keep(self, incident: IncidentRecord) -> None:
        """Replace the record and queue it for the incident writer."""
        self._note(incident)
        self._unsaved.pop(incident.incident_id, None)  # to the end of the queue
        self._unsaved[incident.incident_id] = incident
        if len(self._unsaved) > MAX_UNSAVED:
            ended = (each for each in self._unsaved.values() if each.state == "resolved")
            self._unsaved.pop(next(ended).incident_id)
        self._wake.set()

    def _note(self, incident: IncidentRecord) -> None:
        if incident.state != "resolved":
            self._open[incident.key] = incident
        elif incident.key in self._open:
            known = self._open[incident.key]
            if known.incident_id == incident.incident_id:
                del self._open[incident.key]

    def _notify(self, method: str, incident: IncidentRecord) -> None:
        self._hub.notify(method, incident, principal=DAEMON, scope=SCOPE)

    async def wait_unsaved(self) -> None:
        """Wait until a record needs to be committed."""
        while not self._unsaved:
            self._wake = trio.Event()
            await self._wake.wait()

    async def save(self) -> bool:
        """Commit the waiting records, each in its own change; return True if all are committed.

        Cancellation: some may be committed; committing them again is idempotent.
        """
        if not self._journal.has_room:
            return False
        batch = list(islice(self._unsaved.values(), MAX_BATCH))
        commits = [self._journal.append(Change(records=(incident,))) for incident in batch]
        is_saved = True
        for incident, pending in zip(batch, commits, strict=True):
            try:
                await pending.wait()
            except Conflict as refused:  # the incident is already resolved
                log.warning("an incident was not recorded", key=incident.key, why=refused.message)
            except (Unavailable, Overloaded, ActorGone):
                is_saved = False
                continue
            self._acknowledge(incident)
        return is_saved

    def _acknowledge(self, incident: IncidentRecord) -> None:
        if self._unsaved.get(incident.incident_id) is incident:
            del self._unsaved[incident.incident_id]
        if incident.count > 1 and incident.state != "resolved":
            self._notify("incident.updated", incident)


def _unheard(_incident: IncidentRecord) -> None:
    """The end of an incident has no consequence by itself."""


def _counts(ended: IncidentRecord, now_ms: int) -> bool:
    """True if the attempts of a resolved incident count for the next one of its key.

    A time further ahead than the period is one of a clock that was wrong.
    """
    return bool(ended.attempts) and abs(now_ms - (ended.resolved_ms or 0)) <= PERIOD_MS


def _log_opened(incident: IncidentRecord) -> None:
    """Log one line, with the level of the severity."""
    say = {"warning": log.warning, "error": log.error, "critical": log.critical}
    say[incident.severity](
        "an incident is opened",
        key=incident.key,
        incident_id=incident.incident_id,
        summary=incident.summary,
        evidence=incident.evidence,
    )


def report_opened(incidents: Incidents, report: OpenReport) -> None:
    """Log the findings of opening the journal and report a chain violation."""
    found = report.verification
    log.info(
        "journal opened",
        schema=report.schema_version,
        migrated_from=report.migrated_from,
        events=report.head_position,
        was_clean=report.was_clean,
    )
    for note in report.notes:
        log.warning("journal.opened", note=note)
    incidents.begin(report.incidents)
    for incident in report.incidents:
        if incident.severity == "critical":
            log.warning(
                "a critical incident is open",
                key=incident.key,
                incident_id=incident.incident_id,
                summary=incident.summary,
            )
    if report.restored is not None:
        incidents.report(journal_restored(report.restored))
    if found.first_break is not None:
        incidents.report(chain_broken(found.first_break, found))


def report_writing(incidents: Incidents, refusal: Unavailable | None) -> None:
    """Report that the journal refused a batch, or clear that when it is writable again."""
    if refusal is None:
        incidents.clear(JOURNAL, "the journal takes writes again")
    else:
        incidents.report(journal_refuses(refusal.message))
