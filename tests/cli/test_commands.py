"""The commands that list, show and change, against a fake daemon."""

import json
import re
import time
from pathlib import Path

import click
import pytest

from palyra.cli.command.errors import LISTS, stop_for
from palyra.cli.main import COMMANDS, SECTIONS, cli, sections
from palyra.core.tape.events import RunDone
from palyra.errors import NotFound
from tests.cli.command import palyra, run_python
from tests.cli.named_commands import ROOT, find_fault
from tests.client.fake_daemon import RUN, RUN_VIEW, SESSION, Hangup, Json, Refusal, fake_daemon
from tests.rows import every_row

pytestmark = pytest.mark.real

RUN_RECORD: Json = {**RUN_VIEW, "reason": "answered"}
APPROVAL: Json = {
    "approval_id": "apr_1",
    "run_id": RUN,
    "session_id": SESSION,
    "call_id": "call_1",
    "principal": "owner",
    "tool": "write_file",
    "risk": "medium",
    "summary": "write_file(path=a.txt)",
    "arguments": {"path": "a.txt", "content": "x\u202ey\u009bz"},
    "digest": "abcdef0123456789" * 4,
    "scopes": ["once", "session"],
    "policy_reason": "writing asks",
    "requested_ms": 1,
    "expires_ms": 2,
}
GRANT: Json = {
    "grant_id": "grt_1",
    "principal": "owner",
    "agent": "default",
    "tool": "shell",
    "key": "git status",
    "decision": "allow",
    "scope": "session",
    "session_id": SESSION,
    "epoch": 0,
    "approval_id": "apr_1",
    "by": "bob",
    "granted_ms": 1,
}
RESOLVED: Json = {
    "decision": "allow",
    "scope": "once",
    "by": "owner",
    "resolved_ms": 5,
    "won": True,
    "run_id": RUN,
    "seq": 9,
}
TOKEN_SHOWN: Json = {
    "token_id": "tok_1",
    "principal": "ann",
    "role": "client",
    "name": "laptop",
    "created_ms": 1,
}
SESSION_RECORD: Json = {
    "session_id": SESSION,
    "principal": "owner",
    "key": "daily",
    "created_ms": 1,
    "updated_ms": 2,
}
QUEUE: Json = {
    "session_id": SESSION,
    "mode": "followup",
    "paused": False,
    "waiting": ["run_waiting"],
    "messages": 2,
    "cap": 20,
}
STATUS: Json = {
    "state": "ready",
    "version": "0.1.0",
    "instance_id": "i1",
    "protocol": "palyra.v1",
    "now_ms": 1,
    "is_writable": True,
}
TREE: Json = {"id": "daemon", "state": "running", "children": [{"id": "hub", "state": "running"}]}
DECISION: Json = {
    "answer": "ask",
    "reason_code": "asks",
    "reason": "writing asks",
    "policies": ["write"],
    "version": "v1",
}
APPLIED: Json = {"suggestion_id": "sug_0", "file": "f.cedar", "cedar": "permit", "applied_ms": 1}
SUGGESTED: Json = {
    "suggestions": [
        {
            "suggestion_id": "sug_0",
            "title": "shell: pytest -q",
            "principal": "ann",
            "agent": "default",
            "tool": "shell",
            "answers": 3,
            "runs": 2,
            "cedar": "permit (principal, action, resource);",
            "calls": [{"run_id": "run_1", "call_id": "c", "summary": "shell", "at_ms": 1}],
        }
    ],
    "proof": {"decisions": 9, "denied": 2},
    "applied": [APPLIED],
}
TOOL: Json = {
    "name": "echo",
    "version": "1",
    "description": "Say it again.",
    "parameters": {},
    "tool_class": "read_only_safe",
    "risk": "low",
}
VERIFIED: Json = {
    "checked_events": 3,
    "checked_roots": 1,
    "through_position": 3,
    "signed_through_position": 3,
}

AGENT_SHOWN: Json = {
    "name": "scout",
    "version": 2,
    "memory_scope": "principal",
    "created_ms": 1,
    "updated_ms": 2,
    "instructions": "Look round.",
    "tools": ["read_file", "echo"],
}
SUM: Json = {
    "key": "",
    "from_ms": 86_400_000,
    "calls": 2,
    "unpriced_calls": 1,
    "input_tokens": 7,
    "cost_usd_micros": 12,
}
SPENT: Json = {"total": SUM, "groups": [SUM], "is_cut": False}
BUDGET_SHOWN: Json = {
    "budget_id": "day",
    "scope": "global",
    "subject": "*",
    "metric": "usd_micros",
    "window": "day",
    "action": "block",
    "revision": 1,
    "hard": 9_000_000,
}
CHANNEL_SHOWN: Json = {
    "principal": "ann",
    "channel": "chat",
    "agent": "scout",
    "pairing": "required",
    "created_ms": 1,
    "updated_ms": 2,
}
PAIRING_SHOWN: Json = {
    "pairing_id": "pai_1",
    "principal": "ann",
    "channel": "chat",
    "sender": "sam",
    "state": "pending",
    "requested_ms": 1,
    "expires_ms": 2,
    "attempts": 0,
}

