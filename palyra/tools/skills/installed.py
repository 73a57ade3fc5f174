"""Installed skills: upload, install, list, audit, quarantine, enable and remove.

A package is uploaded in chunks, because it may be larger than one protocol message.  A skill is
`enabled` after its installation.  It becomes `quarantined` on an operator's request or when its
package on disk is damaged, and `enabled` again after an audit without problems.

Owns: the skill index, read once at start and changed by one operation at a time; the uploads.
Talked to by: operators through the methods `skill.*`, and tool calls.
Never: puts the tools of a quarantined skill into the catalogue.  While no worker is available, the
catalogue has no skill tools at all (`wiring.skills`).
"""

from collections.abc import Callable
from typing import Protocol

import msgspec
import structlog
import trio

from palyra.core.access import Caller
from palyra.core.journal.records import SkillState
from palyra.core.ports import NowMs, RunBlocking
from palyra.core.skill.manifest import (
    MODULE,
    Audit,
    InstallSkill,
    SkillIndex,
    SkillRecord,
    SkillRefused,
    check_grants,
)
from palyra.core.skill.package import MAX_PACKAGE_BYTES, IsSigned, Package, read_package
from palyra.core.text.canonical_json import sha256_hex
from palyra.core.trust.external_descriptions import RedactText
from palyra.errors import Conflict, IllegalState, InvalidParams, NotFound, TooLarge, Unavailable
from palyra.tools.skills.audit import (
    DAMAGED,
    audit_package,
    check_declared,
    check_publisher,
    check_successor,
    check_words,
)
from palyra.tools.wasm.limits import GuestFailure
from palyra.tools.wasm.runtime import Runtime

log = structlog.get_logger("palyra.skills")
MAX_SKILLS = 64
INSTALL_S = 60.0  # start of a worker and compilation of the module


class Store(Protocol):
    """Storage of skills (`store.files.skills`).  Its methods block and raise Unavailable."""

    def read(self) -> SkillIndex: ...
    def write(self, shelf: SkillIndex) -> None: ...
    def put_package(self, data: bytes) -> str: ...
    def find_package(self, digest: str) -> bytes | None: ...


