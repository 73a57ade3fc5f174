"""Modes of a session: which calls each of them decides."""

from typing import Any

import msgspec
import pytest

from palyra.core.journal.records import ModeChange, SessionMode, SessionRecord
from palyra.core.policy.gate import Allow, Deny, NeedsApproval, judge
from palyra.core.policy.modes import (
    ACCEPT_EDITS,
    PLAN_MODE,
    PROPOSE_PLAN,
    changed_mode,
    edit_grant,
    edits_hold,
    is_edit,
    keeps_files,
    only_reads,
    reset_mode,
    session_of_edits,
    shown_in,
    without_plan,
)
from palyra.core.tool.spec import CLIENT, CallFacts
from tests.core.policy.tool_samples import FACTS, a_catalogue, a_decision, a_spec, an_admitted

SESSION = SessionRecord(session_id="ses_1", principal="alice", key=None, created_ms=0, updated_ms=0)
CHANGE = ModeChange(by="alice", role="person", at_ms=7)
WRITE: dict[str, Any] = {"tool_class": "path_scoped", "capabilities": ("fs.write",)}
FILE = CallFacts(grant_key="a.py")
READER = CallFacts(is_reader=True)


def in_mode(mode: SessionMode) -> SessionRecord:
    """The session after a change from `ask`."""
    return changed_mode(SESSION, mode, CHANGE)


def test_a_mode_makes_a_grant_in_accept_edits_alone() -> None:
    """It holds as long as the session stays in the mode without a change in between."""
    assert edit_grant(SESSION, "default", "write_file", "a.py") is None
    assert edit_grant(in_mode("plan"), "default", "write_file", "a.py") is None
    session = in_mode("accept_edits")
    grant = edit_grant(session, "default", "write_file", "a.py")
    assert grant is not None
    assert (grant.by, grant.key, session_of_edits(grant.grant_id)) == ("alice", "a.py", "ses_1")
    later = changed_mode(
        changed_mode(session, "ask", CHANGE),
        "accept_edits",
        msgspec.structs.replace(CHANGE, at_ms=9),
    )
    held = [edits_hold(each, grant.grant_id) for each in (session, later, SESSION, None)]
    assert held == [True, False, False, False]
    assert not session_of_edits("grt_1")


@pytest.mark.parametrize(
    ("changes", "facets", "expected"),
    [
        (WRITE, FILE, True),
        (WRITE, CallFacts(), False),
        (WRITE | {"capabilities": ("fs.write", "process")}, FILE, False),
        (WRITE | {"capabilities": ("fs.write", "secret")}, FILE, False),
        (WRITE | {"capabilities": ("fs.read",)}, FILE, False),
        (WRITE | {"tool_class": "effect"}, FILE, False),
        (WRITE | {"name": "mcp:files.write"}, FILE, False),
        (WRITE | {"name": "wasm:files.write"}, FILE, False),
    ],
)
def test_an_edit_is_a_write_of_the_workspace_by_a_built_in_tool(
    changes: dict[str, Any], facets: CallFacts, *, expected: bool
) -> None:
    """A program, a server, a skill, a secret and a path without a key are none."""
    assert is_edit(a_spec(**changes), facets) is expected


@pytest.mark.parametrize(
    ("changes", "facets", "expected"),
    [
        ({}, CallFacts(), True),
        ({"tool_class": "idempotent_network", "capabilities": ("network",)}, CallFacts(), True),
        ({"tool_class": "effect"}, CallFacts(), False),
        ({"tool_class": "delegation"}, CallFacts(), False),
        (WRITE, FILE, False),
        ({"capabilities": ("fs.write",)}, CallFacts(), False),
        ({"executor": CLIENT}, CallFacts(), False),
        ({"name": "mcp:x.look", "tool_class": "effect"}, CallFacts(), False),
        ({"name": "shell", "tool_class": "effect"}, READER, True),
        ({"name": "shell", "tool_class": "effect"}, CallFacts(parts=(READER, READER)), True),
        ({"name": "shell", "tool_class": "effect"}, CallFacts(parts=(READER, FILE)), False),
        ({"name": "shell", "tool_class": "effect"}, CallFacts(), False),
        ({"name": "process_start", "tool_class": "effect"}, READER, False),
    ],
)
def test_a_call_reads_if_the_daemon_knows_it(
    changes: dict[str, Any], facets: CallFacts, *, expected: bool
) -> None:
    """Everything else counts as a change."""
    assert only_reads(a_spec(**changes), facets) is expected