INCIDENT: Json = {
    "incident_id": "inc_1",
    "domain": "store",
    "key": "journal_refuses",
    "severity": "critical",
    "state": "open",
    "summary": "the journal refuses writes",
    "evidence": {"error": "disk full"},
    "count": 3,
    "resolves_itself": True,
    "opened_ms": 1,
    "last_ms": 2,
}

TASK_SHOWN: Json = {
    "task_id": "tsk_1",
    "kind": "prompt",
    "principal": "ann",
    "state": "queued",
    "priority": 5,
    "created_ms": 1,
    "not_before_ms": 1,
    "attempts": 1,
    "max_attempts": 3,
    "error": "it was busy",
}
SCHEDULE_SHOWN: Json = {
    "schedule_id": "sch_1",
    "name": "nightly",
    "principal": "ann",
    "kind": "prompt",
    "priority": 5,
    "max_attempts": 3,
    "missed": "once",
    "overlap": "forbid",
    "created_ms": 1,
    "cron": "30 2 * * *",
    "zone": "Europe/Berlin",
    "next_ms": 1_793_000_000_000,
}
INSTANTS: Json = {
    "schedule_id": "sch_1",
    "zone": "Europe/Berlin",
    "instants": [1_792_888_200_000, 1_792_978_200_000],
}

LISTINGS: dict[tuple[str, ...], tuple[str, Json, str]] = {
    ("runs", "list"): ("run.list", {"runs": [RUN_RECORD]}, RUN),
    ("runs", "show", RUN): ("run.get", RUN_RECORD, RUN),
    ("approvals", "list"): ("approval.list", {"approvals": [APPROVAL]}, "apr_1"),
    ("approvals", "show", "apr_1"): ("approval.get", APPROVAL, "write_file"),
    ("approvals", "grants"): ("approval.grants", {"grants": [GRANT]}, "git status"),
    ("approvals", "revoke", "grt_1"): (
        "approval.revoke",
        {**GRANT, "ended_ms": 1, "ended_by": "bob"},
        "ago by bob",
    ),
    ("sessions", "list"): ("session.list", {"sessions": [SESSION_RECORD]}, "daily"),
    ("tokens", "list"): ("token.list", {"tokens": [TOKEN_SHOWN]}, "laptop"),
    ("usage",): ("usage.summary", SPENT, "$0.000012 + 1 call without a price"),
    ("usage", "--by", "day"): ("usage.summary", SPENT, "1970-01-02"),
    ("agents", "list"): ("agent.list", {"agents": [AGENT_SHOWN]}, "read_file, echo"),
    ("agents", "show", "scout"): ("agent.get", AGENT_SHOWN, "Look round."),
    ("channels", "list"): ("channel.list", {"channels": [CHANNEL_SHOWN]}, "required"),
    ("pairings", "list"): ("pairing.list", {"pairings": [PAIRING_SHOWN]}, "sam"),
    ("incidents", "list", "--open"): ("incident.list", {"incidents": [INCIDENT]}, "refuses"),
    ("incidents", "show", "inc_1"): ("incident.get", INCIDENT, "disk full"),
    ("tasks", "list"): ("task.list", {"tasks": [TASK_SHOWN]}, "it was busy"),
    ("tasks", "show", "tsk_1"): ("task.get", TASK_SHOWN, "error: it was busy"),
    ("schedules", "list"): ("schedule.list", {"schedules": [SCHEDULE_SHOWN]}, "30 2 * * *"),
    ("schedules", "next", "sch_1"): ("schedule.next", INSTANTS, "2026-10-26 02:30:00+01:00"),
    ("models",): (
        "model.list",
        {
            "models": [
                {
                    "name": "a/x",
                    "provider": "a",
                    "api": "chat",
                    "is_default": True,
                    "vision": True,
                    "json": True,
                    "tools": False,
                    "breaker": "half_open",
                    "parallel": 4,
                    "under_way": 2,
                    "waiting": 1,
                    "input_usd_micros": 1_250_000,
                },
                {"name": "scripted", "provider": "scripted", "breaker": "closed"},
            ],
            "routing": "enforced",
            "failover": ["scripted"],
        },
        "half open",
    ),
    ("tools",): ("tool.list", {"tools": [TOOL], "hash": "h"}, "Say it again."),
    ("policy", "explain", "echo", "{}"): ("policy.explain", DECISION, "writing asks"),
    ("policy", "suggest"): ("policy.suggest", SUGGESTED, "1. shell: pytest -q"),
    ("policy", "undo"): ("policy.undo", APPLIED, "removed sug_0"),
    ("status",): ("system.status", STATUS, "ready"),
    ("tree",): ("system.tree", TREE, "hub"),
    ("tape", "verify"): ("tape.verify", VERIFIED, "intact"),
}


@pytest.mark.parametrize("command", LISTINGS, ids=" ".join)
async def test_listing_for_people_and_programs(command: tuple[str, ...]) -> None:
    """Each listing prints what was found as text and, with --json, as JSON."""
    method, reply, shown = LISTINGS[command]
    async with fake_daemon() as daemon:
        daemon.reply_with(method, reply)
        text = await palyra(*command, url=daemon.url)
        data = await palyra(*command, "--json", url=daemon.url)
    assert (0, 0) == (text.code, data.code)
    assert shown in text.out
    assert reply.keys() <= data.json.keys()


