"""Access control: the scopes of each role, and the principals a caller sees."""

import msgspec

from palyra.core.journal.records import Role
from palyra.errors import Forbidden

# Roles -> scopes.  `client` is confined to its own principal; the others see every principal,
# because an approver or operator that saw only its own runs could approve or operate nothing.
SCOPES: dict[Role, frozenset[str]] = {
    "operator": frozenset({"*"}),
    "client": frozenset(
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
    ),
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


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Authenticated peer, built from the stored token record, never from a message."""

    principal: str
    role: Role
    token_id: str
    expires_ms: int | None = None  # when its connections must end

    @property
    def scopes(self) -> frozenset[str]:
        """Scopes of the role."""
        return SCOPES[self.role]

    @property
    def principal_filter(self) -> str | None:
        """The one principal whose records this caller sees; None for all."""
        return self.principal if self.role == "client" else None

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
