"""Methods: who may call them, what they take and give, and that the schema says the same."""

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import trio.testing
from msgspec import defstruct
from msgspec.inspect import (
    CollectionType,
    DictType,
    IntType,
    Metadata,
    StructType,
    TupleType,
    Type,
    UnionType,
    type_info,
)
from msgspec.structs import replace

from palyra.core.access import CONFINED, SCOPES
from palyra.core.journal.records import Role
from palyra.net.api.methods.run import RunStart
from palyra.net.api.methods.table import METHODS
from palyra.net.protocol.notifications import NOTIFICATIONS
from tests.net.api.fake_services import ROLES, RUN, open_daemon, row
from tests.net.api.fake_store import run_record
from tests.rows import every_row

Clock = trio.testing.MockClock

# One good call of every method; what it does is tested elsewhere.
CALLS: dict[str, dict[str, Any]] = {
    "ping": {},
    "system.status": {},
    "system.tree": {},
    "system.describe": {},
    "run.start": {"text": "hi", "budget": {"tokens": 5}, "attachments": [{"a": 1}]},
    "run.fork": {"run_id": RUN, "at_seq": 7, "text": "again"},
    "run.replay": {"run_id": RUN, "strict": True},
    "run.diff": {"run_id": RUN, "max_lines": 5},
    "run.undo": {"run_id": RUN, "digest": "d", "force": True},
    "run.steer": {"run_id": RUN, "text": "more"},
    "run.cancel": {"run_id": RUN, "reason": "enough"},
    "run.get": {"run_id": RUN},
    "run.list": {"states": ["in_progress"], "phases": ["in_progress"], "text": "", "limit": 10},
    "run.wait": {"run_id": RUN, "until": "attention", "timeout_ms": 10},
    "tape.read": {"run_id": RUN},
    "run.watch": {"phases": ["in_progress"]},
    "run.unwatch": {"subscription": "sub_0"},
    "tape.find": {"run_id": RUN, "text": "x"},
    "tape.outline": {"run_id": RUN, "buckets": 10},
    "tape.subscribe": {"run_id": RUN},
    "tape.unsubscribe": {"subscription": "sub_0"},
    "tape.verify": {"run_id": RUN},
    "tape.export": {"run_id": RUN},
    "context.explain": {"run_id": RUN, "turn": 2},
    "reference.preview": {"text": "see @file:a", "agent": "default"},
    "approval.list": {"pending_only": True},
    "approval.get": {"approval_id": "apr_1"},
    "approval.reach": {"approval_id": "apr_1"},
    "approval.preview": {"approval_id": "apr_1", "max_lines": 5},
    "approval.resolve": {"approval_id": "apr_1", "decision": "deny", "digest": "d"},
    "approval.grants": {"live_only": False},
    "approval.revoke": {"grant_id": "grt_1"},
    "artifact.read": {"session_id": "ses_1", "artifact": "a" * 16, "offset": 4, "limit_bytes": 4},
    "checkpoint.list": {"run_id": "run_1"},
    "checkpoint.restore": {"checkpoint_id": "ckp_1", "to": "after", "force": True},
    "document.list": {},
    "document.get": {"document": "MEMORY.md", "version": 2},
    "document.history": {"document": "MEMORY.md", "before": 3, "limit": 2},
    "document.fill": {"document": "MEMORY.md", "dry_run": True},
    "document.sync": {"document": "MEMORY.md", "dry_run": True},
    "document.restore": {"document": "MEMORY.md", "version": 1},
    "session.resolve": {"session_key": "k"},
    "session.get": {"session_id": "ses_1"},
    "session.list": {},
    "workspace.list": {},
    "session.archive": {"session_id": "ses_1"},
    "session.purge": {"session_id": "ses_1"},
    "session.rename": {"session_id": "ses_1", "title": "Ours"},
    "backup.create": {"path": "/backups/b", "with_keys": True},
    "backup.verify": {"path": "/backups/b"},
    "retention.preview": {},
    "retention.apply": {"max_runs": 3},
    "retention.compact": {"max_steps": 3},
    "session.reset": {"session_id": "ses_1"},
    "session.set_mode": {"session_id": "ses_1", "mode": "plan"},
    "session.queue": {"session_id": "ses_1"},
    "session.compact": {"session_id": "ses_1", "preview": True},
    "session.pin": {"session_id": "ses_1", "run_id": "run_1", "seq": 1},
    "session.checkpoint": {"session_id": "ses_1"},
    "session.checkpoints": {"session_id": "ses_1"},
    "session.restore": {"session_id": "ses_1", "dry_run": True},
    "model.list": {},
    "tool.list": {"agent": "default"},
    "agent.list": {},
    "agent.get": {"name": "scout"},
    "agent.create": {"name": "scout", "instructions": "Look.", "tools": ["echo"]},
    "agent.update": {"name": "scout", "labels": ["a"]},
    "agent.delete": {"name": "scout"},
    "config.get": {"key": "server"},
    "config.set": {"key": "server.port", "value": 7000},
    "secret.list": {},
    "notify.test": {},
    "push.key": {},
    "push.subscribe": {"endpoint": "https://fcm.googleapis.com/a"},
    "push.unsubscribe": {},
    "secret.set": {"name": "KEY", "value": "a-value-of-a-secret"},
    "secret.remove": {"name": "KEY"},
    "log.tail": {"after": 0, "level": "info", "limit": 2},
    "system.suspend": {"reason": "upgrade"},
    "system.resume": {},
    "system.drain": {},
    "channel.list": {},
    "channel.set": {"channel": "chat"},
    "channel.delete": {"channel": "chat"},
    "pairing.list": {"state": "pending"},
    "pairing.approve": {"pairing_id": "pai_1", "code": "c"},
    "pairing.revoke": {"pairing_id": "pai_1"},
    "mcp.list": {},
    "mcp.resources": {"server": "files"},
    "mcp.prompts": {},
    "mcp.retry": {"server": "files"},
    "skill.list": {},
    "skill.get": {"id": "counter"},
    "skill.upload": {"sha256": "b" * 64, "offset": 0, "chunk": "emlw"},
    "skill.install": {"sha256": "b" * 64, "grant": ["clock"], "trust_key": "a" * 64},
    "skill.audit": {"id": "counter"},
    "skill.quarantine": {"id": "counter", "reason": "odd"},
    "skill.enable": {"id": "counter"},
    "skill.remove": {"id": "counter"},
    "usage.summary": {"by": "day", "split": "model", "principal": "ann", "since_ms": 5, "limit": 3},
    "budget.list": {},
    "budget.status": {"budget_id": "day"},
    "budget.set": {"budget_id": "day", "scope": "agent", "hard": 9},
    "budget.delete": {"budget_id": "day"},
    "incident.list": {"states": ["open"], "domain": "store", "limit": 3},
    "healing.mode": {},
    "incident.get": {"incident_id": "inc_1"},
    "incident.resolve": {"incident_id": "inc_1", "reason": "made room"},
    "memory.add": {"text": "the port is 8080", "tags": ["a"], "lineage": [{"run_id": RUN}]},
    "memory.import": {"items": [{"text": "the port is 8080"}], "on_conflict": "update"},
    "memory.search": {"query": "another", "explain": True},
    "memory.get": {"memory_id": "mem_1"},
    "memory.list": {"kinds": ["note"], "limit": 1},
    "memory.edit": {"memory_id": "mem_1", "text": "a third text"},
    "memory.undo": {"memory_id": "mem_1"},
    "memory.pin": {"memory_id": "mem_1"},
    "memory.never_recall": {"memory_id": "mem_1"},
    "memory.history": {"memory_id": "mem_1"},
    "memory.status": {},
    "memory.rebuild": {},
    "memory.audit": {"limit": 1},
    "memory.export": {"limit": 1},
    "memory.used": {"run_id": RUN},
    "memory.forget": {"memory_id": "mem_1", "dry_run": True},
    "memory.purge": {"principal": "ann", "dry_run": True},
    "learning.list": {"states": ["applied"], "limit": 2},
    "learning.get": {"candidate_id": "can_1"},
    "learning.accept": {"candidate_id": "can_1"},
    "learning.reject": {"candidate_id": "can_1"},
    "learning.edit": {"candidate_id": "can_1", "text": "our port is 2"},
    "learning.undo": {"candidate_id": "can_1"},
    "learning.reflect": {"run_id": RUN},
    "task.submit": {"kind": "prompt", "payload": {"text": "hello"}},
    "task.get": {"task_id": "tsk_1"},
    "task.list": {"states": ["queued"], "kind": "prompt", "limit": 3},
    "task.counts": {},
    "task.cancel": {"task_id": "tsk_1", "reason": "enough"},
    "task.pause": {"task_id": "tsk_1"},
    "task.resume": {"task_id": "tsk_1"},
    "task.retry": {"task_id": "tsk_1", "expires_ms": 9},
    "schedule.add": {"name": "nightly", "cron": "30 2 * * *", "payload": {"text": "hello"}},
    "schedule.get": {"schedule_id": "sch_1"},
    "schedule.list": {},
    "schedule.next": {"schedule_id": "sch_1"},
    "schedule.preview": {"cron": "30 2 * * *", "zone": "UTC"},
    "schedule.pause": {"schedule_id": "sch_1"},
    "schedule.resume": {"schedule_id": "sch_1"},
    "schedule.remove": {"schedule_id": "sch_1"},
    "policy.explain": {"tool": "echo", "arguments": {}},
    "policy.suggest": {},
    "policy.allow_from": {"approval_id": "apr_1"},
    "policy.rule_for": {"approval_id": "apr_1"},
    "policy.apply_suggestion": {"suggestion_id": "sug_0123456789abcdef"},
    "policy.undo": {},
    "token.create": {"principal": "x", "role": "client", "name": "x"},
    "token.list": {},
    "token.revoke": {"token_id": "id-of-tok-bob"},
    "console.link": {"role": "approver", "principal": "eve"},
    "console.logout": {},
    "connect": {},
}
TOKEN_OF: dict[Role, str] = {
    role: token for token, (_, role) in ROLES.items() if token != "tok-bob"
}
# There is no such thing to show here.
ABSENT = {"approval.get", "tape.unsubscribe", "run.unwatch", "console.logout"}