async def test_empty_listing_says_so() -> None:
    """A listing without rows is a sentence, not silence."""
    async with fake_daemon() as daemon:
        daemon.reply_with("run.list", {"runs": []})
        listed = await palyra("runs", "list", url=daemon.url)
    assert "no runs yet\n" == listed.out


async def test_approval_is_shown_complete_and_escaped() -> None:
    """Arguments are printed whole; what could steer a terminal is escaped, in JSON too."""
    async with fake_daemon() as daemon:
        daemon.reply_with("approval.get", APPROVAL)
        text = await palyra("approvals", "show", "apr_1", url=daemon.url)
        data = await palyra("approvals", "show", "apr_1", "--json", url=daemon.url)
    for output in (text.out, data.out):
        assert "x\\u202ey\\u009bz" in output
        assert not {"\u202e", "\u009b", "\x1b"} & set(output)
    assert APPROVAL["arguments"] == data.json["arguments"]
    assert APPROVAL["digest"] in text.out


async def test_approval_shows_inspection_key_and_duplicates() -> None:
    """They are shown in full, with hidden characters escaped."""
    wide = {
        "inspection": {"binary": "/usr/bin/g\u202eit"}, "grant_key": "git\u200b", "covers": ["c2"],
    }  # fmt: skip
    async with fake_daemon() as daemon:
        daemon.reply_with("approval.get", APPROVAL | wide)
        shown = await palyra("approvals", "show", "apr_1", url=daemon.url)
    assert r"/usr/bin/g\u202eit" in shown.out
    assert r"write_file: git\u200b" in shown.out
    assert "2 identical calls" in shown.out


async def test_conditions_of_an_approval_are_one_line_at_the_end() -> None:
    """Program, folder, jail, variables of one's own and three files; --raw has everything."""
    known = {"HOME": "/h", "LANG": "C", "PATH": "/usr/bin", "TERM": "dumb"}
    known["PYTHONDONTWRITEBYTECODE"] = "1"
    seen = {
        "binary": "/usr/bin/dash", "cwd": "/home/me/infl", "environment": {**known, "CI": "1"},
        "operands": {f"{name}.sh": "ab" * 32 for name in "abcde"},
        "profile": "bubblewrap, seccomp; workspace writable; no network",
    }  # fmt: skip
    async with fake_daemon() as daemon:
        daemon.reply_with("approval.get", {**APPROVAL, "inspection": seen})
        shown = await palyra("approvals", "show", "apr_1", url=daemon.url)
        raw = await palyra("approvals", "show", "apr_1", "--raw", url=daemon.url)
    digest = "(abababababab)"
    assert (
        "runs /usr/bin/dash in /home/me/infl, workspace writable, no network, with CI set, "
        f"a.sh as it is {digest}, b.sh as it is {digest}, c.sh as it is {digest}, 2 more files as they are"
    ) == shown.out.splitlines()[-1]
    assert "TERM" not in shown.out
    assert '"TERM": "dumb"' in raw.out


async def test_an_empty_inspection_is_not_shown() -> None:
    """For a tool that runs no program, nothing about programs is shown."""
    seen = {"binary": "", "cwd": "", "environment": {}, "operands": {"a.txt": "ab"}, "profile": ""}
    async with fake_daemon() as daemon:
        daemon.reply_with("approval.get", {**APPROVAL, "inspection": seen})
        shown = await palyra("approvals", "show", "apr_1", url=daemon.url)
        daemon.reply_with("approval.get", {**APPROVAL, "inspection": {**seen, "operands": {}}})
        nothing = await palyra("approvals", "show", "apr_1", url=daemon.url)
    assert "a.txt" in shown.out
    assert "binary" not in shown.out
    assert "would meet" not in nothing.out


async def test_approval_shows_its_deadline() -> None:
    """A pending question says until when it can be answered; a settled one who answered."""
    open_ms = time.time_ns() // 1_000_000 + 600_500
    answered = {"state": "denied", "by": "bob", "reason": "not today", "resolved_ms": 3}
    async with fake_daemon() as daemon:
        daemon.reply_with("approval.get", {**APPROVAL, "expires_ms": open_ms})
        pending = await palyra("approvals", "show", "apr_1", url=daemon.url)
        daemon.reply_with("approval.get", {**APPROVAL, **answered})
        settled = await palyra("approvals", "show", "apr_1", url=daemon.url)
    assert "deadline   in 10 min" in pending.out
    assert "answer     denied by bob: not today" in settled.out
    assert "deadline" not in settled.out


async def test_expired_token_is_not_valid() -> None:
    """`tokens list` distinguishes expired tokens from valid ones."""
    async with fake_daemon() as daemon:
        expired = {**TOKEN_SHOWN, "token_id": "tok_2", "expires_ms": 2}
        daemon.reply_with("token.list", {"tokens": [TOKEN_SHOWN, expired]})
        listed = await palyra("tokens", "list", url=daemon.url)
    states = {line.split()[0]: line.split()[-2] for line in listed.out.splitlines()[1:]}
    assert {"tok_1": "valid", "tok_2": "expired"} == states


