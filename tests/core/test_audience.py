"""What a run reaches in the data of its principal."""

from typing import Any

from palyra.core.audience import Audience
from palyra.core.journal.changes import MemoryPlace
from tests.rows import every_row
from tests.store.kit import run


def test_the_default_reaches_nothing() -> None:
    """Neither memory nor any run."""
    assert Audience().place is None
    assert not Audience().sees(run("run_1", principal="ann", session_id="ses_1"))


@every_row("changes", [{"memory_scope": "none"}, {"principal": ""}])
def test_without_memory_or_principal_there_is_no_place(changes: dict[str, Any]) -> None:
    """Each of the two alone is enough."""
    known = {"principal": "ann", "session_id": "ses_1", "memory_scope": "principal"}
    assert Audience(**known).place is not None  # type: ignore[arg-type]  # of a mixed dict
    assert Audience(**(known | changes)).place is None


@every_row(
    ("memory_scope", "is_confined", "only_session"),
    [
        ("principal", False, False),
        ("principal", True, True),
        ("session", False, True),
        ("session", True, True),
    ],
)
def test_a_confined_run_remembers_its_session_alone(
    memory_scope: Any,
    is_confined: bool,  # noqa: FBT001 - of a row
    only_session: bool,  # noqa: FBT001 - of a row
) -> None:
    """As does an agent whose memory is that of the session."""
    audience = Audience(
        principal="ann",
        session_id="ses_1",
        channel="chat",
        memory_scope=memory_scope,
        is_confined=is_confined,
    )
    assert audience.place == MemoryPlace(
        principal="ann", channel="chat", session_id="ses_1", only_session=only_session
    )


@every_row(
    ("principal", "session_id", "is_confined", "is_seen"),
    [
        ("ann", "ses_2", False, True),
        ("ann", "ses_2", True, False),
        ("ann", "ses_1", True, True),
        ("bob", "ses_1", False, False),
    ],
)
def test_a_confined_run_quotes_its_session_alone(
    principal: str,
    session_id: str,
    is_confined: bool,  # noqa: FBT001 - of a row
    is_seen: bool,  # noqa: FBT001 - of a row
) -> None:
    """And no run of another principal, whatever its reach."""
    audience = Audience(principal="ann", session_id="ses_1", is_confined=is_confined)
    record = run("run_1", principal=principal, session_id=session_id)
    assert is_seen == audience.sees(record)
