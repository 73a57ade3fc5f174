"""Typed methods about retention."""

from palyra.client.requests import RequestMethods
from palyra.core.journal.retention import CompactionReport, RetentionReport


class RetentionMethods(RequestMethods):
    """Preview and apply the bounds of [retention], and shorten the database file."""

    async def preview_retention(self) -> RetentionReport:
        """Return counts of what is over the bounds; nothing is changed."""
        return await self._ask("retention.preview", {}, RetentionReport)

    async def apply_retention(
        self, *, max_runs: int | None = None, idempotency_key: str | None = None
    ) -> RetentionReport:
        """Remove what is over the bounds, at most `max_runs` tapes."""
        params = {"max_runs": max_runs, "idempotency_key": idempotency_key}
        return await self._mutate("retention.apply", params, RetentionReport)

    async def compact_journal(
        self, *, max_steps: int | None = None, idempotency_key: str | None = None
    ) -> CompactionReport:
        """Return free pages of the database file to the file system, in steps of 1 MiB."""
        params = {"max_steps": max_steps, "idempotency_key": idempotency_key}
        return await self._mutate("retention.compact", params, CompactionReport)
