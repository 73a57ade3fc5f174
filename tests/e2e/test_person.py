"""The role `person`: each method that it may call, on the objects of another principal and on its own."""

from typing import Any

import msgspec
import pytest

from palyra.client import Client
from palyra.core.access import SCOPES
from palyra.net.api.methods.table import METHODS
from tests.e2e.daemon_process import DaemonProcess
from tests.e2e.people import ask_for, make_token, somebody, write_call
from tests.e2e.wire import Wire, connected

pytestmark = pytest.mark.real

Params = dict[str, Any]
WORD = "aubergine"  # in every text of ann's

# Results that belong to no principal.
SHARED = {
    "connect", "ping", "system.status", "system.describe", "model.list", "tool.list", "agent.list",
    "agent.get", "mcp.list", "mcp.resources", "mcp.prompts", "policy.explain",
    "workspace.list",
}  # fmt: skip
# Results about the caller's own: the parameters name no object of anybody.
OWN = {
    "memory.import", "run.start", "task.submit", "schedule.add", "session.resolve",
    "tape.unsubscribe", "run.unwatch", "reference.preview", "schedule.preview", "console.logout",
    "push.key", "push.subscribe", "push.unsubscribe",
}  # fmt: skip
# The scope is not enough: refused to everybody who is confined to a principal.
REFUSED = {"system.tree", "memory.rebuild"}
# On objects that no test with a real daemon makes in a moment; `tests/services` has their confinement.
ELSEWHERE = {f"learning.{verb}" for verb in ("accept", "edit", "get", "reject", "undo")}
# Lists: another principal's are left out.  All other methods answer that the object does not exist.
LISTS: dict[str, Params] = {
    "approval.list": {},
    "approval.grants": {},
    "budget.list": {},
    "budget.status": {},
    "checkpoint.list": {},
    "learning.list": {},
    "memory.export": {},
    "memory.list": {},
    "memory.search": {"query": WORD},
    "memory.status": {},
    "memory.audit": {},
    "run.list": {},
    "run.watch": {},
    "schedule.list": {},
    "session.list": {},
    "task.counts": {},
    "task.list": {},
    "usage.summary": {"by": "principal"},
}
# Name no object of ann's; what a watch sends is confined in `tests/e2e/test_run_watch.py`.
QUIET = {"budget.list", "budget.status", "learning.list", "run.watch", "task.counts"}


async def make_objects(ann: Client, wire: Wire) -> dict[str, Any]:
    """Make one object of each kind; their parameters by name."""
    started = await ann.start_run(f"/say {WORD}")
    await ann.wait_run(started.run_id)
    granted = await ask_for(ann, write_call("anns.txt", WORD))
    resolved = await ann.resolve_approval(
        granted.approval_id, "allow", granted.digest, scope="session"
    )
    await ann.wait_run(granted.run_id)
    asked = await ask_for(ann, write_call("more.txt", WORD))
    (checkpoint,) = (await wire.call("checkpoint.list", run_id=granted.run_id))["checkpoints"]
    return {
        "run_id": started.run_id,
        "session_id": started.session_id,
        "approval_id": asked.approval_id,
        "digest": asked.digest,
        "asking": asked.run_id,
        "grant_id": resolved.grant_id,
        "checkpoint_id": checkpoint["checkpoint_id"],
        "memory_id": (await wire.call("memory.add", text=f"ann grows {WORD}"))["memory_id"],
        "task_id": (
            await wire.call(
                "task.submit", kind="prompt", payload={"text": WORD}, not_before_ms=9**13
            )
        )["task_id"],
        "schedule_id": (
            await wire.call("schedule.add", name=WORD, every_ms=10**9, payload={"text": WORD})
        )["schedule_id"],
    }


def by_id(anns: dict[str, Any]) -> dict[str, Params]:
    """Calls of all methods that name an object; those that end something come last."""
    run, session, memory = ({name: anns[name]} for name in ("run_id", "session_id", "memory_id"))
    task, schedule, asked = (
        {name: anns[name]} for name in ("task_id", "schedule_id", "approval_id")
    )
    return {
        "approval.get": asked,
        "approval.preview": asked,
        "approval.reach": asked,
        "artifact.read": session | {"artifact": "a" * 16},
        "context.explain": run,
        "run.get": run,
        "run.wait": run,
        "run.diff": run,
        "run.replay": run,
        "run.fork": run | {"at_seq": 1},
        "tape.read": run,
        "tape.find": run | {"text": WORD},
        "tape.outline": run,
        "tape.export": run,
        "tape.verify": run,
        "tape.subscribe": run,
        "session.get": session,
        "session.queue": session,
        "session.compact": session | {"preview": True},
        "session.pin": session | {"run_id": anns["run_id"], "seq": 1},
        "session.checkpoint": session,
        "session.checkpoints": session,
        "session.restore": session | {"dry_run": True},
        "memory.get": memory,
        "memory.history": memory,
        "memory.used": run,
        "memory.edit": memory | {"text": f"ann sells {WORD}"},
        "memory.undo": memory,
        "memory.pin": memory,
        "memory.never_recall": memory,
        "learning.reflect": run,
        "task.get": task,
        "schedule.get": schedule,
        "schedule.next": schedule,
        "run.steer": {"run_id": anns["asking"], "text": WORD},
        "task.pause": task,
        "task.resume": task,
        "task.cancel": task,
        "task.retry": task,
        "schedule.pause": schedule,
        "schedule.resume": schedule,
        "schedule.remove": schedule,
        "memory.forget": memory,
        "approval.resolve": asked | {"decision": "deny", "digest": anns["digest"]},
        "approval.revoke": {"grant_id": anns["grant_id"]},
        "checkpoint.restore": {"checkpoint_id": anns["checkpoint_id"]},
        "run.cancel": {"run_id": anns["asking"]},
        "run.undo": run | {"digest": "d"},
        "session.reset": session,
        "session.set_mode": session | {"mode": "ask"},
        "session.archive": session,
        "session.rename": session | {"title": "theirs"},
        "session.purge": session | {"dry_run": True},
    }


