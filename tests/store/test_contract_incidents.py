"""The contract of both stores about incidents."""

from palyra.core.incident.incident import KEPT_RESOLVED
from palyra.core.journal.changes import Change, IncidentFilter
from palyra.core.journal.records import IncidentRecord
from palyra.core.ports import JournalStore
from tests.store.kit import MakeStore, incident, row
from tests.store.test_contract_records import put


def ended(incident_id: str, at_ms: int) -> IncidentRecord:
    return incident(incident_id, state="resolved", resolved_ms=at_ms, by="ann", reason="mended")


def ids(found: list[IncidentRecord]) -> list[str]:
    return [each.incident_id for each in found]


def test_an_incident_comes_back(store: JournalStore) -> None:
    """Whole, and in its newest version; one that is not there is None."""
    first, again = incident("inc_1"), incident("inc_1", count=2, severity="critical")
    assert [None, None] == put(store, first, again)
    assert (again, None) == (store.find_incident("inc_1"), store.find_incident("inc_2"))


def test_lists_are_newest_first_and_filtered(store: JournalStore) -> None:
    """By state and domain, page by page."""
    records = [
        incident("inc_1"),
        incident("inc_2", domain="store", state="escalated"),
        ended("inc_3", 5),
        incident("inc_4", domain="store", state="remediating"),
    ]
    put(store, *records)
    wanted = [
        IncidentFilter(),
        IncidentFilter(states=("open", "escalated")),
        IncidentFilter(domain="store"),
        IncidentFilter(domain="store", states=("open",)),
        IncidentFilter(limit=2),
        IncidentFilter(limit=2, before="inc_3"),
    ]
    assert [
        ["inc_4", "inc_3", "inc_2", "inc_1"],
        ["inc_2", "inc_1"],
        ["inc_4", "inc_2"],
        [],
        ["inc_4", "inc_3"],
        ["inc_2", "inc_1"],
    ] == [ids(store.list_incidents(each)) for each in wanted]


def test_the_end_of_an_incident_is_final(store: JournalStore) -> None:
    """The same end again changes nothing; another end, or a new state, is refused."""
    end = ended("inc_1", 5)
    other = ended("inc_1", 6)
    outcomes = put(store, incident("inc_1"), end, end, other, incident("inc_1", count=2))
    assert [None, None, None, "Conflict", "Conflict"] == outcomes
    assert end == store.find_incident("inc_1")


def test_an_incident_is_committed_with_its_event(store: JournalStore) -> None:
    """A refused change leaves no incident."""
    taken = Change(rows=(row("run_a", 0),), records=(incident("inc_1"),))
    behind_a_gap = Change(rows=(row("run_b", 5),), records=(incident("inc_2"),))
    store.commit([taken, behind_a_gap])
    assert ["inc_1"] == ids(store.list_incidents(IncidentFilter()))


def test_opening_returns_unresolved_incidents(make_store: MakeStore) -> None:
    """They are oldest first, also after a crash."""
    store = make_store()
    assert () == store.open().incidents
    put(store, incident("inc_2"), incident("inc_1", state="escalated"), ended("inc_3", 5))
    assert ["inc_1", "inc_2"] == ids([*make_store().open().incidents])


def test_only_the_newest_resolved_incidents_are_kept(store: JournalStore) -> None:
    """Open ones stay, whatever their age; of the others a thousand."""
    too_many = KEPT_RESOLVED + 2
    put(store, incident("inc_open"), *(ended(f"inc_{n:05}", n) for n in range(too_many)))
    store.seal()
    found = ids(store.list_incidents(IncidentFilter(limit=too_many)))
    assert (KEPT_RESOLVED + 1, "inc_open", "inc_00002") == (len(found), found[0], found[-1])
