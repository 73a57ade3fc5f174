"""What a purge of a session takes, and what stays."""

import msgspec

from palyra.core.journal.records import Lineage, LineageTrim, SessionPurge, SessionRecord
from palyra.core.session.purge import (
    mark_done,
    mark_purged,
    plan_items,
    run_is_open,
    successor,
)
from tests.store.kit import memory

ASKED = SessionPurge(purge_id="pur_1", by="op", requested_ms=7)
HERE, ELSEWHERE = Lineage(run_id="run_a", first_seq=3), Lineage(run_id="run_z")


def test_items_of_the_session_alone_go() -> None:
    """Scope and lineage decide; an item with another source loses the session's runs only."""
    items = [
        memory("mem_scope", scope="session", session_id="ses_a", lineage=(HERE, ELSEWHERE)),
        memory("mem_lineage", lineage=(HERE,)),
        memory("mem_added", session_id="ses_a"),
        memory("mem_both", lineage=(HERE, ELSEWHERE)),
        memory("mem_other", session_id="ses_a", lineage=(ELSEWHERE,)),
        memory("mem_plain"),
        memory("mem_scope_other", scope="session", session_id="ses_b"),
    ]
    plan = plan_items(items, "ses_a", ["run_a", "run_b"])
    assert ("mem_scope", "mem_lineage", "mem_added") == plan.gone
    assert (LineageTrim(memory_id="mem_both", lineage=(ELSEWHERE,)),) == plan.trims


def test_the_successor_of_an_item_skips_those_that_go() -> None:
    """An item is current again, or superseded by the next one that stays."""
    gone = {
        "mem_2": memory("mem_2", superseded_by="mem_3"),
        "mem_3": memory("mem_3", superseded_by="mem_4"),
    }
    first = memory("mem_1", superseded_by="mem_2")
    assert "mem_4" == successor(first, gone)
    last = {**gone, "mem_4": memory("mem_4")}
    assert None is successor(first, last)


def test_a_request_is_marked_once() -> None:
    """The first request stays; the names are free and nothing of the session is in force."""
    session = SessionRecord(
        session_id="ses_a", principal="ann", key="k", created_ms=1, updated_ms=1, epoch=2,
        agent="a", channel="c", conversation_id="x",
    )  # fmt: skip
    marked = mark_purged(session, ASKED)
    assert marked.is_purging
    assert (None, None, 3, 7, ASKED) == (
        marked.key, marked.conversation_id, marked.epoch, marked.archived_ms, marked.purge,
    )  # fmt: skip
    later = msgspec.structs.replace(ASKED, purge_id="pur_2")
    assert marked == mark_purged(marked, later)
    done = mark_done(marked, 9)
    assert not done.is_purging
    assert done == mark_done(done, 10)
    assert session == mark_done(session, 9)


def test_the_refusal_names_the_run() -> None:
    """Programs find the run in the details."""
    assert {"run_id": "run_1"} == run_is_open("run_1").details
