"""Typed methods about self-healing."""

from palyra.client.requests import RequestMethods
from palyra.core.healing.rules import HealingMode
from palyra.core.journal.records import IncidentDomain
from palyra.net.protocol.results import HealingModesView


class HealingMethods(RequestMethods):
    """Read and set the modes of self-healing."""

    async def healing_modes(self, domain: IncidentDomain | None = None) -> HealingModesView:
        """The mode of each domain, or of one."""
        return await self._ask("healing.mode", {"domain": domain}, HealingModesView)

    async def set_healing_mode(
        self, mode: HealingMode, domain: IncidentDomain | None = None
    ) -> HealingModesView:
        """Set the mode of a domain, or of all, until the daemon stops."""
        return await self._ask("healing.mode", {"mode": mode, "domain": domain}, HealingModesView)
