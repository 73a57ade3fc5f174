"""config.*: the values of the configuration with their sources, and a change of one."""

from typing import Annotated, Any

import msgspec

from palyra.core.configuration import ConfigChange, ConfigChanged, ConfigView
from palyra.net.api.method import Method, MethodCall, Mutation
from palyra.net.protocol.params import Params

_Prefix = Annotated[str, msgspec.Meta(max_length=128)]
_Key = Annotated[str, msgspec.Meta(pattern=r"^[a-z_]+\.[a-z0-9_]+$", max_length=128)]
_Digest = Annotated[str, msgspec.Meta(pattern=r"^([0-9a-f]{64})?$")]


class ConfigGet(Params, frozen=True, kw_only=True):
    """The keys that are `key`, or are in the section `key`; all of them without it."""

    key: _Prefix = ""


class ConfigSet(Mutation, frozen=True, kw_only=True):
    """A value of one key, for a file with that digest; without one the key is removed from the file."""

    key: _Key
    value: Any = None
    digest: _Digest | None = None


async def get(call: MethodCall, params: ConfigGet) -> ConfigView:
    found = await call.backend.configuration.read(call.caller)
    if not params.key:
        return found
    wanted = tuple(each for each in found.entries if params.key in {each.key, _section(each.key)})
    return msgspec.structs.replace(found, entries=wanted)


def _section(key: str) -> str:
    return key.partition(".")[0]


async def set_(call: MethodCall, params: ConfigSet) -> ConfigChanged:
    change = ConfigChange(key=params.key, value=params.value, digest=params.digest)
    return await call.once(
        ConfigChanged, lambda: call.backend.configuration.change(call.caller, change)
    )


METHODS = (
    Method("config.get", ConfigGet, ConfigView, "config:read", get, is_bulk=True),
    Method("config.set", ConfigSet, ConfigChanged, "config:write", set_),
)