def parts(kind: Type, path: str) -> list[tuple[Type, str]]:
    """The types that a type is made of."""
    found: list[tuple[Type, str]] = []
    match kind:
        case Metadata():
            found = [(kind.type, path)]
        case StructType():
            found = [(each.type, f"{path}.{each.encode_name}") for each in kind.fields]
        case UnionType():
            found = [(option, path) for option in kind.types]
        case CollectionType():
            found = [(kind.item_type, f"{path}[]")]
        case TupleType():
            found = [(item, f"{path}[]") for item in kind.item_types]
        case DictType():
            found = [(kind.value_type, f"{path}{{}}")]
        case _:
            pass
    return found


def unbounded(kind: Type, path: str) -> Iterator[str]:
    """Paths of the integers of a type without a least or a greatest value."""
    if isinstance(kind, IntType) and None in {kind.ge, kind.le}:
        yield path
    for part, where in parts(kind, path):
        yield from unbounded(part, where)


def test_every_integer_of_a_parameter_has_bounds() -> None:
    """An integer that does not fit into the journal is refused before it gets there."""
    kinds = {name: type_info(method.params) for name, method in METHODS.items()}
    assert [] == [path for name, kind in kinds.items() for path in unbounded(kind, name)]
    assert ["x.n"] == list(unbounded(type_info(defstruct("X", [("n", int)])), "x"))


