"""Grants as data: what an answer makes, what it holds for, and which of several speaks."""

from typing import Any, Literal

import msgspec
import pytest

from palyra.core.approval import grant_record, used
from palyra.core.journal.records import GrantRecord
from palyra.core.policy.gate import Allow, Deny, GateContext, NeedsApproval, judge
from palyra.core.policy.grants import (
    ONCE,
    beyond_call,
    covers,
    describe_key,
    find_grant,
    holds_for,
    is_server_tool_key,
    join_parts,
    scopes_of,
    server_tool_key,
)
from palyra.core.run.state import begin
from palyra.core.tape import events as ev
from palyra.core.tool.spec import SHARED_HOST
from tests.core.policy.tool_samples import FACTS, a_decision, an_admitted
from tests.core.test_approval import PENDING
from tests.rows import every_row

ASKED = msgspec.structs.replace(
    PENDING, agent="default", grant_key="git", scopes=("once", "session", "timeboxed")
)
RUN = begin(
    "run_1",
    ev.RunAccepted(principal="ann", session_id="ses_1", agent="default", model="m", epoch=3),
    0,
)
ANSWER = ev.ApprovalResolved(
    approval_id="apr_1", call_id="c1", decision="allow", scope="session", by="bob", reason="ok",
    grant_id="grt_1",
)  # fmt: skip


def a_grant(**changes: Any) -> GrantRecord:
    """The grant of that answer, but for the changes."""
    grant = grant_record(RUN, ASKED, ANSWER, 5)
    assert grant is not None
    return msgspec.structs.replace(grant, **changes)


def test_a_grant_says_who_for_what_and_since_when() -> None:
    """Everything it is keyed by comes from the question, the rest from the answer."""
    assert a_grant() == GrantRecord(
        grant_id="grt_1", principal="ann", agent="default", tool="write_file", key="git",
        decision="allow", scope="session", session_id="ses_1", epoch=3, approval_id="apr_1",
        by="bob", granted_ms=5, reason="ok",
    )  # fmt: skip


@every_row("changes", [{"grant_id": None}, {"scope": "once"}, {"decision": "abort"}])
def test_other_answers_make_none(changes: dict[str, Any]) -> None:
    """Once is once, and a question taken back is no answer."""
    assert grant_record(RUN, ASKED, msgspec.structs.replace(ANSWER, **changes), 5) is None


@every_row(
    ("grant", "asked", "holds"),
    [
        ({}, {}, True),
        ({"key": "npm"}, {}, False),
        ({"tool": "shell"}, {}, False),
        ({"agent": "scout"}, {}, False),
        ({"principal": "bob"}, {}, False),
        ({"session_id": "ses_2"}, {}, False),
        ({"session_id": "ses_2", "scope": "timeboxed"}, {}, True),
        ({"epoch": 2}, {}, False),
        ({"epoch": 2, "scope": "timeboxed"}, {}, True),
        ({"expires_ms": 10}, {}, False),
        ({"expires_ms": 11}, {}, True),
        ({"ended_ms": 9}, {}, False),
        ({}, {"scopes": ("once",)}, False),
    ],
)
def test_a_grant_answers_only_matching_approvals(
    grant: dict[str, Any],
    asked: dict[str, Any],
    holds: bool,  # noqa: FBT001 - a case
) -> None:
    """A grant answers an open approval only if every field of its key matches."""
    assert holds is holds_for(a_grant(**grant), msgspec.structs.replace(ASKED, **asked), 3, 10)


def test_of_several_a_denial_speaks() -> None:
    """Of those that hold now: another epoch, another session or an end does not count."""
    deny, allow = a_grant(decision="deny"), a_grant()
    where: dict[str, Any] = {"session_id": "ses_1", "epoch": 3, "at_ms": 10}
    assert find_grant([allow, deny], **where) == deny
    assert find_grant([allow, a_grant(decision="deny", ended_ms=1)], **where) == allow
    assert find_grant([allow], **(where | {"epoch": 4})) is None
    assert find_grant([allow], **(where | {"session_id": "ses_2"})) is None
    timeboxed = a_grant(scope="timeboxed", expires_ms=11)
    assert find_grant([timeboxed], **(where | {"session_id": "ses_2", "epoch": 9})) == timeboxed
    assert find_grant([], **where) is None


def test_an_approval_is_open_until_each_of_its_calls_has_started() -> None:
    """Two duplicates use the approval twice, and no call a third time."""
    allowed = msgspec.structs.replace(ASKED, state="allowed", covers=("c2",))
    assert [ASKED.is_open, allowed.is_open] == [False, True]
    assert used(allowed).is_open
    assert not used(used(allowed)).is_open


