"""Typed methods about prompts: their explanation, and the cost of a message before it is sent."""

from palyra.client.requests import RequestMethods
from palyra.core.context.views import ContextExplained, ReferencePreview


class ContextMethods(RequestMethods):
    """Explain prompts and preview references."""

    async def explain_context(self, run_id: str, turn: int | None = None) -> ContextExplained:
        """Return every segment of the prompt of a turn, of the last one for None."""
        params = {"run_id": run_id, "turn": turn}
        return await self._ask("context.explain", params, ContextExplained)

    async def preview_references(
        self,
        text: str,
        *,
        agent: str | None = None,
        session_id: str | None = None,
        workspace: str | None = None,
    ) -> ReferencePreview:
        """Resolve the references of a message without sending it; return their cost and trust."""
        params = {
            "text": text,
            "agent": agent,
            "session_id": session_id,
            "workspace": workspace,
        }
        return await self._ask("reference.preview", params, ReferencePreview)
