"""notify.*: the addresses that learn that a question waits."""

from palyra.net.api.method import Method, MethodCall
from palyra.net.protocol.params import NoParams
from palyra.net.protocol.results import NoticesTried


async def test(call: MethodCall, _params: NoParams) -> NoticesTried:
    return NoticesTried(sent=await call.backend.notices.try_out(call.caller))


METHODS = (Method("notify.test", NoParams, NoticesTried, "config:write", test),)
