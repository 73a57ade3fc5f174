"""Grants: answers to approval requests that hold for more than one call.

A grant is keyed by a fact about the call (`CallFacts.grant_key`): a command by its executable, a
request by its host, a write by its directory; never by the tool alone.  It holds in the
workspace of the session that it was given in.  It replaces a question of
the rules and permits nothing that the rules deny.
"""

from collections.abc import Iterable

from palyra.core.journal.records import ApprovalRecord, ApprovalScope, GrantRecord
from palyra.core.text.visible import visible

MAX_TTL_MS = 86_400_000  # a day; a longer permission is a rule
MAX_LIVE = 256  # of one principal
ONCE: tuple[ApprovalScope, ...] = ("once",)
BEYOND_ONCE: tuple[ApprovalScope, ...] = ("once", "session", "timeboxed")


def describe_key(key: str) -> str:
    """Return the key safe to show; the top folder has no name of its own."""
    return "the workspace's top folder" if key in {"/", "./"} else visible(key)


def why_once(tool: str, key: str) -> str:
    """Return why an answer can hold for this call only; "" if it may hold for more."""
    if key:
        return ""
    return (
        f"this call of {tool} has no one program, host or folder that a wider answer could hold for; "
        "a call that works on one of them, or a rule in user policies, would do"
    )


def grant_id_of(approval_id: str) -> str:
    """Return the id of the grant that the answer creates; there is at most one."""
    return f"grt_{approval_id.removeprefix('apr_')}"


def holds_for(grant: GrantRecord, asked: ApprovalRecord, epoch: int | None, at_ms: int) -> bool:
    """True if the grant answers a pending question; `epoch` is that of the asking run."""
    return (
        "session" in asked.scopes
        and (grant.principal, grant.agent, grant.tool, grant.key, grant.workspace)
        == (asked.principal, asked.agent, asked.tool, asked.grant_key, asked.workspace)
        and _holds_in(grant, asked.session_id, epoch, at_ms)
    )


def _holds_in(grant: GrantRecord, session_id: str, epoch: int | None, at_ms: int) -> bool:
    return grant.is_live(at_ms) and (
        grant.scope == "timeboxed" or (grant.session_id, grant.epoch) == (session_id, epoch)
    )


def find_grant(
    grants: Iterable[GrantRecord], *, session_id: str, epoch: int | None, at_ms: int
) -> GrantRecord | None:
    """Return the live grant among those with the right key; a denial comes first."""
    live = [grant for grant in grants if _holds_in(grant, session_id, epoch, at_ms)]
    return min(live, key=lambda grant: grant.decision != "deny", default=None)
