"""Incidents as data: when two alarms are one, which states follow, what is kept of the words."""

from typing import get_args

import msgspec
import pytest

from palyra.core.incident import kinds
from palyra.core.incident.incident import (
    EVIDENCE_CHARS,
    EVIDENCE_ITEMS,
    MOVES,
    SUMMARY_CHARS,
    UNRESOLVED,
    IncidentReport,
    cleaned,
    count_again,
    merged,
    move,
    open_incident,
    resolve,
)
from palyra.core.journal.backup import Restoration
from palyra.core.journal.changes import ChainViolation, FilesLost, VerifyReport
from palyra.core.journal.records import (
    IncidentDomain,
    IncidentRecord,
    IncidentSeverity,
    IncidentState,
)
from palyra.core.redaction.redactor import Redactor
from palyra.errors import IllegalState
from tests.rows import every_row

SECRET = "correct-horse-battery-staple"
STATES: tuple[IncidentState, ...] = get_args(IncidentState)
FALLEN = IncidentReport(
    domain="edge", key="fallen", severity="error", summary="it fell", evidence={"at": 1}
)


def incident(state: IncidentState = "open") -> IncidentRecord:
    """One that was found at 10."""
    found = open_incident(FALLEN, "inc_1", 10)
    return msgspec.structs.replace(found, state=state)


def test_an_alarm_opens_an_incident() -> None:
    """A new incident has the alarm's content, count 1 and no remediation."""
    assert IncidentRecord(
        incident_id="inc_1",
        domain="edge",
        key="fallen",
        severity="error",
        summary="it fell",
        evidence={"at": 1},
        state="open",
        count=1,
        attempts=0,
        opened_ms=10,
        last_ms=10,
    ) == open_incident(FALLEN, "inc_1", 10)


@pytest.mark.parametrize("state", UNRESOLVED)
def test_the_same_alarm_is_counted(state: IncidentState) -> None:
    """The newest words and evidence, the time of the last one, and the state it had."""
    worse = msgspec.structs.replace(FALLEN, summary="it fell again", evidence={"at": 2})
    again = count_again(incident(state), worse, 30)
    assert (state, 2, "it fell again", {"at": 2}, 10, 30) == (
        again.state,
        again.count,
        again.summary,
        again.evidence,
        again.opened_ms,
        again.last_ms,
    )


@every_row(
    ("was", "found", "is_now"),
    [
        ("warning", "critical", "critical"),
        ("critical", "warning", "critical"),
        ("error", "warning", "error"),
        ("error", "error", "error"),
    ],
)
def test_the_worst_severity_stays(
    was: IncidentSeverity, found: IncidentSeverity, is_now: IncidentSeverity
) -> None:
    """A milder alarm does not lower the severity."""
    before = msgspec.structs.replace(incident(), severity=was)
    alarm = msgspec.structs.replace(FALLEN, severity=found)
    assert is_now == count_again(before, alarm, 20).severity


def test_a_finding_after_the_resolution_opens_another_incident() -> None:
    """An alarm with the key of a resolved incident opens another one."""
    with pytest.raises(IllegalState, match="inc_1 is resolved"):
        count_again(incident("resolved"), FALLEN, 20)


@every_row("before", STATES)
@every_row("after", STATES)
def test_only_legal_moves(before: IncidentState, after: IncidentState) -> None:
    """Every state follows from those in the table and from no other."""
    if after in MOVES[before]:
        assert after == move(incident(before), after).state
    else:
        with pytest.raises(IllegalState, match=f"is {before} and cannot be {after}"):
            move(incident(before), after)


def test_resolved_is_final_and_every_other_state_can_be_left() -> None:
    """Every state but resolved can be resolved; resolved cannot be left."""
    assert set(STATES) == MOVES.keys()
    assert not MOVES["resolved"]
    assert all("resolved" in MOVES[state] for state in UNRESOLVED)
    assert {*UNRESOLVED, "resolved"} == set(STATES)


def test_an_escalated_incident_can_only_be_resolved() -> None:
    """An escalated incident is not remediated again."""
    assert {"resolved"} == set(MOVES["escalated"])


def test_attempts_are_counted() -> None:
    """Each time something is done about it, and only then."""
    tried = move(move(move(incident(), "remediating"), "open"), "remediating")
    assert (2, 2) == (tried.attempts, move(tried, "escalated").attempts)


def test_the_first_resolution_is_final() -> None:
    """A second resolution changes nothing."""
    end = resolve(incident(), by="ann", reason="mended", now_ms=40)
    assert ("resolved", "ann", "mended", 40) == (end.state, end.by, end.reason, end.resolved_ms)
    assert end is resolve(end, by="bob", reason="me too", now_ms=50)