# --- in the gate ---------------------------------------------------------------------------------


def facts(**changes: Any) -> GateContext:
    """Facts of an ordinary run, but for the changes."""
    return msgspec.structs.replace(FACTS, **changes)


def keyed(**changes: Any) -> Any:
    """A sensitive call that has a key."""
    admitted = an_admitted(None, tool_class="effect", capabilities=("process",), **changes)
    return msgspec.structs.replace(
        admitted, facets=msgspec.structs.replace(admitted.facets, grant_key="git")
    )


def test_a_grant_replaces_the_approval() -> None:
    """The verdict names the grant; without one the approval shows the key."""
    asked = judge(keyed(), facts(), a_decision("ask"))
    assert isinstance(asked, NeedsApproval)
    assert (asked.grant_key, asked.scopes) == ("git", ("once", "session", "timeboxed"))
    granted = judge(keyed(), facts(grant=a_grant()), a_decision("ask"))
    assert isinstance(granted, Allow)
    assert (granted.reason_code, granted.grant_id) == ("granted", "grt_1")
    assert granted.reason == "bob allowed write_file for git (session)"


def test_a_grant_permits_nothing_that_the_rules_deny() -> None:
    """A denial always denies."""
    assert isinstance(judge(keyed(), facts(grant=a_grant()), a_decision("deny")), Deny)


def test_a_remembered_denial_denies_what_would_be_asked_or_allowed() -> None:
    """Until it ends; the reason says which it is."""
    for answer in ("ask", "allow"):
        verdict = judge(keyed(), facts(grant=a_grant(decision="deny")), a_decision(answer))
        assert isinstance(verdict, Deny)
        assert (verdict.reason_code, "grt_1" in verdict.reason) == ("denied_by_grant", True)
    silent = judge(keyed(), facts(grant=a_grant(decision="deny", reason="")), a_decision("ask"))
    assert "bob denied write_file for git (session); ending" in silent.reason


@pytest.mark.parametrize("answer", ["ask", "allow"])
def test_a_grant_does_not_apply_in_a_tainted_run(answer: Any) -> None:
    """In a tainted run the approval is asked, for this call only, with the scope once."""
    verdict = judge(keyed(), facts(grant=a_grant(), is_tainted=True), a_decision(answer))
    assert isinstance(verdict, NeedsApproval)
    assert (verdict.scopes, verdict.grant_key) == (("once",), "")


def test_a_tool_that_was_not_handed_down_is_denied_first() -> None:
    """Such a tool is denied even if policies allow it; a tool that was handed down is evaluated."""
    outside = judge(keyed(), facts(handed_down=frozenset({"other"})), a_decision("allow"))
    assert isinstance(outside, Deny)
    assert outside.reason_code == "outside_delegation"
    inside = judge(keyed(), facts(handed_down=frozenset({"probe"})), a_decision("allow"))
    assert isinstance(inside, Allow)


def test_without_namespaces_a_person_decides_on_each_call() -> None:
    """A program of sandbox level B asks whatever rules and grants say, for this once; no stays no."""
    shared = an_admitted(None, capabilities=("process", SHARED_HOST))
    verdict = judge(shared, FACTS, a_decision("allow"))
    assert isinstance(verdict, NeedsApproval)
    assert ("sandbox_level_b", ONCE) == (verdict.reason_code, verdict.scopes)
    plain = an_admitted(None, capabilities=("process",))
    assert isinstance(judge(plain, FACTS, a_decision("allow")), Allow)
    assert isinstance(judge(shared, FACTS, a_decision("deny")), Deny)
    granted = msgspec.structs.replace(FACTS, grant=a_grant())
    assert isinstance(judge(plain, granted, a_decision("ask")), Allow)
    assert isinstance(judge(shared, granted, a_decision("ask")), NeedsApproval)


def test_a_grant_key_is_described_safely() -> None:
    """The parts of a key are in its description, with deceptive characters as escapes."""
    assert "git status, src/" == describe_key("git status\nsrc/")
    assert r"a\u202eb" == describe_key("a\u202eb")


