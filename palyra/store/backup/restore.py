"""Restoring a backup as a new data directory, on record.

Every file is compared with the list while it is copied, so the restored bytes are the checked
ones.  Then the journal in the copy is verified, gets its keys, and a line in its roots file: who
restored which backup, when and why.  A daemon that opens it reports that line as an incident.  A
journal that was put back without it is found by its keys (`store.journal.keys`).

Keys, in this order: those of the backup, if it has them; those of the folder `keys_from`, say of
the home that is replaced; otherwise a new key, which signs from here on.  Signatures of another key
than that stay valid: its public half is in `keys/signing.former`.
"""

import os
import shutil
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from palyra.core.journal.backup import BackupManifest, BackupRestored, KeysOrigin, Restoration
from palyra.core.journal.tape_row import merkle_root
from palyra.errors import IllegalState, Unavailable
from palyra.store.backup.contents import FileMatch, find_difference, read_manifest, read_pairs
from palyra.store.backup.draft import BackupDraft, make_draft, require_absolute
from palyra.store.backup.tree import DATABASE, KEYS, ROOTS, VAULT, IsStopped, never
from palyra.store.backup.verify import (
    Problems,
    check_journal,
    is_known_key,
    open_backup,
    open_database,
    trusted_keys,
    unknown_signer,
)
from palyra.store.files.disk import OsFile
from palyra.store.files.private_files import create_file, make_directory, read_secret
from palyra.store.journal.keys import BOND_NAME, KEY_NAME, PUBLIC_NAME, KeyRing, write_former
from palyra.store.journal.signed_roots import SignedRootsFile
from palyra.store.sqlite.tapes import Tapes

_OWN_KEYS = (KEY_NAME, PUBLIC_NAME, "operator.token", "vault.key")


@dataclass(frozen=True, slots=True)
class RestoreRequest:
    """A request to restore a backup."""

    by: str
    reason: str
    at_ms: int
    keys_from: Path | None = None
    trusted: tuple[bytes, ...] = ()  # public keys it may be signed with; empty: its own
    trusted_id: str = ""  # id of one more
    closed: tuple[Path, ...] = ()  # folders in which nothing is restored


def restore_backup(
    path: Path, target: Path, request: RestoreRequest, *, is_stopped: IsStopped = never
) -> BackupRestored:
    """Restore a backup as the folder `target`, which does not exist or is empty.

    The folder appears complete or not at all.  Blocks.  Raises IllegalState for another target and
    for a backup that is damaged or signed with another key, NotFound, DiskFull, Unavailable.
    """
    place = _choose_target(path, target, request.closed)
    problems = Problems()
    with open_backup(path) as folder:
        manifest = read_manifest(folder, problems.report)
        _require_sound(path, problems)
        assert manifest is not None  # noqa: S101 - else there is a problem
        if is_known_key(manifest, request.trusted, request.trusted_id) is False:
            raise IllegalState(
                f"{path}: nothing was restored: {unknown_signer(manifest)}: if you know the daemon "
                "that made it, give its public key with --key, or the id of its key with --trust"
            )
        with make_draft(place) as draft:
            for pair in read_pairs(folder, manifest, problems.report, is_stopped):
                _copy(pair, draft, problems, is_stopped)
                _require_sound(path, problems)
            _require_sound(path, problems)
            journal = check_journal(draft.path, manifest, problems)
            _require_sound(path, problems)
            assert journal is not None  # noqa: S101 - else there is a problem
            origin, keys = _provide_keys(draft, manifest, request)
            _record(draft, manifest, request, keys)
            draft.publish()
    return BackupRestored(
        backup_id=manifest.backup_id,
        path=str(place),
        created_ms=manifest.created_ms,
        files=manifest.files,
        size_bytes=manifest.size_bytes,
        head_position=manifest.head_position,
        keys=origin,
        key_id=keys.key_id,
        open_runs=journal.open_runs,
    )


def _copy(pair: FileMatch, draft: BackupDraft, problems: Problems, is_stopped: IsStopped) -> None:
    with draft.new_file(pair.listed.path) as copy:
        difference = find_difference(pair, is_stopped, copy)
    if difference:
        problems.report(f"{pair.listed.path}: {difference}")