def test_no_secret_gets_into_an_incident() -> None:
    """Neither by its summary nor by its evidence, also where a limit would cut it in two."""
    filler = "x" * (EVIDENCE_CHARS - 8)
    alarm = msgspec.structs.replace(
        FALLEN, summary=f"no {SECRET}", evidence={"error": f"{filler}{SECRET}", "n": 7}
    )
    clean = cleaned(alarm, Redactor([SECRET]).redact_bytes)
    text = msgspec.json.encode(clean).decode()
    assert SECRET[:8] not in text
    assert ("fallen", 7) == (clean.key, clean.evidence["n"])
    assert "redacted" in clean.summary


def test_an_incident_is_bounded() -> None:
    """However much there is to say."""
    long = {f"item_{n}": "y" * 2 * EVIDENCE_CHARS for n in range(2 * EVIDENCE_ITEMS)}
    alarm = msgspec.structs.replace(FALLEN, summary="z" * 2 * SUMMARY_CHARS, evidence=long)
    clean = cleaned(alarm, Redactor([]).redact_bytes)
    assert (SUMMARY_CHARS, EVIDENCE_ITEMS) == (len(clean.summary), len(clean.evidence))
    assert {EVIDENCE_CHARS} == {len(str(value)) for value in clean.evidence.values()}


def test_alarms_above_the_limit_share_an_incident() -> None:
    """Above the limit each domain has one shared incident, which does not resolve itself."""
    alarm = msgspec.structs.replace(FALLEN, resolves_itself=True)
    shared = merged(alarm)
    assert ("more:edge", False, "it fell") == (
        shared.key,
        shared.resolves_itself,
        shared.summary,
    )


BREAK = ChainViolation(kind="edited", position=7, run_id="run_1", seq=3, detail="it differs")
LOST = ChainViolation(
    kind="root", position=None, run_id=None, seq=None, detail="roots 1 to 2 are missing"
)
REPORT = VerifyReport(
    checked_events=9, checked_roots=1, through_position=9, signed_through_position=9, breaks=2
)
ALL = (
    kinds.policies_broken(("a.cedar: it ends too early", "b")),
    kinds.usage_broken(("configuration: no such key", "b")),
    kinds.chain_broken(BREAK, REPORT),
    kinds.chain_broken(msgspec.structs.replace(BREAK, position=8), REPORT),
    kinds.chain_broken(LOST, REPORT),
    kinds.journal_refuses("disk full"),
    kinds.files_lost(FilesLost(found="f was removed", copy="c")),
    kinds.outcome_unknown("run_1", "call_1", "shell"),
    kinds.recovery_exhausted("run_1", 3),
    kinds.run_stranded("run_1", "its tape is not there"),
    kinds.walls_leak("a file outside"),
    kinds.workspace_unusable("the workspace /w is not there"),
    kinds.provider_left_alone("openai", 3, "timeout"),
    kinds.provider_left_alone("local", 3, "timeout"),
)


def test_no_two_alarms_have_a_key_in_common() -> None:
    """Different things are different incidents; each has a domain, and says what it knows."""
    assert len(ALL) == len({alarm.key for alarm in ALL})
    assert all(alarm.domain in get_args(IncidentDomain) for alarm in ALL)
    assert all(alarm.summary and alarm.evidence for alarm in ALL)
    assert {
        kinds.POLICIES,
        kinds.USAGE,
        kinds.JOURNAL,
        kinds.FILES,
        kinds.WORKSPACE,
        kinds.stranded_key("run_1"),
        kinds.provider_key("openai"),
        kinds.provider_key("local"),
    } == {alarm.key for alarm in ALL if alarm.resolves_itself}


def test_a_break_says_what_is_known_of_its_place() -> None:
    """A lost root has none; an event has position, run and number."""
    placed, lost = (kinds.chain_broken(found, REPORT).evidence for found in (BREAK, LOST))
    assert {"kind", "detail", "breaks", "run_id", "seq", "position"} == placed.keys()
    assert {"kind": "root", "detail": LOST.detail, "breaks": 2} == lost


def test_each_restore_has_an_incident_of_its_own() -> None:
    """The same backup restored twice is two findings; the same restore read twice is one."""
    once = Restoration(backup_id="bak_1", created_ms=1, by="ann", at_ms=5, head_position=9)
    again = msgspec.structs.replace(once, at_ms=6)
    found = kinds.journal_restored(once)
    assert found == kinds.journal_restored(once)
    assert found.key != kinds.journal_restored(again).key
    assert ("store", "warning", 9) == (
        found.domain, found.severity, found.evidence["through_position"],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("lost", "remedy"),
    [
        (FilesLost(found="f was removed", copy="/h/saved"), "saved as /h/saved"),
        (FilesLost(found="f was removed", problem="no room"), "(no room): restore"),
        (FilesLost(found="k was removed"), "put the keys back from a backup"),
    ],
)
def test_lost_files_come_with_their_remedy(lost: FilesLost, remedy: str) -> None:
    """The summary says what to do with a copy, without one, and for lost keys."""
    assert remedy in kinds.files_lost(lost).summary
