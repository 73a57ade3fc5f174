"""push.*: the browser of a login rings when a question waits that it may answer."""

from typing import Annotated

import msgspec

from palyra.core.push import MAX_ENDPOINT_CHARS, PushDevice, PushKey
from palyra.net.api.method import Method, MethodCall
from palyra.net.protocol.params import NoParams, Params


class PushSubscribe(Params, frozen=True, kw_only=True):
    """The address that a browser has from its push service."""

    endpoint: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_ENDPOINT_CHARS)]


async def key(call: MethodCall, _params: NoParams) -> PushKey:
    devices = call.backend.devices
    return PushKey(
        public_key=await devices.find_key(), endpoint=await devices.find(call.caller.token_id)
    )


async def subscribe(call: MethodCall, params: PushSubscribe) -> PushDevice:
    await call.backend.devices.subscribe(call.caller.token_id, params.endpoint)
    return PushDevice(endpoint=params.endpoint)


async def unsubscribe(call: MethodCall, _params: NoParams) -> PushDevice:
    await call.backend.devices.unsubscribe(call.caller.token_id)
    return PushDevice(endpoint="")


WRITE = "approvals:write"
# Exact: what a redactor might take for secrets is the purpose, and of the caller's own browser.
METHODS = (
    Method("push.key", NoParams, PushKey, WRITE, key, is_exact=True, is_read=True),
    Method("push.subscribe", PushSubscribe, PushDevice, WRITE, subscribe, is_exact=True),
    Method("push.unsubscribe", NoParams, PushDevice, WRITE, unsubscribe, is_exact=True),
)