def test_every_method_is_called_here() -> None:
    """The list above has exactly the methods of the table."""
    assert set(METHODS) == set(CALLS)


@pytest.mark.parametrize("role", SCOPES)
async def test_roles_may_call_what_their_scopes_say(autojump_clock: Clock, role: Role) -> None:
    """A method is forbidden exactly to the roles without its scope."""
    async with open_daemon() as daemon:
        peer = await daemon.connect(TOKEN_OF[role])
        granted = SCOPES[role]
        for name, method in METHODS.items():
            reply = await peer.ask(name, **CALLS[name])
            code = reply.get("error", {}).get("data", {}).get("code")
            is_granted = method.scope is None or "*" in granted or method.scope in granted
            is_refused_anyway = role in CONFINED and name in {"system.tree", "memory.rebuild"}
            assert (is_granted and not is_refused_anyway) == (code != "forbidden"), name


async def test_replies_are_what_the_schema_says(autojump_clock: Clock) -> None:
    """Every result decodes as the result type, with no member the type does not have."""
    async with open_daemon() as daemon:
        daemon.commit(row(0))
        peer = await daemon.connect("tok-operator")
        for name in set(METHODS) - ABSENT - {"connect"}:
            result = await peer.call(name, **CALLS[name])
            kind = METHODS[name].result
            decoded = msgspec.json.decode(json.dumps(result), type=kind)
            fields = {field.encode_name for field in msgspec.structs.fields(type(decoded))}
            assert set(result) <= fields, name