def code_of(reply: Params) -> str:
    """The code of an error; empty for a result."""
    code: str = reply.get("error", {}).get("data", {}).get("code", "")
    return code


def test_every_method_of_a_person_has_its_place_here() -> None:
    """A new method in a scope of the role must say how it is confined; all others are denied."""
    allowed = {
        name
        for name, method in METHODS.items()
        if method.scope is None or method.scope in SCOPES["person"]
    }
    named = {*by_id(dict.fromkeys(KEYS, "")), *LISTS, *SHARED, *OWN, *REFUSED, *ELSEWHERE, *NAMING}
    assert allowed == named
    assert {"approvals:write"} == SCOPES["person"] - SCOPES["client"]


KEYS = (
    "run_id", "session_id", "approval_id", "digest", "asking", "grant_id", "checkpoint_id",
    "memory_id", "task_id", "schedule_id",
)  # fmt: skip
# Parameters that name a principal, which must be the caller's own.
NAMING: dict[str, Params] = {
    "memory.add": {"text": "x", "principal": "ann"},
    "memory.purge": {"principal": "ann", "dry_run": True},
}


async def test_a_person_is_confined_to_its_principal(daemon: DaemonProcess) -> None:
    """What belongs to another principal does not exist; the same calls by its owner are served."""
    async with daemon.connect() as operator:
        anns_token, bobs_token = [
            await make_token(operator, "person", name) for name in ("ann", "bob")
        ]
    async with (
        daemon.connect(anns_token) as ann,
        connected(daemon.port, anns_token) as anns_wire,
        connected(daemon.port, bobs_token) as bobs_wire,
    ):
        objects = await make_objects(ann, anns_wire)
        marks = (WORD, *(value for name, value in objects.items() if name != "digest"), '"ann"')
        for name, params in LISTS.items():
            seen = msgspec.json.encode(await bobs_wire.call(name, **params)).decode()
            assert [] == [mark for mark in marks if mark in seen.replace(str(params), "")], name
        calls = by_id(objects)
        for name, params in calls.items():
            assert "not_found" == code_of(await bobs_wire.request(name, **params)), name
        for name, params in NAMING.items():
            assert code_of(await bobs_wire.request(name, **params)) in {"not_found", "forbidden"}, (
                name
            )
        for name in REFUSED:
            assert "forbidden" == code_of(await anns_wire.request(name)), name
        # The control: each of these calls reaches its object for the one it belongs to.
        for name, params in LISTS.items():
            own = msgspec.json.encode(await anns_wire.call(name, **params)).decode()
            assert name in QUIET or any(mark in own for mark in marks), name
        for name, params in NAMING.items():
            assert not code_of(await anns_wire.request(name, **params)), name
        for name, params in calls.items():
            reply = await anns_wire.request(name, **params)
            assert name == "artifact.read" or code_of(reply) not in {"not_found", "forbidden"}, (
                name,
                reply,
            )


async def test_a_person_configures_nothing(daemon: DaemonProcess) -> None:
    """Configuration, tokens, policies and other principals are the operator's, who is served."""
    calls: dict[str, Params] = {
        "token.list": {},
        "token.create": {"principal": "ann", "role": "operator", "name": "x"},
        "agent.create": {"name": "mine", "instructions": "x"},
        "budget.set": {"budget_id": "anns", "scope": "principal", "subject": "ann", "hard": 10**9},
        "budget.delete": {"budget_id": "anns"},
        "policy.suggest": {},
        "document.list": {},
        "channel.list": {},
        "incident.list": {},
        "skill.list": {},
        "retention.preview": {},
    }
    async with (
        somebody(daemon, "person", "ann") as ann,
        daemon.connect() as operator,
    ):
        for name, params in calls.items():
            with pytest.raises(Exception, match="lacks the scope"):
                await ann.call(name, params)
            await operator.call(name, params)
