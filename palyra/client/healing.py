"""Typed methods about self-healing."""

from palyra.client.requests import RequestMethods
from palyra.core.healing.rules import HealingMode
from palyra.core.journal.records import IncidentDomain
from palyra.net.protocol.results import HealingModesView


class HealingMethods(RequestMethods):
    """Read and set the modes of self-healing."""

    async def healing_mode(
        self, mode: HealingMode | None = None, domain: IncidentDomain | None = None
    ) -> HealingModesView:
        """The mode of each domain, or of one; a given `mode` is set first, until the daemon stops."""
        return await self._ask("healing.mode", {"mode": mode, "domain": domain}, HealingModesView)