async def test_a_refused_secret_is_not_repeated(autojump_clock: Clock) -> None:
    """No error of `secret.set` has the value, whatever is wrong with the parameters."""
    async with open_daemon() as daemon:
        peer = await daemon.connect("tok-operator")
        value = "a-value-nobody-may-see"
        for params in (
            {"name": "KEY", "value": [value]},
            {"name": 7, "value": value},
            {"name": "KEY", "value": value, "idempotency_key": "once"},
            {"name": "KEY", "valu": value},
        ):
            error = await peer.fail("secret.set", **params)
            assert "invalid_params" == error["data"]["code"]
            assert value not in json.dumps(error)
        assert "KEY" == (await peer.call("secret.set", name="KEY", value=value))["name"]


# --- runs ---


async def test_run_is_shown_with_its_phase(autojump_clock: Clock) -> None:
    """`run.get` shows the record and the derived phase; what is unknown is left out."""
    async with open_daemon() as daemon:
        peer = await daemon.connect()
        expected = {
            "run_id": RUN,
            "session_id": "ses_1",
            "state": "in_progress",
            "phase": "in_progress",
            "principal": "ann",
            "agent": "default",
            "model": "scripted",
            "created_ms": 1,
            "usage": {
                "input_tokens": 0,
                "output_tokens": 0,
                "source": "estimate",
                "cached_tokens": 0,
                "cache_write_tokens": 0,
                "reasoning_tokens": 0,
            },
            "cost_usd_micros": 0,
            "turns": 0,
            "tool_calls": 0,
            "pending_approvals": 0,
            "head_seq": -1,
            "attempts": 0,
        }
        assert expected == await peer.call("run.get", run_id=RUN)


async def test_lists_name_the_next_page(autojump_clock: Clock) -> None:
    """A full page has a cursor, a page that is not full is the last."""
    async with open_daemon() as daemon:
        daemon.store.runs["run_2"] = run_record("run_2")
        peer = await daemon.connect()
        full = await peer.call("run.list", limit=2)
        assert (["run_2", RUN], RUN) == (
            [run["run_id"] for run in full["runs"]],
            full["next_cursor"],
        )
        assert "next_cursor" not in await peer.call("run.list", limit=3)
        assert "next_cursor" not in await peer.call("session.list")