class Skills:
    """Manages the installed skills of the daemon."""

    def __init__(  # noqa: PLR0913 - mostly keyword-only, independent parts
        self,
        store: Store,
        runtime: Runtime,
        is_signed: IsSigned,
        *,
        redact: RedactText,
        now_ms: NowMs,
        run_blocking: RunBlocking,
        on_change: Callable[[], None],
    ) -> None:
        """`on_change` is called after every change of the index."""
        self._store = store
        self._runtime = runtime
        self._is_signed = is_signed
        self._redact = redact
        self._now_ms = now_ms
        self._run_blocking = run_blocking
        self._on_change = on_change
        self._shelf = SkillIndex()
        self.obstacle = "skills were not read yet"  # "": the index was read
        self._uploads = Uploads()
        self._changing = trio.Lock()  # a lock suffices: calls only read, changes are rare

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Read the index and run until cancelled.  An unreadable index counts as no skills."""
        try:
            self._set(await self._run_blocking(self._store.read))
            self.obstacle = ""
        except Unavailable as error:
            self.obstacle = error.message
            log.error("there are no skills", reason=error.message)  # noqa: TRY400 - the message is complete
        task_status.started()
        await trio.sleep_forever()

    @property
    def enabled(self) -> list[SkillRecord]:
        """Skills in the state `enabled`, whose tools may be called."""
        return [each for each in self._shelf.skills.values() if each.state == "enabled"]

    def _set(self, shelf: SkillIndex) -> None:
        self._shelf = shelf
        if self.enabled:
            self._runtime.pool.want()
        self._on_change()

    # --- for operators

    def list_all(self, caller: Caller) -> list[SkillRecord]:
        """Return all skills, ordered by id."""
        caller.require("skills:read")
        return [self._shelf.skills[skill_id] for skill_id in sorted(self._shelf.skills)]

    def find_obstacle(self) -> str:
        """Return why no skill can be called; "" if calls are possible or none was tried yet."""
        return self.obstacle or self._runtime.pool.obstacle

    def get(self, caller: Caller, skill_id: str) -> SkillRecord:
        """Return one skill.  Raises NotFound."""
        caller.require("skills:read")
        return self._get(skill_id)

    def upload(self, caller: Caller, sha256: str, offset: int, chunk: bytes) -> int:
        """Store a chunk of a package; return the bytes received so far.  Raises Conflict, TooLarge."""
        caller.require("skills:write")
        return self._uploads.take(sha256, offset, chunk)

    async def install(self, caller: Caller, wanted: InstallSkill) -> SkillRecord:
        """Install an uploaded package as a new skill or a new version; it is enabled at once.

        The package is checked and compiled before the index changes.
        Raises NotFound or InvalidParams for the upload, SkillRefused with the reason, TooLarge
        above MAX_SKILLS, and Unavailable when no worker can compile the module.
        """
        caller.require("skills:write")
        data = self._uploads.get(wanted.sha256)
        async with self._changing:
            package = await self._run_blocking(read_package, data, self._is_signed)
            await self._run_blocking(check_declared, package)
            await self._run_blocking(check_words, package, self._redact)
            granted = check_grants(wanted.granted, package.manifest.capabilities)
            check_publisher(self._shelf, package, wanted.trust_key)
            check_successor(self._shelf, package)
            await self._compile(package)
            now_ms = self._now_ms()
            record = SkillRecord(
                manifest=package.manifest,
                public_key=package.public_key,
                package_sha256=package.sha256,
                granted=granted,
                state="enabled",
                installed_ms=now_ms,
                changed_ms=now_ms,
                changed_by=caller.principal,
            )
            await self._run_blocking(self._store.put_package, data)
            await self._keep(record, publisher=package)
        self._uploads.drop(wanted.sha256)
        return record

    async def audit(self, caller: Caller, skill_id: str) -> Audit:
        """Check the package on disk again and report; changes nothing.  Raises NotFound."""
        caller.require("skills:read")
        record = self._get(skill_id)
        return await self._run_blocking(self._audit, record)

    async def quarantine(self, caller: Caller, skill_id: str, reason: str) -> SkillRecord:
        """Disable the tools of a skill.  Raises NotFound, Unavailable."""
        caller.require("skills:write")
        return await self._change(skill_id, "quarantined", reason, caller.principal)

    async def enable(self, caller: Caller, skill_id: str) -> SkillRecord:
        """Enable the tools of a skill again, if an audit finds no problems.

        Raises NotFound, Unavailable, and IllegalState with the problems.
        """
        caller.require("skills:write")
        found = await self._run_blocking(self._audit, self._get(skill_id))
        if found.problems:
            raise IllegalState(f"{skill_id}: {'; '.join(found.problems)}; install it again")
        return await self._change(skill_id, "enabled", "", caller.principal)

    async def remove(self, caller: Caller, skill_id: str) -> SkillRecord:
        """Remove a skill; the index keeps its publisher's key.  Raises NotFound, Unavailable."""
        caller.require("skills:write")
        async with self._changing:
            record = self._get(skill_id)
            left = {key: each for key, each in self._shelf.skills.items() if key != skill_id}
            await self._write(msgspec.structs.replace(self._shelf, skills=left))
        return record

    # --- for calls

    def find_package(self, record: SkillRecord) -> bytes | None:
        """Return the installed package, None if it is missing or damaged.  Blocks."""
        return self._store.find_package(record.package_sha256)

    async def report_damage(self, record: SkillRecord) -> None:
        """Quarantine a skill whose package on disk differs from the installed one."""
        log.error("a skill's package was replaced", skill=record.manifest.id)
        try:
            await self._change(
                record.manifest.id, "quarantined", DAMAGED, "daemon", only=record.package_sha256
            )
        except (NotFound, Unavailable) as error:
            log.warning("the skill cannot be quarantined", reason=error.message)

    # --- internals

    def _get(self, skill_id: str) -> SkillRecord:
        found = self._shelf.skills.get(skill_id)
        if found is None:
            raise NotFound(f"no skill {skill_id!r} is installed", field="id")
        return found

    async def _compile(self, package: Package) -> None:
        """Compile the module, so that a module that cannot run is not installed."""
        digest = package.manifest.files[MODULE].sha256
        with trio.move_on_after(INSTALL_S):
            try:
                await self._runtime.compile(digest, lambda: package.module)
            except GuestFailure as failure:
                raise SkillRefused(f"{MODULE}: {failure.message}") from None
            return
        raise Unavailable(f"no worker compiled the module within {INSTALL_S:g} s")

    async def _change(
        self, skill_id: str, state: SkillState, reason: str, by: str, *, only: str = ""
    ) -> SkillRecord:
        async with self._changing:
            before = self._get(skill_id)
            if only and before.package_sha256 != only:
                return before  # another version was installed in the meantime
            after = msgspec.structs.replace(
                before, state=state, reason=reason, changed_ms=self._now_ms(), changed_by=by
            )
            await self._keep(after)
        return after

    async def _keep(self, record: SkillRecord, publisher: Package | None = None) -> None:
        publishers = dict(self._shelf.publishers)
        if publisher is not None:
            publishers[record.manifest.publisher] = publisher.public_key
        skills = {**self._shelf.skills, record.manifest.id: record}
        if len(skills) > MAX_SKILLS:
            raise TooLarge(f"{MAX_SKILLS} skills are installed, the most there can be: remove one")
        await self._write(
            msgspec.structs.replace(self._shelf, skills=skills, publishers=publishers)
        )

    async def _write(self, shelf: SkillIndex) -> None:
        """Write the index to disk, then use it in memory.  Raises Unavailable."""
        if self.obstacle:
            raise Unavailable(self.obstacle)
        await self._run_blocking(self._store.write, shelf)
        self._set(shelf)

    def _audit(self, record: SkillRecord) -> Audit:
        data = self.find_package(record)
        if data is None:
            return Audit(skill=record, problems=(DAMAGED,))
        return audit_package(record, data, self._is_signed, self._redact)