def test_a_doubt_asks_in_spite_of_the_mode() -> None:
    """A tainted run asks about the edit that an untainted one makes."""
    checked = an_admitted({"path": "a.py"}, **WRITE)
    grant = edit_grant(in_mode("accept_edits"), "default", "probe", "a.py")
    facts = msgspec.structs.replace(FACTS, grant=grant)
    allowed = judge(checked, facts, a_decision("ask"))
    assert isinstance(allowed, Allow)
    assert (allowed.reason_code, allowed.grant_id) == (ACCEPT_EDITS, grant and grant.grant_id)
    tainted = msgspec.structs.replace(facts, is_tainted=True)
    assert isinstance(judge(checked, tainted, a_decision("ask")), NeedsApproval)
    assert isinstance(judge(checked, facts, a_decision("deny")), Deny)


def test_plan_mode_refuses_what_the_rules_and_a_grant_allow() -> None:
    """The reason has its own code, and a call that reads is decided by the rules."""
    facts = msgspec.structs.replace(FACTS, mode="plan")
    refused = judge(an_admitted(**WRITE), facts, a_decision("allow"))
    assert isinstance(refused, Deny)
    assert refused.reason_code == PLAN_MODE
    assert isinstance(judge(an_admitted(), facts, a_decision("allow")), Allow)


def test_a_plan_returns_to_the_mode_before() -> None:
    """A second change to plan changes nothing; a reset keeps the plan and nothing that was allowed."""
    plan = changed_mode(in_mode("accept_edits"), "plan", CHANGE)
    assert changed_mode(plan, "plan", msgspec.structs.replace(CHANGE, at_ms=9)) is plan
    after = without_plan(plan, 8)
    assert (after.mode, without_plan(after, 9)) == ("accept_edits", after)
    reset = reset_mode(plan)
    assert reset.mode_set == CHANGE
    assert (reset.mode, without_plan(reset, 8).mode) == ("plan", "ask")
    assert (reset_mode(in_mode("accept_edits")).mode, reset_mode(SESSION)) == ("ask", SESSION)


def test_an_accepted_plan_gives_edits_in_the_name_of_who_chose_them() -> None:
    """Another principal who puts the session into plan mode answers for no write of it."""
    bob = ModeChange(by="bob", role="operator", at_ms=9)
    after = without_plan(changed_mode(in_mode("accept_edits"), "plan", bob), 10)
    grant = edit_grant(after, "default", "write_file", "a.py")
    assert grant is not None
    assert ("alice", "person") == (grant.by, after.mode_set and after.mode_set.role)
    asked = without_plan(changed_mode(in_mode("ask"), "plan", bob), 10)
    assert ("ask", "bob") == (asked.mode, asked.mode_set and asked.mode_set.by)


def test_the_tool_for_plans_is_shown_in_plan_mode() -> None:
    """Even to an agent whose list lacks it; elsewhere to none."""
    proposing = a_spec(PROPOSE_PLAN)
    whole, own = a_catalogue(a_spec("look"), proposing), a_catalogue(a_spec("look"))
    assert [*shown_in("plan", own, whole).tools] == ["look", PROPOSE_PLAN]
    assert [*shown_in("ask", whole, whole).tools] == ["look"]
    assert shown_in("plan", own, own) is own


@pytest.mark.parametrize(
    ("capabilities", "facets", "expected"),
    [
        (("process",), CallFacts(), True),
        (("process", "network"), CallFacts(), True),
        (("process", "fs.read"), CallFacts(), True),
        (("process", "fs.read", "fs.write"), CallFacts(), False),
        (("network",), CallFacts(host="mcp.example.org"), True),
        (("network", "fs.write"), CallFacts(host="mcp.example.org"), False),
        (("network",), CallFacts(host="127.0.0.2"), False),
        (("network",), CallFacts(host="localhost"), False),
        (("network",), CallFacts(), False),
    ],
)
def test_a_foreign_server_keeps_files_unless_a_workspace_is_open_to_it(
    capabilities: tuple[str, ...],
    facets: CallFacts,
    expected: bool,  # noqa: FBT001 - a row
) -> None:
    """A server on this machine outside the jail may write anywhere."""
    spec = a_spec("mcp:a.b", tool_class="effect", capabilities=capabilities, executor="mcp")
    assert keeps_files(spec, facets) == expected


def test_a_command_keeps_files_if_it_only_reads() -> None:
    """Every command of a line has to."""
    shell = a_spec("shell", tool_class="effect", capabilities=("process",), executor="process")
    mixed = CallFacts(parts=(READER, CallFacts()))
    found = [keeps_files(shell, each) for each in (READER, CallFacts(), mixed)]
    assert found == [True, False, False]