async def test_allow_sends_the_digest_that_was_read() -> None:
    """`approvals allow` answers with the digest of what it looked up."""
    async with fake_daemon() as daemon:
        daemon.reply_with("approval.get", APPROVAL)
        daemon.reply_with("approval.resolve", RESOLVED)
        allowed = await palyra(
            "approvals", "allow", "apr_1", "--digest", "ABCDEF", "--reason", "ok", url=daemon.url
        )
    assert 0 == allowed.code
    sent = daemon.requests[-1][1]
    assert ("allow", APPROVAL["digest"], "ok") == (sent["decision"], sent["digest"], sent["reason"])


async def test_allow_of_something_else_is_not_sent() -> None:
    """With a --digest that is not the question's nothing is answered."""
    async with fake_daemon() as daemon:
        daemon.reply_with("approval.get", APPROVAL)
        allowed = await palyra("approvals", "allow", "apr_1", "--digest", "ffff", url=daemon.url)
    assert 1 == allowed.code
    assert "approval.resolve" not in daemon.methods()
    assert "remedy: read it again" in allowed.err


async def test_lost_answer_fails() -> None:
    """`approvals deny` after another client's allow names the winner and exits 1."""
    async with fake_daemon() as daemon:
        daemon.reply_with("approval.get", APPROVAL)
        daemon.reply_with("approval.resolve", {**RESOLVED, "won": False, "by": "bob"})
        denied = await palyra("approvals", "deny", "apr_1", url=daemon.url)
    assert (1, "already decided: allow by bob\n") == (denied.code, denied.out)


async def test_new_token_is_printed_alone() -> None:
    """`tokens create` prints the secret on standard output and nothing else there."""
    async with fake_daemon() as daemon:
        daemon.reply_with("token.create", {**TOKEN_SHOWN, "token": "pal_secret"})
        made = await palyra(
            "tokens",
            "create",
            "--principal",
            "ann",
            "--name",
            "laptop",
            "--ttl",
            "60",
            url=daemon.url,
        )
    assert "pal_secret\n" == made.out
    assert 60_000 == daemon.requests[-1][1]["ttl_ms"]


async def test_a_console_link_is_printed_alone() -> None:
    """`console` prints the link on standard output, and says elsewhere what it is."""
    link = {
        "url": "http://127.0.0.1:7467/#login=pal_x", "principal": "eve", "role": "approver",
        "expires_ms": 120_000,
    }  # fmt: skip
    asked = ("console", "--role", "approver", "--principal", "eve", "--ttl", "60")
    async with fake_daemon() as daemon:
        daemon.reply_with("console.link", link)
        made = await palyra(*asked, url=daemon.url)
        listed = await palyra("--json", *asked, url=daemon.url)
    assert "http://127.0.0.1:7467/#login=pal_x\n" == made.out
    assert "logs in eve as approver, once, within two minutes\n" == made.err
    assert link == json.loads(listed.out)
    expected = {"role": "approver", "principal": "eve", "ttl_ms": 60_000}
    assert expected == daemon.requests[-1][1]


async def test_a_lost_secret_has_a_remedy() -> None:
    """When the reply with the secret was lost, the remedy names the token to revoke."""
    async with fake_daemon() as daemon:
        daemon.reply_with("token.create", TOKEN_SHOWN)
        made = await palyra("tokens", "create", "--principal", "a", "--name", "b", url=daemon.url)
    assert (1, "") == (made.code, made.out)
    assert "palyra tokens revoke tok_1" in made.err


@pytest.mark.parametrize(
    ("command", "method", "reply", "said"),
    [
        (
            ("runs", "cancel", RUN),
            "run.cancel",
            {"state": "cancelled", "applied_seq": 3},
            "cancelled",
        ),
        (("sessions", "archive", SESSION), "session.archive", SESSION_RECORD, "archived"),
        (
            ("sessions", "rename", SESSION, "Ours"),
            "session.rename",
            SESSION_RECORD | {"title": "Ours"},
            "is named Ours",
        ),
        (
            ("sessions", "mode", SESSION, "accept-edits"),
            "session.set_mode",
            SESSION_RECORD,
            "accept-edits",
        ),
        (("sessions", "reset", SESSION), "session.reset", SESSION_RECORD, "epoch 0"),
        (("tokens", "revoke", "tok_1"), "token.revoke", TOKEN_SHOWN, "revoked"),
        (
            ("agents", "create", "scout", "--instructions", "Look round."),
            "agent.create",
            AGENT_SHOWN,
            "scout is created",
        ),
        (
            ("budget", "set", "day", "--hard", "9", "--window", "sliding", "--length", "12h"),
            "budget.set",
            BUDGET_SHOWN,
            "day is in force for everybody",
        ),
        (("budget", "delete", "day"), "budget.delete", BUDGET_SHOWN, "day is deleted"),
        (("agents", "update", "scout", "--no-tools"), "agent.update", AGENT_SHOWN, "version 2"),
        (("agents", "delete", "scout"), "agent.delete", AGENT_SHOWN, "scout is deleted"),
        (
            ("incidents", "resolve", "inc_1", "made room"),
            "incident.resolve",
            {**INCIDENT, "state": "resolved", "by": "owner", "reason": "made room"},
            "was resolved by owner: made room",
        ),
        (("tasks", "submit", "prompt", "--text", "hi"), "task.submit", TASK_SHOWN, "is queued"),
        (("tasks", "cancel", "tsk_1"), "task.cancel", TASK_SHOWN, "tsk_1"),
        (("tasks", "pause", "tsk_1"), "task.pause", TASK_SHOWN, "tsk_1"),
        (("tasks", "resume", "tsk_1"), "task.resume", TASK_SHOWN, "tsk_1"),
        (("tasks", "retry", "tsk_1"), "task.retry", TASK_SHOWN, "tsk_1"),
        (
            ("schedules", "add", "nightly", "--cron", "30 2 * * *", "--text", "hi"),
            "schedule.add",
            SCHEDULE_SHOWN,
            "fires next at 2026-10-",
        ),
        (("schedules", "pause", "sch_1"), "schedule.pause", SCHEDULE_SHOWN, "is paused"),
        (("schedules", "resume", "sch_1"), "schedule.resume", SCHEDULE_SHOWN, "fires next"),
        (("schedules", "remove", "sch_1"), "schedule.remove", SCHEDULE_SHOWN, "is removed"),
        (("channels", "set", "chat"), "channel.set", CHANNEL_SHOWN, "answered by scout"),
        (("channels", "delete", "chat"), "channel.delete", CHANNEL_SHOWN, "is deleted"),
        (("pairings", "approve", "pai_1", "c"), "pairing.approve", PAIRING_SHOWN, "may send"),
        (("pairings", "revoke", "pai_1"), "pairing.revoke", PAIRING_SHOWN, "may no longer send"),
    ],
)
async def test_change_is_confirmed(
    command: tuple[str, ...], method: str, reply: Json, said: str
) -> None:
    """A command that changes something says what is so now."""
    async with fake_daemon() as daemon:
        daemon.reply_with(method, reply)
        changed = await palyra(*command, url=daemon.url)
    assert 0 == changed.code
    assert said in changed.out


