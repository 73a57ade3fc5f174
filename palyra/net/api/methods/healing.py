"""healing.*: the modes of self-healing."""

from palyra.core.healing.rules import HealingMode
from palyra.core.journal.records import IncidentDomain
from palyra.net.api.method import Method, MethodCall
from palyra.net.protocol.params import Params
from palyra.net.protocol.results import HealingModesView


class HealingModeParams(Params, frozen=True, kw_only=True):
    """Nothing reads the modes; `mode` sets that of `domain`, or of all, until the daemon stops."""

    mode: HealingMode | None = None
    domain: IncidentDomain | None = None


async def mode(  # noqa: RUF029 - a handler; every handler is awaited
    call: MethodCall, params: HealingModeParams
) -> HealingModesView:
    healing = call.backend.healing
    if params.mode is None:
        modes = healing.read(call.caller)
    else:
        modes = healing.change(call.caller, params.mode, params.domain)
    if params.domain is not None:
        modes = {params.domain: modes[params.domain]}
    return HealingModesView(modes=modes)


METHODS = (
    Method(
        "healing.mode", HealingModeParams, HealingModesView, "incidents:read", mode, is_read=False
    ),
)
