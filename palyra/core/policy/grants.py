"""Grants: answers to approval requests that hold for more than one call.

A grant is keyed by what the call shows (`CallFacts.grant_key`): a command by its words, a write by
its files, reading a page by its host, a request that sends by method and address; by the
tool alone only at an MCP server, with digests of its description and of the server's configuration.  A key has one line for each part: a command of a shell line, a file of a patch.  An answer that
allows covers a call all of whose parts it has; one that denies, each call that has all of its parts.
A grant holds in the workspace of the session that it was given in.  It replaces a question of the rules
and permits nothing that the rules deny.

Keys of a command are its words, quoted as for a shell, with its folder.  `ANY_WORDS` or `SAME_WORDS` at
the end says how far a call may differ (`core.tool.harmless_options`); the bracket is not quoted, so no word of a
command can imitate it.
"""

from collections.abc import Iterable

from palyra.core.journal.records import ApprovalRecord, ApprovalScope, GrantRecord
from palyra.core.text.visible import visible
from palyra.core.tool.harmless_options import find_form

MAX_TTL_MS = 86_400_000  # a day; a longer permission is a rule
MAX_LIVE = 256  # of one principal
ONCE: tuple[ApprovalScope, ...] = ("once",)
IN_SESSION: tuple[ApprovalScope, ...] = ("once", "session")  # of a run confined to a conversation
BEYOND_ONCE: tuple[ApprovalScope, ...] = ("once", "session", "timeboxed")


ANY_WORDS = "[any words, listed options]"
SAME_WORDS = "[listed options]"
_ANY_ARGUMENTS = "[any arguments, unchanged server "
MAX_KEY_CHARS = 1_000  # of all parts; what is longer is not read


def server_tool_key(tool: str, server: str, version: str) -> str:
    """Return the key of all calls of one tool of an MCP server, for as long as both are unchanged.

    `server` is the digest of the server's configuration, `version` that of the tool's description.
    """
    return f"{tool} {_ANY_ARGUMENTS}{server[:8]}-{version[:16]}]"


def is_server_tool_key(tool: str, key: str) -> bool:
    """True if the key is one of `server_tool_key` for this tool."""
    return tool.startswith("mcp:") and key.startswith(f"{tool} {_ANY_ARGUMENTS}")


def parts_of(key: str) -> frozenset[str]:
    """Return the parts of a key; none for ""."""
    return frozenset(key.split("\n")) if key else frozenset()


def join_parts(parts: Iterable[str]) -> str:
    """Return the key of a call with these parts; "" if one of them has none, or it cannot be shown."""
    found = sorted(set(parts))
    key = "\n".join(found)
    is_shown = all(part.isprintable() and part for part in found) and len(key) <= MAX_KEY_CHARS
    return key if is_shown else ""


def describe_key(key: str) -> str:
    """Return what a key covers, safe to show."""
    return ", ".join(visible(part) for part in key.split("\n"))


def beyond_call(tool: str, key: str) -> tuple[str, ...]:
    """Return examples of what an answer with this key covers beyond its call; () for these words alone."""
    if tool in {"shell", "process_start"}:
        return tuple(line for part in sorted(parts_of(key)) for line in _beyond(part))
    if tool == "http_fetch":
        return (f"GET of any page, port 80 or 443 unless it has one: {describe_key(key)}",)
    if tool == "http_send":
        return (f"any headers and body: {describe_key(key)}",)
    if is_server_tool_key(tool, key):
        return (f"any arguments of {tool}, until its server or its description changes",)
    return (f"any content: {describe_key(key)}",) if key else ()


def _beyond(part: str) -> tuple[str, ...]:
    named, _, rule = part.rpartition(" [")
    if f"[{rule}" not in {ANY_WORDS, SAME_WORDS}:
        return ()
    program, *rest = named.rpartition("/: ")[2].split(" ")
    found = find_form(program.rpartition("/")[2], *rest[:1] or ("",))
    if found is None:
        return ()
    form, _ = found
    options = [*(f"-{letter}" for letter in form.flags[:2]), *form.options[-3:]]
    if f"[{rule}" == SAME_WORDS:
        return tuple(f"{named} {option}" for option in options)
    return (f"{named} OTHER-WORDS", *(f"{named} {option} OTHER-WORDS" for option in options))


def covers(grant: GrantRecord, key: str) -> bool:
    """True if the grant decides a call with this key."""
    given, asked = parts_of(grant.key), parts_of(key)
    if not given or not asked:
        return False
    return given <= asked if grant.decision == "deny" else asked <= given


def why_once(tool: str, key: str) -> str:
    """Return why an answer can hold for this call only; "" if it may hold for more."""
    if key:
        return ""
    return (
        f"this call of {tool} has no program with listed options, file or address that a wider answer could "
        "hold for (docs/approvals.md); a call that has one, or a rule in user policies, would do"
    )


def grant_id_of(approval_id: str) -> str:
    """Return the id of the grant that the answer creates; there is at most one."""
    return f"grt_{approval_id.removeprefix('apr_')}"


def scopes_of(*, is_confined: bool, is_once: bool) -> tuple[ApprovalScope, ...]:
    """Return the scopes that an approval request offers."""
    if is_once:
        return ONCE
    return IN_SESSION if is_confined else BEYOND_ONCE


def holds_for(grant: GrantRecord, asked: ApprovalRecord, epoch: int | None, at_ms: int) -> bool:
    """True if the grant answers a pending question; `epoch` is that of the asking run."""
    return (
        grant.scope in asked.scopes
        and (grant.principal, grant.agent, grant.tool, grant.workspace)
        == (asked.principal, asked.agent, asked.tool, asked.workspace)
        and covers(grant, asked.grant_key)
        and _holds_in(grant, asked.session_id, epoch, at_ms)
    )


def _holds_in(grant: GrantRecord, session_id: str, epoch: int | None, at_ms: int) -> bool:
    return grant.is_live(at_ms) and (
        grant.scope == "timeboxed" or (grant.session_id, grant.epoch) == (session_id, epoch)
    )


def find_grant(
    grants: Iterable[GrantRecord],
    *,
    session_id: str,
    epoch: int | None,
    at_ms: int,
    is_confined: bool = False,
) -> GrantRecord | None:
    """Return the live grant among those with the right key; a denial comes first.

    A run that is confined to a conversation is allowed nothing by an answer for all sessions.
    """
    live = [
        grant
        for grant in grants
        if _holds_in(grant, session_id, epoch, at_ms)
        and not (is_confined and grant.scope == "timeboxed" and grant.decision == "allow")
    ]
    return min(live, key=lambda grant: grant.decision != "deny", default=None)