async def test_session_shows_its_queue() -> None:
    """`sessions show` names the runs that wait."""
    async with fake_daemon() as daemon:
        daemon.reply_with("session.get", SESSION_RECORD)
        daemon.reply_with("session.queue", QUEUE)
        daemon.reply_with("run.list", {"runs": []})
        shown = await palyra("sessions", "show", SESSION, url=daemon.url)
    assert "run_waiting" in shown.out
    assert "followup, 2 of 20 messages waiting" in shown.out


async def test_queue_is_changed_in_one_request() -> None:
    """`sessions queue` sends every change it was given at once, and shows what came of it."""
    async with fake_daemon() as daemon:
        daemon.reply_with("session.queue", {**QUEUE, "paused": True})
        command = ("sessions", "queue", SESSION, "--mode", "steer", "--pause")
        done = await palyra(*command, "--drop", RUN, "--first", "run_waiting", url=daemon.url)
    asked = dict(daemon.requests)["session.queue"]
    assert asked.pop("idempotency_key")
    wanted = {"mode": "steer", "paused": True, "drop": [RUN], "order": ["run_waiting"]}
    assert {"session_id": SESSION, **wanted} == asked
    assert (0, True) == (done.code, "paused" in done.out)


async def test_a_session_is_found_by_its_key() -> None:
    """The caller's key works in place of an id; a key of another principal does not."""
    other = {**SESSION_RECORD, "session_id": "ses_other", "principal": "ann"}
    async with fake_daemon() as daemon:
        pages = {
            None: {"sessions": [other], "next_cursor": "ses_other"},
            "ses_other": {"sessions": [SESSION_RECORD]},
        }
        daemon.answers["session.list"] = lambda _connection, params: pages[params.get("cursor")]
        daemon.reply_with("session.archive", SESSION_RECORD)
        found = await palyra("sessions", "archive", "daily", url=daemon.url)
        missing = await palyra("sessions", "archive", "cliq", "--json", url=daemon.url)
    archived = [params for method, params in daemon.requests if method == "session.archive"]
    assert (0, [SESSION]) == (found.code, [params["session_id"] for params in archived])
    assert (1, "not_found") == (missing.code, json.loads(missing.err)["error"]["kind"])


async def test_queue_without_options_only_looks() -> None:
    """`sessions queue` alone changes nothing; --json shows the reply."""
    async with fake_daemon() as daemon:
        daemon.reply_with("session.queue", QUEUE)
        shown = await palyra("sessions", "queue", SESSION, "--json", url=daemon.url)
    assert {"session_id": SESSION} == dict(daemon.requests)["session.queue"]
    assert QUEUE == json.loads(shown.out)


async def test_wait_returns_when_an_approval_is_pending() -> None:
    """`runs wait --attention` of a run that has not ended is no failure."""
    async with fake_daemon() as daemon:
        daemon.reply_with("run.wait", {**RUN_RECORD, "state": "in_progress", "timed_out": False})
        daemon.reply_with("run.get", {**RUN_RECORD, "state": "in_progress"})
        waited = await palyra("runs", "wait", RUN, "--attention", url=daemon.url)
    assert 0 == waited.code


async def test_wait_asks_again_when_the_time_is_up() -> None:
    """`runs wait` repeats its request when the daemon reports a timeout."""
    async with fake_daemon() as daemon:
        daemon.append(RunDone(reason="answered"))
        daemon.answers["tape.read"] = lambda connection, _params: {
            "events": connection.daemon.tapes[RUN].rows,
            "head_seq": 0,
            "floor_seq": 0,
            "bytes": 0,
        }
        replies = [{**RUN_RECORD, "timed_out": True}, {**RUN_RECORD, "timed_out": False}]
        daemon.reply_with("run.get", RUN_RECORD)
        daemon.answers["run.wait"] = lambda _connection, _params: replies.pop(0)
        assert 0 == (await palyra("runs", "wait", RUN, url=daemon.url)).code
    assert [] == replies


