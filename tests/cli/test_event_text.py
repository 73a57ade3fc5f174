"""Tape events as sentences."""

import pytest

from palyra.cli.view.event_text import describe_briefly, narrate
from palyra.client import TapeEvent
from palyra.core.tape import events as ev


@pytest.mark.parametrize(
    ("hint", "told"),
    [
        ("expected a text", "rejected: path: got nothing; expected a text"),
        ("", "rejected: path: got nothing"),
    ],
)
def test_a_refusal_without_a_hint_ends_with_its_reason(hint: str, told: str) -> None:
    """A refusal by an inspection has no hint, and no placeholder for one."""
    event = ev.ToolRejected(call_id="call_1", reason="path: got nothing", repair_hint=hint)
    assert told == told_of(event)


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("permitted by a/b", "allowed: permitted by a/b"),
        ("as before", "allowed: as before (by a/b)"),
    ],
)
def test_a_rule_is_named_once(reason: str, told: str) -> None:
    """By the reason, or behind it."""
    assert told == told_of(
        ev.ToolDecided(
            call_id="call_1",
            verdict="allow",
            reason_code="allowed",
            reason=reason,
            policies=("a/b",),
            policy_version="1",
        )
    )


def told_of(event: ev.Event) -> str:
    """The text of an event."""
    item = TapeEvent(
        run_id="run_1", session_id="ses_1", seq=1, at_ms=0, kind=event.KIND,
        data=b"{}", event=event,
    )  # fmt: skip
    return narrate(item).text


def test_withdrawn_question_is_named_in_words() -> None:
    """It has no decision and no scope, as it was not answered."""
    told = told_of(
        ev.ApprovalResolved(
            approval_id="a", call_id="c", decision="abort", scope="once", by="rules",
            reason="the rules have changed since it was asked",
        )
    )  # fmt: skip
    assert "the question is withdrawn: the rules have changed since it was asked" == told


@pytest.mark.parametrize(
    ("patch", "told"),
    [
        (
            (
                "*** Begin Patch\n*** Update File: src/a.py\n@@\n-x\n+*** Update File: b.py\n"
                "*** Add File: c.py\n+x\n*** Delete File: d.py\n*** End Patch"
            ),
            'apply_patch(files="src/a.py, create c.py, delete d.py", dry_run=true)',
        ),
        (
            "--- a/e.py\n+++ b/e.py\n@@ -1 +1 @@\n-x\n+y\n",
            'apply_patch(files="e.py", dry_run=true)',
        ),
        (
            "--- /dev/null\n+++ b/f.py\n@@ -0,0 +1 @@\n+y\n--- a/g.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n",
            'apply_patch(files="create f.py, delete g.py", dry_run=true)',
        ),
        (
            "*** Begin Patch\n*** Update File: h.py\n*** Move to: i.py\n*** End Patch",
            'apply_patch(files="h.py → i.py", dry_run=true)',
        ),
        ("no patch\nat all", 'apply_patch(patch="…", dry_run=true)'),
    ],
)
def test_patch_is_named_by_its_files(patch: str, told: str) -> None:
    """Lines of its content name no file."""
    assert told == describe_briefly("apply_patch", {"patch": patch, "dry_run": True})