MAX_UPLOADS = 4  # held at once; a new upload drops the oldest


class Uploads:
    """Package uploads in memory, complete or not, by their expected SHA-256."""

    def __init__(self) -> None:
        self._parts: dict[str, bytearray] = {}

    def take(self, sha256: str, offset: int, chunk: bytes) -> int:
        """Store a chunk at `offset` and return the size so far; offset 0 restarts the upload.

        The data ends with the chunk: bytes behind it are dropped.  Sending the last chunk again
        changes nothing.
        Raises Conflict for an unknown upload or a gap, TooLarge above MAX_PACKAGE_BYTES.
        """
        if offset == 0:
            self._parts.pop(sha256, None)
            while len(self._parts) >= MAX_UPLOADS:
                del self._parts[next(iter(self._parts))]
            self._parts[sha256] = bytearray()
        part = self._parts.get(sha256)
        if part is None or offset > len(part):
            raise Conflict("the upload is not known, or has a gap: begin again at offset 0")
        if offset + len(chunk) > MAX_PACKAGE_BYTES:
            raise TooLarge(f"a package has at most {MAX_PACKAGE_BYTES} bytes")
        part[offset:] = chunk
        return len(part)

    def get(self, sha256: str) -> bytes:
        """Return the package.  Raises NotFound, or InvalidParams if its digest differs."""
        part = self._parts.get(sha256)
        if part is None:
            raise NotFound(f"no package {sha256} was uploaded", field="sha256")
        data = bytes(part)
        if sha256_hex(data) != sha256:
            raise InvalidParams("what was uploaded has another SHA-256", field="sha256")
        return data

    def drop(self, sha256: str) -> None:
        """Delete the upload."""
        self._parts.pop(sha256, None)
