"""Every typed method of the client against the daemon's own table of methods."""

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from palyra.client import Client
from palyra.client.frames import render_request
from palyra.core.journal.records import Lineage
from palyra.errors import PalyraError
from palyra.net.api.methods.table import METHODS
from palyra.net.protocol.params import convert_params
from palyra.net.protocol.results import MemoryStatement
from tests.client.fake_daemon import RUN, SESSION

Call = Callable[[Client], Awaitable[object]]


class Asked(PalyraError):
    """Instead of a reply: what was asked."""

    def __init__(self, method: str, params: dict[str, Any]) -> None:
        super().__init__(method)
        self.method = method
        self.params = params


class DeafLine:
    """A line that keeps the question."""

    async def request(self, method: str, params: dict[str, Any]) -> msgspec.Raw:
        raise Asked(method, params)


CALLS: dict[str, Call] = {
    "ping": lambda client: client.ping(),
    "run.start": lambda client: client.start_run(
        "hi", session_key="k", agent="a", model="m", queue_mode="steer", approval_mode="deny",
        json_mode=True, answer_schema={"type": "object"}, origin="background", attachments=[{"name": "x"}], session_id=None,
        channel="chat", conversation_id="1", sender="sam",
    ),
    "run.fork": lambda client: client.fork_run(RUN, 7, "again", idempotency_key="k"),
    "run.replay": lambda client: client.replay_run(RUN, strict=True),
    "run.diff": lambda client: client.diff_run(RUN, max_lines=5),
    "run.undo": lambda client: client.undo_run(RUN, "d", force=True),
    "run.steer": lambda client: client.steer(RUN, "left"),
    "run.cancel": lambda client: client.cancel(RUN, "enough"),
    "run.get": lambda client: client.get_run(RUN),
    "run.list": lambda client: client.list_runs(
        session_id=SESSION, principal="p", states=["done"], cursor=RUN, limit=3
    ),
    "run.wait": lambda client: client.wait_run(RUN, until="attention"),
    "tape.read": lambda client: client.read_tape(RUN, 3, limit=7),
    "context.explain": lambda client: client.explain_context(RUN, 2),
    "reference.preview": lambda client: client.preview_references("see @file:a", agent="scout"),
    "tape.find": lambda client: client.find_in_tape("run_1", text="x", kinds=["run.done"]),
    "tape.outline": lambda client: client.outline_tape("run_1", buckets=9),
    "tape.verify": lambda client: client.verify_tape(RUN),
    "tape.export": lambda client: client.export_tape(RUN, 3, limit=7),
    "approval.list": lambda client: client.list_approvals(run_id=RUN, pending_only=True, limit=3),
    "approval.get": lambda client: client.get_approval("apr_1"),
    "approval.preview": lambda client: client.preview_approval("apr_1", max_lines=5),
    "approval.reach": lambda client: client.get_reach("apr_1"),
    "approval.resolve": lambda client: client.resolve_approval(
        "apr_1", "allow", "d", scope="timeboxed", ttl_ms=5, reason="ok"
    ),
    "artifact.read": lambda client: client.read_artifact("ses_1", "a" * 64, 4, limit_bytes=9),
    "checkpoint.list": lambda client: client.list_checkpoints(
        session_id="ses_1", run_id="run_1", cursor="ckp_1", limit=3
    ),
    "checkpoint.restore": lambda client: client.restore_checkpoint("ckp_1", "after", force=True),
    "document.list": lambda client: client.list_documents(),
    "document.get": lambda client: client.get_document("MEMORY.md", 2),
    "document.history": lambda client: client.document_history("MEMORY.md", before=3, limit=2),
    "document.fill": lambda client: client.fill_document("MEMORY.md", dry_run=True),
    "document.sync": lambda client: client.sync_document("MEMORY.md", dry_run=True),
    "document.restore": lambda client: client.restore_document("MEMORY.md", 1, dry_run=True),
    "approval.grants": lambda client: client.list_grants(live_only=False, limit=3),
    "approval.revoke": lambda client: client.revoke_grant("grt_1"),
    "push.key": lambda client: client.get_push_key(),
    "push.subscribe": lambda client: client.subscribe_push("https://fcm.googleapis.com/a"),
    "push.unsubscribe": lambda client: client.unsubscribe_push(),
    "usage.summary": lambda client: client.sum_usage(
        by="model", principal="p", agent="a", session_id=SESSION, run_id=RUN, model="m",
        since_ms=1, until_ms=2, limit=3,
    ),
    "model.list": lambda client: client.list_models(),
    "budget.list": lambda client: client.list_budgets(),
    "budget.status": lambda client: client.budget_status("day", limit=3),
    "budget.set": lambda client: client.set_budget(
        "day", scope="agent", subject="a", metric="usd_micros", window="sliding",
        window_ms=60_000, soft=1, hard=2, action="ask",
    ),
    "budget.delete": lambda client: client.delete_budget("day"),
    "incident.list": lambda client: client.list_incidents(
        states=["open"], domain="store", cursor="inc_1", limit=3
    ),
    "incident.get": lambda client: client.get_incident("inc_1"),
    "incident.resolve": lambda client: client.resolve_incident("inc_1", "made room"),
    "task.submit": lambda client: client.submit_task(
        "prompt", {"text": "t"}, priority=3, not_before_ms=5, expires_ms=9, max_attempts=2
    ),
    "task.get": lambda client: client.get_task("tsk_1"),
    "task.list": lambda client: client.list_tasks(
        states=["queued"], kind="prompt", schedule_id="sch_1", cursor="tsk_1", limit=3
    ),
    "task.counts": lambda client: client.count_tasks(),
    "task.cancel": lambda client: client.cancel_task("tsk_1", "enough"),
    "task.pause": lambda client: client.pause_task("tsk_1"),
    "task.resume": lambda client: client.resume_task("tsk_1"),
    "task.retry": lambda client: client.retry_task("tsk_1", expires_ms=9),
    "schedule.add": lambda client: client.add_schedule(
        "nightly", kind="prompt", payload={"text": "t"}, cron="30 2 * * *", zone="UTC",
        every_ms=None, at_ms=None, priority=3, max_attempts=2, expires_after_ms=9, missed="skip",
        overlap="queue",
    ),
    "schedule.get": lambda client: client.get_schedule("sch_1"),
    "schedule.list": lambda client: client.list_schedules(),
    "schedule.preview": lambda client: client.preview_schedule(cron="0 9 * * *", zone="UTC"),
    "schedule.next": lambda client: client.next_instants("sch_1"),
    "schedule.pause": lambda client: client.pause_schedule("sch_1"),
    "schedule.resume": lambda client: client.resume_schedule("sch_1"),
    "schedule.remove": lambda client: client.remove_schedule("sch_1"),
    "memory.add": lambda client: client.add_memory(
        "the port is 8080", kind="fact", tags=["a"], author="Bob", session_id=SESSION,
        channel="chat", scope="session", at_ms=1, confidence_bps=9_000, ttl_ms=5, pinned=True,
        lineage=[Lineage(run_id=RUN, first_seq=1)], trust="workspace", supersedes="mem_1",
        principal="p", transient=True, valid_from_ms=1, never_recall=True,
    ),
    "memory.import": lambda client: client.import_memories(
        [MemoryStatement(text="the port is 8080", kind="fact")], on_conflict="update",
        principal="p",
    ),
    "memory.search": lambda client: client.search_memories(
        "port", limit=3, kinds=["fact"], tags=["a"], author="Bob", session_id=SESSION,
        channel="chat", since_ms=1, until_ms=2, as_of_ms=3, explain=True, principal="p",
    ),
    "memory.get": lambda client: client.get_memory("mem_1", session_id=SESSION, channel="chat"),
    "memory.list": lambda client: client.list_memories(
        superseded=True, hidden=True, limit=3, cursor="mem_1", kinds=["fact"], principal="p"
    ),
    "memory.edit": lambda client: client.edit_memory(
        "mem_1", text="t", kind="note", tags=[], author="", confidence_bps=1, ttl_ms=0
    ),
    "memory.forget": lambda client: client.forget_memories("mem_1", "mem_2", dry_run=True),
    "memory.undo": lambda client: client.undo_memory("mem_1"),
    "memory.pin": lambda client: client.pin_memory("mem_1", pinned=False),
    "memory.never_recall": lambda client: client.never_recall_memory("mem_1"),
    "memory.history": lambda client: client.get_memory_history("mem_1"),
    "memory.status": lambda client: client.get_memory_status("p"),
    "memory.rebuild": lambda client: client.rebuild_memory(),
    "memory.audit": lambda client: client.audit_memory("p", limit=3, cursor=9),
    "memory.export": lambda client: client.export_memories("p", limit=3, cursor="mem_1"),
    "memory.used": lambda client: client.get_memory_used(RUN),
    "memory.purge": lambda client: client.purge_memory("p", dry_run=True),
    "session.resolve": lambda client: client.resolve_session(session_key="k"),
    "session.get": lambda client: client.get_session(SESSION),
    "workspace.list": lambda client: client.list_workspaces(),
    "session.list": lambda client: client.list_sessions(cursor=SESSION, limit=3),
    "session.archive": lambda client: client.archive_session(SESSION),
    "session.rename": lambda client: client.rename_session(SESSION, "Ours"),
    "session.reset": lambda client: client.reset_session(SESSION),
    "session.set_mode": lambda client: client.set_session_mode(SESSION, "plan"),
    "session.compact": lambda client: client.compact_session(SESSION),
    "session.purge": lambda client: client.purge_session(SESSION, cancel=True),
    "session.pin": lambda client: client.pin_message(SESSION, RUN, 1),
    "session.checkpoint": lambda client: client.checkpoint_session(SESSION),
    "session.checkpoints": lambda client: client.session_checkpoints(SESSION),
    "session.restore": lambda client: client.restore_session(SESSION),
    "session.queue": lambda client: client.queue(
        SESSION, mode="steer", paused=True, drop=[RUN], order=[RUN]
    ),
    "tool.list": lambda client: client.list_tools("scout"),
    "agent.list": lambda client: client.list_agents(),
    "agent.get": lambda client: client.get_agent("scout"),
    "agent.create": lambda client: client.create_agent(
        "scout", "Look.", model="m", tools=["echo"], labels=["a"], memory_scope="none"
    ),
    "agent.update": lambda client: client.update_agent(
        "scout", instructions="Look.", model="", tools=["*"], labels=[]
    ),
    "agent.delete": lambda client: client.delete_agent("scout"),
    "channel.list": lambda client: client.list_channels("p"),
    "channel.set": lambda client: client.set_channel(
        "chat", principal="p", conversation_id="1", agent="scout", pairing="open"
    ),
    "channel.delete": lambda client: client.delete_channel(
        "chat", principal="p", conversation_id="1"
    ),
    "pairing.list": lambda client: client.list_pairings(
        principal="p", channel="chat", state="pending", cursor="pai_1", limit=3
    ),
    "mcp.list": lambda client: client.list_mcp_servers(),
    "mcp.resources": lambda client: client.list_mcp_resources("files"),
    "mcp.prompts": lambda client: client.list_mcp_prompts(),
    "mcp.retry": lambda client: client.retry_mcp_server("files"),
    "skill.list": lambda client: client.list_skills(),
    "skill.get": lambda client: client.get_skill("counter"),
    "skill.upload": lambda client: client.upload_skill(b"zip"),
    "skill.install": lambda client: client.install_skill(
        "a" * 64, grant=["clock"], trust_key="a" * 64
    ),
    "skill.audit": lambda client: client.audit_skill("counter"),
    "skill.quarantine": lambda client: client.quarantine_skill("counter", "odd"),
    "skill.enable": lambda client: client.enable_skill("counter"),
    "skill.remove": lambda client: client.remove_skill("counter"),
    "pairing.approve": lambda client: client.approve_pairing("pai_1", "CODE"),
    "pairing.revoke": lambda client: client.revoke_pairing("pai_1"),
    "policy.explain": lambda client: client.explain_policy(
        "echo", {"text": "x"}, agent="scout"
    ),
    "policy.suggest": lambda client: client.suggest_policies(min_answers=4, folders=True),
    "policy.apply_suggestion": lambda client: client.apply_suggestion(
        "sug_0123456789abcdef", min_answers=4
    ),
    "learning.list": lambda client: client.list_candidates(states=["applied"], limit=2),
    "learning.get": lambda client: client.get_candidate("can_1"),
    "learning.accept": lambda client: client.accept_candidate("can_1"),
    "learning.reject": lambda client: client.reject_candidate("can_1"),
    "learning.edit": lambda client: client.edit_candidate("can_1", "our port is 2"),
    "learning.undo": lambda client: client.undo_candidate("can_1"),
    "learning.reflect": lambda client: client.reflect("run_1"),
    "backup.create": lambda client: client.create_backup("/backups/b", with_keys=True),
    "backup.verify": lambda client: client.verify_backup("/backups/b"),
    "retention.preview": lambda client: client.preview_retention(),
    "retention.apply": lambda client: client.apply_retention(max_runs=3),
    "retention.compact": lambda client: client.compact_journal(max_steps=3),
    "healing.mode": lambda client: client.healing_mode("auto", "run"),
    "policy.undo": lambda client: client.undo_suggestion(),
    "policy.rule_for": lambda client: client.find_rule_for("apr_1"),
    "policy.allow_from": lambda client: client.allow_from("apr_1"),
    "config.get": lambda client: client.get_config("server"),
    "config.set": lambda client: client.set_config("server.port", 7000, digest="a" * 64),
    "secret.list": lambda client: client.list_secrets(),
    "notify.test": lambda client: client.try_notices(),
    "secret.set": lambda client: client.set_secret("KEY", "a-value-of-a-secret"),
    "secret.remove": lambda client: client.remove_secret("KEY"),
    "log.tail": lambda client: client.tail_log(3, level="info", limit=2, wait_ms=5),
    "system.suspend": lambda client: client.suspend("upgrade"),
    "system.resume": lambda client: client.resume(),
    "system.drain": lambda client: client.drain(),
    "token.create": lambda client: client.create_token(
        principal="p", role="client", name="n", ttl_ms=5
    ),
    "token.list": lambda client: client.list_tokens(),
    "token.revoke": lambda client: client.revoke_token("tok_1"),
    "console.link": lambda client: client.make_console_link(
        role="approver", principal="eve", ttl_ms=60_000
    ),
    "system.status": lambda client: client.status(),
    "system.tree": lambda client: client.tree(),
    "system.describe": lambda client: client.describe(),
}  # fmt: skip
OF_SEVERAL = {"call", "wait_connected", "read_answer"}  # of no one method
# The line's own, and those of a page.
UNTYPED = {
    "connect", "tape.subscribe", "tape.unsubscribe", "run.watch", "run.unwatch", "console.logout",
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
async def test_params_are_what_the_daemon_takes(name: str) -> None:
    """The daemon's own decoder accepts the params of every typed method, and nothing is lost."""
    asked = await ask(CALLS[name])
    method = METHODS[name]
    sent = msgspec.json.decode(render_request(1, asked.method, asked.params))
    assert name == sent["method"]
    taken = msgspec.json.encode(convert_params(method.params, sent["params"]))
    kept = {key: msgspec.json.decode(taken)[key] for key in sent["params"]}
    assert sent["params"] == kept
    assert method.is_mutating is ("idempotency_key" in sent["params"])


def test_every_method_is_typed() -> None:
    """No method of the daemon is missing in the client."""
    assert set(METHODS) - UNTYPED == set(CALLS)


def test_every_typed_method_is_tried() -> None:
    """No method of the client is missing above."""
    public = {
        name
        for name, member in inspect.getmembers(Client, inspect.iscoroutinefunction)
        if not name.startswith("_") and name not in OF_SEVERAL
    }
    assert len(public) == len(CALLS)


def test_every_public_member_has_a_docstring() -> None:
    """The docstring of each public member of the client is its reference."""
    members = {
        name: member for name, member in inspect.getmembers(Client) if not name.startswith("_")
    }
    assert [] == [name for name, member in members.items() if not inspect.getdoc(member)]


async def ask(call: Call) -> Asked:
    """Call the client's method."""
    with pytest.raises(Asked) as caught:
        await call(Client(DeafLine()))  # type: ignore[arg-type]  # it is asked, nothing more
    return caught.value
