"""The contents of a backup: its manifest, and its files next to the list of them.

Nothing here trusts the folder.  The manifest counts by its signature and its exact bytes, the list
by its SHA-256 in the manifest, each file by its line in the list.  Both the list and the folder are
read in one pass, so memory does not grow with their length.
"""

import os
import stat
from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import NamedTuple

import msgspec

from palyra.core.journal.backup import BackupFile, BackupManifest
from palyra.store.backup.create import DATA, LIST, MANIFEST, SIGNED_PREFIX, SignedManifest
from palyra.store.backup.tree import (
    UNITS,
    FoundFile,
    IsStopped,
    Key,
    open_folder,
    raise_if_stopped,
    read_digest,
    sort_key,
    walk,
)
from palyra.store.journal.keys import is_signed

MAX_MANIFEST_BYTES = 65_536
MAX_LINE_BYTES = 16_384
OnProblem = Callable[[str], None]
_BEFORE_ALL: Key = (-1, ())
_LINE = msgspec.json.Decoder(BackupFile)


class FileMatch(NamedTuple):
    """A file that is there and in the list."""

    listed: BackupFile
    found: FoundFile


def read_manifest(folder: int, report: OnProblem) -> BackupManifest | None:
    """Return the manifest, None if it is missing, damaged or not signed with the key it names."""
    try:
        text = _read_small(folder, MANIFEST)
    except OSError as error:
        report(f"{MANIFEST}: {error.strerror or error}: this is no complete backup")
        return None
    try:
        signed = msgspec.json.decode(text, type=SignedManifest)
        manifest = msgspec.json.decode(signed.body, type=BackupManifest)
        signature = bytes.fromhex(signed.signature)
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError, RecursionError) as error:
        report(f"{MANIFEST}: not a manifest of a known format: {error}")
        return None
    body, key = bytes(signed.body), bytes.fromhex(manifest.public_key)
    exact = msgspec.json.encode(SignedManifest(msgspec.Raw(body), signature.hex())) + b"\n"
    if exact != text or not is_signed(key, SIGNED_PREFIX + body, signature):
        report(f"{MANIFEST}: its signature does not match")
        return None
    return manifest


def _read_small(folder: int, name: str) -> bytes:
    for found in walk(folder, [name]):
        if found.problem:
            raise OSError(0, found.problem)
        descriptor = found.open()
        with os.fdopen(descriptor, "rb") as file:
            return file.read(MAX_MANIFEST_BYTES)
    raise FileNotFoundError(2, "it is missing")


def read_pairs(
    folder: int, manifest: BackupManifest, report: OnProblem, is_stopped: IsStopped
) -> Iterator[FileMatch]:
    """Yield the files that are there and in the list; report all others.

    `found` of a pair may be opened until the next pair is taken.  Raises OSError.
    """
    for name in sorted(set(os.listdir(folder)) - {MANIFEST, LIST, DATA}):
        report(f"{name}: not part of the backup")
    listed = _read_list(folder, manifest, report)
    line = next(listed, None)
    for found in _walk_data(folder, report):
        raise_if_stopped(is_stopped)
        key = sort_key(found.path)
        while line is not None and sort_key(line.path) < key:
            report(f"{DATA}/{line.path}: missing")
            line = next(listed, None)
        if line is None or line.path != found.path:
            report(f"{DATA}/{found.path}: not part of the backup")
            continue
        if found.problem:
            report(f"{DATA}/{found.path}: {found.problem}")
        else:
            yield FileMatch(line, found)
        line = next(listed, None)
    while line is not None:
        report(f"{DATA}/{line.path}: missing")
        line = next(listed, None)


def find_difference(pair: FileMatch, is_stopped: IsStopped, target: int | None = None) -> str:
    """Return how a file differs from its line, "" if it does not; copy it to `target` if given.

    A longer file is read to one byte past its listed size.
    """
    try:
        descriptor = pair.found.open()
    except OSError as error:
        return error.strerror or str(error)
    try:
        content = read_digest(descriptor, is_stopped, target, pair.listed.size_bytes + 1)
    finally:
        os.close(descriptor)
    is_same = (content.size_bytes, content.sha256) == (pair.listed.size_bytes, pair.listed.sha256)
    return "" if is_same else "changed"


def _walk_data(folder: int, report: OnProblem) -> Iterator[FoundFile]:
    """Yield the files of the known units; report other entries."""
    try:
        mode = os.stat(DATA, dir_fd=folder, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(mode):
        report(f"{DATA}: not a folder")
        return
    with open_folder(DATA, folder) as data:
        for name in sorted(os.listdir(data), key=sort_key):  # noqa: PTH208 - of a descriptor
            if name in UNITS:
                yield from walk(data, [name])
            else:
                report(f"{DATA}/{name}: not part of the backup")


def _read_list(folder: int, manifest: BackupManifest, report: OnProblem) -> Iterator[BackupFile]:
    """Yield the lines, and report a list that is not the one of the manifest."""
    digest, before, count = sha256(), _BEFORE_ALL, 0
    for text in _read_lines(folder):
        digest.update(text)
        line = _parse_line(text)
        if line is None or sort_key(line.path) <= before:
            report(f"{LIST}: line {count + 1} is damaged")
            return
        before, count = sort_key(line.path), count + 1
        yield line
    if digest.hexdigest() != manifest.files_sha256 or count != manifest.files:
        report(f"{LIST}: not the list that the manifest names")


def _read_lines(folder: int) -> Iterator[bytes]:
    """Yield the lines of the list, in pieces if they are too long; none if there is no such file."""
    for found in walk(folder, [LIST]):
        if not found.problem:
            with os.fdopen(found.open(), "rb") as file:
                yield from iter(lambda: file.readline(MAX_LINE_BYTES), b"")


def _parse_line(text: bytes) -> BackupFile | None:
    try:
        line = _LINE.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return line if text.endswith(b"\n") else None