def _require_sound(path: Path, problems: Problems) -> None:
    if problems.count:
        raise IllegalState(
            f"{path}: nothing was restored, the backup is damaged: {problems.first[0]}: "
            "`palyra backup verify` lists everything"
        )


def _choose_target(path: Path, target: Path, closed: tuple[Path, ...]) -> Path:
    """Return the place to restore to.  Raises IllegalState, Unavailable."""
    place = require_absolute(target)
    source = path.resolve()
    if place == source or place.is_relative_to(source) or source.is_relative_to(place):
        raise IllegalState(f"{place}: it contains the backup, or the backup contains it")
    real = place.resolve()
    home = next((folder for folder in real.parents if (folder / DATABASE).exists()), None)
    if home is not None:
        raise IllegalState(f"{place}: inside the home {home}: name a folder outside of it")
    for folder in closed:
        if real.is_relative_to(folder.resolve()):
            raise IllegalState(
                f"{place}: inside {folder}, which agents may write to: name a folder outside of it"
            )
    if place.is_symlink() or (place.exists() and not place.is_dir()):
        raise IllegalState(f"{place}: not a folder: name one that is empty or does not exist")
    try:
        is_used = place.exists() and any(place.iterdir())
    except OSError as error:
        raise Unavailable(f"{place}: cannot be read: {error.strerror or error}") from error
    if is_used:
        raise IllegalState(
            f"{place}: not empty: stop its daemon and move it away, or name an empty folder"
        )
    return place


def _provide_keys(
    draft: BackupDraft, manifest: BackupManifest, request: RestoreRequest
) -> tuple[KeysOrigin, KeyRing]:
    """Return the keys of the restored home and their origin.  Raises OSError, Unavailable."""
    folder = draft.path / KEYS
    origin: KeysOrigin = "new"
    if request.keys_from is not None:
        origin = "given"
        if folder.exists():
            shutil.rmtree(folder)
        (draft.path / VAULT).unlink(missing_ok=True)  # sealed with the other vault's key
        _copy_keys(request.keys_from, draft)
    elif manifest.has_keys:
        origin = "backup"
    make_directory(folder)
    public = KeyRing.open(folder).public_key  # creates a new one if there is none
    write_former(folder, [key for key in trusted_keys(manifest) if key != public])
    create_file(folder / BOND_NAME, f"{manifest.journal_id}\n".encode())
    return origin, KeyRing.open(folder)


def _copy_keys(source: Path, draft: BackupDraft) -> None:
    """Copy the keys of another home, and the vault next to them.  Raises Unavailable, OSError."""
    if read_secret(source / KEY_NAME) is None:
        raise Unavailable(f"{source}: no {KEY_NAME} in it: name the keys/ folder of a home")
    for name in _OWN_KEYS:
        path = source / name
        if path.is_file():
            with draft.new_file(f"{KEYS}/{name}") as copy:
                os.write(copy, path.read_bytes())
    vault = source.parent / VAULT
    if vault.is_file():
        with draft.new_file(VAULT) as copy:
            os.write(copy, vault.read_bytes())


def _record(
    draft: BackupDraft, manifest: BackupManifest, request: RestoreRequest, keys: KeyRing
) -> None:
    """Sign the rows after the last root, then the line about the restore."""
    with (
        closing(open_database(draft.path)) as connection,
        closing(OsFile(draft.path / ROOTS)) as file,
    ):
        roots = SignedRootsFile(file, keys, manifest.journal_id)
        roots.open(connection.execute("SELECT roots FROM owner").get)
        head = manifest.head_position
        signed = 0 if roots.last is None else roots.last.through_position
        if signed < head:
            hashes = Tapes(connection).read_hashes(first=signed + 1, through=head)
            roots.append(
                kind="root",
                first=signed + 1,
                through=head,
                merkle_root=merkle_root(hashes),
                at_ms=request.at_ms,
            )
        through = max(head, signed)
        roots.append(
            kind="segment",
            first=through + 1,
            through=through,
            merkle_root=b"",
            at_ms=request.at_ms,
            found=Restoration(
                backup_id=manifest.backup_id,
                created_ms=manifest.created_ms,
                by=request.by,
                reason=request.reason,
                at_ms=request.at_ms,
                head_position=head,
            ),
        )