@pytest.mark.parametrize(
    "method", ["run.list", "session.list", "incident.list", "checkpoint.list", "pairing.list"]
)
async def test_an_invalid_cursor_is_refused(autojump_clock: Clock, method: str) -> None:
    """Otherwise it would be answered with an arbitrary page."""
    async with open_daemon() as daemon:
        error = await (await daemon.connect("tok-operator")).fail(method, cursor="zzz")
        assert ("invalid_params", "cursor") == (error["data"]["code"], error["data"]["field"])
        assert "the next_cursor of the page before" in error["message"]


@pytest.mark.parametrize("size", [1, 60])
async def test_a_large_reply_is_redacted_in_a_thread(autojump_clock: Clock, size: int) -> None:
    """Its secrets are gone, and the loop was not held up by the search for them."""
    secret = "sk-ant-" + "api03-" + "aB3xK9qLm2ZtR7wYc5NvP8sD4fGh6JkE1uHoTbXi0VrQ"
    async with open_daemon() as daemon:
        for number in range(size):
            run_id = f"run_{number}"
            daemon.store.runs[run_id] = run_record(run_id, reason=f"bad key {secret}")
        peer = await daemon.connect()
        shown = (await peer.call("run.list", limit=500))["runs"]
        assert {"bad key [redacted:anthropic]"} == {run["reason"] for run in shown[-size:]}
        assert (size > 1) == daemon.blocking_calls


async def test_sums_of_a_time_that_ends_before_it_begins_are_refused(
    autojump_clock: Clock,
) -> None:
    """They would all be 0, which looks like an answer."""
    async with open_daemon() as daemon:
        peer = await daemon.connect()
        error = await peer.fail("usage.summary", since_ms=6, until_ms=5)
        assert ("invalid_params", "until_ms") == (error["data"]["code"], error["data"]["field"])
        assert await peer.call("usage.summary", since_ms=5, until_ms=5)


async def test_wait_passes_on_deadline_and_outcome(autojump_clock: Clock) -> None:
    """`run.wait` gives up after its time and says so."""
    async with open_daemon() as daemon:
        peer = await daemon.connect()
        began_s = trio.current_time()
        waited = await peer.call("run.wait", run_id=RUN, timeout_ms=2_500)
        assert (True, 2.5) == (waited["timed_out"], trio.current_time() - began_s)


# --- tapes ---


async def test_pages_follow_each_other(autojump_clock: Clock) -> None:
    """Reading page by page yields each committed event once, and no uncommitted one."""
    async with open_daemon() as daemon:
        rows = [row(seq) for seq in range(5)]
        daemon.publish(*rows, row(5))
        daemon.commit(*rows)
        peer = await daemon.connect()
        after_seq: int | None = -1
        seqs: list[int] = []
        while after_seq is not None:
            page = await peer.call("tape.read", run_id=RUN, after_seq=after_seq, limit=2)
            seqs += [event["seq"] for event in page["events"]]
            after_seq = page.get("next_after_seq")
            assert (4, 0) == (page["head_seq"], page["floor_seq"])
        assert [0, 1, 2, 3, 4] == seqs


async def test_exports_hold_all_fields_and_a_signature(autojump_clock: Clock) -> None:
    """Each line has what its link covers; the last link is signed; pages follow each other."""
    async with open_daemon() as daemon:
        daemon.commit(row(0), row(1), row(2))
        peer = await daemon.connect()
        page = await peer.call("tape.export", run_id=RUN, limit=2)
        assert (1, "0102") == (page["next_after_seq"], page["public_key"])
        assert bytes.fromhex(page["signature"]).startswith(b"signed ")
        line = json.loads(page["ndjson"].splitlines()[1])
        expected = {"seq": 1, "principal": "ann", "redacted": False, "position": 2, "hash": "01"}
        assert expected.items() <= line.items()
        last = await peer.call("tape.export", run_id=RUN, after_seq=1)
        assert "next_after_seq" not in last
        empty = await peer.call("tape.export", run_id=RUN, after_seq=2)
        assert ("", "") == (empty["ndjson"], empty["signature"])