@every_row(
    ("decision", "given", "asked", "is_covered"),
    [
        ("allow", "a\nb", "a", True),
        ("allow", "a\nb", "b\na", True),
        ("allow", "a", "a\nb", False),
        ("allow", "git", "git grep x", False),
        ("allow", "git grep", "git grep [any words, listed options]", False),  # of an older version
        ("allow", "src/", "src/a.py", False),
        ("deny", "a", "a\nb", True),
        ("deny", "a\nb", "a", False),
        ("allow", "", "", False),
    ],
)
def test_a_grant_covers_what_was_shown(
    decision: Literal["allow", "deny"], given: str, asked: str, *, is_covered: bool
) -> None:
    """One that allows has all parts of the call; one that denies, each call with all of its parts."""
    assert is_covered == covers(a_grant(decision=decision, key=given), asked)


def test_examples_say_what_an_answer_covers_beyond_its_call() -> None:
    """They are of the list of the program; exact words cover nothing else, and a file any content."""
    reads = beyond_call("shell", "sub/: git grep [any words, listed options]")
    assert "sub/: git grep OTHER-WORDS" in reads
    assert beyond_call("shell", "'a [b'/: git grep [any words, listed options]")  # a folder
    assert not beyond_call("shell", "git push origin main")
    assert "pytest tests -q" in beyond_call("shell", "pytest tests [listed options]")
    assert ("any content: a.py",) == beyond_call("write_file", "a.py")
    assert not beyond_call("shell", "odd [any words, listed options]")
    assert beyond_call("http_fetch", "e.example")
    assert beyond_call("http_send", "POST https://e.example/x")
    assert not beyond_call("memory_write", "")


SERVER_TOOL = server_tool_key("mcp:files.list", "a" * 64, "v" * 16)


@every_row(
    ("tool", "server", "version", "is_covered"),
    [
        ("mcp:files.list", "a" * 64, "v" * 16, True),
        ("mcp:files.write", "a" * 64, "v" * 16, False),
        ("mcp:other.list", "a" * 64, "v" * 16, False),
        ("mcp:files.list", "b" * 64, "v" * 16, False),  # another command
        ("mcp:files.list", "a" * 64, "w" * 16, False),  # another description or schema
    ],
)
def test_a_grant_for_a_tool_of_a_server_is_for_that_tool(
    tool: str, server: str, version: str, *, is_covered: bool
) -> None:
    """Not for another tool or server, and not after the server or the tool has changed."""
    asked = server_tool_key(tool, server, version)
    assert is_covered == covers(a_grant(key=SERVER_TOOL), asked)
    assert is_server_tool_key(tool, asked)
    assert not is_server_tool_key("shell", asked)
    assert f"any arguments of {tool}" in beyond_call(tool, asked)[0]


def test_a_question_about_a_tool_of_a_server_says_any_arguments() -> None:
    """It offers the session and a time; with injected text in the run it is asked each time."""
    checked = an_admitted(capabilities=("process",))
    facets = msgspec.structs.replace(checked.facets, grant_key=SERVER_TOOL)
    checked = msgspec.structs.replace(checked, facets=facets)
    verdict = judge(checked, FACTS, a_decision("ask"))
    assert isinstance(verdict, NeedsApproval)
    assert ("once", "session", "timeboxed") == verdict.scopes
    assert "mcp:files.list [any arguments, unchanged server" in describe_key(verdict.grant_key)
    tainted = msgspec.structs.replace(FACTS, is_tainted=True, grant=a_grant(key=SERVER_TOOL))
    again = judge(checked, tainted, a_decision("ask"))
    assert isinstance(again, NeedsApproval)
    assert ONCE == again.scopes


def test_an_answer_for_all_sessions_allows_a_confined_run_nothing() -> None:
    """A run of a channel is covered by answers in its own session, and denied by any."""
    everywhere = a_grant(scope="timeboxed", expires_ms=99)

    def find(grant: GrantRecord, *, is_confined: bool) -> GrantRecord | None:
        where = {"session_id": grant.session_id, "epoch": grant.epoch, "at_ms": 5}
        return find_grant([grant], **where, is_confined=is_confined)  # type: ignore[arg-type]  # of a mixed dict

    assert everywhere == find(everywhere, is_confined=False)
    assert find(everywhere, is_confined=True) is None
    denied = a_grant(scope="timeboxed", expires_ms=99, decision="deny")
    assert denied == find(denied, is_confined=True)
    here = a_grant(scope="session")
    assert here == find(here, is_confined=True)
    assert ("once", "session") == scopes_of(is_confined=True, is_once=False)
    assert ("once",) == scopes_of(is_confined=True, is_once=True)


@every_row("parts", [["", "git log"], [""], ["a\tb"], ["a\nb"], ["x" * 1_001], []])
def test_a_part_without_a_key_gives_the_call_none(parts: list[str]) -> None:
    """Nor does a part that cannot be shown on one line, or too many characters."""
    assert not join_parts(parts)
