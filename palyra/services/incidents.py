"""The incidents: what is wrong right now, recorded so that no restart forgets it.

Owns: the incidents that are not resolved, and what of them is not committed yet.
Talks to: the journal, the hub.  Told by: whoever finds something wrong, from anywhere in the loop.
Never: keeps anybody waiting, or does anything about what is wrong.
Restart: permanent; what was not committed waits outside the incarnation.

Telling is a plain call, as publishing is: in that step the record is made and operators hear of it;
it is committed when the journal can.  With a full disk it waits here: one record an incident, at
most `MAX_UNSAVED`.  Where what was found stands on a tape, the record is committed with the tape,
besides (docs/decisions/0023-incidents.md).

What the journal says of itself, in the log and in the book of incidents.
"""

from collections import Counter
from collections.abc import Iterable
from itertools import islice

import structlog
import trio

from palyra.core.access import Caller
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
    open_incident,
    resolve,
)
from palyra.core.incident.kinds import JOURNAL, chain_broken, journal_refuses
from palyra.core.journal.changes import Change, IncidentFilter, OpenReport
from palyra.core.journal.idempotency import IdempotencyKey, receipt_for
from palyra.core.journal.records import IncidentRecord, Record
from palyra.core.ports import Journal, Notifier, NowMs
from palyra.core.redaction.redactor import Redactor
from palyra.errors import ActorGone, Conflict, NotFound, Overloaded, Unavailable

log = structlog.get_logger("palyra.incidents")
DAEMON = "palyra"  # who resolves what is over by itself
SCOPE = "incidents:read"
RETRY_S = 1.0  # before a journal that refused is asked again
MAX_BATCH = 128
MAX_UNSAVED = 2 * MAX_OPEN  # all that may be open, and as many that were resolved meanwhile