async def test_broken_journal_exits_1() -> None:
    """`tape verify` of a journal with a break says where and exits 1."""
    broken = {"kind": "edited", "position": 2, "run_id": RUN, "seq": 1, "detail": "link"}
    async with fake_daemon() as daemon:
        daemon.reply_with("tape.verify", {**VERIFIED, "first_break": broken, "breaks": 1})
        verified = await palyra("tape", "verify", url=daemon.url)
    assert 1 == verified.code
    assert "NOT INTACT" in verified.out
    assert "an event was changed: link" in verified.out


async def test_every_break_is_shown_in_words_with_a_remedy() -> None:
    """Unknown fields are left out, and the number of further breaks is shown."""
    lost = {"kind": "truncated", "position": None, "run_id": None, "seq": None, "detail": "gone"}
    edited = {"kind": "edited", "position": 7, "run_id": RUN, "seq": 1, "detail": "no fit"}
    async with fake_daemon() as daemon:
        report = {**VERIFIED, "first_break": lost, "breaks": 5, "found": [lost, edited]}
        opened = {**INCIDENT, "key": "chain_broken:missing", "evidence": {"detail": "it is empty"}}
        daemon.reply_with("incident.list", {"incidents": [opened], "next_cursor": None})
        daemon.reply_with("tape.verify", report)
        shown = (await palyra("tape", "verify", url=daemon.url)).out
        daemon.reply_with("tape.verify", {**report, "first_break": edited, "found": [edited]})
        placed = (await palyra("tape", "verify", url=daemon.url)).out
    assert "None" not in shown
    for text in (
        "the end is missing: gone\n",
        f"an event was changed: no fit (position 7, run {RUN}, seq 1)",
        "and 3 more",
        "found before: it is empty",
        "restore the data directory from a backup",
    ):
        assert text in shown
    assert "events before position 7 are unchanged" in placed
    assert "are unchanged" not in shown


# --- what goes wrong ---


async def test_no_daemon_exits_69(tmp_path: Path) -> None:
    """Without a daemon there is one line that says so, one that says what to do, no traceback."""
    found = await palyra("status", home=tmp_path)
    assert (69, "") == (found.code, found.out)
    assert 1 == len(found.err.splitlines())
    assert "start one with `palyra up`" in found.err


async def test_unreachable_daemon_exits_69() -> None:
    """An address without a listener has the same exit code."""
    found = await palyra("status", url="ws://127.0.0.1:9/v1/ws")
    assert 69 == found.code
    assert "Traceback" not in found.err
    assert "palyra up" in found.err
    assert "palyra status" not in found.err  # that is what was just tried


async def test_refused_token_exits_77() -> None:
    """A token the daemon does not know is exit code 77, with the remedy."""

    def hang_up(_connection: object, _params: Json) -> object:
        raise Hangup(4401, "unknown token")

    async with fake_daemon() as daemon:
        daemon.answers["connect"] = hang_up
        found = await palyra("status", url=daemon.url)
    assert 77 == found.code
    assert "set PALYRA_TOKEN" in found.err


async def test_a_refused_token_of_the_environment_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A directory would not help: the variable is used instead of its token."""

    def hang_up(_connection: object, _params: Json) -> object:
        raise Hangup(4401, "unknown token")

    monkeypatch.setenv("PALYRA_TOKEN", "of-another-daemon")
    async with fake_daemon() as daemon:
        daemon.answers["connect"] = hang_up
        found = await palyra("status", url=daemon.url)
    assert (77, True) == (found.code, "remedy: unset PALYRA_TOKEN" in found.err)


async def test_quoted_type_is_no_remedy() -> None:
    """A message that quotes something else than a command still gets its remedy."""

    def refuse(_connection: object, _params: Json) -> object:
        raise Refusal("invalid_params", "text: expected `str` of length >= 1")

    async with fake_daemon() as daemon:
        daemon.answers["run.start"] = refuse
        found = await palyra("run", "", url=daemon.url)
    assert (2, "remedy: `palyra run --help` shows the usage") == (
        found.code,
        found.err.splitlines()[1],
    )


async def test_error_of_the_daemon_is_two_lines() -> None:
    """A refusal by the daemon is printed as what and remedy, its text escaped."""

    def refuse(_connection: object, _params: Json) -> object:
        raise Refusal("not_found", "no run \x1b[31m", field="run_id")

    async with fake_daemon() as daemon:
        daemon.answers["run.get"] = refuse
        shown = await palyra("runs", "show", RUN, url=daemon.url)
    assert 1 == shown.code
    assert [
        "error: no run \\u001b[31m",
        "remedy: `palyra runs list` shows which there are",
    ] == shown.err.splitlines()


async def test_a_refused_grant_says_why() -> None:
    """The daemon's reason and what was offered; help, which shows every scope, is no remedy."""

    def refuse(_connection: object, _params: Json) -> object:
        said = "scope 'session' was not offered: it is about this run alone; offered: once"
        raise Refusal("invalid_params", said, field="scope")

    async with fake_daemon() as daemon:
        daemon.reply_with("approval.get", APPROVAL)
        daemon.answers["approval.resolve"] = refuse
        found = await palyra("approvals", "allow", "apr_1", "--scope", "session", url=daemon.url)
    assert 2 == found.code
    assert found.err.splitlines() == [
        "error: scope 'session' was not offered: it is about this run alone; offered: once"
    ]


