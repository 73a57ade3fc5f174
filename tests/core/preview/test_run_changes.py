"""The difference of a run, the preview of its undo, and the list of what is not known."""

import msgspec

from palyra.core.preview.run_changes import (
    MAX_NOTES,
    build_diff,
    build_undo,
    digest_of,
    find_unknown,
)
from palyra.core.tape import events as ev
from palyra.core.tool.checkpoints import Content, FollowedFile

OLD, NEW, OTHER = Content(b"a\n", 0o644), Content(b"b\n", 0o644), Content(b"c\n", 0o644)


def redact(text: str) -> tuple[str, bool]:
    return text.replace("hunter2", "[redacted:x]"), "hunter2" in text


def row(event: ev.Event) -> tuple[str, bytes]:
    return event.KIND, ev.encode_event(event)


def call(number: int, tool_class: str, executor: str) -> list[tuple[str, bytes]]:
    call_id = f"c{number}"
    proposed = ev.ToolProposed(
        call_id=call_id, tool="t\u202e", arguments={}, digest="d", tool_class=tool_class
    )
    started = ev.ToolStarted(call_id=call_id, executor=executor, enforcement="none", batch=1)
    return [row(proposed), row(started)]


FOLLOWED = [
    FollowedFile("left", OLD, NEW, "left", NEW),
    FollowedFile("made", None, NEW, "left", NEW),
    FollowedFile("theirs", OLD, NEW, "changed", OTHER),
    FollowedFile("back", OLD, NEW, "restored", OLD),
    FollowedFile("short", None, None, "restored"),
    FollowedFile("lost", None, None, "unusable", problem="no longer \u202e stored"),
    FollowedFile("mode", OLD, Content(b"a\n", 0o755), "left", Content(b"a\n", 0o755)),
    FollowedFile("binary", OLD, Content(b"\0"), "left", Content(b"\0")),
]


def test_a_difference_is_from_before_the_run_to_its_last_state() -> None:
    """Every kind of change has a block, also of files that are as before again."""
    diff = build_diff("run_1", FOLLOWED, ["x"], redact=redact, max_lines=99)
    assert [
        ("left", "updated"), ("made", "created"), ("theirs", "updated"), ("back", "updated"),
        ("mode", "mode"), ("binary", "updated"),
    ] == [(block.path, block.change) for block in diff.blocks]  # fmt: skip
    assert [each.standing for each in FOLLOWED] == [each.standing for each in diff.files]
    assert ("x",) == diff.unknown
    assert diff.blocks[-1].is_binary
    assert "\u202e" not in diff.files[5].problem


def test_an_undo_is_from_the_content_now_to_that_before_the_run() -> None:
    """Conflicts show what would be lost; files that are as before, or unusable, have no block."""
    undo = build_undo("run_1", FOLLOWED, [], redact=redact, max_lines=99)
    assert (("left", "made", "mode", "binary"), ("theirs",)) == (undo.files, undo.conflicts)
    assert ["lost"] == [each.path for each in undo.unusable]
    assert [("left", "updated"), ("made", "deleted"), ("theirs", "updated"), ("mode", "mode"),
            ("binary", "updated")] == [(b.path, b.change) for b in undo.blocks]  # fmt: skip
    shown = [line.text for hunk in undo.blocks[2].hunks for line in hunk.lines]
    assert ["c", "a"] == shown


def test_lines_are_bounded_and_secrets_redacted() -> None:
    """The bound is of all files together; what it cuts is counted."""
    secret = FollowedFile("s", None, Content(b"hunter2\n" * 3), "left", NEW)
    diff = build_diff("run_1", [secret, *FOLLOWED], [], redact=redact, max_lines=2)
    assert b"hunter2" not in msgspec.json.encode(diff)
    assert 2 == sum(len(hunk.lines) for block in diff.blocks for hunk in block.hunks)
    assert 3 <= diff.cut


def test_the_digest_changes_with_each_file() -> None:
    """With the run, a content now, or a standing."""
    other = FOLLOWED[0]._replace(now=OTHER)
    digests = {
        digest_of("run_1", FOLLOWED),
        digest_of("run_2", FOLLOWED),
        digest_of("run_1", [other, *FOLLOWED[1:]]),
        digest_of("run_1", [FOLLOWED[0]._replace(standing="changed"), *FOLLOWED[1:]]),
        digest_of("run_1", FOLLOWED[1:]),
    }
    assert 5 == len(digests)


def test_calls_without_a_checkpoint_are_named() -> None:
    """Programs, foreign servers and skills; calls for files without a checkpoint; delegated runs."""
    delegated = ev.DelegationStarted(
        call_id="c9", run_id="run_2", depth=1, agent="a", budget=ev.Budget()
    )
    rows = [
        *call(1, "effect", "process"), *call(2, "effect", "async"), *call(3, "effect", "mcp"),
        *call(4, "read_only_safe", "mcp"), *call(5, "path_scoped", "thread"),
        *call(6, "path_scoped", "thread"), *call(7, "effect", "process"), row(delegated),
        row(ev.ToolStarted(call_id="alone", executor="process", enforcement="none", batch=1)),
        row(ev.RunDone(reason="answered")),
    ]  # fmt: skip
    found = find_unknown(rows, frozenset({"c5"}), lambda each: each.call_id == "c7")
    assert ["c1", "run_2", "1 call for files"] == [
        next(each for each in ("c1", "run_2", "1 call for files") if each in note) for note in found
    ]
    assert "2 calls" in found[0]
    assert "c3" in found[0]
    assert "\u202e" not in "".join(found)


def test_many_unknown_calls_are_counted() -> None:
    """Programs have one note; more delegated runs than fit are counted."""
    rows = [each for number in range(9) for each in call(number, "effect", "process")]
    (note,) = find_unknown(rows, frozenset(), lambda _call: False)
    assert ("9 calls" in note, "6 more" in note) == (True, True)
    delegated = ev.DelegationStarted(
        call_id="c9", run_id="run_2", depth=1, agent="a", budget=ev.Budget()
    )
    found = find_unknown([row(delegated)] * (MAX_NOTES + 3), frozenset(), lambda _call: False)
    assert (MAX_NOTES + 1, "and 3 more") == (len(found), found[-1])
