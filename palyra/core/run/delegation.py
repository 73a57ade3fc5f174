"""Delegation: what a run may hand down to a run of its own, and how its end is put to the model.

A call of the tool `delegate` starts a child: an ordinary run with its own tape and session, whose id
is on the parent's tape (`delegation.started`) before the child exists.  Whatever happens between
that commit and the child's end, the call is executed again after a restart, finds the child by this
id, and waits for its end.  The end is recorded in the same step as the outcome of the call, which the
fold accepts once.  So the key of the delivery is the id of the call, and its acknowledgement is the
commit of the parent's step.

A child never has more than its parent:

- *Tools*: those of its agent that the parent has too, or the part of them that the call names.
- *Rules*: every call of the child is decided under the names of all agents above it and the origin of
  the outermost run as well, and the strictest decision holds.  The child's agent has the labels and
  the memory scope of the parent's.
- *Budget*: its share is reserved while it is open.  The parent has no turn meanwhile, so its own calls
  cannot spend the same amount; at the end the actual usage replaces the share.
- *Trust*: it begins with the parent's taint and lowest label, and hands both back.
"""

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from palyra.core.journal.records import AgentRecord, GrantRecord
from palyra.core.run.call import Call
from palyra.core.run.state import Run
from palyra.core.tape.events import Budget, Delegation, DelegationStarted
from palyra.core.tool.arguments import Refused
from palyra.core.tool.spec import DelegatedEnd, ToolOutput
from palyra.core.trust.labels import Trust, lowest

DELEGATE = "delegate"  # name of the tool
DELEGATED = "delegated"  # origin of a child
MAX_DEPTH = 3  # of a run below the one that a client started
MAX_CHILDREN = 4  # of one run at once; a share that the call does not name is one of as many parts
TAINTED = "delegated_run"  # finding: the child has read a text with findings


def find_refusal(depth: int, arguments: Mapping[str, Any], held: Collection[str]) -> Refused | None:
    """Return why a run of that depth with these tools cannot make the call; None if it can."""
    if depth >= MAX_DEPTH:
        return Refused(
            reason=f"this run is {depth} delegations deep, the most: it cannot delegate",
            repair_hint="do the work in this run",
        )
    lacking = [name for name in arguments.get("tools") or () if name not in held]
    if lacking:
        return Refused(
            reason=f"this run does not have {', '.join(sorted(lacking))}, so it cannot hand that down",
            repair_hint=f"name a part of: {', '.join(sorted(held))}",
        )
    return None


def handed_down(
    wanted: Collection[str] | None, held: Collection[str], depth: int
) -> tuple[str, ...]:
    """Return the tools of a child at that depth, sorted; the deepest cannot delegate."""
    names = set(held) if wanted is None else set(wanted) & set(held)
    return tuple(sorted(names - {DELEGATE} if depth >= MAX_DEPTH else names))


def find_other_rights(own: AgentRecord, other: AgentRecord) -> str:
    """Return why `own` may not delegate to `other`, "" if it may."""
    if set(own.labels) != set(other.labels):
        return (
            f"the agent {other.name!r} has other labels than {own.name!r}, so other rules: "
            "delegate to an agent with the same labels"
        )
    if own.memory_scope != other.memory_scope:
        return (
            f"the agent {other.name!r} has another memory scope than {own.name!r}: "
            "delegate to an agent with the same one"
        )
    return ""


def keep_grant(delegation: Delegation, grant: GrantRecord) -> GrantRecord | None:
    """Return the grant if it holds for a child as well; a grant to deny always does.

    A grant belongs to one agent.  A run above the child that works as another one does not have it,
    so the child has not either.  A grant for a session is not found here: a child has its own.
    """
    is_shared = all(name == grant.agent for name in delegation.agents)
    return grant if is_shared or grant.decision == "deny" else None


# --- budget --------------------------------------------------------------------------------------


def plan_delegation(run: Run, call: Call, *, run_id: str, left: Budget) -> DelegationStarted:
    """Return the event of a child with that id.

    `left` has what the accounts of the run still admit, and the rest of its wall clock in
    milliseconds; shares of children that are open count as spent.  A share is what the call wants,
    at most what is left; by default one of `MAX_CHILDREN` parts of it.
    """
    asked: Mapping[str, Any] = call.arguments if call.tool == DELEGATE else {}
    wanted: Mapping[str, Any] = asked.get("budget") or {}
    wall_s = asked.get("wall_s")
    open_shares = [
        each.delegated.budget
        for each in run.calls
        if each.delegated is not None and not each.delegated.is_ended
    ]
    tokens = _share(wanted.get("tokens"), left.tokens, [each.tokens for each in open_shares])
    usd = _share(
        wanted.get("usd_micros"), left.usd_micros, [each.usd_micros for each in open_shares]
    )
    wall_ms = None if wall_s is None else wall_s * 1000
    return DelegationStarted(
        call_id=call.call_id,
        run_id=run_id,
        depth=run.accepted.depth + 1,
        agent=asked.get("agent") or run.accepted.agent,
        budget=Budget(tokens=tokens, usd_micros=usd, wall_ms=_least(wall_ms, left.wall_ms)),
    )


def _share(wanted: int | None, left: int | None, lent: Collection[int | None]) -> int | None:
    if left is None:
        return wanted
    free = max(0, left - sum(amount or 0 for amount in lent))
    return min(free, -(-left // MAX_CHILDREN) if wanted is None else wanted)


def _least(one: int | None, other: int | None) -> int | None:
    known = [each for each in (one, other) if each is not None]
    return min(known) if known else None


# --- the end -------------------------------------------------------------------------------------


class ChildEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a child, as its tape has it."""

    run_id: str
    end: DelegatedEnd
    answer: str = ""
    is_tainted: bool = True  # also if the tape cannot be read
    trust: Trust = "mixed"


def render_end(child: ChildEnd, *, people_ms: int = 0) -> ToolOutput:
    """Return the result of the call: the answer of the child, or why there is none.

    A partial answer is a result; a child without an answer is a failed call.  `people_ms` is the
    pause of the parent's clock that its tape does not have yet.
    """
    end = msgspec.structs.replace(child.end, people_ms=people_ms)
    lines = [child.answer] if child.answer else []
    if end.state != "done":
        lines.insert(0, f"[the delegated run {child.run_id} is {end.state}: {end.reason}]")
    return ToolOutput(
        text="\n".join(lines),
        is_failure=end.state not in {"done", "partial"},
        trust=lowest((child.trust, "workspace")),  # a model wrote it
        findings=(TAINTED,) if child.is_tainted else (),
        delegated=end,
    )
