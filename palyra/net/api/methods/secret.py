"""secret.*: the daemon's vault; values go in and never come out.

No idempotency key: a receipt would hold a digest of the value, and a repetition has the same effect.
"""

from typing import Annotated

import msgspec

from palyra.core.configuration import StoredSecret
from palyra.net.api.method import Method, MethodCall
from palyra.net.protocol.params import NoParams, Params
from palyra.net.protocol.results import SecretList, SecretRemoved

_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]


class SecretSet(Params, frozen=True, kw_only=True):
    """A secret by name; the value has at least 8 bytes."""

    name: _Name
    value: str

    def __repr__(self) -> str:
        """Without the value."""
        return f"SecretSet(name={self.name!r})"


class SecretRemove(Params, frozen=True, kw_only=True):
    """A secret by name."""

    name: _Name


async def list_(call: MethodCall, _params: NoParams) -> SecretList:
    return SecretList(secrets=await call.backend.secrets.list_stored(call.caller))


async def set_(call: MethodCall, params: SecretSet) -> StoredSecret:
    backend = call.backend
    return await backend.secrets.put(call.caller, params.name, params.value, backend.now_ms())


async def remove(call: MethodCall, params: SecretRemove) -> SecretRemoved:
    await call.backend.secrets.remove(call.caller, params.name)
    return SecretRemoved(name=params.name)


METHODS = (
    Method("secret.list", NoParams, SecretList, "secrets:read", list_),
    Method("secret.set", SecretSet, StoredSecret, "secrets:write", set_),
    Method("secret.remove", SecretRemove, SecretRemoved, "secrets:write", remove),
)