async def test_whole_journal_verification_needs_all_principals(autojump_clock: Clock) -> None:
    """Without a run, verification needs a role that sees every principal."""
    async with open_daemon() as daemon:
        daemon.commit(row(0), row(1))
        operator, ann = await daemon.connect("tok-operator"), await daemon.connect()
        assert 2 == (await operator.call("tape.verify"))["checked_events"]
        assert 2 == (await ann.call("tape.verify", run_id=RUN))["checked_events"]
        assert "forbidden" == (await ann.fail("tape.verify"))["data"]["code"]


# --- sessions, tools, system ---


async def test_session_is_resolved_by_exactly_one_name(autojump_clock: Clock) -> None:
    """Neither both nor none of id and key."""
    async with open_daemon() as daemon:
        peer = await daemon.connect()
        for params in ({}, {"session_id": "s", "session_key": "k"}):
            error = await peer.fail("session.resolve", **params)
            assert "session_id" == error["data"]["field"]


async def test_queue_of_a_foreign_session_is_not_found(autojump_clock: Clock) -> None:
    """A caller that does not see the session does not see its queue."""
    async with open_daemon() as daemon:
        ann, bob = await daemon.connect(), await daemon.connect("tok-bob")
        queue = await ann.call("session.queue", session_id="ses_1")
        assert ["run_of_ses_1"] == queue["waiting"]
        assert "not_found" == (await bob.fail("session.queue", session_id="ses_1"))["data"]["code"]


async def test_status_shows_totals_to_those_who_see_all(autojump_clock: Clock) -> None:
    """Counts over everybody's connections are not a client's business."""
    async with open_daemon() as daemon:
        observer, ann = await daemon.connect("tok-observer"), await daemon.connect()
        status = await observer.call("system.status")
        assert (2, 0, True) == (
            status["connections"],
            status["journal_backlog"],
            status["is_writable"],
        )
        assert (3, 4) == (status["stranded_runs"], status["open_incidents"])
        totals = {"connections", "journal_backlog", "stranded_runs", "open_incidents"}
        assert not totals & set(await ann.call("system.status"))


async def test_tree_shows_no_secret_of_a_crash(autojump_clock: Clock) -> None:
    """The message of a crash is redacted before it is cut."""
    secret = "pal_aB3xK9qLm2ZtR7wYc5NvP8sD4fGh6JkE1uHoTbXi0Vr"
    async with open_daemon() as daemon:
        crashed = replace(daemon.tree, id="run:1", last_crash=f"Boom: {'x' * 480} {secret}")
        daemon.tree = replace(daemon.tree, children=(crashed,))
        peer = await daemon.connect("tok-operator")
        (shown,) = (await peer.call("system.tree"))["children"]
    assert f"Boom: {'x' * 480} [redacted:pal" == shown["last_crash"]


async def test_description_covers_the_protocol(autojump_clock: Clock) -> None:
    """Every method and notification has its schemas, and every reference leads somewhere."""
    async with open_daemon() as daemon:
        peer = await daemon.connect()
        described = await peer.call("system.describe")
        assert set(METHODS) == set(described["methods"])
        assert set(NOTIFICATIONS) == set(described["notifications"])
        assert {"run.accepted", "run.done"} <= set(described["events"])
        text = json.dumps(described)
        refs = {part.split('"')[0] for part in text.split("#/schemas/")[1:]}
        assert refs <= set(described["schemas"])
        start = described["methods"]["run.start"]
        assert ("runs:write", True) == (start["scope"], start["mutating"])
        assert not [name for name in described["schemas"] if "." in name], "ambiguous names"