@every_row("field", LISTS)
def test_a_missing_thing_has_a_list(field: str) -> None:
    """The remedy for an id that is not there names a command that lists them."""
    stop = stop_for(NotFound("no such thing", field=field))
    assert stop.remedy is not None
    assert find_fault(stop.remedy.split("`")[1].removeprefix("palyra ")) is None


async def test_budgets_are_listed_with_their_accounts() -> None:
    """Money is in dollars, each account is a line; an unused budget has one too."""
    account = {
        "budget_id": "day",
        "scope": "global",
        "subject": "",
        "metric": "usd_micros",
        "window": "day",
        "spent": 1_500_000,
        "reserved": 0,
        "rolls_ms": 1,
    }
    unused = {**BUDGET_SHOWN, "budget_id": "team", "scope": "agent", "metric": "tokens"}
    async with fake_daemon() as daemon:
        daemon.reply_with("budget.list", {"budgets": [BUDGET_SHOWN, unused]})
        daemon.reply_with("budget.status", {"accounts": [account], "left_out": 7})
        shown = await palyra("budget", "list", url=daemon.url)
        plain = await palyra("budget", "list", "--json", url=daemon.url)
    _, first, second = shown.out.splitlines()
    expected = ["day", "everybody", "day", "usd_micros", "$1.500000", "$0.000000", "-", "$9.000000"]
    assert [*expected, "block", "over"] == first.split()
    assert second.split()[:3] == ["team", "agent", "*"]
    assert "7 accounts with less spent are left out" in shown.err
    assert (1_500_000, 7) == (
        json.loads(plain.out)["accounts"][0]["spent"],
        json.loads(plain.out)["left_out"],
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ("nonsense",),
        ("runs", "list", "--limit", "0"),
        ("policy", "explain", "echo", "[1]"),
        ("usage", "--since", "soon"),
        ("sessions", "queue", SESSION, "--pause", "--resume"),
    ],
)
async def test_wrong_usage_exits_2(arguments: tuple[str, ...]) -> None:
    """Wrong usage is exit code 2."""
    assert 2 == (await palyra(*arguments)).code


async def test_a_misspelt_command_is_answered_with_the_right_one() -> None:
    """On every level: of the program and of a noun."""
    assert "tools" in (await palyra("tols")).err
    assert "list" in (await palyra("runs", "lst")).err


# --- help ---


async def test_help_lists_every_exit_code() -> None:
    """None that the page lists is left out."""
    shown = (await palyra("--help")).out
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    codes = re.findall(r"^\| ([0-9]+) \|", page, re.MULTILINE)
    assert "75" in codes
    listed = re.findall(r"^  ([0-9]+) ", shown.partition("Exit codes:")[2], re.MULTILINE)
    assert set(codes) <= set(listed)


@every_row("name", COMMANDS)
def test_help_line_is_the_commands_own(name: str) -> None:
    """The line in the list of commands is the one the command itself gives."""
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    assert COMMANDS[name][1] == command.get_short_help_str(limit=100)


def test_the_list_of_commands_has_each_once_in_a_section() -> None:
    """Every name of a section is a command, and every command is in one section."""
    listed = [name for names in sections().values() for name in names]
    assert sorted(COMMANDS) == sorted(listed)
    assert {name for names in SECTIONS.values() for name in names} <= COMMANDS.keys()


@pytest.mark.parametrize("name", COMMANDS)
def test_a_short_help_is_a_whole_sentence(name: str) -> None:
    """No line of a group's list of commands is cut."""
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    for each in getattr(command, "commands", {}).values():
        assert each.get_short_help_str().endswith("."), each.name


async def test_help_imports_no_heavy_library() -> None:
    """`palyra --help` works without trio, the client or anything of the daemon."""
    program = (
        "import sys\n"
        "from palyra.cli.main import cli\n"
        "cli(['--help'], standalone_mode=False)\n"
        "heavy = {'trio', 'apsw', 'cedarpy', 'quart', 'trio_websocket', 'rich'}\n"
        "print('heavy:', sorted(heavy & set(sys.modules)))"
    )
    printed = await run_python(program)
    assert "heavy: []" in printed
    assert "Exit codes" in printed


async def test_client_imports_nothing_of_the_daemon() -> None:
    """Importing the client brings trio and its WebSocket, no library and no decision of the daemon."""
    program = (
        "import sys\n"
        "import palyra.client\n"
        "heavy = {'apsw', 'cedarpy', 'quart', 'hypercorn', 'rich', 'click', 'cryptography', 're2'}\n"
        "core = {'ports', 'run', 'policy.gate', 'policy.suggestion', 'redaction', 'tool.arguments'}\n"
        "heavy |= {f'palyra.core.{each}' for each in core}\n"
        "print('heavy:', sorted(heavy & set(sys.modules)))"
    )
    assert "heavy: []" in await run_python(program)