class Incidents:
    """`core.ports.IncidentReporter` for the daemon's parts, and the book of incidents for operators."""

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
        self._open: dict[str, IncidentRecord] = {}  # by key: all that are not resolved
        self._unsaved: dict[str, IncidentRecord] = {}  # by id: the newest, if not committed yet
        self._found: set[str] = set()  # keys told of since the start, and not over: of `_open`
        self._wake = trio.Event()

    @property
    def open_count(self) -> int:
        """How many are not resolved."""
        return len(self._open)

    @property
    def severities(self) -> Counter[str]:
        """How many of them there are of each severity."""
        return Counter(incident.severity for incident in self._open.values())

    # --- for whoever finds something

    def begin(self, unresolved: Iterable[IncidentRecord]) -> None:
        """The journal was opened, with these; what is not committed yet is newer."""
        self._found.clear()
        self._open = {incident.key: incident for incident in unresolved}
        for incident in self._unsaved.values():
            self._note(incident)

    def end_start(self) -> None:
        """The daemon is up: what ends by itself and was not found again has ended."""
        gone = [each.key for each in self._open.values() if each.resolves_itself]
        for key in gone:
            if key not in self._found:
                self.clear(key, "it was not found again at a start of the daemon")

    def report(self, alarm: IncidentReport) -> IncidentRecord:
        """See `Alarms.report`.  To be committed with events it belongs to, if there are any."""
        alarm = cleaned(alarm, self._redactor.redact_bytes)
        if alarm.key not in self._open and len(self._open) >= MAX_OPEN:
            alarm = merged(alarm)
        self._found.add(alarm.key)
        known, now_ms = self._open.get(alarm.key), self._now_ms()
        if known is not None:
            incident = count_again(known, alarm, now_ms)
        else:
            incident = open_incident(alarm, self._new_id("inc"), now_ms)
            _log_opened(incident)
            self._tell("incident.opened", incident)
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
        """See `Alarms.clear`."""
        known = self._open.get(key)
        if known is not None:
            self._end(known, by=DAEMON, reason=reason)

    def is_told(self, key: str) -> bool:
        """See `Alarms.is_told`."""
        return key in self._open or len(self._open) >= MAX_OPEN  # its domain's stands for it

    # --- for operators

    async def list_page(
        self, caller: Caller, wanted: IncidentFilter
    ) -> tuple[list[IncidentRecord], str | None]:
        """A page, newest first, and where the next one begins."""
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
        """One incident.  Raises NotFound."""
        caller.require(SCOPE)
        return await self._get(incident_id)

    async def resolve(
        self, caller: Caller, incident_id: str, reason: str, receipt: IdempotencyKey | None = None
    ) -> IncidentRecord:
        """The incident with its end, committed; one that has an end keeps it.

        Raises NotFound, and Unavailable when the end is not committed: it is as soon as it can.
        """
        caller.require("incidents:write")
        incident = await self._get(incident_id)
        if incident.state != "resolved":
            reason = self._redactor.redact_text(reason)[0]
            incident = self._end(incident, by=caller.principal, reason=reason)
        records: list[Record] = [incident]
        if receipt is not None:
            records.append(receipt_for(receipt, incident, self._now_ms()))
        with trio.CancelScope(shield=True):  # done or refused, never unknown; bounded by the disk
            await self._journal.commit(Change(records=tuple(records)))
        return incident

    async def _get(self, incident_id: str) -> IncidentRecord:
        open_ones = (each for each in self._open.values() if each.incident_id == incident_id)
        found = self._unsaved.get(incident_id) or next(open_ones, None)
        if found is None:  # what is resolved and committed never changes
            found = await self._journal.find(lambda store: store.find_incident(incident_id))
        if found is None:
            raise NotFound(f"no incident {incident_id!r}", field="incident_id")
        return found

    # --- the book

    def _end(self, incident: IncidentRecord, *, by: str, reason: str) -> IncidentRecord:
        self._found.discard(incident.key)
        ended = resolve(incident, by=by, reason=reason, now_ms=self._now_ms())
        log.info("an incident is resolved", key=ended.key, incident_id=ended.incident_id, by=by)
        self._tell("incident.resolved", ended)
        self._keep(ended)
        return ended

    def _keep(self, incident: IncidentRecord) -> None:
        """It is so from now on, and is committed soon."""
        self._note(incident)
        self._unsaved.pop(incident.incident_id, None)  # to the end of the line
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

    def _tell(self, method: str, incident: IncidentRecord) -> None:
        self._hub.notify(method, incident, principal=DAEMON, scope=SCOPE)

    async def wait_unsaved(self) -> None:
        """Return when something is to be committed."""
        while not self._unsaved:
            self._wake = trio.Event()
            await self._wake.wait()

    async def save(self) -> bool:
        """Commit what waits, each for itself; whether all of it is.

        Cancellation: some of it may be committed; the same again changes nothing.
        """
        if not self._journal.has_room:
            return False
        batch = list(islice(self._unsaved.values(), MAX_BATCH))
        tickets = [self._journal.append(Change(records=(incident,))) for incident in batch]
        is_saved = True
        for incident, ticket in zip(batch, tickets, strict=True):
            try:
                await ticket.wait()
            except Conflict as refused:  # it has an end, which stands
                log.warning("an incident was not recorded", key=incident.key, why=refused.message)
            except (Unavailable, Overloaded, ActorGone):
                is_saved = False
                continue
            self._saved(incident)
        return is_saved

    def _saved(self, incident: IncidentRecord) -> None:
        if self._unsaved.get(incident.incident_id) is incident:
            del self._unsaved[incident.incident_id]
        if incident.count > 1 and incident.state != "resolved":
            self._tell("incident.updated", incident)


def _log_opened(incident: IncidentRecord) -> None:
    """One line an incident, as loud as it is bad."""
    say = {"warning": log.warning, "error": log.error, "critical": log.critical}
    say[incident.severity](
        "an incident is opened",
        key=incident.key,
        incident_id=incident.incident_id,
        summary=incident.summary,
        evidence=incident.evidence,
    )


def report_opened(incidents: Incidents, report: OpenReport) -> None:
    """Say what opening the journal found; a break in the chain must not pass unnoticed."""
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
    if found.first_break is not None:
        incidents.report(chain_broken(found.first_break, found))


def report_writing(incidents: Incidents, refusal: Unavailable | None) -> None:
    """The journal refused a batch, or takes everything again."""
    if refusal is None:
        incidents.clear(JOURNAL, "the journal takes writes again")
    else:
        incidents.report(journal_refuses(refusal.message))