async def test_records_are_committed_before_the_reply(autojump_clock: Clock) -> None:
    """A token that was replied is in the store: the reply is a promise."""
    async with open_daemon() as daemon:
        operator = await daemon.connect("tok-operator")
        before = len(daemon.store.tokens)
        await operator.call("token.create", principal="x", role="client", name="x")
        assert before + 1 == len(daemon.store.tokens)


@every_row("name", ["tokens", "usd_micros", "wall_ms"])
@every_row("amount", [0, 2**64, 10**400])
def test_the_budget_of_a_run_has_bounds(name: str, amount: int) -> None:
    """Numbers that nothing can count with are refused before there is a run."""
    with pytest.raises(msgspec.ValidationError, match=name):
        msgspec.convert({"text": "x", "idempotency_key": "k", "budget": {name: amount}}, RunStart)


@every_row("origin", ["backgroud", "delegated", "compat"])
def test_an_origin_is_one_that_a_client_may_claim(origin: str) -> None:
    """A misspelt one would be a run that asks people; the others are the daemon's to give."""
    with pytest.raises(msgspec.ValidationError, match="origin"):
        msgspec.convert({"text": "x", "idempotency_key": "k", "origin": origin}, RunStart)


async def test_a_subscription_names_kinds_that_there_are(autojump_clock: Clock) -> None:
    """A misspelt one would wait in silence."""
    async with open_daemon() as daemon:
        peer = await daemon.connect()
        error = await peer.fail("tape.subscribe", run_id=RUN, kinds=["run.dnoe"])
        assert ("invalid_params", True) == (error["data"]["code"], "run.dnoe" in error["message"])


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({}, ["run_4", "run_3", "run_2"]),
        ({"phases": ["awaiting_approval"]}, ["run_3"]),
        ({"phases": ["in_progress", "done"]}, ["run_4", "run_2"]),
        ({"agent": "scout"}, ["run_4"]),
        ({"tainted": True}, ["run_2"]),
        ({"tainted": False}, ["run_4", "run_3"]),
        ({"text": "TÄGLICH"}, ["run_4", "run_3", "run_2"]),
        ({"text": "nothing"}, []),
    ],
)
async def test_runs_are_filtered(
    autojump_clock: Clock, wanted: dict[str, Any], found: list[str]
) -> None:
    """Each filter selects by what the list shows; pages of one lead to the same runs, and end."""
    async with open_daemon() as daemon:
        del daemon.store.runs[RUN]
        daemon.store.runs |= {
            "run_2": run_record("run_2", state="done", is_tainted=True),
            "run_3": run_record("run_3", pending_approvals=1),
            "run_4": run_record("run_4", agent="scout"),
        }
        daemon.store.sessions["ses_1"] = msgspec.structs.replace(
            daemon.store.sessions["ses_1"], title="die tägliche Arbeit, täglich"
        )
        peer = await daemon.connect()
        shown = await peer.call("run.list", **wanted)
        assert found == [run["run_id"] for run in shown["runs"]]
        one_by_one, cursor = list[str](), dict[str, str]()
        while True:
            page = await peer.call("run.list", limit=1, **wanted, **cursor)
            one_by_one += [run["run_id"] for run in page["runs"]]
            if "next_cursor" not in page:
                break
            cursor = {"cursor": page["next_cursor"]}
        assert found == one_by_one


async def test_a_list_shows_the_last_event_and_the_title(autojump_clock: Clock) -> None:
    """Kind and time are those of the last committed event; a run without one has neither."""
    async with open_daemon() as daemon:
        daemon.store.runs["run_2"] = run_record("run_2")
        daemon.publish(row(0), row(1, kind="turn.started"))
        daemon.commit(row(0), row(1, kind="turn.started"))
        peer = await daemon.connect()
        without, run = (await peer.call("run.list"))["runs"]
        assert ("turn.started", row(1).at_ms) == (run["latest_kind"], run["latest_ms"])
        assert not {"latest_kind", "latest_ms"} & without.keys()
