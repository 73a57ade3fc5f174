"""backup.*: backups of the daemon's directory, for operators."""

from typing import Annotated

import msgspec

from palyra.core.journal.backup import BackupMade, BackupReport
from palyra.net.api.method import Method, MethodCall, Mutation
from palyra.net.protocol.params import LINE, Params

BackupPath = Annotated[str, msgspec.Meta(min_length=1, max_length=4_096), LINE]


class BackupCreate(Mutation, frozen=True, kw_only=True):
    """Make a backup as a new folder on the daemon's machine; without a path in its directory."""

    path: BackupPath | None = None  # absolute
    with_keys: bool = False  # also keys, the operator's token and the vault


class BackupVerify(Params, frozen=True, kw_only=True):
    """Check a backup on the daemon's machine: every byte of it, and the journal in it."""

    path: BackupPath  # absolute


async def create(call: MethodCall, params: BackupCreate) -> BackupMade:
    backups = call.backend.backups
    return await call.once(
        BackupMade,
        lambda: backups.create(call.caller, params.path, with_keys=params.with_keys),
    )


async def verify(call: MethodCall, params: BackupVerify) -> BackupReport:
    return await call.backend.backups.verify(call.caller, params.path)


METHODS = (
    Method("backup.create", BackupCreate, BackupMade, "backups:write", create),
    Method("backup.verify", BackupVerify, BackupReport, "backups:write", verify, is_read=True),
)
