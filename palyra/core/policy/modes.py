"""Modes of a session: what a person has decided about all of its calls, until the mode changes.

| Mode | Calls |
| --- | --- |
| `ask` | as the rules and the grants decide |
| `accept_edits` | a change of files in the workspace needs no answer where a person could give one for the session |
| `plan` | a call that may change anything is refused, until a person accepts a plan |

`accept_edits` is a grant that the gate makes for each such call (`edit_grant`), so everything that
limits a grant limits the mode: rules that deny, a tainted run, a grant to deny, and the rules about
who may answer.  It covers the built-in tools that write files of the workspace and nothing else.

`plan` allows a call by what the daemon knows of its tool, never by its name: the classes without an
effect, and commands that only read.  A tool of another class, a delegation and a tool that a client
runs are refused.  The model proposes its plan by `propose_plan`, whose approval is the person's answer
and whose execution returns the session to the mode before.

A mode belongs to one session.  A fork begins with `ask`.  A delegated run works in `plan` while a run
above it does, and has no part in `accept_edits`.
"""

import msgspec

from palyra.core.journal.records import GrantRecord, ModeChange, SessionMode, SessionRecord
from palyra.core.tool.spec import CLIENT, CallFacts, Catalogue, ToolSpec, build_catalogue

PROPOSE_PLAN = "propose_plan"  # name of the tool
PLAN_MODE = "plan_mode"  # reason code of a refused call
ACCEPT_EDITS = "accept_edits"  # reason code of an allowed one
PLAN_NOTE = (
    "The session is in plan mode: only calls that read are allowed, and every other call is refused. "
    "Look at what the task needs, then propose a complete plan by propose_plan and wait for the answer."
)
_EDIT_ID = "edits_"  # begin of the ids of grants that the mode makes
_WITHOUT_EFFECT = frozenset({"read_only_safe", "idempotent_network"})
_READS, _WRITES = "fs.read", "fs.write"


def changed_mode(record: SessionRecord, mode: SessionMode, change: ModeChange) -> SessionRecord:
    """Return the session in a mode; `plan` keeps the mode it returns to."""
    if mode == record.mode:
        return record
    if mode == "plan":
        change = msgspec.structs.replace(
            change, before=record.mode, earlier=record.mode_set if record.mode != "ask" else None
        )
    return msgspec.structs.replace(record, mode=mode, mode_set=change, updated_ms=change.at_ms)


def without_plan(record: SessionRecord, at_ms: int) -> SessionRecord:
    """Return the session after its plan was accepted; unchanged in another mode.

    The mode is again that of the principal who chose it, also after another one chose the plan.
    """
    change = record.mode_set
    if record.mode != "plan" or change is None:
        return record
    chosen = change.earlier or change
    return msgspec.structs.replace(
        record,
        mode=change.before,
        mode_set=ModeChange(by=chosen.by, role=chosen.role, at_ms=at_ms),
        updated_ms=at_ms,
    )


def reset_mode(record: SessionRecord) -> SessionRecord:
    """Return the session after a reset, which ends what was allowed and keeps what was refused."""
    if record.mode != "plan" or record.mode_set is None:
        return msgspec.structs.replace(record, mode="ask", mode_set=None)
    return msgspec.structs.replace(
        record, mode_set=msgspec.structs.replace(record.mode_set, before="ask", earlier=None)
    )


def shown_in(mode: SessionMode, allowed: Catalogue, catalogue: Catalogue) -> Catalogue:
    """Return an agent's tools with `propose_plan` in plan mode, and without it in another one."""
    proposing = catalogue.tools.get(PROPOSE_PLAN)
    if proposing is None:
        return allowed
    shown = [spec for name, spec in allowed.tools.items() if name != PROPOSE_PLAN]
    return build_catalogue([*shown, proposing] if mode == "plan" else shown)


def only_reads(spec: ToolSpec, facets: CallFacts) -> bool:
    """True if the daemon knows that the call changes nothing."""
    if spec.executor == CLIENT or _WRITES in spec.capabilities:
        return False
    if spec.tool_class in _WITHOUT_EFFECT:
        return True
    commands = facets.parts or (facets,)
    return spec.name == "shell" and all(command.is_reader for command in commands)


def keeps_files(spec: ToolSpec, facets: CallFacts) -> bool:
    """True if the daemon knows that the call changes no file of a workspace.

    That is a call that only reads, or one of a foreign server that no workspace is open to: a jailed
    program without one, or another machine.
    """
    if only_reads(spec, facets):
        return True
    if spec.executor != "mcp" or _WRITES in spec.capabilities:
        return False
    is_near = facets.host.startswith("127.") or facets.host in {"", "::1", "localhost"}
    return "process" in spec.capabilities or not is_near


def find_plan_refusal(mode: SessionMode, spec: ToolSpec, facets: CallFacts) -> str:
    """Return why the mode refuses the call; "" if it does not."""
    if mode != "plan" or only_reads(spec, facets):
        return ""
    return (
        f"the session is in plan mode, in which {spec.name} is refused, as it may change something: "
        f"use tools that read, then propose a plan by {PROPOSE_PLAN} or, without it, in your answer; "
        "a person accepts it or changes the mode"
    )


def is_edit(spec: ToolSpec, facets: CallFacts) -> bool:
    """True for a change of files of the workspace that an answer for the session could cover."""
    return (
        spec.tool_class == "path_scoped"
        and _WRITES in spec.capabilities
        and {_READS, _WRITES}.issuperset(spec.capabilities)
        and ":" not in spec.name  # built in: no server or skill
        and bool(facets.grant_key)
    )


def edit_grant(session: SessionRecord, agent: str, tool: str, key: str) -> GrantRecord | None:
    """Return the grant that the mode of a session makes for a change of files; None if it makes none."""
    change = session.mode_set
    if session.mode != "accept_edits" or change is None:
        return None
    return GrantRecord(
        grant_id=edit_grant_id(session),
        principal=session.principal,
        agent=agent,
        tool=tool,
        key=key,
        decision="allow",
        scope="session",
        session_id=session.session_id,
        epoch=session.epoch,
        approval_id="",
        by=change.by,
        granted_ms=change.at_ms,
        workspace=session.workspace,
    )


def edit_grant_id(session: SessionRecord) -> str:
    """Return the id of the grants that the session's present mode makes."""
    at_ms = 0 if session.mode_set is None else session.mode_set.at_ms
    return f"{_EDIT_ID}{session.session_id}_{at_ms}"


def session_of_edits(grant_id: str) -> str:
    """Return the session whose mode made the grant; "" for the grant of an answer."""
    if not grant_id.startswith(_EDIT_ID):
        return ""
    return grant_id.removeprefix(_EDIT_ID).rpartition("_")[0]


def edits_hold(session: SessionRecord | None, grant_id: str) -> bool:
    """True if the session is still in the mode that made the grant."""
    return (
        session is not None
        and session.mode == "accept_edits"
        and edit_grant_id(session) == grant_id
    )
