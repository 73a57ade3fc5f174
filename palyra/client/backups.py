"""Typed methods about backups."""

from palyra.client.requests import RequestMethods
from palyra.core.journal.backup import BackupMade, BackupReport


class BackupMethods(RequestMethods):
    """Make and check backups on the daemon's machine."""

    async def create_backup(
        self,
        path: str | None = None,
        *,
        with_keys: bool = False,
        idempotency_key: str | None = None,
    ) -> BackupMade:
        """Make a backup as a new folder at an absolute path, by default in the data directory.

        `with_keys` includes keys, the operator's token and the vault.
        Cancellation: the backup is stopped, and nothing of it is left unless it was complete.
        """
        params = {"path": path, "with_keys": with_keys, "idempotency_key": idempotency_key}
        return await self._mutate("backup.create", params, BackupMade)

    async def verify_backup(self, path: str) -> BackupReport:
        """Check every byte of a backup and the journal in it; the daemon's own key is trusted."""
        return await self._ask("backup.verify", {"path": path}, BackupReport)
