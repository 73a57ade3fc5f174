"""What a checkpoint keeps of a file."""

from palyra.core.text.canonical_json import sha256_hex
from palyra.core.tool.checkpoints import (
    RESTORE,
    Checkpoint,
    Content,
    FileChange,
    FileState,
    Mark,
    follow_paths,
    state_of,
)
from tests.rows import every_row


def test_the_state_of_a_file_is_its_digest_size_and_mode() -> None:
    """And there is none of a file that is not there."""
    state = FileState(sha256=sha256_hex(b"abc"), size_bytes=3, mode=0o640)
    assert [state, None] == [state_of(Content(b"abc", mode=0o640)), state_of(None)]


def a_change(number: int, run_id: str = "run_2", tool: str = "write_file") -> Checkpoint:
    """The change number `number` of one file, at that millisecond."""
    before, after = (
        FileState(sha256=f"{at:064x}", size_bytes=1) if at else None for at in (number - 1, number)
    )
    return Checkpoint(
        checkpoint_id=f"ckp_{number}",
        principal="ann",
        session_id="ses_1",
        run_id=run_id,
        call_id=f"c{number}",
        tool=tool,
        workspace="/w",
        created_ms=number,
        files=(FileChange(path="a", before=before, after=after),),
    )


def test_the_history_of_a_file_begins_before_its_first_change() -> None:
    """It knows every state between, and no other."""
    [history] = follow_paths([a_change(1), a_change(2)])
    assert ("a", "ckp_1", None) == (history.path, history.first, history.before)
    states = [None, *(FileState(sha256=f"{at:064x}", size_bytes=1) for at in (1, 2, 3))]
    assert [True, True, True, False] == [history.is_known(state) for state in states]


@every_row(
    ("checkpoint", "is_later"),
    [
        (a_change(1), False),  # of the run itself: by the seq of its start, whatever the clock says
        (a_change(2), True),
        (a_change(3), False),  # it never started
        (a_change(4, run_id="run_1"), False),  # of others: by the clock
        (a_change(6, run_id="run_1"), True),
        (a_change(5, run_id="run_1"), False),  # at the same time: by the age of the run
        (a_change(5, run_id="run_3"), True),
        (a_change(5, tool=RESTORE), True),  # a restore comes after what it restores
        (a_change(4, tool=RESTORE), False),
    ],
)
def test_a_mark_lies_between_changes(checkpoint: Checkpoint, *, is_later: bool) -> None:
    """Calls of the run are ordered by its tape, all others by the clock."""
    mark = Mark(run_id="run_2", seq=10, at_ms=5, started={"c1": 10, "c2": 11})
    assert is_later == mark.precedes(checkpoint)
