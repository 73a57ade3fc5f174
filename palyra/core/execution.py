"""The execution object: everything the effect of a call depends on, and the digest that names it.

What a person approves is this digest.  The executor builds the object again from what it is about
to run and compares, so a change in any of it needs a new approval.
"""

from typing import Any

import msgspec

from palyra.core.canonical import digest_of_any
from palyra.core.tools import ToolCall


def execution_object(
    call: ToolCall, policy_version: str, covers: tuple[str, ...] = ()
) -> dict[str, Any]:
    """The object; `covers` are the ids of identical calls of the turn that were asked about at once.

    A call among `covers` has the object of the call that was asked about first.
    """
    seen = call.inspection
    return {
        "arguments": dict(call.arguments),
        "call_ids": list(covers) if call.call_id in covers else [call.call_id],
        "inspection": None if seen is None else msgspec.to_builtins(seen),
        "policy_version": policy_version,
        "principal": call.principal,
        "run_id": call.run_id,
        "session_id": call.session_id,
        "tool": call.tool,
        "tool_version": call.tool_version,
    }


def execution_digest(call: ToolCall, policy_version: str, covers: tuple[str, ...] = ()) -> str:
    """SHA-256 over the canonical execution object, hex."""
    return digest_of_any(execution_object(call, policy_version, covers))