async def test_the_daemon_starts_without_what_it_does_not_need() -> None:
    """Its log lines are plain, and rich would be a tenth of its start; who prints has it still.

    Another tenth is garbage looked for while nothing but modules is made; then it is looked for.
    """
    program = """
import gc, sys
import trio, palyra.cli.main, palyra.cli.host.serve
passes = sum(each["collections"] for each in gc.get_stats())
def run(_, clock):
    print("few passes:", sum(each["collections"] for each in gc.get_stats()) - passes < 3)
    print("frozen:", gc.get_freeze_count() > 10_000)
    print("heavy:", sorted({"rich", "pygments"} & sys.modules.keys()), gc.isenabled())
    return 0
trio.run = run
palyra.cli.host.serve.run_daemon(None, None)
import rich.console
print(rich.console.Console.__name__)
"""
    printed = (await run_python(program)).splitlines()
    assert ["few passes: True", "frozen: True", "heavy: [] True", "Console"] == printed


async def test_agent_options_become_fields(tmp_path: Path) -> None:
    """Omitted options are not sent; instructions may come from a file, and a list may be empty."""
    (tmp_path / "told.md").write_text("Look round.")
    async with fake_daemon() as daemon:
        daemon.reply_with("agent.update", AGENT_SHOWN)
        file = f"@{tmp_path / 'told.md'}"
        await palyra("agents", "update", "scout", "--instructions", file, url=daemon.url)
        await palyra("agents", "update", "scout", "--no-tools", "--model", "", url=daemon.url)
        await palyra("agents", "update", "scout", "--tool", "*", url=daemon.url)
        sent = [params for method, params in daemon.requests if method == "agent.update"]
    for params in sent:
        del params["idempotency_key"]
    assert [
        {"name": "scout", "instructions": "Look round."},
        {"name": "scout", "tools": [], "model": ""},
        {"name": "scout", "tools": ["*"]},
    ] == sent


async def test_invalid_agent_options_are_refused() -> None:
    """A missing file, and --tool with --no-tools, are refused before a request."""
    async with fake_daemon() as daemon:
        lost = await palyra(
            "agents", "create", "a", "--instructions", "@/nowhere/x", url=daemon.url
        )
        both = await palyra("agents", "update", "a", "--tool", "echo", "--no-tools", url=daemon.url)
        assert [] == [name for name, _ in daemon.requests if name.startswith("agent.")]
    assert ("/nowhere/x" in lost.err, 0) == (True, 0 if lost.code else 1)
    assert "exclude each other" in both.err


@pytest.mark.parametrize(
    ("amounts", "sent"),
    [
        (("--hard", "2.50usd", "--soft", "$1"), {"metric": "usd_micros", "hard": 2_500_000, "soft": 1_000_000}),
        (("--hard", "9000tokens"), {"metric": "tokens", "hard": 9_000}),
        (("--hard", "7", "--metric", "usd_micros"), {"metric": "usd_micros", "hard": 7}),
    ],
)  # fmt: skip
async def test_a_budget_in_dollars(amounts: tuple[str, ...], sent: Json) -> None:
    """An amount may have its unit, which is then the budget's metric; a bare number keeps its own."""
    async with fake_daemon() as daemon:
        daemon.reply_with("budget.set", BUDGET_SHOWN)
        done = await palyra("budget", "set", "day", *amounts, url=daemon.url)
    asked = dict(daemon.requests)["budget.set"]
    assert (0, sent) == (done.code, {name: asked.get(name) for name in sent})


@pytest.mark.parametrize(
    "amounts",
    [("--hard", "1usd", "--metric", "tokens"), ("--hard", "1usd", "--soft", "1tokens"),
     ("--hard", "0"), ("--hard", "1euro"), ("--soft", "0.5tokens")],
)  # fmt: skip
async def test_a_budget_with_amounts_that_cannot_be(amounts: tuple[str, ...]) -> None:
    """Two metrics, nothing, and an unknown unit are refused before anything is sent."""
    async with fake_daemon() as daemon:
        refused = await palyra("budget", "set", "day", *amounts, url=daemon.url)
    assert (2, []) == (refused.code, daemon.requests)


async def test_task_is_text_for_a_person_and_json_for_a_program() -> None:
    """Texts are printed by lines, controls as escapes, and what is unknown is left out."""
    task = TASK_SHOWN | {
        "state": "succeeded",
        "finished_ms": 2,
        "run_id": RUN,
        "payload": {"text": "one\ntwo\x1b[2J", "depth": 3},
        "result": {"answer": "done"},
    }
    async with fake_daemon() as daemon:
        daemon.reply_with("task.get", task)
        shown = await palyra("tasks", "show", "tsk_1", url=daemon.url)
        record = await palyra("tasks", "show", "tsk_1", "--json", url=daemon.url)
    lines = shown.out.splitlines()
    assert "tsk_1: prompt, succeeded" == lines[0]
    assert ["payload:", "  text:", "    one", "    two\\u001b[2J", "  depth: 3"] == lines[-8:-3]
    assert ["result:", "  answer: done"] == lines[-3:-1]
    assert RUN in lines[-1]
    assert "None" not in shown.out
    assert "one\ntwo\x1b[2J" == record.json["payload"]["text"]
