"""Backups and retention as methods call them: replies without files, and what was asked."""

from palyra.core.access import Caller
from palyra.core.journal.backup import BackupMade, BackupReport
from palyra.core.journal.retention import CompactionReport, RetentionReport


class FakeKeeping:
    """Both services in one."""

    def __init__(self) -> None:
        self.asked: list[object] = []

    async def create(self, caller: Caller, path: str | None, *, with_keys: bool) -> BackupMade:
        caller.require("backups:write")
        self.asked.append((path, with_keys))
        return BackupMade(
            backup_id="bak_1",
            path=path or "/backups/bak_1",
            created_ms=1,
            has_keys=with_keys,
            files=2,
            size_bytes=3,
            head_position=4,
            key_id="k",
        )

    async def verify(self, caller: Caller, path: str) -> BackupReport:
        caller.require("backups:write")
        return BackupReport(path=path, is_intact=False, problem_count=1, problems=("gone",))

    async def preview(self, caller: Caller) -> RetentionReport:
        caller.require("retention:write")
        return RetentionReport(is_set=True, runs=1)

    async def apply(self, caller: Caller, *, max_runs: int | None) -> RetentionReport:
        self.asked.append(max_runs)
        return await self.preview(caller)

    async def compact(self, caller: Caller, *, max_steps: int | None) -> CompactionReport:
        caller.require("retention:write")
        self.asked.append(max_steps)
        return CompactionReport(before_bytes=2, after_bytes=1, steps=1, is_complete=True)
