"""ping and system.*: clock, health, supervision tree, suspension, drain, description of the protocol."""

from collections.abc import Mapping
from functools import cache
from typing import Annotated

import msgspec

from palyra.actors.kernel.child import ChildSnapshot
from palyra.errors import Forbidden
from palyra.net.api.method import (
    AnyMethod,
    Method,
    MethodCall,
    Mutation,
    at_once,
    check_no_secret,
)
from palyra.net.api.schema import ProtocolSchema, describe_protocol
from palyra.net.protocol.jsonrpc import Redact
from palyra.net.protocol.notifications import PROTOCOL
from palyra.net.protocol.params import LINE, NoParams
from palyra.net.protocol.results import DrainBegun, Pong, Status, SuspensionState

_Reason = Annotated[str, msgspec.Meta(max_length=256), LINE]
CRASH_CHARS = 500  # of a crash's message; the traceback is in the log


class DaemonDescription(ProtocolSchema, frozen=True, kw_only=True):
    """The protocol this daemon speaks."""

    protocol: str
    version: str


def ping(call: MethodCall, _params: NoParams) -> Pong:
    return Pong(now_ms=call.backend.now_ms())


def status(call: MethodCall, _params: NoParams) -> Status:
    backend = call.backend
    sees_all = call.caller.principal_filter is None
    return Status(
        state=backend.state(),
        version=backend.version,
        instance_id=backend.instance_id,
        protocol=PROTOCOL,
        now_ms=backend.now_ms(),
        is_writable=backend.journal.is_writable,
        journal_backlog=backend.journal.backlog if sees_all else None,
        connections=backend.hub.watcher_count if sees_all else None,
        stranded_runs=backend.count_stranded() if sees_all else None,
        open_incidents=backend.incidents.open_count if sees_all else None,
        problems=tuple(backend.problems()) if sees_all else (),
        absent=tuple(backend.absent()) if sees_all else (),
        embedder=backend.embedder() if sees_all else None,
        suspension=backend.admission.suspension,
    )


def tree(call: MethodCall, _params: NoParams) -> ChildSnapshot:
    if call.caller.principal_filter is not None:
        raise Forbidden(
            f"the tree shows the runs of all principals; role {call.caller.role!r} sees only its own"
        )
    return _show(call.backend.tree(), call.backend.redact)


def _show(node: ChildSnapshot, redact: Redact) -> ChildSnapshot:
    """Return the node with crash messages redacted and cut: an exception may quote a secret."""
    crash = node.last_crash
    if crash is not None:
        crash = redact(crash.encode(errors="replace"))[0].decode()[:CRASH_CHARS]
    below = tuple(_show(child, redact) for child in node.children)
    return msgspec.structs.replace(node, last_crash=crash, children=below)


class SystemSuspend(Mutation, frozen=True, kw_only=True):
    """A reason for those who are refused."""

    reason: _Reason = ""


class SystemResume(Mutation, frozen=True, kw_only=True):
    """Nothing but the key."""


async def suspend(call: MethodCall, params: SystemSuspend) -> SuspensionState:
    check_no_secret(call, reason=params.reason)

    async def effect() -> SuspensionState:
        found = await call.backend.admission.suspend(call.caller, params.reason)
        return SuspensionState(suspension=found)

    return await call.once(SuspensionState, effect)


async def resume(call: MethodCall, _params: SystemResume) -> SuspensionState:
    async def effect() -> SuspensionState:
        await call.backend.admission.resume(call.caller)
        return SuspensionState()

    return await call.once(SuspensionState, effect)


def drain(call: MethodCall, _params: NoParams) -> DrainBegun:
    call.caller.require("system:write")
    call.then(call.backend.drain.begin)
    return DrainBegun(close_after_ms=call.backend.drain.close_after_ms)


METHODS = (
    Method("ping", NoParams, Pong, None, at_once(ping)),
    Method("system.status", NoParams, Status, "system:read", at_once(status)),
    Method("system.tree", NoParams, ChildSnapshot, "system:read", at_once(tree)),
    Method("system.suspend", SystemSuspend, SuspensionState, "system:write", suspend),
    Method("system.resume", SystemResume, SuspensionState, "system:write", resume),
    Method("system.drain", NoParams, DrainBegun, "system:write", at_once(drain)),
)


def make_describe(methods: Mapping[str, AnyMethod]) -> AnyMethod:
    """Make `system.describe` for a table of methods, which includes itself."""

    @cache
    def described() -> ProtocolSchema:
        return describe_protocol(methods)

    def describe(call: MethodCall, _params: NoParams) -> DaemonDescription:
        return DaemonDescription(
            protocol=PROTOCOL,
            version=call.backend.version,
            **msgspec.structs.asdict(described()),
        )

    return Method(
        "system.describe",
        NoParams,
        DaemonDescription,
        "system:read",
        at_once(describe),
        is_bulk=True,
        is_exact=True,
    )
