"""Access control: the scopes of each role, and the principals a caller sees."""

import msgspec

from palyra.core.journal.records import AHEAD_MS, Role, TokenRecord
from palyra.errors import Forbidden

_CLIENT = frozenset(
    {
        "runs:read",
        "runs:write",
        "approvals:read",
        "sessions:read",
        "sessions:write",
        "agents:read",
        "tools:read",
        "usage:read",
        "memory:read",
        "memory:write",
        "tasks:read",
        "tasks:write",
        "system:read",
    }
)
# Roles -> scopes.  A scope that is in no list here is the operator's alone.
SCOPES: dict[Role, frozenset[str]] = {
    "operator": frozenset({"*"}),
    "client": _CLIENT,
    "person": _CLIENT | {"approvals:write"},
    "approver": frozenset(
        {
            "approvals:read",
            "approvals:write",
            "runs:read",
            "sessions:read",
            "agents:read",
            "tools:read",
            "system:read",
        }
    ),
    "observer": frozenset(
        {
            "runs:read",
            "approvals:read",
            "sessions:read",
            "agents:read",
            "tools:read",
            "usage:read",
            "tasks:read",
            "system:read",
            "incidents:read",
        }
    ),
}
# Roles confined to their own principal.  The others see every principal, because an approver or
# operator that saw only its own runs could approve or operate nothing.
CONFINED: frozenset[Role] = frozenset({"client", "person"})


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Authenticated peer, built from the stored token record, never from a message."""

    principal: str
    role: Role
    token_id: str
    expires_ms: int | None = None  # when its connections must end
    slide_ms: int | None = None  # a login of the console: each use extends it by this

    @property
    def scopes(self) -> frozenset[str]:
        """Scopes of the role."""
        return SCOPES[self.role]

    @property
    def principal_filter(self) -> str | None:
        """The one principal whose records this caller sees; None for all."""
        return self.principal if self.role in CONFINED else None

    def may(self, scope: str) -> bool:
        """True if the role has the scope."""
        return "*" in self.scopes or scope in self.scopes

    def sees(self, principal: str) -> bool:
        """True if records of that principal are visible to this caller."""
        return self.principal_filter in {None, principal}

    def require(self, scope: str) -> None:
        """Raise Forbidden unless the role has the scope."""
        if not self.may(scope):
            raise Forbidden(f"role {self.role!r} lacks the scope {scope!r}")


def caller_of(record: TokenRecord) -> Caller:
    """Return the caller that a valid token identifies."""
    return Caller(
        principal=record.principal,
        role=record.role,
        token_id=record.token_id,
        expires_ms=record.expires_ms,
        slide_ms=record.slide_ms,
    )


def is_alive(record: TokenRecord, now_ms: int) -> bool:
    """True unless the token has expired or is revoked."""
    # One that was made in the future, by a clock that was ahead, would last too long.
    is_current = record.expires_ms is None or (
        now_ms < record.expires_ms and record.created_ms <= now_ms + AHEAD_MS
    )
    return is_current and record.revoked_ms is None
