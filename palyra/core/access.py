"""Who may do what: roles, scopes, and whose things a caller sees."""

import msgspec

from palyra.core.journal.records import Role
from palyra.errors import Forbidden

# Roles -> scopes.  `client` is confined to its own principal; the others see every principal,
# because an approver or operator who saw only their own runs could approve or operate nothing.
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
            "system:read",
            "incidents:read",
        }
    ),
}


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """An authenticated peer; made from the server's token record only, never from a message."""

    principal: str
    role: Role
    token_id: str
    expires_ms: int | None = None  # when its connections must end

    @property
    def scopes(self) -> frozenset[str]:
        """What the role may do."""
        return SCOPES[self.role]

    @property
    def principal_filter(self) -> str | None:
        """The one principal whose things this caller sees; None for all."""
        return self.principal if self.role == "client" else None

    def may(self, scope: str) -> bool:
        """Whether the role holds the scope."""
        return "*" in self.scopes or scope in self.scopes

    def sees(self, principal: str) -> bool:
        """Whether things of that principal exist for this caller."""
        return self.principal_filter in {None, principal}

    def require(self, scope: str) -> None:
        """Raise Forbidden unless the role holds the scope."""
        if not self.may(scope):
            raise Forbidden(f"role {self.role!r} lacks the scope {scope!r}")
